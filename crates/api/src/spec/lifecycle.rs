//! The lifecycle contract. Every path stands at `/` and at `/v1`, except where one is named.

use super::document::{Frame, Schemas};
use super::operation::{COUNT, Content, Operation, POSITIVE, STREAM, Shape, TEXT};
use crate::diagnostics::DiagnosticContent;
use crate::endpoint::Endpoint;
use crate::error::ErrorBody;
use crate::event::{LAST_EVENT_ID_HEADER, LifecycleEvent, ListAuditEventsResponse};
use crate::metrics_event::MetricsEvent;
use crate::network_policy::PolicyStatus;
use crate::pool::{CreatePoolRequest, ListPoolsResponse, UpdatePoolRequest};
use crate::query::PAGE_SIZE_MAX;
use crate::sandbox::{
    API_KEY_HEADER, CreateSandboxRequest, CreateSandboxResponse, Health, IDEMPOTENCY_KEY_HEADER,
    ListSandboxesResponse, ORIGIN_HEADER, REQUEST_ID_HEADER, RenewSandboxExpirationRequest,
    RenewSandboxExpirationResponse, Sandbox, Version,
};
use crate::snapshot::{CreateSnapshotRequest, ListSnapshotsResponse, Snapshot};
use crate::template::{CreateTemplateRequest, ListTemplatesResponse, Template};

const SANDBOX: Shape = Shape::Named("Sandbox");
const SNAPSHOT: Shape = Shape::Named("Snapshot");
const POOL: Shape = Shape::Named("PoolResponse");
const TEMPLATE: Shape = Shape::Named("FsbTemplate");
const PORT: Shape = Shape::Integer {
    minimum: 1,
    maximum: Some(65535),
};
const PAGE_SIZE: Shape = Shape::Integer {
    minimum: 1,
    maximum: Some(PAGE_SIZE_MAX as i64),
};
const AUDIT_LIMIT: Shape = Shape::Integer {
    minimum: 1,
    maximum: Some(1000),
};
const TEXTS: Shape = Shape::ListOf(&Shape::Text);

pub(super) fn frame() -> Frame {
    Frame {
        title: "OpenSandbox lifecycle",
        description: "Makes, finds, changes and ends sandboxes. Answers leave out what they do \
                      not have; requests may use snake_case names too.",
        servers: &["/v1", "/"],
        credential: ("apiKeyAuth", API_KEY_HEADER, "The API key."),
        schemas: Schemas::default()
            .with::<ErrorBody>()
            .with::<Health>()
            .with::<Version>()
            .with::<CreateSandboxRequest>()
            .with::<CreateSandboxResponse>()
            .with::<Sandbox>()
            .with::<ListSandboxesResponse>()
            .with::<RenewSandboxExpirationRequest>()
            .with::<RenewSandboxExpirationResponse>()
            .with::<CreateSnapshotRequest>()
            .with::<Snapshot>()
            .with::<ListSnapshotsResponse>()
            .with::<Endpoint>()
            .with::<PolicyStatus>()
            .with::<DiagnosticContent>()
            .with::<CreatePoolRequest>()
            .with::<UpdatePoolRequest>()
            .with::<ListPoolsResponse>()
            .with::<CreateTemplateRequest>()
            .with::<Template>()
            .with::<ListTemplatesResponse>()
            .with::<MetricsEvent>()
            .with::<LifecycleEvent>()
            .with::<ListAuditEventsResponse>(),
    }
}

pub(super) fn operations() -> Vec<Operation> {
    let mut operations = sandboxes();
    operations.extend(changes());
    operations.extend(snapshots());
    operations.extend(policies());
    operations.extend(pools());
    operations.extend(templates());
    operations.extend(records());
    let guarded = |operation: Operation| {
        operation
            .header(
                REQUEST_ID_HEADER,
                "A name for this request; one is made when missing.",
            )
            .errors(&[400, 401, 405, 413, 422, 429, 500, 503])
    };
    operations = operations.into_iter().map(guarded).collect();
    operations.extend(super::diagnostics::operations());
    operations.extend(texts());
    operations.extend(about());
    let named =
        |operation: Operation| operation.with_header_everywhere(REQUEST_ID_HEADER, Shape::Text);
    operations.into_iter().map(named).chain(proxy()).collect()
}

fn sandboxes() -> Vec<Operation> {
    let new = Operation::new;
    vec![
        new("POST", "/sandboxes", "createSandbox", "Makes a sandbox.")
            .header(
                IDEMPOTENCY_KEY_HEADER,
                "Extension: makes the request safe to repeat.",
            )
            .takes(Shape::Named("CreateSandboxRequest"))
            .answers_json(
                202,
                "It is made, or being made when its image must be pulled first.",
                Shape::Named("CreateSandboxResponse"),
            )
            .with_header("Location", Shape::Text)
            .answers_json(
                429,
                "The pool is used up, or too many requests came.",
                Shape::Named("ErrorResponse"),
            )
            .with_header("Retry-After", POSITIVE)
            .errors(&[403, 404, 409, 501, 504]),
        new(
            "GET",
            "/sandboxes",
            "listSandboxes",
            "Lists sandboxes, newest first.",
        )
        .query(
            "state",
            TEXTS,
            "Only in one of these states; may be repeated.",
        )
        .query(
            "metadata",
            Shape::Text,
            "Only with these labels: an encoded query of its own.",
        )
        .query("page", POSITIVE, "Which page, from 1.")
        .query("pageSize", PAGE_SIZE, "Sandboxes per page.")
        .answers_json(200, "The page.", Shape::Named("ListSandboxesResponse")),
        new(
            "GET",
            "/sandboxes/{sandboxId}",
            "getSandbox",
            "Shows a sandbox.",
        )
        .answers_json(200, "The sandbox.", SANDBOX)
        .errors(&[403, 404]),
        new(
            "DELETE",
            "/sandboxes/{sandboxId}",
            "deleteSandbox",
            "Ends a sandbox.",
        )
        .answers(204, "It is gone.")
        .errors(&[403, 404, 409]),
    ]
}

fn changes() -> Vec<Operation> {
    let new = Operation::new;
    vec![
        new(
            "PATCH",
            "/sandboxes/{sandboxId}/metadata",
            "patchSandboxMetadata",
            "Sets labels, and removes those that are null.",
        )
        .takes(Shape::MapOf(&Shape::NullableText))
        .answers_json(200, "The sandbox.", SANDBOX)
        .errors(&[403, 404, 409]),
        new(
            "POST",
            "/sandboxes/{sandboxId}/pause",
            "pauseSandbox",
            "Freezes a sandbox.",
        )
        .answers(202, "It is frozen, or being frozen.")
        .errors(&[403, 404, 409, 501]),
        new(
            "POST",
            "/sandboxes/{sandboxId}/resume",
            "resumeSandbox",
            "Lets a sandbox run on.",
        )
        .answers(202, "It runs, or will in a moment.")
        .errors(&[403, 404, 409, 501]),
        new(
            "POST",
            "/sandboxes/{sandboxId}/renew-expiration",
            "renewSandboxExpiration",
            "Says when a sandbox is to end.",
        )
        .takes(Shape::Named("RenewSandboxExpirationRequest"))
        .answers_json(
            200,
            "When it ends.",
            Shape::Named("RenewSandboxExpirationResponse"),
        )
        .errors(&[403, 404, 409]),
        new(
            "GET",
            "/sandboxes/{sandboxId}/endpoints/{port}",
            "getSandboxEndpoint",
            "Where a port of a sandbox can be reached.",
        )
        .path_parameter("port", PORT)
        .query(
            "use_server_proxy",
            Shape::Flag,
            "Answer the path through this server.",
        )
        .query(
            "expires",
            COUNT,
            "Sign the route until then, in Unix seconds.",
        )
        .answers_json(
            200,
            "Where, and with which headers.",
            Shape::Named("Endpoint"),
        )
        .with_header(ORIGIN_HEADER, Shape::Text)
        .errors(&[403, 404, 409, 504]),
    ]
}

fn snapshots() -> Vec<Operation> {
    let new = Operation::new;
    vec![
        new(
            "POST",
            "/sandboxes/{sandboxId}/snapshots",
            "createSnapshot",
            "Keeps a copy of a sandbox's filesystem.",
        )
        .may_take(Shape::Named("CreateSnapshotRequest"))
        .answers_json(202, "It is being made.", SNAPSHOT)
        .with_header("Location", Shape::Text)
        .errors(&[403, 404, 409, 501]),
        new(
            "GET",
            "/snapshots",
            "listSnapshots",
            "Lists snapshots, newest first.",
        )
        .query("sandboxId", Shape::Text, "Only of this sandbox.")
        .query("name", Shape::Text, "Only with this name.")
        .query(
            "state",
            TEXTS,
            "Only in one of these states; may be repeated.",
        )
        .query("page", POSITIVE, "Which page, from 1.")
        .query("pageSize", PAGE_SIZE, "Snapshots per page.")
        .answers_json(200, "The page.", Shape::Named("ListSnapshotsResponse"))
        .errors(&[501]),
        new(
            "GET",
            "/snapshots/{snapshotId}",
            "getSnapshot",
            "Shows a snapshot.",
        )
        .answers_json(200, "The snapshot.", SNAPSHOT)
        .errors(&[403, 404, 409, 501]),
        new(
            "DELETE",
            "/snapshots/{snapshotId}",
            "deleteSnapshot",
            "Removes a snapshot.",
        )
        .answers(204, "It is gone.")
        .errors(&[403, 404, 409, 501]),
    ]
}

fn policies() -> Vec<Operation> {
    const PATH: &str = "/sandboxes/{sandboxId}/networkpolicy";
    const STATUS: Shape = Shape::Named("PolicyStatusResponse");
    let new = |method, id, summary| Operation::new(method, PATH, id, summary);
    let operations = [
        new("GET", "getNetworkPolicy", "Shows what a sandbox may reach."),
        new(
            "PUT",
            "replaceNetworkPolicy",
            "Replaces what a sandbox may reach.",
        )
        .takes(Shape::Named("NetworkPolicy")),
        new(
            "PATCH",
            "patchNetworkPolicy",
            "Puts rules before the others.",
        )
        .takes(Shape::ListOf(&Shape::Named("NetworkRule"))),
        new(
            "DELETE",
            "deleteNetworkPolicy",
            "Removes the rules of these targets.",
        )
        .takes(TEXTS),
    ];
    let answered = |operation: Operation| {
        operation
            .answers_json(200, "How the policy stands.", STATUS)
            .errors(&[403, 404, 409, 501])
    };
    operations.map(answered).into()
}

fn pools() -> Vec<Operation> {
    let new = Operation::new;
    let operations = [
        new("GET", "/pools", "listPools", "Lists pools.").answers_json(
            200,
            "The pools.",
            Shape::Named("ListPoolsResponse"),
        ),
        new("POST", "/pools", "createPool", "Makes a pool.")
            .takes(Shape::Named("CreatePoolRequest"))
            .answers_json(201, "It is made.", POOL)
            .errors(&[409]),
        new("GET", "/pools/{poolName}", "getPool", "Shows a pool.")
            .answers_json(200, "The pool.", POOL)
            .errors(&[404]),
        new(
            "PUT",
            "/pools/{poolName}",
            "updatePool",
            "Changes how many sandboxes a pool holds.",
        )
        .takes(Shape::Named("UpdatePoolRequest"))
        .answers_json(200, "The pool.", POOL)
        .errors(&[404]),
        new(
            "DELETE",
            "/pools/{poolName}",
            "deletePool",
            "Removes a pool.",
        )
        .answers(204, "It is gone.")
        .errors(&[404]),
    ];
    operations.map(|operation| operation.errors(&[501])).into()
}

fn templates() -> Vec<Operation> {
    let new = Operation::new;
    let operations = [
        new(
            "GET",
            "/templates",
            "listTemplates",
            "Lists templates, newest first.",
        )
        .query("page", POSITIVE, "Which page, from 1.")
        .query("pageSize", PAGE_SIZE, "Templates per page.")
        .query(
            "metadata",
            Shape::Text,
            "Only with these labels: an encoded query of its own.",
        )
        .answers_json(200, "The page.", Shape::Named("ListFsbTemplatesResponse")),
        new("POST", "/templates", "createTemplate", "Prepares an image.")
            .takes(Shape::Named("CreateFsbTemplateRequest"))
            .answers_json(201, "It is being prepared.", TEMPLATE)
            .errors(&[409]),
        new(
            "GET",
            "/templates/{templateId}",
            "getTemplate",
            "Shows a template.",
        )
        .answers_json(200, "The template.", TEMPLATE)
        .errors(&[404]),
        new(
            "DELETE",
            "/templates/{templateId}",
            "deleteTemplate",
            "Removes a template.",
        )
        .answers(204, "It is gone.")
        .errors(&[404]),
    ];
    operations.map(|operation| operation.errors(&[501])).into()
}

fn records() -> Vec<Operation> {
    const EVENT: Content = Content {
        media: STREAM,
        shape: Shape::Named("LifecycleEvent"),
    };
    let new = Operation::new;
    vec![
        new(
            "POST",
            "/v1/metrics/events",
            "reportMetricsEvent",
            "Reports what a client measured.",
        )
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
fn texts() -> Vec<Operation> {
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
        super::diagnostics::LINES,
        "At most this many of the last lines.",
    )
    .query(
        "event_limit",
        super::diagnostics::EVENTS,
        "At most this many events.",
    );
    let answered = |operation: Operation| {
        operation
            .answers_with(200, "The text.", &PLAIN)
            .errors(&[400, 401, 403, 404, 405, 422, 429, 500, 503])
    };
    [inspect, summary].map(answered).into()
}

fn about() -> Vec<Operation> {
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
                media: TEXT,
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
        .map(|operation| operation.open().errors(&[405, 500]))
        .into()
}

fn proxy() -> Vec<Operation> {
    const ANYTHING: [Content; 1] = [Content {
        media: "*/*",
        shape: Shape::Any,
    }];
    let summary = "Passes the request to a port of the sandbox, upgrades included.";
    let new = |method, path, id| {
        Operation::new(method, path, id, summary)
            .open()
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
