//! `osb snapshot …`.

use api::query::{ListSnapshotsQuery, Page};
use api::snapshot::SnapshotState;

use super::{DONE, Outcome};
use crate::app::App;
use crate::args::sandbox::Snapshot;
use crate::error::Error;
use crate::model;
use crate::output::{Format, Message, Record};

const COLUMNS: [&str; 5] = ["id", "name", "sandbox_id", "status", "created_at"];

const STATES: [SnapshotState; 4] = [
    SnapshotState::Creating,
    SnapshotState::Deleting,
    SnapshotState::Ready,
    SnapshotState::Failed,
];

pub(super) async fn run(app: &App, command: Snapshot) -> Outcome {
    let printer = app.printer();
    let client = app.client()?;
    let is_data = matches!(printer.format(), Format::Json | Format::Yaml);
    match command {
        Snapshot::Create {
            sandbox_id,
            name,
            wait,
        } => {
            let sandbox_id = app.find(&sandbox_id).await?;
            let mut info = client.create_snapshot(&sandbox_id, name.as_deref()).await?;
            if wait {
                info = client.wait_for_snapshot(info.id.as_str()).await?;
            }
            let record = Record::new()
                .with("id", info.id.as_str())
                .with("sandbox_id", info.sandbox_id.as_str())
                .with("name", info.name.clone())
                .with("status", info.status.state.as_str());
            printer.done("Snapshot created", &record)?;
        }
        Snapshot::Get { snapshot_id } => {
            let record = model::snapshot(&client.get_snapshot(&snapshot_id).await?);
            let record = if is_data { record } else { model::flat(record) };
            printer.record("Snapshot", &record)?;
        }
        Snapshot::List {
            sandbox_id,
            name,
            state,
            page,
            page_size,
        } => {
            let mut place = Page::default();
            if let Some(number) = page {
                place.number = number.into();
            }
            if let Some(size) = page_size {
                place.size = size.into();
            }
            let states: Result<Vec<SnapshotState>, Error> =
                state.iter().map(|text| self::state(text)).collect();
            let query = ListSnapshotsQuery {
                sandbox_id,
                name,
                states: states?,
                page: place,
            };
            let found = client.list_snapshots(&query).await?;
            let rows: Vec<Record> = found
                .items
                .iter()
                .map(model::snapshot)
                .map(|record| if is_data { record } else { model::flat(record) })
                .collect();
            printer.page(
                "Snapshots",
                &COLUMNS,
                &rows,
                model::pagination(&found.pagination),
            )?;
        }
        Snapshot::Delete { snapshot_id } => {
            client.delete_snapshot(&snapshot_id).await?;
            printer.message(Message::Ok, &format!("Snapshot deleted: {snapshot_id}"))?;
        }
    }
    Ok(DONE)
}

/// A state, in any case of letters.
fn state(text: &str) -> Result<SnapshotState, Error> {
    let known = |state: &&SnapshotState| state.as_str().eq_ignore_ascii_case(text.trim());
    STATES.iter().find(known).copied().ok_or_else(|| {
        let all: Vec<&str> = STATES.iter().map(|state| state.as_str()).collect();
        Error::Usage(format!(
            "'{text}' is not a state; there are {}",
            all.join(", ")
        ))
    })
}
