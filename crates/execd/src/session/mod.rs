//! Sessions: live shells that run one text after another and keep everything between:
//! variables, functions, options, the working directory and background jobs.
//!
//! One task owns one shell. Runs wait in a bounded queue; what background jobs print
//! between two runs is given to the next one.

mod routes;
mod shell;
pub(crate) mod stray;
mod worker;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::id::SessionId;
use tokio::sync::{Notify, mpsc, watch};

pub(crate) use routes::router;

use crate::limits::{self, Reached};
use crate::output::Journal;
use crate::process::locked;

/// All live sessions.
#[derive(Default)]
pub(crate) struct Sessions {
    live: Mutex<HashMap<String, Arc<Session>>>,
}

/// One live shell, as others see it.
pub(crate) struct Session {
    id: SessionId,
    runs: mpsc::Sender<Run>,
    /// PipeEnds the run that is under way.
    interrupted: Notify,
    /// PipeEnds the session.
    closed: Notify,
    state: watch::Sender<State>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    /// The number of the run.
    Running(u64),
    Ended,
}

/// A text to run.
struct Run {
    code: String,
    cwd: Option<String>,
    timeout: Option<Duration>,
    journal: Arc<Journal>,
}

/// Why a session's run was not interrupted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InterruptError {
    #[error("nothing runs in the session")]
    NotRunning,
}

impl Sessions {
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Session>> {
        locked(&self.live).get(id).cloned()
    }

    fn add(&self, session: &Arc<Session>) -> Result<(), Reached> {
        let mut live = locked(&self.live);
        if live.len() >= limits::SESSIONS {
            return Err(Reached {
                name: "SESSIONS",
                value: limits::SESSIONS,
                advice: "delete a session that is not needed any more",
            });
        }
        live.insert(session.id.to_string(), Arc::clone(session));
        Ok(())
    }

    fn remove(&self, session: &Session) {
        locked(&self.live).remove(session.id.as_str());
    }
}

impl Session {
    /// PipeEnds the run that is under way, not the session. Returns when it has ended.
    pub(crate) async fn interrupt(&self) -> Result<(), InterruptError> {
        let mut state = self.state.subscribe();
        let State::Running(number) = *state.borrow_and_update() else {
            return Err(InterruptError::NotRunning);
        };
        self.interrupted.notify_one();
        // The worker bounds how long this takes; it ends only together with the session.
        let _ = state
            .wait_for(|state| *state != State::Running(number))
            .await;
        Ok(())
    }

    /// PipeEnds the session and waits until its shell is gone.
    async fn close(&self) {
        self.closed.notify_one();
        let _ = self
            .state
            .subscribe()
            .wait_for(|state| *state == State::Ended)
            .await;
    }
}
