//! `osb events`: what happens to sandboxes and snapshots, and who did it.
//!
//! With `-f` the server's live stream; without, its record of changes, which also says by whom.

use std::pin::pin;

use api::event::{AuditEventsQuery, LifecycleEvent};
use futures_util::StreamExt as _;

use super::sandbox::stream_ended;
use super::{DONE, Outcome};
use crate::app::App;
use crate::args::sandbox::Events;
use crate::error::Error;
use crate::model;
use crate::output::{Record, Value};

const COLUMNS: [&str; 6] = ["at", "actor", "action", "resource", "outcome", "message"];

pub(super) async fn run(app: &App, args: &Events) -> Outcome {
    if args.follow {
        follow(app, args).await
    } else {
        record(app, args).await
    }
}

async fn follow(app: &App, args: &Events) -> Outcome {
    let printer = app.printer();
    let client = app.client()?;
    let id = sandbox_id(app, args).await?;
    let mut after = args.after;
    loop {
        let mut events = pin!(client.events(id.as_deref(), after).await?);
        let mut has_come = false;
        while let Some(event) = events.next().await {
            let event = event?;
            has_come = true;
            after = Some(event.id);
            printer.streamed(&fields(&event), &line(&event))?;
        }
        // A server that restarts closes the stream; it is taken up where it ended.
        if !has_come {
            return Err(stream_ended());
        }
    }
}

/// The id of the sandbox whose events are asked for.
async fn sandbox_id(app: &App, args: &Events) -> Result<Option<String>, Error> {
    match &args.sandbox_id {
        Some(text) => Ok(Some(app.find(text).await?)),
        None => Ok(None),
    }
}

async fn record(app: &App, args: &Events) -> Outcome {
    let printer = app.printer();
    let query = AuditEventsQuery {
        resource: sandbox_id(app, args).await?,
        limit: Some(args.limit),
        ..AuditEventsQuery::default()
    };
    let found = app.client()?.audit_events(&query).await?;
    let rows: Vec<Record> = found.items.iter().rev().map(as_record).collect();
    printer.rows("Events", &COLUMNS, &rows)?;
    Ok(DONE)
}

fn as_record(value: &impl serde::Serialize) -> Record {
    match model::snake(value) {
        Value::Record(record) => record,
        _ => Record::new(),
    }
}

fn fields(event: &LifecycleEvent) -> Record {
    as_record(event)
}

/// One event as one line.
fn line(event: &LifecycleEvent) -> String {
    let record = fields(event);
    let text = |name: &str| match record.get(name) {
        Some(Value::Text(text)) => Some(text.clone()),
        _ => None,
    };
    let state = |name: &str| match record.get(name) {
        Some(Value::Record(status)) => status.get("state").map(Value::cell),
        _ => None,
    };
    let parts = [
        text("at"),
        Some(event.kind.as_str().to_owned()),
        text("sandbox_id"),
        text("snapshot_id"),
        state("status"),
        state("snapshot_status"),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("  ")
}
