//! This server's part of the hierarchies, and the groups kept ready in it.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use lifecycle::backend::Limits;

use super::group::Group;
use super::layout::{Controller, Layout};
use super::{Capabilities, Config, Error};

/// The cgroups of one server; cheap to clone. Ready groups are removed with the last clone.
#[derive(Clone)]
pub struct Tree {
    inner: Arc<Inner>,
    _lifetime: Arc<Lifetime>,
}

pub(super) struct Inner {
    pub(super) layout: Layout,
    pub(super) parent: PathBuf,
    /// What every group is made with.
    pub(super) defaults: Limits,
    ready_wanted: usize,
    state: Mutex<State>,
    /// Signalled when a group was taken, and at the end.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ready: VecDeque<String>,
    /// Groups whose directories are just being made.
    unfinished: BTreeSet<String>,
    is_closing: bool,
    /// The last refill failed; it is tried again when a group is taken.
    has_refill_failed: bool,
}

struct Lifetime {
    inner: Arc<Inner>,
    refiller: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Drop for Lifetime {
    fn drop(&mut self) {
        self.inner.lock().is_closing = true;
        self.inner.changed.notify_all();
        let refiller = self
            .refiller
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(refiller) = refiller {
            let _ = refiller.join();
        }
        let ready = std::mem::take(&mut self.inner.lock().ready);
        for name in ready {
            let _ = self.inner.remove(&name);
        }
        // Only an empty directory can be removed: groups of living sandboxes keep it.
        for root in self.inner.layout.roots() {
            let _ = fs::remove_dir(root.join(&self.inner.parent));
        }
    }
}

impl Tree {
    /// Finds the hierarchies, makes this server's directory in them and begins to fill the pool.
    /// Blocks for about a millisecond.
    pub fn open(config: Config) -> Result<Self, Error> {
        Self::open_at(config, Layout::detect()?)
    }

    pub(super) fn open_at(config: Config, layout: Layout) -> Result<Self, Error> {
        for root in layout.roots() {
            let path = root.join(&config.parent);
            make_dir(&path).map_err(|source| Error::NotWritable {
                path: path.clone(),
                source,
            })?;
        }
        if let Layout::V2 { mount, controllers } = &layout {
            delegate(mount, &config.parent, controllers)?;
        }
        let mut inner = Inner {
            layout,
            parent: config.parent,
            defaults: Limits::default(),
            ready_wanted: config.ready,
            state: Mutex::default(),
            changed: Condvar::new(),
        };
        inner.defaults = possible(&config.limits, inner.capabilities());
        let inner = Arc::new(inner);
        let refill = Arc::clone(&inner);
        let refiller = std::thread::Builder::new()
            .name("cgroup-pool".to_owned())
            .spawn(move || refill.refill())
            .map_err(|e| Error::kernel("starting a thread", e))?;
        let lifetime = Lifetime {
            inner: Arc::clone(&inner),
            refiller: Mutex::new(Some(refiller)),
        };
        Ok(Self {
            inner,
            _lifetime: Arc::new(lifetime),
        })
    }

    /// What holds on this machine.
    pub fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    /// What every group is made with.
    pub fn defaults(&self) -> &Limits {
        &self.inner.defaults
    }

    /// A fresh group: a ready one, or one made now.
    pub fn take(&self) -> Result<Group, Error> {
        let ready = {
            let mut state = self.inner.lock();
            state.has_refill_failed = false;
            self.inner.changed.notify_one();
            state.ready.pop_front()
        };
        let name = ready.map_or_else(|| self.inner.make_and(|_, made| made), Ok)?;
        Ok(Group::new(Arc::clone(&self.inner), name))
    }

    /// A group made earlier, perhaps by an earlier run of the server.
    pub fn find(&self, name: &str) -> Result<Group, Error> {
        let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric());
        if !is_name || !self.inner.dirs(name).iter().any(|dir| dir.is_dir()) {
            return Err(Error::NotFound(name.to_owned()));
        }
        Ok(Group::new(Arc::clone(&self.inner), name.to_owned()))
    }

    /// The names of all groups but those that are ready or being made.
    pub fn list(&self) -> Result<Vec<String>, Error> {
        // Held while reading, so that a group on its way from ready to taken is seen as one.
        let state = self.inner.lock();
        let mut names = BTreeSet::new();
        for root in self.inner.layout.roots() {
            let parent = root.join(&self.inner.parent);
            let entries = fs::read_dir(&parent)
                .map_err(|e| Error::kernel(format!("reading {}", parent.display()), e))?;
            for entry in entries.flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    names.extend(entry.file_name().into_string());
                }
            }
        }
        names.retain(|name| !state.ready.contains(name) && !state.unfinished.contains(name));
        Ok(names.into_iter().collect())
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        let (version, freezer) = match &self.layout {
            Layout::V1 { .. } => (1, self.layout.has(Controller::Freezer)),
            Layout::V2 { .. } => (2, true),
        };
        let swap_file = match version {
            1 => "memory.memsw.limit_in_bytes",
            _ => "memory.swap.max",
        };
        let parent = self
            .layout
            .root(Controller::Memory)
            .map(|root| root.join(&self.parent));
        Capabilities {
            version,
            cpu: self.layout.has(Controller::Cpu),
            memory: self.layout.has(Controller::Memory),
            swap: parent.is_some_and(|parent| parent.join(swap_file).exists()),
            pids: self.layout.has(Controller::Pids),
            freezer,
            devices: self.layout.has(Controller::Devices),
        }
    }

    /// The group's directories, one per hierarchy.
    pub(super) fn dirs(&self, name: &str) -> Vec<PathBuf> {
        self.layout
            .roots()
            .into_iter()
            .map(|root| root.join(&self.parent).join(name))
            .collect()
    }

    /// Where a controller's files of the group are.
    pub(super) fn dir(&self, controller: Controller, name: &str) -> Option<PathBuf> {
        self.layout
            .root(controller)
            .map(|root| root.join(&self.parent).join(name))
    }

    fn make(&self) -> Result<String, Error> {
        let mut random = [0_u8; 6];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(|e| Error::kernel("getting a random number", e))?;
        let mut name = String::from("s");
        for byte in random {
            name.push_str(&format!("{byte:02x}"));
        }
        self.lock().unfinished.insert(name.clone());
        let made = self.make_dirs(&name);
        if made.is_err() {
            let _ = self.remove(&name);
            self.lock().unfinished.remove(&name);
        }
        made.map(|()| name)
    }

    /// Makes a group and does `done` with it in one step with declaring it finished.
    fn make_and<T>(&self, done: impl FnOnce(&mut State, Result<String, Error>) -> T) -> T {
        let made = self.make();
        let mut state = self.lock();
        if let Ok(name) = &made {
            state.unfinished.remove(name);
        }
        done(&mut state, made)
    }

    fn make_dirs(&self, name: &str) -> Result<(), Error> {
        for dir in self.dirs(name) {
            fs::create_dir(&dir)
                .map_err(|e| Error::kernel(format!("making {}", dir.display()), e))?;
        }
        if let (Layout::V1 { .. }, Some(devices)) =
            (&self.layout, self.dir(Controller::Devices, name))
        {
            deny_devices(&devices)?;
        }
        self.limit(name, &self.defaults)
    }

    /// Removes the group's directories; not an error when there are none.
    pub(super) fn remove(&self, name: &str) -> Result<(), Error> {
        let mut result = Ok(());
        for dir in self.dirs(name) {
            match fs::remove_dir(&dir) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => {
                    result = Err(Error::kernel(format!("removing {}", dir.display()), e));
                }
            }
        }
        result
    }

    fn refill(&self) {
        loop {
            {
                let mut state = self.lock();
                while !state.is_closing
                    && (state.has_refill_failed || state.ready.len() >= self.ready_wanted)
                {
                    state = self
                        .changed
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                if state.is_closing {
                    return;
                }
            }
            self.make_and(|state, made| match made {
                Ok(name) => state.ready.push_back(name),
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the pool of cgroups could not be refilled"
                    );
                    state.has_refill_failed = true;
                }
            });
        }
    }
}

/// The limits that this machine can hold anybody to.
fn possible(limits: &Limits, capabilities: Capabilities) -> Limits {
    let keep = |what: &str, is_possible: bool, limit: Option<u64>| {
        if limit.is_some() && !is_possible {
            tracing::warn!("this machine cannot limit {what}: sandboxes have no default for it");
        }
        limit.filter(|_| is_possible)
    };
    Limits {
        cpu_millis: keep("processor time", capabilities.cpu, limits.cpu_millis),
        memory_bytes: keep("memory", capabilities.memory, limits.memory_bytes),
        pids: keep("processes", capabilities.pids, limits.pids),
        ..Limits::default()
    }
}

/// The device nodes every sandbox has in its `/dev`, and terminals.
const DEVICES_ALLOWED: [&str; 8] = [
    "c 1:3 rwm",
    "c 1:5 rwm",
    "c 1:7 rwm",
    "c 1:8 rwm",
    "c 1:9 rwm",
    "c 5:0 rwm",
    "c 5:2 rwm",
    "c 136:* rwm",
];

fn deny_devices(dir: &Path) -> Result<(), Error> {
    write(&dir.join("devices.deny"), "a")?;
    for device in DEVICES_ALLOWED {
        write(&dir.join("devices.allow"), device)?;
    }
    Ok(())
}

/// Hands the controllers down to the groups.
fn delegate(mount: &Path, parent: &Path, controllers: &[Controller]) -> Result<(), Error> {
    let wanted: Vec<&str> = controllers
        .iter()
        .filter_map(|controller| match controller {
            Controller::Cpu => Some("+cpu"),
            Controller::Memory => Some("+memory"),
            Controller::Pids => Some("+pids"),
            Controller::Cpuacct | Controller::Freezer | Controller::Devices => None,
        })
        .collect();
    let mut dir = mount.to_owned();
    write(&dir.join("cgroup.subtree_control"), &wanted.join(" "))?;
    for component in parent.components() {
        dir.push(component);
        write(&dir.join("cgroup.subtree_control"), &wanted.join(" "))?;
    }
    Ok(())
}

fn make_dir(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Writes a control file. Control files are never created: a missing one is an error.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Error> {
    write_raw(path, text)
        .map_err(|e| Error::kernel(format!("writing {text:?} to {}", path.display()), e))
}

pub(super) fn write_raw(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;
    fs::OpenOptions::new()
        .write(true)
        .open(path)?
        .write_all(text.as_bytes())
}

pub(super) fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|e| Error::kernel(format!("reading {}", path.display()), e))
}
