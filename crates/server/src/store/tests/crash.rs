//! A server that is killed between any two instructions loses nothing it has acknowledged.

use std::process::Stdio;

use lifecycle::store::{Batch, BatchOutcome, Store, Write};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::{event, record};
use crate::store::Sqlite;

/// Tells the child where to write.
const PATH: &str = "STORE_CRASH_PATH";

/// Acknowledgements before each kill.
const ACKNOWLEDGED: [usize; 4] = [1, 7, 40, 111];

/// The child: writes until it is killed, and says what was acknowledged.
#[tokio::test]
#[ignore = "run by the test below"]
async fn writer() {
    let Some(path) = std::env::var_os(PATH) else {
        return;
    };
    let store = Sqlite::open(path.as_ref()).await.unwrap();
    let of = record("crash").await;
    for n in 0.. {
        let writes = (0..5).map(|_| Write::AppendEvent(event(&of, &format!("round {n}"))));
        let outcomes = store
            .apply(&[Batch {
                writes: writes.collect(),
            }])
            .await
            .unwrap();
        let BatchOutcome::Written(numbers) = &outcomes[0] else {
            panic!("{outcomes:?}")
        };
        println!("acknowledged {}", numbers[4]);
    }
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    for acknowledged in ACKNOWLEDGED {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "store::tests::crash::writer",
                "--ignored",
                "--nocapture",
            ])
            .env(PATH, &path)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut last = 0;
        let mut seen = 0;
        while seen < acknowledged {
            let line = lines
                .next_line()
                .await
                .unwrap()
                .expect("it writes until it is killed");
            if let Some(number) = line.strip_prefix("acknowledged ") {
                last = number.parse().unwrap();
                seen += 1;
            }
        }
        child.kill().await.unwrap();
        let store = Sqlite::open(&path).await.unwrap();
        let kept = store.events_after(0, 100_000).await.unwrap();
        assert!(
            kept.iter().any(|event| event.id == last),
            "{last} was acknowledged and is lost"
        );
        assert_eq!(kept.len() % 5, 0, "a batch is written whole or not at all");
        store.close().await;
    }
}
