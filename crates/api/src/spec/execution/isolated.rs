//! Isolated sessions.

use super::super::operation::{COUNT, Content, Operation, Shape, TEXT};
use super::EVENTS;
use super::files::{below, files};
use crate::exec::isolated::LOGS_CURSOR_HEADER;

const SESSION: &str = "/v1/isolated/session/{sessionId}";

pub(super) fn isolated() -> Vec<Operation> {
    let mut operations = sessions();
    operations.extend(runs());
    let mut published = files();
    published.retain(|operation| !operation.is_extension);
    operations.extend(below(SESSION, "InIsolatedSession", published));
    let refusing = |operation: Operation| operation.errors(&[403, 404, 409, 501]);
    operations = operations.into_iter().map(refusing).collect();
    operations.push(
        Operation::new(
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

fn sessions() -> Vec<Operation> {
    let new = Operation::new;
    vec![
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
    ]
}

fn runs() -> Vec<Operation> {
    let new = Operation::new;
    vec![
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
        .with_header(LOGS_CURSOR_HEADER, COUNT),
    ]
}
