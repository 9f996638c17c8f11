//! Missing, locked, damaged, foreign and full databases: a typed error, never a panic.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use lifecycle::store::{Error, Store, Write};
use sqlx::ConnectOptions as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};

use super::server::PostgresServer;
use super::{event, names, record, write};
use crate::store::{Postgres, Sqlite};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

async fn refused(path: &Path) -> Error {
    Sqlite::open(path).await.err().expect("it is refused")
}

#[tokio::test]
async fn only_its_owner_can_read_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("made/store.db");
    let store = Sqlite::open(&path).await.unwrap();
    write(&store, vec![Write::PutSandbox(record("a").await)]).await;
    for name in ["store.db", "store.db-wal", "store.db.lock"] {
        assert_eq!(mode(&path.with_file_name(name)), 0o600, "{name}");
    }
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    drop(store);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let _store = Sqlite::open(&path).await.unwrap();
    assert_eq!(mode(&path), 0o600, "and again after somebody opened it up");
}

#[tokio::test]
async fn a_second_server_is_kept_away_until_the_first_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let first = Sqlite::open(&path).await.unwrap();
    assert!(matches!(refused(&path).await, Error::Locked { .. }));
    drop(first);
    Sqlite::open(&path).await.unwrap();
}

/// Why the first connection to a new file is opened alone: while another one begins to write, as to
/// make the file a write-ahead log, SQLite refuses to do so too and does not wait, because this
/// connection already reads. A pool with a minimum of connections opens one in a task of its own,
/// now and then beside the first, and the server was told that another process had its store.
#[tokio::test]
async fn a_new_store_is_opened_by_one_connection() {
    let patience = std::time::Duration::from_secs(3600);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("begun.db");
    let plain = SqliteConnectOptions::new()
        .filename(&path)
        .create_if_missing(true)
        .busy_timeout(patience);
    let mut writer = plain.connect().await.unwrap();
    let writing = "BEGIN IMMEDIATE";
    sqlx::raw_sql(writing).execute(&mut writer).await.unwrap();
    let log = plain.journal_mode(SqliteJournalMode::Wal);
    let error = log.connect().await.expect_err("it is refused");
    assert!(error.to_string().contains("locked"), "{error}");

    let store = Sqlite::open(&directory.path().join("store.db")).await;
    let pool = store.as_ref().unwrap().pool();
    assert_eq!(pool.options().get_min_connections(), 0);
}

#[tokio::test]
async fn a_file_that_is_no_database_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    std::fs::write(
        &path,
        "this is not a database, and long enough to be looked at ".repeat(40),
    )
    .unwrap();
    let error = refused(&path).await;
    assert!(matches!(error, Error::Corrupt { .. }), "{error:?}");
    assert!(error.to_string().contains("store.db"), "{error}");
}

#[tokio::test]
async fn a_damaged_database_is_told_when_it_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Sqlite::open(&path).await.unwrap();
    let of = record("a").await;
    for _ in 0..50 {
        let writes = (0..20).map(|n| Write::AppendEvent(event(&of, &n.to_string())));
        write(&store, writes.collect()).await;
    }
    store.close().await;
    let mut bytes = std::fs::read(&path).unwrap();
    assert!(
        bytes.len() > 100_000,
        "the log was folded in: {}",
        bytes.len()
    );
    for page in bytes.chunks_mut(4096).skip(2) {
        page.fill(0xa5);
    }
    std::fs::write(&path, bytes).unwrap();
    let error = refused(&path).await;
    assert!(matches!(error, Error::Corrupt { .. }), "{error:?}");
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Sqlite::open(&path).await.unwrap();
    write(&store, vec![Write::PutSandbox(record("a").await)]).await;
    sqlx::query("UPDATE sandboxes SET document = '{'")
        .execute(store.pool())
        .await
        .unwrap();
    assert!(matches!(store.load().await, Err(Error::Corrupt { .. })));
}

#[tokio::test]
async fn a_store_of_a_newer_server_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Sqlite::open(&path).await.unwrap();
    sqlx::query("UPDATE meta SET value = '99' WHERE name = 'schema'")
        .execute(store.pool())
        .await
        .unwrap();
    store.close().await;
    assert!(matches!(
        refused(&path).await,
        Error::TooNew { found: 99, .. }
    ));
}

#[tokio::test]
async fn a_path_that_cannot_be_made_is_told() {
    let error = refused(Path::new("/proc/no/store.db")).await;
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let directory = tempfile::tempdir().unwrap();
    let error = refused(directory.path()).await;
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_lock_of_another_program_is_told_and_nothing_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Sqlite::open_with(&path, std::time::Duration::from_millis(50))
        .await
        .unwrap();
    // A shell or a backup with the database in its hands.
    let mut other = store.pool().acquire().await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE")
        .execute(&mut *other)
        .await
        .unwrap();
    let batch = lifecycle::store::Batch {
        writes: vec![Write::Settle],
    };
    let refused = store.apply(&[batch]).await;
    assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
    assert!(matches!(store.health().await, Err(Error::Busy { .. })));
    sqlx::raw_sql("ROLLBACK")
        .execute(&mut *other)
        .await
        .unwrap();
    drop(other);
    store.health().await.unwrap();
    assert!(!store.load().await.unwrap().is_settled);
}

#[tokio::test]
async fn a_full_disk_is_told_and_what_was_written_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Sqlite::open(&path).await.unwrap();
    write(&store, vec![Write::PutSandbox(record("kept").await)]).await;
    // SQLite's own notion of no more room: the same error as from the disk.
    let pages: i64 = sqlx::query_scalar("PRAGMA page_count")
        .fetch_one(store.pool())
        .await
        .unwrap();
    store.limit_pages(pages + 2).await;
    let of = record("lost").await;
    let mut error = None;
    for _ in 0..500 {
        let events = (0..10).map(|n| Write::AppendEvent(event(&of, &n.to_string())));
        let writes = events.collect();
        if let Err(refused) = store.apply(&[lifecycle::store::Batch { writes }]).await {
            error = Some(refused);
            break;
        }
    }
    assert!(matches!(error, Some(Error::Full { .. })), "{error:?}");
    assert_eq!(names(&store.load().await.unwrap()), ["kept"]);
    store.limit_pages(1_000_000).await;
    write(&store, vec![Write::Settle]).await;
}

#[tokio::test]
async fn a_database_that_cannot_be_reached_is_told_without_its_password() {
    let dsn = "postgresql://me:hunter2@127.0.0.1:1/none".to_owned().into();
    let error = Postgres::open(&dsn).await.err().expect("it is refused");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
    let error = Postgres::open(&"nonsense hunter2".to_owned().into())
        .await
        .err()
        .unwrap();
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}

#[tokio::test]
async fn a_database_that_goes_away_is_told() {
    let Some(mut server) = PostgresServer::start().await else {
        return;
    };
    let store = Postgres::open(&server.dsn()).await.unwrap();
    write(&store, vec![Write::Settle]).await;
    server.stop().await;
    let error = store.health().await.expect_err("it is gone");
    assert!(
        matches!(error, Error::Unavailable { .. } | Error::Timeout { .. }),
        "{error:?}"
    );
}
