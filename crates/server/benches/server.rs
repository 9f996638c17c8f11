//! How fast the server is, over loopback with keep-alive clients: `make bench-server`.
//!
//! Starts `osb server` of the same build with a directory of its own and real sandboxes of the
//! image `host`. Prints what was measured beside what we promise; on a noisy machine only the
//! ratios within one run mean much, so nothing here fails.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on stops")]
#![expect(clippy::print_stdout, reason = "it prints")]

#[path = "server/client.rs"]
mod client;
#[path = "server/numbers.rs"]
mod numbers;
#[path = "server/subject.rs"]
mod subject;

use std::time::Duration;

use client::{Load, Sandbox, Way};
use numbers::{Samples, millis, report};
use subject::{Daemon, Subject};
use tokio::time::Instant;

/// Sandboxes made one after the other.
const SEQUENTIAL: usize = 200;

/// Sandboxes asked for at once.
const BURST: usize = 100;

/// Commands to compare the proxy with the daemon itself.
const COMMANDS: usize = 300;

/// How long requests are counted for, by each way.
const LOAD: Duration = Duration::from_secs(4);

/// How often the ways to a daemon take turns under load.
const TURNS: u32 = 4;

/// Connections that send requests at once.
const LOAD_CONNECTIONS: usize = 16;

/// The file that is downloaded, and one that fits into an answer's first packet.
const FILE: &str = "/tmp/osb-bench-large";
const FILE_BYTES: usize = 128 << 20;
const SMALL_FILE: &str = "/tmp/osb-bench-small";
const SMALL_FILE_BYTES: usize = 1000;

/// Sandboxes alive while lists are measured; OSB_BENCH_ALIVE changes it.
const ALIVE: usize = 1000;

/// How long an idle server is watched.
const IDLE: Duration = Duration::from_secs(5);

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let subject = Subject::start().await;
        println!("{:<58} {:>14} {:>14}", "what", "measured", "promised");
        // OSB_BENCH_ONLY names one part, for whoever works on it.
        let only = std::env::var("OSB_BENCH_ONLY").unwrap_or_default();
        let is_wanted = |part| only.is_empty() || only == part;
        if is_wanted("create") {
            create_to_output(&subject).await;
            burst(&subject).await;
        }
        if is_wanted("proxy") {
            proxy(&subject).await;
        }
        if is_wanted("many") {
            many(&subject).await;
        }
        subject.stop().await;
    });
}

async fn create_to_output(subject: &Subject) {
    let client = subject.client();
    let mut samples = Samples::default();
    for _ in 0..SEQUENTIAL {
        let began = Instant::now();
        let sandbox = client.create().await;
        sandbox.first_output().await;
        samples.add(began.elapsed());
        sandbox.delete().await;
    }
    report(
        "create to first output, p50",
        &millis(samples.percentile(50)),
        "8 ms",
    );
    report(
        "create to first output, p99",
        &millis(samples.percentile(99)),
        "30 ms",
    );
}

async fn burst(subject: &Subject) {
    let client = subject.client();
    let began = Instant::now();
    let creates = (0..BURST).map(|_| {
        let client = client.clone();
        tokio::spawn(async move { client.try_create().await })
    });
    let creates: Vec<_> = creates.collect();
    let mut sandboxes = Vec::new();
    let mut failed = 0;
    for create in creates {
        match create.await.unwrap() {
            Some(sandbox) => sandboxes.push(sandbox),
            None => failed += 1,
        }
    }
    let took = began.elapsed();
    report(
        &format!("{BURST} creates at once, all ready"),
        &millis(took),
        "800 ms",
    );
    report(
        &format!("{BURST} creates at once, failed"),
        &failed.to_string(),
        "0",
    );
    delete_all(sandboxes).await;
}

async fn delete_all(sandboxes: Vec<Sandbox>) {
    for sandbox in sandboxes {
        sandbox.delete().await;
    }
}

/// Through the proxy and straight to a daemon of the same build that listens on this machine's
/// loopback, as the server does. Beside them the sandbox's own daemon from within its network, which
/// has no firewall, and by its control socket: no client can do either, but less cannot be added.
async fn proxy(subject: &Subject) {
    let sandbox = subject.client().create_unlimited().await;
    let daemon = Daemon::start(subject.data_dir(), sandbox.token());
    let ways = [
        ("through the proxy", sandbox.proxied()),
        ("directly", daemon.way(&sandbox).await),
        ("inside its network", sandbox.inside(subject.data_dir())),
        ("by its control socket", sandbox.control(subject.data_dir())),
    ];
    let [(_, proxied), (_, direct), ..] = &ways;

    // Turn and turn about, so that the machine's moods meet both.
    let (mut through, mut straight) = (Samples::default(), Samples::default());
    for _ in 0..COMMANDS {
        for (way, samples) in [(proxied, &mut through), (direct, &mut straight)] {
            let began = Instant::now();
            way.command().await;
            samples.add(began.elapsed());
        }
    }
    let (through, straight) = (through.percentile(50), straight.percentile(50));
    report("command directly, p50", &millis(straight), "");
    report("command through the proxy, p50", &millis(through), "");
    let added = millis(through.saturating_sub(straight));
    report("the proxy adds, p50", &added, "0.3 ms");

    for way in [proxied, direct] {
        way.make_file(SMALL_FILE, SMALL_FILE_BYTES).await;
        way.make_file(FILE, FILE_BYTES).await;
    }
    for (what, load) in [
        ("commands", Load::Command),
        ("small files read", Load::Read(SMALL_FILE)),
        ("empty requests", Load::Ping),
    ] {
        let mut rates = [0.0; 4];
        for _ in 0..TURNS {
            for (rate, (_, way)) in rates.iter_mut().zip(&ways) {
                let window = LOAD / TURNS;
                let count = way.requests_per_second(load, LOAD_CONNECTIONS, window);
                *rate += count.await / f64::from(TURNS);
            }
        }
        shares(&format!("{what} a second"), &ways, rates, "70 %");
    }

    let mut rates = [0.0; 4];
    for _ in 0..TURNS {
        for (rate, (_, way)) in rates.iter_mut().zip(&ways) {
            let began = Instant::now();
            let bytes = way.download(FILE).await;
            assert_eq!(bytes, FILE_BYTES);
            let mebibytes = bytes as f64 / (1 << 20) as f64;
            *rate += mebibytes / began.elapsed().as_secs_f64() / f64::from(TURNS);
        }
    }
    shares("MiB a second", &ways, rates, "80 %");
    direct.remove_files(&[FILE, SMALL_FILE]).await;
    sandbox.delete().await;
}

fn shares(what: &str, ways: &[(&str, Way); 4], rates: [f64; 4], promised: &str) {
    for ((way, _), rate) in ways.iter().zip(rates) {
        report(&format!("{what}, {way}"), &format!("{rate:.0}"), "");
    }
    let share = format!("{:.0} %", 100.0 * rates[0] / rates[1]);
    report(
        &format!("{what}, share that the proxy keeps"),
        &share,
        promised,
    );
}

async fn many(subject: &Subject) {
    let alive = std::env::var("OSB_BENCH_ALIVE").map_or(ALIVE, |text| text.parse().unwrap());
    let client = subject.client();
    let mut sandboxes = Vec::with_capacity(alive);
    while sandboxes.len() < alive {
        sandboxes.push(client.create().await);
    }
    let path = format!("/v1/sandboxes/{}", sandboxes[alive / 2].id);
    for (what, path, promised) in [
        ("list", "/v1/sandboxes?pageSize=200", "5 ms"),
        ("get", path.as_str(), "0.5 ms"),
    ] {
        let mut samples = Samples::default();
        for _ in 0..COMMANDS {
            let began = Instant::now();
            client.get(path).await;
            samples.add(began.elapsed());
        }
        let what = format!("{what} with {alive} sandboxes, p50");
        report(&what, &millis(samples.percentile(50)), promised);
    }
    let (cpu, memory) = subject.watch_idle(IDLE).await;
    report(
        &format!("idle with {alive} sandboxes, of a core"),
        &format!("{cpu:.2} %"),
        "1 %",
    );
    let memory = format!("{:.0} MiB", memory as f64 / (1 << 20) as f64);
    report(
        &format!("memory with {alive} sandboxes"),
        &memory,
        "100 MiB",
    );
    delete_all(sandboxes).await;
}
