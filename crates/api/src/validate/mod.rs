//! The rules a request must keep beyond its types. Each request has a `validate` that returns
//! every problem at once, with the code the published server uses for it.
//!
//! Where the published server demands a field that a backend can do without (`entrypoint` and
//! `resourceLimits` with an image), ours does not.

mod create;
mod exec;
mod network;
mod process;
mod vault;
mod volume;

pub use create::{
    RENEW_SECONDS, RESERVED_ENV_KEY, TIMEOUT_SECONDS_MAX, TIMEOUT_SECONDS_MIN, renew_seconds,
};
pub(crate) use network::check_rules;
pub use network::{Target, TargetError};
pub use process::{ARGUMENT_BYTES_MAX, ENVIRONMENT_BYTES_MAX};

use crate::error::ErrorCode;
use crate::problem::Problem;

/// Reads a port of a path or query.
pub fn port(field: &str, text: &str) -> Result<u16, Problem> {
    let is_plain = text.bytes().all(|b| b.is_ascii_digit());
    match text.parse::<u16>() {
        Ok(port) if port > 0 && is_plain => Ok(port),
        _ => Err(Problem::with_code(
            ErrorCode::DockerInvalidPort,
            field,
            format!(
                "{} is not a port; write a number from 1 to 65535",
                crate::problem::Excerpt(text)
            ),
        )),
    }
}

#[cfg(test)]
mod tests;
