//! The store in one SQLite file.
//!
//! Write-ahead log with `synchronous = FULL`: a commit is one fsync of the log, and what was
//! acknowledged survives the machine losing power. (`NORMAL` would save that fsync and lose the
//! last commits on power loss.) The cost is shared: all writes that arrive during one commit go
//! into the next, and a creation waits for its record while the backend works, not after it.
//!
//! The file holds the access tokens of sandboxes, so only its owner may read it. A lock file
//! beside it keeps a second server away for as long as the first lives, however that ends.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::id::SandboxId;
use jiff::Timestamp;
use lifecycle::ApiKey;
use lifecycle::event::{AuditEntry, AuditQuery, Event, EventId};
use lifecycle::store::{Batch, BatchOutcome, Contents, Error, KeyRecord, Write};
use sqlx::Connection as _;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

use super::sql;

type Connection = sqlx::SqliteConnection;
type Database = sqlx::Sqlite;

/// How long a statement waits for a lock that another process (a backup, a shell) holds.
const BUSY: Duration = Duration::from_secs(5);

/// One writer and a few readers: each connection is a thread.
const CONNECTIONS: u32 = 4;

/// A read waits this long for a connection before it fails.
const ACQUIRE: Duration = Duration::from_secs(5);

/// Each brings the schema from its index to the next. Never change one that was released.
const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE sandboxes (
        id TEXT PRIMARY KEY, state TEXT NOT NULL, created_at BIGINT NOT NULL,
        expires_at BIGINT, document TEXT NOT NULL
    );
    CREATE TABLE snapshots (
        id TEXT PRIMARY KEY, sandbox_id TEXT NOT NULL, state TEXT NOT NULL,
        created_at BIGINT NOT NULL, document TEXT NOT NULL
    );
    CREATE TABLE idempotency_keys (
        name TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, sandbox_id TEXT NOT NULL,
        expires_at BIGINT NOT NULL
    );
    CREATE INDEX idempotency_keys_by_sandbox ON idempotency_keys (sandbox_id);
    CREATE INDEX idempotency_keys_by_end ON idempotency_keys (expires_at);
    CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT, at BIGINT NOT NULL, sandbox_id TEXT,
        document TEXT NOT NULL
    );
    CREATE INDEX events_by_sandbox ON events (sandbox_id, id);
    CREATE TABLE audit (
        id INTEGER PRIMARY KEY AUTOINCREMENT, at BIGINT NOT NULL, actor TEXT NOT NULL,
        target TEXT, document TEXT NOT NULL
    );
    CREATE INDEX audit_by_target ON audit (target, id);
    CREATE INDEX audit_by_actor ON audit (actor, id);
    ",
    "
    CREATE TABLE ended (
        number INTEGER PRIMARY KEY AUTOINCREMENT, sandbox_id TEXT NOT NULL,
        ended_at BIGINT NOT NULL, summary TEXT NOT NULL, document TEXT NOT NULL
    );
    CREATE INDEX ended_by_sandbox ON ended (sandbox_id);
    CREATE INDEX ended_by_end ON ended (ended_at);
    ",
    "
    CREATE TABLE tenants (name TEXT PRIMARY KEY, document TEXT NOT NULL);
    CREATE TABLE api_keys (id TEXT PRIMARY KEY, last_used_at BIGINT, document TEXT NOT NULL);
    ALTER TABLE audit ADD COLUMN tenant TEXT NOT NULL DEFAULT 'default';
    CREATE INDEX audit_by_tenant ON audit (tenant, id);
    ",
];

/// A store in a file.
pub struct Sqlite {
    pool: SqlitePool,
    location: String,
    identity: String,
    /// Held for as long as the store is open.
    _lock: File,
}

impl Sqlite {
    /// Opens the store, makes it if there is none, and brings its schema up to date.
    pub async fn open(path: &Path) -> Result<Sqlite, Error> {
        Sqlite::open_with(path, BUSY).await
    }

    /// As `open`, with another patience for locks of other programs.
    pub(super) async fn open_with(path: &Path, patience: Duration) -> Result<Sqlite, Error> {
        let location = path.display().to_string();
        let lock = prepare(path).map_err(|error| cannot_prepare(&location, &error))?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(patience);
        let pool = SqlitePoolOptions::new()
            .max_connections(CONNECTIONS)
            // A minimum would have a task of the pool open a connection beside the first one. Of two
            // connections that turn a new file into a write-ahead log at once SQLite refuses one
            // with SQLITE_BUSY, without waiting: it reads already, and waiting could be for ever.
            .min_connections(0)
            .acquire_timeout(ACQUIRE)
            // A reader that had to wait should not make the log grow for ever.
            .idle_timeout(None)
            .max_lifetime(None)
            // SQLite ends a transaction by itself when its disk is full, which this library does not
            // notice: from then on such a connection refuses every transaction.
            .before_acquire(|connection, _| {
                let is_usable = !connection.is_in_transaction();
                Box::pin(std::future::ready(Ok(is_usable)))
            })
            .connect_with(options)
            .await
            .map_err(|error| explain(&location, "open", &error))?;
        let identity = migrate(&pool, &location).await?;
        Ok(Sqlite {
            pool,
            location,
            identity,
            _lock: lock,
        })
    }

    /// Folds the log into the file and closes it.
    pub async fn close(self) {
        self.pool.close().await;
    }

    fn fail(&self, action: &'static str, error: &sqlx::Error) -> Error {
        explain(&self.location, action, error)
    }

    /// A write that changes nothing still needs the lock, and room in the log when it is committed.
    async fn check(&self) -> Result<(), Error> {
        let touch = async {
            let mut transaction = self.pool.begin_with("BEGIN IMMEDIATE").await?;
            let row = sqlx::query(sql::PUT_META).bind("health").bind("ok");
            row.execute(&mut *transaction).await?;
            transaction.commit().await
        };
        touch.await.map_err(|error| self.fail("write", &error))
    }
}

super::sql::sql_store!(Sqlite, "sqlite", "BEGIN IMMEDIATE", Sqlite::fail);

/// Makes directory and file for their owner alone, and locks other servers out.
fn prepare(path: &Path) -> io::Result<File> {
    if let Some(parent) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)?;
    }
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(with_suffix(path, ".lock"))?;
    lock.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => io::ErrorKind::ResourceBusy.into(),
        // Such as ENOLCK, or a filesystem that has no locks.
        TryLockError::Error(error) => error,
    })?;
    // SQLite gives its log the rights of the file it belongs to.
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(lock)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn cannot_prepare(location: &str, error: &io::Error) -> Error {
    let (store, location) = ("sqlite", location.to_owned());
    match error.kind() {
        io::ErrorKind::ResourceBusy => Error::Locked { store, location },
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::Full { store, location }
        }
        _ => {
            let message = format!("{error}; check that the path can be written by this user");
            Error::Unavailable {
                store,
                location,
                message,
            }
        }
    }
}

/// Brings the schema up to date and returns the store's identity.
async fn migrate(pool: &SqlitePool, location: &str) -> Result<String, Error> {
    let fail = |error: sqlx::Error| explain(location, "migrate", &error);
    let damage: String = sqlx::query_scalar("PRAGMA quick_check(1)")
        .fetch_one(pool)
        .await
        .map_err(fail)?;
    if damage != "ok" {
        let (store, location) = ("sqlite", location.to_owned());
        return Err(Error::Corrupt {
            store,
            location,
            message: damage,
        });
    }
    let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await.map_err(fail)?;
    let meta = "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)";
    sqlx::query(meta)
        .execute(&mut *transaction)
        .await
        .map_err(fail)?;
    let found: Option<String> = sqlx::query_scalar(sql::GET_META)
        .bind(sql::SCHEMA)
        .fetch_optional(&mut *transaction)
        .await
        .map_err(fail)?;
    let found: usize = found.and_then(|text| text.parse().ok()).unwrap_or(0);
    if found > MIGRATIONS.len() {
        return Err(Error::TooNew {
            store: "sqlite",
            location: location.to_owned(),
            found: i64::try_from(found).unwrap_or(i64::MAX),
            known: i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX),
        });
    }
    for migration in &MIGRATIONS[found..] {
        sqlx::raw_sql(*migration)
            .execute(&mut *transaction)
            .await
            .map_err(fail)?;
    }
    let version = MIGRATIONS.len().to_string();
    let row = sqlx::query(sql::PUT_META).bind(sql::SCHEMA).bind(version);
    row.execute(&mut *transaction).await.map_err(fail)?;
    let known: Option<String> = sqlx::query_scalar(sql::GET_META)
        .bind(sql::IDENTITY)
        .fetch_optional(&mut *transaction)
        .await
        .map_err(fail)?;
    let identity = known.unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    let row = sqlx::query(sql::PUT_META)
        .bind(sql::IDENTITY)
        .bind(&identity);
    row.execute(&mut *transaction).await.map_err(fail)?;
    transaction.commit().await.map_err(fail)?;
    Ok(identity)
}

/// SQLite's primary result codes that mean something to an operator.
mod code {
    pub(super) const BUSY: u32 = 5;
    pub(super) const LOCKED: u32 = 6;
    pub(super) const READONLY: u32 = 8;
    pub(super) const CORRUPT: u32 = 11;
    pub(super) const FULL: u32 = 13;
    pub(super) const CANTOPEN: u32 = 14;
    pub(super) const NOTADB: u32 = 26;
}

fn explain(location: &str, action: &'static str, error: &sqlx::Error) -> Error {
    let (store, location) = ("sqlite", location.to_owned());
    let database = error.as_database_error();
    // Extended codes carry the primary one in their low byte.
    let number = database
        .and_then(|e| e.code()?.parse::<u32>().ok())
        .map(|code| code & 0xff);
    let message = database.map_or_else(|| error.to_string(), |e| e.message().to_owned());
    match number {
        Some(code::BUSY | code::LOCKED) => Error::Busy {
            store,
            location,
            message,
        },
        Some(code::FULL) => Error::Full { store, location },
        Some(code::CORRUPT | code::NOTADB) => Error::Corrupt {
            store,
            location,
            message,
        },
        Some(code::READONLY | code::CANTOPEN) => Error::Unavailable {
            store,
            location,
            message,
        },
        _ => match error {
            sqlx::Error::PoolTimedOut => Error::Timeout {
                seconds: ACQUIRE.as_secs(),
            },
            _ => Error::Failed {
                store,
                action,
                message,
            },
        },
    }
}

#[cfg(test)]
impl Sqlite {
    pub(super) fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    /// Lets every connection believe that the disk holds no more than this.
    pub(super) async fn limit_pages(&self, pages: i64) {
        let mut all = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut connection = self.pool.acquire().await.expect("a connection");
            let pragma = sqlx::AssertSqlSafe(format!("PRAGMA max_page_count = {pages}"));
            sqlx::raw_sql(pragma)
                .execute(&mut *connection)
                .await
                .expect("a pragma");
            all.push(connection);
        }
    }
}
