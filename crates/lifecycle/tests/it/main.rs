//! The service as the HTTP layer uses it, on the fake backend, store and clock, in paused time.

#![expect(clippy::unwrap_used, reason = "what a test sets up fails loudly")]

mod audit;
mod clock;
mod conformance;
mod create;
mod ended;
mod faults;
mod life;
mod names;
mod restart;
mod simulation;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use api::id::SandboxId;
use jiff::Timestamp;
use lifecycle::fake::{Backend, Clock, Store};
use lifecycle::{Caller, Config, ControlPlane, CreateRequest, Sandbox, Service, State};

/// A service and everything it stands on.
pub(crate) struct World {
    pub(crate) backend: Backend,
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) control: ControlPlane,
    /// The control plane as most tests use it.
    pub(crate) service: Service,
}

/// Where the wall clock of a test begins.
pub(crate) const EPOCH: Timestamp = Timestamp::constant(1_800_000_000, 0);

impl World {
    pub(crate) async fn new() -> World {
        World::on(Backend::new(), Store::new()).await
    }

    /// A service on what an earlier one left.
    pub(crate) async fn on(backend: Backend, store: Store) -> World {
        let clock = Clock::starting_at(EPOCH);
        World::with(backend, store, clock).await
    }

    pub(crate) async fn with(backend: Backend, store: Store, clock: Clock) -> World {
        let control = ControlPlane::start(
            Config::default(),
            Arc::new(backend.clone()),
            Arc::new(store.clone()),
            Arc::new(clock.clone()),
        )
        .await
        .expect("the service starts");
        World {
            backend,
            store,
            clock,
            service: control.for_caller(Caller::operator("tester")),
            control,
        }
    }

    /// Stops the service and starts another on the same backend, store and clock.
    pub(crate) async fn restart(self) -> World {
        self.control.shutdown(Duration::from_secs(1)).await;
        World::with(self.backend, self.store, self.clock).await
    }

    /// A sandbox of an image that is here, with a lifetime of ten minutes.
    pub(crate) async fn running(&self) -> Arc<Sandbox> {
        let creation = self
            .service
            .create(local(), None)
            .await
            .expect("a sandbox is made");
        assert_eq!(creation.sandbox.status.state, State::Running);
        creation.sandbox
    }

    /// Waits until a sandbox is in a state.
    pub(crate) async fn until(&self, id: &SandboxId, wanted: State) -> Arc<Sandbox> {
        let is_so = |found: Option<&Sandbox>| found.is_some_and(|s| s.status.state == wanted);
        self.until_so(id, is_so).await.expect("it is there")
    }

    /// Waits until a sandbox is gone.
    pub(crate) async fn until_gone(&self, id: &SandboxId) {
        self.until_so(id, |found| found.is_none()).await;
    }

    /// Looks again after every event. Time is paused, so the limit costs nothing.
    async fn until_so(
        &self,
        id: &SandboxId,
        is_so: impl Fn(Option<&Sandbox>) -> bool,
    ) -> Option<Arc<Sandbox>> {
        let mut events = self
            .service
            .subscribe(None)
            .await
            .expect("events can be read");
        loop {
            let found = self.service.get(id).ok();
            if is_so(found.as_deref()) {
                return found;
            }
            let next = tokio::time::timeout(Duration::from_secs(7200), events.next()).await;
            assert!(next.is_ok(), "it never came true: {found:?}");
        }
    }
}

pub(crate) fn local() -> CreateRequest {
    let timeout = Some(Duration::from_secs(600));
    CreateRequest {
        timeout,
        ..CreateRequest::from_image("local")
    }
}

pub(crate) fn remote() -> CreateRequest {
    let timeout = Some(Duration::from_secs(600));
    CreateRequest {
        timeout,
        ..CreateRequest::from_image("remote")
    }
}

/// Lets every task that can run, run.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}
