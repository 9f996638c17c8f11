//! The Docker backend behind the trait that the lifecycle service speaks.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::egress::policy::EgressPolicy;
use api::id::{SandboxId, SnapshotId};
use api::platform::go_arch;
use async_trait::async_trait;
use jiff::Timestamp;
use lifecycle::backend::{
    Backend, Capabilities, ConnectError, Created, Error, Event, LogQuery, Logs, Platform,
    PullProgress, SandboxDetails, SnapshotDetails, Source, Spec, Stream, Target,
};
use lifecycle::registry::Registry;
use tokio::sync::{broadcast, mpsc};
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::create::create;
use crate::directory::{Layout, failed};
use crate::engine::{Engine, EngineError, unavailable};
use crate::image::{self, Images};
use crate::sandbox::{Sandbox, State};
use crate::{adopt, describe, dial, feed, logs, removal, snapshot};

/// Creations that the engine is asked for at once. An engine works them off one after the other in
/// many places, and more only add to each other's latency.
const CREATIONS_MAX: usize = 32;

/// Processors of which a second execd may lie beside the first.
const ARCHITECTURES: [&str; 5] = ["amd64", "arm64", "riscv64", "ppc64le", "s390x"];

/// The Docker backend. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Docker {
    shared: Arc<Shared>,
}

impl fmt::Debug for Docker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let data_dir = &self.shared.config.data_dir;
        f.debug_struct("Docker")
            .field("data_dir", data_dir)
            .finish()
    }
}

/// What all sandboxes share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) engine: Engine,
    pub(crate) layout: Layout,
    pub(crate) images: Images,
    pub(crate) sandboxes: Registry<Sandbox>,
    /// The seccomp profile's text.
    pub(crate) seccomp: Option<String>,
    /// By processor: execd's digest, and the directory it is mounted from.
    programs: HashMap<String, (String, String)>,
    /// A snapshot has what was written.
    keeps_snapshots: bool,
    /// Creations that were given up while the engine did not answer.
    abandoned: Mutex<HashSet<SandboxId>>,
    stop: CancellationToken,
    _lock: File,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Docker {
    /// Connects to the engine and takes back the sandboxes that it has.
    pub async fn open(config: Config) -> Result<Self, Error> {
        let engine = Engine::connect(&config.socket, config.call_timeout).await?;
        let info = engine.info().await?;
        check_runtime(&config, &info)?;
        let seccomp = seccomp(config.seccomp_profile.as_deref())?;
        let layout = Layout::new(&config.data_dir);
        let lock = layout.open().await?;
        let programs = {
            let (layout, execd) = (layout.clone(), config.execd.clone());
            let installed = tokio::task::spawn_blocking(move || install(&layout, &execd));
            installed
                .await
                .map_err(|panic| Error::Internal(panic.to_string()))??
        };
        let shared = Arc::new(Shared {
            engine: engine.clone(),
            layout,
            images: Images::default(),
            sandboxes: Registry::default(),
            seccomp,
            programs,
            keeps_snapshots: keeps_snapshots(&config, &info),
            abandoned: Mutex::default(),
            stop: CancellationToken::new(),
            _lock: lock,
            config,
        });
        let stream = feed::events(&engine, Timestamp::now());
        feed::sync(&shared).await.map_err(EngineError::into_error)?;
        shared.images.fed(true);
        shared.tidy().await?;
        let stop = shared.stop.clone();
        tokio::spawn(feed::follow(Arc::downgrade(&shared), stream, engine, stop));
        Ok(Self { shared })
    }
}

/// gVisor's program.
const GVISOR: &str = "runsc";

/// The option with which gVisor writes into the container's own layer.
const GVISOR_WRITES_THROUGH: &str = "overlay2=none";

/// A secure runtime that the engine lacks would only show when the first sandbox fails.
pub(crate) fn check_runtime(
    config: &Config,
    info: &bollard::models::SystemInfo,
) -> Result<(), Error> {
    let Some(wanted) = &config.secure_runtime else {
        return Ok(());
    };
    let known = info.runtimes.clone().unwrap_or_default();
    if !known.contains_key(wanted) {
        let mut names: Vec<_> = known.into_keys().collect();
        names.sort();
        return Err(unavailable(format!(
            "secure_runtime asks for the runtime {wanted:?}, which the engine does not have (it \
             has {}); add it to the engine's daemon.json under \"runtimes\" and restart the engine",
            names.join(", ")
        )));
    }
    if matches!(config.network_mode.as_str(), "host" | "none") {
        return Err(unavailable(format!(
            "docker.network_mode = {:?} does not go with secure_runtime: a sandbox with a kernel \
             of its own is reached over its network; use \"bridge\" or a network's name",
            config.network_mode
        )));
    }
    Ok(())
}

fn seccomp(path: Option<&Path>) -> Result<Option<String>, Error> {
    let Some(path) = path else { return Ok(None) };
    let name = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|source| failed(format!("reading the seccomp profile {name}"), source))?;
    match serde_json::from_str::<serde_json::Value>(&text) {
        // The engine takes it within one line of its own.
        Ok(profile) => Ok(Some(profile.to_string())),
        Err(error) => Err(unavailable(format!(
            "the seccomp profile {name} is not JSON: {error}"
        ))),
    }
}

/// Places execd for this processor, and for every other of which there is one.
fn install(layout: &Layout, execd: &Path) -> Result<HashMap<String, (String, String)>, Error> {
    let mut programs = HashMap::new();
    let mut place = |arch: &str, program: &Path| {
        let (digest, directory) = layout.install(program)?;
        programs.insert(arch.to_owned(), (digest, directory.display().to_string()));
        Ok::<_, Error>(())
    };
    let native = go_arch(std::env::consts::ARCH);
    place(native, execd)?;
    for arch in ARCHITECTURES {
        let mut name = execd.file_name().unwrap_or_default().to_owned();
        name.push(format!("-{arch}"));
        let other = execd.with_file_name(name);
        if arch != native && other.is_file() {
            place(arch, &other)?;
        }
    }
    Ok(programs)
}

/// Whether the engine's commit has what was written in a sandbox. gVisor keeps that to itself unless
/// it is told otherwise: the snapshot would be empty, and nobody would say so.
pub(crate) fn keeps_snapshots(config: &Config, info: &bollard::models::SystemInfo) -> bool {
    let Some(wanted) = &config.secure_runtime else {
        return true;
    };
    let known = info.runtimes.as_ref().and_then(|all| all.get(wanted));
    let path = known.and_then(|runtime| runtime.path.as_deref());
    let is_gvisor = wanted.contains(GVISOR) || path.is_some_and(|path| path.contains(GVISOR));
    let arguments = known.and_then(|runtime| runtime.runtime_args.as_deref());
    let writes_through =
        |argument: &String| argument.trim_start_matches('-') == GVISOR_WRITES_THROUGH;
    !is_gvisor || arguments.is_some_and(|all| all.iter().any(writes_through))
}

impl Shared {
    /// Sandboxes have a kernel of their own.
    pub(crate) fn is_secure(&self) -> bool {
        self.config.secure_runtime.is_some()
    }

    /// The digest and the directory of the execd for a platform.
    pub(crate) fn program(&self, platform: &Platform) -> Option<(&str, &str)> {
        let (digest, directory) = self.programs.get(&platform.arch)?;
        Some((digest, directory))
    }

    /// Remembers to remove a container that may yet appear.
    pub(crate) fn abandon(&self, id: &SandboxId) {
        self.abandoned
            .lock()
            .expect("no panic while held")
            .insert(id.clone());
    }

    pub(crate) fn is_abandoned(&self, id: &SandboxId) -> bool {
        self.abandoned
            .lock()
            .expect("no panic while held")
            .remove(id)
    }

    /// Removes what a server that was killed left on the host without a container.
    async fn tidy(self: &Arc<Self>) -> Result<(), Error> {
        let here: HashSet<SandboxId> = self
            .sandboxes
            .all()
            .iter()
            .map(|it| it.id.clone())
            .collect();
        let ids = self
            .layout
            .ids()
            .map_err(|source| failed("looking for sandboxes", source))?;
        for id in ids.into_iter().filter(|id| !here.contains(id)) {
            removal::forget_directory(self, &id).await;
        }
        let mut in_use: Vec<String> = self.programs.values().map(|it| it.0.clone()).collect();
        in_use.extend(self.sandboxes.all().iter().map(|it| it.execd.clone()));
        let tidied = self.layout.tidy(&in_use);
        tidied.map_err(|source| failed("removing old versions of execd", source))
    }
}

fn wrong_state(state: &State, id: &SandboxId, wanted: &'static str) -> Error {
    let state = match state {
        State::Gone => return Error::NotFound(id.clone()),
        State::Made => "not started",
        State::Running => "running",
        State::Paused => "paused",
        State::Exited(_) => "ended",
    };
    Error::WrongState { state, wanted }
}

/// What the engine says when a container is paused, or runs, already. The last two are containerd's: the
/// engine hears of each pause a second time from containerd's events (moby, daemon/monitor.go), and when that comes
/// after a resume, it believes the container paused until containerd's event of the resume follows. It then
/// asks containerd for what is done already, and tells by an event of its own when it knows better.
const ALREADY_SO: [&str; 4] = [
    "is already paused",
    "is not paused",
    "cannot resume a running process",
    "cannot pause a paused container",
];

/// Pauses or resumes: one call, confirmed by its event.
async fn change(shared: &Shared, sandbox: &Sandbox, to: State) -> Result<(), Error> {
    let _change = sandbox.change.lock().await;
    let (from, wanted) = match to {
        State::Paused => (State::Running, "running"),
        _ => (State::Paused, "paused"),
    };
    let now = sandbox.state();
    if now == to {
        return Ok(());
    }
    if now != from {
        return Err(wrong_state(&now, &sandbox.id, wanted));
    }
    let api = &shared.engine.api;
    let answer = if to == State::Paused {
        let call = api.pause_container(&sandbox.container);
        shared.engine.call("pausing a container", call).await
    } else {
        let call = api.unpause_container(&sandbox.container);
        shared.engine.call("resuming a container", call).await
    };
    match answer {
        Ok(()) => {}
        Err(failure) if failure.status() == Some(404) => {
            return Err(Error::NotFound(sandbox.id.clone()));
        }
        Err(failure) if ALREADY_SO.iter().any(|it| failure.message().contains(it)) => {}
        Err(failure) if failure.message().contains("is not running") => {
            let ended = "ended";
            return Err(Error::WrongState {
                state: ended,
                wanted,
            });
        }
        Err(failure) => return Err(failure.into_error()),
    }
    sandbox.confirmed(to).await;
    Ok(())
}

#[async_trait]
impl Backend for Docker {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            pause: true,
            snapshot: self.shared.keeps_snapshots,
            network_none: !self.shared.is_secure(),
            network_rules: false,
            disk_limit: false,
            gpu: true,
            foreign_platform: self.shared.programs.len() > 1,
        }
    }

    fn creations_max(&self) -> usize {
        CREATIONS_MAX
    }

    async fn health(&self) -> Result<(), Error> {
        self.shared.engine.ping().await
    }

    async fn is_local(&self, source: &Source, platform: Option<&Platform>) -> bool {
        let (images, engine) = (&self.shared.images, &self.shared.engine);
        let found = images
            .find_for(engine, &image::name(source), platform)
            .await;
        matches!(found, Ok(Some(_)))
    }

    async fn pull(
        &self,
        source: &Source,
        platform: Option<&Platform>,
        progress: mpsc::Sender<PullProgress>,
    ) -> Result<(), Error> {
        if self.is_local(source, platform).await {
            return Ok(());
        }
        let (images, engine) = (&self.shared.images, &self.shared.engine);
        match source {
            Source::Snapshot(id) => Err(Error::SnapshotNotFound(id.clone())),
            Source::Image { reference, auth } => {
                images
                    .pull(engine, reference, auth.as_ref(), platform, Some(progress))
                    .await
            }
        }
    }

    async fn create(&self, spec: Spec) -> Result<Created, Error> {
        let creation = create(&self.shared, &spec);
        let sandboxes = &self.shared.sandboxes;
        sandboxes.create(&spec.id, Vec::new(), creation).await
    }

    async fn delete(&self, id: &SandboxId, grace: Duration) -> Result<(), Error> {
        match self.shared.sandboxes.get_settled(id).await? {
            Some(sandbox) => removal::delete(&self.shared, &sandbox, grace).await,
            None => Ok(()),
        }
    }

    async fn pause(&self, id: &SandboxId) -> Result<(), Error> {
        let sandbox = self.shared.sandboxes.get(id)?;
        change(&self.shared, &sandbox, State::Paused).await
    }

    async fn resume(&self, id: &SandboxId) -> Result<(), Error> {
        let sandbox = self.shared.sandboxes.get(id)?;
        change(&self.shared, &sandbox, State::Running).await
    }

    async fn snapshot(&self, id: &SandboxId, to: &SnapshotId) -> Result<SnapshotDetails, Error> {
        let sandbox = self.shared.sandboxes.get(id)?;
        snapshot::take(&self.shared, &sandbox, to).await
    }

    async fn delete_snapshot(&self, id: &SnapshotId) -> Result<(), Error> {
        snapshot::remove(&self.shared, id).await
    }

    async fn list_snapshots(&self) -> Result<Vec<SnapshotDetails>, Error> {
        snapshot::list(&self.shared).await
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
        let has_network = adopt::has_network(&self.shared.engine, &sandbox.container).await;
        match has_network.map_err(EngineError::into_error)? {
            Some(true) => Ok(EgressPolicy::ALLOW_ALL),
            Some(false) => Ok(EgressPolicy::DENY_ALL),
            None => Err(Error::NotFound(id.clone())),
        }
    }

    async fn connect(
        &self,
        id: &SandboxId,
        target: Target,
    ) -> Result<Box<dyn Stream>, ConnectError> {
        let sandbox = self.shared.sandboxes.get(id);
        let sandbox = sandbox.map_err(|_| ConnectError::NotFound(id.clone()))?;
        dial::connect(&sandbox, target).await
    }

    async fn logs(&self, id: &SandboxId, query: LogQuery) -> Result<Logs, Error> {
        let sandbox = self.shared.sandboxes.get(id)?;
        logs::read(&self.shared.engine, &sandbox, query).await
    }

    async fn follow_logs(
        &self,
        id: &SandboxId,
        query: LogQuery,
    ) -> Result<mpsc::Receiver<String>, Error> {
        let sandbox = self.shared.sandboxes.get(id)?;
        Ok(logs::follow(&self.shared.engine, &sandbox, query))
    }

    async fn describe(&self, id: &SandboxId) -> Result<String, Error> {
        let sandbox = self.shared.sandboxes.get(id)?;
        describe::describe(&self.shared.engine, &sandbox).await
    }

    fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.sandboxes.events()
    }
}
