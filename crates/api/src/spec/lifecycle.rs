//! The lifecycle contract. Every path stands at `/` and at `/v1`, except where one is named.

mod access;
mod edge;
mod inventory;
mod prepared;

use super::document::{Frame, Schemas};
use super::operation::{COUNT, Operation, POSITIVE, Shape};
use crate::access::{
    CreateKeyRequest, CreateTenantRequest, CreateTokenRequest, ListKeysResponse,
    ListTenantsResponse, NewApiKey, RotateKeyRequest,
};
use crate::diagnostics::{DiagnosticContent, LogEvent};
use crate::endpoint::Endpoint;
use crate::error::ErrorBody;
use crate::event::{LifecycleEvent, ListAuditEventsResponse};
use crate::inventory::{
    CreateVolumeRequest, ImportImagesResponse, ListImagesResponse, ListVolumesResponse,
    PruneImagesResponse, PullEvent, PullImageRequest,
};
use crate::metrics_event::MetricsEvent;
use crate::network_policy::PolicyStatus;
use crate::pool::{CreatePoolRequest, ListPoolsResponse, UpdatePoolRequest};
use crate::query::PAGE_SIZE_MAX;
use crate::sandbox::{
    API_KEY_HEADER, CreateSandboxRequest, CreateSandboxResponse, Health, IDEMPOTENCY_KEY_HEADER,
    ListSandboxesResponse, ORIGIN_HEADER, REQUEST_ID_HEADER, RenewSandboxExpirationRequest,
    RenewSandboxExpirationResponse, Sandbox,
};
use crate::snapshot::{CreateSnapshotRequest, ListSnapshotsResponse, Snapshot};
use crate::template::{CreateTemplateRequest, ListTemplatesResponse, Template};
use crate::version::{ServerCapabilities, Version};

const SANDBOX: Shape = Shape::Named("Sandbox");
const SNAPSHOT: Shape = Shape::Named("Snapshot");
const PORT: Shape = Shape::Integer {
    minimum: 1,
    maximum: Some(65535),
};
const PAGE_SIZE: Shape = Shape::Integer {
    minimum: 1,
    maximum: Some(PAGE_SIZE_MAX as i64),
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
            .with::<ServerCapabilities>()
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
            .with::<LogEvent>()
            .with::<ListAuditEventsResponse>()
            .with::<ListImagesResponse>()
            .with::<PullImageRequest>()
            .with::<PullEvent>()
            .with::<ImportImagesResponse>()
            .with::<PruneImagesResponse>()
            .with::<ListVolumesResponse>()
            .with::<CreateVolumeRequest>()
            .with::<CreateKeyRequest>()
            .with::<NewApiKey>()
            .with::<ListKeysResponse>()
            .with::<RotateKeyRequest>()
            .with::<CreateTokenRequest>()
            .with::<CreateTenantRequest>()
            .with::<ListTenantsResponse>(),
    }
}

pub(super) fn operations() -> Vec<Operation> {
    let mut operations = sandboxes();
    operations.extend(changes());
    operations.extend(endpoints());
    operations.extend(snapshots());
    operations.extend(policies());
    operations.extend(prepared::pools());
    operations.extend(prepared::templates());
    operations.extend(edge::records());
    operations.extend(inventory::images());
    operations.extend(inventory::archives());
    operations.extend(inventory::volumes());
    operations.extend(access::keys());
    operations.extend(access::tenants());
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
    operations.extend(edge::texts());
    operations.extend(edge::about());
    let named =
        |operation: Operation| operation.with_header_everywhere(REQUEST_ID_HEADER, Shape::Text);
    operations
        .into_iter()
        .map(named)
        .chain(edge::proxy())
        .collect()
}

fn sandboxes() -> Vec<Operation> {
    let new = Operation::new;
    vec![
        new("POST", "/sandboxes", "createSandbox", "Makes a sandbox.")
            .audited("sandbox.create")
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
        .audited("sandbox.delete")
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
        .audited("sandbox.metadata")
        .takes(Shape::MapOf(&Shape::NullableText))
        .answers_json(200, "The sandbox.", SANDBOX)
        .errors(&[403, 404, 409]),
        new(
            "POST",
            "/sandboxes/{sandboxId}/pause",
            "pauseSandbox",
            "Freezes a sandbox.",
        )
        .audited("sandbox.pause")
        .answers(202, "It is frozen, or being frozen.")
        .errors(&[403, 404, 409, 501]),
        new(
            "POST",
            "/sandboxes/{sandboxId}/resume",
            "resumeSandbox",
            "Lets a sandbox run on.",
        )
        .audited("sandbox.resume")
        .answers(202, "It runs, or will in a moment.")
        .errors(&[403, 404, 409, 501]),
        new(
            "POST",
            "/sandboxes/{sandboxId}/renew-expiration",
            "renewSandboxExpiration",
            "Says when a sandbox is to end.",
        )
        .audited("sandbox.renew")
        .takes(Shape::Named("RenewSandboxExpirationRequest"))
        .answers_json(
            200,
            "When it ends.",
            Shape::Named("RenewSandboxExpirationResponse"),
        )
        .errors(&[403, 404, 409]),
    ]
}

fn endpoints() -> Vec<Operation> {
    vec![
        Operation::new(
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
        .query(
            "scope",
            Shape::Text,
            "What the signature is for: port or sandbox.",
        )
        .query(
            "link",
            Shape::Flag,
            "Answer a link for a browser, too; expires is its end then.",
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
        .audited("snapshot.create")
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
        .audited("snapshot.delete")
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
        .audited("sandbox.policy")
        .takes(Shape::Named("NetworkPolicy")),
        new(
            "PATCH",
            "patchNetworkPolicy",
            "Puts rules before the others.",
        )
        .audited("sandbox.policy")
        .takes(Shape::ListOf(&Shape::Named("NetworkRule"))),
        new(
            "DELETE",
            "deleteNetworkPolicy",
            "Removes the rules of these targets.",
        )
        .audited("sandbox.policy")
        .takes(TEXTS),
    ];
    let answered = |operation: Operation| {
        operation
            .answers_json(200, "How the policy stands.", STATUS)
            .errors(&[403, 404, 409, 501])
    };
    operations.map(answered).into()
}
