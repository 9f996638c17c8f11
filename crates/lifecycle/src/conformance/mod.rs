//! What every backend must do, as a list of named cases that any of them can be put through.
//!
//! A backend's tests implement [`Factory`], call [`run`] and assert on the [`Report`]. Cases are
//! independent: each opens the backend anew, makes its own sandboxes and leaves none. A case
//! that a backend cannot honour (it says so in its capabilities or [`Facts`]) is reported as not
//! applicable with the reason, never left out silently.
//!
//! The cases know nothing of how a backend works. What only it can know, such as what a sandbox
//! leaves on the host, it tells through [`Factory::leftovers`].

mod daemon;
mod errors;
mod exec;
mod life;
mod limits;
mod network;
mod pause;
mod ports;
mod restart;
mod snapshots;
mod volumes;
mod warm;
mod world;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::id::SandboxId;
use async_trait::async_trait;
use futures_util::future::BoxFuture;

use crate::backend::Backend;

pub use world::{Failure, World};

/// A case that takes longer hangs: the slowest pulls nothing and starts a few dozen sandboxes.
const CASE: Duration = Duration::from_secs(240);

/// Makes the backend under test.
#[async_trait]
pub trait Factory: Send + Sync + 'static {
    /// Opens the backend. Everything an earlier one made is still there: this is what a
    /// restarted server does.
    async fn open(&self) -> Arc<dyn Backend>;

    /// What the cases may rely on.
    fn facts(&self) -> Facts;

    /// What is left of a sandbox that was deleted: processes, mounts, cgroups, directories, each
    /// as a sentence. Empty is right.
    async fn leftovers(&self, id: &SandboxId) -> Vec<String>;
}

/// What the cases may rely on.
#[derive(Debug, Clone)]
pub struct Facts {
    /// An image that is on the machine.
    pub image: String,
    /// An image that exists nowhere.
    pub missing_image: String,
    /// The image has `/bin/sh` and the usual small tools (`cat`, `sleep`, `env`, `dd`, `tail`),
    /// and the daemon answers on the control socket. Without it only cases that look from
    /// outside apply.
    pub has_shell: bool,
    /// A shell command that listens on TCP `127.0.0.1:{port}`, prints `listening` when it does,
    /// sends `hello` to one client and ends.
    pub listen: Option<String>,
    /// A directory on the host under which host volumes are allowed.
    pub host_root: Option<PathBuf>,
    /// Named volumes work.
    pub has_named_volumes: bool,
    /// Limits of memory and processes are enforced on this machine.
    pub enforces_limits: bool,
}

/// What a case cannot do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A shell and the daemon.
    Shell,
    /// A program that listens.
    Listen,
    /// Host volumes.
    HostVolumes,
    /// Named volumes.
    NamedVolumes,
    /// Enforced limits.
    Limits,
    /// A limited disk.
    DiskLimit,
    /// Pausing.
    Pause,
    /// Snapshots.
    Snapshot,
    /// No network on request.
    NetworkNone,
    /// Enforced rules about the network.
    NetworkRules,
    /// Sandboxes that are kept ready.
    WarmPools,
}

type Run = for<'a> fn(&'a World) -> BoxFuture<'a, Result<(), Failure>>;

/// One thing a backend must do.
pub struct Case {
    /// What it shows.
    pub name: &'static str,
    /// What it needs.
    pub needs: &'static [Need],
    run: Run,
}

/// Names a case and what it needs.
macro_rules! case {
    ($function:ident, [$($need:ident),*]) => {
        $crate::conformance::Case {
            name: concat!(module_path!(), "::", stringify!($function)),
            needs: &[$($crate::conformance::Need::$need),*],
            run: |world| Box::pin($function(world)),
        }
    };
}
pub(crate) use case;

/// All cases.
pub fn cases() -> Vec<Case> {
    [
        life::cases(),
        exec::cases(),
        ports::cases(),
        volumes::cases(),
        limits::cases(),
        pause::cases(),
        snapshots::cases(),
        network::cases(),
        warm::cases(),
        restart::cases(),
        errors::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// How a case went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// As it should.
    Passed,
    /// Not as it should.
    Failed(String),
    /// It asks for something this backend or machine does not have.
    NotApplicable(Need),
}

/// How all cases went.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Each case's name and verdict, in order.
    pub verdicts: Vec<(&'static str, Verdict)>,
}

impl Report {
    /// Those that failed.
    pub fn failures(&self) -> Vec<(&'static str, &str)> {
        let mut failures = Vec::new();
        for (name, verdict) in &self.verdicts {
            if let Verdict::Failed(why) = verdict {
                failures.push((*name, why.as_str()));
            }
        }
        failures
    }

    /// How many passed.
    pub fn passed(&self) -> usize {
        self.verdicts
            .iter()
            .filter(|(_, verdict)| *verdict == Verdict::Passed)
            .count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, verdict) in &self.verdicts {
            match verdict {
                Verdict::Passed => writeln!(f, "ok    {name}")?,
                Verdict::Failed(why) => writeln!(f, "FAIL  {name}: {why}")?,
                Verdict::NotApplicable(need) => writeln!(f, "n/a   {name}: needs {need:?}")?,
            }
        }
        write!(
            f,
            "{} passed, {} failed",
            self.passed(),
            self.failures().len()
        )
    }
}

/// Puts a backend through all cases whose name contains `filter`, one after the other.
pub async fn run(factory: Arc<dyn Factory>, filter: Option<&str>) -> Report {
    let mut report = Report::default();
    let mut backend = None;
    for case in cases() {
        if filter.is_some_and(|filter| !case.name.contains(filter)) {
            continue;
        }
        tracing::info!(case = case.name, "conformance");
        let verdict = run_one(&factory, &case, &mut backend).await;
        if let Verdict::Failed(why) = &verdict {
            tracing::error!(case = case.name, why, "conformance case failed");
        }
        report.verdicts.push((case.name, verdict));
    }
    report
}

/// One case, on the backend that the case before left behind: opening one costs more than most
/// cases do. After a failure the next case gets a fresh one.
async fn run_one(
    factory: &Arc<dyn Factory>,
    case: &Case,
    backend: &mut Option<Arc<dyn Backend>>,
) -> Verdict {
    let world = World::open(factory.clone(), backend.take()).await;
    if let Some(need) = case.needs.iter().find(|need| !world.has(**need)) {
        *backend = Some(world.close());
        return Verdict::NotApplicable(*need);
    }
    let result = tokio::time::timeout(CASE, (case.run)(&world)).await;
    let cleaned = world.clean_up().await;
    match (result, cleaned) {
        (Err(_), _) => Verdict::Failed(format!("did not end within {} s", CASE.as_secs())),
        (Ok(Err(Failure(why))), _) => Verdict::Failed(why),
        (Ok(Ok(())), Err(Failure(why))) => Verdict::Failed(format!("cleaning up: {why}")),
        (Ok(Ok(())), Ok(())) => {
            *backend = Some(world.close());
            Verdict::Passed
        }
    }
}
