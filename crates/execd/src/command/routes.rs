//! The routes of commands.

use std::sync::Arc;

use api::exec::command::{
    CommandStatus, InterruptQuery, LOGS_CURSOR_HEADER, LogsQuery, ResumeQuery, RunCommandRequest,
    StdinQuery, StdinResponse,
};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use axum::routing::{get, post};
use futures_util::StreamExt as _;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::request::CommandSpec;
use super::run::{self, StartError};
use super::{Command, InterruptError};
use crate::http::{Json, Problem};
use crate::output::{self, EventShape, EventsGone, StreamStart};
use crate::state::Shared;

/// Tells where the answered logs begin, which is later than asked for when the output
/// before is not kept any more.
const LOGS_START_HEADER: &str = "execd-commands-start-cursor";

type Answer<T> = Result<T, Problem>;

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/command", post(run).delete(interrupt).get(list))
        .route("/command/status/{id}", get(status))
        .route("/command/{id}/logs", get(logs))
        .route("/command/{id}/events", get(resume))
        .route("/command/{id}/stream", get(resume))
        .route("/command/{id}/stdin", post(write_stdin))
        .with_state(shared)
}

async fn run(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Json(request): Json<RunCommandRequest>,
) -> Answer<Response> {
    let spec =
        CommandSpec::try_from(request).map_err(|error| Problem::bad_request(error.to_string()))?;
    let command = run::start(&shared, spec).await?;
    command.respond(
        EventShape::of(&headers),
        0,
        command.is_background && command.process.is_some(),
    )
}

async fn list(State(shared): State<Arc<Shared>>) -> axum::Json<Vec<CommandStatus>> {
    axum::Json(shared.commands.list())
}

async fn interrupt(
    State(shared): State<Arc<Shared>>,
    query: Result<Query<InterruptQuery>, axum::extract::rejection::QueryRejection>,
) -> Answer<()> {
    let Query(InterruptQuery { id }) =
        query.map_err(|_| Problem::missing_query("the query parameter id is missing"))?;
    if let Some(command) = shared.commands.find(&id) {
        return command.interrupt().await.map_err(Problem::from);
    }
    if let Some(session) = shared.sessions.find(&id) {
        return session
            .interrupt()
            .await
            .map_err(|error| Problem::conflict(error.to_string()));
    }
    if shared.commands.status(&id).is_some() {
        return Err(InterruptError::NotRunning.into());
    }
    Err(Problem::no_such("command or session", &id))
}

async fn status(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
) -> Answer<axum::Json<CommandStatus>> {
    shared
        .commands
        .status(&id)
        .map(axum::Json)
        .ok_or_else(|| no_such(&id))
}

async fn logs(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    Query(query): Query<LogsQuery>,
) -> Answer<Response> {
    let command = find_with_output(&shared, &id)?;
    let logs = output::read_logs(&command.journal, query.offset());
    let mut response = Response::new(logs.body);
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    let cursor: HeaderName = LOGS_CURSOR_HEADER.parse().expect("a header's name");
    headers.insert(cursor, HeaderValue::from(logs.end));
    headers.insert(
        HeaderName::from_static(LOGS_START_HEADER),
        HeaderValue::from(logs.start),
    );
    Ok(response)
}

async fn resume(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    query: Result<Query<ResumeQuery>, axum::extract::rejection::QueryRejection>,
) -> Answer<Response> {
    let Query(query) = query.map_err(|_| {
        Problem::bad_request("after is the number (seq) of the last event that was seen")
    })?;
    find_with_output(&shared, &id)?.respond(EventShape::Present, query.after.unwrap_or(0), false)
}

async fn write_stdin(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    Query(query): Query<StdinQuery>,
    body: Body,
) -> Answer<axum::Json<StdinResponse>> {
    let command = find_with_output(&shared, &id)?;
    let mut stdin = command.stdin.lock().await;
    let Some(pipe) = stdin.as_mut() else {
        return Err(stdin_failed(
            "the command's stdin is not open: start it with \"stdin_open\": true; \
             it closes with ?close=true and when the command ends",
        ));
    };
    let mut written = 0;
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece
            .map_err(|_| Problem::bad_request("the request body ended before it was complete"))?;
        command.write(pipe, &piece).await.map_err(|error| {
            stdin_failed(&format!(
                "the command does not take its input any more: {error}"
            ))
        })?;
        written += piece.len() as u64;
    }
    if query.close {
        stdin.take();
    }
    Ok(axum::Json(StdinResponse { written }))
}

impl Command {
    fn respond(&self, shape: EventShape, after: u64, is_detached: bool) -> Answer<Response> {
        let start = StreamStart {
            id: self.id.to_string(),
            started_ms: self.started_at.as_millisecond(),
            shape,
            after,
            is_detached,
        };
        Ok(output::respond(&self.journal, &start)?)
    }
}

/// The command with its output, or why there is none.
fn find_with_output(shared: &Shared, id: &str) -> Answer<Arc<Command>> {
    shared.commands.find(id).ok_or_else(|| match shared.commands.status(id) {
        Some(_) => Problem::gone(
            format!("the output of command {id} is no longer kept (KEPT_MEMORY_BYTES, KEPT_FILE_BYTES); its status is"),
        ),
        None => no_such(id),
    })
}

fn no_such(id: &str) -> Problem {
    Problem::no_such("command", id)
}

fn stdin_failed(message: &str) -> Problem {
    Problem::stdin_failed(message)
}

impl From<StartError> for Problem {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Request(error) => Self::bad_request(error.to_string()),
            StartError::Limit(limit) => limit.into(),
        }
    }
}

impl From<InterruptError> for Problem {
    fn from(error: InterruptError) -> Self {
        match error {
            InterruptError::NotRunning => Self::conflict(error.to_string()),
            InterruptError::Unkillable => Self::runtime(error.to_string()),
        }
    }
}

impl From<EventsGone> for Problem {
    fn from(gone: EventsGone) -> Self {
        Self::gone(gone.to_string())
    }
}
