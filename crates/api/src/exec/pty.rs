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
    /// Columns from the start, an extension: a shell that is told its size while it starts may miss it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub cols: Option<u16>,
    /// Rows from the start, an extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub rows: Option<u16>,
}

/// Columns and rows, where at least one is given; the other is that of [`DEFAULT_SIZE`].
fn size_given(cols: Option<u16>, rows: Option<u16>) -> Option<(u16, u16)> {
    let (default_cols, default_rows) = DEFAULT_SIZE;
    let (cols, rows) = (cols.filter(|it| *it > 0), rows.filter(|it| *it > 0));
    (cols.is_some() || rows.is_some())
        .then(|| (cols.unwrap_or(default_cols), rows.unwrap_or(default_rows)))
}

impl CreatePtyRequest {
    /// The size asked for.
    pub fn size(&self) -> Option<(u16, u16)> {
        size_given(self.cols, self.rows)
    }
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
    /// Columns, an extension: what the shell starts with, or the terminal gets before anything is replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cols: Option<u16>,
    /// Rows, an extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u16>,
}

impl ConnectQuery {
    /// Whether pipes were asked for.
    pub fn wants_pipe(&self) -> bool {
        self.pty.as_deref() == Some("0")
    }

    /// The size asked for.
    pub fn size(&self) -> Option<(u16, u16)> {
        size_given(self.cols, self.rows)
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
        /// The signal that ended it, by its number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
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
        /// `SIGINT`, `SIGTERM` and the like.
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

/// Binary frames from the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerFrame<'a> {
    /// Output.
    Stdout(&'a [u8]),
    /// Error output; only with pipes.
    Stderr(&'a [u8]),
    /// Output from before this client came. Comes before `connected`.
    Replay {
        /// Where in the whole output its first byte stands.
        offset: u64,
        /// The output.
        bytes: &'a [u8],
    },
}

/// Binary frames from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientFrame<'a> {
    /// Input.
    Stdin(&'a [u8]),
}

/// Why a frame means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It has no byte that says what it is.
    #[error("the frame is empty; its first byte must say what it is")]
    Empty,
    /// Its first byte is not known.
    #[error(
        "the frame begins with byte {0:#04x}, which is no kind of frame; input begins with 0x00"
    )]
    UnknownKind(u8),
    /// A replay frame ends before its offset does.
    #[error("the replay frame is shorter than its offset of 8 bytes")]
    ShortReplay,
    /// A text frame is JSON but not a message.
    #[error("the message is not known: {0}; it must have a type of stdin, signal, resize or ping")]
    UnknownMessage(String),
}

const KIND_STDIN: u8 = 0;
const KIND_STDOUT: u8 = 1;
const KIND_STDERR: u8 = 2;
const KIND_REPLAY: u8 = 3;

impl<'a> ServerFrame<'a> {
    /// Appends the frame's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Stdout(bytes) => {
                out.push(KIND_STDOUT);
                out.extend_from_slice(bytes);
            }
            Self::Stderr(bytes) => {
                out.push(KIND_STDERR);
                out.extend_from_slice(bytes);
            }
            Self::Replay { offset, bytes } => {
                out.push(KIND_REPLAY);
                out.extend_from_slice(&offset.to_be_bytes());
                out.extend_from_slice(bytes);
            }
        }
    }

    /// Reads a frame.
    pub fn decode(frame: &'a [u8]) -> Result<Self, FrameError> {
        let (kind, bytes) = frame.split_first().ok_or(FrameError::Empty)?;
        match *kind {
            KIND_STDOUT => Ok(Self::Stdout(bytes)),
            KIND_STDERR => Ok(Self::Stderr(bytes)),
            KIND_REPLAY => {
                let (offset, bytes) = bytes.split_first_chunk().ok_or(FrameError::ShortReplay)?;
                Ok(Self::Replay {
                    offset: u64::from_be_bytes(*offset),
                    bytes,
                })
            }
            other => Err(FrameError::UnknownKind(other)),
        }
    }
}

impl<'a> ClientFrame<'a> {
    /// Appends the frame's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let Self::Stdin(bytes) = self;
        out.push(KIND_STDIN);
        out.extend_from_slice(bytes);
    }

    /// Reads a frame.
    pub fn decode(frame: &'a [u8]) -> Result<Self, FrameError> {
        match frame.split_first().ok_or(FrameError::Empty)? {
            (&KIND_STDIN, bytes) => Ok(Self::Stdin(bytes)),
            (other, _) => Err(FrameError::UnknownKind(*other)),
        }
    }
}

impl ClientMessage {
    /// Reads a text frame. What is not JSON is `None`: the published daemon ignores it.
    pub fn parse(text: &str) -> Result<Option<Self>, FrameError> {
        // Only the shape is looked at here, so that no tree is built of what may be ignored.
        if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
            return Ok(None);
        }
        match serde_json::from_str(text) {
            Ok(message) => Ok(Some(message)),
            Err(error) => {
                let mut reason = error.to_string();
                // The reason may repeat a value of the message.
                reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
                Err(FrameError::UnknownMessage(reason))
            }
        }
    }
}

/// As much of a reason as goes into an error.
const REASON_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_begin_with_what_they_are() {
        let mut out = Vec::new();
        ServerFrame::Replay {
            offset: 258,
            bytes: b"x",
        }
        .encode(&mut out);
        assert_eq!(out, [3, 0, 0, 0, 0, 0, 0, 1, 2, b'x']);
        assert_eq!(
            ClientFrame::decode(b"\0ls\n"),
            Ok(ClientFrame::Stdin(b"ls\n"))
        );
        assert_eq!(ClientFrame::decode(b""), Err(FrameError::Empty));
        assert_eq!(
            ClientFrame::decode(b"\x01a"),
            Err(FrameError::UnknownKind(1))
        );
        assert_eq!(
            ServerFrame::decode(b"\x03\0\0"),
            Err(FrameError::ShortReplay)
        );
    }

    #[test]
    fn messages_are_known_ignored_or_refused() {
        let resize = ClientMessage::parse(r#"{"type":"resize","cols":100,"rows":30}"#);
        assert_eq!(
            resize,
            Ok(Some(ClientMessage::Resize {
                cols: 100,
                rows: 30
            }))
        );
        let signal = ClientMessage::parse(r#"{"type":"signal","signal":"SIGINT"}"#);
        assert_eq!(
            signal,
            Ok(Some(ClientMessage::Signal {
                signal: Signal::SigInt
            }))
        );
        assert_eq!(ClientMessage::parse("hello"), Ok(None));
        for text in [
            r#"{"type":"x"}"#,
            "{}",
            "[]",
            r#"{"type":"signal","signal":"SIGSTOP"}"#,
        ] {
            let error = ClientMessage::parse(text).unwrap_err();
            assert!(
                matches!(error, FrameError::UnknownMessage(_)),
                "{text}: {error}"
            );
        }
        let long = format!(r#"{{"type":"{}"}}"#, "x".repeat(9000));
        assert!(ClientMessage::parse(&long).unwrap_err().to_string().len() < 500);
    }

    #[test]
    fn messages_of_the_daemon_are_as_published() {
        let connected = ServerMessage::Connected {
            session_id: "a".parse().unwrap(),
            mode: Mode::Pty,
        };
        assert_eq!(
            serde_json::to_string(&connected).unwrap(),
            r#"{"type":"connected","session_id":"a","mode":"pty"}"#
        );
        assert_eq!(
            serde_json::to_string(&ServerMessage::Pong).unwrap(),
            r#"{"type":"pong"}"#
        );
    }

    proptest! {
        #[test]
        fn frames_read_back(offset in any::<u64>(), bytes in any::<Vec<u8>>()) {
            for frame in [
                ServerFrame::Stdout(&bytes),
                ServerFrame::Stderr(&bytes),
                ServerFrame::Replay { offset, bytes: &bytes },
            ] {
                let mut out = Vec::new();
                frame.encode(&mut out);
                prop_assert_eq!(ServerFrame::decode(&out), Ok(frame));
            }
            let mut out = Vec::new();
            ClientFrame::Stdin(&bytes).encode(&mut out);
            prop_assert_eq!(ClientFrame::decode(&out), Ok(ClientFrame::Stdin(&bytes)));
        }

        #[test]
        fn any_frame_is_read_or_refused(bytes in any::<Vec<u8>>(), text in any::<String>()) {
            let _ = (ServerFrame::decode(&bytes), ClientFrame::decode(&bytes));
            let _ = ClientMessage::parse(&text);
        }
    }
}
