//! `POST /command` and everything that is asked about a command by its id.

use std::fs;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::daemon::{Answer, Daemon};
use crate::events::{Outcome, PATIENCE, open, open_as, run, start};

fn mkfifo(daemon: &Daemon, name: &str) -> String {
    let path = daemon.path(name);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o666),
        0,
    )
    .unwrap();
    path.to_str().unwrap().to_owned()
}

/// Opening a fifo waits for the other side, so this returns when the command is there.
async fn release(fifo: &str) {
    let fifo = fifo.to_owned();
    tokio::time::timeout(
        PATIENCE,
        tokio::task::spawn_blocking(move || fs::write(fifo, "go\n")),
    )
    .await
    .unwrap()
    .unwrap()
    .unwrap();
}

async fn wait_for(fifo: &str) -> String {
    let fifo = fifo.to_owned();
    tokio::time::timeout(
        PATIENCE,
        tokio::task::spawn_blocking(move || fs::read_to_string(fifo)),
    )
    .await
    .unwrap()
    .unwrap()
    .unwrap()
}

/// Gone, or a zombie that somebody else has to collect: a killed process is gone when the kernel gets to it, which its pidfd tells.
pub(crate) fn has_ended(pid: &str) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    let Ok(pidfd) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) else {
        return true;
    };
    let patience = Timespec::try_from(PATIENCE).unwrap();
    let mut watched = [PollFd::new(&pidfd, PollFlags::IN)];
    poll(&mut watched, Some(&patience)) == Ok(1)
}

async fn status(daemon: &Daemon, id: &str) -> Value {
    let answer = daemon.get(&format!("/command/status/{id}")).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    answer.json()
}

/// The logs once the daemon has read so many bytes. What a process has printed may still be in the
/// pipe, even when the process has ended; each request gives the daemon a turn.
async fn logs_up_to(daemon: &Daemon, id: &str, bytes: usize) -> Answer {
    let cursor = bytes.to_string();
    loop {
        let logs = daemon.get(&format!("/command/{id}/logs")).await;
        if logs.headers["execd-commands-tail-cursor"] == *cursor {
            return logs;
        }
        run(daemon, &json!({"argv": ["true"]})).await;
    }
}

#[tokio::test]
async fn events_come_in_order_and_keep_line_endings() {
    let daemon = Daemon::start();
    let mut stream = open(
        &daemon,
        Method::POST,
        "/command",
        &json!({"command": "printf 'a\\n\\nb\\r\\nc'; echo e >&2; exit 3"}),
    )
    .await;
    let first = stream.any().await.unwrap();
    assert_eq!((&first["type"], &first["seq"]), (&json!("init"), &json!(1)));
    let second = stream.any().await.unwrap();
    assert_eq!(
        (&second["type"], &second["text"]),
        (&json!("ping"), &json!("pong"))
    );
    let outcome = Outcome::new(String::new(), stream.rest().await);
    assert_eq!(outcome.texts("stdout"), ["a\n", "\n", "b\r\n", "c"]);
    assert_eq!(outcome.texts("stderr"), ["e\n"]);
    assert_eq!(outcome.code, "3");
    let last = outcome.events.last().unwrap();
    assert_eq!(last["error"]["traceback"], json!(["exit status 3"]));
    let numbers: Vec<u64> = outcome
        .events
        .iter()
        .map(|e| e["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (2..=7).collect::<Vec<_>>());
    assert!(outcome.events.iter().all(|e| e["timestamp"].is_i64()));
}

#[tokio::test]
async fn old_clients_get_one_stripped_event_per_line() {
    let daemon = Daemon::start();
    let body = json!({"command": "printf 'a\\n\\nb\\n\\n\\nhalf '; sleep 0.05; printf 'line'"});
    let mut stream = open_as(
        &daemon,
        Method::POST,
        "/command",
        &body,
        "OpenSandbox-Python-SDK/0.1.10",
    )
    .await;
    assert_eq!(stream.next().await.unwrap()["seq"], Value::Null);
    let outcome = Outcome::new(String::new(), stream.rest().await);
    assert_eq!(
        outcome.texts("stdout"),
        ["a", "\n", "b", "\n", "\n", "half line"]
    );
}

#[tokio::test]
async fn a_prompt_without_newline_is_seen_and_can_be_answered() {
    let daemon = Daemon::start();
    let body =
        json!({"command": "printf 'name? '; read x; echo \"hi $x\"; cat", "stdin_open": true});
    let (id, mut stream) = start(&daemon, &body).await;
    assert_eq!(stream.next().await.unwrap()["text"], "name? ");
    let answer = daemon
        .call(Method::POST, &format!("/command/{id}/stdin"), "bob\n")
        .await;
    assert_eq!(answer.json(), json!({"written": 4}));
    assert_eq!(stream.next().await.unwrap()["text"], "hi bob\n");
    daemon
        .call(
            Method::POST,
            &format!("/command/{id}/stdin?close=true"),
            "rest",
        )
        .await;
    assert_eq!(Outcome::new(id.clone(), stream.rest().await).stdout, "rest");
    let late = daemon
        .call(Method::POST, &format!("/command/{id}/stdin"), "x")
        .await;
    assert_eq!(
        (late.status, late.code().as_str()),
        (StatusCode::CONFLICT, "STDIN_WRITE_FAILED")
    );
}

#[tokio::test]
async fn a_character_in_two_pieces_is_one_character() {
    let daemon = Daemon::start();
    let body = json!({"command": "printf 'a\\303'; read x; printf '\\251'", "stdin_open": true});
    let (id, mut stream) = start(&daemon, &body).await;
    assert_eq!(stream.next().await.unwrap()["text"], "a");
    daemon
        .call(
            Method::POST,
            &format!("/command/{id}/stdin?close=true"),
            "\n",
        )
        .await;
    assert_eq!(Outcome::new(id, stream.rest().await).stdout, "é");
}

#[tokio::test]
async fn input_in_the_request_is_written_and_closed() {
    let daemon = Daemon::start();
    let big = "x".repeat(300_000);
    let outcome = run(&daemon, &json!({"argv": ["wc", "-c"], "stdin": big})).await;
    assert_eq!(outcome.stdout.trim(), "300000");
    // Nobody reads it: no harm.
    assert_eq!(
        run(&daemon, &json!({"argv": ["true"], "stdin": big}))
            .await
            .code,
        "0"
    );
}

#[tokio::test]
async fn cwd_environment_and_the_file_of_variables_are_applied() {
    let daemon = Daemon::start_with(&["EXECD_ENVS={dir}/envs", "BASE=daemon", "OVER=daemon"]);
    fs::write(
        daemon.path("envs"),
        "A='single $HOME'\nB=\"it's \\\"b\\\"\\n$BASE\"\nOVER=file\nC='two\nlines'\n",
    )
    .unwrap();
    let body = json!({
        "command": "pwd; printf '%s|' \"$A\" \"$B\" \"$C\" \"$OVER\" \"$BASE\" \"$R\"",
        "cwd": "$BASE_DIR/sub", "envs": {"R": "request", "BASE_DIR": daemon.directory.path()},
    });
    fs::create_dir(daemon.path("sub")).unwrap();
    let outcome = run(&daemon, &body).await;
    let expected = format!(
        "{}\nsingle $HOME|it's \"b\"\ndaemon|two\nlines|file|daemon|request|",
        daemon.path("sub").display()
    );
    assert_eq!(outcome.stdout, expected);
    let over = run(
        &daemon,
        &json!({"command": "echo $OVER", "envs": {"OVER": "request"}}),
    )
    .await;
    assert_eq!(over.stdout, "request\n");
}

#[tokio::test]
async fn another_user_gets_its_groups_and_home() {
    crate::init::needs_root();
    let daemon = Daemon::start();
    let body = json!({"command": "id -u; id -g; echo $HOME; umask >/dev/null; touch /root/x 2>/dev/null || echo refused", "uid": 1});
    let outcome = run(&daemon, &body).await;
    assert_eq!(outcome.stdout, "1\n1\n/usr/sbin\nrefused\n");
    let unknown = run(
        &daemon,
        &json!({"argv": ["id", "-G"], "uid": 54321, "gid": 54322}),
    )
    .await;
    assert_eq!(unknown.stdout, "54322\n");
}

/// Runs a command into its timeout, with more time when the timeout came before the command had got
/// as far as the test wants it: a busy machine may take long to start a shell.
pub(crate) async fn run_until_timeout(
    daemon: &Daemon,
    mut body: Value,
    is_far_enough: impl Fn(&Outcome) -> bool,
) -> Outcome {
    let mut outcome = None;
    for timeout_ms in [300, 3000, 30_000] {
        body["timeout"] = json!(timeout_ms);
        let ended = run(daemon, &body).await;
        if is_far_enough(&ended) {
            return ended;
        }
        outcome = Some(ended);
    }
    panic!("not even half a minute was enough: {outcome:?}");
}

#[tokio::test]
async fn a_timeout_kills_the_whole_group() {
    let daemon = Daemon::start();
    let body = json!({"command": "sleep 1000 & echo $!; echo $$; wait"});
    let has_spoken = |outcome: &Outcome| outcome.stdout.lines().count() == 2;
    let outcome = run_until_timeout(&daemon, body, has_spoken).await;
    assert_eq!(outcome.code, "-1");
    assert_eq!(
        outcome.events.last().unwrap()["error"]["traceback"][0],
        "signal: killed"
    );
    for pid in outcome.stdout.lines() {
        assert!(has_ended(pid), "{pid} lives");
    }
    let status = status(&daemon, &outcome.id).await;
    assert_eq!(
        (&status["exit_code"], &status["running"]),
        (&json!(-1), &json!(false))
    );
}

#[tokio::test]
async fn an_interrupt_ends_the_group_gently_then_hard() {
    let daemon = Daemon::start();
    let gentle =
        json!({"command": "trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.01; done"});
    let (id, mut stream) = start(&daemon, &gentle).await;
    assert_eq!(stream.next().await.unwrap()["text"], "up\n");
    let answer = daemon
        .call(Method::DELETE, &format!("/command?id={id}"), "")
        .await;
    assert_eq!(answer.status, StatusCode::OK);
    let outcome = Outcome::new(id.clone(), stream.rest().await);
    assert_eq!(
        (outcome.stdout.as_str(), outcome.code.as_str()),
        ("bye\n", "9")
    );
    let again = daemon
        .call(Method::DELETE, &format!("/command?id={id}"), "")
        .await;
    assert_eq!(
        (again.status, again.code().as_str()),
        (StatusCode::CONFLICT, "RUNTIME_ERROR")
    );

    let deaf = json!({"command": "trap '' TERM; echo up; while :; do sleep 1; done"});
    let (id, mut stream) = start(&daemon, &deaf).await;
    stream.next().await.unwrap();
    assert_eq!(
        daemon
            .call(Method::DELETE, &format!("/command?id={id}"), "")
            .await
            .status,
        200
    );
    assert_eq!(Outcome::new(id, stream.rest().await).code, "-1");
}

#[tokio::test]
async fn a_background_command_answers_at_once_and_can_be_followed() {
    let daemon = Daemon::start();
    let fifo = mkfifo(&daemon, "go");
    let body = json!({"command": format!("echo one; read x < {fifo}; echo two >&2; exit 4"), "background": true});
    let started = run(&daemon, &body).await;
    assert_eq!(started.code, "0");
    assert_eq!(status(&daemon, &started.id).await["running"], true);
    let mut stream = open(
        &daemon,
        Method::GET,
        &format!("/command/{}/stream", started.id),
        &Value::Null,
    )
    .await;
    assert_eq!(stream.next().await.unwrap()["type"], "init");
    // The two outputs are two pipes: their order is known only when one was read before the other
    // is written.
    assert_eq!(stream.next().await.unwrap()["text"], "one\n");
    release(&fifo).await;
    let followed = Outcome::new(started.id.clone(), stream.rest().await);
    assert_eq!(
        (followed.stdout.as_str(), followed.stderr.as_str()),
        ("", "two\n")
    );
    assert_eq!(followed.code, "4");
    let status = status(&daemon, &started.id).await;
    assert_eq!(status["exit_code"], 4);
    assert!(status["finished_at"].is_string());

    let logs = daemon.get(&format!("/command/{}/logs", started.id)).await;
    assert_eq!(logs.text(), "one\ntwo\n");
    assert_eq!(logs.headers["execd-commands-tail-cursor"], "8");
    let rest = daemon
        .get(&format!("/command/{}/logs?cursor=4", started.id))
        .await;
    assert_eq!(rest.text(), "two\n");
    assert_eq!(
        daemon
            .get(&format!("/command/{}/logs?cursor=8", started.id))
            .await
            .text(),
        ""
    );
    assert_eq!(
        daemon
            .get(&format!("/command/{}/logs?cursor=x", started.id))
            .await
            .text(),
        "one\ntwo\n"
    );
}

#[tokio::test]
async fn a_daemon_that_holds_the_output_neither_delays_the_end_nor_dies() {
    let daemon = Daemon::start();
    let (go, done) = (mkfifo(&daemon, "go"), mkfifo(&daemon, "done"));
    let body = json!({"command": format!(
        "(read x < {go}; echo late; echo alive > {done}; exec sleep 1000) & echo $!; echo now"
    )});
    let outcome = run(&daemon, &body).await;
    let pid = outcome.stdout.lines().next().unwrap().to_owned();
    assert_eq!(outcome.stdout, format!("{pid}\nnow\n"));
    assert!(
        fs::exists(format!("/proc/{pid}")).unwrap(),
        "the stream waited for the daemon"
    );
    release(&go).await;
    assert_eq!(wait_for(&done).await, "alive\n", "printing did not kill it");
    let whole = format!("{pid}\nnow\nlate\n");
    let logs = logs_up_to(&daemon, &outcome.id, whole.len()).await;
    assert_eq!(logs.text(), whole);
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
}

#[tokio::test]
async fn a_client_that_leaves_changes_nothing() {
    let daemon = Daemon::start();
    let fifo = mkfifo(&daemon, "go");
    let (id, stream) = start(
        &daemon,
        &json!({"command": format!("read x < {fifo}; echo after; exit 7")}),
    )
    .await;
    drop(stream);
    assert_eq!(status(&daemon, &id).await["running"], true);
    release(&fifo).await;
    let uri = format!("/command/{id}/stream?after=1");
    let outcome = Outcome::new(
        id.clone(),
        open(&daemon, Method::GET, &uri, &Value::Null)
            .await
            .rest()
            .await,
    );
    assert_eq!(
        (outcome.stdout.as_str(), outcome.code.as_str()),
        ("after\n", "7")
    );
}

#[tokio::test]
async fn a_broken_stream_is_resumed_exactly_once() {
    let daemon = Daemon::start();
    // More than memory holds, so that files are read too.
    let (id, mut stream) = start(&daemon, &json!({"command": "seq 200000; echo end >&2"})).await;
    let (mut stdout, mut seen, mut last_kind) = (String::new(), 1, String::new());
    for cut in [1usize, 5000, 77_777, usize::MAX] {
        for _ in 0..cut {
            let Some(event) = stream.next().await else {
                break;
            };
            seen += 1;
            assert_eq!(event["seq"], seen, "numbers have no gap and no repetition");
            last_kind = event["type"].as_str().unwrap().to_owned();
            if event["type"] == "stdout" {
                stdout.push_str(event["text"].as_str().unwrap());
            }
        }
        drop(stream);
        let uri = format!("/command/{id}/events?after={seen}");
        stream = open(&daemon, Method::GET, &uri, &Value::Null).await;
    }
    assert_eq!(last_kind, "execution_complete");
    assert!(
        stream.next().await.is_none(),
        "nothing follows the last event"
    );
    let expected: String = (1..=200_000).map(|n| format!("{n}\n")).collect();
    assert!(stdout == expected, "every byte once, in order");
}

#[tokio::test]
async fn output_over_the_limit_keeps_the_newest_and_says_so() {
    let daemon = Daemon::start();
    let outcome = run(&daemon, &json!({"command": "head -c 40000000 /dev/zero | tr '\\0' x; echo end", "background": true})).await;
    let uri = format!("/command/{}/stream?after=1", outcome.id);
    let logs = logs_up_to(&daemon, &outcome.id, 40_000_004).await;
    let gone = daemon.get(&uri).await;
    assert_eq!(
        (gone.status, gone.code().as_str()),
        (StatusCode::GONE, "EVENT_GONE")
    );
    let start: usize = logs.headers["execd-commands-start-cursor"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(start > 0);
    assert_eq!(logs.body.len(), 40_000_004 - start);
    assert!(logs.body.len() > 15 * 1024 * 1024, "{}", logs.body.len());
    assert!(logs.body.ends_with(b"xend\n"));
}

#[tokio::test]
async fn a_client_that_does_not_read_stalls_only_its_command() {
    let daemon = Daemon::start();
    run(&daemon, &json!({"command": "seq 20000"})).await;
    let before = resident_bytes(&daemon);
    let (id, stalled) = start(&daemon, &json!({"command": "yes"})).await;
    // Others are served while it is stalled, and while they are the flood would have grown
    // the daemon by gigabytes.
    for _ in 0..200 {
        assert_eq!(
            run(&daemon, &json!({"command": "echo ok"})).await.stdout,
            "ok\n"
        );
    }
    let grown = resident_bytes(&daemon).saturating_sub(before);
    assert!(grown < 8 * 1024 * 1024, "the daemon grew by {grown} bytes");
    assert_eq!(status(&daemon, &id).await["running"], true);
    drop(stalled);
    assert_eq!(
        daemon
            .call(Method::DELETE, &format!("/command?id={id}"), "")
            .await
            .status,
        200
    );
}

fn resident_bytes(daemon: &Daemon) -> u64 {
    let statm = fs::read_to_string(format!("/proc/{}/statm", daemon.pid())).unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[tokio::test]
async fn a_program_that_does_not_start_says_why() {
    let daemon = Daemon::start();
    let missing = run(&daemon, &json!({"argv": ["no-such-program"]})).await;
    assert!(missing.code.contains("no-such-program"), "{}", missing.code);
    assert_eq!(status(&daemon, &missing.id).await["exit_code"], 255);
    let plain = daemon.path("plain");
    // By a command and not here: another test that starts a program at this moment would hold the
    // file open for writing, and the kernel says then that it is busy.
    let write = r#"printf 'not a program' > "$0" && chmod 755 "$0""#;
    let written = run(&daemon, &json!({"argv": ["sh", "-c", write, plain]})).await;
    assert_eq!(written.code, "0");
    let format = run(&daemon, &json!({"argv": [plain]})).await;
    assert!(format.code.contains("Exec format error"), "{}", format.code);
    let background = run(
        &daemon,
        &json!({"argv": ["no-such-program"], "background": true}),
    )
    .await;
    assert!(
        background.code.contains("no-such-program"),
        "a failed start is not a success"
    );
}

#[tokio::test]
async fn commands_inherit_nothing_of_the_daemon() {
    let daemon = Daemon::start();
    let outcome = run(&daemon, &json!({"command": "ls /proc/self/fd | wc -l; cat /proc/self/status | grep -E 'Sig(Blk|Ign)'"})).await;
    // 0, 1, 2, and the one that ls itself opened.
    assert_eq!(
        outcome.stdout,
        "4\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"
    );
}

#[tokio::test]
async fn binary_output_and_closed_output_are_no_trouble() {
    let daemon = Daemon::start();
    let binary = run(&daemon, &json!({"command": "head -c 100000 /dev/urandom"})).await;
    assert_eq!(binary.code, "0");
    let logs = daemon.get(&format!("/command/{}/logs", binary.id)).await;
    assert_eq!(logs.body.len(), 100_000, "logs are the bytes themselves");
    let closed = run(
        &daemon,
        &json!({"command": "exec 1>&- 2>&-; sleep 0.1; exit 5"}),
    )
    .await;
    assert_eq!(closed.code, "5");
    let killed = run(&daemon, &json!({"command": "kill -9 $$"})).await;
    assert_eq!(killed.code, "-1");
    let line = run(
        &daemon,
        &json!({"command": "head -c 300000 /dev/zero | tr '\\0' y"}),
    )
    .await;
    assert_eq!(line.stdout.len(), 300_000);
    assert!(
        line.events
            .iter()
            .all(|e| e["text"].as_str().map_or(0, str::len) <= 65536)
    );
}

#[tokio::test]
async fn the_limit_of_commands_is_named() {
    let daemon = Daemon::start();
    let body = json!({"argv": ["sleep", "1000"], "background": true}).to_string();
    let mut started = 0;
    let refused = loop {
        let answer = daemon.call(Method::POST, "/command", body.clone()).await;
        if answer.status != StatusCode::OK {
            break answer;
        }
        started += 1;
        assert!(started <= 512);
    };
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.code(), "LIMIT_REACHED");
    assert!(
        refused.text().contains("COMMANDS = 512"),
        "{}",
        refused.text()
    );
    let list = daemon.get("/command").await.json();
    assert_eq!(list.as_array().unwrap().len(), 512);
    for command in list.as_array().unwrap() {
        let uri = format!("/command?id={}", command["id"].as_str().unwrap());
        assert_eq!(daemon.call(Method::DELETE, &uri, "").await.status, 200);
    }
    assert_eq!(run(&daemon, &json!({"argv": ["true"]})).await.code, "0");
}

#[tokio::test]
async fn the_token_is_wanted_everywhere_and_found_nowhere() {
    let daemon = Daemon::start_with(&["EXECD_ACCESS_TOKEN=s3cret-token"]);
    for uri in ["/ping", "/command/status/x", "/nowhere", "/proxy/1/"] {
        let answer = daemon.get(uri).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
        assert_eq!(
            answer.text(),
            r#"{"error":"Unauthorized: invalid or missing header X-EXECD-ACCESS-TOKEN"}"#
        );
    }
    let request = |uri: &str, body: String| {
        http::Request::builder()
            .method(if body.is_empty() {
                Method::GET
            } else {
                Method::POST
            })
            .uri(uri)
            .header("host", "execd")
            .header("X-EXECD-ACCESS-TOKEN", "s3cret-token")
            .body(http_body_util::Full::new(bytes::Bytes::from(body)))
            .unwrap()
    };
    assert_eq!(
        daemon.send(request("/ping", String::new())).await.status,
        StatusCode::OK
    );
    let search = json!({"command": format!(
        "env; tr '\\0' '\\n' < /proc/{0}/environ; tr '\\0' '\\n' < /proc/{0}/cmdline", daemon.pid()
    )});
    let found = daemon
        .send(request("/command", search.to_string()))
        .await
        .text();
    assert!(found.contains("PATH="));
    assert!(!found.contains("s3cret-token"), "{found}");
}

#[tokio::test]
async fn nothing_is_left_in_the_file_system() {
    let daemon = Daemon::start();
    // The published daemon keeps output in files with such names; those of other programs stay out of it.
    let kept = || -> Vec<_> {
        ["/tmp", "/var/tmp"]
            .into_iter()
            .filter_map(|directory| fs::read_dir(directory).ok())
            .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
            .filter(|path| {
                let name = path.to_string_lossy();
                name.ends_with(".stdout") || name.contains("execd_")
            })
            .collect()
    };
    let before = kept();
    run(&daemon, &json!({"command": "seq 1000000"})).await;
    let mut after = kept();
    after.retain(|path| !before.contains(path));
    assert!(after.is_empty(), "{after:?}");
}
