//! Whole lives under faults, from a seed: random requests, a backend and a store that fail, hang
//! and lie late, and a server that is killed at any instant and started again.
//!
//! What must hold afterwards, whatever happened: nothing acknowledged is lost, nothing is left
//! in the backend that nobody knows, no call hangs. A failure prints its seed; run it again with
//! `SIMULATION_SEED=n`. `SIMULATION_SEEDS=n` tries that many.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::id::SandboxId;
use jiff::{SignedDuration, Timestamp};
use lifecycle::backend::{Error as BackendError, Exit, ObservedState};
use lifecycle::fake::{Backend, Call, Clock, Fault, Store, StoreFault};
use lifecycle::{
    Caller, Config, ControlPlane, CreateRequest, Error, SandboxFilter, Service, State, store,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::EPOCH;

/// Seeds tried in an ordinary run.
const SEEDS: u64 = 150;

/// Servers that live one after the other in one run.
const SERVERS: u32 = 4;

/// Requests each client makes to each server.
const REQUESTS: u32 = 12;

const CLIENTS: u64 = 6;

/// No call may take longer, whatever hangs: the longest deadline of a request, with room.
const NO_CALL_HANGS: Duration = Duration::from_secs(120);

/// What one client knows of one sandbox, from answers alone.
#[derive(Debug, Clone)]
struct Known {
    job: String,
    expires_at: Option<Timestamp>,
    label: Option<String>,
    /// A request was under way or failed, so either outcome is right.
    is_expiry_open: bool,
    is_label_open: bool,
    is_deletion_asked: bool,
    is_deleted: bool,
}

type Ledger = Arc<Mutex<BTreeMap<SandboxId, Known>>>;

/// Sandboxes that somebody other than their maker asked to delete, perhaps before their maker
/// knew of them.
type Swept = Arc<Mutex<BTreeSet<SandboxId>>>;

struct Universe {
    backend: Backend,
    store: Store,
    ledger: Ledger,
    swept: Swept,
    now: Timestamp,
    seed: u64,
}

#[test]
fn nothing_acknowledged_is_lost_nothing_leaks_nothing_hangs() {
    let number = |name| -> Option<u64> { std::env::var(name).ok()?.parse().ok() };
    let seeds = match number("SIMULATION_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIMULATION_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        let result = std::panic::catch_unwind(|| simulate(seed));
        if let Err(panic) = result {
            eprintln!("seed {seed} fails: SIMULATION_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

fn simulate(seed: u64) {
    let mut universe = Universe {
        backend: Backend::new(),
        store: Store::new(),
        ledger: Ledger::default(),
        swept: Swept::default(),
        now: EPOCH,
        seed,
    };
    for server in 0..SERVERS {
        universe.live(server);
    }
    universe.judge();
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap()
}

impl Universe {
    /// One server's life. Dropping the runtime is `kill -9`: every task ends where it stands.
    fn live(&mut self, server: u32) {
        let mut rng = StdRng::seed_from_u64(self.seed * 1000 + u64::from(server));
        let runtime = runtime();
        let is_killed = rng.random_bool(0.7);
        let life = Duration::from_millis(rng.random_range(1..200_000));
        let (backend, store) = (self.backend.clone(), self.store.clone());
        let (ledger, swept) = (self.ledger.clone(), self.swept.clone());
        let (now, seed) = (self.now, self.seed);
        self.now = runtime.block_on(async move {
            let clock = Clock::starting_at(now);
            inject(&backend, &mut rng);
            let control = start(&backend, &store, &clock).await;
            let service = control.for_caller(Caller::operator("sim"));
            let clients = (0..CLIENTS).map(|client| {
                let rng =
                    StdRng::seed_from_u64(seed * 1_000_000 + u64::from(server) * 1000 + client);
                let client = Client {
                    service: service.clone(),
                    backend: backend.clone(),
                    store: store.clone(),
                    clock: clock.clone(),
                    ledger: ledger.clone(),
                    swept: swept.clone(),
                    rng,
                    name: format!("{server}-{client}"),
                };
                tokio::spawn(client.run())
            });
            let clients: Vec<_> = clients.collect();
            let all = futures_util::future::join_all(clients);
            if is_killed {
                // A client that is cut off never learns how its request ended.
                if let Ok(ended) = tokio::time::timeout(life, all).await {
                    ended.into_iter().for_each(|client| client.unwrap());
                }
            } else {
                all.await.into_iter().for_each(|client| client.unwrap());
                control.shutdown(Duration::from_secs(30)).await;
            }
            lifecycle::clock::Clock::now(&clock) + SignedDuration::from_secs(1)
        });
    }

    /// A last server without faults: after it has settled, everything must be in order.
    fn judge(&mut self) {
        let (backend, store, now) = (self.backend.clone(), self.store.clone(), self.now);
        backend.set_policy(None::<fn(Call) -> Option<Fault>>);
        store.heal();
        let mut ledger = std::mem::take(&mut *self.ledger.lock().unwrap());
        for id in &*self.swept.lock().unwrap() {
            if let Some(known) = ledger.get_mut(id) {
                known.is_deletion_asked = true;
            }
        }
        runtime().block_on(async move {
            let clock = Clock::starting_at(now);
            let control = start(&backend, &store, &clock).await;
            let service = control.for_caller(Caller::operator("sim"));
            // Longer than every deadline, retry and reconciliation period.
            tokio::time::sleep(Duration::from_secs(300)).await;
            let now = lifecycle::clock::Clock::now(&clock);
            let all = service.list(&SandboxFilter::default(), 1, 10_000).items;
            for (id, known) in &ledger {
                check(&service, id, known, now);
            }
            let present = backend.sandboxes();
            for id in present.keys() {
                assert!(
                    all.iter().any(|s| s.id == *id),
                    "leaked in the backend: {id}"
                );
            }
            for sandbox in &all {
                let state = sandbox.status.state;
                let seen = present.get(&sandbox.id);
                let is_honest = match state {
                    State::Running => seen == Some(&ObservedState::Running),
                    State::Paused => seen == Some(&ObservedState::Paused),
                    State::Terminated | State::Failed => true,
                    _ => false,
                };
                assert!(
                    is_honest,
                    "{} is {state}, the backend says {seen:?}",
                    sandbox.id
                );
            }
        });
    }
}

fn check(service: &Service, id: &SandboxId, known: &Known, now: Timestamp) {
    let found = service.get(id);
    if known.is_deleted {
        assert!(found.is_err(), "{id} was deleted and is back: {known:?}");
        return;
    }
    let may_be_gone = known.is_deletion_asked
        || known.is_expiry_open
        || known.expires_at.is_some_and(|at| at <= now);
    let Ok(sandbox) = found else {
        assert!(
            may_be_gone,
            "{id} was acknowledged and is lost: {known:?} at {now}"
        );
        return;
    };
    assert_eq!(sandbox.metadata.get("job"), Some(&known.job), "{id}");
    if !known.is_label_open {
        assert_eq!(
            sandbox.metadata.get("label"),
            known.label.as_ref(),
            "{id}: {known:?}"
        );
    }
    if !known.is_expiry_open {
        assert!(
            sandbox.expires_at >= known.expires_at,
            "{id} ends sooner than promised: {sandbox:?} {known:?}"
        );
        let is_overdue = sandbox
            .expires_at
            .is_some_and(|at| at + SignedDuration::from_secs(90) < now);
        assert!(
            !is_overdue,
            "{id} should have expired: {sandbox:?} at {now}"
        );
    }
}

async fn start(backend: &Backend, store: &Store, clock: &Clock) -> ControlPlane {
    let started = ControlPlane::start(
        Config::default(),
        Arc::new(backend.clone()),
        Arc::new(store.clone()),
        Arc::new(clock.clone()),
    );
    let started = tokio::time::timeout(NO_CALL_HANGS, started).await;
    started
        .expect("the start hangs")
        .expect("the service starts")
}

/// The backend goes wrong now and then.
fn inject(backend: &Backend, rng: &mut StdRng) {
    let mut rng = StdRng::seed_from_u64(rng.random());
    let rate = [0.0, 0.05, 0.25][rng.random_range(0..3)];
    backend.set_policy(Some(move |call| {
        if matches!(call, Call::IsLocal | Call::Health) || !rng.random_bool(rate) {
            return None;
        }
        let broken = || BackendError::Unavailable {
            backend: "fake",
            message: "down".to_owned(),
        };
        Some(match rng.random_range(0..5) {
            0 => Fault::Hang,
            1 => Fault::WorkAndHang,
            2 => Fault::Delay(Duration::from_millis(rng.random_range(1..90_000))),
            _ => Fault::Fail(broken()),
        })
    }));
}

struct Client {
    service: Service,
    backend: Backend,
    store: Store,
    clock: Clock,
    ledger: Ledger,
    swept: Swept,
    rng: StdRng,
    name: String,
}

impl Client {
    async fn run(mut self) {
        let mut own: Vec<SandboxId> = Vec::new();
        for number in 0..REQUESTS {
            self.disturb(&own);
            let pick = self.rng.random_range(0..100);
            let target =
                (!own.is_empty()).then(|| own[self.rng.random_range(0..own.len())].clone());
            match target {
                Some(id) if pick < 15 => self.delete(&id).await,
                Some(id) if pick < 30 => self.renew(&id).await,
                Some(id) if pick < 45 => self.patch(&id, number).await,
                Some(id) if pick < 60 => {
                    let _ = self.bounded("pause", self.service.pause(&id)).await;
                }
                Some(id) if pick < 70 => {
                    let _ = self.bounded("resume", self.service.resume(&id)).await;
                }
                Some(id) if pick < 75 => {
                    let _ = self
                        .bounded("create_snapshot", self.service.create_snapshot(&id, None))
                        .await;
                }
                _ if pick < 80 => self.sweep().await,
                _ => own.extend(self.create(number).await),
            }
            let pause = Duration::from_millis(self.rng.random_range(0..20_000));
            tokio::time::sleep(pause).await;
        }
    }

    /// Things nobody asked for.
    fn disturb(&mut self, own: &[SandboxId]) {
        match self.rng.random_range(0..60) {
            0 => self.store.fail_next(StoreFault::Hang),
            1 => self.store.fail_next(StoreFault::WriteAndHang),
            2 | 3 => {
                let location = "memory".to_owned();
                let full = store::Error::Full {
                    store: "memory",
                    location,
                };
                self.store.fail_next(StoreFault::Refuse(full));
            }
            4 => self.backend.resync(),
            // Records that come late: while the backend works, after it has ended, and when the
            // client should have been answered.
            6..14 => {
                let span = Duration::from_millis(self.rng.random_range(1..14_000));
                self.store.fail_next(StoreFault::Delay(span));
            }
            5 => {
                if let Some(id) = own.last() {
                    let code = self.rng.random_range(0..2);
                    let exit = Exit {
                        code: Some(code),
                        signal: None,
                        oom_killed: false,
                        at: None,
                    };
                    self.backend.exit(id, exit);
                }
            }
            _ => {}
        }
    }

    async fn bounded<T>(&self, name: &str, call: impl Future<Output = T>) -> T {
        let ended = tokio::time::timeout(NO_CALL_HANGS, call).await;
        ended.unwrap_or_else(|_| panic!("{name} hangs"))
    }

    async fn create(&mut self, number: u32) -> Option<SandboxId> {
        let job = format!("{}-{number}", self.name);
        // An image that was pulled is local from then on, so each is pulled by one creation.
        let image = if self.rng.random_bool(0.8) {
            "local".to_owned()
        } else {
            let image = format!("remote-{job}");
            if self.rng.random_bool(0.9) {
                self.backend.add_remote_image(&image);
            }
            image
        };
        let mut request = CreateRequest::from_image(image);
        request.metadata.insert("job".to_owned(), job.clone());
        if self.rng.random_bool(0.5) {
            request.timeout = Some(Duration::from_secs(self.rng.random_range(60..600)));
        }
        let key = self.rng.random_bool(0.3).then_some(job.as_str());
        let first = self
            .bounded("create", self.service.create(request.clone(), key))
            .await;
        let creation = match (first, &key) {
            // What clients do with a key: ask again.
            (Err(Error::Store(_) | Error::Backend(_)), Some(_)) => {
                self.bounded("create", self.service.create(request, key))
                    .await
            }
            (first, _) => first,
        };
        let sandbox = creation.ok()?.sandbox;
        let is_swept = self.swept.lock().unwrap().contains(&sandbox.id);
        assert!(
            is_swept || self.store.text_of(&sandbox.id).is_some(),
            "{} is acknowledged without a record",
            sandbox.id
        );
        let known = Known {
            job,
            expires_at: sandbox.expires_at,
            label: None,
            is_expiry_open: false,
            is_label_open: false,
            is_deletion_asked: false,
            is_deleted: false,
        };
        self.ledger
            .lock()
            .unwrap()
            .insert(sandbox.id.clone(), known);
        Some(sandbox.id.clone())
    }

    fn edit(&self, id: &SandboxId, edit: impl FnOnce(&mut Known)) {
        edit(self.ledger.lock().unwrap().get_mut(id).unwrap());
    }

    async fn delete(&mut self, id: &SandboxId) {
        self.edit(id, |known| known.is_deletion_asked = true);
        if self
            .bounded("delete", self.service.delete(id))
            .await
            .is_ok()
        {
            self.edit(id, |known| known.is_deleted = true);
        }
    }

    /// Deletes one of all sandboxes, in whatever state it is: also before its maker was answered.
    async fn sweep(&mut self) {
        let all = self
            .service
            .list(&SandboxFilter::default(), 1, 10_000)
            .items;
        if all.is_empty() {
            return;
        }
        let pending = all.iter().find(|it| it.status.state == State::Pending);
        let id = match pending {
            Some(pending) if self.rng.random_bool(0.5) => pending.id.clone(),
            _ => all[self.rng.random_range(0..all.len())].id.clone(),
        };
        self.swept.lock().unwrap().insert(id.clone());
        let _ = self.bounded("delete", self.service.delete(&id)).await;
    }

    async fn renew(&mut self, id: &SandboxId) {
        let span = SignedDuration::from_secs(self.rng.random_range(60..900));
        let to = lifecycle::clock::Clock::now(&self.clock) + span;
        let was_open = {
            let mut ledger = self.ledger.lock().unwrap();
            let known = ledger.get_mut(id).unwrap();
            std::mem::replace(&mut known.is_expiry_open, true)
        };
        match self.bounded("renew", self.service.renew(id, to)).await {
            Ok(at) => self.edit(id, |known| {
                known.expires_at = Some(at);
                known.is_expiry_open = false;
            }),
            // Refused by a rule: nothing has changed.
            Err(Error::NotFound(_) | Error::WrongState { .. } | Error::NoExpiration(_)) => {
                self.edit(id, |known| known.is_expiry_open = was_open);
            }
            Err(_) => {}
        }
    }

    async fn patch(&mut self, id: &SandboxId, number: u32) {
        self.edit(id, |known| known.is_label_open = true);
        let label = number.to_string();
        let patch = BTreeMap::from([("label".to_owned(), Some(label.clone()))]);
        if self
            .bounded("patch_metadata", self.service.patch_metadata(id, patch))
            .await
            .is_ok()
        {
            self.edit(id, |known| {
                known.label = Some(label);
                known.is_label_open = false;
            });
        }
    }
}
