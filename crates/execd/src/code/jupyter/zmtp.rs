//! ZeroMQ's wire protocol, ZMTP 3.0, as far as a client of a Jupyter kernel speaks it: a
//! connection that is opened here, no security mechanism, a DEALER or SUB socket at this end.
//!
//! The peer runs user code, so what it sends is untrusted: a message over the limit is passed
//! over without being kept, and bytes that do not add up end the connection. Deliberately not
//! here: listening, reconnecting, and queues that grow.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddrV4;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::TcpStream;

/// Bytes of one message. A kernel that prints a lot at once puts it into one message; a value
/// has a limit of its own, which is smaller.
pub(super) const MESSAGE_BYTES: usize = 32 * 1024 * 1024;

/// Frames of one message: a kernel's has a topic, six frames of the envelope, and buffers.
const PARTS_MAX: usize = 64;

/// Bytes of a command of the protocol itself; they have a name and some properties.
const COMMAND_BYTES: usize = 4096;

/// How much is read at once, and how often before others have their turn.
const READ_BYTES: usize = 64 * 1024;
const READS_MAX: usize = 16;

/// A buffer larger than this is given back when it is empty.
const KEPT_BUFFER_BYTES: usize = 256 * 1024;

const GREETING_BYTES: usize = 64;
const FLAG_MORE: u8 = 1;
const FLAG_LONG: u8 = 2;
const FLAG_COMMAND: u8 = 4;

/// What this end of a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Dealer,
    /// Subscribed to everything.
    Subscriber,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("the connection failed")]
    Io(#[from] io::Error),
    #[error("the peer does not speak ZMTP 3 without a security mechanism")]
    NotZmtp,
    #[error(transparent)]
    MalformedFrame(#[from] MalformedFrame),
}

/// The bytes are not ZMTP.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kernel sent something that is not a ZeroMQ frame")]
pub(super) struct MalformedFrame;

/// What came over a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    Message(Vec<Vec<u8>>),
    Command(Vec<u8>),
    /// A message of at least this many bytes was passed over.
    TooLarge(u64),
}

/// One connection to a kernel.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    outgoing: Vec<u8>,
    decoder: Decoder,
}

impl Socket {
    /// Connects and shakes hands. Fails at once when nobody listens.
    pub(super) async fn connect(
        address: SocketAddrV4,
        role: Role,
        identity: &str,
    ) -> Result<Self, Error> {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        stream.write_all(&greeting()).await?;
        let mut theirs = [0; GREETING_BYTES];
        stream.read_exact(&mut theirs).await?;
        if !is_null_greeting(&theirs) {
            return Err(Error::NotZmtp);
        }
        stream.write_all(&ready_command(role, identity)).await?;
        let mut socket = Self {
            stream,
            outgoing: Vec::new(),
            decoder: Decoder::default(),
        };
        socket.await_ready().await?;
        if role == Role::Subscriber {
            socket.send(&[b"\x01"]);
        }
        Ok(socket)
    }

    async fn await_ready(&mut self) -> Result<(), Error> {
        let mut buffer = [0; COMMAND_BYTES];
        loop {
            match self.decoder.next() {
                Some(Received::Command(command)) if command.starts_with(b"\x05READY") => {
                    return Ok(());
                }
                Some(_) => return Err(Error::NotZmtp),
                None => {}
            }
            let size = self.stream.read(&mut buffer).await?;
            if size == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            self.decoder.push(&buffer[..size])?;
        }
    }

    /// Takes a message to send; [`Self::pump`] sends what does not go out at once.
    pub(super) fn send(&mut self, parts: &[&[u8]]) {
        for (index, part) in parts.iter().enumerate() {
            let more = if index + 1 < parts.len() {
                FLAG_MORE
            } else {
                0
            };
            put_frame(&mut self.outgoing, more, part);
        }
        // A failure shows itself in the pump.
        let _ = self.flush();
    }

    /// Waits until there is something for [`Self::pump`] to do.
    pub(super) async fn ready(&self) {
        let interest = match self.outgoing.is_empty() {
            true => Interest::READABLE,
            false => Interest::READABLE | Interest::WRITABLE,
        };
        // An error shows itself in the pump.
        let _ = self.stream.ready(interest).await;
    }

    /// Sends and reads what can be without waiting. An error is the end of the connection.
    pub(super) fn pump(&mut self) -> Result<(), Error> {
        self.flush()?;
        let mut buffer = vec![0; READ_BYTES];
        for _ in 0..READS_MAX {
            match self.stream.try_read(&mut buffer) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(size) => self.decoder.push(&buffer[..size])?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The oldest message that has arrived. Commands of the protocol are answered here.
    pub(super) fn next(&mut self) -> Option<Received> {
        loop {
            match self.decoder.next()? {
                Received::Command(command) => self.answer(&command),
                arrived => return Some(arrived),
            }
        }
    }

    /// A newer peer may ask whether we live, with a context of up to 16 bytes to send back.
    fn answer(&mut self, command: &[u8]) {
        if let Some(context) = command
            .strip_prefix(b"\x04PING")
            .and_then(|rest| rest.get(2..))
            .filter(|context| context.len() <= 16)
        {
            let mut pong = b"\x04PONG".to_vec();
            pong.extend_from_slice(context);
            put_frame(&mut self.outgoing, FLAG_COMMAND, &pong);
            let _ = self.flush();
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            match self.stream.try_write(&self.outgoing) {
                Ok(size) => drop(self.outgoing.drain(..size)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        if self.outgoing.capacity() > KEPT_BUFFER_BYTES {
            self.outgoing = Vec::new();
        }
        Ok(())
    }
}

/// Signature, version 3.0, mechanism NULL.
fn greeting() -> [u8; GREETING_BYTES] {
    let mut greeting = [0; GREETING_BYTES];
    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    greeting[10] = 3;
    greeting[12..16].copy_from_slice(b"NULL");
    greeting
}

fn is_null_greeting(theirs: &[u8; GREETING_BYTES]) -> bool {
    let mechanism_end = theirs[12..32].iter().position(|&byte| byte == 0);
    theirs[0] == 0xff
        && theirs[9] & 1 == 1
        && theirs[10] >= 3
        && &theirs[12..12 + mechanism_end.unwrap_or(20)] == b"NULL"
}

fn ready_command(role: Role, identity: &str) -> Vec<u8> {
    let name: &[u8] = match role {
        Role::Dealer => b"DEALER",
        Role::Subscriber => b"SUB",
    };
    let mut body = b"\x05READY".to_vec();
    put_property(&mut body, b"Socket-Type", name);
    if role == Role::Dealer {
        put_property(&mut body, b"Identity", identity.as_bytes());
    }
    let mut out = Vec::new();
    put_frame(&mut out, FLAG_COMMAND, &body);
    out
}

fn put_property(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.push(u8::try_from(name.len()).expect("property names are short"));
    out.extend_from_slice(name);
    let length = u32::try_from(value.len()).expect("property values are short");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(value);
}

fn put_frame(out: &mut Vec<u8>, flags: u8, body: &[u8]) {
    match u8::try_from(body.len()) {
        Ok(length) => out.extend_from_slice(&[flags, length]),
        Err(_) => {
            out.push(flags | FLAG_LONG);
            out.extend_from_slice(&(body.len() as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(body);
}

/// Puts messages together from pieces of any size.
#[derive(Debug, Default)]
struct Decoder {
    pending: Vec<u8>,
    /// Bytes of a frame that is not kept which are still to come.
    skipping: u64,
    parts: Vec<Vec<u8>>,
    /// Bytes of the message under way.
    size: u64,
    /// The message under way is over the limit; its frames are passed over.
    is_too_large: bool,
    arrived: VecDeque<Received>,
}

/// The head of a frame.
struct Head {
    flags: u8,
    length: u64,
    bytes: usize,
}

impl Decoder {
    fn push(&mut self, bytes: &[u8]) -> Result<(), MalformedFrame> {
        let skipped = usize::try_from(self.skipping).unwrap_or(usize::MAX);
        let skipped = skipped.min(bytes.len());
        self.skipping -= skipped as u64;
        self.pending.extend_from_slice(&bytes[skipped..]);
        let mut at = 0;
        while let Some(head) = head(&self.pending[at..])? {
            let body = at + head.bytes;
            let here = self.pending.len() - body;
            if !self.keeps(&head) {
                let skipped = head.length.min(here as u64);
                self.skipping = head.length - skipped;
                at = body + usize::try_from(skipped).expect("not over what is here");
                self.end_frame(head.flags, None);
                continue;
            }
            let length = usize::try_from(head.length).expect("within the limit");
            if here < length {
                break;
            }
            let part = self.pending[body..body + length].to_vec();
            at = body + length;
            match head.flags & FLAG_COMMAND {
                0 => {
                    self.size += head.length;
                    self.end_frame(head.flags, Some(part));
                }
                _ => self.arrived.push_back(Received::Command(part)),
            }
        }
        self.pending.drain(..at);
        if self.pending.is_empty() && self.pending.capacity() > KEPT_BUFFER_BYTES {
            self.pending = Vec::new();
        }
        Ok(())
    }

    fn next(&mut self) -> Option<Received> {
        self.arrived.pop_front()
    }

    /// Whether the frame is kept; when it is not, nothing of its message is from here on.
    fn keeps(&mut self, head: &Head) -> bool {
        if head.flags & FLAG_COMMAND != 0 {
            return true;
        }
        let size = self.size.saturating_add(head.length);
        if size > MESSAGE_BYTES as u64 || self.parts.len() >= PARTS_MAX {
            self.is_too_large = true;
        }
        if self.is_too_large {
            self.size = size;
            self.parts.clear();
        }
        !self.is_too_large
    }

    fn end_frame(&mut self, flags: u8, part: Option<Vec<u8>>) {
        self.parts.extend(part);
        if flags & FLAG_MORE != 0 {
            return;
        }
        let parts = std::mem::take(&mut self.parts);
        self.arrived.push_back(match self.is_too_large {
            true => Received::TooLarge(self.size),
            false => Received::Message(parts),
        });
        self.size = 0;
        self.is_too_large = false;
    }
}

fn head(bytes: &[u8]) -> Result<Option<Head>, MalformedFrame> {
    let Some(&flags) = bytes.first() else {
        return Ok(None);
    };
    let is_command = flags & FLAG_COMMAND != 0;
    if flags & !(FLAG_MORE | FLAG_LONG | FLAG_COMMAND) != 0 || is_command && flags & FLAG_MORE != 0
    {
        return Err(MalformedFrame);
    }
    let (length, size) = match flags & FLAG_LONG {
        0 => (bytes.get(1).map(|&length| u64::from(length)), 2),
        _ => {
            let length = bytes.get(1..9).and_then(|length| length.try_into().ok());
            (length.map(u64::from_be_bytes), 9)
        }
    };
    let Some(length) = length else {
        return Ok(None);
    };
    if is_command && length > COMMAND_BYTES as u64 || length > i64::MAX as u64 {
        return Err(MalformedFrame);
    }
    Ok(Some(Head {
        flags,
        length,
        bytes: size,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(chunks: &[&[u8]]) -> Result<Vec<Received>, MalformedFrame> {
        let mut decoder = Decoder::default();
        let mut all = Vec::new();
        for chunk in chunks {
            decoder.push(chunk)?;
            all.extend(std::iter::from_fn(|| decoder.next()));
        }
        Ok(all)
    }

    proptest! {
        #[test]
        fn messages_survive_any_cut(
            messages in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..5), 0..4),
            cut in 1usize..300,
        ) {
            let mut bytes = Vec::new();
            for parts in &messages {
                for (index, part) in parts.iter().enumerate() {
                    put_frame(&mut bytes, u8::from(index + 1 < parts.len()), part);
                }
            }
            let chunks: Vec<&[u8]> = bytes.chunks(cut).collect();
            let expected: Vec<Received> = messages.into_iter().map(Received::Message).collect();
            prop_assert_eq!(decode(&chunks).unwrap(), expected);
        }

        #[test]
        fn anything_else_is_an_error_and_not_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&[&bytes]);
        }
    }

    #[test]
    fn a_message_over_the_limit_is_passed_over_without_being_kept() {
        let mut decoder = Decoder::default();
        let length = MESSAGE_BYTES as u64 + 10;
        let mut head = vec![FLAG_LONG | FLAG_MORE];
        head.extend_from_slice(&length.to_be_bytes());
        decoder.push(&head).unwrap();
        let piece = vec![0; 1024 * 1024];
        let mut left = usize::try_from(length).unwrap();
        while left > 0 {
            let size = left.min(piece.len());
            decoder.push(&piece[..size]).unwrap();
            left -= size;
            assert!(decoder.pending.len() < 16, "nothing of it is kept");
        }
        let mut rest = Vec::new();
        put_frame(&mut rest, 0, b"the last frame of the same message");
        put_frame(&mut rest, 0, b"next");
        decoder.push(&rest).unwrap();
        assert!(matches!(decoder.next(), Some(Received::TooLarge(size)) if size > length));
        assert_eq!(
            decoder.next(),
            Some(Received::Message(vec![b"next".to_vec()]))
        );
    }

    #[test]
    fn a_message_of_endless_frames_is_not_kept() {
        let mut decoder = Decoder::default();
        for _ in 0..1000 {
            decoder.push(&[FLAG_MORE, 0]).unwrap();
            assert!(decoder.parts.len() <= PARTS_MAX);
        }
        decoder.push(&[0, 0]).unwrap();
        assert!(matches!(decoder.next(), Some(Received::TooLarge(_))));
    }

    #[test]
    fn commands_are_bounded_and_never_come_in_parts() {
        assert_eq!(
            decode(&[&[FLAG_COMMAND | FLAG_MORE, 0]]),
            Err(MalformedFrame)
        );
        let mut long = vec![FLAG_COMMAND | FLAG_LONG];
        long.extend_from_slice(&(COMMAND_BYTES as u64 + 1).to_be_bytes());
        assert_eq!(decode(&[&long]), Err(MalformedFrame));
        assert_eq!(
            decode(&[&[0x80, 0]]),
            Err(MalformedFrame),
            "a flag nobody knows"
        );
    }

    #[test]
    fn only_version_three_without_a_mechanism_is_greeted() {
        assert!(is_null_greeting(&greeting()));
        let mut old = greeting();
        old[10] = 1;
        assert!(!is_null_greeting(&old));
        let mut secured = greeting();
        secured[12..17].copy_from_slice(b"CURVE");
        assert!(!is_null_greeting(&secured));
        assert!(!is_null_greeting(&[b'H'; GREETING_BYTES]));
    }
}
