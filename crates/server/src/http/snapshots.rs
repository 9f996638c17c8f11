//! Snapshots: make, read, list and remove them.

use api::json;
use api::query::ListSnapshotsQuery;
use api::snapshot::{CreateSnapshotRequest, ListSnapshotsResponse};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use http::{StatusCode, header};
use lifecycle::{Page, Right, SnapshotFilter};

use super::audit::{self, CallerService};
use super::extract::{OfSandbox, OfSnapshot, RawQuery, Whole};
use super::{Error, wire};

/// `POST /sandboxes/{id}/snapshots`
pub(super) async fn create(
    CallerService(service): CallerService,
    OfSandbox(id): OfSandbox,
    Whole(body): Whole,
) -> Result<Response, Error> {
    let body: CreateSnapshotRequest =
        json::from_slice_or_default(&body).map_err(|problem| Error::body(vec![problem]))?;
    body.validate().map_err(Error::body)?;
    let snapshot = service.create_snapshot(&id, body.name).await?;
    let location = [(header::LOCATION, format!("/v1/snapshots/{}", snapshot.id))];
    let target = Extension(audit::Target(snapshot.id.to_string()));
    let answer = Json(wire::snapshot(&snapshot));
    Ok((StatusCode::ACCEPTED, location, target, answer).into_response())
}

/// `GET /snapshots`
pub(super) async fn list(
    CallerService(service): CallerService,
    RawQuery(query): RawQuery,
) -> Result<Json<ListSnapshotsResponse>, Error> {
    let query = ListSnapshotsQuery::parse(&query).map_err(Error::query)?;
    service.require(Right::Read)?;
    let number = u32::try_from(query.page.number).unwrap_or(u32::MAX);
    let size = u32::try_from(query.page.size).unwrap_or(u32::MAX);
    let page = match filter(query) {
        Some(filter) => service.list_snapshots(&filter, number, size),
        None => Page {
            items: Vec::new(),
            page: number,
            page_size: size,
            total_items: 0,
        },
    };
    let pagination = wire::pagination(&page);
    let items = page
        .items
        .iter()
        .map(|snapshot| wire::snapshot(snapshot))
        .collect();
    Ok(Json(ListSnapshotsResponse { items, pagination }))
}

/// `None` where nothing can match: an id that is none, or only states that do not exist.
fn filter(query: ListSnapshotsQuery) -> Option<SnapshotFilter> {
    let states: Vec<_> = query
        .states
        .iter()
        .filter_map(|it| wire::known_snapshot_state(*it))
        .collect();
    if states.is_empty() && !query.states.is_empty() {
        return None;
    }
    let sandbox_id = query.sandbox_id.map(|id| id.parse()).transpose().ok()?;
    Some(SnapshotFilter {
        sandbox_id,
        name: query.name,
        states,
    })
}

/// `GET /snapshots/{id}`
pub(super) async fn get(
    CallerService(service): CallerService,
    OfSnapshot(id): OfSnapshot,
) -> Result<Json<api::snapshot::Snapshot>, Error> {
    Ok(Json(wire::snapshot(&*service.get_snapshot(&id)?)))
}

/// `DELETE /snapshots/{id}`
pub(super) async fn delete(
    CallerService(service): CallerService,
    OfSnapshot(id): OfSnapshot,
) -> Result<StatusCode, Error> {
    service.delete_snapshot(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}
