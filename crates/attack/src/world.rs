//! What the cases stand on: an image that holds the hostile program, the backend, and who looks on from outside.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use api::egress::policy::EgressPolicy;
use api::id::SandboxId;
use lifecycle::backend::{
    Backend, Event, Exit, Limits, LogQuery, Source, Spec, Volume, VolumeSource,
};
use runtime::image::Import;
use runtime::{Config, Embedded, cgroup};

use crate::Options;
use crate::case::Verdict;
use crate::played::{FAR, make_namespace, namespace, wire, within};

/// How long an attack may take. Bombs take seconds on a busy machine; nothing takes this long.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The ids of the sandboxes of this suite: not those of a server that may run here too.
pub(crate) const FIRST_ID: u32 = 0x6800_0000;
const ID_RANGES: u32 = 512;
/// How many ids they have in all. The range behind them is for files in directories of the host.
pub(crate) const IDS: u32 = ID_RANGES << 16;

/// Begins the names of the links and of the table of packet filters that the cases make.
pub(crate) const PREFIX: &str = "oattack";

/// The compiled `hostile/hostile.c`.
const HOSTILE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/hostile"));

pub(crate) const IMAGE: &str = "escape";
/// The image that shows this machine's programs.
pub(crate) const HOST_IMAGE: &str = "host";
/// What stands in the file of the host that no sandbox may see.
pub(crate) const MARKER_TEXT: &str = "of the host";
/// A link in the image that leads to that file.
pub(crate) const LINK_OUT: &str = "leads-out";
pub(crate) const TOKEN: &str = "token-4f6e6c79-for-the-owner";

/// How an attack ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) exit: Exit,
    pub(crate) output: String,
}

impl Outcome {
    /// Held when the program says so.
    pub(crate) fn verdict(&self) -> Verdict {
        let told = |meaning: &str| format!("{meaning} ({:?}):\n{}", self.exit, self.output);
        match self.exit.code {
            Some(0) => Verdict::Held,
            Some(1) => Verdict::GotThrough(told("the attack succeeded")),
            Some(2) => Verdict::Unclear(told("it failed for another reason than the protection")),
            _ => Verdict::Unclear(told("the program did not end by itself")),
        }
    }
}

/// What a sandbox of a case is made with.
#[derive(Clone)]
pub(crate) struct Setup {
    /// Of the sandbox, where somebody else must know it.
    pub(crate) id: Option<SandboxId>,
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
            id: None,
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
    /// The control group that all of its sandboxes are in.
    cgroup: String,
    next: AtomicU32,
}

/// What this machine lacks to run the cases, and what provides it.
pub(crate) fn missing_need(options: &Options) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it needs root, as the embedded runtime does: use sudo".to_owned());
    }
    if !options.execd.is_file() {
        let path = options.execd.display();
        return Some(format!("there is no {path}: install execd beside osb"));
    }
    if !starts("ip") {
        return Some(
            "there is no ip, by which the networks of the cases are made: install iproute2"
                .to_owned(),
        );
    }
    None
}

/// Whether this machine has a program.
pub(crate) fn starts(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
        || Command::new(program).arg("-V").output().is_ok()
}

impl World {
    pub(crate) async fn open(options: &Options) -> Result<Self, String> {
        let problem = |doing: &str, error: &dyn std::fmt::Display| format!("{doing}: {error}");
        let temp = tempfile::Builder::new()
            .prefix("attack-")
            .tempdir_in(&options.directory)
            .map_err(|error| problem("making a directory", &error))?;
        let host = namespace();
        let outside = make_namespace();
        wire(&host, &outside);
        let marker = PathBuf::from(format!("/tmp/escape-marker-{}", std::process::id()));
        fs::write(&marker, MARKER_TEXT).map_err(|error| problem("writing to /tmp", &error))?;
        let bystander = Command::new("sleep")
            .arg("infinity")
            .spawn()
            .map_err(|error| problem("starting sleep", &error))?;
        let data = temp.path().join("data");
        let cgroup = cgroup::Config::new(&data).parent.display().to_string();
        let backend = open_backend(&data, &options.execd).await?;
        let world = Self {
            backend,
            marker,
            bystander,
            host,
            outside,
            cgroup,
            next: AtomicU32::new(0),
            temp,
        };
        let program = world.temp.path().join("hostile");
        fs::write(&program, HOSTILE)
            .map_err(|error| problem("writing the hostile program", &error))?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))
            .map_err(|error| problem("making it a program", &error))?;
        let rootfs = world.rootfs("rootfs");
        world.import(&rootfs, IMAGE).await?;
        Ok(world)
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
        std::os::unix::fs::symlink(&self.marker, root.join(LINK_OUT)).expect("a link can be made");
        mode("hostile", 0o755);
        mode("setuid", 0o4755);
        root
    }

    /// The program of all attacks, on the host.
    pub(crate) fn hostile(&self) -> PathBuf {
        self.temp.path().join("hostile")
    }

    /// A sandbox of the image that shows the host's programs, with the hostile one in a volume.
    pub(crate) fn host_setup(&self) -> Setup {
        let tools = self.temp.path().join("tools");
        fs::create_dir_all(&tools).expect("a directory can be made");
        fs::copy(self.hostile(), tools.join("hostile")).expect("a file can be copied");
        Setup {
            image: HOST_IMAGE,
            program: "/volume/hostile",
            volumes: vec![host_volume(&tools, None, true)],
            ..Setup::default()
        }
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
        let id = setup.id.clone().unwrap_or_else(|| self.new_id());
        let outcome = self.attack_as(&id, setup, words).await;
        self.delete(&id).await;
        outcome
    }

    /// As [`World::attack`]; the sandbox stays for the caller to look at and delete.
    pub(crate) async fn attack_as(&self, id: &SandboxId, setup: &Setup, words: &[&str]) -> Outcome {
        self.attack_beside(id, setup, words, async {}).await
    }

    /// As [`World::attack_as`]; `beside` runs once the sandbox is made.
    pub(crate) async fn attack_beside(
        &self,
        id: &SandboxId,
        setup: &Setup,
        words: &[&str],
        beside: impl Future<Output = ()>,
    ) -> Outcome {
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
        let (exit, ()) = tokio::join!(exit, beside);
        let exit = exit.ok().flatten();
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
        let inventory = self.backend.list().await.unwrap_or_default();
        for sandbox in inventory {
            let _ = self.backend.delete(&sandbox.id, Duration::ZERO).await;
        }
        self.backend.settled().await;
        let data = self.data_dir();
        let mut left: Vec<String> = ["sandboxes", "trash", "staging", "volumes"]
            .iter()
            .flat_map(|dir| fs::read_dir(data.join(dir)).into_iter().flatten().flatten())
            .map(|entry| entry.path().display().to_string())
            .collect();
        if self.bystander.try_wait().ok().flatten().is_some() {
            left.push("a process of the host was killed".to_owned());
        }
        if fs::read_to_string(&self.marker).unwrap_or_default() != MARKER_TEXT {
            left.push("a file of the host was changed".to_owned());
        }
        let _ = self.bystander.kill();
        let _ = self.bystander.wait();
        let _ = fs::remove_file(&self.marker);
        drop(self.backend);
        left.extend(crate::host::control_groups(&self.cgroup));
        left
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

async fn open_backend(data_dir: &Path, execd: &Path) -> Result<Embedded, String> {
    fs::create_dir_all(data_dir).map_err(|error| format!("making a directory: {error}"))?;
    let mut config =
        Config::new(data_dir).map_err(|error| format!("finding the own program: {error}"))?;
    execd.clone_into(&mut config.execd);
    config.network.prefix = PREFIX.to_owned();
    config.network.first_id = FIRST_ID;
    config.network.id_ranges = ID_RANGES;
    config.network.claims_dir = data_dir.join("claims");
    config.network.ready_outside = 4;
    config.network.ready_none = 1;
    config.network.nameservers = Some(vec![FAR]);
    let opened = Embedded::open(config).await;
    opened.map_err(|error| {
        format!(
            "the embedded runtime does not start: {}",
            api::error_chain(&error)
        )
    })
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
