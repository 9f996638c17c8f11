//! Copies of trees on the real filesystem: what must be the same afterwards, and what must not leak.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};

use super::*;

fn needs_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        assert!(std::env::var_os("CI").is_none(), "this test needs root");
        eprintln!("not run: needs root; run the tests with sudo");
    }
    is_root
}

#[test]
fn a_copy_is_the_same_tree() {
    if !needs_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let from = directory.path().join("from");
    fs::create_dir_all(from.join("sub/deeper")).unwrap();
    fs::write(from.join("sub/file"), "hello").unwrap();
    fs::set_permissions(from.join("sub/file"), fs::Permissions::from_mode(0o4751)).unwrap();
    std::os::unix::fs::chown(from.join("sub/deeper"), Some(1000), Some(1001)).unwrap();
    fs::hard_link(from.join("sub/file"), from.join("link")).unwrap();
    symlink("/etc/shadow", from.join("symlink")).unwrap();
    let device = rustix::fs::makedev(0, 0);
    let mode = Mode::from_raw_mode(0);
    rustix::fs::mknodat(
        CWD,
        from.join("gone"),
        FileType::CharacterDevice,
        mode,
        device,
    )
    .unwrap();
    let sparse = fs::File::create(from.join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    let none = XattrFlags::empty();
    let opaque = "trusted.overlay.opaque";
    rustix::fs::setxattr(from.join("sub"), opaque, b"y", none).unwrap();
    rustix::fs::setxattr(from.join("sub"), "trusted.overlay.origin", b"x", none).unwrap();
    fs::write(from.join("left-out"), "").unwrap();

    let to = directory.path().join("to");
    copy_tree(&from, &to, &|path| path == b"left-out", None).unwrap();

    assert_eq!(fs::read_to_string(to.join("sub/file")).unwrap(), "hello");
    let file = fs::metadata(to.join("sub/file")).unwrap();
    assert_eq!(file.mode() & 0o7777, 0o4751);
    assert_eq!(file.ino(), fs::metadata(to.join("link")).unwrap().ino());
    let was = fs::metadata(from.join("sub/file")).unwrap();
    assert_eq!(
        (file.mtime(), file.mtime_nsec()),
        (was.mtime(), was.mtime_nsec())
    );
    let deeper = fs::metadata(to.join("sub/deeper")).unwrap();
    assert_eq!((deeper.uid(), deeper.gid()), (1000, 1001));
    assert_eq!(
        fs::read_link(to.join("symlink")).unwrap(),
        Path::new("/etc/shadow")
    );
    let whiteout = fs::symlink_metadata(to.join("gone")).unwrap();
    assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0);
    let sparse = fs::metadata(to.join("sparse")).unwrap();
    assert_eq!((sparse.len(), sparse.blocks()), (1 << 40, 0));
    let mut value = [0_u8; 8];
    assert_eq!(
        rustix::fs::getxattr(to.join("sub"), opaque, &mut value[..]),
        Ok(1)
    );
    let origin = rustix::fs::getxattr(to.join("sub"), "trusted.overlay.origin", &mut value[..]);
    assert_eq!(origin, Err(Errno::NODATA));
    assert!(!to.join("left-out").exists());
}

#[test]
fn a_tree_nested_deeper_than_any_path_is_removed() {
    // In memory: on some disks every directory freed costs a discard.
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let root = directory.path().join("root");
    fs::create_dir(&root).unwrap();
    let mut here = rustix::fs::openat(CWD, &root, DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..20_000 {
        rustix::fs::mkdirat(&here, c"d", Mode::from_raw_mode(0o700)).unwrap();
        here = rustix::fs::openat(&here, c"d", DIRECTORY, Mode::empty()).unwrap();
    }
    fs::write(root.join(".removing-1"), "a name that is taken").unwrap();
    remove_tree(&root).unwrap();
    assert!(!root.exists());
}

#[test]
fn removing_does_not_follow_links_and_what_is_gone_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let (root, outside) = (
        directory.path().join("root"),
        directory.path().join("outside"),
    );
    fs::create_dir_all(root.join("sub")).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("precious"), "").unwrap();
    symlink(&outside, root.join("sub/link")).unwrap();
    symlink(&outside, root.join("link")).unwrap();
    remove_tree(&root).unwrap();
    remove_tree(&root).unwrap();
    assert!(outside.join("precious").exists() && !root.exists());
}
