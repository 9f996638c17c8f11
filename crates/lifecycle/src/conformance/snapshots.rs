//! Keeping a filesystem and starting from it.

use super::world::{Failure, Made, World, ensure};
use super::{Case, case};
use crate::backend::{Error, ObservedState, Source, Spec};
use api::id::SnapshotId;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(a_snapshot_is_listed, [Snapshot]),
        case!(a_sandbox_starts_from_a_snapshot, [Snapshot, Shell]),
        case!(
            a_snapshot_holds_what_was_removed_and_changed,
            [Snapshot, Shell]
        ),
        case!(a_snapshot_inherits_no_secret, [Snapshot, Shell]),
        case!(
            the_source_goes_on_and_the_snapshot_does_not_change,
            [Snapshot, Shell]
        ),
        case!(a_snapshot_outlives_its_sandbox, [Snapshot, Shell]),
        case!(a_snapshot_of_a_snapshot, [Snapshot, Shell]),
        case!(
            two_sandboxes_from_one_snapshot_share_nothing,
            [Snapshot, Shell]
        ),
        case!(a_snapshot_in_use_stays, [Snapshot]),
        case!(removing_a_snapshot_can_be_repeated, [Snapshot]),
        case!(an_unknown_sandbox_has_no_snapshot, [Snapshot]),
        case!(an_unknown_snapshot_makes_no_sandbox, [Snapshot]),
    ]
}

async fn take(world: &World, made: &Made) -> Result<SnapshotId, Failure> {
    let id = world.snapshot_id();
    let details = world.backend().snapshot(&made.id, &id).await?;
    ensure!(details.id == id, "it is called {}", details.id);
    Ok(id)
}

fn from(world: &World, snapshot: &SnapshotId) -> Spec {
    Spec {
        source: Source::Snapshot(snapshot.clone()),
        ..world.spec()
    }
}

async fn a_snapshot_is_listed(world: &World) -> Result<(), Failure> {
    let made = world.create(world.spec()).await?;
    let id = take(world, &made).await?;
    let listed = world.backend().list_snapshots().await?;
    ensure!(
        listed.iter().any(|details| details.id == id),
        "it is not listed"
    );
    let source = Source::Snapshot(id);
    ensure!(
        world.backend().is_local(&source, None).await,
        "it is said to need a download"
    );
    let state = world.backend().inspect(&made.id).await?.state;
    ensure!(
        state == ObservedState::Running,
        "its sandbox is now {state:?}"
    );
    Ok(())
}

async fn a_sandbox_starts_from_a_snapshot(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    world
        .output(
            &made,
            "mkdir -p /data/deep && echo kept > /data/deep/file && chmod 640 /data/deep/file",
        )
        .await?;
    let id = take(world, &made).await?;
    let copy = world.create(from(world, &id)).await?;
    let seen = world
        .output(&copy, "cat /data/deep/file; ls -l /data/deep/file")
        .await?;
    ensure!(
        seen.starts_with("kept\n") && seen.contains("-rw-r-----"),
        "{seen:?}"
    );
    Ok(())
}

async fn a_snapshot_holds_what_was_removed_and_changed(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    let change = "mkdir /dir && echo 1 > /dir/a; rm -f /etc/hostname.bak; echo new > /etc/motd; \
                  ls /bin | head -1; rm -rf /var/lib; mkdir -p /var/lib/fresh";
    world.output(&made, change).await?;
    let id = take(world, &made).await?;
    let copy = world.create(from(world, &id)).await?;
    let seen = world
        .output(&copy, "cat /dir/a /etc/motd; ls /var/lib")
        .await?;
    ensure!(seen == "1\nnew\nfresh\n", "{seen:?}");
    Ok(())
}

async fn a_snapshot_inherits_no_secret(world: &World) -> Result<(), Failure> {
    let mut spec = world.spec();
    spec.env
        .insert("SECRET".to_owned(), "open-sesame".to_owned());
    spec.labels.insert("colour".to_owned(), "red".to_owned());
    let made = world.create(spec).await?;
    let id = take(world, &made).await?;
    let spec = from(world, &id);
    let labels = spec.labels.clone();
    let copy = world.create(spec).await?;
    let seen = world
        .output(&copy, "env; cat /proc/1/environ 2>/dev/null; :")
        .await?;
    ensure!(!seen.contains("open-sesame"), "the environment came along");
    let observed = world.backend().inspect(&copy.id).await?;
    ensure!(
        observed.labels == labels,
        "labels are {:?}",
        observed.labels
    );
    let old = Made {
        id: copy.id.clone(),
        token: made.token.clone(),
    };
    let refused = world.exec(&old, "true").await;
    ensure!(refused.is_err(), "the old token still opens");
    // Programs and libraries are left out: they are many, and nobody writes a token there.
    let search = format!(
        "find / \\( -path /proc -o -path /sys -o -path /usr \\) -prune \
         -o -type f -exec grep -ls {} {{}} +; :",
        made.token
    );
    let planted = format!("echo {} > /planted", made.token);
    world.output(&copy, &planted).await?;
    let found = world.output(&copy, &search).await?;
    ensure!(found == "/planted\n", "the search finds {found:?}");
    world.output(&copy, "rm /planted").await?;
    let found = world.output(&copy, &search).await?;
    ensure!(found.is_empty(), "the old token lies in {found:?}");
    Ok(())
}

async fn the_source_goes_on_and_the_snapshot_does_not_change(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    world.output(&made, "echo before > /file").await?;
    let id = take(world, &made).await?;
    let after = "cat /file; echo after > /file; echo more > /other; cat /file";
    let seen = world.output(&made, after).await?;
    ensure!(seen == "before\nafter\n", "the source reads {seen:?}");
    let copy = world.create(from(world, &id)).await?;
    let seen = world
        .output(&copy, "cat /file; cat /other 2>/dev/null; :")
        .await?;
    ensure!(seen == "before\n", "the copy reads {seen:?}");
    Ok(())
}

async fn a_snapshot_outlives_its_sandbox(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    world.output(&made, "echo kept > /file").await?;
    let id = take(world, &made).await?;
    world.delete(&made.id).await?;
    let copy = world.create(from(world, &id)).await?;
    let seen = world.output(&copy, "cat /file").await?;
    ensure!(seen == "kept\n", "{seen:?}");
    Ok(())
}

async fn a_snapshot_of_a_snapshot(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    world.output(&made, "echo one > /one").await?;
    let first = take(world, &made).await?;
    let second = world.create(from(world, &first)).await?;
    world.output(&second, "echo two > /two").await?;
    let id = take(world, &second).await?;
    let third = world.create(from(world, &id)).await?;
    let seen = world.output(&third, "cat /one /two").await?;
    ensure!(seen == "one\ntwo\n", "{seen:?}");
    world.delete(&third.id).await?;
    world.delete(&second.id).await?;
    // What stands on another goes first, or the other stays until it does.
    world.backend().delete_snapshot(&id).await?;
    Ok(world.backend().delete_snapshot(&first).await?)
}

async fn two_sandboxes_from_one_snapshot_share_nothing(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    let id = take(world, &made).await?;
    let (one, two) = (
        world.create(from(world, &id)).await?,
        world.create(from(world, &id)).await?,
    );
    world.output(&one, "echo mine > /mine").await?;
    let seen = world.output(&two, "cat /mine 2>/dev/null; :").await?;
    ensure!(seen.is_empty(), "the other one reads {seen:?}");
    Ok(())
}

async fn a_snapshot_in_use_stays(world: &World) -> Result<(), Failure> {
    let made = world.create(world.spec()).await?;
    let id = take(world, &made).await?;
    let copy = world.create(from(world, &id)).await?;
    let removed = world.backend().delete_snapshot(&id).await;
    ensure!(
        matches!(removed, Err(Error::InUse { .. })),
        "removing it says {removed:?}"
    );
    world.delete(&copy.id).await?;
    world.backend().delete_snapshot(&id).await?;
    let listed = world.backend().list_snapshots().await?;
    ensure!(
        listed.iter().all(|details| details.id != id),
        "it is still listed"
    );
    Ok(())
}

async fn removing_a_snapshot_can_be_repeated(world: &World) -> Result<(), Failure> {
    let made = world.create(world.spec()).await?;
    let id = take(world, &made).await?;
    world.backend().delete_snapshot(&id).await?;
    world.backend().delete_snapshot(&id).await?;
    Ok(world
        .backend()
        .delete_snapshot(&world.snapshot_id())
        .await?)
}

async fn an_unknown_sandbox_has_no_snapshot(world: &World) -> Result<(), Failure> {
    let taken = world
        .backend()
        .snapshot(&world.spec().id, &world.snapshot_id())
        .await;
    ensure!(
        matches!(taken, Err(Error::NotFound(_))),
        "it says {taken:?}"
    );
    Ok(())
}

async fn an_unknown_snapshot_makes_no_sandbox(world: &World) -> Result<(), Failure> {
    let spec = from(world, &world.snapshot_id());
    let made = world.note(&spec);
    let created = world.backend().create(spec).await;
    ensure!(
        matches!(created, Err(Error::SnapshotNotFound(_))),
        "it says {created:?}"
    );
    world.delete(&made.id).await
}
