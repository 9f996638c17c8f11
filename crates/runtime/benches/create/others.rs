//! What others take for the least they can be asked: the program of our sandboxes, told to
//! explain itself, in a container without a network. What is not installed is said and left out.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// An engine takes a second or two to start.
const START_DEADLINE: Duration = Duration::from_secs(60);

const IMAGE: &str = "osb-bench";

pub(crate) fn quiet(command: &mut Command) -> bool {
    let command = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A root filesystem with one static program in it.
pub(crate) fn rootfs(directory: &Path, program: &Path) -> PathBuf {
    let rootfs = directory.join("bundle/rootfs");
    std::fs::create_dir_all(&rootfs).expect("a directory can be made");
    std::fs::copy(program, rootfs.join("execd")).expect("a file can be copied");
    rootfs
}

/// Times of `crun run`. It refuses the hybrid of both cgroup versions, so it is shown version 1
/// alone, in a mount namespace that all runs share: the shell there tells when each begins and
/// ends.
pub(crate) fn crun(rootfs: &Path, runs: usize) -> Option<Vec<Duration>> {
    let bundle = rootfs.parent()?;
    if !quiet(Command::new("crun").arg("spec").current_dir(bundle)) {
        println!("crun: not installed, not measured");
        return None;
    }
    let path = bundle.join("config.json");
    let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).ok()?).ok()?;
    config["root"]["readonly"] = false.into();
    config["process"]["args"] = serde_json::json!(["/execd", "--help"]);
    config["process"]["terminal"] = false.into();
    std::fs::write(&path, config.to_string()).ok()?;
    // The time of the shell's own builtin, to the microsecond.
    let script = format!(
        "umount /sys/fs/cgroup/unified 2>/dev/null; for ((i = 0; i < {runs}; i++)); do \
         a=$EPOCHREALTIME; crun run -b {} osb-bench-$$ >/dev/null || exit 1; \
         echo $a $EPOCHREALTIME; done",
        bundle.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "bash", "-c", &script]);
    let output = command.output().ok()?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        println!("crun: does not run here, not measured: {why}");
        return None;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut times: Vec<Duration> = text.lines().filter_map(between).collect();
    times.sort();
    (times.len() == runs).then_some(times)
}

/// Two times in seconds on one line.
fn between(line: &str) -> Option<Duration> {
    let (from, to) = line.split_once(' ')?;
    let seconds = |text: &str| text.replace(',', ".").parse::<f64>().ok();
    Duration::try_from_secs_f64(seconds(to)? - seconds(from)?).ok()
}

/// Times of `docker run --rm`, by an engine of our own that shares nothing with any other.
pub(crate) fn docker(rootfs: &Path, runs: usize) -> Option<Vec<Duration>> {
    let engine = match Engine::start() {
        Ok(engine) => engine,
        Err(why) => {
            println!("docker: not measured: {why}");
            return None;
        }
    };
    let tar = rootfs.with_file_name("rootfs.tar");
    let mut pack = Command::new("tar");
    pack.arg("-C").arg(rootfs).arg("-cf").arg(&tar).arg(".");
    let is_ready = quiet(&mut pack) && quiet(engine.docker().args(["import"]).arg(&tar).arg(IMAGE));
    if !is_ready {
        println!("docker: does not take an image, not measured");
        return None;
    }
    let mut times = Vec::new();
    for _ in 0..runs {
        let start = Instant::now();
        let run = [
            "run",
            "--rm",
            "--network",
            "none",
            IMAGE,
            "/execd",
            "--help",
        ];
        if !quiet(engine.docker().args(run)) {
            println!("docker: does not run a container here, not measured");
            return None;
        }
        times.push(start.elapsed());
    }
    times.sort();
    Some(times)
}

/// A dockerd with directories, socket and network of its own.
struct Engine {
    process: Child,
    directory: tempfile::TempDir,
}

impl Engine {
    fn start() -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let at = |name: &str| directory.path().join(name);
        let ready = UnixDatagram::bind(at("ready")).map_err(|error| error.to_string())?;
        ready
            .set_read_timeout(Some(START_DEADLINE))
            .map_err(|error| error.to_string())?;
        let log = std::fs::File::create(at("log")).map_err(|error| error.to_string())?;
        let process = Command::new("dockerd")
            .arg("--data-root")
            .arg(at("data"))
            .arg("--exec-root")
            .arg(at("exec"))
            .arg("--pidfile")
            .arg(at("pid"))
            .arg("--host")
            .arg(format!("unix://{}", at("docker.sock").display()))
            .args(["--bridge=none", "--iptables=false", "--ip6tables=false"])
            .env("NOTIFY_SOCKET", at("ready"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("dockerd does not start: {error}"))?;
        let engine = Self { process, directory };
        // What systemd would be told: the engine serves.
        let mut message = [0; 256];
        loop {
            let length = ready.recv(&mut message).map_err(|_| {
                let log = std::fs::read_to_string(engine.directory.path().join("log"));
                let last = log.unwrap_or_default();
                let last = last.lines().last().unwrap_or_default();
                format!("dockerd was not ready within {START_DEADLINE:?}: {last}")
            })?;
            if message[..length].starts_with(b"READY=1") {
                return Ok(engine);
            }
        }
    }

    fn docker(&self) -> Command {
        let mut command = Command::new("docker");
        let socket = self.directory.path().join("docker.sock");
        command
            .arg("--host")
            .arg(format!("unix://{}", socket.display()));
        command
    }
}

impl Drop for Engine {
    /// Politely, so that it takes its containerd and its mounts with it.
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.process.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.process.wait();
    }
}
