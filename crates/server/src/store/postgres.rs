//! The store in a PostgreSQL database, for teams that run one.
//!
//! One server at a time: an advisory lock on a connection of its own keeps a second one away,
//! and is gone as soon as the first one's connection is. Durability is the database's:
//! `synchronous_commit` is set to at least `on` whatever the database's default.

use std::str::FromStr;
use std::time::Duration;

use api::id::SandboxId;
use jiff::Timestamp;
use lifecycle::ApiKey;
use lifecycle::event::{AuditEntry, AuditQuery, Event, EventId};
use lifecycle::store::{Batch, BatchOutcome, Contents, Error, KeyRecord, Write};
use secrecy::{ExposeSecret, SecretString};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions, Connection as _};

use super::sql;

type Connection = sqlx::PgConnection;
type Database = sqlx::Postgres;

/// One writer, and readers for listings of events.
const CONNECTIONS: u32 = 8;

/// How long to wait for a connection: as the reference's `pool_timeout_seconds`.
const ACQUIRE: Duration = Duration::from_secs(5);

/// The advisory lock that one server holds: the letters `osb-srv` as a number.
const LOCK: i64 = 0x006f_7362_2d73_7276;

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
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at BIGINT NOT NULL,
        sandbox_id TEXT, document TEXT NOT NULL
    );
    CREATE INDEX events_by_sandbox ON events (sandbox_id, id);
    CREATE TABLE audit (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at BIGINT NOT NULL,
        actor TEXT NOT NULL, target TEXT, document TEXT NOT NULL
    );
    CREATE INDEX audit_by_target ON audit (target, id);
    CREATE INDEX audit_by_actor ON audit (actor, id);
    ",
    "
    CREATE TABLE ended (
        number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, sandbox_id TEXT NOT NULL,
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

/// A store in a PostgreSQL database.
pub struct Postgres {
    pool: PgPool,
    location: String,
    identity: String,
    /// Holds the advisory lock for as long as the store is open.
    lock: Connection,
}

impl Postgres {
    /// Connects, locks other servers out and brings the schema up to date.
    pub async fn open(dsn: &SecretString) -> Result<Postgres, Error> {
        // The text may hold a password: an error names the host and database only.
        let options =
            PgConnectOptions::from_str(dsn.expose_secret()).map_err(|_| Error::Unavailable {
                store: "postgresql",
                location: "the configured DSN".to_owned(),
                message: "it cannot be read; it looks like \
                          postgresql://user:password@host:5432/database"
                    .to_owned(),
            })?;
        let database = options.get_database().unwrap_or("the default database");
        let location = format!("{}:{}/{database}", options.get_host(), options.get_port());
        let options = options
            .options([("synchronous_commit", "on")])
            .application_name("opensandbox-server")
            .disable_statement_logging();
        let lock = lock(&options, &location).await?;
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(ACQUIRE)
            .connect_with(options)
            .await
            .map_err(|error| explain(&location, "connect", &error))?;
        let identity = migrate(&pool, &location).await?;
        Ok(Postgres {
            pool,
            location,
            identity,
            lock,
        })
    }

    /// Lets go of the lock and closes every connection.
    pub async fn close(mut self) {
        // By a statement, whose answer is waited for: the database drops the lock with the connection as
        // well, but some time after the client has closed it, and the next to open would be refused.
        let unlock = sqlx::query("SELECT pg_advisory_unlock($1)").bind(LOCK);
        let _ = unlock.execute(&mut self.lock).await;
        let _ = self.lock.close().await;
        self.pool.close().await;
    }

    fn fail(&self, action: &'static str, error: &sqlx::Error) -> Error {
        explain(&self.location, action, error)
    }

    async fn check(&self) -> Result<(), Error> {
        let touch = async {
            let mut transaction = self.pool.begin().await?;
            let row = sqlx::query(sql::PUT_META).bind("health").bind("ok");
            row.execute(&mut *transaction).await?;
            transaction.rollback().await
        };
        touch.await.map_err(|error| self.fail("write", &error))
    }
}

super::sql::sql_store!(Postgres, "postgresql", "BEGIN", Postgres::fail);

/// A connection that holds the lock.
async fn lock(options: &PgConnectOptions, location: &str) -> Result<Connection, Error> {
    let fail = |error: sqlx::Error| explain(location, "connect", &error);
    let connect = tokio::time::timeout(ACQUIRE, Connection::connect_with(options)).await;
    let seconds = ACQUIRE.as_secs();
    let mut connection = connect
        .map_err(|_| Error::Timeout { seconds })?
        .map_err(fail)?;
    let is_ours: bool = sqlx::query_scalar("SELECT pg_try_advisory_lock($1)")
        .bind(LOCK)
        .fetch_one(&mut connection)
        .await
        .map_err(fail)?;
    if is_ours {
        Ok(connection)
    } else {
        Err(Error::Locked {
            store: "postgresql",
            location: location.to_owned(),
        })
    }
}

/// Brings the schema up to date and returns the store's identity.
async fn migrate(pool: &PgPool, location: &str) -> Result<String, Error> {
    let fail = |error: sqlx::Error| explain(location, "migrate", &error);
    let mut transaction = pool.begin().await.map_err(fail)?;
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
            store: "postgresql",
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

fn explain(location: &str, action: &'static str, error: &sqlx::Error) -> Error {
    let (store, location) = ("postgresql", location.to_owned());
    let database = error.as_database_error();
    let code = database.and_then(|e| e.code()).unwrap_or_default();
    let message = database.map_or_else(|| error.to_string(), |e| e.message().to_owned());
    match &*code {
        "53100" => Error::Full { store, location },
        "XX001" | "XX002" => Error::Corrupt {
            store,
            location,
            message,
        },
        // Wrong password, no such database, shutting down, too many connections.
        "28P01" | "28000" | "3D000" | "57P01" | "57P02" | "57P03" | "53300" => Error::Unavailable {
            store,
            location,
            message,
        },
        _ => match error {
            sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolClosed => {
                Error::Unavailable {
                    store,
                    location,
                    message,
                }
            }
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
