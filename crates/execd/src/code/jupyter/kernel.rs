//! A running kernel: its process, the connections to it, and what happens on them.
//!
//! It is driven by [`Kernel::next`] alone, from starting to the last message, so that whoever
//! waits for it also waits for its death. The first frame says that it is ready: it has answered
//! a request and what it publishes arrives here.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior};

use super::cell::{self, Cell};
use super::connection::{Connection, Port};
use super::kernelspec::{InterruptMode, Kernelspec};
use super::message::{Message, Session};
use super::zmtp::{self, Received, Role, Socket};
use crate::code::driver::{InterpreterEvent, Pipe, READ_BYTES};
use crate::code::frame::{Frame, Report};
use crate::code::sink::Channel;
use crate::path::Environment;
use crate::process::{Exit, Launch, LaunchError, Process};
use crate::state::Shared;

/// Between two attempts to connect to a kernel that starts. There is nothing to wait for instead:
/// no system call tells that somebody begins to listen on a port, the protocol has no way to hand
/// a kernel sockets that listen already, and few kernels know how to announce themselves at a
/// port of ours. ZeroMQ's own libraries therefore try again too, every 100 ms. An attempt costs some 20 µs and the fastest
/// kernels start in 100 ms. Whoever starts the kernel sets the end of the attempts.
const CONNECT_EVERY: Duration = Duration::from_millis(5);

/// How long an `idle` may be behind the answer to its request before the kernel is asked for
/// another one. It is late when the kernel starts, as long as our subscription has not reached it,
/// and it is lost when a kernel printed more than ZeroMQ holds for a reader that is slow. A
/// message that is lost is no event, so only a time can show it. No time is set for the answer.
const IDLE_TIMEOUT_STARTING: Duration = Duration::from_millis(50);
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);

/// Probes after which a kernel that answers them and never says `idle` is believed to be: ready
/// at its start, and done with a cell that it has answered before them.
const IDLE_PROBES_STARTING: u32 = 40;
const IDLE_PROBES: u32 = 2;

/// What a kernel wrote last to its own output, to be shown when it dies.
const STDERR_TAIL_BYTES: usize = 4096;

/// Means the end of input where input is asked for, as on a terminal.
const END_OF_INPUT: &str = "\u{4}";

/// Why a kernel could not be started.
#[derive(Debug, thiserror::Error)]
pub(in crate::code) enum Error {
    #[error("the kernel's ports and connection file could not be made")]
    Connection(#[source] io::Error),
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

/// A kernel; dropping it ends it and every process of its group.
pub(in crate::code) struct Kernel {
    process: Process,
    session: Session,
    interrupt_mode: InterruptMode,
    /// Until it is ready; then the key lies nowhere on the disk.
    connection: Option<Connection>,
    phase: Phase,
    pipes: [Pipe; 2],
    stderr_tail: String,
    cell: Option<Cell>,
    idle_probe: Option<IdleProbe>,
    events: VecDeque<InterpreterEvent>,
}

type Connecting = Pin<Box<dyn Future<Output = Result<Box<Channels>, zmtp::Error>> + Send + Sync>>;

enum Phase {
    Connecting(Connecting),
    /// Connected, and asked whether it is there.
    Asking(Box<Channels>),
    Ready(Box<Channels>),
    /// A connection has ended; only the end of the process is left to come.
    Closed,
}

struct Channels {
    shell: Socket,
    iopub: Socket,
    control: Socket,
    stdin: Socket,
}

/// Requests whose only purpose is an `idle`, one after another.
struct IdleProbe {
    /// The last one. Unset until there is one.
    request: Option<String>,
    asked: u32,
    is_idle: bool,
    /// When to ask the next. Unset as long as the last one has no answer: a kernel answers in
    /// order, however long it takes, and need not be asked twice.
    next_at: Option<Instant>,
}

impl Kernel {
    /// Starts the process. It says when it is ready with its first frame.
    pub(in crate::code) async fn start(
        shared: &Arc<Shared>,
        spec: &Kernelspec,
        environment: Environment,
        directory: Option<PathBuf>,
    ) -> Result<Self, Error> {
        let session = Session::new();
        let opened = tokio::task::spawn_blocking(move || {
            Connection::open(&session, &std::env::temp_dir())
                .map(|connection| (session, connection))
        });
        let (session, connection) = opened
            .await
            .expect("reserving ports does not panic")
            .map_err(Error::Connection)?;
        let descriptors = |error: io::Error| Error::Launch(LaunchError::Descriptors(error));
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| descriptors(error.into()));
        let ((out_read, out_write), (err_read, err_write)) = (pipe()?, pipe()?);
        let launch = Launch {
            argv: spec.command(connection.file()),
            environment,
            directory,
            identity: None,
            stdio: [
                shared.processes.null().map_err(descriptors)?,
                out_write,
                err_write,
            ],
            descriptors: Vec::new(),
            takes_terminal: false,
        };
        let process = shared.processes.launch_bound(launch).await?;
        Ok(Self {
            process,
            interrupt_mode: spec.interrupt_mode,
            phase: Phase::Connecting(Box::pin(connect(&connection, session.id()))),
            connection: Some(connection),
            session,
            pipes: [
                Pipe::new(Channel::Stdout, out_read).map_err(descriptors)?,
                Pipe::new(Channel::Stderr, err_read).map_err(descriptors)?,
            ],
            stderr_tail: String::new(),
            cell: None,
            idle_probe: None,
            events: VecDeque::new(),
        })
    }

    /// Runs a cell. Its last event is a frame F.
    pub(in crate::code) fn execute(&mut self, code: &str) {
        let content = json!({
            "code": code,
            "silent": false,
            "store_history": true,
            "user_expressions": {},
            // Nobody can be asked: the protocol has no way to send input to a cell.
            "allow_stdin": false,
            "stop_on_error": true,
        });
        if let Phase::Ready(channels) = &mut self.phase {
            let request = self.session.request("execute_request", &content);
            channels.shell.send(&request.parts());
            self.cell = Some(Cell::new(request.id));
            self.idle_probe = None;
        }
    }

    /// Asks the kernel to stop what it runs, in the way its kernelspec names.
    pub(in crate::code) fn interrupt(&mut self) {
        match (self.interrupt_mode, &mut self.phase) {
            (InterruptMode::Message, Phase::Ready(channels)) => {
                let request = self.session.request("interrupt_request", &json!({}));
                channels.control.send(&request.parts());
            }
            _ => drop(self.process.signal_group(Signal::INT)),
        }
    }

    /// Ends the kernel and every process of its group.
    pub(in crate::code) fn kill(&self) {
        self.process.signal_group(Signal::KILL);
    }

    /// What happens next. May be dropped and called again.
    pub(in crate::code) async fn next(&mut self) -> InterpreterEvent {
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            let [out, err] = &self.pipes;
            let event = tokio::select! {
                event = self.phase.event() => event,
                () = due(self.idle_probe.as_ref()) => Event::ProbeIdle,
                () = out.readable() => Event::Said(0),
                () = err.readable() => Event::Said(1),
                exit = self.process.wait() => Event::Died(exit),
            };
            match event {
                Event::Connected(Ok(channels)) => {
                    self.phase = Phase::Asking(channels);
                    self.probe_idle();
                }
                Event::Connected(Err(error)) => self.close(&error),
                Event::Readable => self.receive(),
                Event::ProbeIdle => self.probe_idle(),
                Event::Said(index) => self.listen(index),
                Event::Died(exit) => self.die(exit),
            }
        }
    }

    fn receive(&mut self) {
        let (Phase::Asking(channels) | Phase::Ready(channels)) = &mut self.phase else {
            return;
        };
        let pumped = channels.each().map(Socket::pump);
        let arrived = channels.each().map(|socket| {
            let all: Vec<Received> = std::iter::from_fn(|| socket.next()).collect();
            all
        });
        for arrived in arrived.into_iter().flatten() {
            match arrived {
                Received::Message(parts) => match self.session.open(&parts) {
                    Ok(message) => self.take(&message),
                    Err(reason) => {
                        tracing::debug!(%reason, "a message that is not the kernel's is passed over");
                    }
                },
                Received::TooLarge(size) => {
                    let size = usize::try_from(size).unwrap_or(usize::MAX);
                    self.events.push_back(InterpreterEvent::TooLarge(size));
                }
                Received::Command(_) => {}
            }
        }
        if let Some(error) = pumped.into_iter().find_map(Result::err) {
            self.close(&error);
        }
    }

    fn take(&mut self, message: &Message) {
        match message.kind.as_str() {
            // It was told that nobody can be asked; one that asks all the same must not wait.
            "input_request" => {
                if let Phase::Ready(channels) = &mut self.phase {
                    let content = json!({"value": END_OF_INPUT});
                    let answer = self.session.answer(message, "input_reply", &content);
                    channels.stdin.send(&answer.parts());
                }
            }
            _ => self.take_output(message),
        }
        self.progress();
    }

    fn take_output(&mut self, message: &Message) {
        let idle_timeout = self.phase.idle_timeout();
        if let Some(idle_probe) = &mut self.idle_probe
            && message.parent.is_some()
            && message.parent == idle_probe.request
        {
            if message.kind.ends_with("_reply") {
                idle_probe.next_at = Some(Instant::now() + idle_timeout);
            }
            idle_probe.is_idle |= cell::is_idle(message);
            return;
        }
        let event = match &mut self.cell {
            Some(cell) => cell.take(message),
            None => cell::output(message),
        };
        self.events.extend(event);
    }

    /// Draws the conclusions of what has arrived so far.
    fn progress(&mut self) {
        let is_starting = matches!(self.phase, Phase::Asking(_));
        let most = if is_starting {
            IDLE_PROBES_STARTING
        } else {
            IDLE_PROBES
        };
        let (is_answered, is_idle) = self.idle_probe.as_ref().map_or((false, false), |asked| {
            let is_answered = asked.next_at.is_some();
            (
                is_answered,
                asked.is_idle || (is_answered && asked.asked >= most),
            )
        });
        if is_starting && is_answered && is_idle {
            self.become_ready();
        }
        let Some(cell) = &mut self.cell else { return };
        if is_idle {
            cell.assume_idle();
        }
        if let Some(end) = cell.end() {
            self.events.extend(end.into_iter().flatten());
            self.cell = None;
            self.idle_probe = None;
        } else if cell.has_reply() && self.idle_probe.is_none() {
            self.idle_probe = Some(IdleProbe {
                request: None,
                asked: 0,
                is_idle: false,
                next_at: Some(Instant::now() + IDLE_TIMEOUT),
            });
        }
    }

    fn become_ready(&mut self) {
        if let Phase::Asking(channels) = std::mem::replace(&mut self.phase, Phase::Closed) {
            self.phase = Phase::Ready(channels);
        }
        self.connection = None;
        self.idle_probe = None;
        self.events.push_back(InterpreterEvent::Frame(Frame {
            kind: Report::Ready,
            fields: Vec::new(),
        }));
    }

    /// Sends a request that changes nothing, for the sake of its `idle`.
    fn probe_idle(&mut self) {
        let (Phase::Asking(channels) | Phase::Ready(channels)) = &mut self.phase else {
            return;
        };
        let request = self.session.request("kernel_info_request", &json!({}));
        channels.shell.send(&request.parts());
        self.idle_probe = Some(IdleProbe {
            request: Some(request.id),
            asked: self.idle_probe.as_ref().map_or(0, |before| before.asked) + 1,
            is_idle: false,
            next_at: None,
        });
    }

    fn listen(&mut self, index: usize) {
        let pipe = &mut self.pipes[index];
        let Some(text) = pipe.read(READ_BYTES) else {
            return;
        };
        match self.phase {
            Phase::Connecting(_) | Phase::Asking(_) => {
                let said = InterpreterEvent::Output(pipe.channel(), text);
                self.events.push_back(said);
            }
            // What the kernel's own program logs is not output of the cell.
            Phase::Ready(_) | Phase::Closed => keep_end(&mut self.stderr_tail, &text),
        }
    }

    /// Nothing can be run in it any more.
    fn close(&mut self, error: &zmtp::Error) {
        tracing::info!(
            error = %api::error_chain(error),
            "a kernel's connection ended"
        );
        self.phase = Phase::Closed;
        self.kill();
    }

    fn die(&mut self, exit: Exit) {
        self.receive();
        for index in 0..self.pipes.len() {
            self.listen(index);
        }
        if !self.stderr_tail.is_empty() && self.cell.is_some() {
            let words = std::mem::take(&mut self.stderr_tail);
            let words = InterpreterEvent::Output(Channel::Stderr, words);
            self.events.push_back(words);
        }
        self.events.push_back(InterpreterEvent::Died(exit));
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.kill();
    }
}

enum Event {
    Connected(Result<Box<Channels>, zmtp::Error>),
    Readable,
    ProbeIdle,
    Said(usize),
    Died(Exit),
}

impl Phase {
    /// How long an `idle` may be behind its answer.
    fn idle_timeout(&self) -> Duration {
        match self {
            Self::Connecting(_) | Self::Asking(_) => IDLE_TIMEOUT_STARTING,
            Self::Ready(_) | Self::Closed => IDLE_TIMEOUT,
        }
    }

    async fn event(&mut self) -> Event {
        match self {
            Self::Connecting(connecting) => Event::Connected(connecting.await),
            Self::Asking(channels) | Self::Ready(channels) => {
                tokio::select! {
                    () = channels.shell.ready() => {}
                    () = channels.iopub.ready() => {}
                    () = channels.control.ready() => {}
                    () = channels.stdin.ready() => {}
                }
                Event::Readable
            }
            Self::Closed => std::future::pending().await,
        }
    }
}

impl Channels {
    /// In the order in which their messages are looked at: output before answers.
    fn each(&mut self) -> [&mut Socket; 4] {
        [
            &mut self.iopub,
            &mut self.shell,
            &mut self.control,
            &mut self.stdin,
        ]
    }
}

async fn due(idle_probe: Option<&IdleProbe>) {
    match idle_probe.and_then(|idle_probe| idle_probe.next_at) {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The subscription goes first, so that it is there when the first request is answered. Shell
/// and stdin share an identity: that is how the kernel finds who to ask for input.
fn connect(
    connection: &Connection,
    identity: &str,
) -> impl Future<Output = Result<Box<Channels>, zmtp::Error>> + Send + Sync + use<> {
    let address = |port| connection.address(port);
    let [iopub, shell, control, stdin] =
        [Port::Iopub, Port::Shell, Port::Control, Port::Stdin].map(address);
    let identity = identity.to_owned();
    async move {
        Ok(Box::new(Channels {
            iopub: connect_to(iopub, Role::Subscriber, &identity).await?,
            shell: connect_to(shell, Role::Dealer, &identity).await?,
            control: connect_to(control, Role::Dealer, &identity).await?,
            stdin: connect_to(stdin, Role::Dealer, &identity).await?,
        }))
    }
}

async fn connect_to(
    address: std::net::SocketAddrV4,
    role: Role,
    identity: &str,
) -> Result<Socket, zmtp::Error> {
    let mut attempts = tokio::time::interval(CONNECT_EVERY);
    attempts.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        attempts.tick().await;
        match Socket::connect(address, role, identity).await {
            Err(zmtp::Error::Io(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            settled => return settled,
        }
    }
}

fn keep_end(kept: &mut String, text: &str) {
    kept.push_str(text);
    let mut over = kept.len().saturating_sub(STDERR_TAIL_BYTES);
    while !kept.is_char_boundary(over) {
        over += 1;
    }
    kept.drain(..over);
}
