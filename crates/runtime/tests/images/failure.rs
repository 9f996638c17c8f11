//! Pulls that go wrong: each ends in an error of its own kind and leaves nothing half made.

use runtime::image::{Config, Error, Limits, Store};
use serde_json::json;

use crate::registry::image::{Family, Form, Image, Layer, Pusher, architecture, digest};
use crate::registry::proxy::Proxy;
use crate::registry::{Auth, Registry};
use crate::{Place, config, image, in_own_mounts, platform, run};

#[tokio::test]
async fn what_does_not_exist_is_not_found() {
    let registry = Registry::start();
    Pusher::to(registry.host())
        .push("app", "1", &Image::of(Layer::default()))
        .await;
    let place = Place::new();
    for missing in [
        "app:2",
        "other:1",
        "app@sha256:0000000000000000000000000000000000000000000000000000000000000000",
    ] {
        let reference = format!("{}/{missing}", registry.host());
        let result = place.store.prepare(&image(&reference), None).await;
        assert!(
            matches!(result, Err(Error::NotFound { .. })),
            "{missing}: {result:?}"
        );
    }
    // A digest that would not be checked must not be pulled by.
    let unchecked = format!("{}/app@sha512:{}", registry.host(), "0".repeat(128));
    for text in ["no spaces", &unchecked] {
        let result = place.store.prepare(&image(text), None).await;
        assert!(
            matches!(result, Err(Error::InvalidReference { .. })),
            "{text}: {result:?}"
        );
    }
    place.assert_empty();
}

#[tokio::test]
async fn an_image_for_another_machine_is_refused_before_its_layers_come() {
    let registry = Registry::start();
    let other = if architecture() == "arm64" {
        "amd64"
    } else {
        "arm64"
    };
    let layer = (Layer::default().file("a", "a").tar(), Form::Gzip);
    let pushed = Image::new(
        Family::Docker,
        vec![layer],
        &json!({ "architecture": other }),
    );
    Pusher::to(registry.host()).push("app", "1", &pushed).await;
    let place = Place::new();
    let reference = format!("{}/app:1", registry.host());
    let result = place.store.pull(&reference, None, None, None).await;
    let Err(Error::WrongPlatform {
        wanted, available, ..
    }) = result
    else {
        panic!("{result:?}")
    };
    assert_eq!(
        (wanted, available),
        (
            format!("linux/{}", architecture()),
            format!("linux/{other}")
        )
    );
    place.assert_empty();
    place
        .store
        .pull(&reference, None, Some(&platform(other)), None)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_corrupt_layer_is_refused_until_it_is_whole() {
    let registry = Registry::start();
    // Not compressed, so that no checksum but ours can find the change.
    let layer = (Layer::default().noise("noise", 1 << 20).tar(), Form::Plain);
    let pushed = Image::new(Family::Oci, vec![layer], &json!({}));
    Pusher::to(registry.host()).push("app", "1", &pushed).await;
    let file = registry.blob_file(&digest(&pushed.layers[0]));
    let place = Place::new();
    let reference = format!("{}/app:1", registry.host());
    let mut damaged = pushed.layers[0].clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&file, &damaged).unwrap();
    let error = place
        .store
        .pull(&reference, None, None, None)
        .await
        .unwrap_err();
    let Error::Corrupt { message, .. } = &error else {
        panic!("{error:?}")
    };
    assert!(message.contains("sent other data"), "{message}");
    assert!(!error.is_transient());
    place.assert_empty();
    assert_eq!(
        place.count("downloads"),
        0,
        "corrupt data must not be resumed from"
    );
    // Longer than promised is wrong as well, and not read to its end.
    damaged.clone_from(&pushed.layers[0]);
    damaged.extend([0; 512]);
    std::fs::write(&file, &damaged).unwrap();
    let error = place
        .store
        .pull(&reference, None, None, None)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error:?}");
    std::fs::write(&file, &pushed.layers[0]).unwrap();
    place
        .store
        .pull(&reference, None, None, None)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_corrupt_configuration_is_refused() {
    let registry = Registry::start();
    let layer = (Layer::default().file("a", "a").tar(), Form::Gzip);
    let config = json!({ "config": { "Cmd": ["/bin/true"] } });
    let pushed = Image::new(Family::Oci, vec![layer], &config);
    Pusher::to(registry.host()).push("app", "1", &pushed).await;
    let text = String::from_utf8(pushed.config.clone())
        .unwrap()
        .replace("/bin/true", "/bin/evil");
    std::fs::write(registry.blob_file(&digest(&pushed.config)), text).unwrap();
    let place = Place::new();
    let reference = format!("{}/app:1", registry.host());
    let error = place
        .store
        .pull(&reference, None, None, None)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, Error::Corrupt { message, .. } if message.contains("digest")),
        "{error:?}"
    );
    place.assert_empty();
}

#[tokio::test]
async fn a_layer_that_is_not_what_the_configuration_says_is_refused() {
    let registry = Registry::start();
    let mut pushed = Image::of(Layer::default().file("a", "a"));
    let lie = Image::of(Layer::default().file("a", "b"));
    // The manifest is true to the blobs, the configuration is another image's.
    let text = String::from_utf8(pushed.manifest.clone()).unwrap();
    let (ours, theirs) = (&pushed.config, &lie.config);
    let text = text.replace(&digest(ours), &digest(theirs));
    pushed.manifest = text.into_bytes();
    pushed.config = lie.config;
    Pusher::to(registry.host()).push("app", "1", &pushed).await;
    let place = Place::new();
    let result = place
        .store
        .pull(&format!("{}/app:1", registry.host()), None, None, None)
        .await;
    let Err(Error::Corrupt { message, .. }) = result else {
        panic!("{result:?}")
    };
    assert!(message.contains("uncompressed"), "{message}");
    place.assert_empty();
}

#[tokio::test]
async fn a_hostile_layer_leaves_nothing() {
    let registry = Registry::start();
    let mut tar = Layer::default()
        .file("good", "x")
        .file("aaaaaaaaaa", "x")
        .tar();
    // The name becomes one that leaves the root; header and checksum are mended by hand.
    let at = tar
        .windows(10)
        .position(|name| name == b"aaaaaaaaaa")
        .unwrap();
    tar[at..at + 10].copy_from_slice(b"../../evil");
    tar[at + 148..at + 156].fill(b' ');
    let sum: u32 = tar[at..at + 512].iter().map(|b| u32::from(*b)).sum();
    tar[at + 148..at + 156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let pushed = Image::new(Family::Oci, vec![(tar, Form::Zstd)], &json!({}));
    Pusher::to(registry.host()).push("app", "1", &pushed).await;
    let place = Place::new();
    let result = place
        .store
        .pull(&format!("{}/app:1", registry.host()), None, None, None)
        .await;
    let Err(Error::Corrupt { message, .. }) = result else {
        panic!("{result:?}")
    };
    assert!(message.contains("leads out of the root"), "{message}");
    place.assert_empty();
    assert!(!place.directory.path().join("evil").exists());
}

#[tokio::test]
async fn a_layer_over_the_limits_is_refused() {
    let registry = Registry::start();
    let layer = Layer::default().file("zeros", vec![0; 1 << 20]);
    Pusher::to(registry.host())
        .push("app", "1", &Image::of(layer))
        .await;
    let reference = format!("{}/app:1", registry.host());
    for limits in [
        Limits {
            layer_bytes: 1 << 19,
            ..Limits::default()
        },
        Limits {
            layer_entries: 0,
            ..Limits::default()
        },
    ] {
        let place = Place::with(Config { limits, ..config() });
        let result = place.store.pull(&reference, None, None, None).await;
        assert!(matches!(result, Err(Error::TooLarge { .. })), "{result:?}");
        place.assert_empty();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_that_dies_mid_pull_is_told_and_the_next_pull_goes_on_from_there() {
    const BYTES: usize = 8 << 20;
    let directory = tempfile::tempdir().unwrap();
    let mut registry = Registry::over(directory.path(), &Auth::Everyone);
    let pushed = Image::of(Layer::default().noise("noise", BYTES));
    Pusher::to(registry.host()).push("app", "1", &pushed).await;
    let proxy = Proxy::to(registry.port()).await;
    let reference = format!("{}/app:1", proxy.host());
    let place = Place::new();
    proxy.cut_after(6 << 20);
    let pull = place.store.pull(&reference, None, None, None);
    let (result, ()) = tokio::join!(pull, async {
        proxy.has_cut().await;
        registry.kill();
    });
    let error = result.unwrap_err();
    assert!(
        matches!(error, Error::Registry { .. }) && error.is_transient(),
        "{error:?}"
    );
    place.assert_empty();
    assert_eq!(place.count("downloads"), 1, "what came is kept");

    let registry = Registry::over(directory.path(), &Auth::Everyone);
    proxy.mend(registry.port());
    // The next process finds it as well.
    let place = place.reopen();
    let before = proxy.passed();
    place
        .store
        .pull(&reference, None, None, None)
        .await
        .unwrap();
    let came = proxy.passed() - before;
    assert!(came < 4 << 20, "{came} bytes came, though most were here");
    assert_eq!(place.count("downloads"), 0);
    let prepared = place.store.prepare(&image(&reference), None).await.unwrap();
    assert_eq!(
        std::fs::metadata(prepared.layers[0].join("noise"))
            .unwrap()
            .len(),
        BYTES as u64
    );
}

#[tokio::test]
async fn a_kept_part_that_went_bad_is_fetched_again() {
    let directory = tempfile::tempdir().unwrap();
    let registry = Registry::over(directory.path(), &Auth::Everyone);
    let pushed = Image::of(Layer::default().noise("noise", 1 << 20));
    Pusher::to(registry.host()).push("app", "1", &pushed).await;
    let place = Place::new();
    let hex = |bytes: &[u8]| digest(bytes)[7..].to_owned();
    let name = format!("{}.{}", hex(&pushed.layers[0]), hex(&pushed.tars[0]));
    std::fs::write(
        place.directory.path().join("downloads").join(name),
        vec![7; 1 << 19],
    )
    .unwrap();
    place
        .store
        .pull(&format!("{}/app:1", registry.host()), None, None, None)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_registry_that_refuses_connections_is_told_as_one_that_cannot_be_reached() {
    // Bound and never listened on: nobody else gets the port, and whoever dials it is refused.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let port = socket.local_addr().unwrap().port();
    let place = Place::new();
    let error = place
        .store
        .pull(&format!("127.0.0.1:{port}/a:1"), None, None, None)
        .await
        .unwrap_err();
    assert!(
        matches!(error, Error::Registry { .. }) && error.is_transient(),
        "{error:?}"
    );
    assert!(error.to_string().contains("cannot be reached"), "{error}");
    place.assert_empty();
}

#[test]
fn a_full_disk_is_told_and_mended_by_space() {
    if !in_own_mounts("failure::a_full_disk_is_told_and_mended_by_space") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    run("mount", &["-t", "tmpfs", "-o", "size=4m", "osb-test", path]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let registry = Registry::start();
        // Fits while it is compressed, and not once it is unpacked beside itself.
        let layer = Layer::default().noise("noise", 3 << 20);
        Pusher::to(registry.host())
            .push("app", "1", &Image::of(layer))
            .await;
        let reference = format!("{}/app:1", registry.host());
        let store = Store::open(directory.path(), config()).unwrap();
        let error = store.pull(&reference, None, None, None).await.unwrap_err();
        assert!(matches!(error, Error::DiskFull { .. }), "{error:?}");
        assert!(error.to_string().contains("free space"), "{error}");
        assert_eq!(
            std::fs::read_dir(directory.path().join("work"))
                .unwrap()
                .count(),
            0
        );
        assert_eq!(
            std::fs::read_dir(directory.path().join("layers"))
                .unwrap()
                .count(),
            0
        );
        run("mount", &["-o", "remount,size=32m", path]);
        store.pull(&reference, None, None, None).await.unwrap();
    });
}
