//! What durability costs: a bare fsync, a commit, and a creation through the service, side by
//! side in one run. A measurement, not a check: `cargo test -p server --lib cost -- --ignored
//! --nocapture`.

use std::io::{Seek, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lifecycle::clock::SystemClock;
use lifecycle::fake::Backend;
use lifecycle::store::{Batch, Store, Write};
use lifecycle::{Caller, Config, ControlPlane, CreateRequest};

use super::{event, record};
use crate::store::Sqlite;

const ROUNDS: usize = 300;

fn percentiles(name: &str, mut times: Vec<Duration>) -> f64 {
    times.sort();
    let at = |share: usize| times[times.len() * share / 100].as_secs_f64() * 1000.0;
    println!("{name:<40} p50 {:7.3} ms  p99 {:7.3} ms", at(50), at(99));
    at(50)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn cost_of_durability() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let bare = fsyncs(&directory.path().join("bare"));
    let store = Arc::new(
        Sqlite::open(&directory.path().join("store.db"))
            .await
            .unwrap(),
    );
    let commit = commits(&*store).await;
    let memory = creations(
        Arc::new(lifecycle::fake::Store::new()),
        "creation, store in memory",
    )
    .await;
    let durable = creations(store.clone(), "creation, SQLite").await;
    println!(
        "commit / fsync {:.2}, durable creation adds {:.3} ms",
        commit / bare,
        durable - memory
    );
    let begun = Instant::now();
    let control = start(store).await;
    let service = control.for_caller(Caller::server());
    let all = (0..100).map(|_| service.create(CreateRequest::from_image("local"), None));
    let made = futures_util::future::join_all(all).await;
    assert!(made.iter().all(Result::is_ok));
    println!(
        "100 creations at once: {:.1} ms",
        begun.elapsed().as_secs_f64() * 1000.0
    );
}

fn fsyncs(path: &std::path::Path) -> f64 {
    let mut file = std::fs::File::create(path).unwrap();
    let page = [7; 8192];
    let times = (0..ROUNDS).map(|n| {
        let begun = Instant::now();
        file.seek(std::io::SeekFrom::Start(n as u64 * 8192))
            .unwrap();
        file.write_all(&page).unwrap();
        file.sync_data().unwrap();
        begun.elapsed()
    });
    percentiles("write 8 KiB and fdatasync", times.collect())
}

async fn commits(store: &dyn Store) -> f64 {
    let of = record("cost").await;
    let mut times = Vec::new();
    for n in 0..ROUNDS {
        let writes = vec![
            Write::PutSandbox(of.clone()),
            Write::AppendEvent(event(&of, &n.to_string())),
        ];
        let begun = Instant::now();
        store.apply(&[Batch { writes }]).await.unwrap();
        times.push(begun.elapsed());
    }
    percentiles("commit of one sandbox and one event", times)
}

async fn start(store: Arc<dyn Store>) -> ControlPlane {
    let clock = Arc::new(SystemClock::new().unwrap());
    ControlPlane::start(Config::default(), Arc::new(Backend::new()), store, clock)
        .await
        .unwrap()
}

async fn creations(store: Arc<dyn Store>, name: &str) -> f64 {
    let control = start(store).await;
    let service = control.for_caller(Caller::server());
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let made = service
            .create(CreateRequest::from_image("local"), None)
            .await
            .unwrap();
        times.push(begun.elapsed());
        service.delete(&made.sandbox.id).await.unwrap();
    }
    control.shutdown(Duration::from_secs(5)).await;
    percentiles(name, times)
}
