//! The execution contract.

mod files;
mod isolated;

use super::document::{Frame, Schemas};
use super::operation::{BYTES, COUNT, Content, JSON, Operation, STREAM, Shape, TEXT};
use crate::error::ErrorBody;
use crate::exec::ACCESS_TOKEN_HEADER;
use crate::exec::code::{Context, CreateContextRequest, RunCodeRequest};
use crate::exec::command::{CommandStatus, LOGS_CURSOR_HEADER, RunCommandRequest, StdinResponse};
use crate::exec::event::Event;
use crate::exec::file::{
    ArchiveResponse, FileInfo, FileMetadata, Permission, Rename, Replace, Replaced,
};
use crate::exec::isolated::{
    CreateIsolatedSessionRequest, CreateIsolatedSessionResponse, IsolatedCapabilities,
    IsolatedRunRequest, IsolatedRunStarted, IsolatedRunStatus, IsolatedSession,
    ListIsolatedSessionsResponse,
};
use crate::exec::metrics::Metrics;
use crate::exec::pty::{
    ClientMessage, CreatePtyRequest, CreatePtyResponse, PtyStatus, ServerMessage,
};
use crate::exec::session::{CreateSessionRequest, CreateSessionResponse, RunInSessionRequest};

const EVENTS: [Content; 1] = [Content {
    media: STREAM,
    shape: Shape::Named("ServerStreamEvent"),
}];
const CONTEXT: Shape = Shape::Named("CodeContext");

pub(super) fn frame() -> Frame {
    Frame {
        title: "OpenSandbox execution",
        description: "The daemon inside a sandbox. Streams are one JSON object and an empty line \
                      per event, with or without `data: ` before it.",
        servers: &["/"],
        credential: (
            "AccessToken",
            ACCESS_TOKEN_HEADER,
            "The daemon's access token.",
        ),
        schemas: Schemas::default()
            .with::<ErrorBody>()
            .with::<Event>()
            .with::<RunCommandRequest>()
            .with::<CommandStatus>()
            .with::<StdinResponse>()
            .with::<CreateSessionRequest>()
            .with::<CreateSessionResponse>()
            .with::<RunInSessionRequest>()
            .with::<CreateContextRequest>()
            .with::<Context>()
            .with::<RunCodeRequest>()
            .with::<FileInfo>()
            .with::<FileMetadata>()
            .with::<Permission>()
            .with::<Rename>()
            .with::<Replace>()
            .with::<Replaced>()
            .with::<ArchiveResponse>()
            .with::<Metrics>()
            .with::<CreatePtyRequest>()
            .with::<CreatePtyResponse>()
            .with::<PtyStatus>()
            .with::<ServerMessage>()
            .with::<ClientMessage>()
            .with::<CreateIsolatedSessionRequest>()
            .with::<CreateIsolatedSessionResponse>()
            .with::<ListIsolatedSessionsResponse>()
            .with::<IsolatedSession>()
            .with::<IsolatedRunRequest>()
            .with::<IsolatedRunStarted>()
            .with::<IsolatedRunStatus>()
            .with::<IsolatedCapabilities>(),
    }
}

pub(super) fn operations() -> Vec<Operation> {
    let ping = Operation::new("GET", "/ping", "ping", "Whether the daemon is up.");
    let mut operations = vec![ping.answers(200, "It is up.")];
    operations.extend(commands());
    operations.extend(sessions());
    operations.extend(code());
    operations.extend(files::files());
    operations.extend(files::files_as_someone());
    operations.extend(metrics());
    operations.extend(terminals());
    operations.extend(isolated::isolated());
    operations.extend(proxy());
    let guarded = |operation: Operation| operation.errors(&[400, 401, 405, 413, 429, 500, 503]);
    operations.into_iter().map(guarded).collect()
}

fn commands() -> Vec<Operation> {
    let new = Operation::new;
    vec![
        new(
            "POST",
            "/command",
            "runCommand",
            "Runs a command and streams its events.",
        )
        .takes(Shape::Named("RunCommandRequest"))
        .answers_with(200, "The events, until the command has ended.", &EVENTS),
        new(
            "GET",
            "/command",
            "listCommands",
            "Lists the commands that are kept.",
        )
        .extension()
        .answers_json(
            200,
            "The commands.",
            Shape::ListOf(&Shape::Named("CommandStatusResponse")),
        ),
        new(
            "DELETE",
            "/command",
            "interruptCommand",
            "Interrupts a command.",
        )
        .required_query("id", Shape::Text, "The command's id.")
        .answers(200, "It was interrupted.")
        .errors(&[404, 409]),
        new(
            "GET",
            "/command/status/{id}",
            "getCommandStatus",
            "How a command is going.",
        )
        .answers_json(
            200,
            "How it is going.",
            Shape::Named("CommandStatusResponse"),
        )
        .errors(&[404]),
        new(
            "GET",
            "/command/{id}/logs",
            "getBackgroundCommandLogs",
            "Output of a command so far.",
        )
        .query(
            "cursor",
            COUNT,
            "The byte to read from, as the last answer's header said.",
        )
        .answers_with(
            200,
            "The output.",
            &[Content {
                media: TEXT,
                shape: Shape::Text,
            }],
        )
        .with_header(LOGS_CURSOR_HEADER, COUNT)
        .errors(&[404]),
        new(
            "GET",
            "/command/{id}/events",
            "resumeCommandEvents",
            "Goes on with a stream that broke off.",
        )
        .extension()
        .query("after", COUNT, "The `seq` of the last event that arrived.")
        .answers_with(200, "The events after that one.", &EVENTS)
        .errors(&[404, 410]),
        new(
            "POST",
            "/command/{id}/stdin",
            "writeCommandStdin",
            "Writes to a command's stdin.",
        )
        .extension()
        .query("close", Shape::Flag, "Close stdin after these bytes.")
        .body(BYTES, Shape::Binary, false)
        .answers_json(
            200,
            "The bytes were written.",
            Shape::Named("StdinResponse"),
        )
        .errors(&[404, 409]),
    ]
}

fn sessions() -> Vec<Operation> {
    let new = Operation::new;
    vec![
        new(
            "POST",
            "/session",
            "createSession",
            "Starts a shell that keeps its state.",
        )
        .may_take(Shape::Named("CreateSessionRequest"))
        .answers_json(200, "It runs.", Shape::Named("CreateSessionResponse")),
        new(
            "POST",
            "/session/{sessionId}/run",
            "runInSession",
            "Runs a command in a shell.",
        )
        .takes(Shape::Named("RunInSessionRequest"))
        .answers_with(200, "The events, until the command has ended.", &EVENTS)
        .errors(&[404]),
        new(
            "DELETE",
            "/session/{sessionId}",
            "deleteSession",
            "Ends a shell.",
        )
        .answers(200, "It has ended.")
        .errors(&[404]),
    ]
}

fn code() -> Vec<Operation> {
    let new = Operation::new;
    vec![
        new(
            "POST",
            "/code",
            "runCode",
            "Runs code and streams its events.",
        )
        .takes(Shape::Named("RunCodeRequest"))
        .answers_with(200, "The events, until the code has run.", &EVENTS)
        .errors(&[404, 501]),
        new(
            "DELETE",
            "/code",
            "interruptCode",
            "Interrupts the code of a context.",
        )
        .required_query("id", Shape::Text, "The context's id.")
        .answers(200, "It was interrupted.")
        .errors(&[404, 409, 501]),
        new(
            "POST",
            "/code/context",
            "createCodeContext",
            "Makes a context that keeps its state.",
        )
        .takes(Shape::Named("CodeContextRequest"))
        .answers_json(200, "The context.", CONTEXT)
        .errors(&[501]),
        new("GET", "/code/contexts", "listContexts", "Lists contexts.")
            .query("language", Shape::Text, "Only of this language.")
            .answers_json(200, "The contexts.", Shape::ListOf(&CONTEXT))
            .errors(&[501]),
        new(
            "DELETE",
            "/code/contexts",
            "deleteContextsByLanguage",
            "Ends the contexts of a language.",
        )
        .required_query("language", Shape::Text, "Which language.")
        .answers(200, "They have ended.")
        .errors(&[501]),
        new(
            "GET",
            "/code/contexts/{context_id}",
            "getContext",
            "Shows a context.",
        )
        .answers_json(200, "The context.", CONTEXT)
        .errors(&[404, 501]),
        new(
            "DELETE",
            "/code/contexts/{context_id}",
            "deleteContext",
            "Ends a context.",
        )
        .answers(200, "It has ended.")
        .errors(&[404, 501]),
    ]
}

fn metrics() -> Vec<Operation> {
    const SHAPE: Shape = Shape::Named("Metrics");
    vec![
        Operation::new(
            "GET",
            "/metrics",
            "getMetrics",
            "What the sandbox uses now.",
        )
        .answers_json(200, "What it uses.", SHAPE),
        Operation::new(
            "GET",
            "/metrics/watch",
            "watchMetrics",
            "What the sandbox uses, each second.",
        )
        .answers_with(
            200,
            "The events.",
            &[Content {
                media: STREAM,
                shape: SHAPE,
            }],
        ),
    ]
}

fn terminals() -> Vec<Operation> {
    let new = Operation::new;
    vec![
        new("POST", "/pty", "createPty", "Makes a terminal.")
            .may_take(Shape::Named("CreatePtyRequest"))
            .answers_json(201, "It is made.", Shape::Named("CreatePtyResponse")),
        new("GET", "/pty/{id}", "getPty", "How a terminal stands.")
            .answers_json(200, "How it stands.", Shape::Named("PtyStatus"))
            .errors(&[404]),
        new("DELETE", "/pty/{id}", "deletePty", "Ends a terminal.")
            .answers(200, "It has ended.")
            .errors(&[404]),
        new(
            "GET",
            "/pty/{id}/ws",
            "connectPty",
            "Connects to a terminal, as a WebSocket.",
        )
        .query("pty", Shape::Text, "`0` for pipes instead of a terminal.")
        .query("since", COUNT, "Replay output from this byte on.")
        .query(
            "takeover",
            Shape::Text,
            "`1` to take it from whoever holds it.",
        )
        .query(
            "cols",
            COUNT,
            "Columns that the terminal has, an extension.",
        )
        .query("rows", COUNT, "Rows that it has, an extension.")
        .answers(101, "The WebSocket is open.")
        .errors(&[404, 409, 426]),
    ]
}

fn proxy() -> Vec<Operation> {
    const PORT: Shape = Shape::Integer {
        minimum: 1,
        maximum: Some(65535),
    };
    const ANYTHING: [Content; 1] = [Content {
        media: "*/*",
        shape: Shape::Any,
    }];
    let names = [
        ("GET", "proxyGet"),
        ("HEAD", "proxyHead"),
        ("POST", "proxyPost"),
        ("PUT", "proxyPut"),
        ("PATCH", "proxyPatch"),
        ("DELETE", "proxyDelete"),
        ("OPTIONS", "proxyOptions"),
    ];
    let summary = "Passes the request to a port of the sandbox, upgrades included.";
    let new = |(method, id)| {
        Operation::new(method, "/proxy/{port}/{path}", id, summary)
            .path_parameter("port", PORT)
            .answers_with(0, "Whatever the service answers.", &ANYTHING)
            .errors_with(
                &[502],
                &[Content {
                    media: JSON,
                    shape: Shape::Named("ErrorResponse"),
                }],
            )
    };
    names.into_iter().map(new).collect()
}
