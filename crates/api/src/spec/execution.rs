//! The execution contract.

use std::borrow::Cow;

use super::document::{Frame, Schemas};
use super::operation::{BYTES, COUNT, Content, In, JSON, Operation, POSITIVE, STREAM, Shape, TEXT};
use crate::error::ErrorBody;
use crate::exec::ACCESS_TOKEN_HEADER;
use crate::exec::code::{Context, CreateContextRequest, RunCodeRequest};
use crate::exec::command::{CommandStatus, LOGS_CURSOR_HEADER, RunCommandRequest, StdinResponse};
use crate::exec::event::Event;
use crate::exec::file::{
    ArchiveResponse, FILESYSTEM_ID_MAX, FileInfo, FileMetadata, Permission, Rename, Replace,
    Replaced,
};
use crate::exec::isolated::{
    CreateIsolatedSessionRequest, CreateIsolatedSessionResponse, IsolatedCapabilities,
    IsolatedRunRequest, IsolatedRunStarted, IsolatedRunStatus, IsolatedSession,
    LOGS_CURSOR_HEADER as ISOLATED_LOGS_CURSOR_HEADER, ListIsolatedSessionsResponse,
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
const PATHS: Shape = Shape::ListOf(&Shape::Text);
const FILES: Shape = Shape::ListOf(&Shape::Named("FileInfo"));
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
    operations.extend(files());
    operations.extend(files_as_someone());
    operations.extend(metrics());
    operations.extend(terminals());
    operations.extend(isolated());
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

fn files() -> Vec<Operation> {
    let mut operations = file_contents();
    operations.extend(directories());
    operations
}

fn file_contents() -> Vec<Operation> {
    const PERMISSIONS: Shape = Shape::MapOf(&Shape::Named("Permission"));
    let new = Operation::new;
    vec![
        new(
            "GET",
            "/files/info",
            "getFilesInfo",
            "What is known of files.",
        )
        .required_query("path", PATHS, "Which files; may be repeated.")
        .answers_json(200, "By path.", Shape::MapOf(&Shape::Named("FileInfo")))
        .errors(&[403, 404]),
        new(
            "DELETE",
            "/files",
            "removeFiles",
            "Removes files; a missing one is no error.",
        )
        .required_query("path", PATHS, "Which files; may be repeated.")
        .answers(200, "They are gone.")
        .errors(&[403]),
        new(
            "POST",
            "/files/permissions",
            "chmodFiles",
            "Sets mode, owner and group.",
        )
        .takes(PERMISSIONS)
        .answers(200, "They are set.")
        .errors(&[403, 404]),
        new(
            "POST",
            "/files/mv",
            "renameFiles",
            "Moves files and directories, across mounts too.",
        )
        .takes(Shape::ListOf(&Shape::Named("RenameFileItem")))
        .answers(200, "They are moved.")
        .errors(&[403, 404, 409]),
        new(
            "GET",
            "/files/search",
            "searchFiles",
            "Finds files by a glob.",
        )
        .required_query("path", Shape::Text, "Where to begin.")
        .query(
            "pattern",
            Shape::Text,
            "The glob; nothing finds every file.",
        )
        .answers_json(200, "The files.", FILES)
        .errors(&[403, 404]),
        new(
            "POST",
            "/files/replace",
            "replaceContent",
            "Replaces text in files.",
        )
        .query(
            "verbose",
            Shape::Flag,
            "Answer how often each text was found.",
        )
        .takes(Shape::MapOf(&Shape::Named("ReplaceFileContentItem")))
        .answers_json(
            200,
            "It is replaced; with `verbose`, how often.",
            Shape::MapOf(&Shape::Named("ReplaceFileContentResult")),
        )
        .errors(&[403, 404]),
        new(
            "POST",
            "/files/upload",
            "uploadFile",
            "Writes files, each whole or not at all.",
        )
        .body("multipart/form-data", Shape::Upload, true)
        .answers(200, "They are written.")
        .errors(&[403, 404]),
        download(),
    ]
}

fn download() -> Operation {
    const FILE: Content = Content {
        media: BYTES,
        shape: Shape::Binary,
    };
    const LINES: Content = Content {
        media: TEXT,
        shape: Shape::Text,
    };
    Operation::new(
        "GET",
        "/files/download",
        "downloadFile",
        "Reads a file, or a part of it.",
    )
    .required_query("path", Shape::Text, "Which file.")
    .query(
        "offset",
        POSITIVE,
        "The first line, from 1. Excludes Range.",
    )
    .query("limit", POSITIVE, "How many lines. Excludes Range.")
    .header("Range", "Which bytes, as `bytes=0-1023`.")
    .answers_with(200, "The file, or the lines.", &[FILE, LINES])
    .with_header("Content-Disposition", Shape::Text)
    .with_header("Content-Length", COUNT)
    .answers_with(206, "The bytes.", &[FILE])
    .with_header("Content-Range", Shape::Text)
    .with_header("Content-Length", COUNT)
    .answers(304, "The file has not changed.")
    .errors(&[403, 404, 412, 416])
}

fn directories() -> Vec<Operation> {
    const TAR: Content = Content {
        media: "application/x-tar",
        shape: Shape::Binary,
    };
    let new = Operation::new;
    vec![
        new(
            "GET",
            "/directories/list",
            "listDirectory",
            "Lists a directory.",
        )
        .required_query("path", Shape::Text, "Which directory; not a symbolic link.")
        .query("depth", COUNT, "How many levels; nothing is 1.")
        .answers_json(
            200,
            "Its entries, each directory's in order of name.",
            FILES,
        )
        .errors(&[403, 404]),
        new(
            "POST",
            "/directories",
            "makeDirs",
            "Makes directories and their parents.",
        )
        .takes(Shape::MapOf(&Shape::Named("Permission")))
        .answers(200, "They are there.")
        .errors(&[403, 404]),
        new(
            "DELETE",
            "/directories",
            "removeDirs",
            "Removes directories and all they hold.",
        )
        .required_query("path", PATHS, "Which directories; may be repeated.")
        .answers(200, "They are gone.")
        .errors(&[403]),
        new(
            "GET",
            "/directories/archive",
            "packDirectory",
            "A directory as a tar stream.",
        )
        .extension()
        .required_query("path", Shape::Text, "Which directory.")
        .answers_with(200, "The tar stream.", &[TAR])
        .errors(&[403, 404]),
        new(
            "PUT",
            "/directories/archive",
            "unpackDirectory",
            "Unpacks a tar stream into a directory.",
        )
        .extension()
        .required_query("path", Shape::Text, "Which directory; made when missing.")
        .body(TAR.media, TAR.shape, true)
        .answers_json(200, "It is unpacked.", Shape::Named("ArchiveResponse"))
        .errors(&[403, 404]),
    ]
}

/// The same operations on files with the credentials of another user.
fn files_as_someone() -> Vec<Operation> {
    const ID: Shape = Shape::Integer {
        minimum: 0,
        maximum: Some(FILESYSTEM_ID_MAX as i64),
    };
    below("/v1/filesystem/{uid}/{gid}", "As", files())
        .into_iter()
        .map(|operation| {
            operation
                .parameter("uid", In::Path, true, ID, "The user.")
                .parameter("gid", In::Path, true, ID, "The group.")
                .errors(&[501])
        })
        .collect()
}

/// The same operations below another path, under other ids.
fn below(prefix: &'static str, suffix: &'static str, operations: Vec<Operation>) -> Vec<Operation> {
    let moved = |operation: Operation| Operation {
        path: Cow::Owned(format!("{prefix}{}", operation.path)),
        id: Cow::Owned(format!("{}{suffix}", operation.id)),
        ..operation
    };
    operations.into_iter().map(moved).collect()
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
        .answers(101, "The WebSocket is open.")
        .errors(&[404, 409, 426]),
    ]
}

fn isolated() -> Vec<Operation> {
    const SESSION: &str = "/v1/isolated/session/{sessionId}";
    let new = Operation::new;
    let mut operations = vec![
        new(
            "POST",
            "/v1/isolated/session",
            "createIsolatedSession",
            "Makes an isolated session.",
        )
        .takes(Shape::Named("CreateIsolatedSessionRequest"))
        .answers_json(
            201,
            "It is made.",
            Shape::Named("CreateIsolatedSessionResponse"),
        ),
        new(
            "GET",
            "/v1/isolated/sessions",
            "listIsolatedSessions",
            "Lists isolated sessions.",
        )
        .answers_json(
            200,
            "The sessions.",
            Shape::Named("ListIsolatedSessionsResponse"),
        ),
        new(
            "GET",
            SESSION,
            "getIsolatedSession",
            "Shows an isolated session.",
        )
        .answers_json(200, "The session.", Shape::Named("IsolatedSession")),
        new(
            "DELETE",
            SESSION,
            "deleteIsolatedSession",
            "Ends an isolated session.",
        )
        .answers(200, "It has ended."),
        new(
            "POST",
            "/v1/isolated/session/{sessionId}/run",
            "runInIsolatedSession",
            "Runs in an isolated session.",
        )
        .takes(Shape::Named("IsolatedRunRequest"))
        .answers_with(200, "The events, until it has run.", &EVENTS)
        .answers_json(
            202,
            "It runs in the background.",
            Shape::Named("IsolatedRunStarted"),
        ),
        new(
            "GET",
            "/v1/isolated/session/{sessionId}/runs/{runId}",
            "getIsolatedRun",
            "How a run is going.",
        )
        .answers_json(200, "How it is going.", Shape::Named("IsolatedRunStatus")),
        new(
            "GET",
            "/v1/isolated/session/{sessionId}/runs/{runId}/logs",
            "getIsolatedRunLogs",
            "Output of a run so far.",
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
        .with_header(ISOLATED_LOGS_CURSOR_HEADER, COUNT),
        new(
            "GET",
            "/v1/isolated/session/{sessionId}/diff",
            "diffIsolatedSession",
            "What a session changed.",
        )
        .answers_json(200, "What it changed.", Shape::Any),
        new(
            "POST",
            "/v1/isolated/session/{sessionId}/commit",
            "commitIsolatedSession",
            "Keeps what a session changed.",
        )
        .may_take(Shape::Any)
        .answers_json(200, "It is kept.", Shape::Any),
    ];
    let mut published = files();
    published.retain(|operation| !operation.is_extension);
    operations.extend(below(SESSION, "InIsolatedSession", published));
    let refusing = |operation: Operation| operation.errors(&[403, 404, 409, 501]);
    operations = operations.into_iter().map(refusing).collect();
    operations.push(
        new(
            "GET",
            "/v1/isolated/capabilities",
            "getIsolatedCapabilities",
            "What isolated sessions can do here.",
        )
        .answers_json(
            200,
            "What they can do.",
            Shape::Named("IsolatedCapabilities"),
        ),
    );
    operations
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
