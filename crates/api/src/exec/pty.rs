//! Terminals: making them over HTTP, and the frames of their WebSocket.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::PtyId;

/// The close code of a terminal that another client took over.
pub const CLOSE_TAKEN_OVER: u16 = 4001;

/// The reason that goes with [`CLOSE_TAKEN_OVER`].
pub const CLOSE_TAKEN_OVER_REASON: &str = "TAKEN_OVER";

/// The reason of the normal close after the process has ended.
pub const CLOSE_EXITED_REASON: &str = "process exited";

/// Output frames carry at most this many bytes: what the published daemon reads at once.
pub const OUTPUT_CHUNK_BYTES_MAX: usize = 32 * 1024;

/// The size of a terminal before anyone says otherwise.
pub const DEFAULT_SIZE: (u16, u16) = (80, 24);

/// `POST /pty`. An empty body is all defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatePtyRequest {
    /// Working directory; made when it does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Shell text to run instead of an interactive shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// Answer of `POST /pty`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatePtyResponse {
    /// The terminal's id.
    #[schema(value_type = String)]
    pub session_id: PtyId,
}

/// Answer of `GET /pty/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PtyStatus {
    /// The terminal's id.
    #[schema(value_type = String)]
    pub session_id: PtyId,
    /// Whether its process runs.
    pub running: bool,
    /// Bytes of output so far: what to give as `since` to miss nothing from now on.
    pub output_offset: u64,
}

/// Query of `GET /pty/{id}/ws`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectQuery {
    /// `0` asks for pipes instead of a terminal, with stderr apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pty: Option<String>,
    /// Replay output from this byte on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// `1` takes the terminal from the client that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub takeover: Option<String>,
}

impl ConnectQuery {
    /// Whether pipes were asked for.
    pub fn wants_pipe(&self) -> bool {
        self.pty.as_deref() == Some("0")
    }

    /// Whether to take the terminal over.
    pub fn wants_takeover(&self) -> bool {
        self.takeover.as_deref() == Some("1")
    }
}

/// A terminal or pipes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A terminal.
    Pty,
    /// Pipes, with stderr apart.
    Pipe,
}

/// Text frames from the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ServerMessage {
    /// The client now holds the terminal. Comes after the replay.
    Connected {
        /// The terminal's id.
        #[schema(value_type = String)]
        session_id: PtyId,
        /// A terminal or pipes.
        mode: Mode,
    },
    /// Answers a `ping`.
    Pong,
    /// A frame could not be honoured.
    Error {
        /// One of the terminal's error codes.
        code: String,
        /// What happened.
        error: String,
    },
    /// The process has ended; the connection closes next.
    Exit {
        /// How it ended; -1 for a signal.
        exit_code: i32,
    },
}

/// Text frames from the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ClientMessage {
    /// Input as text.
    Stdin {
        /// The text.
        data: String,
    },
    /// Send a signal to the foreground process group.
    Signal {
        /// Which.
        signal: Signal,
    },
    /// The window has a new size.
    Resize {
        /// Columns.
        cols: u16,
        /// Rows.
        rows: u16,
    },
    /// Asks for a `pong`.
    Ping,
}

/// Signals a client may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Signal {
    /// Interrupt.
    SigInt,
    /// Terminate.
    SigTerm,
    /// Kill.
    SigKill,
    /// Quit.
    SigQuit,
    /// Hang up.
    SigHup,
}
