//! Sandboxes: make, read, list, change and end them.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::json;
use api::label::check_patch;
use api::problem::{Problem, Problems};
use api::query::ListSandboxesQuery;
use api::sandbox::{
    IDEMPOTENCY_KEY_HEADER, ListSandboxesResponse, RenewSandboxExpirationRequest,
    RenewSandboxExpirationResponse,
};
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use http::{HeaderMap, StatusCode, header};
use lifecycle::{Page, Right, Sandbox, SandboxFilter, Service};

use super::audit::{self, CallerService};
use super::extract::{OfSandbox, RawQuery, Whole};
use super::{App, Error, create as creation, wire};

/// Longer keys carry no more meaning; a UUID has 36 characters.
const IDEMPOTENCY_KEY_MAX: usize = 255;

/// `POST /sandboxes`
pub(super) async fn create(
    State(app): State<App>,
    CallerService(service): CallerService,
    headers: HeaderMap,
    Whole(body): Whole,
) -> Result<Response, Error> {
    let body = json::from_slice(&body).map_err(|problem| Error::body(vec![problem]))?;
    let request = creation::request(&body, &app.0.rules.egress)?;
    let key = idempotency_key(&headers)?;
    let creation = service.create(request, key).await?;
    let answer = Json(wire::created(&creation.sandbox));
    let id = &creation.sandbox.id;
    let location = [(header::LOCATION, format!("/v1/sandboxes/{id}"))];
    let target = Extension(audit::Target(id.to_string()));
    Ok((StatusCode::ACCEPTED, location, target, answer).into_response())
}

/// `GET /sandboxes`
pub(super) async fn list(
    CallerService(service): CallerService,
    RawQuery(query): RawQuery,
) -> Result<Json<ListSandboxesResponse>, Error> {
    let query = ListSandboxesQuery::parse(&query).map_err(Error::query)?;
    service.require(Right::Read)?;
    let page = find(&service, &query);
    let pagination = wire::pagination(&page);
    let items = page
        .items
        .iter()
        .map(|sandbox| wire::sandbox(sandbox))
        .collect();
    Ok(Json(ListSandboxesResponse { items, pagination }))
}

fn find(service: &Service, query: &ListSandboxesQuery) -> Page<Arc<Sandbox>> {
    let number = u32::try_from(query.page.number).unwrap_or(u32::MAX);
    let size = u32::try_from(query.page.size).unwrap_or(u32::MAX);
    let states: Vec<_> = query
        .states
        .iter()
        .filter_map(|it| wire::known_state(*it))
        .collect();
    if states.is_empty() && !query.states.is_empty() {
        // Only states were asked for that no sandbox is ever in.
        return Page {
            items: Vec::new(),
            page: number,
            page_size: size,
            total_items: 0,
        };
    }
    let filter = SandboxFilter {
        states,
        metadata: query.metadata.clone(),
    };
    service.list(&filter, number, size)
}

/// `GET /sandboxes/{id}`
pub(super) async fn get(
    CallerService(service): CallerService,
    OfSandbox(id): OfSandbox,
) -> Result<Json<api::sandbox::Sandbox>, Error> {
    let sandbox = service.get(&id)?;
    service.require(Right::Read)?;
    Ok(Json(wire::sandbox(&sandbox)))
}

/// `PATCH /sandboxes/{id}/metadata`
pub(super) async fn patch_metadata(
    CallerService(service): CallerService,
    OfSandbox(id): OfSandbox,
    Whole(body): Whole,
) -> Result<Json<api::sandbox::Sandbox>, Error> {
    let patch: BTreeMap<String, Option<String>> =
        json::from_slice(&body).map_err(|problem| Error::body(vec![problem]))?;
    let mut problems = Problems::new();
    check_patch(&patch, &mut problems);
    problems.into_result(()).map_err(Error::body)?;
    Ok(Json(wire::sandbox(
        &*service.patch_metadata(&id, patch).await?,
    )))
}

/// `DELETE /sandboxes/{id}`
pub(super) async fn delete(
    CallerService(service): CallerService,
    OfSandbox(id): OfSandbox,
) -> Result<StatusCode, Error> {
    service.delete(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /sandboxes/{id}/pause`
pub(super) async fn pause(
    CallerService(service): CallerService,
    OfSandbox(id): OfSandbox,
) -> Result<StatusCode, Error> {
    service.pause(&id).await?;
    Ok(StatusCode::ACCEPTED)
}

/// `POST /sandboxes/{id}/resume`
pub(super) async fn resume(
    CallerService(service): CallerService,
    OfSandbox(id): OfSandbox,
) -> Result<StatusCode, Error> {
    service.resume(&id).await?;
    Ok(StatusCode::ACCEPTED)
}

/// `POST /sandboxes/{id}/renew-expiration`
pub(super) async fn renew(
    CallerService(service): CallerService,
    OfSandbox(id): OfSandbox,
    Whole(body): Whole,
) -> Result<Json<RenewSandboxExpirationResponse>, Error> {
    let body: RenewSandboxExpirationRequest =
        json::from_slice(&body).map_err(|problem| Error::body(vec![problem]))?;
    let expires_at = wire::micros(service.renew(&id, body.expires_at).await?);
    Ok(Json(RenewSandboxExpirationResponse { expires_at }))
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Error> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY_HEADER) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default();
    if text.is_empty() || text.len() > IDEMPOTENCY_KEY_MAX {
        let message = format!("must have 1 to {IDEMPOTENCY_KEY_MAX} visible ASCII characters");
        let problems = vec![Problem::new(IDEMPOTENCY_KEY_HEADER, message)];
        return Err(Error::Invalid {
            part: "header",
            problems,
        });
    }
    Ok(Some(text))
}
