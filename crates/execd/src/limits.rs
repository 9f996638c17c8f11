//! The limits that a client can run into, by name, and the error that says which one was reached.
//! Limits of one module that no error names stand in that module.
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

/// Bytes of output text in one event. A client in Go reads lines of at most 4 MiB, and one
/// byte of output takes up to six in JSON.
pub(crate) const EVENT_BYTES: usize = 64 * 1024;

/// Bytes of output kept per command, with some 13 bytes for each piece that arrived at once.
/// At the limit the oldest goes. As much as the published daemon keeps of an isolated run.
pub(crate) const OUTPUT_BYTES: u64 = 16 * 1024 * 1024;

/// Commands at once, those included whose leader has ended while a child still holds their
/// output open. Each takes four descriptors and up to 160 KiB for recent output.
pub(crate) const COMMANDS: usize = 512;

/// How long a finished command's status and exit code are kept.
pub(crate) const KEEP_FINISHED: std::time::Duration = std::time::Duration::from_secs(24 * 60 * 60);

/// Finished commands whose status is kept: one every two seconds for a day. Beyond that the
/// oldest is forgotten before its day is over.
pub(crate) const FINISHED_COMMANDS: usize = 43_200;

/// Output of finished commands that is kept in memory, all together. Beyond that the oldest
/// command's output is dropped; its status stays.
pub(crate) const KEPT_MEMORY_BYTES: u64 = 16 * 1024 * 1024;

/// As [`KEPT_MEMORY_BYTES`], for output that lies in files.
pub(crate) const KEPT_FILE_BYTES: u64 = 512 * 1024 * 1024;

/// Characters of a command's text in a status whose output is dropped.
pub(crate) const KEPT_CONTENT_CHARS: usize = 256;

/// Code contexts at once. Each is an interpreter of some 10 MiB.
pub(crate) const CONTEXTS: usize = 64;

/// Runs that wait for their turn in one context.
pub(crate) const QUEUED_RUNS: usize = 64;

/// Bytes of one value that user code shows, a picture for instance. A client in Go reads lines
/// of at most 4 MiB.
pub(crate) const RESULT_BYTES: usize = 3 * 1024 * 1024;

/// A named limit that a request ran into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("limit {name} = {value} is reached: {advice}")]
pub(crate) struct Reached {
    pub(crate) name: &'static str,
    pub(crate) value: usize,
    pub(crate) advice: &'static str,
}

/// Live shells at once. An idle bash takes some 2 MiB.
pub(crate) const SESSIONS: usize = 128;

/// Runs that wait for their turn in one session.
pub(crate) const SESSION_QUEUE: usize = 64;

/// Terminals at once. Each keeps up to [`PTY_REPLAY_BYTES`] of output.
pub(crate) const PTYS: usize = 64;

/// Output of a terminal kept for replay, as in the published daemon.
pub(crate) const PTY_REPLAY_BYTES: usize = 1024 * 1024;
