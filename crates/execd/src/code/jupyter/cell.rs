//! What a kernel's messages mean: the same events that the built-in drivers report, and when
//! a cell has finished.
//!
//! A cell has finished when the kernel has answered the request and has said that it is idle
//! after it. They come on different connections and in any order.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::message::Message;
use crate::code::driver::InterpreterEvent;
use crate::code::frame::{Frame, Report};
use crate::code::sink::Channel;
use crate::limits;

/// Media types whose values are base64, which some kernels break into lines.
const BASE64: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "application/pdf"];

/// A cell that runs.
pub(super) struct Cell {
    request: String,
    reply: Option<Reply>,
    is_idle: bool,
    has_failed: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Reply {
    status: String,
    execution_count: Option<u64>,
    #[serde(flatten)]
    error: Error,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Error {
    ename: Value,
    evalue: Value,
    traceback: Vec<Value>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Bundle {
    data: BTreeMap<String, Value>,
    transient: Transient,
    execution_count: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Transient {
    display_id: Value,
}

#[derive(Deserialize)]
struct Stream {
    name: String,
    text: Value,
}

#[derive(Deserialize)]
struct Status {
    execution_state: String,
}

impl Cell {
    pub(super) fn new(request: String) -> Self {
        Self {
            request,
            reply: None,
            is_idle: false,
            has_failed: false,
        }
    }

    /// What a message on the iopub or shell connection means while this cell runs.
    pub(super) fn take(&mut self, message: &Message) -> Option<InterpreterEvent> {
        if message.parent.as_deref() != Some(&self.request) {
            // A thread of an earlier cell may still print.
            return output(message);
        }
        match message.kind.as_str() {
            "execute_reply" => self.reply = Some(content(message)),
            "status" => self.is_idle |= is_idle(message),
            "execute_result" => return Some(result(content(message))),
            "error" => {
                self.has_failed = true;
                return Some(failure(content(message)));
            }
            _ => return output(message),
        }
        None
    }

    pub(super) fn has_reply(&self) -> bool {
        self.reply.is_some()
    }

    /// A later request's end was seen, so this one's can only have been lost on the way.
    pub(super) fn assume_idle(&mut self) {
        self.is_idle = true;
    }

    /// The last events of the cell, once it has finished.
    pub(super) fn end(&mut self) -> Option<[Option<InterpreterEvent>; 2]> {
        if !self.is_idle {
            return None;
        }
        let reply = self.reply.take()?;
        // Some kernels tell of an error in the answer alone.
        let error = match reply.status.as_str() {
            "ok" => None,
            _ if self.has_failed => None,
            "error" => Some(failure(reply.error)),
            status => Some(failure(Error {
                ename: "ExecutionAborted".into(),
                evalue: format!("the kernel answered {status:?} and did not run this code").into(),
                traceback: Vec::new(),
            })),
        };
        let count = reply.execution_count.unwrap_or(0).to_string();
        Some([error, Some(frame(Report::Finished, [count]))])
    }
}

/// Output that means the same at any time.
pub(super) fn output(message: &Message) -> Option<InterpreterEvent> {
    match message.kind.as_str() {
        "stream" => {
            let stream: Stream = serde_json::from_str(message.content.get()).ok()?;
            let channel = match stream.name.as_str() {
                "stderr" => Channel::Stderr,
                _ => Channel::Stdout,
            };
            Some(InterpreterEvent::Output(channel, text(stream.text)))
        }
        "display_data" => Some(display(content(message), false)),
        "update_display_data" => Some(display(content(message), true)),
        "clear_output" => Some(frame(Report::Clear, [])),
        _ => None,
    }
}

pub(super) fn is_idle(message: &Message) -> bool {
    let status = serde_json::from_str::<Status>(message.content.get());
    message.kind == "status" && status.is_ok_and(|status| status.execution_state == "idle")
}

/// What cannot be understood is taken as empty: the cell's end must not depend on it.
fn content<'m, T: Deserialize<'m> + Default>(message: &'m Message) -> T {
    serde_json::from_str(message.content.get()).unwrap_or_default()
}

fn result(bundle: Bundle) -> InterpreterEvent {
    let head = [bundle.execution_count.unwrap_or(0).to_string()];
    values(Report::Result, head.into(), bundle.data)
}

fn display(bundle: Bundle, is_update: bool) -> InterpreterEvent {
    let update = if is_update { "1" } else { "" };
    let head = vec![text(bundle.transient.display_id), update.to_owned()];
    values(Report::Display, head, bundle.data)
}

fn values(
    kind: Report,
    mut fields: Vec<String>,
    data: BTreeMap<String, Value>,
) -> InterpreterEvent {
    for (mime, value) in data {
        let mut value = text(value);
        if BASE64.contains(&mime.as_str()) {
            value.retain(|c| !c.is_ascii_whitespace());
        }
        fields.extend([mime, value]);
    }
    let size = fields.iter().map(String::len).sum();
    if size > limits::RESULT_BYTES {
        return InterpreterEvent::TooLarge(size);
    }
    frame(kind, fields)
}

fn failure(error: Error) -> InterpreterEvent {
    let (name, value) = (text(error.ename), text(error.evalue));
    let mut traceback: Vec<String> = error.traceback.into_iter().map(text).collect();
    if traceback.is_empty() {
        traceback.push(format!("{name}: {value}"));
    }
    let mut fields = vec![name, value];
    fields.append(&mut traceback);
    frame(Report::Error, fields)
}

fn frame(kind: Report, fields: impl IntoIterator<Item = String>) -> InterpreterEvent {
    let fields = fields.into_iter().map(String::into_bytes).collect();
    InterpreterEvent::Frame(Frame { kind, fields })
}

/// Text as text, the lines of a notebook joined, everything else as JSON.
fn text(value: Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text,
        Value::Array(lines) if !lines.is_empty() && lines.iter().all(Value::is_string) => {
            lines.into_iter().map(text).collect()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::jupyter::message::Session;
    use serde_json::json;

    struct Talk {
        session: Session,
        request: Message,
        cell: Cell,
    }

    impl Talk {
        fn new() -> Self {
            let session = Session::new();
            let sent = session.request("execute_request", &json!({}));
            let parts: Vec<_> = sent.parts().map(<[u8]>::to_vec).into();
            Self {
                request: session.open(&parts).unwrap(),
                session,
                cell: Cell::new(sent.id),
            }
        }

        fn hear(&mut self, kind: &str, content: &Value) -> String {
            let sent = self.session.answer(&self.request, kind, content);
            let parts: Vec<_> = sent.parts().map(<[u8]>::to_vec).into();
            let message = self.session.open(&parts).unwrap();
            show(self.cell.take(&message))
        }

        fn end(&mut self) -> Vec<String> {
            let end = self.cell.end();
            end.map_or(Vec::new(), |end| end.map(show).into())
        }
    }

    fn show(event: Option<InterpreterEvent>) -> String {
        match event {
            None => String::new(),
            Some(InterpreterEvent::Output(channel, text)) => format!("{channel:?} {text}"),
            Some(InterpreterEvent::TooLarge(_)) => "too large".to_owned(),
            Some(InterpreterEvent::Died(_)) => unreachable!("messages do not tell of deaths"),
            Some(InterpreterEvent::Frame(frame)) => {
                let fields: Vec<_> = frame
                    .fields
                    .iter()
                    .map(|field| String::from_utf8_lossy(field))
                    .collect();
                format!("{} {}", char::from(frame.kind.letter()), fields.join("|"))
            }
        }
    }

    #[test]
    fn every_kind_of_output_becomes_what_a_driver_would_report() {
        let mut talk = Talk::new();
        assert_eq!(
            talk.hear("stream", &json!({"name": "stderr", "text": "a\n"})),
            "Stderr a\n"
        );
        assert_eq!(
            talk.hear(
                "execute_result",
                &json!({"execution_count": 3, "data": {"text/plain": ["4", "2"], "application/json": {"a": [1]}}, "metadata": {}})
            ),
            r#"R 3|application/json|{"a":[1]}|text/plain|42"#
        );
        let picture =
            json!({"data": {"image/png": "iVBO\nRw0K\n"}, "transient": {"display_id": "d"}});
        assert_eq!(
            talk.hear("display_data", &picture),
            "D d||image/png|iVBORw0K"
        );
        assert_eq!(
            talk.hear("update_display_data", &picture),
            "D d|1|image/png|iVBORw0K"
        );
        assert_eq!(talk.hear("clear_output", &json!({"wait": true})), "L ");
        assert_eq!(
            talk.hear(
                "error",
                &json!({"ename": "E", "evalue": "v", "traceback": ["x", "y"]})
            ),
            "E E|v|x|y"
        );
        for ignored in ["execute_input", "comm_open", "comm_msg", "debug_event"] {
            assert_eq!(talk.hear(ignored, &json!({})), "");
        }
        let large = "x".repeat(limits::RESULT_BYTES + 1);
        assert_eq!(
            talk.hear("display_data", &json!({"data": {"text/plain": large}})),
            "too large"
        );
    }

    #[test]
    fn the_end_needs_the_answer_and_idle_in_either_order() {
        let idle = json!({"execution_state": "idle"});
        let ok = json!({"status": "ok", "execution_count": 7});
        for order in [["status", "execute_reply"], ["execute_reply", "status"]] {
            let mut talk = Talk::new();
            talk.hear("status", &json!({"execution_state": "busy"}));
            assert!(talk.end().is_empty());
            for (index, kind) in order.into_iter().enumerate() {
                assert_eq!(talk.end().len(), 0, "after {index} of {order:?}");
                talk.hear(kind, if kind == "status" { &idle } else { &ok });
            }
            assert_eq!(talk.end(), ["", "F 7"]);
        }
    }

    #[test]
    fn idle_after_another_request_is_not_the_end() {
        let mut talk = Talk::new();
        talk.hear("execute_reply", &json!({"status": "ok"}));
        let stray = talk
            .session
            .request("status", &json!({"execution_state": "idle"}));
        let parts: Vec<_> = stray.parts().map(<[u8]>::to_vec).into();
        let stray = talk.session.open(&parts).unwrap();
        assert!(talk.cell.take(&stray).is_none());
        assert!(talk.end().is_empty());
    }

    #[test]
    fn an_error_that_only_the_answer_tells_is_told() {
        let end = |reply: Value, is_told: bool| {
            let mut talk = Talk::new();
            if is_told {
                talk.hear("error", &json!({"ename": "E", "evalue": "v"}));
            }
            talk.hear("execute_reply", &reply);
            talk.hear("status", &json!({"execution_state": "idle"}));
            talk.end().swap_remove(0)
        };
        let error = json!({"status": "error", "ename": "E", "evalue": null});
        assert_eq!(end(error.clone(), false), "E E||E: ");
        assert_eq!(end(error, true), "");
        assert!(end(json!({"status": "aborted"}), false).starts_with("E ExecutionAborted"));
    }
}
