//! A machine made of a few files, and what is shown of it.

use super::*;

fn machine() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    for path in [
        "etc/ssl/certs",
        "etc/ssl/private",
        "etc/alternatives",
        "etc/python3",
        "usr/bin",
        "lib",
        "opt/tool",
    ] {
        fs::create_dir_all(at(path)).unwrap();
    }
    std::os::unix::fs::symlink("usr/bin", at("bin")).unwrap();
    std::os::unix::fs::symlink("/usr/bin/vi", at("etc/alternatives/editor")).unwrap();
    for (path, text) in [
        ("etc/passwd", "alice:x:1:1::/home/alice:/bin/sh\n"),
        ("etc/shadow", "root:hash"),
        ("etc/machine-id", "42"),
        ("etc/ssl/certs/ca.pem", "-----BEGIN CERTIFICATE-----"),
        ("etc/ssl/certs/oops.pem", "-----BEGIN RSA PRIVATE KEY-----"),
        ("etc/ssl/private/key.pem", "-----BEGIN PRIVATE KEY-----"),
        ("etc/python3/token", "secret"),
        ("etc/python3/rules", "rules"),
        ("etc/ld.so.cache", "cache"),
    ] {
        fs::write(at(path), text).unwrap();
    }
    fs::set_permissions(at("etc/python3/token"), fs::Permissions::from_mode(0o600)).unwrap();
    dir
}

fn build(machine: &Path, extra: &[&str]) -> Result<(tempfile::TempDir, Vec<PathBuf>), Error> {
    let out = tempfile::tempdir().unwrap();
    let mut builder = Builder {
        root: out.path().join("fs"),
        machine: machine.to_owned(),
        hasher: Sha256::new(),
        files: 0,
        binds: Vec::new(),
    };
    let extra: Vec<PathBuf> = extra.iter().map(PathBuf::from).collect();
    builder.build(&extra).map(|()| (out, builder.binds))
}

#[test]
fn a_machine_with_python_and_pip_has_a_virtual_environment() {
    let machine = machine();
    let (out, _) = build(machine.path(), &[]).unwrap();
    assert!(!out.path().join("fs/opt/venv").exists(), "no interpreter");
    fs::write(machine.path().join("usr/bin/python3"), "").unwrap();
    let (out, _) = build(machine.path(), &[]).unwrap();
    let at = |path: &str| out.path().join("fs/opt/venv").join(path);
    assert_eq!(
        fs::read_link(at("bin/python3")).unwrap(),
        Path::new("/usr/bin/python3")
    );
    assert!(!at("bin/pip").exists(), "this machine has no pip");
    let pip = machine.path().join("usr/lib/python3/dist-packages/pip");
    fs::create_dir_all(pip).unwrap();
    let (out, _) = build(machine.path(), &[]).unwrap();
    let script = fs::read_to_string(out.path().join("fs/opt/venv/bin/pip3")).unwrap();
    assert!(script.starts_with("#!/opt/venv/bin/python3\n"), "{script}");
}

#[test]
fn the_tree_has_what_programs_need_and_no_secret() {
    let machine = machine();
    let (out, binds) = build(machine.path(), &["/opt/tool"]).unwrap();
    let at = |path: &str| out.path().join("fs").join(path);
    for here in [
        "etc/ssl/certs/ca.pem",
        "etc/python3/rules",
        "etc/ld.so.cache",
        "usr",
        "lib",
        "opt/tool",
        "workspace",
    ] {
        assert!(at(here).exists(), "{here}");
    }
    for gone in [
        "etc/shadow",
        "etc/machine-id",
        "etc/ssl/private",
        "etc/ssl/certs/oops.pem",
        "etc/python3/token",
    ] {
        assert!(!at(gone).exists(), "{gone}");
    }
    assert!(
        !fs::read_to_string(at("etc/passwd"))
            .unwrap()
            .contains("alice")
    );
    assert_eq!(fs::read_link(at("bin")).unwrap(), Path::new("usr/bin"));
    assert_eq!(
        fs::read_link(at("etc/alternatives/editor")).unwrap(),
        Path::new("/usr/bin/vi")
    );
    assert_eq!(binds, ["/usr", "/lib", "/opt/tool"].map(PathBuf::from));
    assert_eq!(fs::metadata(at("tmp")).unwrap().mode() & 0o7777, 0o1777);
}

#[test]
fn places_with_secrets_cannot_be_shown() {
    let machine = machine();
    for bad in [
        "/",
        "/root",
        "/home/alice",
        "/etc/ssl",
        "opt/tool",
        "/opt/../etc",
        "/var/lib/x",
    ] {
        let result = build(machine.path(), &[bad]);
        assert!(
            matches!(result, Err(Error::InvalidReference { .. })),
            "{bad}"
        );
    }
    fs::set_permissions(
        machine.path().join("opt/tool"),
        fs::Permissions::from_mode(0o750),
    )
    .unwrap();
    assert!(build(machine.path(), &["/opt/tool"]).is_err());
}
