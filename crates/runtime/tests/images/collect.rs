//! What may be removed, what may not, and what a crash leaves.

use std::path::Path;
use std::sync::Arc;

use api::id::SnapshotId;
use lifecycle::backend::{PullProgress, Source};
use runtime::image::{Config, Error, ImageId, Import, Limits, Store};
use serde_json::json;
use tokio::sync::mpsc;

use crate::registry::Registry;
use crate::registry::image::{Family, Form, Image, Layer, Pusher};
use crate::registry::proxy::Proxy;
use crate::{Place, config, image};

/// A root filesystem to import: no registry needed.
fn rootfs(directory: &Path, name: &str) -> Import {
    let path = directory.join(format!("{name}.tar"));
    std::fs::write(&path, Layer::default().file("name", name).tar()).unwrap();
    Import::RootfsTar(path)
}

async fn import(place: &Place, name: &str) -> ImageId {
    let scratch = tempfile::tempdir().unwrap();
    let reference = format!("local/{name}:1");
    place
        .store
        .import(&rootfs(scratch.path(), name), Some(&reference))
        .await
        .unwrap()
        .remove(0)
}

fn snapshot_id(text: &str) -> SnapshotId {
    text.parse().unwrap()
}

/// A writable layer as a sandbox leaves it.
fn upper(place: &Place, name: &str) -> std::path::PathBuf {
    let path = place.directory.path().join(format!("upper-{name}"));
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("written"), name).unwrap();
    path
}

#[tokio::test]
async fn nothing_that_is_named_leased_or_under_a_snapshot_is_collected() {
    let place = Place::new();
    import(&place, "named").await;
    let leased = import(&place, "leased").await;
    let lease = place.store.lease_for(&leased).unwrap();
    let under = import(&place, "under").await;
    let snapshot = snapshot_id("s1");
    place
        .store
        .add_snapshot(&snapshot, &under, &upper(&place, "s1"), 2)
        .unwrap();
    import(&place, "free").await;
    for name in ["leased", "under", "free"] {
        place
            .store
            .remove(&format!("local/{name}:1"))
            .await
            .unwrap();
        assert!(
            !place
                .store
                .is_local(&image(format!("local/{name}:1")), None)
        );
    }
    let usage = place.store.usage().await.unwrap();
    assert!(
        usage.reclaimable_bytes > 0 && usage.reclaimable_bytes < usage.layers_bytes,
        "{usage:?}"
    );
    assert_eq!(usage.snapshots_bytes, 2);
    let collected = place.store.gc().await.unwrap();
    assert_eq!(
        (collected.images, collected.layers),
        (1, 1),
        "only the free one"
    );
    assert_eq!(collected.bytes, usage.reclaimable_bytes);
    assert_eq!(place.count("layers"), 3);
    assert!(place.store.prepare_image(&leased).is_ok());
    drop(lease);
    place.store.remove_snapshot(&snapshot).await.unwrap();
    let collected = place.store.gc().await.unwrap();
    assert_eq!((collected.images, collected.layers), (2, 2));
    assert_eq!(place.store.gc().await.unwrap(), Default::default());
    assert_eq!(place.store.list().len(), 1);
    place.assert_tidy();
    let unknown = place.store.remove("local/free:1").await;
    assert!(
        matches!(unknown, Err(Error::NotFound { .. })),
        "{unknown:?}"
    );
    assert!(matches!(
        place.store.remove("host").await,
        Err(Error::InUse { .. })
    ));
}

#[tokio::test]
async fn a_lease_can_be_taken_again_after_a_restart() {
    let place = Place::new();
    let id = import(&place, "app").await;
    std::mem::forget(place.store.lease_for(&id));
    place.store.remove("local/app:1").await.unwrap();
    let Place {
        store,
        directory,
        _deadline,
    } = place;
    // The process dies: the lease, and the store with its lock, are gone without a word.
    drop(store);
    let copy = tempfile::tempdir().unwrap();
    crate::run(
        "cp",
        &[
            "-a",
            directory.path().join(".").to_str().unwrap(),
            copy.path().to_str().unwrap(),
        ],
    );
    let store = Store::open(copy.path(), config()).unwrap();
    let record = id.as_str().to_owned();
    let lease = store.lease_for(&ImageId::from_record(&record)).unwrap();
    assert_eq!(store.gc().await.unwrap().images, 0);
    drop(lease);
    assert_eq!(store.gc().await.unwrap().images, 1);
    assert!(matches!(store.lease_for(&id), Err(Error::UnknownImage(_))));
}

#[tokio::test]
async fn snapshots_stack_list_and_refuse_to_go_while_needed() {
    let place = Place::new();
    let base = import(&place, "base").await;
    let (one, two) = (snapshot_id("one"), snapshot_id("two"));
    let path = upper(&place, "one");
    let first = place.store.add_snapshot(&one, &base, &path, 10).unwrap();
    assert!(!path.exists(), "it was moved, not copied");
    place
        .store
        .add_snapshot(&two, &first, &upper(&place, "two"), 20)
        .unwrap();
    let source = Source::Snapshot(two.clone());
    assert!(place.store.is_local(&source, None));
    let prepared = place.store.prepare(&source, None).await.unwrap();
    let written: Vec<_> = prepared
        .layers
        .iter()
        .map(|l| std::fs::read_to_string(l.join("written")).ok())
        .collect();
    assert_eq!(
        written,
        [Some("two".to_owned()), Some("one".to_owned()), None]
    );
    assert!(matches!(
        place.store.remove_snapshot(&one).await,
        Err(Error::InUse { .. })
    ));
    assert!(matches!(
        place.store.remove_snapshot(&two).await,
        Err(Error::InUse { .. })
    ));
    let again = place
        .store
        .add_snapshot(&two, &first, &upper(&place, "again"), 0);
    assert!(matches!(again, Err(Error::InUse { .. })), "{again:?}");
    drop(prepared);
    let place = place.reopen();
    let listed = place.store.snapshots();
    let listed: Vec<_> = listed
        .iter()
        .map(|s| (s.id.as_str(), s.parent.as_str(), s.size_bytes))
        .collect();
    assert_eq!(
        listed,
        [("one", base.as_str(), 10), ("two", "snapshot:one", 20)]
    );
    place.store.remove_snapshot(&two).await.unwrap();
    place.store.remove_snapshot(&one).await.unwrap();
    place.store.remove_snapshot(&one).await.unwrap();
    let gone = place.store.prepare(&source, None).await;
    assert!(matches!(gone, Err(Error::UnknownImage(_))), "{gone:?}");
    let orphan = place
        .store
        .add_snapshot(&one, &first, &upper(&place, "orphan"), 0);
    assert!(matches!(orphan, Err(Error::UnknownImage(_))), "{orphan:?}");
}

#[tokio::test]
async fn the_store_belongs_to_one_process_and_to_root_alone() {
    let place = Place::new();
    let mode = std::fs::metadata(place.directory.path().join("layers"))
        .unwrap()
        .permissions();
    let others = std::os::unix::fs::PermissionsExt::mode(&mode) & 0o077;
    assert_eq!(
        others, 0,
        "set-user-id programs of images must be out of everyone's reach"
    );
    let second = Store::open(place.directory.path(), config());
    assert!(matches!(second, Err(Error::InUse { .. })), "{second:?}");
}

#[tokio::test]
async fn what_a_crash_left_is_removed_and_the_rest_still_works() {
    let place = Place::new();
    let good = import(&place, "good").await;
    let broken = import(&place, "broken").await;
    let directory = place.directory.path().to_owned();
    let layer_of = |id: &ImageId| {
        place.store.prepare_image(id).unwrap().layers[0]
            .parent()
            .unwrap()
            .to_owned()
    };
    let lost = layer_of(&broken);
    let at = |path: &str| directory.join(path);
    std::fs::create_dir_all(at("work/half/fs/deep")).unwrap();
    std::fs::create_dir_all(at(&format!("layers/{}/fs", "0".repeat(64)))).unwrap();
    std::fs::create_dir_all(at("snapshots/half")).unwrap();
    std::fs::write(at("snapshots/half/record.json"), "{}").unwrap();
    std::fs::write(at("images/junk.json"), "not json").unwrap();
    std::fs::remove_dir_all(lost).unwrap();
    let names = std::fs::read(at("names.json")).unwrap();
    std::fs::write(at("names.json"), "damaged").unwrap();
    let Place {
        store,
        directory: kept,
        _deadline,
    } = place;
    drop(store);
    let result = Store::open(kept.path(), config());
    assert!(matches!(result, Err(Error::Corrupt { .. })), "{result:?}");
    std::fs::write(at("names.json"), names).unwrap();
    let store = Store::open(kept.path(), config()).unwrap();
    let place = Place {
        store,
        directory: kept,
        _deadline,
    };
    place.assert_tidy();
    assert_eq!(
        (
            place.count("layers"),
            place.count("images"),
            place.count("snapshots")
        ),
        (1, 1, 0)
    );
    assert!(place.store.prepare_image(&good).is_ok());
    assert!(
        !place.store.is_local(&image("local/broken:1"), None),
        "its layer is gone, so is it"
    );
    import(&place, "broken").await;
    assert!(place.store.is_local(&image("local/broken:1"), None));
}

/// Pulls, leases, removals and collections at once: whoever holds a lease has all the layers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collection_never_races_with_use() {
    const ROUNDS: usize = 25;
    let registry = Registry::start();
    for name in ["a", "b"] {
        let pushed = Image::of(Layer::default().file("name", name));
        Pusher::to(registry.host()).push(name, "1", &pushed).await;
    }
    let place = Arc::new(Place::in_memory());
    let mut tasks = tokio::task::JoinSet::new();
    for name in ["a", "b", "a", "b"] {
        let (place, reference) = (Arc::clone(&place), format!("{}/{name}:1", registry.host()));
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                let prepared = place.store.prepare(&image(&reference), None).await.unwrap();
                for layer in &prepared.layers {
                    assert_eq!(std::fs::read_to_string(layer.join("name")).unwrap(), name);
                }
                // Another may have taken the name away already.
                let _ = place.store.remove(&reference).await;
                assert!(
                    prepared
                        .layers
                        .iter()
                        .all(|layer| layer.join("name").exists())
                );
            }
        });
    }
    for _ in 0..2 {
        let place = Arc::clone(&place);
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                place.store.gc().await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    place.store.gc().await.unwrap();
    place.assert_empty();
}

/// A layer is here before its image is: collection in between must leave it.
#[tokio::test]
async fn layers_of_a_pull_under_way_are_not_collected() {
    let registry = Registry::start();
    let layers = vec![
        (Layer::default().file("name", "first").tar(), Form::Gzip),
        (Layer::default().noise("noise", 8 << 20).tar(), Form::Gzip),
    ];
    let pushed = Image::new(Family::Oci, layers, &json!({}));
    Pusher::to(registry.host()).push("app", "1", &pushed).await;
    let proxy = Proxy::to(registry.port()).await;
    let limits = Limits {
        concurrent_layers: 1,
        ..Limits::default()
    };
    let place = Place::with(Config { limits, ..config() });
    let (sender, mut progress) = mpsc::channel(1000);
    let reference = format!("{}/app:1", proxy.host());
    let pull = place.store.pull(&reference, None, None, Some(sender));
    let (pulled, ()) = tokio::join!(pull, async {
        while !matches!(progress.recv().await, Some(PullProgress::Unpacked { .. })) {}
        proxy.hold(true);
        place.store.gc().await.unwrap();
        proxy.hold(false);
    });
    let prepared = place.store.prepare_image(&pulled.unwrap()).unwrap();
    assert!(prepared.layers[0].join("noise").exists());
    assert!(
        prepared.layers[1].join("name").exists(),
        "it was collected under the pull"
    );
}
