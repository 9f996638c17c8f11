//! A place for one test: a data directory of its own, images made on the spot, and a look at
//! what is left on the host.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::egress::policy::EgressPolicy;
use api::id::SandboxId;
use lifecycle::backend::{Backend, Created, Error, Limits, Source, Spec};
use runtime::image::Import;
use runtime::{Config, Embedded};

use crate::deadline::waiting_for;

/// What every sandbox of these tests asks for as its token.
pub(crate) const TOKEN: &str = "a-token-for-tests";

/// What is missing to run these tests, and what provides it.
pub(crate) fn needs() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err(
            "they need root; run: sudo -E cargo test -p runtime --test embedded".to_owned(),
        );
    }
    let execd = execd();
    if !execd.exists() {
        return Err(format!(
            "{} is missing; run: cargo build -p execd",
            execd.display()
        ));
    }
    Ok(())
}

/// Cargo puts test programs into `deps` beside the built programs.
pub(crate) fn execd() -> PathBuf {
    let me = std::env::current_exe().expect("a program knows its file");
    let target = me
        .parent()
        .and_then(Path::parent)
        .expect("tests are built into target/x/deps");
    target.join("execd")
}

pub(crate) fn config(data_dir: &Path) -> Config {
    let mut config = Config::new(data_dir).expect("a program knows its file");
    config.execd = execd();
    // Few at once here; the pools are tested where they are made.
    config.network.ready_outside = 4;
    config.network.ready_none = 1;
    config
}

pub(crate) struct Stage {
    pub(crate) directory: tempfile::TempDir,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("osb-test-").tempdir();
        Self {
            directory: directory.expect("a temporary directory"),
        }
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    pub(crate) async fn open(&self) -> Embedded {
        soon(
            "the backend to open",
            Embedded::open(config(&self.data_dir())),
        )
        .await
        .expect("the backend opens")
    }

    /// Makes an image of a directory that `furnish` fills.
    pub(crate) async fn image(&self, backend: &Embedded, name: &str, furnish: impl FnOnce(&Path)) {
        let root = self.directory.path().join(name);
        std::fs::create_dir_all(&root).unwrap();
        furnish(&root);
        let import = Import::Directory(root);
        backend
            .images()
            .import(&import, Some(name))
            .await
            .expect("a directory is an image");
    }

    /// PID 1 of a sandbox, as the host numbers it.
    pub(crate) fn first_process(&self, name: &str) -> i32 {
        let path = self
            .data_dir()
            .join("sandboxes")
            .join(name)
            .join("process.json");
        let text = std::fs::read(path).expect("a sandbox has a record of its process");
        let record: serde_json::Value = serde_json::from_slice(&text).unwrap();
        i32::try_from(record["pid"].as_i64().unwrap()).unwrap()
    }

    /// What is left on the host of anything this stage made.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let data_dir = self.data_dir();
        let mut left = Vec::new();
        for place in ["sandboxes", "trash", "staging"] {
            for entry in std::fs::read_dir(data_dir.join(place))
                .into_iter()
                .flatten()
                .flatten()
            {
                left.push(format!("directory {}", entry.path().display()));
            }
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let ours = data_dir.display().to_string();
        left.extend(
            mounts
                .lines()
                .filter(|line| line.contains(&ours))
                .map(str::to_owned),
        );
        left
    }
}

impl Drop for Stage {
    /// A failed test must not leave sandboxes behind.
    fn drop(&mut self) {
        kill_sandboxes(&self.data_dir());
        let directories = std::fs::read_dir(self.data_dir().join("sandboxes"));
        for entry in directories.into_iter().flatten().flatten() {
            let flags = rustix::mount::UnmountFlags::DETACH;
            let _ = rustix::mount::unmount(entry.path().join("rw"), flags);
        }
    }
}

/// Ends the processes of every sandbox that has a directory.
pub(crate) fn kill_sandboxes(data_dir: &Path) {
    let records = std::fs::read_dir(data_dir.join("sandboxes"));
    for entry in records.into_iter().flatten().flatten() {
        for pid in processes_of(&entry.file_name().to_string_lossy()) {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

/// The processes on this host that carry a sandbox's id in their environment.
pub(crate) fn processes_of(id: &str) -> Vec<i32> {
    let mark = format!("OPENSANDBOX_ID={id}");
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if environment
            .split(|b| *b == 0)
            .any(|pair| pair == mark.as_bytes())
        {
            found.push(pid);
        }
    }
    found
}

/// A sandbox of the machine's own programs that waits for ever.
pub(crate) fn spec(id: &str) -> Spec {
    Spec {
        id: id.parse().expect("tests use good ids"),
        source: image("host"),
        platform: None,
        entrypoint: Some(vec!["sleep".to_owned(), "2147483647".to_owned()]),
        env: BTreeMap::new(),
        limits: Limits::default(),
        volumes: Vec::new(),
        network: EgressPolicy::ALLOW_ALL,
        access_token: TOKEN.to_owned().into(),
        labels: BTreeMap::from([("made-by".to_owned(), "test".to_owned())]),
    }
}

pub(crate) fn image(reference: &str) -> Source {
    Source::Image {
        reference: reference.to_owned(),
        auth: None,
    }
}

pub(crate) fn id(text: &str) -> SandboxId {
    text.parse().expect("tests use good ids")
}

pub(crate) async fn create(backend: &Embedded, spec: Spec) -> Result<Created, Error> {
    let what = format!("the creation of sandbox {}", spec.id);
    soon(what, backend.create(spec)).await
}

pub(crate) async fn delete(backend: &Embedded, name: &str) {
    let id = id(name);
    let deleted = soon(
        format!("the deletion of sandbox {name}"),
        backend.delete(&id, Duration::ZERO),
    );
    deleted.await.expect("a sandbox can be deleted");
}

/// Far more than one step of a test takes on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Waits for one step of a test, or fails and says which.
pub(crate) async fn soon<T>(what: impl Into<String>, step: impl Future<Output = T>) -> T {
    let what = what.into();
    waiting_for(what.clone());
    match tokio::time::timeout(SOON, step).await {
        Ok(value) => value,
        Err(_) => panic!("waited {SOON:?} for {what}"),
    }
}

/// Waits until nothing of any deleted sandbox should be left.
pub(crate) async fn settled(backend: &Embedded) {
    soon("deleted sandboxes to be gone", backend.settled()).await;
}
