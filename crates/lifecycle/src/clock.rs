//! Wall time as a parameter, with waits that notice when somebody sets the clock.
//!
//! Expirations are instants of the wall clock, because clients see and set them as such, but
//! they stand for lifetimes that were promised. So when the wall clock jumps, the deadlines jump
//! with it (see `timers`). A suspended machine is no jump: the time it slept counts.

use std::io;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use rustix::fd::OwnedFd;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use crate::sys;

/// Where the alarm stands when nothing is due, in seconds: the year 2200. The timer must run to
/// notice jumps of the clock.
const NEVER_SECONDS: i64 = 7_258_118_400;

/// Tells the time and wakes at an instant.
#[async_trait]
pub trait Clock: Send + Sync + 'static {
    /// The wall clock.
    fn now(&self) -> Timestamp;

    /// Time since some fixed instant, which nobody can set and which counts while the machine
    /// sleeps.
    fn uptime(&self) -> Duration;

    /// Returns when the wall clock reaches `deadline` (`None`: never) or when somebody set the
    /// clock. For one waiter at a time; may return early, so look at the time again.
    async fn wait_until(&self, deadline: Option<Timestamp>);
}

/// The machine's clock.
pub struct SystemClock {
    timer: AsyncFd<OwnedFd>,
}

impl SystemClock {
    /// Must be called within a runtime.
    pub fn new() -> io::Result<SystemClock> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Realtime, flags)?;
        Ok(SystemClock {
            timer: sys::watch(timer)?,
        })
    }

    async fn wait(&self, deadline: Option<Timestamp>) -> io::Result<()> {
        let at = match deadline {
            // A zero alarm would disarm the timer, so nothing before the first second.
            Some(at) => Timespec {
                tv_sec: at.as_second().max(1),
                tv_nsec: i64::from(at.subsec_nanosecond().max(0)),
            },
            None => Timespec {
                tv_sec: NEVER_SECONDS,
                tv_nsec: 0,
            },
        };
        let alarm = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: at,
        };
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        match timerfd_settime(&self.timer, flags, &alarm) {
            // The clock was set since the last wait.
            Err(rustix::io::Errno::CANCELED) => return Ok(()),
            other => other?,
        };
        loop {
            let mut ready = self.timer.readable().await?;
            let mut ticks = [0; 8];
            match rustix::io::read(&self.timer, &mut ticks) {
                Ok(_) | Err(rustix::io::Errno::CANCELED) => return Ok(()),
                Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn uptime(&self) -> Duration {
        let now = clock_gettime(ClockId::Boottime);
        Duration::new(
            u64::try_from(now.tv_sec).expect("the machine booted in the past"),
            u32::try_from(now.tv_nsec).expect("less than a second"),
        )
    }

    async fn wait_until(&self, deadline: Option<Timestamp>) {
        if let Err(error) = self.wait(deadline).await {
            // A timer that cannot be read is a broken kernel; expiry must go on all the same.
            tracing::error!(error = %api::error_chain(&error), "the timer failed; falling back to a plain wait");
            let span = deadline.map(|at| at.duration_since(self.now()));
            let span = span
                .and_then(|span| Duration::try_from(span).ok())
                .unwrap_or(FALLBACK);
            tokio::time::sleep(span.min(FALLBACK)).await;
        }
    }
}

/// How long a plain wait may be when the timer has failed, so that jumps go unnoticed for no
/// longer.
const FALLBACK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    #[tokio::test]
    async fn wakes_at_the_instant_and_not_before() {
        let clock = SystemClock::new().unwrap();
        let deadline = clock.now() + SignedDuration::from_millis(30);
        clock.wait_until(Some(deadline)).await;
        assert!(clock.now() >= deadline);
    }

    #[tokio::test]
    async fn an_instant_in_the_past_is_due_at_once() {
        let clock = SystemClock::new().unwrap();
        let deadline = clock.now() - SignedDuration::from_secs(5);
        tokio::time::timeout(Duration::from_secs(60), clock.wait_until(Some(deadline)))
            .await
            .expect("due at once");
    }

    #[tokio::test]
    async fn a_wait_can_be_given_up_and_begun_again() {
        let clock = SystemClock::new().unwrap();
        let never = tokio::time::timeout(Duration::from_millis(5), clock.wait_until(None)).await;
        assert!(never.is_err());
        let deadline = clock.now() + SignedDuration::from_millis(5);
        clock.wait_until(Some(deadline)).await;
        assert!(clock.now() >= deadline);
    }
}
