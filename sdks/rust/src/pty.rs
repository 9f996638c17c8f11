//! Terminals: a shell with a screen, over a WebSocket that can be left and come back to.

use api::exec::pty::{
    ClientFrame, ClientMessage, CreatePtyRequest, CreatePtyResponse, PtyStatus, ServerFrame,
    ServerMessage, Signal,
};
use api::query::QueryWriter;
use base64::Engine as _;
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use http::header::{
    CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::error::{Error, Result};
use crate::sandbox::Sandbox;
use crate::transport::{self, segment};

type Socket = WebSocketStream<reqwest::Upgraded>;

/// The terminals of a sandbox; see [`Sandbox::terminals`].
#[derive(Debug, Clone)]
pub struct Terminals {
    sandbox: Sandbox,
}

/// A terminal. Dropping it does not end it: [`delete`](Self::delete) does.
#[derive(Debug, Clone)]
pub struct Terminal {
    sandbox: Sandbox,
    id: String,
}

/// How to connect to a terminal.
#[derive(Debug, Clone, Copy, Default)]
pub struct TerminalOptions {
    /// Pipes instead of a terminal, with stderr apart.
    pub pipes: bool,
    /// Replay output from this byte on.
    pub since: Option<u64>,
    /// Take it from the client that holds it.
    pub take_over: bool,
    /// Columns and rows. What the shell starts with: one that is told its size while it starts may miss it.
    pub size: Option<(u16, u16)>,
}

/// What comes from a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TerminalEvent {
    /// This client now holds the terminal.
    Connected,
    /// Output.
    Output(Bytes),
    /// Error output; only with pipes.
    ErrorOutput(Bytes),
    /// Output from before, or after some that was lost, from this byte of the whole on.
    Replay {
        /// Where its first byte stands.
        offset: u64,
        /// The output.
        bytes: Bytes,
    },
    /// Something that was sent could not be honoured.
    Refused {
        /// Why, for programs.
        code: String,
        /// Why, for people.
        message: String,
    },
    /// The process has ended.
    Exit {
        /// Its code; -1 for a signal.
        code: i32,
        /// The signal that ended it, where the server says which.
        signal: Option<i32>,
    },
    /// The connection is closed, for this reason.
    Closed {
        /// The close code; 4001 is another client that took over.
        code: Option<u16>,
        /// The reason.
        reason: String,
    },
}

impl Terminals {
    pub(crate) fn new(sandbox: Sandbox) -> Self {
        Self { sandbox }
    }

    /// Makes a terminal: an interactive shell, or this shell text, in this directory.
    pub async fn create(&self, cwd: Option<&str>, command: Option<&str>) -> Result<Terminal> {
        self.create_sized(cwd, command, None).await
    }

    /// [`create`](Self::create) with columns and rows from the start: a shell that is told its size only while
    /// it starts may miss it.
    pub async fn create_sized(
        &self,
        cwd: Option<&str>,
        command: Option<&str>,
        size: Option<(u16, u16)>,
    ) -> Result<Terminal> {
        let exec = self.sandbox.exec().await?;
        let (cols, rows) = size.unzip();
        let request = CreatePtyRequest {
            cwd: cwd.map(str::to_owned),
            command: command.map(str::to_owned),
            cols,
            rows,
        };
        let answer: CreatePtyResponse = exec.post("/pty").json(&request).json_answer().await?;
        Ok(self.get(answer.session_id.as_str()))
    }

    /// A terminal by its id, without any request.
    pub fn get(&self, id: impl Into<String>) -> Terminal {
        Terminal {
            sandbox: self.sandbox.clone(),
            id: id.into(),
        }
    }
}

impl Terminal {
    /// The terminal's id, by which it can be connected to again.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// How it stands.
    pub async fn status(&self) -> Result<PtyStatus> {
        let exec = self.sandbox.exec().await?;
        let request = exec.get(format!("/pty/{}", segment(&self.id)?));
        request.json_answer().await
    }

    /// Ends it.
    pub async fn delete(&self) -> Result<()> {
        let exec = self.sandbox.exec().await?;
        exec.delete(format!("/pty/{}", segment(&self.id)?))
            .done()
            .await
    }

    /// Connects to it; the first connection starts its shell.
    pub async fn connect(&self, options: TerminalOptions) -> Result<TerminalConnection> {
        let exec = self.sandbox.exec().await?;
        let since = options.since.map(|since| since.to_string());
        let size = options.size.filter(|_| !options.pipes);
        let size = size.map(|(columns, rows)| (columns.to_string(), rows.to_string()));
        let (columns, rows) = size.unzip();
        let query = QueryWriter::new()
            .optional("pty", options.pipes.then_some("0"))
            .optional("since", since.as_deref())
            .optional("takeover", options.take_over.then_some("1"))
            .optional("cols", columns.as_deref())
            .optional("rows", rows.as_deref());
        let path = format!("/pty/{}/ws?{}", segment(&self.id)?, query.finish());
        let key = base64::engine::general_purpose::STANDARD.encode(rand::random::<[u8; 16]>());
        let mut headers = HeaderMap::new();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        let value = HeaderValue::try_from(&key).expect("base64 is printable");
        headers.insert(SEC_WEBSOCKET_KEY, value);
        let (raw, answer) = transport::upgrade(&exec, &path, headers).await?;
        let accepted = answer.get(SEC_WEBSOCKET_ACCEPT);
        if accepted
            .is_none_or(|value| value.as_bytes() != derive_accept_key(key.as_bytes()).as_bytes())
        {
            return Err(failed("what answered is not a WebSocket"));
        }
        let socket = WebSocketStream::from_raw_socket(raw, Role::Client, None).await;
        let (sink, stream) = socket.split();
        Ok(TerminalConnection {
            input: TerminalInput { sink },
            output: TerminalOutput { stream },
        })
    }
}

/// A connection to a terminal. [`split`](Self::split) it to read and write at the same time.
pub struct TerminalConnection {
    input: TerminalInput,
    output: TerminalOutput,
}

impl TerminalConnection {
    /// Both halves.
    pub fn split(self) -> (TerminalInput, TerminalOutput) {
        (self.input, self.output)
    }

    /// What comes next; nothing after [`TerminalEvent::Closed`].
    pub async fn next(&mut self) -> Option<Result<TerminalEvent>> {
        self.output.next().await
    }

    /// The half that writes.
    pub fn input(&mut self) -> &mut TerminalInput {
        &mut self.input
    }
}

/// The half of a connection that writes.
pub struct TerminalInput {
    sink: SplitSink<Socket, Message>,
}

impl TerminalInput {
    /// Sends keystrokes.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let mut frame = Vec::with_capacity(bytes.len() + 1);
        ClientFrame::Stdin(bytes).encode(&mut frame);
        self.send(Message::Binary(frame.into())).await
    }

    /// Says that the window has a new size.
    pub async fn resize(&mut self, columns: u16, rows: u16) -> Result<()> {
        let (cols, rows) = (columns, rows);
        self.message(&ClientMessage::Resize { cols, rows }).await
    }

    /// Sends a signal to what runs in front.
    pub async fn signal(&mut self, signal: Signal) -> Result<()> {
        self.message(&ClientMessage::Signal { signal }).await
    }

    /// Says that this client lives. The daemon closes connections that say nothing for a minute;
    /// reading answers its own questions, so that only a client that does not read needs this.
    pub async fn ping(&mut self) -> Result<()> {
        self.message(&ClientMessage::Ping).await
    }

    /// Leaves the terminal, which goes on without a client.
    pub async fn close(&mut self) -> Result<()> {
        self.sink
            .close()
            .await
            .map_err(|error| failed(&error.to_string()))
    }

    async fn message(&mut self, message: &ClientMessage) -> Result<()> {
        let text = serde_json::to_string(message).expect("a message has text keys only");
        self.send(Message::Text(text.into())).await
    }

    async fn send(&mut self, message: Message) -> Result<()> {
        let sent = self.sink.send(message).await;
        sent.map_err(|error| failed(&error.to_string()))
    }
}

/// The half of a connection that reads.
pub struct TerminalOutput {
    stream: SplitStream<Socket>,
}

impl TerminalOutput {
    /// What comes next; nothing after [`TerminalEvent::Closed`].
    pub async fn next(&mut self) -> Option<Result<TerminalEvent>> {
        loop {
            let message = match self.stream.next().await? {
                Ok(message) => message,
                Err(error) => return Some(Err(failed(&error.to_string()))),
            };
            match message {
                Message::Binary(frame) => return Some(binary(&frame)),
                Message::Text(text) => match text_event(&text) {
                    Ok(Some(event)) => return Some(Ok(event)),
                    Ok(None) => {}
                    Err(error) => return Some(Err(error)),
                },
                Message::Close(frame) => {
                    let (code, reason) = frame.map_or((None, String::new()), |frame| {
                        (Some(u16::from(frame.code)), frame.reason.to_string())
                    });
                    return Some(Ok(TerminalEvent::Closed { code, reason }));
                }
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }
}

fn binary(frame: &Bytes) -> Result<TerminalEvent> {
    let read = ServerFrame::decode(frame).map_err(|error| failed(&error.to_string()))?;
    Ok(match read {
        ServerFrame::Stdout(bytes) => TerminalEvent::Output(frame.slice_ref(bytes)),
        ServerFrame::Stderr(bytes) => TerminalEvent::ErrorOutput(frame.slice_ref(bytes)),
        ServerFrame::Replay { offset, bytes } => TerminalEvent::Replay {
            offset,
            bytes: frame.slice_ref(bytes),
        },
    })
}

fn text_event(text: &str) -> Result<Option<TerminalEvent>> {
    let message = serde_json::from_str(text).map_err(|error| failed(&error.to_string()))?;
    Ok(match message {
        ServerMessage::Connected { .. } => Some(TerminalEvent::Connected),
        ServerMessage::Pong => None,
        ServerMessage::Error { code, error } => Some(TerminalEvent::Refused {
            code,
            message: error,
        }),
        ServerMessage::Exit { exit_code, signal } => Some(TerminalEvent::Exit {
            code: exit_code,
            signal,
        }),
    })
}

fn failed(message: &str) -> Error {
    Error::Terminal {
        message: message.to_owned(),
    }
}
