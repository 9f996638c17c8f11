//! The one writer to the store: collects what the owner tasks want to keep, writes it in groups,
//! and tells the world in the order in which it became durable.
//!
//! A commit costs one fsync, some milliseconds; everything that arrives during one commit shares
//! the next. Events are broadcast only when they are durable and in the order of their numbers,
//! so a reader that resumes after a number misses nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::deadlines;
use crate::error::Error;
use crate::event::{Event, EventId};
use crate::store::{self, Batch, BatchOutcome, Store, Write};

/// Batches waiting for a commit. A full queue makes writers wait: the store is the bottleneck
/// then, and memory must not grow with it.
const QUEUE: usize = 1024;

/// Batches in one commit: bounds the size of a transaction and of the loss if it fails.
const GROUP: usize = 256;

/// Events a slow subscriber may fall behind before it reads from the store again.
const LIVE: usize = 1024;

struct Entry {
    batch: Batch,
    answer: oneshot::Sender<Result<BatchOutcome, Error>>,
}

/// The way to the writer.
#[derive(Clone)]
pub(crate) struct Journal {
    entries: mpsc::Sender<Entry>,
    live: broadcast::Sender<Arc<Event>>,
    last_event: Arc<AtomicI64>,
    /// Closed when the writer has ended.
    ended: watch::Receiver<()>,
}

impl Journal {
    /// Starts the writer. It ends when `stop` is cancelled and the queue is empty.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        last_event: EventId,
        stop: CancellationToken,
    ) -> Journal {
        let (entries, inbox) = mpsc::channel(QUEUE);
        let (live, _) = broadcast::channel(LIVE);
        let (is_alive, ended) = watch::channel(());
        let last_event = Arc::new(AtomicI64::new(last_event));
        let publisher = Publisher {
            live: live.clone(),
            last_event: last_event.clone(),
        };
        tokio::spawn(async move {
            run(store, inbox, publisher, stop).await;
            drop(is_alive);
        });
        Journal {
            entries,
            live,
            last_event,
            ended,
        }
    }

    /// The number of the newest durable event.
    pub(crate) fn last_event(&self) -> EventId {
        self.last_event.load(Ordering::Acquire)
    }

    /// Waits until the writer has ended.
    pub(crate) async fn ended(&self) {
        while self.ended.clone().changed().await.is_ok() {}
    }

    /// Writes a batch; the future is ready when it is durable. Where the queue has room the batch
    /// is in it at once, before anybody waits for the future.
    pub(crate) fn write(
        &self,
        batch: Batch,
    ) -> impl Future<Output = Result<BatchOutcome, Error>> + Send + use<> {
        let (answer, result) = oneshot::channel();
        let rest = match self.entries.try_send(Entry { batch, answer }) {
            Ok(()) => None,
            Err(TrySendError::Full(entry) | TrySendError::Closed(entry)) => {
                Some((self.entries.clone(), entry))
            }
        };
        async move {
            if let Some((entries, entry)) = rest
                && entries.send(entry).await.is_err()
            {
                return Err(Error::ShuttingDown);
            }
            result.await.unwrap_or(Err(Error::ShuttingDown))
        }
    }

    /// Writes a batch that nobody waits for; returns when it is queued.
    pub(crate) async fn write_behind(&self, batch: Batch) -> Result<(), Error> {
        let (answer, _) = oneshot::channel();
        self.entries
            .send(Entry { batch, answer })
            .await
            .map_err(|_| Error::ShuttingDown)
    }

    /// Events from now on, as they become durable.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<Event>> {
        self.live.subscribe()
    }
}

/// Where durable events are published.
struct Publisher {
    live: broadcast::Sender<Arc<Event>>,
    last_event: Arc<AtomicI64>,
}

async fn run(
    store: Arc<dyn Store>,
    mut inbox: mpsc::Receiver<Entry>,
    publisher: Publisher,
    stop: CancellationToken,
) {
    let mut group = Vec::with_capacity(GROUP);
    loop {
        tokio::select! {
            biased;
            count = inbox.recv_many(&mut group, GROUP) => {
                if count == 0 {
                    return;
                }
                commit(&*store, &mut group, &publisher).await;
            }
            () = stop.cancelled() => {
                // What is queued is still written; nothing new gets in.
                inbox.close();
                if inbox.is_empty() {
                    return;
                }
            }
        }
    }
}

async fn commit(store: &dyn Store, group: &mut Vec<Entry>, publisher: &Publisher) {
    let (batches, answers): (Vec<_>, Vec<_>) = group
        .drain(..)
        .map(|entry| (entry.batch, entry.answer))
        .unzip();
    let written = match tokio::time::timeout(deadlines::STORE_WRITE, store.apply(&batches)).await {
        Ok(result) => result,
        Err(_) => Err(store::Error::Timeout {
            seconds: deadlines::STORE_WRITE.as_secs(),
        }),
    };
    match written {
        Ok(outcomes) => {
            debug_assert_eq!(outcomes.len(), batches.len(), "one outcome a batch");
            for ((batch, answer), outcome) in batches.into_iter().zip(answers).zip(outcomes) {
                if let BatchOutcome::Written(ids) = &outcome {
                    publish(batch, ids, publisher);
                }
                let _ = answer.send(Ok(outcome));
            }
        }
        Err(error) => {
            tracing::error!(error = %api::error_chain(&error), batches = batches.len(), "the store refused a group of writes");
            for answer in answers {
                let _ = answer.send(Err(Error::Store(error.clone())));
            }
        }
    }
}

fn publish(batch: Batch, ids: &[EventId], publisher: &Publisher) {
    let events = batch.writes.into_iter().filter_map(|write| match write {
        Write::AppendEvent(event) => Some(event),
        _ => None,
    });
    for (mut event, id) in events.zip(ids) {
        event.id = *id;
        publisher.last_event.fetch_max(*id, Ordering::AcqRel);
        // Nobody listening is fine.
        let _ = publisher.live.send(Arc::new(event));
    }
}
