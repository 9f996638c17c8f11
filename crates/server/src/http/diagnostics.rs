//! Diagnostics: what a sandbox wrote and what happened to it. With a `scope` as a JSON
//! descriptor, without one as the older plain text.

use std::convert::Infallible;
use std::fmt::Write as _;

use api::diagnostics::{
    CONTENT_TYPE, DiagnosticContent, DiagnosticDelivery, DiagnosticKind, LogEvent,
};
use api::error::ErrorCode;
use api::id::SandboxId;
use api::problem::Problems;
use api::query::Query;
use axum::Json;
use axum::extract::State;
use axum::response::sse::{Event as Frame, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::Stream;
use http::{HeaderName, HeaderValue, header};
use jiff::{SignedDuration, Timestamp};
use lifecycle::backend::{LogQuery, Logs};
use lifecycle::event::Event;
use lifecycle::{Ended, Service};

use super::audit::CallerService;
use super::events::HEARTBEAT;
use super::extract::{OfSandbox, RawQuery};
use super::{App, Error};

/// Lines of logs where nothing else is asked for, as the published server has it.
const TAIL_DEFAULT: u64 = 100;

/// Events where nothing else is asked for, as the published server has it.
const EVENTS_DEFAULT: u64 = 50;

/// Lines and events of a summary, as the published server has them.
const SUMMARY_DEFAULTS: (u64, u64) = (50, 20);

/// What `tail` and `limit` may be at most.
const TAIL_MAX: u64 = 10_000;
const EVENTS_MAX: u64 = 500;

/// Log text in one answer: 10,000 long lines, and no more than a terminal can show.
const LOG_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What the published server takes a `since` to mean that it cannot read.
const SINCE_UNREADABLE: SignedDuration = SignedDuration::from_mins(10);

const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");

/// `GET /sandboxes/{id}/diagnostics/logs`
pub(super) async fn logs(
    CallerService(service): CallerService,
    OfSandbox(id): OfSandbox,
    RawQuery(query): RawQuery,
) -> Result<Response, Error> {
    let query = parse(&query)?;
    let mut problems = Problems::new();
    let tail = query
        .number("tail", 1..=TAIL_MAX, &mut problems)
        .unwrap_or(TAIL_DEFAULT);
    problems.into_result(()).map_err(Error::query)?;
    let scope = scope(&query, ["container", "all"])?;
    let since = query.first("since").filter(|_| scope.is_none()).map(since);
    let logs = read_logs(&service, &id, tail, since).await?;
    Ok(match scope {
        Some(scope) => described(id, DiagnosticKind::Logs, scope, logs.text, logs.truncated),
        None => plain(logs.text),
    })
}

/// `GET /sandboxes/{id}/logs`
pub(super) async fn follow(
    State(app): State<App>,
    CallerService(service): CallerService,
    OfSandbox(id): OfSandbox,
    RawQuery(query): RawQuery,
) -> Result<Sse<impl Stream<Item = Result<Frame, Infallible>>>, Error> {
    let query = parse(&query)?;
    let mut problems = Problems::new();
    let tail = query
        .number("tail", 1..=TAIL_MAX, &mut problems)
        .unwrap_or(TAIL_DEFAULT);
    problems.into_result(()).map_err(Error::query)?;
    let pieces = service.follow_logs(&id, log_query(tail, None)).await?;
    let state = (Some(pieces), app.0.spawner.stopping());
    let frames = futures_util::stream::unfold(state, |(pieces, stopping)| async move {
        let mut pieces = pieces?;
        let piece = tokio::select! {
            // Without the last event: it was cut off.
            () = stopping.cancelled() => return None,
            piece = pieces.recv() => piece,
        };
        let (event, pieces) = match piece {
            Some(text) => (LogEvent::Text { text }, Some(pieces)),
            None => (LogEvent::End, None),
        };
        let data = serde_json::to_string(&event).expect("an event is plain data");
        let frame = Frame::default().event(event.as_str()).data(data);
        Some((Ok(frame), (pieces, stopping)))
    });
    Ok(Sse::new(frames).keep_alive(KeepAlive::new().interval(HEARTBEAT)))
}

/// `GET /sandboxes/{id}/diagnostics/events`
pub(super) async fn events(
    CallerService(service): CallerService,
    OfSandbox(id): OfSandbox,
    RawQuery(query): RawQuery,
) -> Result<Response, Error> {
    let query = parse(&query)?;
    let mut problems = Problems::new();
    let limit = query
        .number("limit", 1..=EVENTS_MAX, &mut problems)
        .unwrap_or(EVENTS_DEFAULT);
    problems.into_result(()).map_err(Error::query)?;
    let scope = scope(&query, ["runtime", "all"])?;
    let events = read_events(&service, &id, limit).await?;
    let truncated = events.len() as u64 == limit;
    Ok(match scope {
        Some(scope) => described(
            id,
            DiagnosticKind::Events,
            scope,
            as_lines(&events),
            truncated,
        ),
        None => plain(as_lines(&events)),
    })
}

/// `GET /sandboxes/{id}/diagnostics/inspect`
pub(super) async fn inspect(
    State(app): State<App>,
    CallerService(service): CallerService,
    OfSandbox(id): OfSandbox,
) -> Result<Response, Error> {
    Ok(plain(description(&app, &service, &id).await?))
}

/// `GET /sandboxes/{id}/diagnostics/summary`
pub(super) async fn summary(
    State(app): State<App>,
    CallerService(service): CallerService,
    OfSandbox(id): OfSandbox,
    RawQuery(query): RawQuery,
) -> Result<Response, Error> {
    let query = parse(&query)?;
    let mut problems = Problems::new();
    let tail = query
        .number("tail", 1..=TAIL_MAX, &mut problems)
        .unwrap_or(SUMMARY_DEFAULTS.0);
    let limit = query
        .number("event_limit", 1..=EVENTS_MAX, &mut problems)
        .unwrap_or(SUMMARY_DEFAULTS.1);
    problems.into_result(()).map_err(Error::query)?;
    let inspect = description(&app, &service, &id).await?;
    let events = as_lines(&read_events(&service, &id, limit).await?);
    let logs = read_logs(&service, &id, tail, None).await?.text;
    Ok(plain(format!(
        "== inspect ==\n{inspect}\n\n== events ==\n{events}\n\n== logs ==\n{logs}\n"
    )))
}

fn parse(query: &str) -> Result<Query, Error> {
    Query::parse(query).map_err(|problem| Error::query(vec![problem]))
}

async fn read_logs(
    service: &Service,
    id: &SandboxId,
    tail: u64,
    since: Option<Timestamp>,
) -> Result<Logs, Error> {
    Ok(service.logs(id, log_query(tail, since)).await?)
}

fn log_query(tail: u64, since: Option<Timestamp>) -> LogQuery {
    LogQuery {
        tail_lines: usize::try_from(tail).unwrap_or(usize::MAX),
        since,
        max_bytes: LOG_BYTES_MAX,
    }
}

async fn read_events(service: &Service, id: &SandboxId, limit: u64) -> Result<Vec<Event>, Error> {
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    Ok(service.events(id, limit).await?)
}

/// What the control plane knows of a sandbox and what its backend does.
async fn description(app: &App, service: &Service, id: &SandboxId) -> Result<String, Error> {
    let sandbox = match service.get(id) {
        Ok(sandbox) => sandbox,
        Err(lifecycle::Error::NotFound(absent)) if absent.ended.is_some() => {
            return Ok(absent.ended.as_deref().map(remains).unwrap_or_default());
        }
        Err(error) => return Err(error.into()),
    };
    let status = &sandbox.status;
    let mut text = String::new();
    let _ = writeln!(text, "id:         {}", sandbox.id);
    let _ = writeln!(text, "backend:    {}", app.0.control.backend_name());
    let _ = writeln!(
        text,
        "state:      {} ({})",
        status.state,
        status.reason.as_str()
    );
    let _ = writeln!(text, "message:    {}", status.message);
    let _ = writeln!(text, "since:      {}", status.last_transition_at);
    let _ = writeln!(text, "created at: {}", sandbox.created_at);
    let expires = sandbox
        .expires_at
        .map_or("never".to_owned(), |at| at.to_string());
    let _ = writeln!(text, "expires at: {expires}");
    for (key, value) in &sandbox.metadata {
        let _ = writeln!(text, "metadata:   {key}={value}");
    }
    text.push_str(&service.describe(id).await?);
    Ok(text)
}

/// What is known of a sandbox that is gone.
fn remains(ended: &Ended) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "id:         {}", ended.sandbox_id);
    let _ = writeln!(text, "state:      gone ({})", ended.reason.as_str());
    let _ = writeln!(text, "message:    {}", ended.message);
    let _ = writeln!(text, "created at: {}", ended.created_at);
    let _ = writeln!(text, "ended at:   {}", ended.ended_at);
    text
}

/// The scope asked for, if any; only those the published server knows.
fn scope<'a>(query: &'a Query, known: [&str; 2]) -> Result<Option<&'a str>, Error> {
    match query.first("scope") {
        None => Ok(None),
        Some(scope) if known.contains(&scope) => Ok(Some(scope)),
        Some(scope) => Err(Error::BadRequest {
            code: ErrorCode::DiagnosticsScopeUnsupported,
            message: format!(
                "scope must be {} or {}, not {scope:.64}",
                known[0], known[1]
            ),
        }),
    }
}

/// `90s`, `10m`, `2h`, `1d` ago.
fn since(text: &str) -> Timestamp {
    let read = || -> Option<SignedDuration> {
        let unit = text.chars().last()?;
        let count: i64 = text.get(..text.len() - unit.len_utf8())?.parse().ok()?;
        let seconds = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            _ => return None,
        };
        Some(SignedDuration::from_secs(count.checked_mul(seconds)?))
    };
    let ago = read()
        .filter(|ago| !ago.is_negative())
        .unwrap_or(SINCE_UNREADABLE);
    Timestamp::now()
        .checked_sub(ago)
        .unwrap_or(Timestamp::UNIX_EPOCH)
}

fn as_lines(events: &[Event]) -> String {
    let line = |event: &Event| {
        format!(
            "{} {} {} {}",
            event.at,
            event.kind.as_str(),
            event.reason,
            event.message
        )
    };
    events.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn described(
    sandbox_id: SandboxId,
    kind: DiagnosticKind,
    scope: &str,
    content: String,
    truncated: bool,
) -> Response {
    Json(DiagnosticContent {
        sandbox_id,
        kind,
        scope: scope.to_owned(),
        delivery: DiagnosticDelivery::Inline,
        content_type: CONTENT_TYPE.to_owned(),
        content_length: Some(content.len() as u64),
        content: Some(content),
        content_url: None,
        expires_at: None,
        truncated,
        warnings: None,
    })
    .into_response()
}

fn plain(text: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE)),
        (DEPRECATION, HeaderValue::from_static("true")),
    ];
    (headers, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_since_is_read_or_taken_as_ten_minutes() {
        let ago = |text: &str| Timestamp::now().duration_since(since(text)).as_secs();
        for (text, seconds) in [("90s", 90), ("10m", 600), ("2h", 7200), ("1d", 86_400)] {
            assert!((seconds - 5..=seconds).contains(&ago(text)), "{text}");
        }
        for text in ["", "m", "10", "-5m", "5x", "5é", "99999999999999999999d"] {
            assert!((595..=600).contains(&ago(text)), "{text}");
        }
    }
}
