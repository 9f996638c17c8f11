//! The routes of terminals.

use std::sync::Arc;

use api::exec::pty::{ConnectQuery, CreatePtyRequest, CreatePtyResponse, Mode, PtyStatus};
use api::id::PtyId;
use axum::Router;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use axum::routing::{get, post};
use http::StatusCode;

use super::{Pty, mode_of, socket};
use crate::http::{OptionalJson, Problem};
use crate::path;
use crate::process::locked;
use crate::state::{self, Shared};

/// A frame from a client: keystrokes and pasted text. Over this the connection is closed.
const CLIENT_FRAME_BYTES: usize = 1024 * 1024;

type Answer<T> = Result<T, Problem>;

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/pty", post(create))
        .route("/pty/{id}", get(status).delete(remove))
        .route("/pty/{id}/ws", get(connect))
        .with_state(shared)
}

async fn create(
    State(shared): State<Arc<Shared>>,
    OptionalJson(request): OptionalJson<CreatePtyRequest>,
) -> Answer<(StatusCode, axum::Json<CreatePtyResponse>)> {
    let size = request.size();
    let cwd = request
        .cwd
        .filter(|cwd| !cwd.is_empty())
        .map(|cwd| path::expand(&cwd, &shared.environment))
        .transpose()
        .map_err(|error| Problem::bad_request(format!("cwd is not usable: {error}")))?;
    let command = request.command.filter(|command| !command.is_empty());
    if command
        .as_deref()
        .is_some_and(|command| command.contains('\0'))
    {
        return Err(Problem::bad_request("command contains a NUL byte"));
    }
    let pty = Arc::new(Pty::new(state::fresh_id::<PtyId>(), cwd, command, size));
    shared.ptys.add(&pty)?;
    let created = CreatePtyResponse {
        session_id: pty.id.clone(),
    };
    Ok((StatusCode::CREATED, axum::Json(created)))
}

async fn status(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
) -> Answer<axum::Json<PtyStatus>> {
    let pty = find(&shared, &id)?;
    let inner = locked(&pty.inner);
    Ok(axum::Json(PtyStatus {
        session_id: pty.id.clone(),
        running: inner.shell.is_some(),
        output_offset: inner.ring.end(),
    }))
}

async fn remove(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Answer<()> {
    let pty = shared.ptys.take(&id).ok_or_else(|| no_such(&id))?;
    pty.kill();
    Ok(())
}

async fn connect(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    Query(query): Query<ConnectQuery>,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Answer<Response> {
    let pty = find(&shared, &id)?;
    if pty.is_held() && !query.wants_takeover() {
        return Err(Problem::already_connected(
            "another client holds this terminal; connect with takeover=1 to take it over",
        ));
    }
    let upgrade = upgrade.map_err(|error| Problem::bad_request(error.body_text()))?;
    let mode = mode_of(query.wants_pipe());
    let since = query.since.unwrap_or(0);
    if let Some(size) = query.size().filter(|_| mode == Mode::Pty) {
        pty.set_size(size);
    }
    Ok(upgrade
        .max_message_size(CLIENT_FRAME_BYTES)
        .on_upgrade(move |socket| socket::serve(shared, pty, socket, mode, since)))
}

fn find(shared: &Shared, id: &str) -> Answer<Arc<Pty>> {
    shared.ptys.find(id).ok_or_else(|| no_such(id))
}

fn no_such(id: &str) -> Problem {
    Problem::no_such("terminal", id)
}
