//! What processes print: read from their pipes, kept in a bounded journal, and streamed as
//! events to whoever is attached.
//!
//! ```text
//!   pipes ──▶ pump ──▶ journal ──▶ stream (one per attached client)
//!                         └──────▶ logs by byte offset
//! ```
//!
//! The journal is the only buffer. A pump stops reading its pipes while an attached client
//! lags behind by more than a window, so a client that does not read stalls the command it
//! watches and nothing else; without an attached client nothing stalls and the oldest
//! output is dropped at the limit.

mod blocks;
mod encode;
mod journal;
mod lines;
mod logs;
mod pump;
mod spool;
mod stream;

pub(crate) use encode::signal_name;
pub(crate) use journal::{Channel, Ending, Journal};
pub(crate) use lines::EventShape;
pub(crate) use logs::read as read_logs;
pub(crate) use pump::{Pump, Source};
pub(crate) use spool::Spool;
pub(crate) use stream::{EventsGone, StreamStart, respond};
