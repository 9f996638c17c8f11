//! How output becomes the texts of events.
//!
//! The present shape: a line with its ending is an event, and so is a fragment; all texts
//! together are the output. The old shape, for the clients that add the line ends themselves: one
//! event per line, ending stripped, `\r` ends a line too, an empty line is the text `"\n"`, and a
//! fragment waits for its line's end.

use http::HeaderMap;
use http::header::USER_AGENT;

use super::Channel;
use crate::limits;

/// The shape of a client's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventShape {
    Present,
    Old,
}

/// The first version of each published client that wants the present shape; of the others it is 1.0.
///
/// Python joins stripped texts by line ends from 0.1.10 to 1.1.0 and so reads both shapes, but what
/// builds on 0.1.15 joins the texts as they are (google-adk 2.13). The suites of Go 1.0 and Kotlin
/// 1.0 compare texts without line ends.
const PRESENT_SINCE: [(&str, Version); 3] = [
    ("opensandbox-python-sdk", (0, 1, 11)),
    ("opensandbox-go-sdk", (1, 1, 0)),
    ("opensandbox-kotlin-sdk", (1, 1, 0)),
];

type Version = (u32, u32, u32);

impl EventShape {
    /// By the client's name and version, such as `OpenSandbox-Python-SDK/0.1.10`.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let agent = headers
            .get(USER_AGENT)
            .and_then(|value| value.to_str().ok())
            .unwrap_or("");
        let is_old = agent.split_whitespace().any(|product| {
            product
                .split_once('/')
                .is_some_and(|(name, version)| is_older(name, version))
        });
        if is_old { Self::Old } else { Self::Present }
    }
}

/// Whether a product of a `User-Agent` is a published client from before the present shape.
fn is_older(name: &str, version: &str) -> bool {
    let name = name.to_ascii_lowercase();
    if !name.starts_with("opensandbox-") || !name.ends_with("-sdk") {
        return false;
    }
    let since = PRESENT_SINCE
        .iter()
        .find_map(|(client, since)| (*client == name).then_some(*since))
        .unwrap_or((1, 0, 0));
    parse_version(version).is_some_and(|version| version < since)
}

/// The numbers of a version such as `1.0.2` or `1.0.2-rc.1`.
fn parse_version(text: &str) -> Option<Version> {
    let core = text.split(['-', '+']).next().unwrap_or_default();
    let mut numbers = core.split('.').map(|number| number.parse().ok());
    Some((
        numbers.next()??,
        numbers.next().flatten().unwrap_or(0),
        numbers.next().flatten().unwrap_or(0),
    ))
}

/// The number of bytes at the end that begin a character whose rest has not come yet.
pub(super) fn incomplete_suffix(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let wanted = match bytes[bytes.len() - back] {
            0x80..=0xBF => continue,
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            _ => return 0,
        };
        return if back < wanted { back } else { 0 };
    }
    0
}

/// Turns records into old-shape texts, holding what is not a whole line yet.
#[derive(Default)]
pub(super) struct OldLines {
    held: [Held; 2],
}

#[derive(Default)]
struct Held {
    bytes: Vec<u8>,
    /// The last line ended in `\r`; a `\n` now belongs to it.
    after_return: bool,
}

impl OldLines {
    /// Takes more output and gives every line that is complete now.
    pub(super) fn push(&mut self, channel: Channel, bytes: &[u8], mut emit: impl FnMut(&[u8])) {
        let held = &mut self.held[channel as usize];
        for &byte in bytes {
            let follows_return = std::mem::take(&mut held.after_return);
            match byte {
                b'\n' if follows_return => {}
                b'\n' | b'\r' => {
                    held.after_return = byte == b'\r';
                    emit(if held.bytes.is_empty() {
                        b"\n"
                    } else {
                        &held.bytes
                    });
                    held.bytes.clear();
                }
                _ => {
                    held.bytes.push(byte);
                    if held.bytes.len() >= limits::EVENT_BYTES
                        && incomplete_suffix(&held.bytes) == 0
                    {
                        emit(&held.bytes);
                        held.bytes.clear();
                    }
                }
            }
        }
    }

    /// What was left without a line ending.
    pub(super) fn finish(&mut self) -> impl Iterator<Item = (Channel, Vec<u8>)> {
        [Channel::Stdout, Channel::Stderr]
            .into_iter()
            .zip(std::mem::take(&mut self.held))
            .filter(|(_, held)| !held.bytes.is_empty())
            .map(|(channel, held)| (channel, held.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn old(pieces: &[&str]) -> Vec<String> {
        let mut lines = OldLines::default();
        let mut out = Vec::new();
        for piece in pieces {
            lines.push(Channel::Stdout, piece.as_bytes(), |line| {
                out.push(String::from_utf8(line.to_vec()).unwrap());
            });
        }
        out.extend(
            lines
                .finish()
                .map(|(_, bytes)| String::from_utf8(bytes).unwrap()),
        );
        out
    }

    #[test]
    fn the_old_shape_is_one_stripped_event_per_line() {
        assert_eq!(old(&["a\n\nb\n\n\nc\n"]), ["a", "\n", "b", "\n", "\n", "c"]);
        assert_eq!(old(&["a\r\nb\rc"]), ["a", "b", "c"]);
        assert_eq!(old(&["a\r", "\nb", "c\n"]), ["a", "bc"]);
        assert_eq!(old(&["half ", "a ", "line"]), ["half a line"]);
    }

    #[test]
    fn the_shape_follows_the_clients_version() {
        let shape = |agent: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(USER_AGENT, agent.parse().unwrap());
            EventShape::of(&headers)
        };
        for old in [
            "OpenSandbox-Python-SDK/0.1.10",
            "OpenSandbox-JS-SDK/0.1.11",
            "OpenSandbox-Go-SDK/1.0.2",
            "OpenSandbox-Go-SDK/1.0.0-rc.1",
            "OpenSandbox-Kotlin-SDK/1.0.12",
            "OpenSandbox-CSharp-SDK/0.1",
        ] {
            assert_eq!(shape(old), EventShape::Old, "{old}");
        }
        for present in [
            "OpenSandbox-Python-SDK/0.1.11",
            "OpenSandbox-Python-SDK/0.1.16",
            "OpenSandbox-Python-SDK/1.1.1",
            "OpenSandbox-Go-SDK/1.1.0",
            "OpenSandbox-Kotlin-SDK/1.1.0",
            "OpenSandbox-JS-SDK/1.0.0",
            "OpenSandbox-Go-SDK/unknown",
            "curl/0.9",
        ] {
            assert_eq!(shape(present), EventShape::Present, "{present}");
        }
        assert_eq!(EventShape::of(&HeaderMap::new()), EventShape::Present);
    }

    #[test]
    fn finds_characters_that_are_not_complete() {
        let check =
            |bytes: &[u8], expected| assert_eq!(incomplete_suffix(bytes), expected, "{bytes:?}");
        check(b"abc", 0);
        check("aü".as_bytes(), 0);
        check(&"aü".as_bytes()[..2], 1);
        check(&"€".as_bytes()[..2], 2);
        check(&"😀".as_bytes()[..3], 3);
        check("😀".as_bytes(), 0);
        check(b"\xff", 0);
        check(b"\x80\x80\x80\x80", 0);
        check(b"", 0);
    }
}
