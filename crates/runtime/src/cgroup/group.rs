//! One sandbox's group: limits, entry, freezing, usage.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lifecycle::backend::Limits;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Pid;

use super::layout::{Controller, Layout};
use super::oom::OomWatch;
use super::tree::{Inner, read, write};
use super::{Entry, Error, Usage, kill};

/// How long every process of a group may take to stop. Only one in an uninterruptible wait, as
/// for a dead network filesystem, takes longer than milliseconds.
const FREEZE_WAIT: Duration = Duration::from_secs(10);
/// How long to wait between two reads of `freezer.state`, from about the time that a process takes
/// to be woken and stopped, doubled each time up to [`FREEZE_POLL_MAX`].
const FREEZE_POLL_FIRST: Duration = Duration::from_micros(50);
const FREEZE_POLL_MAX: Duration = Duration::from_millis(5);

/// A sandbox's cgroup. Cheap to clone. The group stays until [`Group::remove`].
#[derive(Clone)]
pub struct Group {
    pub(super) tree: Arc<Inner>,
    name: String,
}

impl Group {
    pub(super) fn new(tree: Arc<Inner>, name: String) -> Self {
        Self { tree, name }
    }

    /// The name to keep in the sandbox's record.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the limits that are given and leaves the others as they are. `open_files`,
    /// `disk_bytes` and `gpus` are not cgroup's.
    pub fn limit(&self, limits: &Limits) -> Result<(), Error> {
        self.tree.limit(&self.name, limits)
    }

    /// The same for a group that was just taken: what it was made with need not be written again.
    pub fn limit_new(&self, limits: &Limits) -> Result<(), Error> {
        let made = &self.tree.defaults;
        let unless = |made: Option<u64>, wanted: Option<u64>| wanted.filter(|_| wanted != made);
        self.limit(&Limits {
            cpu_millis: unless(made.cpu_millis, limits.cpu_millis),
            memory_bytes: unless(made.memory_bytes, limits.memory_bytes),
            pids: unless(made.pids, limits.pids),
            ..Limits::default()
        })
    }

    /// How a new process gets in.
    pub fn entry(&self) -> Result<Entry, Error> {
        match &self.tree.layout {
            Layout::V2 { .. } => {
                let dir = self.tree.dirs(&self.name).remove(0);
                fs::File::open(&dir)
                    .map(|dir| Entry::CloneInto(OwnedFd::from(dir)))
                    .map_err(|e| Error::kernel(format!("opening {}", dir.display()), e))
            }
            Layout::V1 { .. } => {
                let files = self.tree.dirs(&self.name).into_iter().map(|dir| {
                    let path = dir.join("tasks");
                    fs::OpenOptions::new()
                        .write(true)
                        .open(&path)
                        .map(OwnedFd::from)
                        .map_err(|e| Error::kernel(format!("opening {}", path.display()), e))
                });
                Ok(Entry::WriteZero(files.collect::<Result<_, _>>()?))
            }
        }
    }

    /// Moves a running process in. Can take 20 ms on v1: prefer [`Group::entry`].
    pub fn attach(&self, pid: Pid) -> Result<(), Error> {
        for dir in self.tree.dirs(&self.name) {
            write(&dir.join("cgroup.procs"), &pid.as_raw_nonzero().to_string())?;
        }
        Ok(())
    }

    /// Freezes every process of the group and returns when all have stopped. Leaves the group
    /// running on failure.
    pub async fn freeze(&self) -> Result<(), Error> {
        let group = self.clone();
        blocking("freezing a cgroup", move || group.freeze_now()).await
    }

    /// Lets the group run on. Takes some microseconds.
    pub fn thaw(&self) -> Result<(), Error> {
        let dir = self.freezer()?;
        match &self.tree.layout {
            Layout::V1 { .. } => write(&dir.join("freezer.state"), "THAWED"),
            Layout::V2 { .. } => write(&dir.join("cgroup.freeze"), "0"),
        }
    }

    /// Whether the group has been told to stop.
    pub fn is_frozen(&self) -> Result<bool, Error> {
        let dir = self.freezer()?;
        match &self.tree.layout {
            Layout::V1 { .. } => Ok(read(&dir.join("freezer.state"))?.trim() != "THAWED"),
            Layout::V2 { .. } => Ok(read(&dir.join("cgroup.freeze"))?.trim() == "1"),
        }
    }

    /// Kills every process of the group, frozen or not, and returns when none is left.
    pub async fn kill(&self) -> Result<(), Error> {
        let group = self.clone();
        blocking("killing a cgroup", move || kill::kill(&group)).await
    }

    /// Removes the group, which must be empty. Not an error when it is gone.
    pub fn remove(&self) -> Result<(), Error> {
        self.tree.remove(&self.name)
    }

    /// What the group uses now. What the machine does not count is zero.
    pub fn usage(&self) -> Usage {
        let number = |controller, file: &str| {
            let text = fs::read_to_string(self.dir(controller)?.join(file)).ok()?;
            text.trim().parse::<u64>().ok()
        };
        let keyed = |controller, file: &str, key: &str| {
            let text = fs::read_to_string(self.dir(controller)?.join(file)).ok()?;
            value_of(&text, key)
        };
        let (cpu, memory, cache, limit) = match &self.tree.layout {
            Layout::V1 { .. } => (
                number(Controller::Cpuacct, "cpuacct.usage").map(Duration::from_nanos),
                number(Controller::Memory, "memory.usage_in_bytes"),
                keyed(Controller::Memory, "memory.stat", "total_inactive_file"),
                // cgroup v1 writes "no limit" as the largest multiple of the page size (2^63 rounded down).
                number(Controller::Memory, "memory.limit_in_bytes").filter(|n| *n < 1 << 60),
            ),
            Layout::V2 { .. } => (
                keyed(Controller::Cpuacct, "cpu.stat", "usage_usec").map(Duration::from_micros),
                number(Controller::Memory, "memory.current"),
                keyed(Controller::Memory, "memory.stat", "inactive_file"),
                // "No limit" is the word `max`.
                number(Controller::Memory, "memory.max"),
            ),
        };
        Usage {
            cpu: cpu.unwrap_or_default(),
            memory_bytes: memory.unwrap_or(0).saturating_sub(cache.unwrap_or(0)),
            memory_limit_bytes: limit,
            pids: number(Controller::Pids, "pids.current").unwrap_or(0),
        }
    }

    /// How many processes of the group the kernel has killed for memory.
    pub fn oom_kills(&self) -> u64 {
        let file = match &self.tree.layout {
            Layout::V1 { .. } => "memory.oom_control",
            Layout::V2 { .. } => "memory.events",
        };
        self.dir(Controller::Memory)
            .and_then(|dir| fs::read_to_string(dir.join(file)).ok())
            .and_then(|text| value_of(&text, "oom_kill"))
            .unwrap_or(0)
    }

    /// Tells of kills for memory from now on. Must be called within a tokio runtime.
    pub fn watch_oom(&self) -> Result<OomWatch, Error> {
        let dir = self
            .dir(Controller::Memory)
            .ok_or(Error::Unsupported("memory"))?;
        match &self.tree.layout {
            Layout::V1 { .. } => OomWatch::v1(self.clone(), &dir),
            Layout::V2 { .. } => OomWatch::v2(self.clone(), &dir),
        }
    }

    /// The processes in the group. Those in other pid namespaces than ours and its children's
    /// are left out by the kernel.
    pub fn processes(&self) -> Result<Vec<Pid>, Error> {
        let dir = self.tree.dirs(&self.name).remove(0);
        let text = read(&dir.join("cgroup.procs"))?;
        Ok(text
            .lines()
            .filter_map(|line| Pid::from_raw(line.parse().ok()?))
            .collect())
    }

    pub(super) fn exists(&self) -> bool {
        self.tree.dirs(&self.name).iter().any(|dir| dir.exists())
    }

    pub(super) fn dir(&self, controller: Controller) -> Option<PathBuf> {
        self.tree.dir(controller, &self.name)
    }

    pub(super) fn freezer(&self) -> Result<PathBuf, Error> {
        self.dir(Controller::Freezer)
            .ok_or(Error::Unsupported("freezing"))
    }

    pub(super) fn freeze_now(&self) -> Result<(), Error> {
        let dir = self.freezer()?;
        let result = match &self.tree.layout {
            Layout::V1 { .. } => self.freeze_v1(&dir.join("freezer.state")),
            Layout::V2 { .. } => {
                write(&dir.join("cgroup.freeze"), "1")?;
                wait_for(&dir.join("cgroup.events"), "frozen", 1, FREEZE_WAIT, || {
                    self.slow("freeze")
                })
            }
        };
        if result.is_err() {
            let _ = self.thaw();
        }
        result
    }

    /// v1 tells nobody when the last process has stopped; the file's state is worked out anew
    /// whenever it is read. So it is read again after short waits that grow.
    fn freeze_v1(&self, state: &Path) -> Result<(), Error> {
        write(state, "FROZEN")?;
        let started = Instant::now();
        let mut pause = FREEZE_POLL_FIRST;
        while read(state)?.trim() != "FROZEN" {
            if started.elapsed() > FREEZE_WAIT {
                return Err(self.slow("freeze"));
            }
            let wait = rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: i64::from(pause.subsec_nanos()),
            };
            let _ = poll(&mut [], Some(&wait));
            pause = (pause * 2).min(FREEZE_POLL_MAX);
            // A process that was being made as the state changed can have slipped through.
            write(state, "FROZEN")?;
        }
        Ok(())
    }

    pub(super) fn slow(&self, what: &'static str) -> Error {
        let waited = match what {
            "freeze" => FREEZE_WAIT,
            _ => kill::KILL_WAIT,
        };
        Error::Slow {
            name: self.name.clone(),
            what,
            waited,
        }
    }
}

/// Waits until a v2 events file says `key value`. The kernel raises a priority event on the file
/// for every change.
pub(super) fn wait_for(
    path: &Path,
    key: &str,
    value: u64,
    limit: Duration,
    slow: impl Fn() -> Error,
) -> Result<(), Error> {
    let file = fs::File::open(path)
        .map_err(|e| Error::kernel(format!("opening {}", path.display()), e))?;
    let started = Instant::now();
    loop {
        // Reading from the start also arms the event for the next change.
        let text = read_from_start(&file)
            .map_err(|e| Error::kernel(format!("reading {}", path.display()), e))?;
        if value_of(&text, key) == Some(value) {
            return Ok(());
        }
        let left = limit.checked_sub(started.elapsed()).ok_or_else(&slow)?;
        let left = rustix::event::Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let _ = poll(&mut [PollFd::new(&file, PollFlags::PRI)], Some(&left));
    }
}

fn read_from_start(file: &fs::File) -> std::io::Result<String> {
    use std::os::unix::fs::FileExt;
    /// Control files are shorter than a page.
    const PAGE: usize = 4_096;
    let mut buffer = [0_u8; PAGE];
    let len = file.read_at(&mut buffer, 0)?;
    Ok(String::from_utf8_lossy(&buffer[..len]).into_owned())
}

/// The number after a word at the start of a line.
pub(super) fn value_of(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        line.strip_prefix(key)?
            .strip_prefix(' ')?
            .trim()
            .parse()
            .ok()
    })
}

async fn blocking(
    action: &'static str,
    work: impl FnOnce() -> Result<(), Error> + Send + 'static,
) -> Result<(), Error> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| Error::kernel(action, std::io::Error::other(e)))?
}
