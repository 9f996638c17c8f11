//! What happens, as a live stream, and who changed what, as a record.

use std::convert::Infallible;
use std::time::Duration;

use api::event::{
    LAST_EVENT_ID_HEADER, LifecycleEvent, LifecycleEventKind, ListAuditEventsResponse,
};
use api::id::SandboxId;
use api::problem::Problems;
use api::query::Query;
use axum::Json;
use axum::extract::State;
use axum::response::sse::{Event as Frame, KeepAlive, Sse};
use futures_util::Stream;
use http::HeaderMap;
use lifecycle::event::AuditQuery;
use lifecycle::{Live, Subscription};
use tokio_util::sync::CancellationToken;

use super::audit::CallerService;
use super::extract::RawQuery;
use super::{App, Error, wire};

/// A comment is sent when nothing has happened for this long, so that proxies and clients see the
/// connection alive.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(15);

/// Audit entries in one answer.
const AUDIT_DEFAULT: u64 = 100;
const AUDIT_MAX: u64 = 1000;

/// `GET /events`
pub(super) async fn stream(
    State(app): State<App>,
    CallerService(service): CallerService,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Frame, Infallible>>>, Error> {
    let (after, of) = parse(&query, &headers)?;
    let subscription = service.subscribe(after).await?;
    let state = (subscription, of, app.0.spawner.stopping());
    let frames =
        futures_util::stream::unfold(state, |(mut subscription, of, stopping)| async move {
            let frame = next_frame(&mut subscription, of.as_ref(), &stopping).await?;
            Some((Ok(frame), (subscription, of, stopping)))
        });
    Ok(Sse::new(frames).keep_alive(KeepAlive::new().interval(HEARTBEAT)))
}

/// Where to begin and whom to follow. The header is what a browser sends when it comes back.
fn parse(query: &str, headers: &HeaderMap) -> Result<(Option<i64>, Option<SandboxId>), Error> {
    let query = Query::parse(query).map_err(|problem| Error::query(vec![problem]))?;
    let mut problems = Problems::new();
    let asked = query.number("after", 0..=i64::MAX as u64, &mut problems);
    let of = query.first("sandboxId").map(str::parse);
    if matches!(of, Some(Err(_))) {
        problems.add("sandboxId", "is not an id");
    }
    let seen = headers
        .get(LAST_EVENT_ID_HEADER)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    problems.into_result(()).map_err(Error::query)?;
    let after = seen.or(asked).and_then(|id: u64| i64::try_from(id).ok());
    Ok((after, of.and_then(Result::ok)))
}

/// The next frame for this subscriber; `None` ends the stream, and clients come back.
async fn next_frame(
    subscription: &mut Subscription,
    of: Option<&SandboxId>,
    stopping: &CancellationToken,
) -> Option<Frame> {
    loop {
        let live = tokio::select! {
            () = stopping.cancelled() => return None,
            live = subscription.next() => live?,
        };
        let event = match live {
            Ok(Live::Event(event)) => wire::event(&event),
            Ok(Live::Gap { after }) => Some(gap(after)),
            Err(error) => {
                tracing::warn!(error = %api::error_chain(&error), "an event stream ended");
                return None;
            }
        };
        let wanted = event.filter(|event| {
            event.kind == LifecycleEventKind::Gap || of.is_none() || event.sandbox_id.as_ref() == of
        });
        if let Some(event) = wanted {
            return Some(frame(&event));
        }
    }
}

fn gap(after: i64) -> LifecycleEvent {
    LifecycleEvent {
        id: u64::try_from(after).unwrap_or_default(),
        at: jiff::Timestamp::now(),
        kind: LifecycleEventKind::Gap,
        sandbox_id: None,
        snapshot_id: None,
        status: None,
        snapshot_status: None,
        expires_at: None,
    }
}

fn frame(event: &LifecycleEvent) -> Frame {
    let data = serde_json::to_string(event).expect("an event is plain data");
    Frame::default()
        .id(event.id.to_string())
        .event(event.kind.as_str())
        .data(data)
}

/// `GET /audit-events`
pub(super) async fn audit(
    CallerService(service): CallerService,
    RawQuery(query): RawQuery,
) -> Result<Json<ListAuditEventsResponse>, Error> {
    let query = audit_query(&query)?;
    let entries = service.audit_entries(&query).await?;
    let is_full = entries.len() == query.limit as usize;
    let items: Vec<_> = entries.iter().map(wire::audit_event).collect();
    let next = items.last().map(|item| item.id).filter(|_| is_full);
    Ok(Json(ListAuditEventsResponse { items, next }))
}

fn audit_query(query: &str) -> Result<AuditQuery, Error> {
    let query = Query::parse(query).map_err(|problem| Error::query(vec![problem]))?;
    let mut problems = Problems::new();
    let limit = query
        .number("limit", 1..=AUDIT_MAX, &mut problems)
        .unwrap_or(AUDIT_DEFAULT);
    let before = query.number("before", 0..=i64::MAX as u64, &mut problems);
    problems.into_result(()).map_err(Error::query)?;
    Ok(AuditQuery {
        // The control plane reads that of the caller.
        tenant: lifecycle::Tenant::default(),
        target: query.first("resource").map(str::to_owned),
        actor: query.first("actor").map(str::to_owned),
        before: before.and_then(|id| i64::try_from(id).ok()),
        limit: u32::try_from(limit).unwrap_or(u32::MAX),
    })
}
