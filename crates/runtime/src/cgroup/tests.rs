//! Groups on the machine's real hierarchies, and the v2 files on a plain directory where the
//! machine has only v1.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lifecycle::backend::Limits;

use super::layout::{Controller, Layout};
use super::*;

/// How long something that must happen may take; only a failure needs this long.
const DEADLINE: Duration = Duration::from_secs(90);

/// A tree of its own for one test; `None` where there is no root to make one.
fn tree(ready: usize) -> Option<Tree> {
    if !rustix::process::geteuid().is_root() {
        assert!(
            std::env::var_os("CI").is_none(),
            "needs root: sudo make test"
        );
        eprintln!("SKIPPED, needs root: sudo make test");
        return None;
    }
    let mut random = [0_u8; 4];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).unwrap();
    let parent = format!("osbtest-{:08x}", u32::from_ne_bytes(random)).into();
    let limits = Limits::default();
    Some(
        Tree::open(Config {
            parent,
            ready,
            limits,
        })
        .unwrap(),
    )
}

fn shell(group: &Group, script: &str) -> Child {
    // Waits for a line before it begins, so that it is in the group when it does.
    let mut child = Command::new("/bin/sh")
        .args(["-c", &format!("read begin; {script}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    group
        .attach(rustix::process::Pid::from_child(&child))
        .unwrap();
    child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    child
}

async fn end(group: &Group, child: &mut Child) {
    group.kill().await.unwrap();
    child.wait().unwrap();
    assert_eq!(group.processes().unwrap(), []);
    group.remove().unwrap();
    assert!(!group.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_holds_its_limits_and_reports_use() {
    let Some(tree) = tree(0) else { return };
    let group = tree.take().unwrap();
    let limits = Limits {
        cpu_millis: Some(1_500),
        memory_bytes: Some(64 << 20),
        pids: Some(50),
        ..Limits::default()
    };
    group.limit(&limits).unwrap();
    assert_eq!(group.usage().memory_limit_bytes, Some(64 << 20));
    if let Layout::V1 { .. } = &group.tree.layout {
        let read = |controller, name: &str| {
            let file = group.dir(controller).unwrap().join(name);
            std::fs::read_to_string(file).unwrap().trim().to_owned()
        };
        let sockets = read(Controller::Memory, "memory.kmem.tcp.limit_in_bytes");
        assert_eq!(sockets, (64 << 20).to_string());
        // As much as the quota of one period.
        assert_eq!(read(Controller::Cpu, "cpu.cfs_quota_us"), "150000");
        assert_eq!(read(Controller::Cpu, "cpu.cfs_burst_us"), "150000");
    }
    // A lower quota than the burst of the last one is no obstacle.
    for millis in [100, 2_000] {
        let limits = Limits {
            cpu_millis: Some(millis),
            ..Limits::default()
        };
        group.limit(&limits).unwrap();
    }
    // Growing and shrinking both work, though the kernel wants them in another order.
    for bytes in [128 << 20, 32 << 20] {
        group
            .limit(&Limits {
                memory_bytes: Some(bytes),
                ..Limits::default()
            })
            .unwrap();
        assert_eq!(group.usage().memory_limit_bytes, Some(bytes));
    }
    let mut child = shell(&group, "echo ready; read more");
    let mut line = [0; 6];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut line)
        .unwrap();
    let usage = group.usage();
    assert_eq!(usage.pids, 1);
    assert!(
        usage.memory_bytes > 0 && usage.cpu > Duration::ZERO,
        "{usage:?}"
    );
    end(&group, &mut child).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_for_memory_is_seen_and_counted() {
    let Some(tree) = tree(0) else { return };
    let group = tree.take().unwrap();
    group
        .limit(&Limits {
            memory_bytes: Some(16 << 20),
            ..Limits::default()
        })
        .unwrap();
    let mut watch = group.watch_oom().unwrap();
    assert_eq!(group.oom_kills(), 0);
    // One endless line, kept in memory; the shell lives on.
    let mut child = shell(&group, "tail /dev/zero; echo alive; read more");
    let killed = tokio::time::timeout(DEADLINE, watch.next()).await.unwrap();
    assert_eq!(killed, Some(1));
    assert_eq!(group.oom_kills(), 1);
    let mut line = [0; 6];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut line)
        .unwrap();
    assert_eq!(&line, b"alive\n");
    end(&group, &mut child).await;
    assert_eq!(
        tokio::time::timeout(DEADLINE, watch.next()).await.unwrap(),
        None
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_bomb_is_bounded_and_ends() {
    let Some(tree) = tree(0) else { return };
    let group = tree.take().unwrap();
    group
        .limit(&Limits {
            pids: Some(32),
            ..Limits::default()
        })
        .unwrap();
    let bomb = "sh -c 'bomb() { bomb | bomb & }; bomb' & echo lit; read more";
    let mut child = shell(&group, bomb);
    let mut line = [0; 4];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut line)
        .unwrap();
    assert!(group.usage().pids <= 32);
    end(&group, &mut child).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_group_stands_still_and_can_be_killed() {
    let Some(tree) = tree(0) else { return };
    let group = tree.take().unwrap();
    let mut child = shell(&group, "cat");
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut echo = |expected: &[u8]| {
        let mut answer = vec![0; expected.len()];
        stdout.read_exact(&mut answer).unwrap();
        assert_eq!(answer, expected);
    };
    stdin.write_all(b"one").unwrap();
    echo(b"one");
    assert!(!group.is_frozen().unwrap());
    group.freeze().await.unwrap();
    group.freeze().await.unwrap();
    assert!(group.is_frozen().unwrap());
    stdin.write_all(b"two").unwrap();
    // Every process has stopped, so none has taken the bytes out of the pipe.
    assert_eq!(rustix::io::ioctl_fionread(&stdin).unwrap(), 3);
    group.thaw().unwrap();
    echo(b"two");
    group.freeze().await.unwrap();
    end(&group, &mut child).await;
}

#[test]
fn two_directories_of_one_name_have_groups_of_their_own() {
    let place = tempfile::tempdir().unwrap();
    let (data, other) = (place.path().join("data"), place.path().join("other"));
    std::fs::create_dir(&data).unwrap();
    let first = Config::new(&data).parent;
    assert_eq!(Config::new(&data).parent, first, "the same after a restart");
    // Both are there at once, as on two mounts: a new one could get the number of a removed one.
    std::fs::rename(&data, &other).unwrap();
    std::fs::create_dir(&data).unwrap();
    assert_ne!(Config::new(&data).parent, first);
}

#[test]
fn a_thread_lets_itself_in() {
    let Some(tree) = tree(0) else { return };
    let group = tree.take().unwrap();
    let name = group.name().to_owned();
    match group.entry().unwrap() {
        Entry::CloneInto(_) => {}
        Entry::WriteZero(files) => std::thread::spawn(move || {
            for file in &files {
                assert_eq!(rustix::io::write(file, b"0"), Ok(1));
            }
            let cgroups = std::fs::read_to_string("/proc/thread-self/cgroup").unwrap();
            let inside = cgroups.lines().filter(|line| line.ends_with(&name)).count();
            assert_eq!(inside, files.len(), "{cgroups}");
        })
        .join()
        .unwrap(),
    }
    group.remove().unwrap();
}

#[test]
fn groups_are_found_again_and_ready_ones_are_not_strays() {
    let Some(tree) = tree(4) else { return };
    let group = tree.take().unwrap();
    assert_eq!(tree.list().unwrap(), [group.name()]);
    assert_eq!(tree.find(group.name()).unwrap().name(), group.name());
    for absent in ["s000000000000", "", "..", "a/b"] {
        assert!(
            matches!(tree.find(absent), Err(Error::NotFound(_))),
            "{absent}"
        );
    }
    group.remove().unwrap();
    group.remove().unwrap();
    assert!(tree.list().unwrap().is_empty());
}

#[test]
fn dropping_the_tree_leaves_nothing() {
    let Some(tree) = tree(4) else { return };
    let group = tree.take().unwrap();
    let parents: Vec<_> = group
        .tree
        .dirs(group.name())
        .iter()
        .map(|d| d.parent().unwrap().to_owned())
        .collect();
    group.remove().unwrap();
    drop(group);
    drop(tree);
    for parent in parents {
        assert!(!parent.exists(), "{}", parent.display());
    }
}

#[test]
fn limits_without_a_controller_are_refused() {
    let temp = tempfile::tempdir().unwrap();
    let layout = Layout::V1 {
        mounts: vec![(Controller::Cpu, temp.path().to_owned())],
    };
    let tree = Tree::open_at(
        Config {
            parent: "p".into(),
            ready: 0,
            limits: Limits::default(),
        },
        layout,
    )
    .unwrap();
    let group = tree.take().unwrap();
    let ask = |limits: Limits| group.limit(&limits).unwrap_err().to_string();
    let memory = ask(Limits {
        memory_bytes: Some(1 << 30),
        ..Limits::default()
    });
    assert!(memory.contains("cannot limit memory"), "{memory}");
    let pids = ask(Limits {
        pids: Some(9),
        ..Limits::default()
    });
    assert!(pids.contains("cannot limit processes"), "{pids}");
    assert!(matches!(group.thaw(), Err(Error::Unsupported("freezing"))));
    let capabilities = tree.capabilities();
    assert!(capabilities.cpu && !capabilities.memory && !capabilities.freezer);
}

#[test]
fn v2_limits_are_written_as_the_kernel_reads_them() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path();
    let file = |path: &Path, text: &str| std::fs::write(path, text).unwrap();
    std::fs::create_dir(root.join("p")).unwrap();
    file(&root.join("cgroup.subtree_control"), "");
    file(&root.join("p/cgroup.subtree_control"), "");
    file(&root.join("p/memory.swap.max"), "max");
    let layout = Layout::V2 {
        mount: root.to_owned(),
        controllers: vec![Controller::Cpu, Controller::Memory, Controller::Pids],
    };
    let tree = Tree::open_at(
        Config {
            parent: "p".into(),
            ready: 0,
            limits: Limits::default(),
        },
        layout,
    )
    .unwrap();
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    assert_eq!(read("p/cgroup.subtree_control"), "+cpu +memory +pids");
    let group = tree.take().unwrap();
    let dir = root.join("p").join(group.name());
    for name in [
        "cpu.max",
        "cpu.max.burst",
        "memory.max",
        "memory.swap.max",
        "pids.max",
        "cgroup.freeze",
    ] {
        file(&dir.join(name), "");
    }
    let limits = Limits {
        cpu_millis: Some(250),
        memory_bytes: Some(1 << 20),
        pids: Some(7),
        ..Limits::default()
    };
    group.limit(&limits).unwrap();
    let got = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    assert_eq!(
        [
            got("cpu.max"),
            got("cpu.max.burst"),
            got("memory.max"),
            got("memory.swap.max"),
            got("pids.max")
        ],
        ["25000 100000", "25000", "1048576", "0", "7"]
    );
    file(&dir.join("cgroup.events"), "populated 1\nfrozen 1\n");
    group.freeze_now().unwrap();
    assert!(group.is_frozen().unwrap());
    group.thaw().unwrap();
    assert!(!group.is_frozen().unwrap());
    file(
        &dir.join("memory.events"),
        "low 0\noom 3\noom_kill 2\noom_group_kill 0\n",
    );
    assert_eq!(group.oom_kills(), 2);
}

#[test]
fn groups_are_made_with_the_defaults_and_written_only_what_differs() {
    let Some(_) = tree(0) else { return };
    let mut random = [0_u8; 4];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).unwrap();
    let limits = Limits {
        memory_bytes: Some(96 << 20),
        pids: Some(40),
        ..Limits::default()
    };
    let config = Config {
        parent: format!("osbtest-{:08x}", u32::from_ne_bytes(random)).into(),
        ready: 1,
        limits: limits.clone(),
    };
    let tree = Tree::open(config).unwrap();
    assert_eq!(tree.defaults(), &limits);
    let group = tree.take().unwrap();
    assert_eq!(group.usage().memory_limit_bytes, Some(96 << 20));
    let pids = group.dir(Controller::Pids).unwrap().join("pids.max");
    let read = || std::fs::read_to_string(&pids).unwrap().trim().to_owned();
    assert_eq!(read(), "40");
    // Whoever wrote it meanwhile would be overwritten only by something new.
    std::fs::write(&pids, "41").unwrap();
    group.limit_new(&limits).unwrap();
    assert_eq!(read(), "41");
    let more = Limits {
        pids: Some(60),
        ..limits
    };
    group.limit_new(&more).unwrap();
    assert_eq!(read(), "60");
    group.remove().unwrap();
}
