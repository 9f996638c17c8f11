//! A visit to a terminal in a sandbox: keys there, output back, until its process ends or it is
//! left. A connection that breaks is made again, and what was printed meanwhile is shown.

use std::io::{self, Write as _};
use std::time::Duration;

use opensandbox::{
    Terminal, TerminalConnection, TerminalEvent, TerminalInput, TerminalOptions, TerminalOutput,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::super::run::SIGNAL_BASE;
use super::tell;
use crate::error::Error;
use crate::interrupts::{HUNG_UP, Interrupts};
use crate::terminal::{self, DetachKeys, Watcher};

/// The close code of a terminal that another client took.
const TAKEN_OVER: u16 = api::exec::pty::CLOSE_TAKEN_OVER;

/// Close codes of whoever ends a connection for good; RFC 6455, section 7.4.1. A server that stops
/// says 1001, a connection that breaks says nothing.
const CLOSED_NORMALLY: u16 = 1000;
const CLOSED_FOR_AN_ERROR: u16 = 1011;

/// The exit code for a process that a signal ended, where the server does not say which.
const SIGNALLED: u8 = 255;

/// A broken connection is tried again for this long: a server that is replaced takes seconds, a
/// laptop that changes its network a minute.
const RECONNECT_FOR: Duration = Duration::from_secs(120);

/// The wait before the second attempt; it doubles up to [`RECONNECT_DELAY_MAX`].
const RECONNECT_DELAY: Duration = Duration::from_millis(100);

/// Somebody sits there and waits.
const RECONNECT_DELAY_MAX: Duration = Duration::from_secs(2);

/// Keys that are typed while there is no connection and sent when there is one again; nobody
/// types more, and what is pasted beyond it is dropped.
const UNSENT_BYTES_MAX: usize = 64 * 1024;

/// Connections in a row that broke without giving any output: something ends each of them.
const FRUITLESS_MAX: u32 = 10;

/// How a visit to a terminal ended.
pub(super) enum End {
    /// Its process ended, with the code that shells give it.
    Exit(u8),
    /// It was left with the keys for that.
    Left,
    /// Another client took it.
    TakenOver,
    /// This terminal is gone, or this program was told to stop; with the exit code for that.
    HungUp(u8),
}

/// Why a connection gives nothing more.
enum ConnectionEnd {
    End(End),
    /// It broke; perhaps it can be made again.
    Lost(Error),
    /// The other side ended it, and would again.
    Refused(Error),
}

/// A visit.
pub(super) struct Visit<'a> {
    terminal: &'a Terminal,
    keys: Watcher,
    typed: mpsc::Receiver<Vec<u8>>,
    resized: Signal,
    interrupts: Interrupts,
    /// Bytes of the terminal's output that were shown, as it counts them.
    offset: u64,
    unsent: Vec<u8>,
    /// Connections that broke since the last output.
    fruitless: u32,
    /// The command that comes back here.
    again: &'a str,
}

impl<'a> Visit<'a> {
    pub(super) fn new(
        terminal: &'a Terminal,
        keys: &DetachKeys,
        options: TerminalOptions,
        again: &'a str,
    ) -> io::Result<Self> {
        Ok(Self {
            terminal,
            keys: Watcher::new(keys),
            typed: terminal::input(),
            resized: signal(SignalKind::window_change())?,
            interrupts: Interrupts::listen()?,
            offset: options.since.unwrap_or(0),
            unsent: Vec::new(),
            fruitless: 0,
            again,
        })
    }

    /// Carries keys there and output back.
    pub(super) async fn run(mut self, connection: TerminalConnection) -> Result<End, Error> {
        let (mut input, mut output) = connection.split();
        loop {
            let error = match self.carry(&mut input, &mut output).await {
                ConnectionEnd::End(end) => return Ok(end),
                ConnectionEnd::Refused(error) => return Err(error),
                ConnectionEnd::Lost(error) if self.fruitless >= FRUITLESS_MAX => return Err(error),
                ConnectionEnd::Lost(error) => error,
            };
            self.fruitless += 1;
            match self.reconnect(error).await? {
                Ok(connection) => (input, output) = connection.split(),
                Err(end) => return Ok(end),
            }
        }
    }

    async fn carry(
        &mut self,
        input: &mut TerminalInput,
        output: &mut TerminalOutput,
    ) -> ConnectionEnd {
        // Before any key, so that whatever the keys start finds the right size.
        resize(input).await;
        let unsent = std::mem::take(&mut self.unsent);
        if !unsent.is_empty() && input.write(&unsent).await.is_err() {
            self.unsent = unsent;
        }
        loop {
            tokio::select! {
                event = output.next() => {
                    let event = match event {
                        Some(Ok(event)) => event,
                        Some(Err(error)) => return ConnectionEnd::Lost(error.into()),
                        None => return ConnectionEnd::Lost(closed("the other side went away")),
                    };
                    if let Some(stop) = self.show(event) {
                        return stop;
                    }
                }
                bytes = self.typed.recv() => {
                    let (rest, end) = self.press(bytes);
                    // What the process does not take is its own affair: its end, or that of the
                    // connection, is on the way.
                    if !rest.is_empty() && input.write(&rest).await.is_err() {
                        self.unsent.extend(rest);
                    }
                    if let Some(end) = end {
                        // The other side may have gone first, and that is as good.
                        let _ = input.close().await;
                        return ConnectionEnd::End(end);
                    }
                }
                code = self.interrupts.next() => return ConnectionEnd::End(End::HungUp(code)),
                _ = self.resized.recv() => resize(input).await,
            }
        }
    }

    /// What of the typed keys goes to the process, and the end if they say so. A keyboard that is
    /// gone took its terminal along.
    fn press(&mut self, bytes: Option<Vec<u8>>) -> (Vec<u8>, Option<End>) {
        let Some(bytes) = bytes else {
            return (Vec::new(), Some(End::HungUp(HUNG_UP)));
        };
        let (rest, is_left) = self.keys.feed(&bytes);
        (rest, is_left.then_some(End::Left))
    }

    /// Shows what came; why nothing more comes, when it was that.
    fn show(&mut self, event: TerminalEvent) -> Option<ConnectionEnd> {
        let bytes = match event {
            TerminalEvent::Output(bytes) | TerminalEvent::ErrorOutput(bytes) => {
                self.offset += bytes.len() as u64;
                bytes
            }
            TerminalEvent::Replay { offset, bytes } => {
                self.offset = offset + bytes.len() as u64;
                bytes
            }
            TerminalEvent::Exit { code, signal } => {
                return Some(ConnectionEnd::End(End::Exit(shell_code(code, signal))));
            }
            TerminalEvent::Closed {
                code: Some(TAKEN_OVER),
                ..
            } => return Some(ConnectionEnd::End(End::TakenOver)),
            TerminalEvent::Closed {
                code: Some(CLOSED_NORMALLY | CLOSED_FOR_AN_ERROR),
                reason,
            } => return Some(ConnectionEnd::Refused(closed(&reason))),
            TerminalEvent::Closed { reason, .. } => {
                return Some(ConnectionEnd::Lost(closed(&reason)));
            }
            TerminalEvent::Refused { code, message } => {
                return Some(ConnectionEnd::Refused(closed(&format!(
                    "{message} ({code})"
                ))));
            }
            _ => return None,
        };
        self.fruitless = 0;
        let mut out = io::stdout().lock();
        let written = out.write_all(&bytes).and_then(|()| out.flush());
        written
            .is_err()
            .then_some(ConnectionEnd::End(End::HungUp(HUNG_UP)))
    }

    /// Connects again from where the output broke off. Keys are kept until then, and may say that
    /// nobody waits for it.
    async fn reconnect(&mut self, error: Error) -> Result<Result<TerminalConnection, End>, Error> {
        tell(&format!(
            "the connection broke; trying again. By hand: {}",
            self.again
        ));
        let options = TerminalOptions {
            since: Some(self.offset),
            take_over: true,
            ..TerminalOptions::default()
        };
        let mut connecting = std::pin::pin!(connect(self.terminal, options, error));
        loop {
            tokio::select! {
                connected = &mut connecting => {
                    let connection = connected?;
                    tell("connected again");
                    return Ok(Ok(connection));
                }
                bytes = self.typed.recv() => {
                    let (rest, end) = self.press(bytes);
                    let room = UNSENT_BYTES_MAX.saturating_sub(self.unsent.len());
                    self.unsent.extend(rest.into_iter().take(room));
                    if let Some(end) = end {
                        return Ok(Err(end));
                    }
                }
                code = self.interrupts.next() => return Ok(Err(End::HungUp(code))),
            }
        }
    }
}

/// Tries to connect until it works, cannot, or has been tried for long enough. Where nothing
/// answers, the error is that of the connection that broke.
async fn connect(
    terminal: &Terminal,
    options: TerminalOptions,
    broken: Error,
) -> Result<TerminalConnection, Error> {
    let deadline = Instant::now() + RECONNECT_FOR;
    let mut delay = RECONNECT_DELAY;
    loop {
        let error = match terminal.connect(options).await {
            Ok(connection) => return Ok(connection),
            Err(error) => error,
        };
        if !error.is_retryable() {
            return Err(error.into());
        }
        if Instant::now() + delay > deadline {
            return Err(broken);
        }
        // Nobody tells when a server is back.
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(RECONNECT_DELAY_MAX);
    }
}

fn closed(message: &str) -> Error {
    Error::Failed {
        message: format!("the connection to the terminal ended: {message}"),
        next: None,
    }
}

async fn resize(input: &mut TerminalInput) {
    if let Some(size) = terminal::size() {
        // A process that has ended needs no size; its end is on the way.
        let _ = input.resize(size.columns, size.rows).await;
    }
}

/// The code that a shell gives a process which ended like this.
fn shell_code(code: i32, signal: Option<i32>) -> u8 {
    let code = signal.map_or(code, |signal| i32::from(SIGNAL_BASE) + signal);
    u8::try_from(code).unwrap_or(SIGNALLED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_have_the_codes_of_shells() {
        assert_eq!(shell_code(3, None), 3);
        assert_eq!(shell_code(-1, Some(9)), 137);
        assert_eq!(shell_code(-1, None), SIGNALLED);
    }
}
