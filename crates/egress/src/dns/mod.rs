//! Names: what a sandbox asks, what it is told, and where the gate itself looks names up.

mod answer;
pub(crate) mod message;
mod resolver;

pub(crate) use answer::{has_denied_alias, serve};
pub use resolver::Upstreams;
pub(crate) use resolver::{Answer, ResolveError, Resolver};
