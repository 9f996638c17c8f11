//! Named volumes that the backend keeps: list, make, remove.

use api::inventory::{CreateVolumeRequest, ListVolumesResponse, VolumeSummary};
use api::json;
use api::problem::Problems;
use api::query::Query;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use http::StatusCode;
use lifecycle::backend::NamedVolume;

use super::audit::CallerService;
use super::extract::{RawQuery, Whole};
use super::{Error, audit};

/// `GET /volumes`
pub(super) async fn list(
    CallerService(service): CallerService,
) -> Result<Json<ListVolumesResponse>, Error> {
    let volumes = service.volumes().await.map_err(Error::Volume)?;
    let items = volumes.into_iter().map(wire).collect();
    Ok(Json(ListVolumesResponse { items }))
}

/// `POST /volumes`
pub(super) async fn create(
    CallerService(service): CallerService,
    Whole(body): Whole,
) -> Result<Response, Error> {
    let body: CreateVolumeRequest =
        json::from_slice(&body).map_err(|problem| Error::body(vec![problem]))?;
    let creation = service.create_volume(&body.name);
    let volume = creation.await.map_err(Error::Volume)?;
    let target = Extension(audit::Target(body.name));
    Ok((StatusCode::CREATED, target, Json(wire(volume))).into_response())
}

/// `DELETE /volumes/{name}`
pub(super) async fn remove(
    CallerService(service): CallerService,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<StatusCode, Error> {
    let query = Query::parse(&query).map_err(|problem| Error::query(vec![problem]))?;
    let mut problems = Problems::new();
    let is_forced = query.flag("force", &mut problems);
    problems.into_result(()).map_err(Error::query)?;
    let removal = service.remove_volume(&name, is_forced.unwrap_or(false));
    removal.await.map_err(Error::Volume)?;
    Ok(StatusCode::NO_CONTENT)
}

fn wire(volume: NamedVolume) -> VolumeSummary {
    VolumeSummary {
        name: volume.name,
        created_at: volume.created_at.map(super::wire::micros),
        users: volume.users.iter().map(ToString::to_string).collect(),
    }
}
