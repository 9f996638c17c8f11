//! One client's connection to a terminal.
//!
//! Output and input go on side by side: a client that does not read can still interrupt
//! what floods it.

use std::sync::Arc;
use std::time::Duration;

use api::error::ErrorCode;
use api::exec::pty::{
    CLOSE_EXITED_REASON, CLOSE_TAKEN_OVER, CLOSE_TAKEN_OVER_REASON, ClientMessage, Mode,
    OUTPUT_CHUNK_BYTES_MAX, ServerMessage,
};
use axum::body::Bytes;
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Pty;
use super::shell::Shell;
use crate::output::Channel;
use crate::process::{Exit, locked};
use crate::state::Shared;

/// The kinds of binary frames.
const STDIN: u8 = 0x00;
const STDOUT: u8 = 0x01;
const STDERR: u8 = 0x02;
const REPLAY: u8 = 0x03;

/// How often a quiet connection is asked whether it lives, how long it may stay silent,
/// and how long one frame may take to leave, all as in the published daemon.
const PING_EVERY: Duration = Duration::from_secs(30);
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// Answers to the client's frames that wait to be sent.
const REPLIES: usize = 16;

/// The connection is over.
struct Closed;

/// Serves the connection until either side ends it.
pub(super) async fn serve(
    shared: Arc<Shared>,
    pty: Arc<Pty>,
    socket: WebSocket,
    mode: Mode,
    since: u64,
) {
    let client = pty.hold();
    let (sink, stream) = socket.split();
    let mut output = Output {
        pty: Arc::clone(&pty),
        sink,
        offset: since,
    };
    match pty.ensure_shell(&shared, mode).await {
        Ok(shell) => {
            let (replies, queue) = mpsc::channel(REPLIES);
            tokio::select! {
                _ = output.follow(&shell, client, queue) => {}
                _ = receive(&pty, stream, &shell, client, &replies) => {}
            }
        }
        Err(error) => {
            let message = failure(ErrorCode::StartFailed, error.message());
            let _ = output.send(text(&message)).await;
            let _ = output
                .close(close_code::ERROR, "the shell did not start")
                .await;
        }
    }
    pty.release(client);
}

/// The daemon's half.
struct Output {
    pty: Arc<Pty>,
    sink: SplitSink<WebSocket, Message>,
    /// The next byte the client has not seen.
    offset: u64,
}

impl Output {
    async fn follow(
        &mut self,
        shell: &Shell,
        client: u64,
        mut replies: mpsc::Receiver<Message>,
    ) -> Result<(), Closed> {
        self.replay().await?;
        let session_id = self.pty.id.clone();
        self.send(text(&ServerMessage::Connected {
            session_id,
            mode: shell.mode,
        }))
        .await?;
        let mut holder = self.pty.holder.subscribe();
        let mut pings = tokio::time::interval_at(Instant::now() + PING_EVERY, PING_EVERY);
        let pty = Arc::clone(&self.pty);
        loop {
            let grown = pty.grown.notified();
            if *holder.borrow_and_update() != client {
                return self.close(CLOSE_TAKEN_OVER, CLOSE_TAKEN_OVER_REASON).await;
            }
            self.send_new().await?;
            if let Some(exit) = self.ended() {
                let message = ServerMessage::Exit {
                    exit_code: exit.code(),
                    signal: exit.signal(),
                };
                self.send(text(&message)).await?;
                return self.close(close_code::NORMAL, CLOSE_EXITED_REASON).await;
            }
            tokio::select! {
                () = grown => {}
                _ = holder.changed() => {}
                reply = replies.recv() => self.send(reply.ok_or(Closed)?).await?,
                _ = pings.tick() => self.send(Message::Ping(Bytes::new())).await?,
            }
        }
    }

    /// What was printed before, from where the client wants it.
    async fn replay(&mut self) -> Result<(), Closed> {
        let replay = locked(&self.pty.inner).ring.replay(self.offset);
        let Some((start, bytes)) = replay else {
            // An offset from the future means nothing was missed.
            self.offset = locked(&self.pty.inner).ring.end();
            return Ok(());
        };
        self.send_replay(start, &bytes).await
    }

    async fn send_replay(&mut self, start: u64, bytes: &[u8]) -> Result<(), Closed> {
        let mut frame = Vec::with_capacity(bytes.len() + 9);
        frame.push(REPLAY);
        frame.extend_from_slice(&start.to_be_bytes());
        frame.extend_from_slice(bytes);
        self.offset = start + bytes.len() as u64;
        self.send(Message::Binary(frame.into())).await
    }

    /// Everything the ring has beyond what was sent.
    async fn send_new(&mut self) -> Result<(), Closed> {
        loop {
            let slice = locked(&self.pty.inner)
                .ring
                .read(self.offset, OUTPUT_CHUNK_BYTES_MAX);
            let Some(slice) = slice else { return Ok(()) };
            if slice.start > self.offset {
                // The client was too slow and the ring went on without it: a replay frame
                // says where it goes on.
                self.send_replay(slice.start, &slice.bytes).await?;
                continue;
            }
            let mut frame = Vec::with_capacity(slice.bytes.len() + 1);
            frame.push(match slice.channel {
                Channel::Stdout => STDOUT,
                Channel::Stderr => STDERR,
            });
            frame.extend_from_slice(&slice.bytes);
            self.offset += slice.bytes.len() as u64;
            self.send(Message::Binary(frame.into())).await?;
        }
    }

    /// How the shell ended, once everything up to its end was sent.
    fn ended(&self) -> Option<Exit> {
        let inner = locked(&self.pty.inner);
        inner
            .ended
            .filter(|(_, end)| self.offset >= *end)
            .map(|(exit, _)| exit)
    }

    async fn send(&mut self, message: Message) -> Result<(), Closed> {
        match tokio::time::timeout(WRITE_LIMIT, self.sink.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Closed),
        }
    }

    async fn close(&mut self, code: u16, reason: &'static str) -> Result<(), Closed> {
        let frame = CloseFrame {
            code,
            reason: reason.into(),
        };
        self.send(Message::Close(Some(frame))).await?;
        tokio::time::timeout(WRITE_LIMIT, self.sink.close())
            .await
            .map_err(|_| Closed)?
            .map_err(|_| Closed)
    }
}

/// The client's half: input, signals, sizes.
async fn receive(
    pty: &Pty,
    mut stream: SplitStream<WebSocket>,
    shell: &Shell,
    client: u64,
    replies: &mpsc::Sender<Message>,
) -> Result<(), Closed> {
    loop {
        let message = tokio::time::timeout(SILENCE_LIMIT, stream.next()).await;
        let Ok(Some(Ok(message))) = message else {
            return Err(Closed);
        };
        if *pty.holder.borrow() != client {
            // Taken over: the other half is saying so.
            std::future::pending::<()>().await;
        }
        let reply = match &message {
            Message::Binary(frame) => match frame.split_first() {
                Some((&STDIN, input)) => write(shell, input).await,
                Some((kind, _)) => Some(failure(
                    ErrorCode::InvalidFrame,
                    format!("a binary frame from a client begins with 0x00, not {kind:#04x}"),
                )),
                None => None,
            },
            Message::Text(frame) => answer(shell, frame).await,
            Message::Close(_) => return Err(Closed),
            Message::Ping(_) | Message::Pong(_) => None,
        };
        if let Some(reply) = reply {
            replies.send(text(&reply)).await.map_err(|_| Closed)?;
        }
    }
}

async fn answer(shell: &Shell, frame: &str) -> Option<ServerMessage> {
    // Text that is not JSON is ignored, as the published daemon does.
    let value: serde_json::Value = serde_json::from_str(frame).ok()?;
    match serde_json::from_value(value) {
        Ok(ClientMessage::Stdin { data }) => write(shell, data.as_bytes()).await,
        Ok(ClientMessage::Ping) => Some(ServerMessage::Pong),
        Ok(ClientMessage::Resize { cols, rows }) => shell
            .resize(cols, rows)
            .err()
            .map(|error| failure(ErrorCode::InvalidFrame, error.to_string())),
        Ok(ClientMessage::Signal { signal }) => (!shell.signal(signal))
            .then(|| failure(ErrorCode::SessionGone, "the shell has ended".to_owned())),
        Err(error) => Some(failure(ErrorCode::InvalidFrame, error.to_string())),
    }
}

async fn write(shell: &Shell, input: &[u8]) -> Option<ServerMessage> {
    let error = shell.write(input).await.err()?;
    Some(failure(ErrorCode::StdinWriteFailed, error.to_string()))
}

fn failure(code: ErrorCode, error: String) -> ServerMessage {
    ServerMessage::Error {
        code: code.as_str().to_owned(),
        error,
    }
}

fn text(message: &ServerMessage) -> Message {
    let json = serde_json::to_string(message).expect("a message has string keys only");
    Message::Text(json.into())
}
