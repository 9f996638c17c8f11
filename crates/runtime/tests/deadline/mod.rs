//! The last resort against a test that hangs: a thread that ends the whole program, saying which
//! test did not end and what it waited for.
//!
//! A test that waits asynchronously has its own timeout and fails alone. This is for the rest: a
//! read from a pipe, a system call, a runtime that got stuck. Nothing can be saved of such a
//! process, so all that is left is to say so and to leave at once.

use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Far more than any test takes on a slow and busy machine, far less than a person waits.
pub(crate) const TEST_DEADLINE: Duration = Duration::from_secs(450);

static WAITING_FOR: Mutex<String> = Mutex::new(String::new());

/// Says what the test is about to wait for. Only the last one told is kept.
#[allow(dead_code, reason = "suites whose tests run at once do not tell")]
pub(crate) fn waiting_for(what: impl Into<String>) {
    *WAITING_FOR.lock().unwrap_or_else(PoisonError::into_inner) = what.into();
}

/// Must be dropped in time.
pub(crate) struct Deadline {
    _ended: SyncSender<()>,
}

impl Deadline {
    /// Watches a test. `last_words` runs before the process ends, for what must not be left.
    pub(crate) fn of(
        test: &str,
        limit: Duration,
        last_words: impl FnOnce() + Send + 'static,
    ) -> Self {
        let (ended, watched) = sync_channel(0);
        let test = test.to_owned();
        std::thread::spawn(move || {
            // The other end is never sent to: it is dropped, in time or not.
            if let Err(RecvTimeoutError::Timeout) = watched.recv_timeout(limit) {
                let what = WAITING_FOR.lock().unwrap_or_else(PoisonError::into_inner);
                #[allow(clippy::print_stderr, reason = "nobody else will say it")]
                {
                    eprintln!(
                        "test {test} did not end within {limit:?}; waiting for: {}",
                        if what.is_empty() { "unknown" } else { &what }
                    );
                }
                last_words();
                std::process::abort();
            }
        });
        Self { _ended: ended }
    }

    /// Watches the test that the usual harness runs on this thread, which it names after it.
    #[allow(dead_code, reason = "only suites with the usual harness use it")]
    pub(crate) fn of_this_test() -> Self {
        let thread = std::thread::current();
        Self::of(thread.name().unwrap_or("unnamed"), TEST_DEADLINE, || {})
    }
}
