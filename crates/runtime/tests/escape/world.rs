//! What the cases stand on: a namespace that plays the host, one that plays the outside, an
//! image that holds the hostile program, and the backend.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use api::egress::policy::EgressPolicy;
use api::id::SandboxId;
use lifecycle::backend::{
    Backend, Event, Exit, Limits, LogQuery, Source, Spec, Volume, VolumeSource,
};
use runtime::image::Import;
use runtime::{Config, Embedded, cgroup};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// How long an attack may take. Bombs take seconds on a busy machine; nothing takes this long.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The ids of the sandboxes of this suite: not those of a server that may run here too.
pub(crate) const FIRST_ID: u32 = 0x6800_0000;
const ID_RANGES: u32 = 512;

pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
pub(crate) const HOST_INNER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
pub(crate) const FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
/// In the range of sandboxes' addresses, and nobody's; somebody outside claims to have it.
pub(crate) const UNASSIGNED: Ipv4Addr = Ipv4Addr::new(10, 88, 250, 250);
pub(crate) const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

pub(crate) const IMAGE: &str = "escape";
pub(crate) const TOKEN: &str = "token-4f6e6c79-for-the-owner";

/// How a case ended.
#[derive(Debug)]
pub(crate) enum Verdict {
    Held,
    /// Why it did not.
    Broken(String),
}

impl Verdict {
    pub(crate) fn of(holds: bool, why: impl FnOnce() -> String) -> Self {
        if holds {
            Self::Held
        } else {
            Self::Broken(why())
        }
    }

    /// The first that is broken.
    pub(crate) fn and(self, other: Self) -> Self {
        match self {
            Self::Held => other,
            broken @ Self::Broken(_) => broken,
        }
    }
}

/// How an attack ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) exit: Exit,
    pub(crate) output: String,
}

impl Outcome {
    /// Held when the program says so.
    pub(crate) fn verdict(&self) -> Verdict {
        let meaning = match self.exit.code {
            Some(0) => return Verdict::Held,
            Some(1) => "the attack succeeded",
            Some(2) => "the attack failed for another reason than the protection",
            _ => "the program did not end by itself",
        };
        Verdict::Broken(format!(
            "      {meaning} ({:?}):\n{}",
            self.exit, self.output
        ))
    }
}

/// What a sandbox of a case is made with.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) image: &'static str,
    /// Where the hostile program is.
    pub(crate) program: &'static str,
    pub(crate) limits: Limits,
    pub(crate) volumes: Vec<Volume>,
    pub(crate) network: EgressPolicy,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            image: IMAGE,
            program: "/hostile",
            limits: Limits::default(),
            volumes: Vec::new(),
            network: EgressPolicy::ALLOW_ALL,
        }
    }
}

pub(crate) struct World {
    pub(crate) backend: Embedded,
    pub(crate) temp: tempfile::TempDir,
    /// A file of the host that no sandbox may see.
    pub(crate) marker: PathBuf,
    /// A process of the host that no sandbox may touch.
    pub(crate) bystander: std::process::Child,
    host: OwnedFd,
    outside: OwnedFd,
    next: AtomicU32,
}

/// What this machine lacks to run the suite, and what provides it.
pub(crate) fn missing_need() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it needs root: sudo make test-isolation".to_owned());
    }
    if !execd().is_file() {
        let path = execd();
        return Some(format!(
            "there is no {}: cargo build -p execd",
            path.display()
        ));
    }
    for (program, package) in [("cc", "gcc libc6-dev"), ("ip", "iproute2")] {
        if Command::new(program).arg("-V").output().is_err() {
            return Some(format!("there is no {program}: apt-get install {package}"));
        }
    }
    None
}

fn execd() -> PathBuf {
    // target/debug/deps/escape-… → target/debug/execd
    let program = std::env::current_exe().expect("a program knows its path");
    program
        .parent()
        .and_then(Path::parent)
        .expect("it is in deps")
        .join("execd")
}

/// Moves the process into network and mount namespaces of its own, before it has threads, so
/// that the machine's network is not touched and every mount that appears here is ours.
#[expect(
    deprecated,
    reason = "both flags are safe for a process with one thread"
)]
pub(crate) fn leave_the_hosts_network() {
    rustix::thread::unshare(UnshareFlags::NEWNET | UnshareFlags::NEWNS)
        .expect("root can make namespaces");
    let private =
        rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).expect("root can make mounts private");
}

impl World {
    pub(crate) async fn open() -> Self {
        let temp = tempfile::tempdir().expect("a directory can be made");
        let host = namespace();
        let outside = make_namespace();
        wire(&host, &outside);
        let marker = PathBuf::from(format!("/tmp/escape-marker-{}", std::process::id()));
        fs::write(&marker, "of the host").expect("/tmp is writable");
        let bystander = Command::new("sleep")
            .arg("1000")
            .spawn()
            .expect("sleep can be started");
        let data = temp.path().join("data");
        let parent = cgroup::Config::new(&data).parent.display().to_string();
        let _ = crate::snapshot::OUR_CGROUP.set(parent);
        let backend = open_backend(&data).await;
        let world = Self {
            backend,
            marker,
            bystander,
            host,
            outside,
            next: AtomicU32::new(0),
            temp,
        };
        let rootfs = world.rootfs("rootfs");
        world
            .import(&rootfs, IMAGE)
            .await
            .expect("the image is well formed");
        world
    }

    /// A directory with the hostile program and the places every image has.
    pub(crate) fn rootfs(&self, name: &str) -> PathBuf {
        let root = self.temp.path().join(name);
        for dir in ["proc", "sys", "dev", "etc", "tmp", "var"] {
            fs::create_dir_all(root.join(dir)).expect("a directory can be made");
        }
        let mode = |path: &str, mode| {
            fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode))
                .expect("modes can be set");
        };
        mode("tmp", 0o1777);
        fs::write(root.join("etc/passwd"), "root:x:0:0::/:/hostile\n").expect("writable");
        for program in ["hostile", "setuid"] {
            fs::copy(self.hostile(), root.join(program)).expect("a file can be copied");
        }
        mode("hostile", 0o755);
        mode("setuid", 0o4755);
        root
    }

    /// The compiled program; made once.
    pub(crate) fn hostile(&self) -> &'static Path {
        static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
        PROGRAM.get_or_init(|| {
            let program = self.temp.path().join("hostile");
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/escape/hostile.c");
            let built = Command::new("cc")
                .args(["-static", "-O1", "-o"])
                .args([&program, &source])
                .output()
                .expect("cc runs");
            let text = String::from_utf8_lossy(&built.stderr);
            assert!(
                built.status.success(),
                "hostile.c does not compile:\n{text}"
            );
            program
        })
    }

    pub(crate) async fn import(&self, root: &Path, name: &str) -> Result<(), String> {
        let import = Import::Directory(root.to_owned());
        let result = self.backend.images().import(&import, Some(name)).await;
        result.map(drop).map_err(|error| error.to_string())
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.temp.path().join("data")
    }

    pub(crate) fn new_id(&self) -> SandboxId {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        format!("escape-{number}").parse().expect("a valid id")
    }

    pub(crate) fn spec(&self, id: &SandboxId, setup: &Setup, entrypoint: &[&str]) -> Spec {
        Spec {
            id: id.clone(),
            source: Source::Image {
                reference: setup.image.to_owned(),
                auth: None,
            },
            platform: None,
            entrypoint: Some(entrypoint.iter().map(|&word| word.to_owned()).collect()),
            env: BTreeMap::new(),
            limits: setup.limits.clone(),
            volumes: setup.volumes.clone(),
            network: setup.network.clone(),
            access_token: TOKEN.to_owned().into(),
            labels: BTreeMap::new(),
        }
    }

    /// Makes a sandbox that waits for ever.
    pub(crate) async fn victim(&self) -> SandboxId {
        let id = self.new_id();
        let mut spec = self.spec(&id, &Setup::default(), &[]);
        spec.entrypoint = None;
        self.backend
            .create(spec)
            .await
            .expect("a sandbox can be made");
        id
    }

    /// Runs an attack in a sandbox of its own, to its end.
    pub(crate) async fn attack(&self, setup: &Setup, words: &[&str]) -> Outcome {
        let id = self.new_id();
        let outcome = self.attack_as(&id, setup, words).await;
        self.delete(&id).await;
        outcome
    }

    /// As [`World::attack`]; the sandbox stays for the caller to look at and delete.
    pub(crate) async fn attack_as(&self, id: &SandboxId, setup: &Setup, words: &[&str]) -> Outcome {
        let mut events = self.backend.events();
        let entrypoint: Vec<&str> = [setup.program]
            .into_iter()
            .chain(words.iter().copied())
            .collect();
        let created = self.backend.create(self.spec(id, setup, &entrypoint)).await;
        if let Err(error) = created {
            return broken(format!("the sandbox was not made: {error:?}"));
        }
        let exit = tokio::time::timeout(DEADLINE, async {
            loop {
                match events.recv().await {
                    Ok(Event::Exited { id: ended, exit }) if ended == *id => return Some(exit),
                    Ok(_) => {}
                    Err(_) => return None,
                }
            }
        });
        let exit = exit.await.ok().flatten();
        let query = LogQuery {
            tail_lines: 100,
            since: None,
            max_bytes: 16 << 10,
        };
        let output = self
            .backend
            .logs(id, query)
            .await
            .map(|logs| logs.text)
            .unwrap_or_default();
        match exit {
            Some(exit) => Outcome { exit, output },
            None => broken(format!("it did not end within {DEADLINE:?}\n{output}")),
        }
    }

    pub(crate) async fn delete(&self, id: &SandboxId) {
        self.backend
            .delete(id, Duration::ZERO)
            .await
            .expect("a sandbox can be deleted");
    }

    /// PID 1 of a sandbox, as the host sees it.
    pub(crate) fn pid_of(&self, id: &SandboxId) -> u32 {
        let path = self.data_dir().join(format!("sandboxes/{id}/process.json"));
        let text = fs::read_to_string(path).expect("a running sandbox has a process");
        let process: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        u32::try_from(process["pid"].as_u64().expect("it has a pid")).expect("pids are small")
    }

    /// The egress gates of this world.
    pub(crate) fn gates(&self) -> Vec<rustix::process::Pid> {
        let ours = self.data_dir().display().to_string();
        let is_gate = |pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            line.contains("egress-gate") && line.contains(&ours)
        };
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
        pids.filter(is_gate)
            .filter_map(rustix::process::Pid::from_raw)
            .collect()
    }

    pub(crate) fn namespace_of(&self, id: &SandboxId) -> OwnedFd {
        let path = format!("/proc/{}/ns/net", self.pid_of(id));
        fs::File::open(path)
            .expect("a running sandbox has a network")
            .into()
    }

    pub(crate) fn host(&self) -> BorrowedFd<'_> {
        self.host.as_fd()
    }

    pub(crate) fn outside(&self) -> BorrowedFd<'_> {
        self.outside.as_fd()
    }

    /// Does `work` with a thread in a network namespace.
    pub(crate) fn inside<T: Send>(
        &self,
        namespace: BorrowedFd<'_>,
        work: impl FnOnce() -> T + Send,
    ) -> T {
        within(namespace, work)
    }

    pub(crate) fn datagrams(&self, namespace: BorrowedFd<'_>, address: Ipv4Addr) -> UdpSocket {
        let socket = self
            .inside(namespace, || UdpSocket::bind((address, 0)))
            .expect("free port");
        socket
            .set_read_timeout(Some(DEADLINE))
            .expect("a timeout can be set");
        socket
    }

    pub(crate) fn meeting_point(&self) -> TcpListener {
        self.inside(self.outside(), || TcpListener::bind((FAR, 0)))
            .expect("free port")
    }

    /// Deletes everything and tells what is still there that should not be.
    pub(crate) async fn close(mut self) -> Vec<String> {
        self.backend.settled().await;
        let data = self.data_dir();
        let mut left: Vec<String> = ["sandboxes", "trash", "staging", "volumes"]
            .iter()
            .flat_map(|dir| fs::read_dir(data.join(dir)).into_iter().flatten().flatten())
            .map(|entry| entry.path().display().to_string())
            .collect();
        if self.bystander.try_wait().ok().flatten().is_some() {
            left.push("the bystander was killed".to_owned());
        }
        let _ = self.bystander.kill();
        let _ = self.bystander.wait();
        let _ = fs::remove_file(&self.marker);
        drop(self.backend);
        left
    }
}

/// Ends every process that stands in a cgroup of this suite; for when nothing else can be done.
pub(crate) fn kill_sandboxes() {
    let Some(parent) = crate::snapshot::OUR_CGROUP.get() else {
        return;
    };
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        if let Some(pid) = rustix::process::Pid::from_raw(pid)
            && groups.contains(parent.as_str())
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

fn broken(why: String) -> Outcome {
    let exit = Exit {
        code: None,
        signal: None,
        oom_killed: false,
        at: None,
    };
    Outcome { exit, output: why }
}

async fn open_backend(data_dir: &Path) -> Embedded {
    fs::create_dir_all(data_dir).expect("a directory can be made");
    let mut config = Config::new(data_dir).expect("the program knows its path");
    config.execd = execd();
    config.network.first_id = FIRST_ID;
    config.network.id_ranges = ID_RANGES;
    config.network.claims_dir = data_dir.join("claims");
    config.network.ready_outside = 4;
    config.network.ready_none = 1;
    config.network.nameservers = Some(vec![FAR]);
    Embedded::open(config).await.expect("the backend opens")
}

/// A host path as a volume.
pub(crate) fn host_volume(path: &Path, sub_path: Option<&str>, read_only: bool) -> Volume {
    let text = path.to_str().expect("a temporary path is text").to_owned();
    Volume {
        name: "v".to_owned(),
        source: VolumeSource::HostPath {
            path: text.clone(),
            allowed_root: text,
        },
        mount_path: "/volume".to_owned(),
        read_only,
        sub_path: sub_path.map(str::to_owned),
    }
}

fn within<T: Send>(namespace: BorrowedFd<'_>, work: impl FnOnce() -> T + Send) -> T {
    // A thread of its own, because a thread of the runtime must not change namespaces.
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))
                .expect("root can enter a namespace");
            work()
        });
        thread.join().expect("the work does not panic")
    })
}

fn namespace() -> OwnedFd {
    fs::File::open("/proc/thread-self/ns/net")
        .expect("every thread has a network")
        .into()
}

#[expect(
    deprecated,
    reason = "a network namespace is safe to change for one thread"
)]
fn make_namespace() -> OwnedFd {
    std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            rustix::thread::unshare(UnshareFlags::NEWNET).expect("root can make namespaces");
            namespace()
        });
        made.join().expect("making a namespace does not panic")
    })
}

fn wire(host: &OwnedFd, outside: &OwnedFd) {
    let path = format!("/proc/{}/fd/{}", std::process::id(), outside.as_raw_fd());
    within(host.as_fd(), || {
        ip("link set lo up");
        ip(&format!("addr add {HOST_INNER}/32 dev lo"));
        ip(&format!(
            "link add up0 type veth peer name wan0 netns {path}"
        ));
        ip(&format!("addr add {HOST}/24 dev up0"));
        ip("link set up0 up");
    });
    within(outside.as_fd(), || {
        ip("link set lo up");
        ip(&format!("addr add {FAR}/32 dev lo"));
        ip(&format!("addr add {METADATA}/32 dev lo"));
        ip(&format!("addr add {UNASSIGNED}/32 dev lo"));
        ip(&format!("addr add {OUTSIDE}/24 dev wan0"));
        ip("link set wan0 up");
    });
    within(host.as_fd(), || {
        ip(&format!("route add default via {OUTSIDE}"));
    });
}

pub(crate) fn ip(arguments: &str) {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .expect("ip runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {text}");
}
