//! What the server tells of itself and keeps a record of, and the way through it into a sandbox.

use super::super::diagnostics::LINES;
use super::super::operation::{COUNT, Content, Mount, OPENMETRICS, Operation, STREAM, Shape, TEXT};
use super::PORT;
use crate::event::LAST_EVENT_ID_HEADER;

const AUDIT_LIMIT: Shape = Shape::Integer {
    minimum: 1,
    maximum: Some(1000),
};

pub(super) fn records() -> Vec<Operation> {
    const EVENT: Content = Content {
        media: STREAM,
        shape: Shape::Named("LifecycleEvent"),
    };
    const LOG: Content = Content {
        media: STREAM,
        shape: Shape::Named("LogEvent"),
    };
    let new = Operation::new;
    vec![
        new(
            "POST",
            "/v1/metrics/events",
            "reportMetricsEvent",
            "Reports what a client measured.",
        )
        .mounted(Mount::AsWritten)
        .header("User-Agent", "Names the client and its version.")
        .takes(Shape::Named("MetricsEvent"))
        .answers(204, "It is counted."),
        new(
            "GET",
            "/events",
            "watchEvents",
            "What happens to sandboxes, as it happens.",
        )
        .extension()
        .query("after", COUNT, "Only events after this one.")
        .query("sandboxId", Shape::Text, "Only of this sandbox.")
        .header(
            LAST_EVENT_ID_HEADER,
            "Only events after this one, as browsers say it.",
        )
        .answers_with(200, "The events.", &[EVENT]),
        new(
            "GET",
            "/sandboxes/{sandboxId}/logs",
            "followSandboxLogs",
            "Output of the sandbox as it is written, until the sandbox has ended.",
        )
        .extension()
        .query("tail", LINES, "At most this many of the lines before.")
        .answers_with(200, "The output.", &[LOG])
        .errors(&[404]),
        new(
            "GET",
            "/audit-events",
            "listAuditEvents",
            "Who changed what, newest first.",
        )
        .extension()
        .query(
            "resource",
            Shape::Text,
            "Only about this sandbox or snapshot.",
        )
        .query("actor", Shape::Text, "Only by this actor.")
        .query(
            "before",
            COUNT,
            "Only older than this one: the `next` of the last answer.",
        )
        .query("limit", AUDIT_LIMIT, "At most this many.")
        .answers_json(200, "The events.", Shape::Named("ListAuditEventsResponse")),
    ]
}

/// Plain text for people, kept for older clients.
pub(super) fn texts() -> Vec<Operation> {
    const PLAIN: [Content; 1] = [Content {
        media: TEXT,
        shape: Shape::Text,
    }];
    let inspect = Operation::new(
        "GET",
        "/sandboxes/{sandboxId}/diagnostics/inspect",
        "getSandboxInspect",
        "Deprecated: a sandbox described for people.",
    );
    let summary = Operation::new(
        "GET",
        "/sandboxes/{sandboxId}/diagnostics/summary",
        "getSandboxDiagnosticsSummary",
        "Deprecated: description, logs and events together.",
    )
    .query(
        "tail",
        super::super::diagnostics::LINES,
        "At most this many of the last lines.",
    )
    .query(
        "event_limit",
        super::super::diagnostics::EVENTS,
        "At most this many events.",
    );
    let answered = |operation: Operation| {
        operation
            .answers_with(200, "The text.", &PLAIN)
            .errors(&[400, 401, 403, 404, 405, 422, 429, 500, 503])
    };
    [inspect, summary].map(answered).into()
}

pub(super) fn about() -> Vec<Operation> {
    let new = Operation::new;
    const HEALTH: Shape = Shape::Named("HealthResponse");
    let operations = [
        new(
            "GET",
            "/health",
            "getHealth",
            "Whether sandboxes can be made now.",
        )
        .answers_json(200, "They can.", HEALTH)
        .answers_json(503, "They cannot; `problems` says why.", HEALTH),
        new(
            "GET",
            "/version",
            "getVersion",
            "The version of the protocol.",
        )
        .answers_json(200, "The version.", Shape::Named("VersionResponse")),
        new(
            "GET",
            "/metrics",
            "getServerMetrics",
            "What the server counts, for Prometheus.",
        )
        .extension()
        .answers_with(
            200,
            "The counts.",
            &[Content {
                media: OPENMETRICS,
                shape: Shape::Text,
            }],
        ),
        new("GET", "/openapi.json", "getOpenApi", "This document.").answers_json(
            200,
            "The document.",
            Shape::Any,
        ),
    ];
    operations
        .map(|operation| {
            operation
                .open()
                .mounted(Mount::AsWritten)
                .errors(&[405, 500])
        })
        .into()
}

pub(super) fn proxy() -> Vec<Operation> {
    const ANYTHING: [Content; 1] = [Content {
        media: "*/*",
        shape: Shape::Any,
    }];
    let summary = "Passes the request to a port of the sandbox, upgrades included.";
    let new = |method, path, id| {
        Operation::new(method, path, id, summary)
            .open()
            .mounted(Mount::Proxied)
            .path_parameter("port", PORT)
            .answers_with(200, "Whatever the service answers.", &ANYTHING)
            .answers_with(0, "Whatever the service answers.", &ANYTHING)
            .errors(&[400, 401, 404, 409, 422, 500, 502, 503, 504])
    };
    let root = "/sandboxes/{sandboxId}/proxy/{port}";
    let deep = "/sandboxes/{sandboxId}/proxy/{port}/{path}";
    vec![
        new("GET", root, "proxyRootGet"),
        new("HEAD", root, "proxyRootHead").extension(),
        new("POST", root, "proxyRootPost"),
        new("PUT", root, "proxyRootPut"),
        new("PATCH", root, "proxyRootPatch"),
        new("DELETE", root, "proxyRootDelete"),
        new("OPTIONS", root, "proxyRootOptions").extension(),
        new("GET", deep, "proxyGet"),
        new("HEAD", deep, "proxyHead").extension(),
        new("POST", deep, "proxyPost"),
        new("PUT", deep, "proxyPut"),
        new("PATCH", deep, "proxyPatch"),
        new("DELETE", deep, "proxyDelete"),
        new("OPTIONS", deep, "proxyOptions").extension(),
    ]
}
