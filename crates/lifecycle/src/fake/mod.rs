//! Stand-ins with knobs: a backend, a store and a clock that live in memory and fail on request.
//!
//! For tests of everything above the traits, here and in the server. They keep the contracts of
//! the real ones (the conformance suite runs on the fake backend too) and do nothing real: no
//! process is started, no byte is written to a disk.

mod backend;
mod clock;
mod http;
mod store;

pub use backend::{Backend, Call, Fault, Gate};
pub use clock::Clock;
pub use store::{Store, StoreFault};
