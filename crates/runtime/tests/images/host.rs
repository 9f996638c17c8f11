//! The image `host` on the machine the tests run on.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use runtime::image::Error;

use crate::{Place, image, in_own_mounts, join, platform, run};

#[tokio::test]
async fn it_is_always_local_and_stays_what_it_was_for_those_who_use_it() {
    let place = Place::new();
    assert!(place.store.is_local(&image("host"), None));
    let first = place.store.prepare(&image("host"), None).await.unwrap();
    assert!(first.id.as_str().starts_with("host:"));
    assert_eq!(first.binds[0].source, Path::new("/usr"));
    for bind in &first.binds {
        let target = first.layers[0].join(bind.target.strip_prefix("/").unwrap());
        assert!(target.is_dir(), "{bind:?} has nowhere to go");
    }
    let foreign = place
        .store
        .prepare(&image("host"), Some(&platform("s390x")))
        .await;
    assert!(
        matches!(foreign, Err(Error::WrongPlatform { .. })),
        "{foreign:?}"
    );
    let id = first.id.clone();
    drop(first);
    let place = place.reopen();
    let again = place.store.prepare(&image("host"), None).await.unwrap();
    assert_eq!(again.id, id, "an unchanged machine gives an unchanged tree");
    assert_eq!(place.count("host"), 1);
    // A tree of an earlier state of the machine stays while a sandbox stands on it.
    let old = place.directory.path().join("host/0123456789ab");
    run(
        "cp",
        &[
            "-a",
            again.layers[0].parent().unwrap().to_str().unwrap(),
            old.to_str().unwrap(),
        ],
    );
    drop(again);
    let place = place.reopen();
    let lease = place
        .store
        .lease_for(&runtime::image::ImageId::from_record("host:0123456789ab"))
        .unwrap();
    place.store.gc().await.unwrap();
    assert!(old.exists());
    drop(lease);
    place.store.gc().await.unwrap();
    assert!(!old.exists() && place.store.is_local(&image("host"), None));
}

#[tokio::test]
async fn it_holds_no_secret_of_this_machine() {
    let place = Place::new();
    let prepared = place.store.prepare(&image("host"), None).await.unwrap();
    let root = &prepared.layers[0];
    for never in [
        "etc/shadow",
        "etc/gshadow",
        "etc/machine-id",
        "etc/ssh",
        "etc/ssl/private",
        "etc/sudoers",
        "etc/environment",
    ] {
        assert!(
            std::fs::symlink_metadata(root.join(never)).is_err(),
            "{never}"
        );
    }
    assert_eq!(std::fs::read_dir(root.join("root")).unwrap().count(), 0);
    let homes = run("ls", &["-A", root.join("home").to_str().unwrap()]);
    assert_eq!(homes, "sandbox\n");
    // Whatever was copied, everyone on this machine could read.
    let mut waiting = vec![root.join("etc")];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let original = Path::new("/").join(path.strip_prefix(root).unwrap());
            let copied = std::fs::symlink_metadata(&path).unwrap();
            if copied.is_dir() {
                waiting.push(path);
            } else if copied.is_file() && std::fs::read(&path).ok() == std::fs::read(&original).ok()
            {
                let mode = std::fs::metadata(&original).unwrap().mode();
                assert_ne!(mode & 0o004, 0, "{}", original.display());
            }
        }
    }
}

#[test]
fn programs_run_in_it() {
    if !in_own_mounts("host::programs_run_in_it") {
        return;
    }
    let target = tempfile::tempdir().unwrap();
    let path = target.path().to_str().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let place = Place::new();
    let prepared = runtime
        .block_on(place.store.prepare(&image("host"), None))
        .unwrap();
    let upper = tempfile::tempdir_in(place.directory.path()).unwrap();
    let (writable, work) = (upper.path().join("upper"), upper.path().join("work"));
    std::fs::create_dir(&writable).unwrap();
    std::fs::create_dir(&work).unwrap();
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        join(&prepared.layers),
        writable.display(),
        work.display()
    );
    run("mount", &["-t", "overlay", "-o", &options, "overlay", path]);
    for bind in &prepared.binds {
        let inside = target.path().join(bind.target.strip_prefix("/").unwrap());
        let (from, to) = (bind.source.to_str().unwrap(), inside.to_str().unwrap());
        run("mount", &["--bind", from, to]);
        run("mount", &["-o", "remount,bind,ro,nosuid,nodev", to]);
    }
    run(
        "mount",
        &[
            "--bind",
            "/dev",
            target.path().join("dev").to_str().unwrap(),
        ],
    );
    let inside = |script: &str| run("chroot", &[path, "/bin/sh", "-c", script]);
    assert_eq!(inside("id -un; id -un 1000"), "root\nsandbox\n");
    assert_eq!(
        inside("echo hello | tr a-z A-Z | tee /workspace/file; cat /workspace/file"),
        "HELLO\nHELLO\n"
    );
    assert_eq!(inside("bash -c 'echo $((6*7))'"), "42\n");
    assert!(inside("git --version").starts_with("git version"));
    assert_eq!(
        inside("if touch /usr/x 2>/dev/null; then echo writable; else echo closed; fi"),
        "closed\n"
    );
    if Path::new("/usr/bin/python3").exists() {
        assert_eq!(
            inside("/usr/bin/python3 -c 'import ssl, json; print(1)'"),
            "1\n"
        );
    }
}
