//! What staging promises: nothing early, nothing partial, nothing left behind.

use std::{
    fs,
    io::Write,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
};

use super::*;

fn write(path: &Path, attributes: Attributes, content: &str) -> Result<()> {
    let mut staged = Staged::create(path, attributes)?;
    (&*staged.file()).write_all(content.as_bytes()).unwrap();
    staged.finish(true)?;
    staged.publish()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn nothing_appears_before_it_is_published_and_nothing_stays_when_it_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/deep/f");
    let mut staged = Staged::create(&path, Attributes::default()).unwrap();
    (&*staged.file()).write_all(b"x").unwrap();
    assert!(names(path.parent().unwrap()).is_empty());
    staged.finish(false).unwrap();
    assert!(!path.exists());
    assert_eq!(
        names(path.parent().unwrap()).len(),
        1,
        "a hidden name keeps it"
    );
    drop(staged);
    assert!(names(path.parent().unwrap()).is_empty());
}

#[test]
fn a_replaced_file_keeps_mode_and_owner_unless_told_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4710)).unwrap();
    let before = fs::metadata(&path).unwrap().ino();
    write(&path, Attributes::default(), "new").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    assert_eq!(mode(&path), 0o4710);
    assert_ne!(fs::metadata(&path).unwrap().ino(), before);
    write(
        &path,
        Attributes {
            mode: Some(0o640),
            ..Attributes::default()
        },
        "newer",
    )
    .unwrap();
    assert_eq!(mode(&path), 0o640);
    assert_eq!(names(dir.path()), ["f"]);
}

#[test]
fn a_parked_file_is_published_with_its_mode() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    fs::write(&path, "old").unwrap();
    let mut staged = Staged::create(
        &path,
        Attributes {
            mode: Some(0o600),
            ..Attributes::default()
        },
    )
    .unwrap();
    (&*staged.file()).write_all(b"parked").unwrap();
    staged.finish(false).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    staged.publish().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "parked");
    assert_eq!(mode(&path), 0o600);
    assert_eq!(names(dir.path()), ["f"]);
}

#[test]
fn a_filesystem_without_unnamed_files_is_served_by_a_hidden_name() {
    let dir = tempfile::tempdir().unwrap();
    let directory: OwnedFd = File::open(dir.path()).unwrap().into();
    let (_, place) = begin_hidden(&directory, Mode::from_raw_mode(0o600)).unwrap();
    let StagedAt::Hidden(hidden) = place else {
        panic!("a hidden name was asked for")
    };
    assert_eq!(mode(&dir.path().join(hidden)), 0o600);
}

#[test]
fn links_are_followed_and_stay() {
    let dir = tempfile::tempdir().unwrap();
    let (link, target) = (dir.path().join("link"), dir.path().join("target"));
    symlink("target", &link).unwrap();
    write(&link, Attributes::default(), "through").unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "through");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    symlink("loop", dir.path().join("loop")).unwrap();
    assert!(matches!(
        write(&dir.path().join("loop"), Attributes::default(), ""),
        Err(Error::BadPath { .. })
    ));
}

#[test]
fn a_file_in_a_directory_that_is_closed_to_the_caller_is_written_in_place() {
    if !rustix::process::geteuid().is_root() {
        return write_in_closed_directory(&|| {});
    }
    write_in_closed_directory(&|| crate::sys::fscred::assume(65534, 65534, &[65534]).unwrap());
}

fn write_in_closed_directory(become_somebody: &(dyn Fn() + Sync)) {
    let dir = tempfile::tempdir().unwrap();
    let (path, other) = (dir.path().join("f"), dir.path().join("read-only"));
    for (file, mode) in [(&path, 0o666), (&other, 0o444)] {
        fs::write(file, "the old content").unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let before = fs::metadata(&path).unwrap().ino();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            become_somebody();
            write(&path, Attributes::default(), "new").unwrap();
            assert!(write(&other, Attributes::default(), "new").is_err());
            assert!(write(&dir.path().join("another"), Attributes::default(), "new").is_err());
        });
    });
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    assert_eq!(fs::read_to_string(&other).unwrap(), "the old content");
    assert_eq!(fs::metadata(&path).unwrap().ino(), before);
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn directories_and_devices_are_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(
        write(dir.path(), Attributes::default(), ""),
        Err(Error::WrongKind { .. })
    ));
    assert!(matches!(
        write(Path::new("/dev/null"), Attributes::default(), ""),
        Err(Error::WrongKind { .. })
    ));
    assert!(matches!(
        write(Path::new("/"), Attributes::default(), ""),
        Err(Error::WrongKind { .. })
    ));
}
