//! The egress API of a sandbox: `/policy` and what else the contract has at port 18080, which a client finds by
//! asking for the endpoint of that port. It is answered here: nothing inside the sandbox has a part in it, and a
//! service that listens to that port there is not reached by it.
//!
//! Whoever shows the sandbox's egress token may read and change its policy, and so may an API key. What runs in
//! the sandbox never sees that token, which is another than the one of its daemon. Errors are plain text, as the
//! published clients expect.

use std::collections::BTreeMap;

use api::egress::policy::{EgressPolicy, PolicyStatus};
use api::endpoint::{EGRESS_AUTH_HEADER, EGRESS_PORT};
use api::error::ErrorCode;
use api::id::SandboxId;
use api::spec::{Contract, Operation};
use axum::extract::{RawPathParams, Request, State};
use axum::handler::Handler;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, any, on};
use axum::{Json, Router};
use http::HeaderValue;
use lifecycle::{Caller, PolicyChange};
use proxy::Peer;
use secrecy::ExposeSecret as _;

use super::audit::{self, CallerService};
use super::error::egress::Plain;
use super::extract::{OfSandbox, Whole};
use super::{App, Error, address_of, api_key, guard, not_supported, policy};
use crate::ingress;

/// What the audit trail calls a change of a policy.
const CHANGE: &str = "sandbox.policy";

/// The routes, at `/` and at `/v1`.
pub(super) fn routes(app: &App) -> Router<App> {
    let base = format!("/sandboxes/{{id}}/proxy/{EGRESS_PORT}");
    let mut routes: BTreeMap<String, MethodRouter<App>> = BTreeMap::new();
    for operation in Contract::Egress.operations() {
        if operation.id == "getHealth" {
            continue;
        }
        let pattern = operation.path.replace("credential_name", "name");
        let pattern = pattern.replace("binding_name", "name");
        let mut route = handler(&operation);
        if operation.method != "GET" {
            route = route.route_layer(from_fn_with_state((app.clone(), CHANGE), audit::record));
        }
        let known = routes.entry(pattern).or_default();
        *known = std::mem::take(known).merge(route);
    }
    let mut below = Router::new();
    for (pattern, route) in routes {
        let route = route.fallback(|| async { Plain(Error::MethodNotAllowed) });
        below = below.route(&format!("{base}{pattern}"), route);
    }
    let below = below
        .route_layer(from_fn_with_state(app.clone(), guard::limit))
        .route_layer(from_fn_with_state(app.clone(), authenticate))
        .route(&format!("{base}/healthz"), any(|| async { "ok" }))
        .route(&base, any(nothing_here))
        .route(&format!("{base}/{{*rest}}"), any(nothing_here));
    below.clone().nest("/v1", below)
}

fn handler(operation: &Operation) -> MethodRouter<App> {
    let method: http::Method = operation.method.parse().expect("a method of HTTP");
    let method = MethodFilter::try_from(method).expect("a method that the router knows");
    fn to<T: 'static>(method: MethodFilter, handler: impl Handler<T, App>) -> MethodRouter<App> {
        on(method, handler)
    }
    match &*operation.id {
        "getPolicy" => to(method, get),
        "putPolicy" | "postPolicy" => to(method, replace),
        "patchPolicy" => to(method, patch),
        "deletePolicyTargets" => to(method, delete),
        _ => to(method, no_vault),
    }
}

/// `GET /policy`
async fn get(
    CallerService(service): CallerService,
    OfSandbox(id): OfSandbox,
) -> Result<Json<PolicyStatus>, Plain> {
    Ok(Json(policy::show(&service, &id).await?))
}

/// `PUT /policy` and `POST /policy`; an empty body denies everything.
async fn replace(
    State(app): State<App>,
    CallerService(service): CallerService,
    OfSandbox(id): OfSandbox,
    body: Result<Whole, Error>,
) -> Result<Json<PolicyStatus>, Plain> {
    let Whole(body) = body?;
    if !body.trim_ascii().is_empty() {
        let change = policy::replacement(&app, &body)?;
        return Ok(Json(policy::change(&service, &id, change).await?));
    }
    let reset = PolicyChange::Replace(EgressPolicy::DENY_ALL);
    let status = policy::change(&service, &id, reset).await?;
    Ok(Json(PolicyStatus {
        enforcement_mode: None,
        reason: Some("policy reset to default deny-all".to_owned()),
        ..status
    }))
}

/// `PATCH /policy`
async fn patch(
    CallerService(service): CallerService,
    OfSandbox(id): OfSandbox,
    body: Result<Whole, Error>,
) -> Result<Json<PolicyStatus>, Plain> {
    let change = policy::merger(&body?.0)?;
    Ok(Json(policy::change(&service, &id, change).await?))
}

/// `DELETE /policy`
async fn delete(
    CallerService(service): CallerService,
    OfSandbox(id): OfSandbox,
    body: Result<Whole, Error>,
) -> Result<Json<PolicyStatus>, Plain> {
    let change = policy::removal(&body?.0)?;
    Ok(Json(policy::change(&service, &id, change).await?))
}

/// `/credential-vault` and what is below it. In the server's own form: no sidecar answers so, and the code tells
/// clients apart what is missing from what went wrong.
async fn no_vault() -> Error {
    let code = ErrorCode::SandboxApiNotSupported;
    not_supported(
        code,
        "credential vaults are not supported by this server yet",
    )
}

async fn nothing_here() -> Plain {
    Plain(Error::NotFound)
}

/// Lets pass who shows the sandbox's egress token, or an API key.
async fn authenticate(
    State(app): State<App>,
    path: RawPathParams,
    mut request: Request,
    next: Next,
) -> Response {
    let id = path.iter().next().map(|(_, id)| id.parse::<SandboxId>());
    let Some(Ok(id)) = id else {
        return Plain(Error::NotFound).into_response();
    };
    let shown = request.headers().get(EGRESS_AUTH_HEADER);
    let shown = shown.map(HeaderValue::as_bytes);
    let sandbox = app.0.control.for_caller(Caller::visitor()).get(&id);
    let is_holder = shown.is_some_and(|shown| {
        let own = sandbox.as_ref().map(|it| it.egress_token.expose_secret());
        own.is_ok_and(|own| daemon::secret::equal(shown, own))
    });
    if is_holder {
        request.extensions_mut().insert(Caller::policy_holder());
        return next.run(request).await;
    }
    let key = api_key(request.headers());
    if app.0.keys.is_open() || key.is_none() {
        return Plain(unauthorized(id)).into_response();
    }
    let from = address_of(request.extensions().get::<Peer>());
    match app.0.keys.check(key, from) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(denied) => Plain(denied.into()).into_response(),
    }
}

fn unauthorized(id: SandboxId) -> Error {
    proxy::Error::Sandbox(ingress::Error::Unauthorized(id)).into()
}
