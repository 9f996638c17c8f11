//! A language driver: a process of the image's own interpreter that runs one of the scripts in
//! `drivers/`, with a channel for frames and pipes for what user code prints.
//!
//! What was printed before a frame was sent is always reported before that frame, although they
//! travel on different descriptors: whoever writes the frame has written the output first, so
//! draining the pipes when a frame arrives keeps the order.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use super::frame::{Decoded, Decoder, Frame, Report};
use super::sink::Channel;
use crate::path::Environment;
use crate::process::{Exit, Launch, LaunchError, Process};
use crate::state::Shared;
use crate::sys;

/// The number the channel has in the driver; its script is told.
const CHANNEL_NUMBER: i32 = 3;

/// The number of the second channel, for drivers that have one.
const FRAMES_NUMBER: i32 = 4;

/// How much is read from a pipe at once.
pub(super) const READ_BYTES: usize = 64 * 1024;

/// Outputs that are read ahead while a cell is handed over.
const READ_AHEAD_MAX: usize = 64;

/// How a driver is started.
pub(super) struct DriverSpec {
    /// The interpreter and its arguments.
    pub(super) argv: Vec<OsString>,
    pub(super) environment: Environment,
    pub(super) directory: Option<PathBuf>,
    pub(super) channels: Channels,
}

/// How frames travel between execd and a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channels {
    /// Both ways on one socket.
    OneSocket,
    /// Both ways on one socket that is standard input too: the interpreter reads its commands there.
    StandardInput,
    /// The driver's frames come on a second socket that blocks, because the event loop that reads
    /// the first one makes that non-blocking for both directions.
    TwoSockets,
}

/// What happened in a driver.
#[derive(Debug)]
pub(super) enum InterpreterEvent {
    Output(Channel, String),
    Frame(Frame),
    /// A value of this many bytes was over the limit and is not shown.
    TooLarge(usize),
    /// The process has ended; nothing follows.
    Died(Exit),
}

/// A running driver.
pub(super) struct Driver {
    process: Process,
    channel: UnixStream,
    frames: Option<UnixStream>,
    /// User code may close the other end; then only the end of the process is left to come.
    is_channel_open: bool,
    decoder: Decoder,
    pipes: [Pipe; 2],
    events: VecDeque<InterpreterEvent>,
}

pub(super) struct Pipe {
    channel: Channel,
    /// `None` when every writer has closed it.
    reader: Option<pipe::Receiver>,
    /// The beginning of a character whose rest has not come.
    carry: Vec<u8>,
}

impl Driver {
    /// Starts the interpreter. It says when it is ready with its first frame.
    pub(super) async fn start(shared: &Arc<Shared>, spec: DriverSpec) -> Result<Self, LaunchError> {
        let (ours, theirs) = StdUnixStream::pair().map_err(LaunchError::Descriptors)?;
        let (out_read, out_write) = pipe_with(PipeFlags::CLOEXEC).map_err(descriptors)?;
        let (err_read, err_write) = pipe_with(PipeFlags::CLOEXEC).map_err(descriptors)?;
        let stdin = match spec.channels {
            Channels::StandardInput => theirs.try_clone().map(OwnedFd::from),
            Channels::OneSocket | Channels::TwoSockets => shared.processes.null(),
        };
        let mut descriptors = vec![(theirs.into(), CHANNEL_NUMBER)];
        let mut frames = None;
        if spec.channels == Channels::TwoSockets {
            let (ours, theirs) = StdUnixStream::pair().map_err(LaunchError::Descriptors)?;
            descriptors.push((theirs.into(), FRAMES_NUMBER));
            frames = Some(watched(ours)?);
        }
        let launch = Launch {
            argv: spec.argv,
            environment: spec.environment,
            directory: spec.directory,
            identity: None,
            stdio: [
                stdin.map_err(LaunchError::Descriptors)?,
                out_write,
                err_write,
            ],
            descriptors,
            takes_terminal: false,
        };
        let process = shared.processes.launch_bound(launch).await?;
        Ok(Self {
            process,
            channel: watched(ours)?,
            frames,
            is_channel_open: true,
            decoder: Decoder::default(),
            pipes: [
                Pipe::new(Channel::Stdout, out_read).map_err(LaunchError::Descriptors)?,
                Pipe::new(Channel::Stderr, err_read).map_err(LaunchError::Descriptors)?,
            ],
            events: VecDeque::new(),
        })
    }

    /// Hands over bytes: a frame, or a shell's commands. Reads what the interpreter prints
    /// meanwhile, because one that cannot print does not read.
    pub(super) async fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let [out, err] = &self.pipes;
            let has_room = self.events.len() < READ_AHEAD_MAX;
            tokio::select! {
                ready = self.channel.writable() => {
                    ready?;
                    match self.channel.try_write(bytes) {
                        Ok(size) => bytes = &bytes[size..],
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => return Err(error),
                    }
                }
                () = out.readable(), if has_room => self.read_pipe(0),
                () = err.readable(), if has_room => self.read_pipe(1),
                _ = self.incoming().readable(), if has_room && self.is_channel_open => self.read_channel(),
            }
        }
        Ok(())
    }

    /// What happens next. May be dropped and called again.
    pub(super) async fn next(&mut self) -> InterpreterEvent {
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            let [out, err] = &self.pipes;
            let exit = tokio::select! {
                () = out.readable() => { self.read_pipe(0); None }
                () = err.readable() => { self.read_pipe(1); None }
                _ = self.incoming().readable(), if self.is_channel_open => { self.read_channel(); None }
                exit = self.process.wait() => Some(exit),
            };
            if let Some(exit) = exit {
                self.read_channel();
                self.drain_pipes();
                self.events.push_back(InterpreterEvent::Died(exit));
            }
        }
    }

    pub(super) fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Asks user code to stop, as Ctrl-C would: the interpreter and what it started.
    pub(super) fn interrupt(&self) {
        self.process.signal_group(Signal::INT);
    }

    /// Ends the interpreter and every process of its group.
    pub(super) fn kill(&self) {
        self.process.signal_group(Signal::KILL);
    }

    /// Where frames come from.
    fn incoming(&self) -> &UnixStream {
        self.frames.as_ref().unwrap_or(&self.channel)
    }

    /// Says that everything so far has been read. A driver asks and then waits, so there is room
    /// for the answer; one that does not wait gets none.
    fn acknowledge(&self, question: &Frame) {
        if let (Some(frames), Some(mark)) = (&self.frames, question.fields.first()) {
            let _ = frames.try_write(mark);
        }
    }

    fn read_pipe(&mut self, index: usize) {
        let pipe = &mut self.pipes[index];
        if let Some(text) = pipe.read(READ_BYTES) {
            self.events
                .push_back(InterpreterEvent::Output(pipe.channel, text));
        }
    }

    /// Reads what the pipes hold now and no more: a thread may print without pause.
    fn drain_pipes(&mut self) {
        for index in 0..self.pipes.len() {
            let mut left = self.pipes[index].waiting();
            while left > 0 {
                let pipe = &mut self.pipes[index];
                let before = left;
                if let Some(text) = pipe.read(left.min(READ_BYTES)) {
                    left = left.saturating_sub(text.len().max(1));
                    self.events
                        .push_back(InterpreterEvent::Output(pipe.channel, text));
                }
                if left == before {
                    break;
                }
            }
        }
    }

    fn read_channel(&mut self) {
        let mut buffer = [0; 16 * 1024];
        let mut is_malformed = false;
        while self.is_channel_open {
            match read_now(self.incoming(), &mut buffer, UnixStream::try_read) {
                Ok(0) => {
                    self.is_channel_open = false;
                    break;
                }
                Ok(size) => {
                    if self.decoder.push(&buffer[..size]).is_err() {
                        is_malformed = true;
                        break;
                    }
                    if size < buffer.len() {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        while let Some(arrived) = self.decoder.next() {
            self.drain_pipes();
            self.events.push_back(match arrived {
                Decoded::Frame(frame) if frame.kind == Report::Sync && self.frames.is_some() => {
                    self.acknowledge(&frame);
                    continue;
                }
                Decoded::Frame(frame) => InterpreterEvent::Frame(frame),
                Decoded::TooLarge(size) => InterpreterEvent::TooLarge(size),
            });
        }
        if is_malformed || !self.is_channel_open {
            // Nothing can be run in it any more.
            self.is_channel_open = false;
            self.kill();
        }
    }
}

impl Drop for Driver {
    /// A context that goes takes everything with it that its code started.
    fn drop(&mut self) {
        self.kill();
    }
}

impl Pipe {
    pub(super) fn new(channel: Channel, fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self {
            channel,
            reader: Some(pipe::Receiver::from_owned_fd(fd)?),
            carry: Vec::new(),
        })
    }

    pub(super) fn channel(&self) -> Channel {
        self.channel
    }

    pub(super) async fn readable(&self) {
        match &self.reader {
            // An error shows itself in the read that follows.
            Some(reader) => drop(reader.readable().await),
            None => std::future::pending().await,
        }
    }

    fn waiting(&self) -> usize {
        self.reader.as_ref().map_or(0, sys::readable_bytes)
    }

    /// The text that can be read now, at most so many bytes of it.
    pub(super) fn read(&mut self, most: usize) -> Option<String> {
        let mut buffer = vec![0; most];
        let size = match read_now(self.reader.as_ref()?, &mut buffer, pipe::Receiver::try_read) {
            Ok(size) if size > 0 => size,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Ok(_) | Err(_) => {
                self.reader = None;
                0
            }
        };
        let mut bytes = std::mem::take(&mut self.carry);
        bytes.extend_from_slice(&buffer[..size]);
        if self.reader.is_some() {
            let whole = bytes.len() - incomplete_suffix(&bytes);
            self.carry = bytes.split_off(whole);
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        (!text.is_empty()).then_some(text)
    }
}

/// Reads what is there. The runtime says that there is nothing as long as it has not heard of the
/// bytes from the kernel, as when a process printed and ended at once; the descriptor itself knows.
fn read_now<R: AsFd>(
    reader: &R,
    buffer: &mut [u8],
    try_read: fn(&R, &mut [u8]) -> io::Result<usize>,
) -> io::Result<usize> {
    match try_read(reader, buffer) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Ok(rustix::io::read(reader, buffer)?)
        }
        read => read,
    }
}

/// How many bytes at the end begin a character that is not complete.
fn incomplete_suffix(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    match std::str::from_utf8(tail) {
        Err(error) if error.error_len().is_none() => tail.len() - error.valid_up_to(),
        // The tail may begin inside a character; then look behind its broken front.
        Err(error) => {
            let skip = error.valid_up_to() + error.error_len().unwrap_or(tail.len());
            if skip >= tail.len() {
                0
            } else {
                incomplete_suffix(&tail[skip..])
            }
        }
        Ok(_) => 0,
    }
}

fn watched(socket: StdUnixStream) -> Result<UnixStream, LaunchError> {
    let watch = || {
        socket.set_nonblocking(true)?;
        UnixStream::from_std(socket)
    };
    watch().map_err(LaunchError::Descriptors)
}

fn descriptors(error: rustix::io::Errno) -> LaunchError {
    LaunchError::Descriptors(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_is_never_cut() {
        let text = "aü€😀";
        for cut in 0..=text.len() {
            let bytes = &text.as_bytes()[..cut];
            let whole = cut - incomplete_suffix(bytes);
            assert!(text.is_char_boundary(whole), "cut at {cut}");
            assert!(cut - whole < 4);
        }
        assert_eq!(
            incomplete_suffix(b"ab\xff"),
            0,
            "what can never be a character does not wait"
        );
    }
}
