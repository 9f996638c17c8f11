//! The live stream of events for one reader, which may come back later and go on where it was.
//!
//! Reads from the store until it has caught up, then listens; a reader that falls too far behind
//! reads from the store again. Each event once, in order.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use api::id::SandboxId;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use crate::admission;
use crate::caller::Caller;
use crate::deadlines;
use crate::error::Error;
use crate::event::{Event, EventId, EventKind};
use crate::shared::Shared;
use crate::store::{self, Store};

/// Events read from the store at once.
const CHUNK: u32 = 256;

/// What a live subscriber receives.
#[derive(Debug, Clone)]
pub enum Live {
    /// The next event.
    Event(Arc<Event>),
    /// What came after `after` is not kept any more, or never was: the reader should look at
    /// everything anew. The stream goes on with what is kept.
    Gap {
        /// The last number the subscriber is known to have.
        after: EventId,
    },
}

/// A live subscription: past events after the number given, then new ones as they happen, each
/// once and in order.
pub struct Subscription {
    store: Arc<dyn Store>,
    live: broadcast::Receiver<Arc<Event>>,
    stop: CancellationToken,
    /// The number of the last event handed out.
    last: EventId,
    backlog: VecDeque<Arc<Event>>,
    is_behind: bool,
    gap: Option<EventId>,
    /// Who reads.
    caller: Caller,
    shared: Arc<Shared>,
    /// Sandboxes that existed for a reader to whom only some do, so that it hears of their end, too.
    seen: HashSet<SandboxId>,
}

impl Subscription {
    pub(crate) async fn open(
        shared: &Arc<Shared>,
        caller: Caller,
        after: Option<EventId>,
    ) -> Result<Self, Error> {
        // Listening begins before the first read, so nothing can fall between.
        let live = shared.journal.subscribe();
        let newest = shared.journal.last_event();
        let store = shared.store.clone();
        let mut subscription = Subscription {
            store,
            live,
            stop: shared.stop.clone(),
            last: after.unwrap_or(newest),
            backlog: VecDeque::new(),
            is_behind: after.is_some(),
            gap: None,
            seen: HashSet::new(),
            shared: Arc::clone(shared),
            caller,
        };
        subscription.look_around();
        if let Some(after) = after {
            subscription.look_for_gap(after, newest).await?;
        }
        Ok(subscription)
    }

    async fn look_for_gap(&mut self, after: EventId, newest: EventId) -> Result<(), Error> {
        if after > newest {
            // A number of a store that was lost.
            self.gap = Some(after);
            self.last = newest;
            return Ok(());
        }
        let read = tokio::time::timeout(deadlines::STORE_READ, self.store.oldest_event()).await;
        let oldest = read.map_err(|_| timeout())??;
        if oldest.is_some_and(|oldest| after + 1 < oldest) {
            self.gap = Some(after);
        }
        Ok(())
    }

    /// Remembers which sandboxes exist for a reader to whom only some do.
    fn look_around(&mut self) {
        if self.caller.scope.is_part() {
            let views = self.shared.views().into_iter();
            let own = views.filter(|it| admission::sees(&self.caller, it));
            self.seen = own.map(|it| it.id.clone()).collect();
        }
    }

    /// Whether an event is of something that exists for the reader.
    fn is_for_reader(&mut self, event: &Event) -> bool {
        if admission::sees_all_of(&self.caller, &event.tenant) {
            return true;
        }
        let Some(id) = &event.sandbox_id else {
            return false;
        };
        let is_seen = match self.shared.view(id) {
            Ok(sandbox) => admission::sees(&self.caller, &sandbox),
            Err(_) => self.seen.contains(id),
        };
        let is_end = event.kind == EventKind::Deleted;
        if is_seen && !is_end {
            self.seen.insert(id.clone());
        } else {
            self.seen.remove(id);
        }
        is_seen
    }

    /// The next event of what exists for the reader. `None` when the service has shut down, or the reader's
    /// key has ended. Safe to cancel.
    pub async fn next(&mut self) -> Option<Result<Live, Error>> {
        loop {
            match self.next_of_all().await {
                Some(Ok(Live::Event(event))) if !self.is_for_reader(&event) => {}
                other => return other,
            }
        }
    }

    async fn next_of_all(&mut self) -> Option<Result<Live, Error>> {
        if let Some(after) = self.gap.take() {
            return Some(Ok(Live::Gap { after }));
        }
        loop {
            if let Some(event) = self.backlog.pop_front() {
                self.last = event.id;
                return Some(Ok(Live::Event(event)));
            }
            if self.is_behind {
                match self.catch_up().await {
                    Ok(()) => continue,
                    Err(error) => return Some(Err(error)),
                }
            }
            let received = tokio::select! {
                received = self.live.recv() => received,
                () = self.stop.cancelled() => return None,
                () = self.caller.ended() => return None,
            };
            match received {
                // Already read from the store.
                Ok(event) if event.id <= self.last => {}
                Ok(event) => {
                    self.last = event.id;
                    return Some(Ok(Live::Event(event)));
                }
                Err(RecvError::Lagged(_)) => self.is_behind = true,
                Err(RecvError::Closed) => return None,
            }
        }
    }

    async fn catch_up(&mut self) -> Result<(), Error> {
        let read = self.store.events_after(self.last, CHUNK);
        let events = tokio::time::timeout(deadlines::STORE_READ, read).await;
        let events = events.map_err(|_| timeout())??;
        self.is_behind = !events.is_empty();
        self.backlog.extend(events.into_iter().map(Arc::new));
        Ok(())
    }
}

fn timeout() -> store::Error {
    store::Error::Timeout {
        seconds: deadlines::STORE_READ.as_secs(),
    }
}
