//! `osb doctor --attack`: hostile programs in real sandboxes on this machine, and whether anything stops them.
//!
//! The cases are in `cases/`, one table for the command and for the test of the same name. Each
//! runs one attack of `hostile/` as the entrypoint of a fresh sandbox of the embedded backend and asks how it
//! ended; some also look from outside. An attack must fail in the way its protection makes it fail: one that
//! fails otherwise shows nothing. The backend has a directory, ids, control groups and a network of its own, so
//! a server that runs here is left alone; afterwards the host must be as it was.
//!
//! Not here: attacks on the HTTP interfaces of the server and its proxy, which have suites of their own.

#![deny(unsafe_code)]

mod case;
mod cases;
mod host;
mod played;
mod protection;
mod report;
mod scenes;
mod tables;
mod world;

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt as _;

pub use case::Class;
use case::{Case, Scene, Verdict};
pub use protection::Protection;
pub use report::{CaseReport, Outcome, Report};
use world::{Setup, World};

/// Longer than the wait for any one attack, of which a case may make a few.
const CASE_DEADLINE: Duration = Duration::from_secs(240);

/// What to run, and where.
#[derive(Debug, Clone)]
pub struct Options {
    /// A directory for what is made meanwhile is made in here; best where the server keeps its own.
    pub directory: PathBuf,
    /// The program that becomes PID 1 of every sandbox.
    pub execd: PathBuf,
    /// Only cases whose id contains one of these; all when there is none.
    pub only: Vec<String>,
}

/// Runs the cases, tells of each as it ends, and reports. `Err` says what this machine lacks.
///
/// Blocks, for minutes. The process must have one thread: it moves into namespaces of its own. The program that
/// calls this must become the spawner and the egress gate when it is told to (`runtime::spawner::main`).
pub fn run(options: &Options, told: impl FnMut(&CaseReport)) -> Result<Report, String> {
    if let Some(missing) = world::missing_need(options) {
        return Err(missing);
    }
    let host = host::Watch::begin().map_err(|error| format!("looking at the host: {error}"))?;
    played::leave_the_hosts_network()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| format!("starting threads: {error}"))?;
    runtime.block_on(run_all(options, &host, told))
}

/// Every case that `run` would run with these options, without running it.
pub fn list(only: &[String]) -> Vec<CaseReport> {
    selected(only)
        .map(|(class, case)| CaseReport::of(class, case, Verdict::NotRun("listed only".to_owned())))
        .collect()
}

fn selected(only: &[String]) -> impl Iterator<Item = (Class, &'static Case)> {
    cases::all().filter(move |(class, case)| {
        let id = cases::id(*class, case);
        only.is_empty() || only.iter().any(|part| id.contains(part.as_str()))
    })
}

async fn run_all(
    options: &Options,
    host: &host::Watch,
    mut told: impl FnMut(&CaseReport),
) -> Result<Report, String> {
    let mut reports = Vec::new();
    let (mut left, directory) = {
        let world = World::open(options).await?;
        let mut interrupted = Box::pin(interruption());
        for (class, case) in selected(&options.only) {
            let verdict = tokio::select! {
                verdict = run_case(&world, case) => verdict,
                () = &mut interrupted => {
                    world.close().await;
                    return Err("interrupted; what was made is gone again".to_owned());
                }
            };
            let report = CaseReport::of(class, case, verdict);
            told(&report);
            reports.push(report);
        }
        let directory = world.temp.path().to_owned();
        (world.close().await, directory)
    };
    left.extend(host.left(&directory));
    if directory.exists() {
        left.push(format!("directory {}", directory.display()));
    }
    Ok(Report::new(reports, left, host.changed_meanwhile()))
}

/// Ends when somebody wants this program to end.
async fn interruption() {
    use tokio::signal::unix::{SignalKind, signal};
    let [Ok(mut interrupt), Ok(mut terminate)] =
        [SignalKind::interrupt(), SignalKind::terminate()].map(signal)
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

async fn run_case(world: &World, case: &'static Case) -> Verdict {
    let running = async {
        match case.scene {
            Scene::Plain => world
                .attack(&Setup::default(), &[case.name])
                .await
                .verdict(),
            Scene::WithMarker => {
                let marker = world.marker.display().to_string();
                world
                    .attack(&Setup::default(), &[case.name, &marker])
                    .await
                    .verdict()
            }
            Scene::Staged(scene) => scene(world).await,
        }
    };
    let caught = AssertUnwindSafe(running).catch_unwind();
    match tokio::time::timeout(CASE_DEADLINE, caught).await {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(panicked)) => {
            let text = panicked.downcast_ref::<String>().cloned();
            let text = text.or_else(|| {
                panicked
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
            });
            Verdict::Unclear(format!(
                "the case itself broke: {}",
                text.unwrap_or_default()
            ))
        }
        Err(_) => Verdict::Unclear(format!("it did not end within {CASE_DEADLINE:?}")),
    }
}
