//! Lets a viewer look and not touch: of what a VNC client says (RFC 6143), only what asks for pictures
//! passes.
//!
//! The parser sees the client's side of the conversation alone. What it does not know ends the
//! connection, because the length of an unknown message is unknown and the next byte could be a key.

/// Bytes of one message that are looked at together; the longest that passes is a list of encodings.
const MESSAGE_BYTES_MAX: usize = 4 + 4 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Version,
    Security,
    /// The answer to a password's challenge.
    Response,
    Init,
    Message,
    /// The rest of a message that does not pass.
    Skip(usize),
}

/// Why a viewer's connection ends.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("view_only understands RFB 3.7 and 3.8")]
    Version,
    #[error("view_only understands no security and a VNC password, not security type {0}")]
    Security(u8),
    #[error("view_only does not know the message type {0}")]
    Message(u8),
    #[error("a message of {0} bytes is too long")]
    Length(usize),
}

/// The filter of one connection.
pub(crate) struct ViewOnly {
    state: State,
    held: Vec<u8>,
}

impl ViewOnly {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Version,
            held: Vec::new(),
        }
    }

    /// Takes what the client sent and gives what the server may see of it.
    pub(crate) fn pass(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Refused> {
        self.held.extend_from_slice(bytes);
        let mut out = Vec::new();
        while let Some((length, passes)) = self.step()? {
            let part = self.held.drain(..length);
            if passes {
                out.extend(part);
            }
        }
        Ok(out)
    }

    /// The length of what stands first, and whether it passes; `None` when more must come.
    fn step(&mut self) -> Result<Option<(usize, bool)>, Refused> {
        let available = self.held.len();
        if available == 0 {
            return Ok(None);
        }
        let whole = |length: usize| available >= length;
        match self.state {
            State::Version if !whole(12) => Ok(None),
            State::Version => {
                if !matches!(&self.held[..12], b"RFB 003.008\n" | b"RFB 003.007\n") {
                    return Err(Refused::Version);
                }
                self.state = State::Security;
                Ok(Some((12, true)))
            }
            State::Security => {
                self.state = match self.held[0] {
                    1 => State::Init,
                    2 => State::Response,
                    other => return Err(Refused::Security(other)),
                };
                Ok(Some((1, true)))
            }
            State::Response if !whole(16) => Ok(None),
            State::Response => {
                self.state = State::Init;
                Ok(Some((16, true)))
            }
            State::Init => {
                self.state = State::Message;
                Ok(Some((1, true)))
            }
            State::Skip(left) => {
                let now = left.min(available);
                self.state = if now == left {
                    State::Message
                } else {
                    State::Skip(left - now)
                };
                Ok(Some((now, false)))
            }
            State::Message => self.message(),
        }
    }

    fn message(&mut self) -> Result<Option<(usize, bool)>, Refused> {
        let held = &self.held;
        let u16_at = |at: usize| {
            Some(usize::from(u16::from_be_bytes([
                *held.get(at)?,
                *held.get(at + 1)?,
            ])))
        };
        let (length, passes) = match held[0] {
            // SetPixelFormat
            0 => (Some(20), true),
            // SetEncodings
            2 => (u16_at(2).map(|count| 4 + 4 * count), true),
            // FramebufferUpdateRequest
            3 => (Some(10), true),
            // KeyEvent
            4 => (Some(8), false),
            // PointerEvent
            5 => (Some(6), false),
            // ClientCutText; a negative length is the extended clipboard's
            6 => {
                let length = held
                    .get(4..8)
                    .map(|at| i32::from_be_bytes([at[0], at[1], at[2], at[3]]));
                (
                    length.map(|length| 8 + length.unsigned_abs() as usize),
                    false,
                )
            }
            // EnableContinuousUpdates
            150 => (Some(10), true),
            // ClientFence
            248 => (held.get(8).map(|&length| 9 + usize::from(length)), true),
            // SetDesktopSize
            251 => (
                held.get(6).map(|&screens| 8 + 16 * usize::from(screens)),
                false,
            ),
            // QEMU's extended key event
            255 => (Some(12), false),
            other => return Err(Refused::Message(other)),
        };
        match length {
            None => Ok(None),
            Some(length) if !passes => {
                self.state = State::Skip(length);
                Ok(Some((0, false)))
            }
            Some(length) if length > MESSAGE_BYTES_MAX => Err(Refused::Length(length)),
            Some(length) if self.held.len() < length => Ok(None),
            Some(length) => Ok(Some((length, true))),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HELLO: &[u8] = b"RFB 003.008\n\x01\x01";
    const ASK: [u8; 10] = [3, 1, 0, 0, 0, 0, 4, 0, 3, 0];
    const KEY: [u8; 8] = [4, 1, 0, 0, 0, 0, 0, 97];
    const POINTER: [u8; 6] = [5, 1, 0, 10, 0, 10];
    const CUT: [u8; 11] = [6, 0, 0, 0, 0, 0, 0, 3, 3, 3, 3];
    const ENCODINGS: [u8; 8] = [2, 0, 0, 1, 0, 0, 0, 7];

    #[test]
    fn a_viewer_looks_and_does_not_touch() {
        let said = [
            HELLO, &ENCODINGS, &KEY, &ASK, &POINTER, &CUT, &[255; 12], &ASK,
        ]
        .concat();
        let passed = ViewOnly::new().pass(&said).unwrap();
        assert_eq!(passed, [HELLO, &ENCODINGS, &ASK, &ASK].concat());
    }

    #[test]
    fn what_is_unknown_ends_the_connection() {
        for (said, why) in [
            (b"RFB 003.003\n".to_vec(), Refused::Version),
            (b"RFB 003.008\n\x13".to_vec(), Refused::Security(0x13)),
            ([HELLO, &[77]].concat(), Refused::Message(77)),
        ] {
            assert_eq!(ViewOnly::new().pass(&said).unwrap_err(), why);
        }
        let long = [HELLO, &[2, 0, 0xff, 0xff]].concat();
        assert!(matches!(
            ViewOnly::new().pass(&long),
            Err(Refused::Length(_))
        ));
    }

    proptest! {
        /// However the bytes are cut, the same ones pass.
        #[test]
        fn cuts_do_not_matter(cuts in prop::collection::vec(0_usize..80, 0..10)) {
            let said = [HELLO, &ENCODINGS, &KEY, &ASK, &POINTER, &CUT, &ASK].concat();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(said.len())).collect();
            cuts.extend([0, said.len()]);
            cuts.sort_unstable();
            let mut filter = ViewOnly::new();
            let mut passed = Vec::new();
            for pair in cuts.windows(2) {
                passed.extend(filter.pass(&said[pair[0]..pair[1]]).unwrap());
            }
            prop_assert_eq!(passed, [HELLO, &ENCODINGS, &ASK, &ASK].concat());
        }

        /// No input makes it panic or hold more than one message.
        #[test]
        fn anything_may_come(bytes in prop::collection::vec(any::<u8>(), 0..6000)) {
            let mut filter = ViewOnly::new();
            if filter.pass(&[HELLO, &bytes].concat()).is_ok() {
                prop_assert!(filter.held.len() <= MESSAGE_BYTES_MAX);
            }
        }
    }
}
