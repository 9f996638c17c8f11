//! Keys and the tokens that are made from them: list, make, rotate, revoke.

use std::collections::BTreeSet;
use std::time::Duration;

use api::access::{
    ApiKey, CreateKeyRequest, CreateTokenRequest, KeyAction, KeyRole, ListKeysResponse, NewApiKey,
    RotateKeyRequest,
};
use api::json;
use api::problem::Problem;
use api::secret::Secret;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use http::StatusCode;
use lifecycle::{KeySummary, NewKey, NewToken, Right, Role, Scope};
use secrecy::{ExposeSecret as _, SecretString};

use super::audit::{self, CallerService};
use super::extract::Whole;
use super::{Error, wire};

/// `GET /keys`
pub(super) async fn list(
    CallerService(service): CallerService,
) -> Result<Json<ListKeysResponse>, Error> {
    let items = service.keys()?.iter().map(to_wire).collect();
    Ok(Json(ListKeysResponse { items }))
}

/// `POST /keys`
pub(super) async fn create(
    CallerService(service): CallerService,
    Whole(body): Whole,
) -> Result<Response, Error> {
    let body: CreateKeyRequest =
        json::from_slice(&body).map_err(|problem| Error::body(vec![problem]))?;
    let made = service.create_key(new_key(body)?).await?;
    Ok(shown(StatusCode::CREATED, made))
}

/// `DELETE /keys/{id}`
pub(super) async fn revoke(
    CallerService(service): CallerService,
    Path(id): Path<String>,
) -> Result<StatusCode, Error> {
    service.revoke_key(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /keys/{id}/rotate`
pub(super) async fn rotate(
    CallerService(service): CallerService,
    Path(id): Path<String>,
    Whole(body): Whole,
) -> Result<Response, Error> {
    let body: RotateKeyRequest =
        json::from_slice_or_default(&body).map_err(|problem| Error::body(vec![problem]))?;
    let grace = Duration::from_secs(body.grace_seconds.unwrap_or_default());
    let made = service.rotate_key(&id, grace).await?;
    Ok(shown(StatusCode::OK, made))
}

/// `POST /tokens`
pub(super) async fn token(
    CallerService(service): CallerService,
    Whole(body): Whole,
) -> Result<Response, Error> {
    let body: CreateTokenRequest =
        json::from_slice_or_default(&body).map_err(|problem| Error::body(vec![problem]))?;
    let made = service.create_token(NewToken {
        sandbox: body.sandbox_id,
        actions: body.actions.as_deref().map(rights),
        ttl: body.ttl_seconds.map(Duration::from_secs),
    });
    Ok(shown(StatusCode::CREATED, made.await?))
}

fn new_key(body: CreateKeyRequest) -> Result<NewKey, Error> {
    let tenant = body.tenant.map(|name| name.parse()).transpose();
    Ok(NewKey {
        name: body.name,
        tenant: tenant.map_err(|error: lifecycle::ParseTenantError| {
            Error::body(vec![Problem::new("tenant", error.to_string())])
        })?,
        role: match body.role {
            KeyRole::Admin => Role::Admin,
            KeyRole::Operator => Role::Operator,
            KeyRole::User => Role::User,
            KeyRole::Viewer => Role::Viewer,
        },
        scope: Scope {
            actions: body.actions.as_deref().map(rights),
            images: body.images,
            labels: body.labels,
            sandbox: None,
        },
        expires_at: body.expires_at,
    })
}

/// The actions of the contract, and the rights that they are.
const ACTIONS: [(KeyAction, Right); 8] = [
    (KeyAction::Read, Right::Read),
    (KeyAction::Connect, Right::Connect),
    (KeyAction::Create, Right::Create),
    (KeyAction::Change, Right::Change),
    (KeyAction::Images, Right::Images),
    (KeyAction::Audit, Right::Audit),
    (KeyAction::Metrics, Right::Metrics),
    (KeyAction::Keys, Right::Keys),
];

fn rights(actions: &[KeyAction]) -> BTreeSet<Right> {
    let is_asked = |(action, _): &&(KeyAction, Right)| actions.contains(action);
    ACTIONS.iter().filter(is_asked).map(|it| it.1).collect()
}

fn shown(status: StatusCode, (made, value): (KeySummary, SecretString)) -> Response {
    let target = Extension(audit::Target(made.key.id.to_string()));
    let answer = Json(NewApiKey {
        value: Secret::new(value.expose_secret()),
        key: to_wire(&made),
    });
    (status, target, answer).into_response()
}

fn to_wire(summary: &KeySummary) -> ApiKey {
    let key = &summary.key;
    let actions = key.scope.actions.as_ref().map(|rights| {
        let is_left = |(_, right): &&(KeyAction, Right)| rights.contains(right);
        ACTIONS.iter().filter(is_left).map(|it| it.0).collect()
    });
    ApiKey {
        id: key.id.to_string(),
        name: key.name.to_string(),
        tenant: key.tenant.to_string(),
        role: match key.role {
            Role::Admin | Role::Server => KeyRole::Admin,
            Role::Operator => KeyRole::Operator,
            Role::User => KeyRole::User,
            Role::Viewer | Role::Visitor | Role::PolicyHolder => KeyRole::Viewer,
        },
        actions,
        images: key.scope.images.clone(),
        labels: key.scope.labels.clone(),
        sandbox_id: key.scope.sandbox.clone(),
        parent: key.parent.as_deref().map(str::to_owned),
        is_configured: summary.is_given,
        created_at: wire::micros(key.created_at),
        expires_at: key.expires_at.map(wire::micros),
        last_used_at: key.last_used_at.map(wire::micros),
    }
}
