//! What waiters and listeners see of a creation, however it ends.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures_util::FutureExt as _;
use tokio::sync::oneshot;

use super::*;
use crate::backend::Exit;

struct Thing {
    id: SandboxId,
    end: Option<Event>,
    is_leaving: AtomicBool,
    volumes: Vec<String>,
}

impl Registered for Thing {
    fn id(&self) -> &SandboxId {
        &self.id
    }

    fn end(&self) -> Option<Event> {
        self.end.clone()
    }

    fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    fn volumes(&self) -> &[String] {
        &self.volumes
    }
}

fn id() -> SandboxId {
    "thing".parse().unwrap()
}

fn thing(end: Option<Event>) -> Arc<Thing> {
    Arc::new(Thing {
        id: id(),
        end,
        is_leaving: AtomicBool::new(false),
        volumes: vec!["data".to_owned()],
    })
}

fn exited() -> Event {
    let exit = Exit {
        code: Some(1),
        signal: None,
        oom_killed: false,
        at: None,
    };
    Event::Exited { id: id(), exit }
}

type Made = Result<(Arc<Thing>, ()), Error>;

/// Begins a creation whose outcome the test decides, and a wait for it that has begun to wait.
async fn begin(
    registry: &Arc<Registry<Thing>>,
) -> (
    oneshot::Sender<Box<dyn FnOnce() -> Made + Send>>,
    tokio::task::JoinHandle<Result<(), Error>>,
    tokio::task::JoinHandle<Result<Option<Arc<Thing>>, Error>>,
) {
    let (decide, decided) = oneshot::channel::<Box<dyn FnOnce() -> Made + Send>>();
    let (begun, has_begun) = oneshot::channel();
    let maker = registry.clone();
    let creation = tokio::spawn(async move {
        let creation = async {
            let _ = begun.send(());
            decided.await.expect("the test decides")()
        };
        maker.create(&id(), vec!["data".to_owned()], creation).await
    });
    has_begun.await.unwrap();
    let waiter = registry.clone();
    let (waits, is_waiting) = oneshot::channel();
    let wait = tokio::spawn(async move {
        let id = id();
        let mut settled = Box::pin(waiter.get_settled(&id));
        assert!(
            poll_fn(|cx| Poll::Ready(settled.poll_unpin(cx)))
                .await
                .is_pending()
        );
        let _ = waits.send(());
        settled.await
    });
    is_waiting.await.unwrap();
    (decide, creation, wait)
}

#[tokio::test]
async fn whoever_waits_for_a_creation_gets_what_it_made() {
    let registry = Arc::new(Registry::default());
    let (decide, creation, wait) = begin(&registry).await;
    assert!(matches!(registry.get(&id()), Err(Error::WrongState { .. })));
    assert!(registry.is_being_created(&id()) && registry.all().is_empty());
    let _ = decide.send(Box::new(|| Ok((thing(None), ()))));
    creation.await.unwrap().unwrap();
    let made = wait.await.unwrap().unwrap().expect("it was made");
    assert!(registry.contains(&made) && !registry.is_being_created(&id()));
    registry.remove(&id());
    assert!(registry.get_settled(&id()).await.unwrap().is_none());
}

#[tokio::test]
async fn whoever_waits_for_a_creation_that_fails_finds_nothing() {
    let registry = Arc::new(Registry::default());
    let (decide, creation, wait) = begin(&registry).await;
    let _ = decide.send(Box::new(|| Err(Error::Internal("on purpose".to_owned()))));
    assert!(creation.await.unwrap().is_err());
    assert!(wait.await.unwrap().unwrap().is_none());
    assert!(matches!(registry.get(&id()), Err(Error::NotFound(_))));
}

#[tokio::test]
async fn whoever_waits_for_a_creation_that_panics_gets_an_error() {
    let registry = Arc::new(Registry::default());
    let (decide, creation, wait) = begin(&registry).await;
    let _ = decide.send(Box::new(|| panic!("on purpose")));
    assert!(creation.await.unwrap_err().is_panic());
    let error = wait.await.unwrap().map(drop).unwrap_err();
    assert!(
        error.to_string().contains("creation of sandbox thing"),
        "{error}"
    );
    // The id is free, and nobody waits for what is over.
    assert!(registry.get_settled(&id()).await.unwrap().is_none());
    let again = async { Ok((thing(None), ())) };
    registry.create(&id(), Vec::new(), again).await.unwrap();
}

#[tokio::test]
async fn whoever_waits_for_a_creation_that_is_dropped_gets_an_error() {
    let registry = Arc::new(Registry::default());
    let (_decide, creation, wait) = begin(&registry).await;
    creation.abort();
    assert!(wait.await.unwrap().is_err());
    assert!(matches!(registry.get(&id()), Err(Error::NotFound(_))));
}

#[tokio::test]
async fn an_id_is_used_once() {
    let registry = Registry::default();
    let made = || async { Ok((thing(None), ())) };
    registry.create(&id(), Vec::new(), made()).await.unwrap();
    let again = registry.create(&id(), Vec::new(), made()).await;
    assert!(matches!(again, Err(Error::Invalid { field: "id", .. })));
}

#[tokio::test]
async fn an_end_during_creation_is_told_after_it() {
    let registry = Registry::default();
    let mut events = registry.events();
    let creation = async {
        registry.attach(&thing(None));
        assert!(registry.find(&id()).is_some(), "events can be about it");
        registry.tell(exited());
        Ok((thing(Some(exited())), ()))
    };
    registry.create(&id(), Vec::new(), creation).await.unwrap();
    assert!(matches!(events.try_recv(), Ok(Event::Exited { .. })));
    assert!(events.try_recv().is_err(), "it is told once");
}

#[tokio::test]
async fn a_sandbox_that_vanished_during_creation_is_told_and_forgotten() {
    let registry = Registry::default();
    let mut events = registry.events();
    let creation = async { Ok((thing(Some(Event::Vanished { id: id() })), ())) };
    registry.create(&id(), Vec::new(), creation).await.unwrap();
    assert!(matches!(events.try_recv(), Ok(Event::Vanished { .. })));
    assert!(matches!(registry.get(&id()), Err(Error::NotFound(_))));
}

#[tokio::test]
async fn nobody_is_told_of_what_leaves_or_is_unknown() {
    let registry = Registry::default();
    let mut events = registry.events();
    registry.tell(exited());
    let leaving = thing(None);
    leaving.is_leaving.store(true, Ordering::Relaxed);
    registry.insert(leaving);
    registry.tell(exited());
    assert!(events.try_recv().is_err());
    registry.tell(Event::Resync);
    assert!(matches!(events.try_recv(), Ok(Event::Resync)));
}

#[tokio::test]
async fn a_volume_is_in_use_from_the_reservation_on() {
    let registry = Arc::new(Registry::default());
    let users = |registry: &Registry<Thing>| registry.with_users("data", |users| users.len());
    assert_eq!(users(&registry), 0);
    let (decide, creation, _wait) = begin(&registry).await;
    assert_eq!(users(&registry), 1, "while it is created");
    let _ = decide.send(Box::new(|| Ok((thing(None), ()))));
    creation.await.unwrap().unwrap();
    assert_eq!(users(&registry), 1, "once it is there");
    assert_eq!(registry.with_users("other", |users| users.len()), 0);
}

#[tokio::test]
async fn a_panic_with_the_lock_held_does_not_lock_everybody_out() {
    let registry = Registry::<Thing>::default();
    registry.insert(thing(None));
    let panicked = std::panic::catch_unwind(AssertUnwindSafe(|| {
        registry.with_users("data", |_| -> () { panic!("on purpose") });
    }));
    assert!(panicked.is_err());
    assert!(registry.get(&id()).is_ok());
}
