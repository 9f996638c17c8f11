//! The audit trail: one entry for every change that was asked for, with who, what, from where and
//! how it ended.
//!
//! Changes of sandboxes and snapshots are recorded by the control plane, in the write of the change
//! itself. Pausing and resuming, changes of anything else, and every refusal are recorded here: a
//! success before it is answered, a refusal without making the client wait.
//!
//! A change runs in a task of its own, so that a client that hangs up neither interrupts it nor
//! keeps it out of the trail.

use axum::extract::{FromRequestParts, RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::request::Parts;
use lifecycle::event::AuditEntry;
use lifecycle::{AuditContext, Caller, Service};
use proxy::{Peer, RequestId};
use tracing::Instrument as _;

use super::error::Answered;
use super::{App, Error, address_of};

/// What a change was made to, where the path does not tell: an extension of the response.
#[derive(Debug, Clone)]
pub(super) struct Target(pub(super) String);

/// What is known of a change before it is made: an extension of the request.
#[derive(Debug, Clone)]
pub(super) struct PendingAudit {
    entry: AuditEntry,
    audit: AuditContext,
}

/// The control plane as the maker of this request uses it.
pub(super) struct CallerService(pub(super) Service);

impl FromRequestParts<App> for CallerService {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Self::Rejection> {
        // Only a route without the guard has none, and none of those asks for a caller.
        let caller = parts.extensions.get::<Caller>().cloned();
        let caller = caller.unwrap_or_else(Caller::visitor);
        let caller = match parts.extensions.get::<PendingAudit>() {
            Some(pending) => caller.with_audit(pending.audit.clone()),
            None => caller,
        };
        Ok(Self(app.0.control.for_caller(caller)))
    }
}

/// The change goes on behind its answer and records its own end: an extension of the response.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordsItself;

/// Records a request for a change, by the name that the table of routes has for it.
pub(super) async fn record(
    State((app, action)): State<(App, &'static str)>,
    path: RawPathParams,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(entry) = begin(&request, &path, action) else {
        return next.run(request).await;
    };
    let audit = AuditContext::new(entry.clone());
    let pending = PendingAudit {
        entry: entry.clone(),
        audit: audit.clone(),
    };
    request.extensions_mut().insert(pending);
    let spawner = app.0.spawner.clone();
    let work = async move {
        let response = next.run(request).await;
        let is_recorded = audit.is_recorded() && response.status().is_success();
        if !is_recorded && response.extensions().get::<RecordsItself>().is_none() {
            let mut entry = finish(entry, &response);
            // It was recorded when it began, and came to nothing: that entry is mended.
            let begun = audit.target().filter(|_| audit.is_recorded());
            if let Some(target) = begun {
                entry.target = Some(target.to_owned());
                keep_amended(&app, entry).await;
            } else {
                keep(&app, entry).await;
            }
        }
        response
    };
    // What is logged and traced there is of the same request.
    let work = spawner.spawn("change", work.in_current_span());
    match work.await {
        Ok(Some(response)) => response,
        Ok(None) => Error::from(lifecycle::Error::ShuttingDown).into_response(),
        // `front` answers for a panic in the task that it waits for.
        Err(failed) => match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Error::from(lifecycle::Error::ShuttingDown).into_response(),
        },
    }
}

/// Records the end of a change that went on behind its answer.
pub(super) async fn end(app: &App, pending: PendingAudit, target: String, outcome: &str) {
    let entry = AuditEntry {
        target: Some(target),
        outcome: outcome.to_owned(),
        ..pending.entry
    };
    keep(app, entry).await;
}

async fn keep(app: &App, entry: AuditEntry) {
    let control = &app.0.control;
    let kept = if entry.outcome == AuditEntry::OK {
        control.audit(entry).await
    } else {
        control.audit_behind(entry).await
    };
    told(kept);
}

async fn keep_amended(app: &App, entry: AuditEntry) {
    told(app.0.control.amend_audit_behind(entry).await);
}

fn told(kept: Result<(), lifecycle::Error>) {
    if let Err(error) = kept {
        tracing::error!(error = %api::error_chain(&error), "an audit entry was lost");
    }
}

fn begin(request: &Request, path: &RawPathParams, action: &str) -> Option<AuditEntry> {
    let extensions = request.extensions();
    let caller = extensions.get::<Caller>()?;
    let remote = address_of(extensions.get::<Peer>()).map(|address| address.to_string());
    Some(AuditEntry {
        id: 0,
        tenant: caller.tenant.clone(),
        at: jiff::Timestamp::now(),
        actor: caller.name.to_string(),
        remote,
        action: action.to_owned(),
        target: path.iter().next().map(|(_, value)| value.to_owned()),
        outcome: String::new(),
        request_id: extensions.get::<RequestId>().map(ToString::to_string),
        message: None,
    })
}

fn finish(mut entry: AuditEntry, response: &Response) -> AuditEntry {
    if let Some(Target(target)) = response.extensions().get() {
        entry.target = Some(target.clone());
    }
    entry.outcome = match response.extensions().get::<Answered>() {
        Some(answered) => {
            entry.message = Some(answered.message.to_string());
            answered.code.as_str().to_owned()
        }
        None if response.status().is_success() => AuditEntry::OK.to_owned(),
        None => response.status().as_u16().to_string(),
    };
    entry
}

/// The outcome of what its client gave up.
pub(super) const CANCELLED: &str = "CANCELLED";
