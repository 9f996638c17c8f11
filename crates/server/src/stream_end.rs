//! How a client's stream of events from a sandbox's daemon is ended when the server stops.
//!
//! What runs in the sandbox goes on. Clients that can ask for the rest see a stream without a last event, which
//! is how they know that there is a rest. The published SDKs do not ask: they take a stream without a last event
//! for a success without an exit code, or wait, so they are told by an `error` event.

use std::time::{SystemTime, UNIX_EPOCH};

use api::exec::event::{Event, ExecutionError};
use api::frame::{Encoder, Framing};
use proxy::message::Head;
use proxy::{Route, StreamEnd};

use crate::published;

/// The name of the error, as `ename`.
const ERROR_NAME: &str = "ServerStopping";

const MESSAGE: &str = "the server is stopping; what was started goes on in the sandbox: once a server runs \
                       again, GET /command/{id}/events?after=0 has all of its output, and \
                       GET /command/status/{id} how it ended";

/// For a request to this port of a sandbox.
pub(crate) fn stream_end(request: Head<'_>, route: &Route) -> Option<StreamEnd> {
    if !route.is_control() {
        return None;
    }
    if is_execution(&route.path) && is_published_sdk(request) {
        Some(StreamEnd::Event(stopping_event))
    } else {
        Some(StreamEnd::Resumable)
    }
}

/// Whether a path of the daemon is that of an execution, whose streams may have an `error` event.
fn is_execution(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    matches!(path, "/command" | "/code") || path.starts_with("/session/")
}

/// Whether the client is a published SDK, such as `OpenSandbox-Python-SDK/1.1.1`.
fn is_published_sdk(request: Head<'_>) -> bool {
    let mut agents = request
        .values("user-agent")
        .filter_map(|it| str::from_utf8(it).ok());
    agents.any(published::is_sdk)
}

fn stopping_event() -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let timestamp = now.map_or(0, |now| i64::try_from(now.as_millis()).unwrap_or(i64::MAX));
    let error = ExecutionError {
        ename: ERROR_NAME.to_owned(),
        evalue: MESSAGE.to_owned(),
        traceback: vec![MESSAGE.to_owned()],
    };
    let mut out = Vec::new();
    Encoder::new(Framing::Bare).event(&mut out, &Event::failed(timestamp, error));
    out
}

#[cfg(test)]
mod tests {
    use proxy::message::HeadParser;

    use super::*;

    fn end_for(path: &str, agent: &str) -> Option<StreamEnd> {
        let text = format!("POST {path} HTTP/1.1\r\nhost: x\r\nuser-agent: {agent}\r\n\r\n");
        let mut parser = HeadParser::default();
        assert_eq!(parser.parse_request(text.as_bytes()), Ok(true));
        let route = Route::parse(path).unwrap();
        stream_end(parser.head(text.as_bytes()), &route)
    }

    #[test]
    fn only_published_sdks_are_told_by_an_event() {
        let published = "Mozilla/5.0 OpenSandbox-Python-SDK/0.1.10";
        for (path, agent, is_told) in [
            ("/sandboxes/a/proxy/44772/command", published, Some(true)),
            ("/sandboxes/a/proxy/44772/code?x", published, Some(true)),
            (
                "/sandboxes/a/proxy/44772/session/s/run",
                published,
                Some(true),
            ),
            (
                "/sandboxes/a/proxy/44772/metrics/watch",
                published,
                Some(false),
            ),
            (
                "/sandboxes/a/proxy/44772/command",
                "osb-python/0.1.0",
                Some(false),
            ),
            (
                "/sandboxes/a/proxy/44772/command",
                "opensandbox-rust/0.1.0",
                Some(false),
            ),
            ("/sandboxes/a/proxy/8000/command", published, None),
        ] {
            let told = end_for(path, agent).map(|end| matches!(end, StreamEnd::Event(_)));
            assert_eq!(told, is_told, "{path} {agent}");
        }
    }
}
