//! The SDK's own types as sdks/conformance/README.md writes them.

use std::time::Duration;

use opensandbox::wire::exec::event::ExecutionError;
use opensandbox::{Ending, Event, Output, RichResult, TerminalEvent};
use serde_json::{Value, json};

fn milliseconds(took: Option<Duration>) -> Option<u64> {
    u64::try_from(took?.as_millis()).ok()
}

fn failure(error: &ExecutionError) -> Value {
    json!({"name": error.ename, "value": error.evalue, "traceback": error.traceback})
}

fn result(result: &RichResult) -> Value {
    json!({
        "kind": result.kind().as_str(), "by_type": result.by_type, "text": result.text(),
        "count": result.count,
    })
}

pub(crate) fn output(output: &Output) -> Value {
    let ending = match output.ending() {
        Ending::Code(code) => json!({"kind": "code", "code": code}),
        Ending::Signal(name) => json!({"kind": "signal", "signal": name}),
        Ending::Failed => json!({"kind": "failed"}),
    };
    json!({
        "id": output.id, "stdout": output.stdout, "stderr": output.stderr,
        "exit_code": output.exit_code(), "ending": ending, "success": output.is_success(),
        "error": output.error.as_ref().map(failure),
        "results": output.results.iter().map(result).collect::<Vec<_>>(),
        "text": output.text(), "count": output.count, "took_ms": milliseconds(output.took),
    })
}

pub(crate) fn event(event: &Event) -> Value {
    let (kind, mut shown) = match event {
        Event::Started { id } => ("started", json!({"id": id})),
        Event::Stdout(text) => ("stdout", json!({"text": text})),
        Event::Stderr(text) => ("stderr", json!({"text": text})),
        Event::Result(value) => ("result", result(value)),
        Event::Count(count) => ("count", json!({"count": count})),
        Event::Error(error) => ("error", failure(error)),
        Event::Completed { took } => ("completed", json!({"took_ms": milliseconds(*took)})),
        _ => ("unknown", json!({})),
    };
    shown["type"] = kind.into();
    shown
}

pub(crate) fn terminal_event(event: &TerminalEvent) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match event {
        TerminalEvent::Connected => json!({"type": "connected"}),
        TerminalEvent::Output(bytes) => json!({"type": "output", "text": text(bytes)}),
        TerminalEvent::ErrorOutput(bytes) => json!({"type": "error_output", "text": text(bytes)}),
        TerminalEvent::Replay { offset, bytes } => {
            json!({"type": "replay", "offset": offset, "text": text(bytes)})
        }
        TerminalEvent::Refused { code, message } => {
            json!({"type": "refused", "code": code, "message": message})
        }
        TerminalEvent::Exit { code, signal } => {
            json!({"type": "exit", "code": code, "signal": signal})
        }
        TerminalEvent::Closed { code, reason } => {
            json!({"type": "closed", "code": code, "reason": reason})
        }
        _ => json!({"type": "unknown"}),
    }
}
