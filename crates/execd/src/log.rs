//! The daemon's own log: one line per event on standard error.
//!
//! A subscriber of a hundred lines instead of a library: filters and formats that nobody
//! sets inside a sandbox would cost more memory than the rest of the idle daemon. It
//! takes events of level INFO and above and knows no spans.

use std::fmt::{self, Write as _};
use std::io::Write as _;

use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

/// Sends the daemon's events to standard error from now on.
pub(crate) fn start() {
    // Fails only when a subscriber is set already, as in a test that starts two daemons.
    let _ = tracing::subscriber::set_global_default(Stderr);
}

struct Stderr;

impl Subscriber for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.is_event()
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::with_capacity(128));
        let _ = write!(
            line.0,
            "{:.3} {} execd:",
            jiff::Timestamp::now(),
            event.metadata().level()
        );
        event.record(&mut line);
        line.0.push('\n');
        // A log that cannot be written has nowhere to be reported.
        let _ = std::io::stderr().write_all(line.0.as_bytes());
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
