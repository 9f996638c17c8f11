//! Logs: `tracing` events on standard error, for a person at a terminal or as one JSON object a
//! line for a program.
//!
//! Writes no files and rotates none: that is the work of whoever started us. Metrics have their
//! own way out (`otlp`). Filters are of the plain kind `info` or `info,server=debug`, without the
//! regular expressions that would make the smallest daemon several times larger.

use std::io::{self, IsTerminal as _};
use std::str::FromStr;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{Layer, Registry, fmt, reload};

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Text at a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.to_ascii_lowercase().as_str() {
            "auto" => Ok(Self::Auto),
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(Error::Format(text.to_owned())),
        }
    }
}

/// What is logged: a level, and levels for single parts of the program.
#[derive(Debug, Clone)]
pub struct Filter(Targets);

impl FromStr for Filter {
    type Err = Error;

    /// Takes `warn`, `info,server=debug` and, for configs of the reference, `WARNING` and
    /// `CRITICAL`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let text = match text.to_ascii_lowercase().as_str() {
            "warning" => "warn".to_owned(),
            "critical" => "error".to_owned(),
            other => other.to_owned(),
        };
        let targets = text.parse::<Targets>().ok().filter(|_| is_filter(&text));
        targets.map(Self).ok_or(Error::Filter(text))
    }
}

impl Filter {
    fn without_steps(self) -> Targets {
        self.0.with_target(TRACE_TARGET, LevelFilter::OFF)
    }
}

/// `Targets` takes any word as the name of a target to be logged in full; a misspelt level must
/// not turn everything on.
fn is_filter(text: &str) -> bool {
    text.split(',').all(|part| match part.split_once('=') {
        Some((target, level)) => !target.is_empty() && is_level(level),
        None => is_level(part),
    })
}

fn is_level(text: &str) -> bool {
    matches!(text, "off" | "error" | "warn" | "info" | "debug" | "trace")
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a format.
    #[error("{0:?} is not a log format; use auto, text or json")]
    Format(String),
    /// Not a filter.
    #[error(
        "{0:?} is not a log filter; use off, error, warn, info, debug or trace, and commas for parts as in info,server=debug"
    )]
    Filter(String),
    /// Set up before.
    #[error("logging is already set up")]
    Already(#[source] TryInitError),
    /// The filter cannot be changed.
    #[error("what is logged cannot be changed")]
    Reload(#[source] reload::Error),
}

/// The target of spans that are steps of a trace (`otlp::traces`). They are never in the log.
pub const TRACE_TARGET: &str = "trace";

/// Changes what is logged while the program runs.
#[derive(Debug, Clone)]
pub struct Level(reload::Handle<Targets, Registry>);

impl Level {
    /// Logs what `filter` lets through, from now on.
    pub fn set(&self, filter: Filter) -> Result<(), Error> {
        self.0.reload(filter.without_steps()).map_err(Error::Reload)
    }
}

/// Where the steps of traces go.
#[cfg(feature = "otlp")]
pub type Steps = Option<crate::otlp::traces::Collector>;
/// Nowhere: this program was built without exports.
#[cfg(not(feature = "otlp"))]
pub type Steps = Option<std::convert::Infallible>;

/// Sends everything that `filter` lets through to standard error, and the steps of traces to `steps`, from now on.
pub fn start(filter: Filter, format: Format, steps: Steps) -> Result<Level, Error> {
    let as_json = match format {
        Format::Auto => !io::stderr().is_terminal(),
        Format::Text => false,
        Format::Json => true,
    };
    let layer = fmt::layer().with_writer(io::stderr);
    let layer = if as_json {
        layer
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .boxed()
    } else {
        layer.with_ansi(io::stderr().is_terminal()).boxed()
    };
    let (filter, level) = reload::Layer::new(filter.without_steps());
    let subscriber = tracing_subscriber::registry().with(layer.with_filter(filter));
    #[cfg(feature = "otlp")]
    let subscriber = subscriber.with(steps.map(crate::otlp::traces::Collector::layer));
    #[cfg(not(feature = "otlp"))]
    let _ = steps;
    subscriber.try_init().map_err(Error::Already)?;
    Ok(Level(level))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_filters_and_refuses_misspelt_ones() {
        for good in [
            "info",
            "INFO",
            "Warning",
            "off",
            "info,server=debug,server::proxy=trace",
        ] {
            assert!(good.parse::<Filter>().is_ok(), "{good}");
        }
        for bad in ["", "loud", "info,", "info,server", "=debug", "server=loud"] {
            let error = bad.parse::<Filter>().unwrap_err().to_string();
            assert!(error.contains("is not a log filter"), "{bad}: {error}");
        }
    }
}
