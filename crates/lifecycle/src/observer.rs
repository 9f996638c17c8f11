//! What whoever counts is told: how each creation went, by the time that its phases took.
//!
//! Events tell what happened to a sandbox; this tells how long it took, which no record keeps.

use std::fmt::Debug;
use std::time::Duration;

use tokio::time::Instant;

use crate::sandbox::{Origin, Reason};

/// Is told what takes time. Called by the tasks that own sandboxes: it must not wait.
pub trait Observer: Debug + Send + Sync + 'static {
    /// A creation has ended.
    fn created(&self, creation: &CreationTimes<'_>);
}

/// A creation that has ended.
#[derive(Debug)]
pub struct CreationTimes<'a> {
    /// What the sandbox stands on.
    pub origin: &'a Origin,
    /// From the start of a download until the sandbox could be made, where its image was not here.
    pub pull: Option<Duration>,
    /// In the backend, where it came so far.
    pub make: Option<Duration>,
    /// From the request on.
    pub total: Duration,
    /// Why it failed, where it did.
    pub failure: Option<Reason>,
}

/// When the phases of one creation began.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    began: Instant,
    pull_began: Option<Instant>,
    pull: Option<Duration>,
    make_began: Option<Instant>,
}

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch {
            began: Instant::now(),
            pull_began: None,
            pull: None,
            make_began: None,
        }
    }

    pub(crate) fn pull_begins(&mut self) {
        self.pull_began = Some(Instant::now());
    }

    pub(crate) fn make_begins(&mut self) {
        let now = Instant::now();
        self.pull = self.pull_began.map(|began| now - began);
        self.make_began = Some(now);
    }

    /// What whoever counts is told.
    pub(crate) fn times<'a>(
        &self,
        origin: &'a Origin,
        failure: Option<Reason>,
    ) -> CreationTimes<'a> {
        let now = Instant::now();
        let unfinished = self.pull_began.map(|began| now - began);
        CreationTimes {
            origin,
            pull: self.pull.or(unfinished),
            make: self.make_began.map(|began| now - began),
            total: now - self.began,
            failure,
        }
    }
}
