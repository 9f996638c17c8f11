//! The diagnostics contract. The server answers it at the same paths as the lifecycle contract.

use super::document::{Frame, Schemas};
use super::operation::{Content, JSON, Operation, Shape, TEXT};
use crate::diagnostics::DiagnosticContent;
use crate::error::ErrorBody;
use crate::sandbox::{API_KEY_HEADER, REQUEST_ID_HEADER};

pub(super) fn frame() -> Frame {
    Frame {
        title: "OpenSandbox diagnostics",
        description: "What went on in a sandbox, for whoever looks for what went wrong.",
        servers: &["/v1", "/"],
        credential: ("apiKeyAuth", API_KEY_HEADER, "The API key."),
        schemas: Schemas::default()
            .with::<DiagnosticContent>()
            .with::<ErrorBody>(),
    }
}

/// The two operations of the contract, as the lifecycle document has them too.
pub(super) fn operations() -> Vec<Operation> {
    let logs = Operation::new(
        "GET",
        "/sandboxes/{sandboxId}/diagnostics/logs",
        "getSandboxLogs",
        "Output of the sandbox: JSON with a scope, plain text (deprecated) without.",
    )
    .query("scope", Shape::Text, "`container` or `all`.")
    .query(
        "tail",
        LINES,
        "Without a scope: at most this many of the last lines.",
    )
    .query(
        "since",
        Shape::Text,
        "Without a scope: no older than this, as `10m`.",
    )
    .query(
        "container",
        Shape::Text,
        "Without a scope: of this container.",
    );
    let events = Operation::new(
        "GET",
        "/sandboxes/{sandboxId}/diagnostics/events",
        "getSandboxEvents",
        "What happened to the sandbox: JSON with a scope, plain text (deprecated) without.",
    )
    .query("scope", Shape::Text, "`runtime` or `all`.")
    .query("limit", EVENTS, "Without a scope: at most this many.");
    [logs, events]
        .map(|operation| {
            let content = [
                Content {
                    media: JSON,
                    shape: Shape::Named("DiagnosticContentResponse"),
                },
                Content {
                    media: TEXT,
                    shape: Shape::Text,
                },
            ];
            operation
                .header(
                    REQUEST_ID_HEADER,
                    "A name for this request; one is made when missing.",
                )
                .answers_with(200, "The content, or where it is.", &content)
                .errors(&[400, 401, 403, 404, 405, 422, 429, 500, 501, 503])
                .with_header_everywhere(REQUEST_ID_HEADER, Shape::Text)
        })
        .into()
}

/// How many lines of logs may be asked for.
pub(super) const LINES: Shape = Shape::Integer {
    minimum: 1,
    maximum: Some(10_000),
};

/// How many events may be asked for.
pub(super) const EVENTS: Shape = Shape::Integer {
    minimum: 1,
    maximum: Some(500),
};
