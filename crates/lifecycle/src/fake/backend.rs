//! A backend in memory, with faults on request: delays, errors, hangs and things that vanish.
//!
//! Clones share the same host. A call that is dropped half-way leaves what it had done so far,
//! as a killed server would.

mod calls;
mod inventory;
mod warm;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::id::{SandboxId, SnapshotId};
use jiff::Timestamp;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use crate::backend::{
    Capabilities, Error, Event, Exit, ObservedState, SnapshotDetails, Spec, WarmSpec,
};

/// Events that wait for a slow reader; more make it lag, as with a real backend.
const EVENTS: usize = 256;

/// Bytes under way in each direction of a stream.
const STREAM: usize = 64 * 1024;

/// Connections that wait for a test to take them; more are refused.
const BACKLOG: usize = 64;

/// Creations at once, as real backends have it, unless a test says otherwise.
const CREATIONS_MAX: usize = 32;

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
    /// `set_network_policy`
    SetNetworkPolicy,
    /// Any call about images and volumes but `pull_image`.
    Inventory,
    /// `prepare` of a warm sandbox
    Prepare,
    /// `claim` of a warm sandbox
    Claim,
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
    /// It panics half-way.
    Panic,
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
    volumes: BTreeSet<String>,
    has_inventory: bool,
    /// Shapes of the ready sandboxes of each pool.
    ready: BTreeMap<String, VecDeque<WarmSpec>>,
    has_warm_pools: bool,
    faults: HashMap<Call, VecDeque<Fault>>,
    policy: Option<Policy>,
    capabilities: Capabilities,
    creations_max: usize,
    calls: HashMap<Call, u64>,
}

/// One sandbox.
struct Item {
    state: ObservedState,
    spec: Spec,
    started_at: Timestamp,
    ports: HashSet<u16>,
    played: HashMap<u16, mpsc::Sender<UnixStream>>,
    log: watch::Sender<String>,
}

impl Item {
    /// A sandbox that is half made.
    fn new(spec: Spec) -> Item {
        Item {
            state: ObservedState::Incomplete,
            spec,
            started_at: Timestamp::now(),
            ports: HashSet::new(),
            played: HashMap::new(),
            log: watch::Sender::new(String::new()),
        }
    }
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
            network_rules: true,
            disk_limit: true,
            gpu: true,
            foreign_platform: true,
        };
        let held = Held {
            sandboxes: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            local: HashSet::from(["local".to_owned()]),
            remote: HashSet::from(["remote".to_owned()]),
            volumes: BTreeSet::new(),
            has_inventory: true,
            ready: BTreeMap::new(),
            has_warm_pools: true,
            faults: HashMap::new(),
            policy: None,
            capabilities: all,
            creations_max: CREATIONS_MAX,
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

    /// Changes how many creations it says it takes at once, for services started from now on.
    pub fn set_creations_max(&self, creations_max: usize) {
        self.lock().creations_max = creations_max;
    }

    /// Keeps images and volumes to itself from now on.
    pub fn hide_inventory(&self) {
        self.lock().has_inventory = false;
    }

    /// Keeps no sandbox ready from now on.
    pub fn hide_warm_pools(&self) {
        self.lock().has_warm_pools = false;
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

    /// Lets the test itself be what listens on a port: it gets every connection to it.
    pub fn play(&self, id: &SandboxId, port: u16) -> mpsc::Receiver<UnixStream> {
        let (play, played) = mpsc::channel(BACKLOG);
        if let Some(sandbox) = self.lock().sandboxes.get_mut(id) {
            sandbox.played.insert(port, play);
        }
        played
    }

    /// Adds to a sandbox's log.
    pub fn log(&self, id: &SandboxId, text: &str) {
        if let Some(sandbox) = self.lock().sandboxes.get_mut(id) {
            sandbox.log.send_modify(|log| log.push_str(text));
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
            Some(Fault::Panic) => panic!("a fault that a test asked for"),
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
        if !held.capabilities.network_rules {
            crate::backend::all_or_nothing("fake", &spec.network)?;
        }
        held.use_source(&spec.source)?;
        if spec
            .entrypoint
            .as_ref()
            .is_some_and(|line| line.first().is_some_and(|p| p.is_empty()))
        {
            return Err(Error::Start {
                message: "the entrypoint is empty".to_owned(),
            });
        }
        held.sandboxes
            .insert(spec.id.clone(), Item::new(spec.clone()));
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
