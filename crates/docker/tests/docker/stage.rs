//! What a test works on: a data directory, the engine beside which it runs, and small requests.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use api::egress::policy::EgressPolicy;
use docker::{Config, Docker};
use lifecycle::backend::{Backend, Limits, Source, Spec, Target};
use secrecy::SecretString;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// The server's defaults.
const DROPPED: [&str; 9] = [
    "AUDIT_WRITE",
    "MKNOD",
    "NET_ADMIN",
    "NET_RAW",
    "SYS_ADMIN",
    "SYS_MODULE",
    "SYS_PTRACE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
];

pub(crate) const TOKEN: &str = "a-token-for-tests";

pub(crate) struct Stage {
    pub(crate) directory: tempfile::TempDir,
}

/// The sandboxes run in gVisor.
pub(crate) fn is_secure() -> bool {
    std::env::var_os("OSB_TEST_RUNSC").is_some()
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("tests/docker/engine sets {name}"))
}

pub(crate) fn image() -> String {
    variable("OSB_TEST_IMAGE")
}

pub(crate) fn static_image() -> String {
    variable("OSB_TEST_STATIC")
}

/// Where the engine of the tests has its files.
pub(crate) fn engine_home() -> PathBuf {
    variable("OSB_TEST_ENGINE").into()
}

pub(crate) fn socket() -> PathBuf {
    engine_home().join("docker.sock")
}

/// The engine's own answer, past the backend.
pub(crate) fn engine_says(method: &str, path: &str) -> String {
    let done = Command::new("curl")
        .args(["-sS", "--max-time", "60", "-X", method, "--unix-socket"])
        .arg(socket())
        .arg(format!("http://engine{path}"))
        .output()
        .expect("curl");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir_in("/var/tmp").expect("a temporary directory"),
        }
    }

    pub(crate) fn config(&self) -> Config {
        let mut config = Config::new(self.directory.path().join("data")).expect("a configuration");
        let own = std::env::current_exe().expect("a path");
        // target/debug/deps/docker-… is beside target/debug/execd.
        config.execd = own
            .ancestors()
            .nth(2)
            .expect("a target directory")
            .join("execd");
        config.socket = socket();
        config.drop_capabilities = DROPPED.map(str::to_owned).to_vec();
        if is_secure() {
            config.secure_runtime = Some("runsc".to_owned());
        }
        config
    }

    /// Gives the engine an image of its own under `name:1`, which runs a static program.
    pub(crate) fn import(&self, name: &str) {
        let tree = self.directory.path().join("image");
        std::fs::create_dir_all(&tree).expect("a directory");
        let program = engine_home().join("static/sleep");
        std::fs::copy(program, tree.join("sleep")).expect("the static program");
        std::fs::write(tree.join("name"), name).expect("a file");
        let tar = self.directory.path().join("image.tar");
        let mut pack = Command::new("tar");
        pack.arg("-C").arg(&tree).arg("-cf").arg(&tar).arg(".");
        assert!(pack.status().expect("tar").success());
        let name = name.replace(':', "%3A");
        let command = "CMD%20%5B%22%2Fsleep%22%2C%22100000%22%5D";
        let imported = Command::new("curl")
            .args(["-sS", "--fail", "-X", "POST", "--unix-socket"])
            .arg(socket())
            .args(["-H", "Content-Type: application/x-tar", "-T"])
            .arg(&tar)
            .arg(format!(
                "http://engine/images/create?fromSrc=-&repo={name}&tag=1&changes={command}"
            ))
            .output()
            .expect("curl");
        assert!(imported.status.success(), "{imported:?}");
    }

    pub(crate) async fn open(&self) -> Docker {
        Docker::open(self.config())
            .await
            .expect("the backend opens")
    }
}

pub(crate) fn spec(id: &str) -> Spec {
    Spec {
        id: id.parse().expect("an id"),
        source: Source::Image {
            reference: image(),
            auth: None,
        },
        platform: None,
        entrypoint: Some(vec!["sleep".to_owned(), "infinity".to_owned()]),
        env: BTreeMap::new(),
        limits: Limits::default(),
        volumes: Vec::new(),
        network: EgressPolicy::ALLOW_ALL,
        access_token: SecretString::from(TOKEN.to_owned()),
        labels: BTreeMap::new(),
    }
}

/// One exchange with the daemon inside: the whole answer.
pub(crate) async fn ask(backend: &Docker, spec: &Spec, request: &str) -> String {
    let stream = backend.connect(&spec.id, Target::Control).await;
    let mut stream = stream.expect("a connection to the daemon");
    let (line, body) = request.split_once('\n').unwrap_or((request, ""));
    let request = format!(
        "{line} HTTP/1.1\r\nHost: x\r\nX-EXECD-ACCESS-TOKEN: {TOKEN}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream
        .write_all(request.as_bytes())
        .await
        .expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer
}

/// Runs a shell command inside; its events.
pub(crate) async fn run(backend: &Docker, spec: &Spec, command: &str) -> String {
    let body = serde_json::json!({ "command": command });
    ask(backend, spec, &format!("POST /command\n{body}")).await
}
