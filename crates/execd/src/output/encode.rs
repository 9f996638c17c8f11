//! Events as bytes: one JSON object and an empty line, with no `data:` in front.
//!
//! Output events are written by hand: there are hundreds of thousands a second of them.
//! All others go through the wire type.

use std::io::Write as _;

use api::exec::event::{Event, EventKind, ExecutionError};

use super::journal::{Channel, Ending};
use crate::process::Exit;

/// An output event. Bytes that are not UTF-8 become U+FFFD.
pub(super) fn output(
    out: &mut Vec<u8>,
    channel: Channel,
    bytes: &[u8],
    time_ms: i64,
    seq: Option<u64>,
) {
    out.extend_from_slice(match channel {
        Channel::Stdout => br#"{"type":"stdout","text":""#,
        Channel::Stderr => br#"{"type":"stderr","text":""#,
    });
    escape(out, &String::from_utf8_lossy(bytes));
    out.extend_from_slice(br#"","timestamp":"#);
    // Writing to a vector cannot fail.
    let _ = write!(out, "{time_ms}");
    if let Some(seq) = seq {
        let _ = write!(out, r#","seq":{seq}"#);
    }
    out.extend_from_slice(b"}\n\n");
}

/// The first event.
pub(super) fn init(out: &mut Vec<u8>, id: &str, time_ms: i64, seq: Option<u64>) {
    event(
        out,
        &Event {
            seq,
            ..Event::with_text(EventKind::Init, time_ms, id)
        },
    );
}

/// The event that says the stream lives.
pub(super) fn ping(out: &mut Vec<u8>, time_ms: i64) {
    event(out, &Event::with_text(EventKind::Ping, time_ms, "pong"));
}

/// `execution_complete` at once, for a command that goes on in the background.
pub(super) fn started(out: &mut Vec<u8>, time_ms: i64, seq: Option<u64>) {
    let execution_time = Some(0);
    event(
        out,
        &Event {
            seq,
            execution_time,
            ..Event::new(EventKind::ExecutionComplete, time_ms)
        },
    );
}

/// The last event: `execution_complete` or `error`, never both.
pub(super) fn ending(out: &mut Vec<u8>, ending: &Ending, seq: Option<u64>) {
    let last = match ending {
        Ending::Exited {
            exit: Exit::Code(0),
            time_ms,
            took_ms,
        } => Event {
            execution_time: Some(*took_ms),
            ..Event::new(EventKind::ExecutionComplete, *time_ms)
        },
        Ending::Exited { exit, time_ms, .. } => Event::failed(*time_ms, error_of(*exit)),
        Ending::TimedOut { time_ms } => {
            let mut error = ExecutionError::signal("killed");
            error
                .traceback
                .push("the command ran out of its timeout".to_owned());
            Event::failed(*time_ms, error)
        }
        Ending::NotStarted { message, time_ms } => {
            Event::failed(*time_ms, ExecutionError::not_started(message))
        }
    };
    event(out, &Event { seq, ..last });
}

fn error_of(exit: Exit) -> ExecutionError {
    match exit {
        Exit::Code(code) => ExecutionError::exit_code(code),
        Exit::Signal(signal) => ExecutionError::signal(&signal_name(signal)),
        Exit::Lost => ExecutionError::signal("unknown, the process was collected by another"),
    }
}

/// The name the reference daemon's runtime gives a signal.
pub(crate) fn signal_name(signal: i32) -> String {
    let name = match signal {
        libc::SIGHUP => "hangup",
        libc::SIGINT => "interrupt",
        libc::SIGQUIT => "quit",
        libc::SIGILL => "illegal instruction",
        libc::SIGABRT => "aborted",
        libc::SIGFPE => "floating point exception",
        libc::SIGKILL => "killed",
        libc::SIGBUS => "bus error",
        libc::SIGSEGV => "segmentation fault",
        libc::SIGPIPE => "broken pipe",
        libc::SIGALRM => "alarm clock",
        libc::SIGTERM => "terminated",
        libc::SIGUSR1 => "user defined signal 1",
        libc::SIGUSR2 => "user defined signal 2",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

fn event(out: &mut Vec<u8>, event: &Event) {
    let json = serde_json::to_string(event).expect("an event has string keys only");
    escape_separators(out, &json);
    out.extend_from_slice(b"\n\n");
}

/// The text between the quotes of a JSON string.
fn escape(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    let mut clean = 0;
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        if !NEEDS_CARE[usize::from(byte)] {
            at += 1;
            continue;
        }
        let (escaped, length): (&[u8], usize) = match byte {
            b'"' => (b"\\\"", 1),
            b'\\' => (b"\\\\", 1),
            b'\n' => (b"\\n", 1),
            b'\r' => (b"\\r", 1),
            b'\t' => (b"\\t", 1),
            _ => match separator(&bytes[at..]) {
                Some(found) => found,
                None if byte < 0x20 => (&[], 1),
                None => {
                    at += 1;
                    continue;
                }
            },
        };
        out.extend_from_slice(&bytes[clean..at]);
        if escaped.is_empty() {
            let _ = write!(out, "\\u{byte:04x}");
        } else {
            out.extend_from_slice(escaped);
        }
        at += length;
        clean = at;
    }
    out.extend_from_slice(&bytes[clean..]);
}

/// Bytes that must be escaped, or that may begin a character that must.
static NEEDS_CARE: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = true;
        byte += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table[0xC2] = true;
    table[0xE2] = true;
    table
};

/// U+0085, U+2028 and U+2029 at the front: legal in JSON, but clients that split the
/// stream into lines as Python does would cut an event in two there.
fn separator(bytes: &[u8]) -> Option<(&'static [u8], usize)> {
    match bytes {
        [0xC2, 0x85, ..] => Some((b"\\u0085", 2)),
        [0xE2, 0x80, 0xA8, ..] => Some((b"\\u2028", 3)),
        [0xE2, 0x80, 0xA9, ..] => Some((b"\\u2029", 3)),
        _ => None,
    }
}

/// Copies finished JSON, in which such characters stand inside strings only.
fn escape_separators(out: &mut Vec<u8>, json: &str) {
    let bytes = json.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match separator(&bytes[at..]) {
            Some((escaped, length)) => {
                out.extend_from_slice(escaped);
                at += length;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &[u8]) -> String {
        let mut out = Vec::new();
        output(&mut out, Channel::Stdout, text, 7, Some(2));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_text_survives_json_and_splitlines() {
        for text in [
            "",
            "plain\n",
            "q\"b\\s/\t\r\n",
            "\0\x01\x1b[0m\x7f",
            "aü€😀\u{85}\u{2028}\u{2029}z",
            "\u{80}\u{2027}",
        ] {
            let line = encoded(text.as_bytes());
            let json = line.strip_suffix("\n\n").unwrap();
            assert!(
                !json.contains([
                    '\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{85}', '\u{2028}', '\u{2029}'
                ]),
                "{json:?}"
            );
            let event: Event = serde_json::from_str(json).unwrap();
            assert_eq!(event.text.as_deref(), Some(text));
            assert_eq!(event.seq, Some(2));
        }
    }

    #[test]
    fn bytes_that_are_not_text_are_replaced() {
        let event: Event = serde_json::from_str(encoded(b"a\xff\xfeb").trim()).unwrap();
        assert_eq!(event.text.as_deref(), Some("a\u{fffd}\u{fffd}b"));
    }
}
