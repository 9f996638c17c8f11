//! The embedded backend: images, slots, cgroups and the spawner behind the trait that the
//! lifecycle service speaks.
//!
//! Keeps no policy. All it knows is in memory for speed and on disk for the next server; nothing
//! here outlives the process but the sandboxes themselves.

use std::fmt;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use api::egress::policy::EgressPolicy;
use api::error_chain;
use api::id::{SandboxId, SnapshotId};
use async_trait::async_trait;
use lifecycle::backend::{
    Backend, Capabilities, ConnectError, Created, Error, Event, Inventory, LOG_PIECES, LogQuery,
    Logs, Platform, PullProgress, SandboxDetails, SnapshotDetails, Source, Spec, Stream, Target,
};
use lifecycle::registry::Registry;
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, broadcast, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{Config, Layout};
use crate::gate::{self, Gate};
use crate::net::{DialError, Pool};
use crate::sandbox::build::{LOG_FILE, failed};
use crate::sandbox::create::{create, image_error};
use crate::sandbox::disk_image;
use crate::sandbox::host_layers::HostLayers;
use crate::sandbox::log_follow::LogFollower;
use crate::sandbox::recover::{self, Scan};
use crate::sandbox::skeleton::Skeletons;
use crate::sandbox::{Sandbox, State, limits, logs, policy, removal, snapshot, volume};
use crate::spawner::Spawner;
use crate::{cgroup, image, lock, program};

/// Creations that are worked on at once. More only add to each other's latency: the kernel makes
/// namespaces and mounts one at a time.
const CREATIONS_MAX: usize = 32;

/// Directories that are removed at once. Nobody waits for it, but a disk that discards each freed
/// block takes some 20 ms for a sandbox, and removal must keep up with creation.
const REMOVALS_MAX: usize = 8;

/// With less free disk than this no sandbox can do anything useful.
const FREE_BYTES_MIN: u64 = 32 << 20;

/// The embedded backend. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Embedded {
    pub(crate) shared: Arc<Shared>,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded")
            .field("data_dir", &self.shared.layout.root())
            .finish()
    }
}

/// What all sandboxes share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) layout: Layout,
    pub(crate) images: image::Store,
    pub(crate) pool: Pool,
    pub(crate) tree: cgroup::Tree,
    pub(crate) spawner: Spawner,
    /// What carries the traffic of sandboxes with a policy; `None` where it does not start.
    pub(crate) gate: Option<Gate>,
    /// execd, sealed.
    pub(crate) program: OwnedFd,
    pub(crate) skeletons: Skeletons,
    pub(crate) host_layers: HostLayers,
    /// Makes writable layers of bounded size, or why it cannot.
    pub(crate) disk_images: Result<disk_image::DiskImages, &'static str>,
    pub(crate) tasks: TaskTracker,
    /// Deletions that go on behind their callers.
    pub(crate) behind: TaskTracker,
    /// Ends the tasks that follow sandboxes, when the backend is dropped.
    pub(crate) stop: CancellationToken,
    pub(crate) removals: Semaphore,
    pub(crate) sandboxes: Registry<Sandbox>,
    pub(crate) lock: Arc<File>,
}

impl Embedded {
    /// Opens the data directory, takes back the sandboxes in it, finishes what an earlier server
    /// left half done, and has a spawner and pools ready.
    pub async fn open(config: Config) -> Result<Self, Error> {
        check_root()?;
        let layout = Layout::new(&config.data_dir);
        let ready = {
            let (config, layout) = (config.clone(), layout.clone());
            let runtime = tokio::runtime::Handle::current();
            tokio::task::spawn_blocking(move || {
                let _inside = runtime.enter();
                make_ready(&config, &layout)
            })
        };
        let ready = ready
            .await
            .map_err(|error| Error::Internal(format!("opening the backend panicked: {error}")))??;
        let (spawner, arguments) = config.spawner.clone();
        let gate = gate::open(&config, &ready.pool, ready.found.gated()).await;
        let shared = Arc::new(Shared {
            images: ready.images,
            pool: ready.pool,
            tree: ready.tree,
            program: ready.program,
            spawner: Spawner::new(spawner, arguments),
            gate,
            skeletons: Skeletons::default(),
            host_layers: HostLayers::default(),
            disk_images: disk_image::DiskImages::find(),
            tasks: TaskTracker::new(),
            behind: closed_tracker(),
            stop: CancellationToken::new(),
            removals: Semaphore::new(REMOVALS_MAX),
            sandboxes: Registry::default(),
            lock: Arc::new(ready.lock),
            layout,
            config,
        });
        shared
            .spawner
            .start()
            .await
            .map_err(|error| unavailable(&error))?;
        ready.found.recover(&shared).await;
        policy::lead_again(&shared).await;
        // Every sandbox has its lease by now: what nothing needs may go, behind our back.
        let images = shared.images.clone();
        shared.tasks.spawn(async move {
            if let Err(error) = images.gc().await {
                tracing::warn!(error = %error_chain(&error), "images could not be tidied up");
            }
        });
        Ok(Self { shared })
    }

    /// The images and snapshots of this backend.
    pub fn images(&self) -> &image::Store {
        &self.shared.images
    }

    /// Waits until nothing of any deleted sandbox is left.
    pub async fn settled(&self) {
        self.shared.behind.wait().await;
    }
}

struct Ready {
    lock: File,
    images: image::Store,
    tree: cgroup::Tree,
    pool: Pool,
    program: OwnedFd,
    found: Scan,
}

/// The part of opening that blocks.
fn make_ready(config: &Config, layout: &Layout) -> Result<Ready, Error> {
    let io = |action: &str| {
        let action = format!("{action} {}", layout.root().display());
        move |source: std::io::Error| failed(action, source)
    };
    make_directories(layout).map_err(io("making directories in"))?;
    let lock = lock::take(&layout.lock())?;
    raise_open_files();
    let images = image::Store::open(&layout.images(), config.images.clone())
        .map_err(|error| unavailable(&error))?;
    let cgroups = cgroup::Config {
        ready: config.ready_cgroups,
        limits: limits::defaults(config),
        ..cgroup::Config::new(&config.data_dir)
    };
    let tree = cgroup::Tree::open(cgroups).map_err(|error| unavailable(&error))?;
    let found = recover::scan(layout).map_err(io("reading"))?;
    let pool =
        Pool::open(config.network.clone(), &found.slots()).map_err(|error| unavailable(&error))?;
    let program = program::seal(&config.execd)?;
    Ok(Ready {
        lock,
        images,
        tree,
        pool,
        program,
        found,
    })
}

fn make_directories(layout: &Layout) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = std::fs::DirBuilder::new();
    // Files in here keep the owners they have in sandboxes, setuid root included: nobody but
    // root may reach them by name.
    builder.recursive(true).mode(0o700);
    for path in [
        layout.sandboxes(),
        layout.trash(),
        layout.volumes(),
        layout.staging(),
    ] {
        builder.create(path)?;
    }
    spread_out(&layout.sandboxes())?;
    for leftover in std::fs::read_dir(layout.staging())? {
        crate::sandbox::copy::remove_tree(&leftover?.path())?;
    }
    Ok(())
}

/// Tells ext4 that the directories in `path` have nothing to do with each other, so that it puts
/// each into another part of the disk. Left together they fill one part with inodes that were
/// deleted just now, and ext4 without a journal looks at every one of those whenever it makes a
/// file: 240 microseconds instead of 10, fifteen times for each sandbox.
fn spread_out(path: &std::path::Path) -> std::io::Result<()> {
    let directory = std::fs::File::open(path)?;
    // Filesystems that know no such mark have no need of it.
    if let Ok(flags) = rustix::fs::ioctl_getflags(&directory) {
        let _ = rustix::fs::ioctl_setflags(&directory, flags | rustix::fs::IFlags::TOPDIR);
    }
    Ok(())
}

/// Each sandbox costs the server about six descriptors.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if setrlimit(Resource::Nofile, raised).is_err() {
        tracing::warn!("the limit on open files could not be raised; fewer sandboxes will fit");
    }
}

fn unavailable(error: &dyn std::error::Error) -> Error {
    Error::Unavailable {
        backend: "embedded",
        message: error_chain(error).to_string(),
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// How long the removal of a snapshot waits for deleted sandboxes to be gone. Their processes are
/// killed already; on an idle machine this takes milliseconds.
const SETTLE_MAX: Duration = Duration::from_secs(5);

/// A tracker whose wait ends whenever it has no task.
fn closed_tracker() -> TaskTracker {
    let tracker = TaskTracker::new();
    tracker.close();
    tracker
}

#[async_trait]
impl Backend for Embedded {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            pause: self.shared.tree.capabilities().freezer,
            snapshot: true,
            network_none: true,
            network_rules: self.shared.gate.is_some(),
            disk_limit: self.shared.disk_images.is_ok(),
            gpu: false,
            foreign_platform: false,
        }
    }

    fn creations_max(&self) -> usize {
        CREATIONS_MAX
    }

    async fn health(&self) -> Result<(), Error> {
        self.shared
            .spawner
            .start()
            .await
            .map_err(|error| unavailable(&error))?;
        let root = self.shared.layout.root();
        let disk = rustix::fs::statvfs(root)
            .map_err(|errno| failed(format!("looking at {}", root.display()), errno.into()))?;
        if disk.f_bavail * disk.f_frsize < FREE_BYTES_MIN {
            return Err(Error::Exhausted {
                what: "disk",
                message: format!("free space in {}", root.display()),
            });
        }
        Ok(())
    }

    async fn is_local(&self, source: &Source, platform: Option<&Platform>) -> bool {
        self.shared.images.is_local(source, platform)
    }

    async fn pull(
        &self,
        source: &Source,
        platform: Option<&Platform>,
        progress: mpsc::Sender<PullProgress>,
    ) -> Result<(), Error> {
        let images = &self.shared.images;
        match source {
            // Always here, and in no registry.
            Source::Image { reference, .. } if reference == image::HOST => Ok(()),
            Source::Image { reference, auth } => images
                .pull(reference, auth.as_ref(), platform, Some(progress))
                .await
                .map(drop)
                .map_err(|error| image_error(error, source)),
            Source::Snapshot(_) if images.is_local(source, platform) => Ok(()),
            Source::Snapshot(id) => Err(Error::SnapshotNotFound(id.clone())),
        }
    }

    async fn create(&self, spec: Spec) -> Result<Created, Error> {
        let (id, volumes) = (spec.id.clone(), volume::claims(&spec.volumes));
        let creation = create(&self.shared, spec);
        self.shared.sandboxes.create(&id, volumes, creation).await
    }

    async fn delete(&self, id: &SandboxId, grace: Duration) -> Result<(), Error> {
        match self.shared.sandboxes.get_settled(id).await? {
            Some(sandbox) => removal::delete(&self.shared, &sandbox, grace).await,
            None => Ok(()),
        }
    }

    async fn pause(&self, id: &SandboxId) -> Result<(), Error> {
        let sandbox = self.shared.sandboxes.get(id)?;
        let _change = sandbox.change.lock().await;
        sandbox.pause().await
    }

    async fn resume(&self, id: &SandboxId) -> Result<(), Error> {
        let sandbox = self.shared.sandboxes.get(id)?;
        let _change = sandbox.change.lock().await;
        sandbox.resume()
    }

    async fn snapshot(&self, id: &SandboxId, to: &SnapshotId) -> Result<SnapshotDetails, Error> {
        let sandbox = self.shared.sandboxes.get(id)?;
        snapshot::snapshot(&self.shared, &sandbox, to).await
    }

    async fn delete_snapshot(&self, id: &SnapshotId) -> Result<(), Error> {
        let mut removed = self.shared.images.remove_snapshot(id).await;
        if matches!(removed, Err(crate::image::Error::InUse { .. })) {
            // Perhaps by a sandbox that is deleted for everybody but still on its way out.
            let _ = tokio::time::timeout(SETTLE_MAX, self.shared.behind.wait()).await;
            removed = self.shared.images.remove_snapshot(id).await;
        }
        removed.map_err(|error| image_error(error, &Source::Snapshot(id.clone())))
    }

    async fn list_snapshots(&self) -> Result<Vec<SnapshotDetails>, Error> {
        Ok(snapshot::list(&self.shared))
    }

    async fn list(&self) -> Result<Vec<SandboxDetails>, Error> {
        let all = self.shared.sandboxes.all();
        Ok(all.iter().map(|sandbox| sandbox.observe()).collect())
    }

    async fn inspect(&self, id: &SandboxId) -> Result<SandboxDetails, Error> {
        Ok(self.shared.sandboxes.get(id)?.observe())
    }

    async fn network_policy(&self, id: &SandboxId) -> Result<EgressPolicy, Error> {
        let sandbox = self.shared.sandboxes.get(id)?;
        Ok(policy::of(&sandbox))
    }

    async fn set_network_policy(&self, id: &SandboxId, policy: &EgressPolicy) -> Result<(), Error> {
        policy::set(&self.shared, id, policy).await
    }

    async fn connect(
        &self,
        id: &SandboxId,
        target: Target,
    ) -> Result<Box<dyn Stream>, ConnectError> {
        let sandbox = self
            .shared
            .sandboxes
            .get(id)
            .map_err(|_| ConnectError::NotFound(id.clone()))?;
        if sandbox.state() == State::Paused {
            return Err(ConnectError::Paused);
        }
        let alive = sandbox.live().ok_or(ConnectError::Ended)?;
        match target {
            Target::Control => {
                let path = format!("/proc/self/fd/{}", alive.control.as_raw_fd());
                match UnixStream::connect(path).await {
                    Ok(stream) => Ok(Box::new(stream)),
                    Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                        Err(ConnectError::Ended)
                    }
                    Err(error) => Err(ConnectError::Failed(error.to_string())),
                }
            }
            Target::Port(port) => {
                let net = std::os::fd::AsFd::as_fd(&alive.net);
                match self.shared.pool.dialer().connect(net, port).await {
                    Ok(stream) => Ok(Box::new(stream)),
                    Err(DialError::NotListening(port)) => Err(ConnectError::NotListening(port)),
                    Err(error) => Err(ConnectError::Failed(error_chain(&error).to_string())),
                }
            }
        }
    }

    async fn logs(&self, id: &SandboxId, query: LogQuery) -> Result<Logs, Error> {
        let path = self.shared.sandboxes.get(id)?.directory().join(LOG_FILE);
        let action = format!("reading the log of sandbox {id}");
        tokio::task::spawn_blocking(move || logs::read(&path, query))
            .await
            .map_err(|error| Error::Internal(format!("{action} panicked: {error}")))?
            .map_err(|source| failed(action, source))
    }

    async fn follow_logs(
        &self,
        id: &SandboxId,
        query: LogQuery,
    ) -> Result<mpsc::Receiver<String>, Error> {
        let sandbox = self.shared.sandboxes.get(id)?;
        let path = sandbox.directory().join(LOG_FILE);
        let action = format!("following the log of sandbox {id}");
        let opened = LogFollower::open(&path, query);
        let (follower, first) = opened.map_err(|source| failed(action, source))?;
        let (send, pieces) = mpsc::channel(LOG_PIECES);
        let (id, stop) = (id.clone(), self.shared.stop.clone());
        tokio::spawn(async move {
            let ended = async {
                let _ = sandbox.wait_for_exit().await;
            };
            tokio::select! {
                () = stop.cancelled() => {}
                done = follower.run(first, ended, send) => {
                    if let Err(error) = done {
                        tracing::warn!(sandbox_id = %id, error = %error_chain(&error), "a log is no longer followed");
                    }
                }
            }
        });
        Ok(pieces)
    }

    async fn describe(&self, id: &SandboxId) -> Result<String, Error> {
        let sandbox = self.shared.sandboxes.get(id)?;
        Ok(sandbox.describe())
    }

    fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.sandboxes.events()
    }

    fn inventory(&self) -> Option<&dyn Inventory> {
        Some(self)
    }
}

/// Said first, since without root the next thing to fail says only "Permission denied".
fn check_root() -> Result<(), Error> {
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return Ok(());
    }
    Err(Error::Unavailable {
        backend: "embedded",
        message: format!(
            "this process runs as user {uid}, and sandboxes are made of namespaces, mounts and control \
             groups, which need root; run the server as root (sudo osb server), or use a Docker engine \
             (runtime.type = \"docker\"); osb doctor says what else this machine needs"
        ),
    })
}
