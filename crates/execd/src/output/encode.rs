//! Which event each thing that happens to a command becomes, as bytes in the bare framing.
//!
//! How an event is written and escaped is the contract's affair: `api::frame`.

use api::exec::event::{Event, EventKind, ExecutionError};
use api::frame::{Encoder, Framing};

use super::journal::{Channel, Ending};
use crate::process::Exit;

const ENCODER: Encoder = Encoder::new(Framing::Bare);

/// An output event. Bytes that are not UTF-8 become U+FFFD.
pub(super) fn output(
    out: &mut Vec<u8>,
    channel: Channel,
    bytes: &[u8],
    time_ms: i64,
    seq: Option<u64>,
) {
    let kind = match channel {
        Channel::Stdout => EventKind::Stdout,
        Channel::Stderr => EventKind::Stderr,
    };
    ENCODER.text(out, kind, &String::from_utf8_lossy(bytes), time_ms, seq);
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
    ENCODER.event(out, event);
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
