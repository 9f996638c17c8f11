//! The routes of contexts and of code.

use std::sync::Arc;
use std::time::Duration;

use api::exec::code::{ContextsQuery, CreateContextRequest, DEFAULT_LANGUAGE, RunCodeRequest};
use api::exec::command::InterruptQuery;
use axum::Router;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use axum::routing::{get, post};

use super::context::{Context, Run};
use super::contexts::{Contexts, Error};
use super::sink::Sink;
use crate::http::{Json, Problem};
use crate::state::Shared;

type Answer<T> = Result<T, Problem>;

#[derive(Clone)]
struct Code {
    shared: Arc<Shared>,
    contexts: Arc<Contexts>,
}

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/code", post(run).delete(interrupt))
        .route("/code/context", post(create))
        .route("/code/contexts", get(list).delete(delete_language))
        .route("/code/contexts/{id}", get(find).delete(delete))
        .with_state(Code {
            shared,
            contexts: Arc::new(Contexts::new()),
        })
}

async fn run(State(code): State<Code>, Json(request): Json<RunCodeRequest>) -> Answer<Response> {
    let timeout = match request.timeout {
        None | Some(0) => None,
        Some(timeout) => Some(Duration::from_millis(u64::try_from(timeout).map_err(
            |_| Problem::bad_request("timeout is a number of milliseconds, 0 for none"),
        )?)),
    };
    let place = request.context.unwrap_or_default();
    let id = place.id.as_deref().filter(|id| !id.trim().is_empty());
    let language = place
        .language
        .as_deref()
        .filter(|name| !name.is_empty())
        .unwrap_or(DEFAULT_LANGUAGE);
    let context = code
        .contexts
        .find_or_default(&code.shared, id, language, place.cwd)
        .await?;
    let (sink, answer) = Sink::open(context.id.as_str());
    context.enqueue(Run {
        code: request.code,
        timeout,
        sink,
    })?;
    Ok(answer)
}

/// Takes the id that `init` carried, which is the context's.
async fn interrupt(
    State(code): State<Code>,
    query: Result<Query<InterruptQuery>, axum::extract::rejection::QueryRejection>,
) -> Answer<()> {
    let Query(InterruptQuery { id }) =
        query.map_err(|_| Problem::missing_query("the query parameter id is missing"))?;
    let context = code
        .contexts
        .get(&id)
        .ok_or_else(|| Problem::no_such("code context", &id))?;
    context.interrupt();
    Ok(())
}

async fn create(
    State(code): State<Code>,
    Json(request): Json<CreateContextRequest>,
) -> Answer<axum::Json<api::exec::code::Context>> {
    request.validate().map_err(|problems| invalid(&problems))?;
    let language = request
        .language
        .as_deref()
        .filter(|name| !name.is_empty())
        .unwrap_or(DEFAULT_LANGUAGE);
    let envs = request.envs.into_iter().collect();
    let context = code
        .contexts
        .create(&code.shared, language, request.cwd, envs)
        .await?;
    Ok(axum::Json(describe(&context)))
}

async fn list(
    State(code): State<Code>,
    Query(query): Query<ContextsQuery>,
) -> axum::Json<Vec<api::exec::code::Context>> {
    let language = query
        .language
        .as_deref()
        .filter(|language| !language.is_empty());
    axum::Json(
        code.contexts
            .list(language)
            .iter()
            .map(|context| describe(context))
            .collect(),
    )
}

async fn delete_language(
    State(code): State<Code>,
    Query(query): Query<ContextsQuery>,
) -> Answer<()> {
    let language = query
        .language
        .filter(|language| !language.is_empty())
        .ok_or_else(|| Problem::missing_query("the query parameter language is missing"))?;
    for context in code.contexts.list(Some(&language)) {
        code.contexts.delete(context.id.as_str());
    }
    Ok(())
}

async fn find(
    State(code): State<Code>,
    Path(id): Path<String>,
) -> Answer<axum::Json<api::exec::code::Context>> {
    let context = code
        .contexts
        .get(&id)
        .ok_or_else(|| Problem::no_such("code context", &id))?;
    Ok(axum::Json(describe(&context)))
}

async fn delete(State(code): State<Code>, Path(id): Path<String>) -> Answer<()> {
    code.contexts
        .delete(&id)
        .map(drop)
        .ok_or_else(|| Problem::no_such("code context", &id))
}

fn describe(context: &Context) -> api::exec::code::Context {
    api::exec::code::Context {
        id: context.id.clone(),
        language: context.language.clone(),
        cwd: context.cwd.clone(),
    }
}

fn invalid(problems: &[api::problem::Problem]) -> Problem {
    let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
    Problem::bad_request(all.join("; "))
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::UnknownLanguage { .. } | Error::Directory(_) => {
                Self::bad_request(error.to_string())
            }
            Error::NotFound(id) => Self::no_such("code context", &id),
            Error::Start(_) => Self::runtime(api::error_chain(&error).to_string()),
            Error::Limit(limit) => limit.into(),
        }
    }
}
