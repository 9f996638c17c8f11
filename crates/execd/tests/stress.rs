//! Ten thousand commands with random output, disconnects, timeouts and interrupts: every
//! exit code and every byte right, and nothing left over.

#![expect(
    clippy::unwrap_used,
    reason = "a failed unwrap in a test is the test's failure"
)]

mod daemon;
#[path = "exec/events.rs"]
#[expect(
    dead_code,
    reason = "shared with the tests of single commands, which ask for more"
)]
mod events;

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};

use daemon::Daemon;
use events::{Outcome, open, run, start};

const COMMANDS: u64 = 10_000;
const AT_ONCE: u64 = 16;

/// How long the daemon may take to notice that connections and processes have gone.
const SETTLE: Duration = Duration::from_secs(90);

/// A small generator, so that a failure can be repeated from its printed seed.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }
}

#[tokio::test]
async fn ten_thousand_commands() {
    let seed = std::env::var("STRESS_SEED").map_or(7, |seed| seed.parse().unwrap());
    println!("STRESS_SEED={seed}");
    let daemon = Arc::new(Daemon::start());
    run(&daemon, &json!({"command": "seq 100000"})).await;
    let before = descriptors(&daemon);
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..AT_ONCE {
        let daemon = Arc::clone(&daemon);
        workers.spawn(async move {
            let mut random = Random(seed * 1000 + worker);
            for _ in 0..COMMANDS / AT_ONCE {
                one(&daemon, &mut random).await;
            }
        });
    }
    while let Some(done) = workers.join_next().await {
        done.unwrap();
    }
    nothing_is_left(&daemon, before).await;
    let list = daemon.get("/command").await.json();
    assert!(
        list.as_array()
            .unwrap()
            .iter()
            .all(|command| command["running"] == false)
    );
}

async fn one(daemon: &Daemon, random: &mut Random) {
    let (lines, errors) = (random.next(40), random.next(5));
    let code = random.next(256);
    let number = random.next(1_000_000);
    let command = format!(
        "i=0; while [ $i -lt {lines} ]; do echo out {number} $i; i=$((i+1)); done; \
         i=0; while [ $i -lt {errors} ]; do echo err {number} $i >&2; i=$((i+1)); done; printf end; exit {code}"
    );
    let text = |kind: &str, count: u64| -> String {
        (0..count)
            .map(|i| format!("{kind} {number} {i}\n"))
            .collect()
    };
    let expected = (
        text("out", lines) + "end",
        text("err", errors),
        code.to_string(),
    );
    match random.next(10) {
        0..5 => {
            let outcome = run(daemon, &json!({"command": command})).await;
            assert_eq!((outcome.stdout, outcome.stderr, outcome.code), expected);
        }
        5..7 => {
            let (id, mut stream) = start(daemon, &json!({"command": command})).await;
            let mut events = Vec::new();
            for _ in 0..random.next(lines + 2) {
                let Some(event) = stream.next().await else {
                    break;
                };
                events.push(event);
            }
            drop(stream);
            let after = events
                .last()
                .map_or(1, |event| event["seq"].as_u64().unwrap());
            events.extend(resume(daemon, &id, after).await);
            let outcome = Outcome::new(id, events);
            assert_eq!((outcome.stdout, outcome.stderr, outcome.code), expected);
        }
        7 => {
            let body = json!({"command": format!("{command} & sleep 1000"), "timeout": 1 + random.next(60)});
            let outcome = run(daemon, &body).await;
            assert_eq!(outcome.code, "-1");
            assert!(expected.0.starts_with(&outcome.stdout), "{outcome:?}");
        }
        8 => {
            let body = json!({"command": format!("trap 'exit {code}' TERM; echo up; while :; do sleep 0.01; done")});
            let (id, mut stream) = start(daemon, &body).await;
            assert_eq!(stream.next().await.unwrap()["text"], "up\n");
            let answer = daemon
                .call(Method::DELETE, &format!("/command?id={id}"), "")
                .await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(Outcome::new(id, stream.rest().await).code, expected.2);
        }
        _ => {
            let started = run(daemon, &json!({"command": command, "background": true})).await;
            let outcome = Outcome::new(started.id.clone(), resume(daemon, &started.id, 1).await);
            assert_eq!(
                (&outcome.stdout, &outcome.stderr, &outcome.code),
                (&expected.0, &expected.1, &expected.2)
            );
            let logs = daemon.get(&format!("/command/{}/logs", started.id)).await;
            assert_eq!(logs.body.len(), expected.0.len() + expected.1.len());
            let status = daemon
                .get(&format!("/command/status/{}", started.id))
                .await
                .json();
            assert_eq!(status["exit_code"].to_string(), expected.2);
        }
    }
}

async fn resume(daemon: &Daemon, id: &str, after: u64) -> Vec<Value> {
    let uri = format!("/command/{id}/stream?after={after}");
    open(daemon, Method::GET, &uri, &Value::Null)
        .await
        .rest()
        .await
}

/// Sockets, and everything else.
fn descriptors(daemon: &Daemon) -> (usize, usize) {
    let entries = fs::read_dir(format!("/proc/{}/fd", daemon.pid()))
        .unwrap()
        .flatten();
    let targets = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    let (sockets, others): (Vec<_>, Vec<_>) =
        targets.partition(|target| target.to_string_lossy().starts_with("socket:"));
    (sockets.len(), others.len())
}

fn children(daemon: &Daemon) -> String {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    tasks
        .flatten()
        .map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default())
        .collect()
}

/// Each request gives the daemon a turn to notice; no time is waited for its own sake.
async fn nothing_is_left(daemon: &Daemon, before: (usize, usize)) {
    let deadline = Instant::now() + SETTLE;
    loop {
        assert_eq!(daemon.get("/ping").await.status, 200);
        let ((sockets, others), children) = (descriptors(daemon), children(daemon));
        // The connection that asks may still be open.
        if sockets <= before.0 + 1 && others <= before.1 && children.is_empty() {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{sockets} sockets and {others} other descriptors (before: {before:?}), children: {children:?}"
        );
    }
}
