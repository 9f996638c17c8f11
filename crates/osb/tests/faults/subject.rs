//! A real server in a directory of its own, and a client that needs no runtime.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// Nothing here takes this long; it only keeps a broken test from hanging.
const DEADLINE: Duration = Duration::from_secs(60);

const OSB: &str = env!("CARGO_BIN_EXE_osb");

/// A directory for servers that come one after the other.
pub(crate) struct DataDir(tempfile::TempDir);

impl DataDir {
    /// `None`, after saying so loudly, where the test cannot run; in CI that is a failure.
    pub(crate) fn new() -> Option<Self> {
        let needs = [
            (
                rustix::process::geteuid().is_root(),
                "root",
                "sudo -E cargo test -p osb",
            ),
            (
                execd().is_file(),
                "execd beside osb",
                "cargo build -p execd",
            ),
        ];
        for (is_met, what, command) in needs {
            if !is_met {
                let message = format!("this test needs {what}; run: {command}");
                assert!(std::env::var_os("CI").is_none(), "{message}");
                eprintln!("NOT RUN: {message}");
                return None;
            }
        }
        Some(Self(tempfile::tempdir().unwrap()))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(OSB);
        command
            .args(["server", "--port", "0", "--set", "log.format=json"])
            .args([
                "--set",
                &format!("embedded.data_dir={}", self.path().display()),
            ])
            .args([
                "--set",
                &format!("runtime.execd_path={}", execd().display()),
            ])
            // Each test has its own server; they need not all keep a lot ready.
            .args(["--set", "embedded.ready_sandboxes=4"])
            .env_remove("SANDBOX_CONFIG_PATH")
            .env("HOME", self.path())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn start(&self) -> Server {
        self.start_with(&[])
    }

    /// Starts a server with more settings.
    pub(crate) fn start_with(&self, settings: &[String]) -> Server {
        let mut command = self.command();
        for setting in settings {
            command.args(["--set", setting]);
        }
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&log);
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let parsed: Value = serde_json::from_str(&line).unwrap_or_default();
                if parsed["message"] == "ready" {
                    let _ = tell.send(parsed["address"].as_str().unwrap().to_owned());
                }
                kept.lock().unwrap().push(line);
            }
        });
        let mut server = Server {
            child: Some(child),
            client: Client::default(),
            log,
        };
        // An end of its output drops the sender: it did not start.
        server.client.address = told.recv_timeout(DEADLINE).expect("the server is ready");
        server
    }

    /// Starts a server that refuses to, and returns what it said.
    pub(crate) fn start_refused(&self) -> String {
        let child = self.command().spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        std::thread::spawn(move || tell.send(child.wait_with_output()));
        let Ok(output) = told.recv_timeout(DEADLINE) else {
            kill(pid);
            panic!("it neither started nor refused to");
        };
        let output = output.unwrap();
        assert!(!output.status.success(), "it started");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// The sandboxes that are on the host.
    pub(crate) fn sandboxes(&self) -> BTreeSet<String> {
        let entries = std::fs::read_dir(self.path().join("sandboxes")).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// The process that is PID 1 of a sandbox.
    pub(crate) fn daemon_of(&self, id: &str) -> i32 {
        let path = self.path().join("sandboxes").join(id).join("process.json");
        let process: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        i32::try_from(process["pid"].as_i64().unwrap()).unwrap()
    }
}

/// A disk that is full as soon as somebody wants it to be: a filesystem of its own in memory.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    pub(crate) fn new(path: PathBuf) -> Self {
        std::fs::create_dir(&path).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", &path, "tmpfs", flags, c"size=2m").unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Takes all the space that is left.
    pub(crate) fn fill(&self) {
        let mut file = std::fs::File::create(self.0.join("filler")).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
    }

    /// Gives it back.
    pub(crate) fn empty(&self) {
        std::fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

fn execd() -> PathBuf {
    Path::new(OSB).with_file_name("execd")
}

pub(crate) fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

pub(crate) struct Server {
    child: Option<Child>,
    client: Client,
    log: Arc<Mutex<Vec<String>>>,
}

impl std::ops::Deref for Server {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Server {
    fn pid(&self) -> i32 {
        i32::try_from(self.child.as_ref().unwrap().id()).unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Asks it to stop and waits until it has.
    pub(crate) fn stop(mut self) {
        let pid = rustix::process::Pid::from_raw(self.pid()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.take().unwrap().wait().unwrap().success());
    }

    /// The process that makes sandboxes for it.
    pub(crate) fn spawner(&self) -> i32 {
        let children = format!("/proc/{0}/task", self.pid());
        for thread in std::fs::read_dir(children).unwrap() {
            let path = thread.unwrap().path().join("children");
            let children = std::fs::read_to_string(path).unwrap_or_default();
            for child in children.split_whitespace() {
                let command = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
                if command
                    .split(|byte| *byte == 0)
                    .any(|word| word == b"spawner")
                {
                    return child.parse().unwrap();
                }
            }
        }
        panic!("the server has no spawner");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("the server said:\n{}", self.log.lock().unwrap().join("\n"));
        }
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    text: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }
}

/// One connection per request: slow, simple, and without a runtime.
#[derive(Clone, Default)]
pub(crate) struct Client {
    pub(crate) address: String,
}

impl Client {
    fn send(&self, head: &str, body: &str) -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        write!(
            stream,
            "{head}host: {}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )?;
        Ok(stream)
    }

    fn try_call(&self, head: &str, body: &str) -> std::io::Result<Answer> {
        let mut text = String::new();
        self.send(head, body)?.read_to_string(&mut text)?;
        let cut = || std::io::Error::other("the answer broke off");
        let (head, body) = text.split_once("\r\n\r\n").ok_or_else(cut)?;
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .ok_or_else(cut)?;
        Ok(Answer {
            status,
            text: body.to_owned(),
        })
    }

    fn call(&self, method: &str, path: &str, body: &str) -> Answer {
        self.try_call(&format!("{method} {path} HTTP/1.1\r\n"), body)
            .unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.call("GET", path, "")
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Answer {
        self.call("POST", path, body)
    }

    pub(crate) fn create(&self) -> String {
        let made = self.post("/v1/sandboxes", &create_body()).expect(202);
        assert_eq!(made["status"]["state"], "Running", "{made}");
        made["id"].as_str().unwrap().to_owned()
    }

    /// What a create is answered with.
    pub(crate) fn try_create_answer(&self) -> Answer {
        self.post("/v1/sandboxes", &create_body())
    }

    /// `None` when no answer came, or one that promises nothing.
    pub(crate) fn try_create(&self) -> Option<String> {
        let answer = self
            .try_call("POST /v1/sandboxes HTTP/1.1\r\n", &create_body())
            .ok()?;
        let made: Value = serde_json::from_str(&answer.text).ok()?;
        Some(
            made["id"]
                .as_str()
                .filter(|_| answer.status == 202)?
                .to_owned(),
        )
    }

    pub(crate) fn delete(&self, id: &str) {
        assert_eq!(
            self.call("DELETE", &format!("/v1/sandboxes/{id}"), "")
                .status,
            204
        );
    }

    pub(crate) fn list(&self) -> BTreeSet<String> {
        let listed = self.get("/v1/sandboxes?pageSize=200").expect(200);
        let items = listed["items"].as_array().unwrap().iter();
        items
            .map(|item| item["id"].as_str().unwrap().to_owned())
            .collect()
    }

    pub(crate) fn token(&self, id: &str) -> String {
        let endpoint = self
            .get(&format!("/v1/sandboxes/{id}/endpoints/44772"))
            .expect(200);
        endpoint["headers"]["X-EXECD-ACCESS-TOKEN"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Runs a command in a sandbox and returns its events as they came.
    pub(crate) fn command(&self, id: &str, text: &str) -> String {
        let head = format!(
            "POST /v1/sandboxes/{id}/proxy/44772/command HTTP/1.1\r\nx-execd-access-token: {}\r\n",
            self.token(id)
        );
        let answer = self
            .try_call(&head, &json!({"command": text}).to_string())
            .unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.text
    }

    /// Reads the event stream from its beginning until one fits.
    pub(crate) fn wait_for_event(&self, is_wanted: impl Fn(&Value) -> bool) {
        let stream = self
            .send("GET /v1/events?after=0 HTTP/1.1\r\n", "")
            .unwrap();
        for line in BufReader::new(stream).lines() {
            let line = line.expect("the event in time");
            if let Some(data) = line.strip_prefix("data: ")
                && is_wanted(&serde_json::from_str(data).unwrap())
            {
                return;
            }
        }
        panic!("the stream ended without the event");
    }
}

fn create_body() -> String {
    json!({
        "image": {"uri": "host"},
        "entrypoint": ["tail", "-f", "/dev/null"],
        "timeout": 600,
        "resourceLimits": {"cpu": "1", "memory": "256Mi"},
    })
    .to_string()
}
