//! How long a connection may wait for its next request (the keep-alive timeout), and for the rest of a
//! request's head.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// Expires when a connection has waited for too long. The timer is armed again only when it has
/// fired, because most connections are used again long before.
pub(crate) struct IdleTimer {
    timeout: Option<Duration>,
    since: Instant,
    timer: Pin<Box<Sleep>>,
}

impl IdleTimer {
    /// A timer that runs from now on; one without a timeout never expires.
    pub(crate) fn new(timeout: Option<Duration>) -> Self {
        let since = Instant::now();
        let timer = Box::pin(tokio::time::sleep_until(
            since + timeout.unwrap_or_default(),
        ));
        Self {
            timeout,
            since,
            timer,
        }
    }

    /// Lets it run from now on.
    pub(crate) fn restart(&mut self) {
        self.since = Instant::now();
    }

    /// Waits until it expires.
    pub(crate) async fn expired(&mut self) {
        let Some(timeout) = self.timeout else {
            return std::future::pending().await;
        };
        loop {
            self.timer.as_mut().await;
            let end = self.since + timeout;
            if end <= Instant::now() {
                return;
            }
            self.timer.as_mut().reset(end);
        }
    }
}
