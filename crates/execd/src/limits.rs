//! Every limit of the daemon, by name, and the error that says which one was reached.
//!
//! The numbers protect the sandbox's own memory and process table: a sandbox may be given
//! as little as 64 MiB, and the daemon must still answer when user code has used the rest.

/// Open connections, on all listeners together. Each costs a buffer of some 16 KiB when
/// busy; the published clients keep at most 100.
pub(crate) const CONNECTIONS: usize = 1024;

/// Bytes of a request's head. Clients send under 2 KiB; the rest is room for cookies of
/// services behind `/proxy`.
pub(crate) const HEAD_BYTES: usize = 64 * 1024;

/// Bytes of a JSON request body. A command line is limited to 2 MiB by the kernel and a
/// script given as text is rarely a tenth of this.
pub(crate) const JSON_BODY_BYTES: usize = 8 * 1024 * 1024;
