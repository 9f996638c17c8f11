//! When an owner tries again what the backend or the store refused.

use std::time::Duration;

use tokio::time::Instant;

use crate::deadlines;

pub(super) struct Retry {
    pub(super) at: Option<Instant>,
    /// Grows from one failure to the next.
    wait: Duration,
}

impl Retry {
    pub(super) fn new() -> Retry {
        Retry {
            at: None,
            wait: deadlines::DELETE_RETRY,
        }
    }

    pub(super) fn schedule(&mut self) {
        self.at = Some(Instant::now() + self.wait);
        self.wait = (self.wait * 2).min(deadlines::DELETE_RETRY_MAX);
    }
}
