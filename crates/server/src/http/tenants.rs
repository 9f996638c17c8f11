//! Tenants: list, make, show and remove them.

use api::access::{CreateTenantRequest, ListTenantsResponse, Tenant};
use api::json;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use http::StatusCode;
use lifecycle::TenantRecord;

use super::audit::{self, CallerService};
use super::extract::Whole;
use super::{Error, wire};

/// `GET /tenants`
pub(super) async fn list(
    CallerService(service): CallerService,
) -> Result<Json<ListTenantsResponse>, Error> {
    let tenants = service.tenants()?;
    let items = tenants.iter().map(|tenant| to_wire(tenant)).collect();
    Ok(Json(ListTenantsResponse { items }))
}

/// `POST /tenants`
pub(super) async fn create(
    CallerService(service): CallerService,
    Whole(body): Whole,
) -> Result<Response, Error> {
    let body: CreateTenantRequest =
        json::from_slice(&body).map_err(|problem| Error::body(vec![problem]))?;
    let made = service.create_tenant(&body.name).await?;
    let target = Extension(audit::Target(body.name));
    Ok((StatusCode::CREATED, target, Json(to_wire(&made))).into_response())
}

/// `GET /tenants/{name}`
pub(super) async fn get(
    CallerService(service): CallerService,
    Path(name): Path<String>,
) -> Result<Json<Tenant>, Error> {
    Ok(Json(to_wire(&*service.tenant(&name)?)))
}

/// `DELETE /tenants/{name}`
pub(super) async fn remove(
    CallerService(service): CallerService,
    Path(name): Path<String>,
) -> Result<StatusCode, Error> {
    service.delete_tenant(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn to_wire(record: &TenantRecord) -> Tenant {
    Tenant {
        name: record.name.to_string(),
        is_configured: record.is_given,
        created_at: wire::micros(record.created_at),
    }
}
