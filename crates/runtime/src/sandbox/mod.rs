//! One sandbox as the server holds it: its record, the descriptors by which it is reached and
//! controlled, and the task that waits for its end.
//!
//! ```text
//!   create ──► Running ◄──► Paused
//!                 │            │
//!                 └──► Exited ◄┘        delete from any of them
//! ```
//!
//! The task that sees the end gives slot and cgroup back, at once and whoever caused the end;
//! what stays of an ended sandbox is its directory, until it is deleted.

/// A phase of a creation, as a step of the trace that it is part of. Stands before the modules that use it.
macro_rules! phase {
    ($name:literal) => {
        tracing::info_span!(target: "trace", $name)
    };
}

pub(crate) mod build;
pub(crate) mod copy;
pub(crate) mod create;
mod describe;
pub(crate) mod disk_image;
pub(crate) mod host_layers;
pub(crate) mod limits;
pub(crate) mod log_follow;
pub(crate) mod logs;
pub(crate) mod policy;
pub(crate) mod precopy;
pub(crate) mod record;
pub(crate) mod recover;
pub(crate) mod removal;
pub(crate) mod skeleton;
pub(crate) mod snapshot;
pub(crate) mod volume;

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use api::egress::policy::EgressPolicy;
use api::error_chain;
use api::id::SandboxId;
use jiff::Timestamp;
use lifecycle::backend::{Error, Event, Exit, ObservedState, SandboxDetails};
use lifecycle::registry::Registered;
use rustix::io::Errno;
use rustix::process::Signal;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use crate::backend::Shared;
use crate::cgroup::Group;
use crate::image::{ImageId, Lease};
use crate::net::Network;
use crate::spawner::{EXIT_FILE, parse_exit};
use crate::sys::{self, ExitStatus};
use record::{Process, Record};

/// A process that has ended is reaped by the spawner, or by the host's init if the spawner is
/// gone, within microseconds. Kernels before 6.9 do not tell when, so the wait is bounded.
const REAP_DEADLINE: Duration = Duration::from_secs(2);

/// What a sandbox is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Paused,
    Exited(Exit),
}

impl State {
    /// For [`Error::WrongState`].
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Exited(_) => "ended",
        }
    }
}

/// What only a sandbox with a living PID 1 has.
pub(crate) struct Alive {
    pub(crate) pidfd: AsyncFd<OwnedFd>,
    pub(crate) group: Group,
    /// An `O_PATH` descriptor of the control socket; connect to `/proc/self/fd/N`.
    pub(crate) control: OwnedFd,
    /// Its network namespace.
    pub(crate) net: OwnedFd,
}

/// One sandbox.
pub(crate) struct Sandbox {
    pub(crate) record: Record,
    pub(crate) started_at: Option<Timestamp>,
    /// What it may reach, where it leads to the egress gate.
    policy: Mutex<Option<EgressPolicy>>,
    /// Where it is; changes when it is deleted.
    directory: Mutex<PathBuf>,
    alive: Mutex<Option<Arc<Alive>>>,
    state: watch::Sender<State>,
    /// The image it stands on, and what keeps that image's layers from being removed. Changes
    /// when the writable layer of an ended sandbox becomes an image itself.
    base: Mutex<(ImageId, Option<Lease>)>,
    /// Held by whatever changes the sandbox: pause, resume, snapshot, delete.
    pub(crate) change: tokio::sync::Mutex<()>,
    /// The data directory is let go of only after the lease above.
    _lock: Arc<File>,
}

impl Sandbox {
    /// A sandbox with a living PID 1. Call [`Sandbox::watch`] next.
    pub(crate) fn alive(
        record: Record,
        process: &Process,
        directory: PathBuf,
        alive: Alive,
        state: State,
        (lease, lock): (Option<Lease>, Arc<File>),
    ) -> Arc<Self> {
        Arc::new(Self {
            base: Mutex::new((record.image.clone(), lease)),
            policy: Mutex::new(record.policy.clone()),
            record,
            started_at: Some(process.started_at),
            directory: Mutex::new(directory),
            alive: Mutex::new(Some(Arc::new(alive))),
            state: watch::Sender::new(state),
            change: tokio::sync::Mutex::new(()),
            _lock: lock,
        })
    }

    /// A sandbox whose PID 1 ended while no server was there.
    pub(crate) fn ended(
        record: Record,
        process: &Process,
        directory: PathBuf,
        exit: Exit,
        (lease, lock): (Option<Lease>, Arc<File>),
    ) -> Arc<Self> {
        Arc::new(Self {
            base: Mutex::new((record.image.clone(), lease)),
            policy: Mutex::new(record.policy.clone()),
            record,
            started_at: Some(process.started_at),
            directory: Mutex::new(directory),
            alive: Mutex::new(None),
            state: watch::Sender::new(State::Exited(exit)),
            change: tokio::sync::Mutex::new(()),
            _lock: lock,
        })
    }

    pub(crate) fn id(&self) -> &SandboxId {
        &self.record.id
    }

    pub(crate) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// What it has while PID 1 lives.
    pub(crate) fn live(&self) -> Option<Arc<Alive>> {
        self.alive
            .lock()
            .expect("no code panics with this lock held")
            .clone()
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.directory
            .lock()
            .expect("no code panics with this lock held")
            .clone()
    }

    /// The image it stands on.
    pub(crate) fn image(&self) -> ImageId {
        self.base
            .lock()
            .expect("no code panics with this lock held")
            .0
            .clone()
    }

    /// What it may reach, where it leads to the egress gate.
    pub(crate) fn policy(&self) -> Option<EgressPolicy> {
        let policy = self.policy.lock();
        policy.expect("no code panics with this lock held").clone()
    }

    /// Another policy is in force; one that is no longer `None` leads to the egress gate.
    pub(super) fn set_policy(&self, policy: Option<EgressPolicy>) {
        let mut held = self
            .policy
            .lock()
            .expect("no code panics with this lock held");
        *held = policy;
    }

    /// What its network leads to now.
    pub(crate) fn network(&self) -> Network {
        match self.policy() {
            Some(_) => Network::Gated,
            None => self.record.network,
        }
    }

    /// Its layers are those of another image from now on.
    pub(crate) fn set_image(&self, image: ImageId, lease: Lease) {
        *self
            .base
            .lock()
            .expect("no code panics with this lock held") = (image, Some(lease));
    }

    pub(crate) fn observe(&self) -> SandboxDetails {
        SandboxDetails {
            id: self.id().clone(),
            state: match self.state() {
                State::Running => ObservedState::Running,
                State::Paused => ObservedState::Paused,
                State::Exited(exit) => ObservedState::Exited(exit),
            },
            labels: self.record.labels.clone(),
            started_at: self.started_at,
        }
    }

    /// Freezes it. `Ok` if it is frozen already.
    pub(crate) async fn pause(&self) -> Result<(), Error> {
        let alive = self.expect_alive("running")?;
        alive
            .group
            .freeze()
            .await
            .map_err(|error| group_error("freezing", &error))?;
        self.set_unless_exited(State::Paused);
        Ok(())
    }

    /// Lets it run on. `Ok` if it runs already.
    pub(crate) fn resume(&self) -> Result<(), Error> {
        let alive = self.expect_alive("paused")?;
        alive
            .group
            .thaw()
            .map_err(|error| group_error("thawing", &error))?;
        self.set_unless_exited(State::Running);
        Ok(())
    }

    fn expect_alive(&self, wanted: &'static str) -> Result<Arc<Alive>, Error> {
        self.live().ok_or_else(|| Error::WrongState {
            state: self.state().name(),
            wanted,
        })
    }

    fn set_unless_exited(&self, to: State) {
        self.state.send_if_modified(|state| {
            let changes = !matches!(state, State::Exited(_)) && *state != to;
            if changes {
                *state = to;
            }
            changes
        });
    }

    /// Sends a signal to PID 1; `Ok` if there is none.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Error> {
        let Some(alive) = self.live() else {
            return Ok(());
        };
        match rustix::process::pidfd_send_signal(alive.pidfd.get_ref(), signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(errno) => Err(Error::Io {
                action: format!("sending a signal to sandbox {}", self.id()),
                source: errno.into(),
            }),
        }
    }

    /// Ends PID 1 and with it, by the kernel's rule for pid namespaces, every process of the
    /// sandbox. A frozen process on cgroup v1 dies only once it is thawed.
    pub(crate) fn kill(&self) -> Result<(), Error> {
        self.signal(Signal::KILL)?;
        if let Some(alive) = self.live()
            && let Err(error) = alive.group.thaw()
        {
            tracing::warn!(sandbox_id = %self.id(), error = %error_chain(&error), "thawing a killed sandbox failed");
        }
        Ok(())
    }

    /// Waits until PID 1 has ended and slot and cgroup are given back.
    pub(crate) async fn wait_for_exit(&self) -> Exit {
        let mut states = self.state.subscribe();
        let ended = states
            .wait_for(|state| matches!(state, State::Exited(_)))
            .await;
        match ended.as_deref() {
            Ok(State::Exited(exit)) => exit.clone(),
            _ => unreachable!("the sender lives in self and the predicate asks for Exited"),
        }
    }

    /// Waits for the end and for kills by the out-of-memory killer, and tells about them, for as
    /// long as the backend is open.
    pub(crate) fn watch(self: &Arc<Self>, shared: &Arc<Shared>) {
        let (sandbox, stop) = (self.clone(), shared.stop.clone());
        // A strong handle would keep the backend open for as long as any sandbox lives.
        let backend = Arc::downgrade(shared);
        shared.tasks.spawn(async move {
            stop.run_until_cancelled(sandbox.watch_until_exit(&backend))
                .await;
        });
    }

    async fn watch_until_exit(&self, backend: &Weak<Shared>) {
        let Some(alive) = self.live() else { return };
        let status = match alive.group.watch_oom() {
            Ok(mut kills) => {
                let end = exit_status(&alive.pidfd, self);
                tokio::pin!(end);
                loop {
                    tokio::select! {
                        biased;
                        status = &mut end => break status,
                        Some(_) = kills.next() => {
                            if let Some(shared) = backend.upgrade() {
                                shared.sandboxes.tell(Event::OutOfMemory { id: self.id().clone() });
                            }
                        }
                    }
                }
            }
            Err(_) => exit_status(&alive.pidfd, self).await,
        };
        let Some(shared) = backend.upgrade() else {
            return;
        };
        let exit = exit(status, alive.group.oom_kills() > 0, Some(Timestamp::now()));
        self.alive
            .lock()
            .expect("no code panics with this lock held")
            .take();
        let slot = (self.record.slot, self.network());
        release_resources(&shared, &alive.group, slot).await;
        drop(alive);
        self.state.send_replace(State::Exited(exit.clone()));
        shared.sandboxes.tell(Event::Exited {
            id: self.id().clone(),
            exit,
        });
    }
}

impl Registered for Sandbox {
    fn id(&self) -> &SandboxId {
        &self.record.id
    }

    fn end(&self) -> Option<Event> {
        match self.state() {
            State::Exited(exit) => Some(Event::Exited {
                id: self.record.id.clone(),
                exit,
            }),
            State::Running | State::Paused => None,
        }
    }

    fn volumes(&self) -> &[String] {
        &self.record.claims
    }
}

/// How a sandbox ended, where anybody knows.
pub(crate) fn exit(status: Option<ExitStatus>, oom_killed: bool, at: Option<Timestamp>) -> Exit {
    let (code, signal) = match status {
        Some(ExitStatus::Code(code)) => (Some(code), None),
        Some(ExitStatus::Signal(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    Exit {
        code,
        signal,
        oom_killed,
        at,
    }
}

/// Releases the cgroup and the network slot of a sandbox without processes.
pub(crate) async fn release_resources(shared: &Shared, group: &Group, slot: (u32, Network)) {
    let emptied = match group.kill().await {
        Ok(()) => group.remove(),
        Err(error) => Err(error),
    };
    if let Err(error) = emptied {
        // The next start sweeps it.
        tracing::warn!(cgroup = group.name(), error = %error_chain(&error), "a cgroup could not be removed");
    }
    release_slot(shared, slot.0, slot.1).await;
}

/// Gives a slot back once the gate has forgotten it. If the gate does not, the slot's next sandbox replaces
/// what it knows.
pub(crate) async fn release_slot(shared: &Shared, index: u32, network: Network) {
    if network == Network::Gated
        && let Some(gate) = &shared.gate
        && let Err(error) = gate.forget(shared.pool.address_of(index)).await
    {
        tracing::warn!(error = %error_chain(&error), "the egress gate did not forget a sandbox");
    }
    shared.pool.release(index);
}

/// Waits until the process is gone and says how it ended, where anybody knows.
async fn exit_status(pidfd: &AsyncFd<OwnedFd>, sandbox: &Sandbox) -> Option<ExitStatus> {
    let mut ended = match pidfd.readable().await {
        Ok(guard) => guard,
        Err(_) => return None,
    };
    let deadline = tokio::time::Instant::now() + REAP_DEADLINE;
    loop {
        // The spawner writes its record before it reaps, so once the process is gone for good
        // the record is there or will never be.
        let known =
            recorded_exit(&sandbox.directory()).or_else(|| sys::exit_status_of(pidfd.as_fd()));
        if known.is_some() {
            return known;
        }
        ended.clear_ready();
        match tokio::time::timeout_at(deadline, pidfd.readable()).await {
            Ok(Ok(again)) => ended = again,
            _ => return recorded_exit(&sandbox.directory()),
        }
    }
}

/// How PID 1 ended according to the spawner.
pub(crate) fn recorded_exit(directory: &Path) -> Option<ExitStatus> {
    let text = std::fs::read_to_string(directory.join(EXIT_FILE)).ok()?;
    parse_exit(&text)
}

pub(crate) fn group_error(doing: &str, error: &crate::cgroup::Error) -> Error {
    Error::Internal(format!("{doing} the sandbox failed: {error}"))
}
