//! One structure for the lifetimes of all sandboxes: an ordered map of deadlines and one timer
//! for the earliest.
//!
//! Decides nothing. A deadline that passes is told to the sandbox's owner task together with the
//! order it was set by; the owner ignores it if the sandbox has been renewed since. So a
//! renewal that is acknowledged can never lose against an expiry under way.
//!
//! When the wall clock is set, the deadlines move by the same amount: what was promised is a
//! lifetime. Whoever sets the clock neither kills sandboxes nor makes them immortal.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use api::id::SandboxId;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;

/// Orders waiting for the timer task. Each is a few words; the task handles thousands a
/// millisecond, and senders wait when it is full.
const QUEUE: usize = 1024;

/// Wall clocks are slewed and read a moment after the uptime: smaller differences are no jump.
const SMALLEST_JUMP: SignedDuration = SignedDuration::from_secs(1);

/// What the timer tells an owner. A later one replaces an earlier one and says all it said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Alarm {
    /// The order it is for; an owner that has given a newer one ignores it.
    pub(crate) ticket: u64,
    /// The deadline, which differs from what was ordered when the clock has been set since.
    pub(crate) at: Timestamp,
    /// The deadline has passed.
    pub(crate) is_due: bool,
}

/// The way to the timer task.
#[derive(Debug, Clone)]
pub(crate) struct Timers {
    orders: mpsc::Sender<Order>,
}

#[derive(Debug)]
struct Order {
    id: SandboxId,
    /// `None` takes the sandbox's deadline away.
    deadline: Option<Timestamp>,
    bell: Bell,
}

/// How to tell an owner.
#[derive(Debug, Clone)]
pub(crate) struct Bell {
    /// The owner's number for this order.
    pub(crate) ticket: u64,
    pub(crate) sender: watch::Sender<Alarm>,
}

impl Bell {
    fn ring(&self, at: Timestamp, is_due: bool) {
        self.sender.send_replace(Alarm {
            ticket: self.ticket,
            at,
            is_due,
        });
    }
}

impl Timers {
    /// Starts the timer task, which ends with `stop`.
    pub(crate) fn start(clock: Arc<dyn Clock>, stop: CancellationToken) -> Timers {
        let (orders, inbox) = mpsc::channel(QUEUE);
        tokio::spawn(Task::new(clock).run(inbox, stop));
        Timers { orders }
    }

    /// Sets, moves or takes away the deadline of a sandbox.
    pub(crate) async fn set(&self, id: SandboxId, deadline: Option<Timestamp>, bell: Bell) {
        // The task ends only at shutdown, when no deadline matters any more.
        let _ = self.orders.send(Order { id, deadline, bell }).await;
    }
}

struct Task {
    clock: Arc<dyn Clock>,
    by_time: BTreeSet<(Timestamp, SandboxId)>,
    by_id: HashMap<SandboxId, (Timestamp, Bell)>,
    /// Wall time minus uptime: changes only when somebody sets the clock.
    offset: SignedDuration,
}

impl Task {
    fn new(clock: Arc<dyn Clock>) -> Task {
        let offset = offset(&*clock);
        Task {
            clock,
            by_time: BTreeSet::new(),
            by_id: HashMap::new(),
            offset,
        }
    }

    async fn run(mut self, mut inbox: mpsc::Receiver<Order>, stop: CancellationToken) {
        let clock = self.clock.clone();
        loop {
            self.follow_jumps();
            self.ring();
            let next = self.by_time.first().map(|(at, _)| *at);
            tokio::select! {
                () = stop.cancelled() => return,
                order = inbox.recv() => match order {
                    Some(order) => self.obey(order),
                    None => return,
                },
                () = clock.wait_until(next) => {}
            }
        }
    }

    fn obey(&mut self, order: Order) {
        if let Some((at, _)) = self.by_id.remove(&order.id) {
            self.by_time.remove(&(at, order.id.clone()));
        }
        if let Some(at) = order.deadline {
            self.by_time.insert((at, order.id.clone()));
            self.by_id.insert(order.id, (at, order.bell));
        }
    }

    /// Tells every owner whose deadline has passed.
    fn ring(&mut self) {
        let now = self.clock.now();
        while let Some((at, _)) = self.by_time.first()
            && *at <= now
        {
            let (at, id) = self.by_time.pop_first().expect("there is a first");
            if let Some((_, bell)) = self.by_id.remove(&id) {
                bell.ring(at, true);
            }
        }
    }

    /// Moves all deadlines when somebody has set the clock.
    fn follow_jumps(&mut self) {
        let offset = offset(&*self.clock);
        let jump = offset - self.offset;
        if jump.abs() < SMALLEST_JUMP {
            return;
        }
        self.offset = offset;
        tracing::warn!(
            seconds = jump.as_secs_f64(),
            sandboxes = self.by_id.len(),
            "the wall clock jumped; expirations move with it"
        );
        self.by_time.clear();
        for (id, (at, bell)) in &mut self.by_id {
            *at = at.checked_add(jump).unwrap_or(*at);
            self.by_time.insert((*at, id.clone()));
            bell.ring(*at, false);
        }
    }
}

fn offset(clock: &dyn Clock) -> SignedDuration {
    let wall = clock.now().as_duration();
    let uptime = SignedDuration::try_from(clock.uptime()).unwrap_or(SignedDuration::MAX);
    wall - uptime
}
