//! The only module that starts processes and waits for them.
//!
//! Every process is the leader of its own session and process group. Its end is learned
//! from its pidfd, or from a pipe where the kernel has none. An init must also collect orphans it never started, and `waitid` for
//! any child cannot leave out the ones somebody else waits for; so all collecting happens
//! under one lock, and whoever collects a known process files its exit for the owner:
//!
//! ```text
//!   spawn ── enters ──▶ table ◀── files the exit ── reaper (init only, any child)
//!                         │
//!   wait  ── pidfd ready ─┴─▶ filed already, or collected now by pidfd
//! ```
//!
//! A process may end, and the reaper may collect it, between clone and its entry in the
//! table. While a spawn is under way the reaper therefore keeps exits of unknown pids.

mod environment;
mod launch;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions};
use tokio::io::unix::AsyncFd;

pub(crate) use environment::overlay_file;
pub(crate) use launch::{DEFAULT_PATH, Error as LaunchError, Launch, find_shell};

use crate::sys::spawn::{self, End, Plan, Restore, Step};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
    /// Somebody outside the daemon collected the process; nothing is known.
    Lost,
}

impl Exit {
    /// The code in the wire's terms: a signal is -1.
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(_) | Self::Lost => -1,
        }
    }

    /// The signal, if it was one.
    pub(crate) fn signal(self) -> Option<i32> {
        match self {
            Self::Signal(signal) => Some(signal),
            Self::Code(_) | Self::Lost => None,
        }
    }

    /// The code as a shell reports it, for an init that exits like its entrypoint.
    pub(crate) fn shell_code(self) -> u8 {
        match self {
            Self::Code(code) => u8::try_from(code).unwrap_or(u8::MAX),
            Self::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
            Self::Lost => u8::MAX,
        }
    }

    fn new(code: Option<i32>, signal: Option<i32>) -> Self {
        match (code, signal) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Lost,
        }
    }
}

/// All processes the daemon has started and not yet waited for.
#[derive(Clone)]
pub(crate) struct Processes {
    table: Arc<Mutex<Table>>,
    restore: Restore,
    /// What a process without input reads from.
    null: Arc<OwnedFd>,
    /// Until the kernel refuses one.
    has_pidfds: Arc<AtomicBool>,
}

#[derive(Default)]
struct Table {
    /// Started and not collected. An entry goes the moment the process is collected,
    /// because its number may then be given to another.
    running: HashMap<i32, Arc<Mutex<Option<Exit>>>>,
    /// Spawns under way, and the exits of unknown processes collected meanwhile.
    spawning: usize,
    unclaimed: HashMap<i32, Exit>,
}

impl Processes {
    /// `restore` is what children must not inherit from the daemon.
    pub(crate) fn new(restore: Restore) -> io::Result<Self> {
        Ok(Self {
            table: Arc::default(),
            restore,
            null: Arc::new(open_null()?),
            has_pidfds: Arc::new(AtomicBool::new(true)),
        })
    }

    /// A descriptor that reads as empty, for processes without input.
    pub(crate) fn null(&self) -> io::Result<OwnedFd> {
        self.null.try_clone()
    }

    /// Starts what the plan says. Blocks until the program runs, which may be as long as
    /// its file system wants: call it where blocking is allowed.
    fn spawn(&self, plan: &Plan<'_>) -> Result<Started, spawn::Error> {
        self.lock().spawning += 1;
        let started = self.spawn_with_what_there_is(plan);
        let mut table = self.lock();
        table.spawning -= 1;
        let entered = started.map(|started| {
            let exit = Arc::new(Mutex::new(table.unclaimed.remove(&started.pid)));
            if locked(&exit).is_none() {
                table.running.insert(started.pid, Arc::clone(&exit));
            }
            Started {
                pid: started.pid,
                end: started.end,
                exit,
                table: Arc::clone(&self.table),
            }
        });
        if table.spawning == 0 {
            table.unclaimed.clear();
        }
        entered
    }

    fn spawn_with_what_there_is(&self, plan: &Plan<'_>) -> Result<spawn::Started, spawn::Error> {
        if self.has_pidfds.load(Ordering::Relaxed) {
            match spawn::spawn(plan, true) {
                Err(error)
                    if error.step == Step::Clone
                        && error.source.kind() == io::ErrorKind::InvalidInput =>
                {
                    self.has_pidfds.store(false, Ordering::Relaxed);
                }
                outcome => return outcome,
            }
        }
        spawn::spawn(plan, false)
    }

    /// Collects every process that has ended, known or orphaned. Only for an init: any
    /// other process may have children that belong to somebody else.
    pub(crate) fn reap(&self) {
        let mut table = self.lock();
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get();
            let exit = Exit::new(status.exit_status(), status.terminating_signal());
            match table.running.remove(&pid) {
                Some(owner) => *locked(&owner) = Some(exit),
                None if table.spawning > 0 => {
                    table.unclaimed.insert(pid, exit);
                }
                None => {}
            }
        }
    }

    /// Signals the group of every process that runs.
    pub(crate) fn signal_all(&self, signal: Signal) {
        for &pid in self.lock().running.keys() {
            if let Some(pid) = Pid::from_raw(pid) {
                // A group may have ended between the two calls.
                let _ = rustix::process::kill_process_group(pid, signal);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        locked(&self.table)
    }
}

/// A started process before the event loop watches it.
struct Started {
    pid: i32,
    end: End,
    exit: Arc<Mutex<Option<Exit>>>,
    table: Arc<Mutex<Table>>,
}

impl Started {
    fn watch(self) -> io::Result<Process> {
        Ok(Process {
            pid: self.pid,
            has_pidfd: matches!(self.end, End::Pidfd(_)),
            end: Mutex::new(Some(Arc::new(crate::sys::watch(self.end.into_fd())?))),
            exit: self.exit,
            table: self.table,
        })
    }
}

/// A process of ours, leader of the process group with its number.
pub(crate) struct Process {
    pid: i32,
    /// Else the descriptor only tells of the end, and the process goes by its number, which is its
    /// own until it is collected.
    has_pidfd: bool,
    /// Closed once the exit is known: commands are remembered for a day, and a descriptor for
    /// each would use up the daemon's.
    end: Mutex<Option<Arc<AsyncFd<OwnedFd>>>>,
    exit: Arc<Mutex<Option<Exit>>>,
    table: Arc<Mutex<Table>>,
}

impl Process {
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// A descriptor of its own that becomes readable when the process ends; `None` when it has,
    /// or when there is no descriptor left.
    fn ended(&self) -> Option<OwnedFd> {
        rustix::io::fcntl_dupfd_cloexec(self.end()?.get_ref(), 0).ok()
    }

    /// Waits for the end. May be dropped and called again.
    pub(crate) async fn wait(&self) -> Exit {
        if let Some(end) = self.end() {
            // Only a driver that is shutting down fails here; the collecting below then tells.
            let _ready = end.readable().await;
        }
        self.collect()
    }

    fn collect(&self) -> Exit {
        let mut table = locked(&self.table);
        let end = locked(&self.end).take();
        if let Some(exit) = *locked(&self.exit) {
            return exit;
        }
        let waited =
            end.map(|end| rustix::process::waitid(self.named(&end), WaitIdOptions::EXITED));
        let exit = match waited {
            Some(Ok(Some(status))) => Exit::new(status.exit_status(), status.terminating_signal()),
            Some(Ok(None) | Err(_)) | None => Exit::Lost,
        };
        table.running.remove(&self.pid);
        *locked(&self.exit) = Some(exit);
        exit
    }

    /// Signals this process alone; false when it has ended.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        let _table = locked(&self.table);
        match self.end() {
            None => false,
            Some(end) if self.has_pidfd => {
                rustix::process::pidfd_send_signal(end.get_ref(), signal).is_ok()
            }
            Some(_) if locked(&self.exit).is_some() => false,
            Some(_) => Pid::from_raw(self.pid)
                .is_some_and(|pid| rustix::process::kill_process(pid, signal).is_ok()),
        }
    }

    fn end(&self) -> Option<Arc<AsyncFd<OwnedFd>>> {
        locked(&self.end).clone()
    }

    /// What the kernel knows it by, as long as it is not collected.
    fn named<'fd>(&self, end: &'fd AsyncFd<OwnedFd>) -> WaitId<'fd> {
        match Pid::from_raw(self.pid) {
            Some(pid) if !self.has_pidfd => WaitId::Pid(pid),
            _ => WaitId::PidFd(end.as_fd()),
        }
    }

    /// Signals the whole group; false when the leader has been collected, after which the
    /// number may belong to strangers. The lock keeps the leader from being collected
    /// between the check and the signal.
    pub(crate) fn signal_group(&self, signal: Signal) -> bool {
        let _table = locked(&self.table);
        if locked(&self.exit).is_some() {
            return false;
        }
        Pid::from_raw(self.pid)
            .is_some_and(|pid| rustix::process::kill_process_group(pid, signal).is_ok())
    }
}

impl Drop for Process {
    /// Nobody can ask for the exit any more; leave no zombie behind.
    fn drop(&mut self) {
        let mut table = locked(&self.table);
        let Some(end) = self.end() else { return };
        if locked(&self.exit).is_none() {
            table.running.remove(&self.pid);
            let _ = rustix::process::waitid(
                self.named(&end),
                WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
            );
        }
    }
}

/// Locks, poisoned or not. A panic unwinds one task and the daemon goes on, so what the lock guards
/// must be consistent at every point where code that holds it can panic.
pub(crate) fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// /dev/null; in an image without it a pipe that nobody writes to reads the same.
fn open_null() -> io::Result<OwnedFd> {
    match std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
    {
        Ok(file) => Ok(file.into()),
        Err(_) => Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Environment;

    fn launch(processes: &Processes, text: &str) -> Launch {
        let null = || processes.null().unwrap();
        Launch {
            argv: ["/bin/sh", "-c", text].map(Into::into).into(),
            environment: Environment::inherited(&[]),
            directory: None,
            identity: None,
            stdio: [null(), null(), null()],
            descriptors: Vec::new(),
            takes_terminal: false,
        }
    }

    /// With pidfds, and as on a kernel that has none.
    fn both_kinds() -> [Processes; 2] {
        [true, false].map(|has_pidfds| {
            let processes = Processes::new(Restore::default()).unwrap();
            processes.has_pidfds.store(has_pidfds, Ordering::Relaxed);
            processes
        })
    }

    #[tokio::test]
    async fn exits_and_signals_are_told_apart() {
        for processes in both_kinds() {
            tell_apart(processes).await;
        }
    }

    async fn tell_apart(processes: Processes) {
        let exit = async |text| {
            processes
                .launch(launch(&processes, text))
                .await
                .unwrap()
                .wait()
                .await
        };
        assert_eq!(exit("exit 0").await, Exit::Code(0));
        assert_eq!(exit("exit 77").await, Exit::Code(77));
        assert_eq!(exit("kill -TERM $$").await, Exit::Signal(15));
        assert!(processes.lock().running.is_empty());
    }

    #[tokio::test]
    async fn a_collected_process_is_not_signalled() {
        for processes in both_kinds() {
            signal_none_that_is_collected(processes).await;
        }
    }

    async fn signal_none_that_is_collected(processes: Processes) {
        let process = processes
            .launch(launch(&processes, "exit 0"))
            .await
            .unwrap();
        process.wait().await;
        assert!(!process.signal_group(Signal::TERM));
        assert!(!process.signal(Signal::TERM));
        let missing = launch(&processes, "");
        let missing = Launch {
            argv: vec!["/no/such/program".into()],
            ..missing
        };
        assert!(processes.launch(missing).await.is_err());
        let alone = processes.launch(launch(&processes, "sleep 1000")).await;
        let alone = alone.unwrap();
        assert!(alone.signal(Signal::TERM));
        assert_eq!(alone.wait().await, Exit::Signal(15));
        let running = processes
            .launch(launch(&processes, "sleep 1000"))
            .await
            .unwrap();
        assert!(running.signal_group(Signal::KILL));
        assert_eq!(running.wait().await, Exit::Signal(9));
    }
}
