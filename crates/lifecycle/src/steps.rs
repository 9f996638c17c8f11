//! Steps of a trace: spans with the target that `daemon::otlp` exports. Nobody collects them where no traces are
//! wanted, and then they cost a look at a flag.

use tracing::Span;

/// A step of what is done to a sandbox, within the one that is under way.
macro_rules! step {
    ($name:literal, $id:expr) => {
        tracing::info_span!(target: "trace", $name, sandbox_id = %$id, error = tracing::field::Empty)
    };
}
pub(crate) use step;

/// Notes in the step under way that it failed.
pub(crate) fn fail<E: std::error::Error + 'static>(error: &E) {
    Span::current().record("error", api::error_chain(error).to_string());
}

/// The same for a result.
pub(crate) fn noted<T, E: std::error::Error + 'static>(result: Result<T, E>) -> Result<T, E> {
    result.inspect_err(fail)
}
