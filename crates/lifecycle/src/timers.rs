//! The expiry timers of all sandboxes: an ordered map of deadlines and one task that waits for
//! the earliest.
//!
//! Decides nothing. A deadline that passes is told to the sandbox's owner task together with the
//! number of the setting it was set by; what is told of an older setting is ignored. So a renewal
//! that is acknowledged can never lose against an expiry under way.
//!
//! When the wall clock is set, the deadlines move by the same amount: what was promised is a
//! lifetime. Whoever sets the clock neither kills sandboxes nor makes them immortal.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::id::SandboxId;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;

/// Wall clocks are slewed and read a moment after the uptime: smaller differences are no jump.
const SMALLEST_JUMP: SignedDuration = SignedDuration::from_secs(1);

/// What a timer tells an owner. A later one replaces an earlier one and says all it said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Alarm {
    /// The number of the setting it is for.
    setting: u64,
    /// The deadline, which differs from what was set when the clock has been set since.
    pub(crate) deadline: Timestamp,
    /// The deadline has passed.
    pub(crate) is_due: bool,
}

/// The expiry timer of one sandbox, as its owner task holds it.
pub(crate) struct ExpiryTimer {
    timers: Timers,
    id: SandboxId,
    setting: u64,
    sender: watch::Sender<Alarm>,
    alarms: watch::Receiver<Alarm>,
}

impl ExpiryTimer {
    /// Sets, moves or takes away the deadline.
    pub(crate) fn set(&mut self, deadline: Option<Timestamp>) {
        self.setting += 1;
        let waker = Waker {
            setting: self.setting,
            sender: self.sender.clone(),
        };
        self.timers.set(&self.id, deadline, waker);
    }

    /// What the timer tells next about the deadline that was set last. Safe to cancel.
    pub(crate) async fn alarm(&mut self) -> Alarm {
        loop {
            // The sender is held here, so the channel stays open.
            let _ = self.alarms.changed().await;
            let alarm = *self.alarms.borrow_and_update();
            if alarm.setting == self.setting {
                return alarm;
            }
        }
    }
}

/// The timers of all sandboxes. Clones share them.
#[derive(Clone)]
pub(crate) struct Timers(Arc<Shared>);

struct Shared {
    clock: Arc<dyn Clock>,
    // Held for a few map operations, never across an await.
    deadlines: Mutex<Deadlines>,
    /// The earliest deadline has become earlier.
    is_earlier: Notify,
}

impl Timers {
    /// Starts the timer task, which ends with `stop`.
    pub(crate) fn start(clock: Arc<dyn Clock>, stop: CancellationToken) -> Timers {
        let deadlines = Deadlines {
            by_time: BTreeSet::new(),
            by_id: HashMap::new(),
            offset: offset(&*clock),
        };
        let timers = Timers(Arc::new(Shared {
            clock,
            deadlines: Mutex::new(deadlines),
            is_earlier: Notify::new(),
        }));
        tokio::spawn(timers.clone().run(stop));
        timers
    }

    /// A timer for a sandbox, not set yet.
    pub(crate) fn timer(&self, id: SandboxId) -> ExpiryTimer {
        let (sender, alarms) = watch::channel(Alarm::default());
        ExpiryTimer {
            timers: self.clone(),
            id,
            setting: 0,
            sender,
            alarms,
        }
    }

    fn set(&self, id: &SandboxId, deadline: Option<Timestamp>, waker: Waker) {
        let mut deadlines = self.lock();
        // A deadline of now must not be moved by a jump of before.
        deadlines.follow_jumps(&*self.0.clock);
        let before = deadlines.earliest();
        deadlines.set(id, deadline, waker);
        let now = deadlines.earliest();
        drop(deadlines);
        // One that has become later is noticed when the earlier one would have passed.
        if now.is_some_and(|now| before.is_none_or(|before| now < before)) {
            self.0.is_earlier.notify_one();
        }
    }

    async fn run(self, stop: CancellationToken) {
        loop {
            let next = {
                let mut deadlines = self.lock();
                deadlines.follow_jumps(&*self.0.clock);
                deadlines.wake_due(self.0.clock.now());
                deadlines.earliest()
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.0.is_earlier.notified() => {}
                () = self.0.clock.wait_until(next) => {}
            }
        }
    }

    // Nothing that runs under the lock panics half-way through a change, so poison is no danger.
    fn lock(&self) -> MutexGuard<'_, Deadlines> {
        self.0
            .deadlines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// How to tell an owner.
struct Waker {
    setting: u64,
    sender: watch::Sender<Alarm>,
}

impl Waker {
    fn wake(&self, deadline: Timestamp, is_due: bool) {
        self.sender.send_replace(Alarm {
            setting: self.setting,
            deadline,
            is_due,
        });
    }
}

struct Deadlines {
    by_time: BTreeSet<(Timestamp, SandboxId)>,
    by_id: HashMap<SandboxId, (Timestamp, Waker)>,
    /// Wall time minus uptime: changes only when somebody sets the clock.
    offset: SignedDuration,
}

impl Deadlines {
    fn earliest(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(deadline, _)| *deadline)
    }

    fn set(&mut self, id: &SandboxId, deadline: Option<Timestamp>, waker: Waker) {
        if let Some((before, _)) = self.by_id.remove(id) {
            self.by_time.remove(&(before, id.clone()));
        }
        if let Some(deadline) = deadline {
            self.by_time.insert((deadline, id.clone()));
            self.by_id.insert(id.clone(), (deadline, waker));
        }
    }

    /// Tells every owner whose deadline has passed.
    fn wake_due(&mut self, now: Timestamp) {
        while let Some((deadline, _)) = self.by_time.first()
            && *deadline <= now
        {
            let (deadline, id) = self.by_time.pop_first().expect("there is a first");
            if let Some((_, waker)) = self.by_id.remove(&id) {
                waker.wake(deadline, true);
            }
        }
    }

    /// Moves all deadlines when somebody has set the clock.
    fn follow_jumps(&mut self, clock: &dyn Clock) {
        let offset = offset(clock);
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
        for (id, (deadline, waker)) in &mut self.by_id {
            *deadline = deadline.checked_add(jump).unwrap_or(*deadline);
            self.by_time.insert((*deadline, id.clone()));
            waker.wake(*deadline, false);
        }
    }
}

fn offset(clock: &dyn Clock) -> SignedDuration {
    let wall = clock.now().as_duration();
    let uptime = SignedDuration::try_from(clock.uptime()).unwrap_or(SignedDuration::MAX);
    wall - uptime
}
