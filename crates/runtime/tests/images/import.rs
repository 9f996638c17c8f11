//! Images in from files and out to them.

use std::fs::File;
use std::path::Path;

use runtime::image::{Error, Import};
use serde_json::json;

use crate::registry::Registry;
use crate::registry::image::{Family, Form, Image, Layer, Pusher, digest};
use crate::{Place, image, read, run};

fn sample() -> Image {
    let bottom = Layer::default()
        .directory("d")
        .file("d/old", "old")
        .file("kept", "kept")
        .symlink("link", "kept");
    let top = Layer::default()
        .file("d/.wh..wh..opq", "")
        .file("d/new", "new")
        .file(".wh.gone", "");
    let layers = vec![(bottom.tar(), Form::Gzip), (top.tar(), Form::Zstd)];
    Image::new(
        Family::Oci,
        layers,
        &json!({ "config": { "Cmd": ["/bin/sh"] }, "history": [] }),
    )
}

fn write_layout(directory: &Path, image: &Image, name: Option<&str>) {
    let blobs = directory.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    for blob in image.layers.iter().chain([&image.config, &image.manifest]) {
        std::fs::write(blobs.join(&digest(blob)[7..]), blob).unwrap();
    }
    let mut entry = json!({ "mediaType": image.manifest_type, "digest": image.id(), "size": image.manifest.len() });
    if let Some(name) = name {
        entry["annotations"] = json!({ "org.opencontainers.image.ref.name": name });
    }
    let index = json!({ "schemaVersion": 2, "manifests": [entry] });
    std::fs::write(directory.join("index.json"), index.to_string()).unwrap();
    std::fs::write(
        directory.join("oci-layout"),
        r#"{"imageLayoutVersion":"1.0.0"}"#,
    )
    .unwrap();
}

fn pack(directory: &Path, archive: &Path) {
    run(
        "tar",
        &[
            "-cf",
            archive.to_str().unwrap(),
            "-C",
            directory.to_str().unwrap(),
            ".",
        ],
    );
}

fn trees_are_equal(left: &Path, right: &Path) {
    // Owners, modes and whiteouts included.
    let listing = |path: &Path| {
        run(
            "find",
            &[path.to_str().unwrap(), "-printf", "%P %y %m %U:%G %s %l\n"],
        )
        .lines()
        .filter(|line| !line.contains(" d "))
        .map(str::to_owned)
        .collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(listing(left), listing(right));
}

#[tokio::test]
async fn layouts_and_archives_are_imported_under_their_name_or_ours() {
    let scratch = tempfile::tempdir().unwrap();
    let layout = scratch.path().join("layout");
    write_layout(&layout, &sample(), Some("local/app:7"));
    let archive = scratch.path().join("app.tar");
    pack(&layout, &archive);
    let zipped = scratch.path().join("app.tar.gz");
    run(
        "sh",
        &[
            "-c",
            &format!("gzip -c {} > {}", archive.display(), zipped.display()),
        ],
    );
    for import in [
        Import::OciLayout(layout.clone()),
        Import::OciArchive(archive.clone()),
        Import::Detect(layout.clone()),
        Import::Detect(archive),
        Import::Detect(zipped),
    ] {
        let place = Place::new();
        let ids = place.store.import(&import, None).await.unwrap();
        assert_eq!(ids[0].as_str(), sample().id(), "{import:?}");
        let ids = place.store.import(&import, Some("mine:1")).await.unwrap();
        assert_eq!(ids.len(), 1);
        for name in ["local/app:7", "mine:1"] {
            let prepared = place.store.prepare(&image(name), None).await.unwrap();
            assert_eq!(prepared.config.command(), ["/bin/sh"]);
            assert_eq!(read(&prepared.layers[0], "d/new"), "new");
        }
        place.assert_tidy();
    }
}

#[tokio::test]
async fn what_docker_saves_is_imported() {
    let scratch = tempfile::tempdir().unwrap();
    let saved = scratch.path().join("saved");
    let sample = sample();
    std::fs::create_dir_all(saved.join("first")).unwrap();
    std::fs::write(saved.join("config.json"), &sample.config).unwrap();
    std::fs::write(saved.join("first/layer.tar"), &sample.tars[0]).unwrap();
    std::fs::write(saved.join("second.tar"), &sample.tars[1]).unwrap();
    // Old versions write a link where two images share a layer.
    std::os::unix::fs::symlink("../second.tar", saved.join("first/second.tar")).unwrap();
    let manifest = json!([{ "Config": "config.json", "RepoTags": ["app:1", "team/app:2"],
                            "Layers": ["first/layer.tar", "first/second.tar"] }]);
    std::fs::write(saved.join("manifest.json"), manifest.to_string()).unwrap();
    let archive = scratch.path().join("saved.tar");
    pack(&saved, &archive);
    for import in [
        Import::DockerArchive(archive.clone()),
        Import::Detect(archive),
    ] {
        let place = Place::new();
        place.store.import(&import, None).await.unwrap();
        for name in ["app:1", "docker.io/team/app:2"] {
            assert!(place.store.is_local(&image(name), None), "{name}");
        }
    }
}

#[tokio::test]
async fn root_filesystems_are_imported_from_a_tar_and_a_directory() {
    let scratch = tempfile::tempdir().unwrap();
    let tree = scratch.path().join("tree");
    std::fs::create_dir_all(tree.join("etc")).unwrap();
    std::fs::write(tree.join("etc/name"), "tree").unwrap();
    std::fs::hard_link(tree.join("etc/name"), tree.join("etc/linked")).unwrap();
    std::os::unix::fs::symlink("/nowhere", tree.join("dangling")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(tree.join("socket")).unwrap();
    run(
        "mknod",
        &[tree.join("null").to_str().unwrap(), "c", "1", "3"],
    );
    run("chown", &["12:34", tree.join("etc/name").to_str().unwrap()]);
    let (plain, archive) = (
        scratch.path().join("tree.tar"),
        scratch.path().join("tree.tar.zst"),
    );
    let (from, to) = (tree.to_str().unwrap(), plain.to_str().unwrap());
    run("tar", &["-C", from, "--exclude=socket", "-cf", to, "."]);
    std::fs::write(
        &archive,
        zstd::encode_all(File::open(&plain).unwrap(), 3).unwrap(),
    )
    .unwrap();
    let place = Place::new();
    for (import, name) in [
        (Import::Directory(tree.clone()), "a:1"),
        (Import::Detect(tree.clone()), "b:1"),
        (Import::RootfsTar(archive.clone()), "c:1"),
        (Import::Detect(archive), "d:1"),
    ] {
        let nameless = place.store.import(&import, None).await;
        assert!(
            matches!(nameless, Err(Error::InvalidReference { .. })),
            "{nameless:?}"
        );
        place.store.import(&import, Some(name)).await.unwrap();
        let prepared = place.store.prepare(&image(name), None).await.unwrap();
        let layer = &prepared.layers[0];
        assert_eq!(read(layer, "etc/linked"), "tree");
        assert_eq!(
            run(
                "stat",
                &["-c", "%u:%g %h", layer.join("etc/name").to_str().unwrap()]
            ),
            "12:34 2\n"
        );
        assert!(layer.join("dangling").is_symlink());
        assert!(!layer.join("null").exists() && !layer.join("socket").exists());
    }
    place.assert_tidy();
    let odd = tempfile::tempdir().unwrap();
    std::fs::write(odd.path().join(".wh.name"), "").unwrap();
    let result = place
        .store
        .import(&Import::Directory(odd.path().to_owned()), Some("odd:1"))
        .await;
    assert!(matches!(result, Err(Error::Corrupt { .. })), "{result:?}");
    place.assert_tidy();
}

#[tokio::test]
async fn an_exported_image_is_the_same_when_it_comes_back() {
    let registry = Registry::start();
    Pusher::to(registry.host())
        .push("app", "1", &sample())
        .await;
    let reference = format!("{}/app:1", registry.host());
    let place = Place::new();
    let id = place
        .store
        .pull(&reference, None, None, None)
        .await
        .unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let upper = place.directory.path().join("upper");
    std::fs::create_dir(&upper).unwrap();
    std::fs::write(upper.join("written"), "by the sandbox").unwrap();
    // A mark that anyone can make must not hide anything.
    std::fs::create_dir(upper.join("merged")).unwrap();
    let none = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(upper.join("merged"), "user.overlay.opaque", b"y", none).unwrap();
    run(
        "mknod",
        &[
            "-m",
            "0",
            upper.join("kept").to_str().unwrap(),
            "c",
            "0",
            "0",
        ],
    );
    let snapshot = place
        .store
        .add_snapshot(&"s".parse().unwrap(), &id, &upper, 0)
        .unwrap();
    for (name, layers) in [
        (reference.as_str(), 2),
        (id.as_str(), 2),
        (snapshot.as_str(), 3),
    ] {
        let archive = scratch.path().join(format!("{layers}.tar"));
        place.store.export(name, &archive).await.unwrap();
        let other = Place::new();
        other
            .store
            .import(&Import::OciArchive(archive), Some("back:1"))
            .await
            .unwrap();
        let theirs = other.store.prepare(&image("back:1"), None).await.unwrap();
        let ours = place
            .store
            .prepare_image(if layers == 3 { &snapshot } else { &id })
            .unwrap();
        assert_eq!(theirs.layers.len(), layers);
        assert_eq!(theirs.config.command(), ["/bin/sh"]);
        for (left, right) in ours.layers.iter().zip(&theirs.layers) {
            trees_are_equal(left, right);
        }
        let opaque = theirs.layers[layers - 2].join("d");
        let mut value = [0; 4];
        if layers == 3 {
            let merged = theirs.layers[0].join("merged");
            let mark = rustix::fs::lgetxattr(merged, "trusted.overlay.opaque", &mut value[..]);
            assert_eq!(mark, Err(rustix::io::Errno::NODATA));
        }
        assert_eq!(
            rustix::fs::lgetxattr(opaque, "trusted.overlay.opaque", &mut value[..]),
            Ok(1)
        );
    }
    place.assert_tidy();
    assert_eq!(
        std::fs::read_dir(scratch.path()).unwrap().count(),
        2,
        "no partial file is left"
    );
    let host = place
        .store
        .export("host", &scratch.path().join("host.tar"))
        .await;
    assert!(
        matches!(host, Err(Error::InvalidReference { .. })),
        "{host:?}"
    );
    let missing = place
        .store
        .export("missing:1", &scratch.path().join("x.tar"))
        .await;
    assert!(
        matches!(missing, Err(Error::NotFound { .. })),
        "{missing:?}"
    );
    let nowhere = place
        .store
        .export(&reference, Path::new("/nonexistent/x.tar"))
        .await;
    assert!(matches!(nowhere, Err(Error::Io { .. })), "{nowhere:?}");
}

#[tokio::test]
async fn damaged_and_hostile_archives_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let place = Place::new();
    let refused = async |import: Import, because: &str| {
        let result = place.store.import(&import, Some("x:1")).await;
        let Err(Error::Corrupt { what, message }) = result else {
            panic!("{because}: {result:?}")
        };
        assert!(
            format!("{what} {message}").contains(because),
            "{what}: {message}"
        );
        place.assert_empty();
    };
    let layout = scratch.path().join("layout");
    let sample = sample();
    write_layout(&layout, &sample, None);
    let blob = layout
        .join("blobs/sha256")
        .join(&digest(&sample.layers[0])[7..]);
    std::fs::write(&blob, "other").unwrap();
    refused(Import::OciLayout(layout.clone()), "its digest is").await;
    std::fs::remove_file(&blob).unwrap();
    refused(Import::OciLayout(layout.clone()), "does not hold it").await;
    // A name that leaves the archive is looked for inside it.
    let secret = scratch.path().join("secret");
    std::fs::write(&secret, &sample.config).unwrap();
    let evil = scratch.path().join("evil");
    std::fs::create_dir(&evil).unwrap();
    let manifest = json!([{ "Config": "../secret", "RepoTags": [], "Layers": [secret] }]);
    std::fs::write(evil.join("manifest.json"), manifest.to_string()).unwrap();
    std::os::unix::fs::symlink(&secret, evil.join("link")).unwrap();
    let archive = scratch.path().join("evil.tar");
    pack(&evil, &archive);
    refused(Import::DockerArchive(archive.clone()), "does not hold it").await;
    let manifest = json!([{ "Config": "link", "RepoTags": [], "Layers": ["link"] }]);
    std::fs::write(evil.join("manifest.json"), manifest.to_string()).unwrap();
    pack(&evil, &archive);
    refused(Import::DockerArchive(archive), "does not hold it").await;
    let text = scratch.path().join("text");
    std::fs::write(
        &text,
        "this is no archive at all, though it is long enough ".repeat(20),
    )
    .unwrap();
    refused(Import::Detect(text), "not a tar archive").await;
    let missing = place
        .store
        .import(&Import::Detect("/nonexistent".into()), Some("x:1"))
        .await;
    assert!(matches!(missing, Err(Error::Io { .. })), "{missing:?}");
}

#[tokio::test]
async fn another_name_means_exactly_the_image_and_outlives_a_restart() {
    let scratch = tempfile::tempdir().unwrap();
    let layout = scratch.path().join("layout");
    write_layout(&layout, &sample(), Some("local/app:7"));
    let place = Place::new();
    let import = Import::OciLayout(layout);
    let id = place.store.import(&import, None).await.unwrap().remove(0);
    let alias = "opensandbox/code-interpreter:v1.0.2";
    assert_eq!(place.store.tag("local/app:7", alias).await.unwrap(), id);
    // By its id, too.
    place.store.tag(id.as_str(), "other:1").await.unwrap();
    let place = place.reopen();
    place.store.remove("local/app:7").await.unwrap();
    place.store.gc().await.unwrap();
    let prepared = place.store.prepare(&image(alias), None).await.unwrap();
    assert_eq!(prepared.id, id);
    // No pattern: another tag of the same repository is another image.
    let neighbour = image("opensandbox/code-interpreter:v1.0.1");
    assert!(!place.store.is_local(&neighbour, None));
    for (reference, name) in [
        ("nowhere:1", "a:1"),
        ("host", "a:1"),
        (alias, "host"),
        (alias, "NOT A NAME"),
    ] {
        let refused = place.store.tag(reference, name).await;
        assert!(refused.is_err(), "{reference} {name}");
    }
}

#[tokio::test]
async fn a_root_filesystem_without_a_name_is_refused_without_its_path() {
    let scratch = tempfile::tempdir().unwrap();
    let tree = scratch.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let place = Place::new();
    let refused = place.store.import(&Import::Directory(tree), None).await;
    let told = refused.unwrap_err().to_string();
    assert!(told.contains("give it one"), "{told}");
    assert!(!told.contains("tree"), "{told}");
}

#[tokio::test]
async fn other_platforms_and_ambiguous_names_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let foreign = Image::new(
        Family::Oci,
        vec![(Layer::default().file("a", "a").tar(), Form::Gzip)],
        &json!({ "architecture": "s390x" }),
    );
    write_layout(scratch.path(), &foreign, None);
    let place = Place::new();
    let layout = Import::OciLayout(scratch.path().to_owned());
    let result = place.store.import(&layout, Some("x:1")).await;
    assert!(
        matches!(result, Err(Error::WrongPlatform { .. })),
        "{result:?}"
    );
    place.assert_empty();
    write_layout(scratch.path(), &sample(), None);
    let nameless = place.store.import(&layout, None).await;
    assert!(
        matches!(nameless, Err(Error::InvalidReference { .. })),
        "{nameless:?}"
    );
    let host = place.store.import(&layout, Some("host")).await;
    assert!(
        matches!(host, Err(Error::InvalidReference { .. })),
        "{host:?}"
    );
}
