//! A backend in memory, with faults on request: delays, errors, hangs and things that vanish.
//!
//! Clones share the same host. A call that is dropped half-way leaves what it had done so far,
//! as a killed server would.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::id::{SandboxId, SnapshotId};
use async_trait::async_trait;
use jiff::Timestamp;
use secrecy::ExposeSecret;
use tokio::sync::{broadcast, mpsc, oneshot};

use crate::backend::{
    Capabilities, ConnectError, Created, Error, Event, Exit, LogQuery, Logs, Observed,
    ObservedState, Platform, PullProgress, SnapshotDetails, Source, Spec, Stream, Target,
};

/// Events that wait for a slow reader; more make it lag, as with a real backend.
const EVENTS: usize = 256;

/// Bytes under way in each direction of a stream.
const STREAM: usize = 64 * 1024;

/// A call to the backend, to say where a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// `health`
    Health,
    /// `is_local`
    IsLocal,
    /// `pull`
    Pull,
    /// `create`
    Create,
    /// `delete`
    Delete,
    /// `pause`
    Pause,
    /// `resume`
    Resume,
    /// `snapshot`
    Snapshot,
    /// `delete_snapshot`
    DeleteSnapshot,
    /// `list`
    List,
    /// `inspect`
    Inspect,
    /// `connect`
    Connect,
    /// `logs`
    Logs,
}

/// How a call goes wrong.
pub enum Fault {
    /// It fails before it has done anything.
    Fail(Error),
    /// It never answers and does nothing.
    Hang,
    /// It does its work and never answers.
    WorkAndHang,
    /// It does its work after this long.
    Delay(Duration),
    /// It waits half-way until the gate opens.
    Wait(Gate),
}

/// Holds a call until the test opens it.
pub struct Gate {
    reached: oneshot::Sender<()>,
    opened: oneshot::Receiver<()>,
}

impl Gate {
    /// The gate, a future that is ready when a call stands before it, and the key: dropping or
    /// sending on it opens.
    pub fn new() -> (Gate, oneshot::Receiver<()>, oneshot::Sender<()>) {
        let (reached, arrival) = oneshot::channel();
        let (key, opened) = oneshot::channel();
        (Gate { reached, opened }, arrival, key)
    }
}

type Policy = Box<dyn FnMut(Call) -> Option<Fault> + Send>;

/// A backend for tests. Clones share the same host.
#[derive(Clone)]
pub struct Backend {
    host: Arc<Host>,
}

struct Host {
    held: Mutex<Held>,
    events: broadcast::Sender<Event>,
}

struct Held {
    sandboxes: BTreeMap<SandboxId, Item>,
    snapshots: BTreeMap<SnapshotId, (SnapshotDetails, usize)>,
    local: HashSet<String>,
    remote: HashSet<String>,
    faults: HashMap<Call, VecDeque<Fault>>,
    policy: Option<Policy>,
    capabilities: Capabilities,
    calls: HashMap<Call, u64>,
}

/// One sandbox.
struct Item {
    state: ObservedState,
    spec: Spec,
    started_at: Timestamp,
    ports: HashSet<u16>,
    log: String,
}

impl Default for Backend {
    fn default() -> Backend {
        Backend::new()
    }
}

impl Backend {
    /// A host with the image `local` on it and the image `remote` in a registry.
    pub fn new() -> Backend {
        let (events, _) = broadcast::channel(EVENTS);
        let all = Capabilities {
            pause: true,
            snapshot: true,
            network_none: true,
            disk_limit: true,
            gpu: true,
            foreign_platform: true,
        };
        let held = Held {
            sandboxes: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            local: HashSet::from(["local".to_owned()]),
            remote: HashSet::from(["remote".to_owned()]),
            faults: HashMap::new(),
            policy: None,
            capabilities: all,
            calls: HashMap::new(),
        };
        Backend {
            host: Arc::new(Host {
                held: Mutex::new(held),
                events,
            }),
        }
    }

    /// Puts an image on the host.
    pub fn add_image(&self, reference: &str) {
        self.lock().local.insert(reference.to_owned());
    }

    /// Puts an image into the registry.
    pub fn add_remote_image(&self, reference: &str) {
        self.lock().remote.insert(reference.to_owned());
    }

    /// Changes what the backend says it can do.
    pub fn set_capabilities(&self, capabilities: Capabilities) {
        self.lock().capabilities = capabilities;
    }

    /// The next call of this kind goes wrong in this way.
    pub fn fail_next(&self, call: Call, fault: Fault) {
        self.lock().faults.entry(call).or_default().push_back(fault);
    }

    /// Decides about every call; `None` ends that.
    pub fn set_policy(&self, policy: Option<impl FnMut(Call) -> Option<Fault> + Send + 'static>) {
        self.lock().policy = policy.map(|policy| Box::new(policy) as Policy);
    }

    /// PID 1 of a sandbox ends.
    pub fn exit(&self, id: &SandboxId, exit: Exit) {
        if let Some(sandbox) = self.lock().sandboxes.get_mut(id) {
            sandbox.state = ObservedState::Exited(exit.clone());
        }
        self.tell(Event::Exited {
            id: id.clone(),
            exit,
        });
    }

    /// A process of a sandbox is killed for memory.
    pub fn out_of_memory(&self, id: &SandboxId) {
        self.tell(Event::OutOfMemory { id: id.clone() });
    }

    /// Somebody removes a sandbox behind our back; `is_told` says whether an event comes.
    pub fn vanish(&self, id: &SandboxId, is_told: bool) {
        self.lock().sandboxes.remove(id);
        if is_told {
            self.tell(Event::Vanished { id: id.clone() });
        }
    }

    /// Somebody changes a sandbox's state behind our back, silently.
    pub fn set_state(&self, id: &SandboxId, state: ObservedState) {
        if let Some(sandbox) = self.lock().sandboxes.get_mut(id) {
            sandbox.state = state;
        }
    }

    /// The backend has lost its view.
    pub fn resync(&self) {
        self.tell(Event::Resync);
    }

    /// Something in the sandbox listens on a port.
    pub fn listen(&self, id: &SandboxId, port: u16) {
        if let Some(sandbox) = self.lock().sandboxes.get_mut(id) {
            sandbox.ports.insert(port);
        }
    }

    /// Adds to a sandbox's log.
    pub fn log(&self, id: &SandboxId, text: &str) {
        if let Some(sandbox) = self.lock().sandboxes.get_mut(id) {
            sandbox.log.push_str(text);
        }
    }

    /// What is on the host.
    pub fn sandboxes(&self) -> BTreeMap<SandboxId, ObservedState> {
        let held = self.lock();
        held.sandboxes
            .iter()
            .map(|(id, sandbox)| (id.clone(), sandbox.state.clone()))
            .collect()
    }

    /// How often a call was made.
    pub fn calls(&self, call: Call) -> u64 {
        self.lock().calls.get(&call).copied().unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.host
            .held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, event: Event) {
        // Nobody listening is fine.
        let _ = self.host.events.send(event);
    }

    /// Lets a fault strike. What it answers is to be done after the work.
    async fn strike(&self, call: Call) -> Result<Afterwards, Error> {
        let fault = {
            let mut held = self.lock();
            *held.calls.entry(call).or_default() += 1;
            let queued = held.faults.get_mut(&call).and_then(VecDeque::pop_front);
            queued.or_else(|| held.policy.as_mut().and_then(|policy| policy(call)))
        };
        // A real call takes its time: others get a turn.
        tokio::task::yield_now().await;
        match fault {
            None => Ok(Afterwards::Answer),
            Some(Fault::Fail(error)) => Err(error),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::WorkAndHang) => Ok(Afterwards::Hang),
            Some(Fault::Delay(span)) => {
                tokio::time::sleep(span).await;
                Ok(Afterwards::Answer)
            }
            Some(Fault::Wait(gate)) => {
                let _ = gate.reached.send(());
                let _ = gate.opened.await;
                Ok(Afterwards::Answer)
            }
        }
    }

    fn image_error(reference: &str) -> Error {
        let message = "the fake registry has no such image".to_owned();
        Error::ImageNotFound {
            reference: reference.to_owned(),
            message,
        }
    }

    /// Checks a new sandbox and puts it down half made.
    fn put_down(&self, spec: &Spec) -> Result<(), Error> {
        let mut held = self.lock();
        if held.sandboxes.contains_key(&spec.id) {
            let message = format!("sandbox {} exists already", spec.id);
            return Err(Error::Invalid {
                field: "id",
                message,
            });
        }
        match &spec.source {
            Source::Image { reference, .. } if !held.local.contains(reference) => {
                return Err(Backend::image_error(reference));
            }
            Source::Snapshot(id) => match held.snapshots.get_mut(id) {
                Some((_, users)) => *users += 1,
                None => return Err(Error::SnapshotNotFound(id.clone())),
            },
            Source::Image { .. } => {}
        }
        if spec
            .entrypoint
            .as_ref()
            .is_some_and(|line| line.first().is_some_and(|p| p.is_empty()))
        {
            return Err(Error::Start {
                message: "the entrypoint is empty".to_owned(),
            });
        }
        let sandbox = Item {
            state: ObservedState::Incomplete,
            spec: spec.clone(),
            started_at: Timestamp::now(),
            ports: HashSet::new(),
            log: String::new(),
        };
        held.sandboxes.insert(spec.id.clone(), sandbox);
        Ok(())
    }

    fn change(
        &self,
        id: &SandboxId,
        (from, wanted): (&ObservedState, &'static str),
        to: ObservedState,
    ) -> Result<(), Error> {
        let mut held = self.lock();
        let sandbox = held
            .sandboxes
            .get_mut(id)
            .ok_or_else(|| Error::NotFound(id.clone()))?;
        if sandbox.state == to {
            return Ok(());
        }
        if sandbox.state != *from {
            return Err(Error::WrongState {
                state: name_of(&sandbox.state),
                wanted,
            });
        }
        sandbox.state = to;
        Ok(())
    }
}

enum Afterwards {
    Answer,
    Hang,
}

impl Afterwards {
    async fn come(self) {
        if let Afterwards::Hang = self {
            std::future::pending::<()>().await;
        }
    }
}

fn name_of(state: &ObservedState) -> &'static str {
    match state {
        ObservedState::Incomplete => "half made",
        ObservedState::Running => "running",
        ObservedState::Paused => "paused",
        ObservedState::Exited(_) => "exited",
    }
}

#[async_trait]
impl crate::backend::Backend for Backend {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn capabilities(&self) -> Capabilities {
        self.lock().capabilities
    }

    async fn health(&self) -> Result<(), Error> {
        self.strike(Call::Health).await?.come().await;
        Ok(())
    }

    async fn is_local(&self, source: &Source, _platform: Option<&Platform>) -> bool {
        if self.strike(Call::IsLocal).await.is_err() {
            return false;
        }
        let held = self.lock();
        match source {
            Source::Image { reference, .. } => held.local.contains(reference),
            Source::Snapshot(id) => held.snapshots.contains_key(id),
        }
    }

    async fn pull(
        &self,
        source: &Source,
        _platform: Option<&Platform>,
        progress: mpsc::Sender<PullProgress>,
    ) -> Result<(), Error> {
        let Source::Image { reference, .. } = source else {
            return Ok(());
        };
        let _ = progress.try_send(PullProgress::Resolved {
            layers: 1,
            total_bytes: 100,
        });
        let afterwards = self.strike(Call::Pull).await?;
        let _ = progress.try_send(PullProgress::Downloaded { bytes: 100 });
        {
            let mut held = self.lock();
            if !held.remote.contains(reference) && !held.local.contains(reference) {
                return Err(Backend::image_error(reference));
            }
            held.local.insert(reference.clone());
        }
        afterwards.come().await;
        Ok(())
    }

    async fn create(&self, spec: Spec) -> Result<Created, Error> {
        if let Source::Image { .. } = spec.source
            && !self.is_local(&spec.source, spec.platform.as_ref()).await
        {
            let (progress, _) = mpsc::channel(1);
            self.pull(&spec.source, spec.platform.as_ref(), progress)
                .await?;
        }
        self.put_down(&spec)?;
        // Half made while the fault strikes: a kill now leaves it so.
        let afterwards = match self.strike(Call::Create).await {
            Ok(afterwards) => afterwards,
            Err(error) => {
                self.lock().sandboxes.remove(&spec.id);
                return Err(error);
            }
        };
        let started_at = {
            let mut held = self.lock();
            let sandbox = held.sandboxes.get_mut(&spec.id);
            let sandbox = sandbox.ok_or_else(|| Error::NotFound(spec.id.clone()))?;
            sandbox.state = ObservedState::Running;
            sandbox.started_at
        };
        afterwards.come().await;
        let entrypoint = spec
            .entrypoint
            .unwrap_or_else(|| vec!["/bin/sh".to_owned()]);
        let native = Platform {
            os: "linux".to_owned(),
            arch: "amd64".to_owned(),
        };
        Ok(Created {
            started_at,
            entrypoint,
            platform: spec.platform.unwrap_or(native),
        })
    }

    async fn delete(&self, id: &SandboxId, _grace: Duration) -> Result<(), Error> {
        let afterwards = self.strike(Call::Delete).await?;
        {
            let mut held = self.lock();
            if let Some(gone) = held.sandboxes.remove(id)
                && let Source::Snapshot(snapshot) = &gone.spec.source
                && let Some((_, users)) = held.snapshots.get_mut(snapshot)
            {
                *users -= 1;
            }
        }
        afterwards.come().await;
        Ok(())
    }

    async fn pause(&self, id: &SandboxId) -> Result<(), Error> {
        let afterwards = self.strike(Call::Pause).await?;
        self.change(
            id,
            (&ObservedState::Running, "running"),
            ObservedState::Paused,
        )?;
        afterwards.come().await;
        Ok(())
    }

    async fn resume(&self, id: &SandboxId) -> Result<(), Error> {
        let afterwards = self.strike(Call::Resume).await?;
        self.change(
            id,
            (&ObservedState::Paused, "paused"),
            ObservedState::Running,
        )?;
        afterwards.come().await;
        Ok(())
    }

    async fn snapshot(
        &self,
        id: &SandboxId,
        snapshot: &SnapshotId,
    ) -> Result<SnapshotDetails, Error> {
        let afterwards = self.strike(Call::Snapshot).await?;
        let details = {
            let mut held = self.lock();
            let sandbox = held
                .sandboxes
                .get(id)
                .ok_or_else(|| Error::NotFound(id.clone()))?;
            if !matches!(
                sandbox.state,
                ObservedState::Running | ObservedState::Paused
            ) {
                let wanted = "running or paused";
                return Err(Error::WrongState {
                    state: name_of(&sandbox.state),
                    wanted,
                });
            }
            let created_at = Timestamp::now();
            let details = SnapshotDetails {
                id: snapshot.clone(),
                size_bytes: 4096,
                created_at,
            };
            held.snapshots
                .insert(snapshot.clone(), (details.clone(), 0));
            details
        };
        afterwards.come().await;
        Ok(details)
    }

    async fn delete_snapshot(&self, snapshot: &SnapshotId) -> Result<(), Error> {
        let afterwards = self.strike(Call::DeleteSnapshot).await?;
        {
            let mut held = self.lock();
            if held
                .snapshots
                .get(snapshot)
                .is_some_and(|(_, users)| *users > 0)
            {
                let what = format!("snapshot {snapshot}");
                return Err(Error::InUse {
                    what,
                    by: "a sandbox".to_owned(),
                });
            }
            held.snapshots.remove(snapshot);
        }
        afterwards.come().await;
        Ok(())
    }

    async fn list_snapshots(&self) -> Result<Vec<SnapshotDetails>, Error> {
        Ok(self
            .lock()
            .snapshots
            .values()
            .map(|(details, _)| details.clone())
            .collect())
    }

    async fn list(&self) -> Result<Vec<Observed>, Error> {
        let afterwards = self.strike(Call::List).await?;
        let all = {
            let held = self.lock();
            held.sandboxes
                .iter()
                .map(|(id, sandbox)| observe(id, sandbox))
                .collect()
        };
        afterwards.come().await;
        Ok(all)
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Observed, Error> {
        let afterwards = self.strike(Call::Inspect).await?;
        let observed = self
            .lock()
            .sandboxes
            .get(id)
            .map(|sandbox| observe(id, sandbox));
        afterwards.come().await;
        observed.ok_or_else(|| Error::NotFound(id.clone()))
    }

    async fn connect(
        &self,
        id: &SandboxId,
        target: Target,
    ) -> Result<Box<dyn Stream>, ConnectError> {
        let failed = |error: Error| ConnectError::Failed(error.to_string());
        self.strike(Call::Connect)
            .await
            .map_err(failed)?
            .come()
            .await;
        let held = self.lock();
        let sandbox = held
            .sandboxes
            .get(id)
            .ok_or_else(|| ConnectError::NotFound(id.clone()))?;
        match sandbox.state {
            ObservedState::Running => {}
            ObservedState::Paused => return Err(ConnectError::Paused),
            ObservedState::Incomplete | ObservedState::Exited(_) => {
                return Err(ConnectError::Ended);
            }
        }
        if let Target::Port(port) = target
            && !sandbox.ports.contains(&port)
        {
            return Err(ConnectError::NotListening(port));
        }
        let (ours, theirs) = tokio::io::duplex(STREAM);
        let token = sandbox.spec.access_token.expose_secret().to_owned();
        tokio::spawn(super::http::serve(theirs, target, token));
        Ok(Box::new(ours))
    }

    async fn logs(&self, id: &SandboxId, query: LogQuery) -> Result<Logs, Error> {
        self.strike(Call::Logs).await?.come().await;
        let held = self.lock();
        let sandbox = held
            .sandboxes
            .get(id)
            .ok_or_else(|| Error::NotFound(id.clone()))?;
        let lines: Vec<_> = sandbox.log.split_inclusive('\n').collect();
        let skip = lines.len().saturating_sub(query.tail_lines);
        let mut text = lines[skip..].concat();
        let mut cut = text.len().saturating_sub(query.max_bytes);
        while !text.is_char_boundary(cut) {
            cut += 1;
        }
        text.drain(..cut);
        Ok(Logs {
            truncated: text.len() < sandbox.log.len(),
            text,
        })
    }

    async fn describe(&self, id: &SandboxId) -> Result<String, Error> {
        let held = self.lock();
        let sandbox = held
            .sandboxes
            .get(id)
            .ok_or_else(|| Error::NotFound(id.clone()))?;
        Ok(format!("id: {id}\nstate: {}\n", name_of(&sandbox.state)))
    }

    fn events(&self) -> broadcast::Receiver<Event> {
        self.host.events.subscribe()
    }
}

fn observe(id: &SandboxId, sandbox: &Item) -> Observed {
    Observed {
        id: id.clone(),
        state: sandbox.state.clone(),
        labels: sandbox.spec.labels.clone(),
        started_at: Some(sandbox.started_at),
    }
}
