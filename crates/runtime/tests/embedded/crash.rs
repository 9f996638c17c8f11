//! Killing the spawner and the server, at bad moments.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use lifecycle::backend::{Backend, Event, ObservedState};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use crate::client::{ping, run};
use crate::deadline::waiting_for;
use crate::stage::{SOON, Stage, config, create, delete, id, processes_of, settled, soon, spec};

/// The spawners that this process started.
fn spawners() -> Vec<Pid> {
    let me = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let is_ours = status
            .lines()
            .any(|l| l.strip_prefix("PPid:\t") == Some(me.as_str()));
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if is_ours
            && command
                .split(|b| *b == 0)
                .any(|argument| argument == b"spawner")
        {
            found.extend(Pid::from_raw(pid));
        }
    }
    found
}

/// Waits for what a process descriptor tells: IN when the process has ended, HUP when its parent
/// has also taken note.
async fn is_soon(process: OwnedFd, what: PollFlags) -> bool {
    let waiting = tokio::task::spawn_blocking(move || {
        let limit = rustix::time::Timespec::try_from(SOON).unwrap();
        poll(&mut [PollFd::new(&process, what)], Some(&limit)).unwrap()
    });
    waiting.await.unwrap() == 1
}

pub(crate) async fn sandboxes_survive_the_spawner_and_their_end_is_known(stage: Stage) {
    let backend = stage.open().await;
    let mut events = backend.events();
    let mut waits = spec("waits");
    // Whoever comes first makes the pipe; opening it waits for the other.
    let script = "mkfifo /tmp/end 2>/dev/null; read code < /tmp/end; exit $code";
    waits.entrypoint = Some(["sh", "-c", script].map(str::to_owned).to_vec());
    create(&backend, waits).await.unwrap();
    for spawner in spawners() {
        let ended = pidfd_open(spawner, PidfdFlags::empty()).unwrap();
        rustix::process::kill_process(spawner, Signal::KILL).unwrap();
        assert!(is_soon(ended, PollFlags::IN).await, "a spawner lives on");
    }
    assert!(
        ping(&backend, "waits").await,
        "a sandbox died with the spawner"
    );
    create(&backend, spec("next"))
        .await
        .expect("a new spawner is started");
    assert!(ping(&backend, "next").await);
    run(
        &backend,
        "waits",
        "mkfifo /tmp/end 2>/dev/null; echo 7 > /tmp/end",
    )
    .await;
    let event = soon("the end of sandbox waits to be told", events.recv()).await;
    let Ok(Event::Exited { exit, .. }) = event else {
        panic!("{event:?}")
    };
    // Its parent is gone; since Linux 6.15 the kernel tells anybody, before that nobody knows.
    if exit.code.is_some() || exit.signal.is_some() {
        assert_eq!((exit.code, exit.signal), (Some(7), None));
    }
    delete(&backend, "waits").await;
    delete(&backend, "next").await;
    settled(&backend).await;
    assert_eq!(stage.leftovers(), Vec::<String>::new());
}

pub(crate) async fn an_end_while_no_server_runs_is_known_to_the_next(stage: Stage) {
    let mut server = Doomed::start(&stage.data_dir());
    // Acknowledged as soon as it runs execd, which may not have got as far as listening to
    // signals: a TERM that comes this early must not be lost.
    server.ask("create gate");
    server.kill();
    let pid = Pid::from_raw(stage.first_process("gate"));
    let pid = pid.expect("the sandbox outlives its server");
    let ended = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    let is_gone = is_soon(ended, PollFlags::HUP).await;
    assert!(is_gone, "waited {SOON:?} for a sandbox to end by TERM");
    let backend = stage.open().await;
    let observed = backend.inspect(&id("gate")).await.unwrap();
    let ObservedState::Exited(exit) = observed.state else {
        panic!("{:?}", observed.state)
    };
    assert!(
        exit.code.is_some() || exit.signal.is_some(),
        "its spawner wrote it down: {exit:?}"
    );
    assert_eq!(observed.labels["made-by"], "test");
    delete(&backend, "gate").await;
    settled(&backend).await;
    assert_eq!(stage.leftovers(), Vec::<String>::new());
}

/// Kills, each after a number of creations and deletions that differs.
const KILLS: usize = 12;
const OPERATIONS: usize = 500;

pub(crate) async fn the_server_can_be_killed_at_any_moment(stage: Stage) {
    let mut acknowledged: BTreeSet<String> = BTreeSet::new();
    let mut number = 0;
    for kill in 0..KILLS {
        let mut server = Doomed::start(&stage.data_dir());
        let known: BTreeSet<String> = server.list();
        assert_eq!(known, acknowledged, "after {kill} kills");
        for step in 0..OPERATIONS / KILLS {
            number += 1;
            server.ask(&format!("create s{number}"));
            acknowledged.insert(format!("s{number}"));
            if step % 4 != 0 {
                let victim = acknowledged
                    .iter()
                    .next()
                    .cloned()
                    .expect("one was just made");
                server.ask(&format!("delete {victim}"));
                acknowledged.remove(&victim);
            }
        }
        // In flight when the blow falls: neither was acknowledged, so either may have happened.
        let victim = acknowledged
            .iter()
            .next_back()
            .cloned()
            .expect("some are left");
        server.tell(&format!("create late{kill}"));
        server.tell(&format!("delete {victim}"));
        server.read_some(kill % 3);
        server.kill();
        let mut next = Doomed::start(&stage.data_dir());
        let found = next.list();
        acknowledged.remove(&victim);
        let mut expected = acknowledged.clone();
        expected.extend(
            found
                .iter()
                .filter(|n| n.starts_with("late") || **n == victim)
                .cloned(),
        );
        assert_eq!(found, expected, "something was lost or came from nowhere");
        acknowledged = expected;
        for name in &acknowledged {
            assert_eq!(
                next.ask(&format!("ping {name}")),
                "ok",
                "{name} was adopted but is deaf"
            );
        }
        next.kill();
    }
    let backend = stage.open().await;
    for name in &acknowledged {
        delete(&backend, name).await;
    }
    settled(&backend).await;
    assert_eq!(stage.leftovers(), Vec::<String>::new());
    for name in acknowledged {
        assert_eq!(processes_of(&name), Vec::<i32>::new());
    }
}

/// A server in a process of its own that does as it is told and can be killed.
struct Doomed {
    process: Child,
    input: ChildStdin,
    output: Receiver<String>,
    asked: String,
}

impl Doomed {
    fn start(data_dir: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .arg("doomed-server")
            .arg(data_dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let printed = BufReader::new(process.stdout.take().unwrap());
        // A pipe cannot be read with a deadline, a channel can.
        let (line, output) = sync_channel(1);
        std::thread::spawn(move || {
            for text in printed.lines().map_while(Result::ok) {
                if line.send(text).is_err() {
                    break;
                }
            }
        });
        let mut server = Self {
            process,
            input,
            output,
            asked: "start".to_owned(),
        };
        assert_eq!(server.read(), "ready");
        server
    }

    fn tell(&mut self, command: &str) {
        command.clone_into(&mut self.asked);
        writeln!(self.input, "{command}").unwrap();
    }

    fn read(&mut self) -> String {
        waiting_for(format!("the doomed server to answer {}", self.asked));
        let line = self.output.recv_timeout(SOON);
        line.unwrap_or_else(|why| panic!("the server did not answer {}: {why}", self.asked))
    }

    fn read_some(&mut self, lines: usize) {
        for _ in 0..lines {
            self.read();
        }
    }

    fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        let answer = self.read();
        assert!(answer.starts_with("ok"), "{command}: {answer}");
        answer
    }

    fn list(&mut self) -> BTreeSet<String> {
        let answer = self.ask("list");
        answer
            .split_whitespace()
            .skip(1)
            .map(str::to_owned)
            .collect()
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The other side of [`Doomed`].
pub(crate) fn doomed_server(arguments: &[String]) -> ! {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let backend = runtime::Embedded::open(config(Path::new(&arguments[0])))
            .await
            .unwrap();
        println!("ready");
        for line in std::io::stdin().lines() {
            let line = line.unwrap();
            let answer = match line.split_once(' ') {
                Some(("create", name)) => {
                    let made = backend.create(spec(name)).await;
                    made.map_or_else(|error| format!("{error:?}"), |_| "ok".to_owned())
                }
                Some(("delete", name)) => {
                    let deleted = backend.delete(&id(name), Duration::ZERO).await;
                    deleted.map_or_else(|error| format!("{error:?}"), |()| "ok".to_owned())
                }
                Some(("ping", name)) => (if ping(&backend, name).await {
                    "ok"
                } else {
                    "deaf"
                })
                .to_owned(),
                _ => {
                    let all = backend.list().await.unwrap();
                    let names: Vec<String> = all.iter().map(|o| o.id.to_string()).collect();
                    format!("ok {}", names.join(" "))
                }
            };
            println!("{answer}");
        }
    });
    std::process::exit(0)
}
