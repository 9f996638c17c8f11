//! Any Jupyter kernel that the image has, by its kernelspec, spoken to directly: execd is the
//! kernel's only client and there is no Jupyter server.
//!
//! ```text
//!   kernelspec ──▶ connection (address, ports, key, file) ──▶ kernel (process + four sockets)
//!                                                                │ zmtp: bytes to messages
//!                                                                │ message: signed envelopes
//!                                                                └ cell: messages to events
//! ```
//!
//! Nothing of this runs before a context asks for a kernel. Deliberately not here: comms, the
//! heartbeat (the pidfd tells of a death at once), history, completion.

mod cell;
mod connection;
mod kernel;
mod kernelspec;
mod message;
mod zmtp;

pub(super) use kernel::{Error, Kernel};
pub(super) use kernelspec::{Kernelspec, Kernelspecs};
