//! The code interpreter: contexts, each a live interpreter of one language, in which cells run
//! one after another and find what earlier ones left.
//!
//! ```text
//!   routes ──▶ contexts ──▶ context (one task owns one interpreter) ──▶ driver or kernel
//!                                │
//!                                └──▶ sink: the events of one run, to the client that asked
//! ```
//!
//! There is no Jupyter server. A run that finds its context busy waits its turn. An interpreter
//! that dies is reported at once, and the next run starts a new one.
//!
//! A cell has no input, because the protocol has no way to send it any: `input()` and `getpass()`
//! fail at once with an error that says so, and standard input is empty.

mod cell;
mod context;
mod contexts;
mod driver;
mod frame;
mod interpreter;
mod interruption;
mod javascript;
mod jupyter;
mod language;
mod probe;
mod routes;
mod sink;

pub(crate) use probe::answer_probe;
pub(crate) use routes::router;
