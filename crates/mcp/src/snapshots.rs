//! Tools for snapshots: file systems of sandboxes that are kept.

use opensandbox::SnapshotFilter;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::answer::{SnapshotInfo, Status, status};
use crate::tool::{Answer, Call, Effect, Entry, Outcome, tool};

#[derive(Debug, Deserialize, JsonSchema)]
struct Create {
    /// The sandbox's id.
    sandbox_id: String,
    /// A name to find it by.
    name: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct List {
    /// Only of this sandbox.
    sandbox_id: Option<String>,
    /// Only with this name.
    name: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct OfSnapshot {
    /// The snapshot's id.
    snapshot_id: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SnapshotList {
    /// Newest first.
    result: Vec<SnapshotInfo>,
    /// There are more than are answered.
    truncated: bool,
}

pub(crate) fn tools() -> Vec<Entry> {
    use Effect::{Changes, Destroys, Reads};
    vec![
        tool::<Create, SnapshotInfo, _, _>(
            "snapshot_create",
            Changes,
            "Keeps a copy of a sandbox's files, for example before something risky or after a \
             long installation. sandbox_restore makes new sandboxes from it. Outlives the sandbox.",
            create,
        ),
        tool::<List, SnapshotList, _, _>(
            "snapshot_list",
            Reads,
            "Lists snapshots, newest first.",
            list,
        ),
        tool::<OfSnapshot, Status, _, _>(
            "snapshot_delete",
            Destroys,
            "Deletes a snapshot; it cannot be restored afterwards.",
            delete,
        ),
    ]
}

async fn create(call: Call, arguments: Create) -> Outcome {
    call.registry.check_visible(&arguments.sandbox_id)?;
    call.progress.say("copying the sandbox's files").await;
    let client = &call.registry.client;
    let name = arguments.name.as_deref();
    let begun = client.create_snapshot(&arguments.sandbox_id, name).await?;
    call.registry.add_snapshot(begun.id.as_str());
    let snapshot = client.wait_for_snapshot(begun.id.as_str()).await?;
    Ok(Answer::new(&SnapshotInfo::from(snapshot)))
}

async fn list(call: Call, arguments: List) -> Outcome {
    let filter = SnapshotFilter {
        sandbox_id: arguments.sandbox_id,
        name: arguments.name,
        ..SnapshotFilter::default()
    };
    let page = call.registry.client.list_snapshots(&filter).await?;
    let visible = page.items.into_iter();
    let visible = visible.filter(|found| call.registry.is_snapshot_visible(found.id.as_str()));
    Ok(Answer::new(&SnapshotList {
        result: visible.map(Into::into).collect(),
        truncated: page.pagination.has_next_page,
    }))
}

async fn delete(call: Call, arguments: OfSnapshot) -> Outcome {
    call.registry.check_snapshot(&arguments.snapshot_id)?;
    let client = &call.registry.client;
    client.delete_snapshot(&arguments.snapshot_id).await?;
    call.registry.forget_snapshot(&arguments.snapshot_id);
    Ok(Answer::new(&status("deleted")))
}
