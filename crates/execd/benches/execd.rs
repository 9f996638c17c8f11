//! What execd costs, against doing the same without it, within one run.
//!
//! `cargo bench -p execd --bench execd`. Prints each promise with its number; the machine's
//! own speed cancels out in the ratios, so those are what to compare between machines.

#![expect(clippy::print_stdout, reason = "a benchmark prints its numbers")]
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark that cannot run has nothing to say"
)]

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const STARTS: usize = 60;
const COMMANDS: usize = 400;
const AT_ONCE: usize = 32;
const ROUNDS: usize = 12;
const LINES: usize = 2_000_000;
const FILE_BYTES: u64 = 1 << 30;

fn main() {
    starting_and_idling();
    one_command();
    many_commands();
    flood();
    files();
}

struct Daemon {
    child: Child,
    directory: PathBuf,
}

impl Daemon {
    /// The socket listens before the daemon runs and is its standard input.
    fn start(name: &str) -> Self {
        let root = if Path::new("/dev/shm").is_dir() {
            "/dev/shm"
        } else {
            "/tmp"
        };
        let directory = PathBuf::from(format!("{root}/execd-bench-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let listener: OwnedFd = UnixListener::bind(directory.join("socket")).unwrap().into();
        let child = Command::new(env!("CARGO_BIN_EXE_execd"))
            .args(["--port", "0", "--listen-fd", "0"])
            .env("JUPYTER_HOST", "none")
            .stdin(Stdio::from(listener))
            .spawn()
            .unwrap();
        Self { child, directory }
    }

    fn connect(&self) -> Client {
        Client {
            stream: UnixStream::connect(self.directory.join("socket")).unwrap(),
            tail: Vec::new(),
        }
    }

    fn proc(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap()
    }

    /// A field of a /proc file, in KiB.
    fn kib(&self, file: &str, field: &str) -> u64 {
        let text = self.proc(file);
        let line = text.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A connection that is kept.
struct Client {
    stream: UnixStream,
    tail: Vec<u8>,
}

impl Client {
    fn send(&mut self, head: &str, body: &str) {
        let request = format!(
            "{head} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.write_all(request.as_bytes()).unwrap();
    }

    fn ping(&mut self) {
        self.send("GET /ping", "");
        self.read_until(b"\r\n\r\n");
    }

    /// Runs a command until its stream is closed.
    fn command(&mut self, command: &str) {
        self.send("POST /command", &format!(r#"{{"command":"{command}"}}"#));
        self.read_until(b"\r\n0\r\n\r\n");
    }

    fn read_until(&mut self, end: &[u8]) {
        self.tail.clear();
        let mut buffer = [0; 16384];
        while !self.tail.ends_with(end) {
            let read = self.stream.read(&mut buffer).unwrap();
            assert!(read > 0, "closed");
            self.tail.extend_from_slice(&buffer[..read]);
        }
    }
}

fn direct() {
    let status = Command::new("bash")
        .args(["-c", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
}

fn timed(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed()
}

/// The value below which this share of the samples lies, in milliseconds.
fn percentile(samples: &mut [Duration], share: f64) -> f64 {
    samples.sort_unstable();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index among a few hundred"
    )]
    let index = ((samples.len() - 1) as f64 * share).round() as usize;
    samples[index].as_secs_f64() * 1e3
}

fn starting_and_idling() {
    let mut direct_samples = Vec::new();
    let mut samples = Vec::new();
    for number in 0..STARTS {
        direct_samples.push(timed(|| {
            assert!(Command::new("/bin/true").status().unwrap().success());
        }));
        let begun = Instant::now();
        let daemon = Daemon::start(&format!("start{number}"));
        daemon.connect().ping();
        samples.push(begun.elapsed());
    }
    println!(
        "start: exec to first answer p50 {:.2} ms, p99 {:.2} ms (budget 3 ms); /bin/true and back p50 {:.2} ms",
        percentile(&mut samples, 0.5),
        percentile(&mut samples, 0.99),
        percentile(&mut direct_samples, 0.5),
    );
    // Two, as on any host with sandboxes: pages of the program are then shared.
    let (one, two) = (Daemon::start("idle1"), Daemon::start("idle2"));
    two.connect().ping();
    one.connect().ping();
    println!(
        "idle: private {} KiB (dirty {}, clean {}), budget 1024 KiB; resident {} KiB",
        one.kib("smaps_rollup", "Private_Dirty:") + one.kib("smaps_rollup", "Private_Clean:"),
        one.kib("smaps_rollup", "Private_Dirty:"),
        one.kib("smaps_rollup", "Private_Clean:"),
        one.kib("smaps_rollup", "Rss:"),
    );
}

fn one_command() {
    let daemon = Daemon::start("one");
    let mut client = daemon.connect();
    for _ in 0..20 {
        client.command("true");
        direct();
    }
    let (mut through, mut without) = (Vec::new(), Vec::new());
    for _ in 0..COMMANDS {
        through.push(timed(|| client.command("true")));
        without.push(timed(direct));
    }
    let (through_p50, without_p50) = (percentile(&mut through, 0.5), percentile(&mut without, 0.5));
    println!(
        "command: bash -c true through /command p50 {through_p50:.2} ms p99 {:.2} ms, directly p50 {without_p50:.2} ms p99 {:.2} ms: {:+.2} ms at p50 (budget 0.6 ms)",
        percentile(&mut through, 0.99),
        percentile(&mut without, 0.99),
        through_p50 - without_p50,
    );
}

fn many_commands() {
    let daemon = Daemon::start("many");
    let mut clients: Vec<Client> = (0..AT_ONCE).map(|_| daemon.connect()).collect();
    let (mut through, mut without) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..ROUNDS {
        through += timed(|| {
            std::thread::scope(|scope| {
                for client in &mut clients {
                    scope.spawn(|| client.command("true"));
                }
            });
        });
        without += timed(|| {
            std::thread::scope(|scope| {
                for _ in 0..AT_ONCE {
                    scope.spawn(direct);
                }
            });
        });
    }
    println!(
        "{AT_ONCE} at once: through /command {:.1} ms a round, directly {:.1} ms: ratio {:.2} (budget 1.20)",
        through.as_secs_f64() * 1e3 / 12.0,
        without.as_secs_f64() * 1e3 / 12.0,
        through.as_secs_f64() / without.as_secs_f64(),
    );
}

fn flood() {
    let daemon = Daemon::start("flood");
    let mut client = daemon.connect();
    client.command("seq 20000");
    let before = daemon.kib("status", "VmRSS:");
    client.send("POST /command", &format!(r#"{{"command":"seq {LINES}"}}"#));
    let begun = Instant::now();
    let mut buffer = vec![0; 1 << 20];
    let (mut bytes, mut tail) = (0, Vec::new());
    let mut highest = before;
    let mut reads = 0;
    loop {
        let read = client.stream.read(&mut buffer).unwrap();
        assert!(read > 0, "closed");
        bytes += read;
        tail.extend_from_slice(&buffer[read.saturating_sub(16)..read]);
        if tail.ends_with(b"\r\n0\r\n\r\n") {
            break;
        }
        tail.drain(..tail.len().saturating_sub(16));
        reads += 1;
        if reads % 200 == 0 {
            highest = highest.max(daemon.kib("status", "VmRSS:"));
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "for print")]
    let (events, mebibytes) = (LINES as f64 / seconds, bytes as f64 / f64::from(1 << 20));
    println!(
        "flood: {LINES} lines in {seconds:.2} s, {events:.0} events/s (promise 300000), {mebibytes:.0} MiB of events; resident {before} KiB before, {highest} KiB at most",
    );
}

fn files() {
    let daemon = Daemon::start("files");
    let source = daemon.directory.join("source");
    let target = daemon.directory.join("target");
    write_source(&source);
    let download = timed(|| {
        let mut client = daemon.connect();
        client.send(
            &format!("GET /files/download?path={}", source.display()),
            "",
        );
        read_exactly(&mut client.stream, FILE_BYTES);
    });
    let cat_out = timed(|| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut cat = Command::new("cat")
            .arg(&source)
            .stdout(OwnedFd::from(theirs))
            .spawn()
            .unwrap();
        read_exactly(&mut &ours, FILE_BYTES);
        cat.wait().unwrap();
    });
    let upload = timed(|| upload(&daemon, &source, &target));
    assert_eq!(fs::metadata(&target).unwrap().len(), FILE_BYTES);
    fs::remove_file(&target).unwrap();
    let cat_in = timed(|| {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let file = File::create(&target).unwrap();
        let mut cat = Command::new("cat")
            .stdin(OwnedFd::from(theirs))
            .stdout(file)
            .spawn()
            .unwrap();
        copy(&mut File::open(&source).unwrap(), &mut ours);
        drop(ours);
        cat.wait().unwrap();
    });
    for (name, ours, theirs) in [("download", download, cat_out), ("upload", upload, cat_in)] {
        println!(
            "{name}: 1 GiB in {:.2} s, cat over a unix socket {:.2} s: {:.2} of its speed (promise 0.5)",
            ours.as_secs_f64(),
            theirs.as_secs_f64(),
            theirs.as_secs_f64() / ours.as_secs_f64(),
        );
    }
}

fn write_source(path: &Path) {
    let mut file = File::create(path).unwrap();
    let block = vec![b'x'; 1 << 20];
    for _ in 0..FILE_BYTES >> 20 {
        file.write_all(&block).unwrap();
    }
}

/// Reads an answer's head, where there is one, and the bytes behind it.
fn read_exactly(stream: &mut impl io::Read, bytes: u64) {
    let mut buffer = vec![0; 1 << 17];
    let mut left = bytes;
    while left > 0 {
        let read = stream.read(&mut buffer).unwrap() as u64;
        assert!(read > 0, "closed with {left} bytes to go");
        left = left.saturating_sub(read);
    }
}

fn upload(daemon: &Daemon, source: &Path, target: &Path) {
    let mut client = daemon.connect();
    let before = format!(
        "--b\r\ncontent-disposition: form-data; name=\"metadata\"; filename=\"metadata\"\r\ncontent-type: application/json\r\n\r\n{{\"path\":\"{}\",\"mode\":644}}\r\n--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"f\"\r\ncontent-type: application/octet-stream\r\n\r\n",
        target.display()
    );
    let after = "\r\n--b--\r\n";
    let length = before.len() as u64 + FILE_BYTES + after.len() as u64;
    let head = format!(
        "POST /files/upload HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=b\r\ncontent-length: {length}\r\n\r\n{before}"
    );
    client.stream.write_all(head.as_bytes()).unwrap();
    copy(&mut File::open(source).unwrap(), &mut client.stream);
    client.stream.write_all(after.as_bytes()).unwrap();
    client.read_until(b"\r\n\r\n");
    assert!(
        client.tail.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&client.tail)
    );
}

fn copy(from: &mut File, to: &mut UnixStream) {
    let mut buffer = vec![0; 1 << 17];
    loop {
        let read = from.read(&mut buffer).unwrap();
        if read == 0 {
            return;
        }
        to.write_all(&buffer[..read]).unwrap();
    }
}
