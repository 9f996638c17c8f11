//! The wall clock as a value, so that tests can drive it.
//!
//! Only for what is written down or compared with something written down (`expiresAt`). Waits
//! and durations use `tokio::time`, which tests can pause by themselves.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;

/// A system clock may be set while we wait for an instant of it, and nothing wakes us then. So a
/// wait looks again this often: the most that an expiry can be late after such a change.
const RECHECK: Duration = Duration::from_secs(10);

/// Tells the time.
#[derive(Debug, Clone)]
pub struct Clock(Kind);

#[derive(Debug, Clone)]
enum Kind {
    System,
    Driven(Arc<watch::Sender<Timestamp>>),
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self(Kind::System)
    }

    /// A clock that stands still until a test moves it.
    pub fn driven(start: Timestamp) -> Self {
        Self(Kind::Driven(Arc::new(watch::Sender::new(start))))
    }

    /// What time it is.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Kind::System => Timestamp::now(),
            Kind::Driven(now) => *now.borrow(),
        }
    }

    /// Waits until it is `instant` or later by this clock, also when the clock is set meanwhile.
    pub async fn wait_until(&self, instant: Timestamp) {
        match &self.0 {
            Kind::System => loop {
                let left = instant.duration_since(Timestamp::now());
                match Duration::try_from(left) {
                    Ok(left) if !left.is_zero() => tokio::time::sleep(left.min(RECHECK)).await,
                    _ => return,
                }
            },
            Kind::Driven(now) => {
                // The sender lives in `self`, so the channel cannot close under this wait.
                let _ = now.subscribe().wait_for(|now| *now >= instant).await;
            }
        }
    }

    /// Sets a driven clock. Backwards is allowed: real clocks do that too.
    ///
    /// # Panics
    /// On the machine's clock.
    pub fn set(&self, now: Timestamp) {
        match &self.0 {
            Kind::System => panic!("the machine's clock is not ours to set"),
            Kind::Driven(sender) => drop(sender.send_replace(now)),
        }
    }

    /// Moves a driven clock on.
    ///
    /// # Panics
    /// On the machine's clock.
    pub fn advance(&self, by: Duration) {
        let by = jiff::SignedDuration::try_from(by).expect("tests move a clock by less than ages");
        self.set(self.now() + by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_driven_clock_wakes_waits_when_it_is_moved() {
        let clock = Clock::driven(Timestamp::UNIX_EPOCH);
        let due = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(60);
        let waiting = tokio::spawn({
            let clock = clock.clone();
            async move { clock.wait_until(due).await }
        });
        clock.advance(Duration::from_secs(59));
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        clock.advance(Duration::from_secs(1));
        waiting.await.unwrap();
        assert_eq!(clock.now(), due);
    }

    #[tokio::test]
    async fn the_machines_clock_does_not_wait_for_the_past() {
        Clock::system().wait_until(Timestamp::UNIX_EPOCH).await;
    }
}
