//! What a sandbox looks like from inside. Each protection here has a check that turns red when
//! the protection is taken away.

use std::path::Path;

use lifecycle::backend::{Backend, Error, Source};
use runtime::Embedded;

use crate::client::{ping, run};
use crate::stage::{Stage, create, delete, image, processes_of, settled, spec};

/// A backend with one sandbox named `one`.
async fn one(stage: &Stage) -> Embedded {
    let backend = stage.open().await;
    create(&backend, spec("one"))
        .await
        .expect("a sandbox can be made");
    backend
}

#[track_caller]
fn check(output: &str, expected: &str) {
    assert_eq!(output.trim_end(), expected);
}

pub(crate) async fn root_in_a_sandbox_has_only_the_default_capabilities(stage: Stage) {
    let backend = one(&stage).await;
    let status = run(&backend, "one", "cat /proc/self/status").await;
    for line in [
        "CapInh:\t0000000000000000",
        "CapPrm:\t00000000800405fb",
        "CapEff:\t00000000800405fb",
        "CapBnd:\t00000000800405fb",
        "CapAmb:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
    ] {
        assert!(
            status.lines().any(|found| found == line),
            "{line} is not in {status}"
        );
    }
    check(&run(&backend, "one", "ulimit -c").await, "0");
    delete(&backend, "one").await;
}

pub(crate) async fn only_execds_own_descriptors_are_open(stage: Stage) {
    let backend = one(&stage).await;
    // What execd opens itself has no path on the host; what it was given is the log.
    let first = stage.first_process("one");
    let mut has_log = false;
    for entry in std::fs::read_dir(format!("/proc/{first}/fd"))
        .unwrap()
        .flatten()
    {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        let target = target.display().to_string();
        let is_log = target.ends_with("/sandboxes/one/log");
        has_log |= is_log;
        let kinds = [
            "socket:",
            "pipe:",
            "anon_inode:",
            "/dev/null",
            "/dev/urandom",
        ];
        assert!(
            is_log || kinds.iter().any(|kind| target.starts_with(kind)),
            "execd holds {target}"
        );
    }
    assert!(has_log);
    delete(&backend, "one").await;
}

pub(crate) async fn the_kernels_filesystems_are_masked_and_read_only(stage: Stage) {
    let backend = one(&stage).await;
    let sizes = "cat /proc/timer_list /proc/keys /proc/kallsyms 2>/dev/null | wc -c; \
                 ls -A /proc/bus /proc/irq /proc/fs /sys/firmware 2>/dev/null | grep -v : | wc -w";
    check(&run(&backend, "one", sizes).await, "0\n0");
    for path in [
        "/proc/sys/kernel/hostname",
        "/proc/sys/vm/drop_caches",
        "/sys/x",
        "/dev/x",
    ] {
        let output = run(&backend, "one", &format!("echo 1 > {path}")).await;
        assert!(output.contains("Read-only file system"), "{path}: {output}");
    }
    check(
        &run(&backend, "one", "ls /sys/class/net | sort | tr '\\n' ' '").await,
        "eth0 lo",
    );
    delete(&backend, "one").await;
}

pub(crate) async fn nothing_can_be_mounted_and_no_namespace_made(stage: Stage) {
    let backend = one(&stage).await;
    let script = r#"python3 - <<'END'
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, *arguments):
    ctypes.set_errno(0)
    libc.syscall(*arguments)
    print(name, os.strerror(ctypes.get_errno()))
attempt("mount", 165, b"none", b"/tmp", b"tmpfs", 0, None)
attempt("umount", 166, b"/proc/keys", 2)
attempt("unshare", 272, 0x10000000)
attempt("keyctl", 250, 0, -3, 0)
attempt("bpf", 321, 0, 0, 0)
attempt("io_uring", 425, 1, 0)
attempt("userfaultfd", 323, 0)
attempt("perf", 298, 0, 0, 0, 0, 0)
attempt("clone3", 435, 0, 0)
END"#;
    let refused = "Operation not permitted";
    let missing = "Function not implemented";
    let expected = [
        ("mount", refused),
        ("umount", refused),
        ("unshare", refused),
        ("keyctl", refused),
        ("bpf", refused),
        ("io_uring", missing),
        ("userfaultfd", refused),
        ("perf", refused),
        ("clone3", missing),
    ];
    let expected: Vec<String> = expected.map(|(call, why)| format!("{call} {why}")).into();
    check(&run(&backend, "one", script).await, &expected.join("\n"));
    // Even without the filter: its mount and uts namespaces belong to the host's root.
    let owners = owners_of_namespaces(stage.first_process("one"));
    assert_eq!(
        owners,
        ["mnt", "uts", "ipc", "pid", "cgroup"].map(|n| format!("{n} host"))
    );
    delete(&backend, "one").await;
}

/// For each namespace of a sandbox, whether it belongs to the host's own user namespace: the
/// ioctl NS_GET_USERNS of ioctl_nsfs(2), asked by a program that needs no unsafe code for it.
fn owners_of_namespaces(pid: i32) -> Vec<String> {
    let script = format!(
        "import fcntl, os\n\
         host = os.stat('/proc/self/ns/user').st_ino\n\
         for name in ['mnt', 'uts', 'ipc', 'pid', 'cgroup']:\n    \
             space = os.open('/proc/{pid}/ns/' + name, os.O_RDONLY)\n    \
             owner = os.fstat(fcntl.ioctl(space, 0xb701)).st_ino\n    \
             print(name, 'host' if owner == host else 'sandbox')"
    );
    let output = std::process::Command::new("python3")
        .args(["-c", &script])
        .output();
    let output = output.expect("python3 is part of the image these tests use, so it is here");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect()
}

pub(crate) async fn the_devices_are_the_harmless_ones(stage: Stage) {
    let backend = one(&stage).await;
    let names = run(&backend, "one", "ls /dev | sort | tr '\\n' ' '").await;
    check(
        &names,
        "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero",
    );
    check(
        &run(
            &backend,
            "one",
            "head -c 4 /dev/urandom | wc -c; echo x > /dev/null",
        )
        .await,
        "4",
    );
    let made = run(&backend, "one", "mknod /tmp/sda b 8 0; ls /tmp").await;
    assert!(made.contains("not permitted"), "{made}");
    check(
        &run(&backend, "one", "echo x > /dev/shm/x && cat /dev/shm/x").await,
        "x",
    );
    delete(&backend, "one").await;
}

pub(crate) async fn a_terminal_can_be_opened(stage: Stage) {
    let backend = one(&stage).await;
    let script = "python3 -c 'import os; a, b = os.openpty(); print(os.ttyname(b))'";
    check(&run(&backend, "one", script).await, "/dev/pts/0");
    delete(&backend, "one").await;
}

pub(crate) async fn the_execd_it_runs_from_cannot_be_written(stage: Stage) {
    let backend = one(&stage).await;
    let output = run(&backend, "one", "echo x > /proc/1/exe; echo done").await;
    let why = ["not permitted", "busy", "denied"];
    assert!(why.iter().any(|why| output.contains(why)), "{output}");
    // From the host, with every privilege, it is the seal that holds.
    let first = stage.first_process("one");
    let file = std::fs::File::options()
        .write(true)
        .open(format!("/proc/{first}/exe"));
    if let Ok(mut file) = file {
        std::io::Write::write_all(&mut file, b"x").unwrap_err();
    }
    assert!(ping(&backend, "one").await);
    delete(&backend, "one").await;
}

pub(crate) async fn each_sandbox_has_its_own_hostname_processes_and_ids(stage: Stage) {
    let backend = one(&stage).await;
    create(&backend, spec("two")).await.unwrap();
    check(
        &run(&backend, "one", "hostname; getent hosts one | wc -l").await,
        "one\n1",
    );
    check(&run(&backend, "two", "cat /etc/hostname").await, "two");
    let processes = run(&backend, "one", "cat /proc/[0-9]*/comm | grep -c sleep").await;
    check(&processes, "1");
    let map = "cat /proc/self/uid_map";
    assert_ne!(
        run(&backend, "one", map).await,
        run(&backend, "two", map).await
    );
    let file = "touch /tmp/f && stat -c '%u %g' /tmp/f";
    check(&run(&backend, "one", file).await, "0 0");
    delete(&backend, "one").await;
    delete(&backend, "two").await;
}

/// An image with nothing in it but a static program, which is execd itself: with `--help` it
/// prints and ends.
fn bare(root: &Path) {
    std::fs::copy(crate::stage::execd(), root.join("program")).unwrap();
}

pub(crate) async fn an_image_without_directories_gets_them(stage: Stage) {
    let backend = stage.open().await;
    stage.image(&backend, "bare", bare).await;
    let mut spec = spec("bare");
    spec.source = image("bare");
    spec.entrypoint = None;
    create(&backend, spec).await.unwrap();
    assert!(ping(&backend, "bare").await);
    delete(&backend, "bare").await;
}

/// As `docker save` writes it: one layer with a program and a user, and a configuration.
fn image_with_user(file: &Path, root: &Path) {
    use sha2::Digest;
    std::fs::create_dir_all(root.join("etc")).unwrap();
    bare(root);
    std::fs::write(
        root.join("etc/passwd"),
        "worker:x:1234:5678::/home:/bin/sh\n",
    )
    .unwrap();
    std::fs::write(root.join("etc/group"), "crew:x:77:\n").unwrap();
    let mut layer = tar::Builder::new(Vec::new());
    layer.append_dir_all(".", root).unwrap();
    let layer = layer.into_inner().unwrap();
    let digest = hex::encode(sha2::Sha256::digest(&layer));
    let config = serde_json::json!({
        "architecture": match std::env::consts::ARCH { "aarch64" => "arm64", _ => "amd64" },
        "os": "linux",
        "config": {
            "User": "worker:crew", "WorkingDir": "/made/for/it",
            // It listens, so that it stays: the sandbox ends with it.
            "Env": ["FROM_IMAGE=yes"], "Entrypoint": ["/program"], "Cmd": ["--port", "44773"],
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] },
    });
    let manifest = serde_json::json!([
        { "Config": "config.json", "RepoTags": [], "Layers": ["layer.tar"] }
    ]);
    let mut archive = tar::Builder::new(std::fs::File::create(file).unwrap());
    let texts = [config.to_string(), manifest.to_string()];
    let files = [
        ("config.json", texts[0].as_bytes()),
        ("manifest.json", texts[1].as_bytes()),
        ("layer.tar", layer.as_slice()),
    ];
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, bytes).unwrap();
    }
    archive.finish().unwrap();
}

pub(crate) async fn an_images_user_directory_and_command_are_used(stage: Stage) {
    let backend = stage.open().await;
    let (file, root) = (
        stage.directory.path().join("image.tar"),
        stage.directory.path().join("root"),
    );
    image_with_user(&file, &root);
    let import = runtime::image::Import::DockerArchive(file);
    let images = backend.images();
    images.import(&import, Some("with-user")).await.unwrap();
    let mut spec = spec("worker");
    spec.source = image("with-user");
    spec.entrypoint = None;
    let made = create(&backend, spec).await.unwrap();
    assert_eq!(made.entrypoint, ["/program", "--port", "44773"]);
    assert!(ping(&backend, "worker").await);
    let pid = stage.first_process("worker");
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
    let first_id: u32 = read("uid_map")
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    let status = read("status");
    let ids = |key: &str| -> Vec<u32> {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(key))
            .unwrap();
        line.split_whitespace()
            .map(|id| id.parse::<u32>().unwrap() - first_id)
            .collect()
    };
    assert_eq!(ids("Uid:"), [1234; 4]);
    assert_eq!(ids("Gid:"), [77; 4]);
    let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
    assert_eq!(cwd, Path::new("/made/for/it"));
    assert!(
        read("environ")
            .split('\0')
            .any(|pair| pair == "FROM_IMAGE=yes")
    );
    delete(&backend, "worker").await;
}

pub(crate) async fn an_entrypoint_that_is_not_there_is_a_typed_error(stage: Stage) {
    let backend = stage.open().await;
    stage.image(&backend, "bare", bare).await;
    for entrypoint in ["/bin/sh", "sh", "/"] {
        let mut spec = spec("bare");
        spec.source = image("bare");
        spec.entrypoint = Some(vec![entrypoint.to_owned()]);
        let error = create(&backend, spec).await.unwrap_err();
        let is_right = matches!(&error, Error::Start { message } if message.contains(entrypoint));
        assert!(is_right, "{error}");
    }
    settled(&backend).await;
    assert_eq!(stage.leftovers(), Vec::<String>::new());
}

pub(crate) async fn a_proc_that_is_a_link_is_a_typed_error(stage: Stage) {
    let backend = stage.open().await;
    stage
        .image(&backend, "linked", |root| {
            bare(root);
            std::fs::create_dir(root.join("elsewhere")).unwrap();
            std::os::unix::fs::symlink("elsewhere", root.join("proc")).unwrap();
        })
        .await;
    let mut spec = spec("linked");
    spec.source = image("linked");
    spec.entrypoint = None;
    let error = create(&backend, spec).await.unwrap_err();
    assert!(
        matches!(&error, Error::Start { message } if message.contains("/proc")),
        "{error}"
    );
}

pub(crate) async fn many_layers_are_stacked_in_order(stage: Stage) {
    let backend = one(&stage).await;
    // Each snapshot is a layer more; later layers win.
    const LAYERS: usize = 40;
    let mut source = image("host");
    delete(&backend, "one").await;
    for layer in 0..LAYERS {
        let name = format!("layer-{layer}");
        let mut next = spec(&name);
        next.source = source;
        create(&backend, next).await.unwrap();
        run(
            &backend,
            &name,
            &format!("echo {layer} > /top; touch /of-{layer}"),
        )
        .await;
        let snapshot = name.parse().unwrap();
        backend
            .snapshot(&name.parse().unwrap(), &snapshot)
            .await
            .unwrap();
        delete(&backend, &name).await;
        source = Source::Snapshot(snapshot);
    }
    let mut last = spec("last");
    last.source = source;
    create(&backend, last).await.unwrap();
    let output = run(&backend, "last", "cat /top; ls -d /of-* | wc -l").await;
    check(&output, &format!("{}\n{LAYERS}", LAYERS - 1));
    delete(&backend, "last").await;
}

/// A few fit; every other one is told so, in a type of its own, and takes nothing with it.
pub(crate) async fn of_ten_thousand_at_once_those_that_fit_are_made(stage: Stage) {
    const AT_ONCE: usize = 10_000;
    const FIT: u32 = 4;
    let mut config = crate::stage::config(&stage.data_dir());
    config.network.id_ranges = FIT;
    let backend = Embedded::open(config).await.unwrap();
    let mut creations = tokio::task::JoinSet::new();
    for number in 0..AT_ONCE {
        let backend = backend.clone();
        creations.spawn(async move {
            let name = format!("many-{number}");
            (backend.create(spec(&name)).await.map(drop), name)
        });
    }
    let mut made = Vec::new();
    while let Some(outcome) = creations.join_next().await {
        match outcome.unwrap() {
            (Ok(()), name) => made.push(name),
            (Err(Error::Exhausted { what, message }), _) => {
                assert_eq!(what, "network slots", "{message}");
            }
            (Err(other), name) => panic!("{name}: {other:?}"),
        }
    }
    assert_eq!(made.len(), FIT as usize);
    for name in &made {
        assert!(ping(&backend, name).await, "{name} was disturbed");
        delete(&backend, name).await;
    }
    settled(&backend).await;
    assert_eq!(stage.leftovers(), Vec::<String>::new());
    assert!(backend.list().await.unwrap().is_empty());
}

pub(crate) async fn a_failed_creation_leaves_nothing(stage: Stage) {
    let backend = stage.open().await;
    let mut broken = spec("broken");
    broken.entrypoint = Some(vec!["/no/such/program".to_owned()]);
    // Often, because the spawner notes the end of each process while its directory is removed.
    for _ in 0..100 {
        create(&backend, broken.clone()).await.unwrap_err();
    }
    settled(&backend).await;
    assert_eq!(stage.leftovers(), Vec::<String>::new());
    assert_eq!(processes_of("broken"), Vec::<i32>::new());
    assert!(backend.list().await.unwrap().is_empty());
}
