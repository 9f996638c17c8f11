//! The lifetime of a sandbox that somebody is attached to: renewed while they are, with a line
//! before it ends and one at its end.
//!
//! A lifetime that was named on the command line is not renewed: it was meant.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::time::Duration;

use api::event::{LifecycleEvent, LifecycleEventKind};
use api::sandbox::SandboxState;
use futures_util::StreamExt as _;
use jiff::Timestamp;
use lifecycle::Reason;
use opensandbox::{DEFAULT_LIFETIME, Sandbox};

use crate::error::Error;

/// A command that is over within this needs no renewal, and is not slowed down by asking.
const SETTLED: Duration = Duration::from_secs(1);

/// Renewed when less than this is left: enough for a few failed attempts.
const RENEW_BELOW: Duration = Duration::from_secs(300);

/// A lifetime that ends is announced this long before.
const WARN_BEFORE: Duration = Duration::from_secs(60);

/// A stream of events that broke off is asked for again after this: a server that restarts takes
/// as long.
const LISTEN_AGAIN: Duration = Duration::from_secs(2);

/// A renewal that failed is tried again after this.
const RENEW_AGAIN: Duration = Duration::from_secs(20);

/// The lifetime of a sandbox, while somebody is attached to it.
pub(super) struct Lifetime<'a> {
    sandbox: &'a Sandbox,
    is_renewed: bool,
    expires_at: Cell<Option<Timestamp>>,
    /// Whose end was announced.
    announced: Cell<Option<Timestamp>>,
    /// No renewal before this, and why.
    refused: RefCell<Option<(Timestamp, String)>>,
    is_ended: Cell<bool>,
}

/// What is to be done next, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Renew(Duration),
    Warn(Duration),
    Nothing,
}

impl<'a> Lifetime<'a> {
    /// That of this sandbox, renewed or only announced.
    pub(super) fn new(sandbox: &'a Sandbox, is_renewed: bool) -> Self {
        Self {
            sandbox,
            is_renewed,
            expires_at: Cell::new(None),
            announced: Cell::new(None),
            refused: RefCell::new(None),
            is_ended: Cell::new(false),
        }
    }

    /// Does the work while the sandbox is kept alive; `tell` says what whoever is attached must
    /// know.
    pub(super) async fn during<T>(&self, tell: impl Fn(&str), work: impl Future<Output = T>) -> T {
        tokio::select! {
            done = work => done,
            never = self.watch(tell) => match never {},
        }
    }

    /// The error of a connection that was lost, or that the lifetime has ended if it has.
    pub(super) async fn explain(&self, error: Error) -> Error {
        let is_due = |at: Timestamp| at <= Timestamp::now();
        if !self.is_ended.get() && !self.expires_at.get().is_some_and(is_due) {
            return error;
        }
        let is_alive = |state: SandboxState| {
            !matches!(state, SandboxState::Stopping | SandboxState::Terminated)
        };
        match self.sandbox.info().await {
            Ok(info) if is_alive(info.status.state) => error,
            Err(other) if !other.is_not_found() => error,
            _ => Error::Failed {
                message: format!(
                    "sandbox {} reached the end of its lifetime",
                    self.sandbox.id()
                ),
                next: Some(
                    "give the next one longer with --timeout, such as --timeout 4h".to_owned(),
                ),
            },
        }
    }

    async fn watch(&self, tell: impl Fn(&str)) -> Infallible {
        tokio::time::sleep(SETTLED).await;
        loop {
            // Listens before it looks, so that no change falls between.
            let events = self
                .sandbox
                .client()
                .events(Some(self.sandbox.id()), None)
                .await;
            self.look().await;
            match events {
                Ok(events) => self.heed(Box::pin(events), &tell).await,
                Err(_) => self.heed(futures_util::stream::pending(), &tell).await,
            }
            tokio::time::sleep(LISTEN_AGAIN).await;
        }
    }

    /// Renews and tells in time, until the events break off.
    async fn heed(
        &self,
        mut events: impl futures_util::Stream<Item = opensandbox::Result<LifecycleEvent>> + Unpin,
        tell: &impl Fn(&str),
    ) {
        loop {
            let next = self.next(Timestamp::now());
            let due = match next {
                Next::Renew(wait) | Next::Warn(wait) => wait,
                Next::Nothing => Duration::MAX,
            };
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(event)) => self.hear(&event, tell).await,
                    Some(Err(_)) | None => return,
                },
                () = tokio::time::sleep(due) => match next {
                    Next::Renew(_) => self.renew().await,
                    Next::Warn(_) => self.warn(tell),
                    Next::Nothing => {}
                },
            }
        }
    }

    async fn look(&self) {
        if let Ok(info) = self.sandbox.info().await {
            self.expires_at.set(info.expires_at);
        }
    }

    async fn hear(&self, event: &LifecycleEvent, tell: &impl Fn(&str)) {
        if event.kind == LifecycleEventKind::SandboxRenewed {
            match event.expires_at {
                Some(at) => self.expires_at.set(Some(at)),
                None => self.look().await,
            }
        }
        let reason = event
            .status
            .as_ref()
            .and_then(|status| status.reason.as_deref());
        if reason == Some(Reason::SandboxExpired.as_str()) && !self.is_ended.replace(true) {
            tell("this sandbox's lifetime has ended");
        }
    }

    fn next(&self, now: Timestamp) -> Next {
        let Some(expires_at) = self.expires_at.get() else {
            return Next::Nothing;
        };
        let until = |at: Timestamp| Duration::try_from(at.duration_since(now)).unwrap_or_default();
        let left = until(expires_at);
        let refused = self
            .refused
            .borrow()
            .as_ref()
            .map(|(again, _)| until(*again));
        let renewal = self.is_renewed.then(|| {
            left.saturating_sub(RENEW_BELOW)
                .max(refused.unwrap_or_default())
        });
        let is_told = self.announced.get() == Some(expires_at);
        let warning = (!is_told && (!self.is_renewed || refused.is_some()))
            .then(|| left.saturating_sub(WARN_BEFORE));
        match (renewal, warning) {
            (Some(renewal), Some(warning)) if warning <= renewal => Next::Warn(warning),
            (Some(renewal), _) => Next::Renew(renewal),
            (None, Some(warning)) => Next::Warn(warning),
            (None, None) => Next::Nothing,
        }
    }

    async fn renew(&self) {
        match self.sandbox.renew(DEFAULT_LIFETIME).await {
            Ok(expires_at) => {
                self.expires_at.set(Some(expires_at));
                self.refused.replace(None);
            }
            Err(error) => {
                let again = Timestamp::now() + RENEW_AGAIN;
                self.refused.replace(Some((again, error.to_string())));
            }
        }
    }

    fn warn(&self, tell: &impl Fn(&str)) {
        let Some(expires_at) = self.expires_at.get() else {
            return;
        };
        self.announced.set(Some(expires_at));
        let left = expires_at.duration_since(Timestamp::now()).as_secs().max(0);
        let why = match &*self.refused.borrow() {
            Some((_, error)) => format!("; renewing it failed: {error}"),
            None => String::new(),
        };
        tell(&format!(
            "this sandbox's lifetime ends in {left} s; longer: osb sandbox renew {} -t 1h{why}",
            self.sandbox.id()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opensandbox::{Client, ConnectionConfig};

    fn check(is_renewed: bool, seconds: i64, expected: Next) {
        let client = Client::new(ConnectionConfig::new().domain("localhost:1")).unwrap();
        let sandbox = client.sandbox("x");
        let lifetime = Lifetime::new(&sandbox, is_renewed);
        let now = Timestamp::UNIX_EPOCH;
        let expires_at = Timestamp::from_second(seconds).unwrap();
        lifetime.expires_at.set(Some(expires_at));
        assert_eq!(lifetime.next(now), expected, "{is_renewed} {seconds}");
    }

    #[test]
    fn renewals_and_warnings_come_in_time() {
        check(true, 600, Next::Renew(Duration::from_secs(300)));
        check(true, 90, Next::Renew(Duration::ZERO));
        check(false, 600, Next::Warn(Duration::from_secs(540)));
        check(false, 5, Next::Warn(Duration::ZERO));
    }

    #[test]
    fn a_renewal_that_failed_is_announced_and_tried_again() {
        let client = Client::new(ConnectionConfig::new().domain("localhost:1")).unwrap();
        let sandbox = client.sandbox("x");
        let lifetime = Lifetime::new(&sandbox, true);
        let now = Timestamp::UNIX_EPOCH;
        let expires_at = Timestamp::from_second(30).unwrap();
        lifetime.expires_at.set(Some(expires_at));
        lifetime
            .refused
            .replace(Some((now + RENEW_AGAIN, "no".to_owned())));
        assert_eq!(lifetime.next(now), Next::Warn(Duration::ZERO));
        lifetime.announced.set(Some(expires_at));
        assert_eq!(lifetime.next(now), Next::Renew(RENEW_AGAIN));
    }
}
