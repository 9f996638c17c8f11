//! Volumes on the real filesystem: what may be mounted, and the links that must not lead elsewhere.

use super::*;

#[track_caller]
fn target(path: &str, expected: Option<&str>) {
    assert_eq!(target_path(path).ok().as_deref(), expected, "{path}");
}

#[test]
fn mount_paths_are_absolute_plain_and_not_the_kernels() {
    target("/data", Some("/data"));
    target("/data/./x//y/", Some("/data/x/y"));
    for path in [
        "", "data", "/", "//", "/a/../b", "/proc", "/proc/1", "/sys/fs", "/dev/shm",
    ] {
        target(path, None);
    }
    target("/process", Some("/process"));
}

#[test]
fn a_host_path_cannot_lead_out_of_the_allowed_directory() {
    let directory = tempfile::tempdir().unwrap();
    let allowed = directory.path().join("allowed");
    std::fs::create_dir_all(allowed.join("inner")).unwrap();
    std::os::unix::fs::symlink("/etc", allowed.join("out")).unwrap();
    std::os::unix::fs::symlink("inner", allowed.join("in")).unwrap();
    let open = |path: &str| {
        open_host_path(
            &format!("{}/{path}", allowed.display()),
            allowed.to_str().unwrap(),
        )
    };
    assert!(open("inner").is_ok());
    assert!(open("in").is_ok());
    assert!(open("out").is_err());
    assert!(open("out/passwd").is_err());
    assert!(open("inner/../..").is_err());
    assert!(open("missing").is_err());
    assert!(open_host_path("/etc", allowed.to_str().unwrap()).is_err());
}

#[test]
fn a_sub_path_follows_no_link() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    std::os::unix::fs::symlink("/etc", root.join("out")).unwrap();
    std::fs::create_dir(root.join("real")).unwrap();
    std::os::unix::fs::symlink("real", root.join("in")).unwrap();
    let root = rustix::fs::openat(CWD, root, DIRECTORY, Mode::empty()).unwrap();
    assert!(open_sub_path(&root, "real/new/deeper", None).is_ok());
    for path in ["out", "out/ssh", "in", "../x", "/etc", "real/../../x"] {
        assert!(open_sub_path(&root, path, None).is_err(), "{path}");
    }
}

#[test]
fn volume_names_are_names() {
    let directory = tempfile::tempdir().unwrap();
    for claim in ["", ".", "..", "a/b", ".hidden", "-x", "a\0b"] {
        assert!(
            open_named(claim, true, directory.path()).is_err(),
            "{claim:?}"
        );
    }
    assert!(open_named("cache-1", false, directory.path()).is_err());
    assert!(open_named("cache-1", true, directory.path()).unwrap().1);
    assert!(!open_named("cache-1", true, directory.path()).unwrap().1);
}
