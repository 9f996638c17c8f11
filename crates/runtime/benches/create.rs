//! How long a sandbox takes, beside what else can be had: a bare clone and exec, `crun run` and
//! `docker run`, in one run on one machine, so that the ratios mean something even where the
//! machine is busy. `make bench-create` runs it; it needs root and a release build of execd.
//!
//! From the request to the first byte of execd's answer, with a warm image and nothing made in
//! advance but network slots and cgroup directories. Prints a table; asserts nothing. With the
//! argument `quick` it ends after one sandbox at a time: enough to compare two builds.

#![expect(clippy::print_stdout, reason = "printing is what a benchmark is for")]
#![expect(clippy::print_stderr, reason = "printing is what a benchmark is for")]

#[path = "create/others.rs"]
mod others;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use api::egress::policy::EgressPolicy;
use api::id::SandboxId;
use lifecycle::backend::{Backend, Limits, Source, Spec, Target};
use runtime::{Config, Embedded};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Samples of our own; enough for a 99th percentile that is not a single outlier.
const OURS: usize = 300;
/// Samples of programs that take tens to hundreds of milliseconds each.
const THEIRS: usize = 20;
/// Sandboxes kept alive at once.
const ALIVE: usize = 1_000;
/// Bytes written before the snapshot.
const WRITTEN_MIB: usize = 100;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("spawner") {
        runtime::spawner::main();
    }
    if std::env::args().nth(1).as_deref() == Some("egress-gate") {
        let _ = runtime::gate::main(std::env::args_os().skip(2));
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime starts").block_on(measure());
}

async fn measure() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("bench-create needs root");
        std::process::exit(1);
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let rootfs = others::rootfs(directory.path(), &execd());
    let mut config = Config::new(directory.path().join("data")).expect("a program knows its file");
    config.execd = execd();
    let backend = Embedded::open(config).await.expect("the backend opens");
    println!("execd {}", execd().display());

    let bare = samples(OURS, bare_clone_and_exec);
    print_row("bare clone+exec of execd --help", &bare, &bare);
    let ours = sequential(&backend, &image()).await;
    print_row("ours: request to answer", &ours.create, &bare);
    print_row("ours: delete, caller's time", &ours.delete, &bare);
    if std::env::args().any(|argument| argument == "quick") {
        return;
    }
    let beside = |what: &str, theirs: Option<Vec<Duration>>| {
        if let Some(theirs) = theirs {
            print_row(what, &theirs, &bare);
            println!("  {what} / ours = {:.1}", ratio(&theirs, &ours.create));
        }
    };
    beside("crun run", others::crun(&rootfs, THEIRS));
    beside("docker run --rm", others::docker(&rootfs, THEIRS));
    for at_once in [8, 32] {
        concurrent(&backend, at_once).await;
    }
    pause_and_resume(&backend).await;
    from_snapshot(&backend).await;
    many_alive(&backend).await;
}

fn execd() -> PathBuf {
    let me = std::env::current_exe().expect("a program knows its file");
    let target = me
        .parent()
        .and_then(Path::parent)
        .expect("benches are built into target/x/deps");
    target.join("execd")
}

fn image() -> Source {
    Source::Image {
        reference: "host".to_owned(),
        auth: None,
    }
}

fn spec(name: &str, source: &Source) -> Spec {
    Spec {
        id: id(name),
        source: source.clone(),
        platform: None,
        entrypoint: None,
        env: BTreeMap::new(),
        limits: Limits::default(),
        volumes: Vec::new(),
        network: EgressPolicy::ALLOW_ALL,
        access_token: "bench".to_owned().into(),
        labels: BTreeMap::new(),
    }
}

fn id(name: &str) -> SandboxId {
    name.parse().expect("benches use good ids")
}

/// Makes a sandbox and waits for the first byte of its answer.
async fn make(backend: &Embedded, name: &str, source: &Source) -> Duration {
    let start = Instant::now();
    backend
        .create(spec(name, source))
        .await
        .expect("a sandbox can be made");
    let mut stream = backend
        .connect(&id(name), Target::Control)
        .await
        .expect("its socket accepts");
    let request = "GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream
        .write_all(request.as_bytes())
        .await
        .expect("its socket takes a request");
    let mut byte = [0];
    stream.read_exact(&mut byte).await.expect("execd answers");
    start.elapsed()
}

struct Sequential {
    create: Vec<Duration>,
    delete: Vec<Duration>,
}

async fn sequential(backend: &Embedded, source: &Source) -> Sequential {
    let (mut create, mut delete) = (Vec::new(), Vec::new());
    for number in 0..OURS {
        let name = format!("seq{number}");
        create.push(make(backend, &name, source).await);
        let start = Instant::now();
        backend
            .delete(&id(&name), Duration::ZERO)
            .await
            .expect("it can be deleted");
        delete.push(start.elapsed());
        backend.settled().await;
    }
    create.sort();
    delete.sort();
    Sequential { create, delete }
}

async fn concurrent(backend: &Embedded, at_once: usize) {
    let start = Instant::now();
    let mut workers = Vec::new();
    for worker in 0..at_once {
        let backend = backend.clone();
        workers.push(tokio::spawn(async move {
            let mut times = Vec::new();
            for number in 0..OURS / at_once {
                let name = format!("c{at_once}-{worker}-{number}");
                times.push(make(&backend, &name, &image()).await);
                backend
                    .delete(&id(&name), Duration::ZERO)
                    .await
                    .expect("it can be deleted");
            }
            times
        }));
    }
    let mut times = Vec::new();
    for worker in workers {
        times.extend(worker.await.expect("no creation fails"));
    }
    let rate = times.len() as f64 / start.elapsed().as_secs_f64();
    times.sort();
    println!(
        "{at_once} at once: {rate:.0} sandboxes/s, p50 {:?}",
        percentile(&times, 50)
    );
    backend.settled().await;
}

async fn pause_and_resume(backend: &Embedded) {
    make(backend, "paused", &image()).await;
    let mut times = Vec::new();
    for _ in 0..50 {
        backend
            .pause(&id("paused"))
            .await
            .expect("it can be paused");
        let start = Instant::now();
        backend
            .resume(&id("paused"))
            .await
            .expect("it can be resumed");
        times.push(start.elapsed());
    }
    times.sort();
    println!(
        "resume: p50 {:?}, p99 {:?}",
        percentile(&times, 50),
        percentile(&times, 99)
    );
    backend
        .delete(&id("paused"), Duration::ZERO)
        .await
        .expect("it can be deleted");
}

async fn from_snapshot(backend: &Embedded) {
    make(backend, "source", &image()).await;
    let writable = std::fs::read_dir(data_dir(backend).join("sandboxes/source/rw/upper"));
    assert!(writable.is_ok(), "the writable layer is on the disk");
    write_into(backend).await;
    let snapshot = "bench".parse().expect("a good id");
    let start = Instant::now();
    backend
        .snapshot(&id("source"), &snapshot)
        .await
        .expect("a snapshot can be made");
    println!("snapshot of {WRITTEN_MIB} MiB: {:?}", start.elapsed());
    backend
        .delete(&id("source"), Duration::ZERO)
        .await
        .expect("it can be deleted");
    backend.settled().await;
    // Alternating, so that both see the same machine.
    let source = Source::Snapshot(snapshot);
    let (mut plain, mut copied) = (Vec::new(), Vec::new());
    for number in 0..OURS / 3 {
        for (times, kind, source) in [(&mut plain, "p", &image()), (&mut copied, "s", &source)] {
            let name = format!("{kind}{number}");
            times.push(make(backend, &name, source).await);
            backend
                .delete(&id(&name), Duration::ZERO)
                .await
                .expect("it can be deleted");
            backend.settled().await;
        }
    }
    plain.sort();
    copied.sort();
    println!(
        "from the snapshot / from the image = {:.2}",
        ratio(&copied, &plain)
    );
}

async fn write_into(backend: &Embedded) {
    let command = format!("dd if=/dev/urandom of=/root/data bs=1M count={WRITTEN_MIB} status=none");
    let body = format!("{{\"command\": \"{command}\"}}");
    let mut stream = backend
        .connect(&id("source"), Target::Control)
        .await
        .expect("its socket accepts");
    let request = format!(
        "POST /command HTTP/1.1\r\nHost: x\r\nX-EXECD-ACCESS-TOKEN: bench\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream
        .write_all(request.as_bytes())
        .await
        .expect("its socket takes a request");
    let mut answer = Vec::new();
    stream
        .read_to_end(&mut answer)
        .await
        .expect("execd answers");
}

async fn many_alive(backend: &Embedded) {
    let before = memory_available_kib();
    let mut times = Vec::new();
    for number in 0..ALIVE {
        times.push(make(backend, &format!("alive{number}"), &image()).await);
    }
    let used = before.saturating_sub(memory_available_kib());
    let average = |part: &[Duration]| part.iter().sum::<Duration>() / part.len() as u32;
    let (first, last) = (average(&times[..50]), average(&times[ALIVE - 50..]));
    println!(
        "{ALIVE} alive: {:.2} MiB each; the last 50 took {:.2} times the first 50",
        used as f64 / 1024.0 / ALIVE as f64,
        last.as_secs_f64() / first.as_secs_f64()
    );
    for number in 0..ALIVE {
        let name = format!("alive{number}");
        backend
            .delete(&id(&name), Duration::ZERO)
            .await
            .expect("it can be deleted");
    }
    backend.settled().await;
}

fn data_dir(backend: &Embedded) -> PathBuf {
    // Debug shows nothing but the directory.
    let text = format!("{backend:?}");
    let path = text.split('"').nth(1).unwrap_or_default();
    PathBuf::from(path)
}

fn memory_available_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"));
    let number = line.and_then(|line| line.split_ascii_whitespace().nth(1));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn samples(count: usize, mut once: impl FnMut()) -> Vec<Duration> {
    let mut times: Vec<Duration> = (0..count)
        .map(|_| {
            let start = Instant::now();
            once();
            start.elapsed()
        })
        .collect();
    times.sort();
    times
}

/// Starts the program that is PID 1 of our sandboxes and has it end at once: the floor.
fn bare_clone_and_exec() {
    assert!(
        others::quiet(Command::new(execd()).arg("--help")),
        "execd explains itself"
    );
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

fn ratio(of: &[Duration], to: &[Duration]) -> f64 {
    percentile(of, 50).as_secs_f64() / percentile(to, 50).as_secs_f64()
}

fn print_row(what: &str, times: &[Duration], bare: &[Duration]) {
    println!(
        "{what:36} p50 {:>10.2?} p99 {:>10.2?}  {:6.1} x bare",
        percentile(times, 50),
        percentile(times, 99),
        ratio(times, bare)
    );
}
