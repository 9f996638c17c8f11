//! `/session`: live shells.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::events::{Outcome, Stream, open};

async fn create(daemon: &Daemon, body: &str) -> String {
    let answer = daemon.call(Method::POST, "/session", body.to_owned()).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    answer.json()["session_id"].as_str().unwrap().to_owned()
}

async fn begin(daemon: &Daemon, id: &str, body: &Value) -> Stream {
    let mut stream = open(daemon, Method::POST, &format!("/session/{id}/run"), body).await;
    let init = stream.next().await.unwrap();
    assert_eq!((&init["type"], &init["text"]), (&json!("init"), &json!(id)));
    stream
}

async fn run_with(daemon: &Daemon, id: &str, body: &Value) -> Outcome {
    Outcome::new(id.to_owned(), begin(daemon, id, body).await.rest().await)
}

async fn run(daemon: &Daemon, id: &str, command: &str) -> Outcome {
    run_with(daemon, id, &json!({"command": command})).await
}

fn check(outcome: &Outcome, stdout: &str, stderr: &str, code: &str) {
    assert_eq!(
        (
            outcome.stdout.as_str(),
            outcome.stderr.as_str(),
            outcome.code.as_str()
        ),
        (stdout, stderr, code)
    );
}

#[tokio::test]
async fn everything_a_shell_knows_persists() {
    let daemon = Daemon::start();
    let id = create(&daemon, "").await;
    let first =
        "x=1; export Y='two\nlines'; f() { echo f:$x; return 3; }; set -o pipefail; cd /usr";
    check(&run(&daemon, &id, first).await, "", "", "0");
    check(&run(&daemon, &id, "f").await, "f:1\n", "", "3");
    check(
        &run(&daemon, &id, "echo \"$Y\"; pwd; false | true").await,
        "two\nlines\n/usr\n",
        "",
        "1",
    );
    check(
        &run(&daemon, &id, "echo out; echo err >&2; exec 5>/dev/null").await,
        "out\n",
        "err\n",
        "0",
    );
    let cwd = json!({"command": "pwd", "cwd": "/tmp"});
    check(&run_with(&daemon, &id, &cwd).await, "/tmp\n", "", "0");
    check(
        &run(&daemon, &id, "pwd; printf 'no newline'").await,
        "/tmp\nno newline",
        "",
        "0",
    );
    check(
        &run(&daemon, &id, "echo 'it'\"'\"'s'; cat").await,
        "it's\n",
        "",
        "0",
    );
}

#[tokio::test]
async fn jobs_persist_and_print_into_the_next_run() {
    let daemon = Daemon::start();
    let id = create(&daemon, "").await;
    let fifo = daemon.path("go");
    let fifo = fifo.display();
    let started = run(
        &daemon,
        &id,
        &format!("mkfifo {fifo}; (read x < {fifo}; echo from job) & echo started"),
    )
    .await;
    assert_eq!(started.stdout, "started\n");
    let joined = run(
        &daemon,
        &id,
        &format!("echo go > {fifo}; wait; echo joined"),
    )
    .await;
    assert_eq!(joined.stdout, "from job\njoined\n");
}

#[tokio::test]
async fn errors_in_the_text_do_not_hurt_the_session() {
    let daemon = Daemon::start();
    let id = create(&daemon, "").await;
    run(&daemon, &id, "kept=1").await;
    for (text, code) in [
        ("echo 'open", "2"),
        ("if true; then", "2"),
        ("x=$((", "2"),
        ("nope", "127"),
        ("${u?gone}", "1"),
        ("echo )", "2"),
    ] {
        let outcome = run(&daemon, &id, text).await;
        assert_eq!(
            (outcome.stdout.as_str(), outcome.code.as_str()),
            ("", code),
            "{text}"
        );
        assert!(!outcome.stderr.is_empty(), "{text}");
    }
    check(
        &run(&daemon, &id, "break; echo $kept").await,
        "1\n",
        "bash: break: only meaningful in a `for', `while', or `until' loop\n",
        "0",
    );
}

#[tokio::test]
async fn a_timeout_ends_the_run_and_not_the_session() {
    let daemon = Daemon::start();
    let id = create(&daemon, "").await;
    run(&daemon, &id, "kept=1; sleep 1000 & job=$!").await;
    for text in [
        "sleep 1000; echo not reached",
        "while :; do :; done",
        "sleep 1000 | cat",
        "trap '' INT; sleep 1000; trap - INT",
    ] {
        let outcome = run_with(&daemon, &id, &json!({"command": text, "timeout": 200})).await;
        assert_eq!(
            (outcome.stdout.as_str(), outcome.code.as_str()),
            ("", "-1"),
            "{text}"
        );
    }
    let after = run(
        &daemon,
        &id,
        "echo $kept; kill -0 $job && echo job lives; kill $job",
    )
    .await;
    assert_eq!(after.stdout, "1\njob lives\n");
}

#[tokio::test]
async fn an_interrupt_ends_the_run_and_not_the_session() {
    let daemon = Daemon::start();
    let id = create(&daemon, "").await;
    let mut stream = begin(
        &daemon,
        &id,
        &json!({"command": "kept=1; echo up; sleep 1000; echo not reached"}),
    )
    .await;
    assert_eq!(stream.next().await.unwrap()["text"], "up\n");
    let uri = format!("/command?id={id}");
    assert_eq!(
        daemon.call(Method::DELETE, &uri, "").await.status,
        StatusCode::OK
    );
    let outcome = Outcome::new(id.clone(), stream.rest().await);
    assert_eq!(
        (outcome.stdout.as_str(), outcome.code.as_str()),
        ("", "130")
    );
    assert_eq!(run(&daemon, &id, "echo $kept").await.stdout, "1\n");
    assert_eq!(
        daemon.call(Method::DELETE, &uri, "").await.status,
        StatusCode::CONFLICT
    );
}

/// An interrupt may come at any moment of a fork, when the shell takes it and the child that is
/// being made loses it. A shell with much memory takes long to fork, so that it happens often.
#[tokio::test]
async fn an_interrupt_in_the_middle_of_a_fork_leaves_the_shell_usable() {
    let daemon = Daemon::start();
    let id = create(&daemon, "").await;
    run(&daemon, &id, "printf -v large '%0100000000d' 0").await;
    for round in 0..8 {
        let mut stream = begin(&daemon, &id, &json!({"command": "echo up; sleep 1000"})).await;
        assert_eq!(stream.next().await.unwrap()["text"], "up\n");
        let uri = format!("/command?id={id}");
        let interrupted = daemon.call(Method::DELETE, &uri, "").await;
        assert_eq!(interrupted.status, StatusCode::OK);
        assert_eq!(Outcome::new(id.clone(), stream.rest().await).code, "130");
        let next = run(&daemon, &id, &format!("echo {round}")).await;
        assert_eq!(next.stdout, format!("{round}\n"));
    }
}

/// What the race above leads to, without the race: a shell that has reported and does not read
/// on. It waits in the third prompt after the interrupt, which is the one behind its report.
#[tokio::test]
async fn a_shell_that_reports_and_then_waits_is_interrupted_again() {
    let daemon = Daemon::start();
    let id = create(&daemon, "").await;
    let text = "p=0; PROMPT_COMMAND='p=$((p+1)); [ $p != 3 ] || sleep 1000'; echo up; sleep 1000";
    let mut stream = begin(&daemon, &id, &json!({"command": text})).await;
    assert_eq!(stream.next().await.unwrap()["text"], "up\n");
    let uri = format!("/command?id={id}");
    daemon.call(Method::DELETE, &uri, "").await;
    assert_eq!(Outcome::new(id.clone(), stream.rest().await).code, "130");
    assert_eq!(run(&daemon, &id, "echo next").await.stdout, "next\n");
}

#[tokio::test]
async fn runs_wait_for_their_turn() {
    let daemon = Daemon::start();
    let id = create(&daemon, "").await;
    let mut streams = Vec::new();
    for number in 0..10 {
        let body = json!({"command": format!("order=${{order}}{number}; sleep 0.01; echo $order")});
        streams.push(begin(&daemon, &id, &body).await);
    }
    for (number, stream) in streams.into_iter().enumerate() {
        let expected: String = (0..=number).map(|n| n.to_string()).collect();
        let outcome = Outcome::new(id.clone(), stream.rest().await);
        assert_eq!(outcome.stdout, format!("{expected}\n"));
    }
}

#[tokio::test]
async fn output_cannot_forge_the_end_of_a_run() {
    let daemon = Daemon::start();
    let id = create(&daemon, "").await;
    // Everything the text can reach is asked to carry a false report.
    let text = "for fd in 3 4 5 6 10 255; do echo '0 1 0' >&$fd; done 2>/dev/null; echo '1 0'; exit_code=5; (exit $exit_code)";
    let outcome = run(&daemon, &id, text).await;
    assert_eq!(
        (outcome.stdout.as_str(), outcome.code.as_str()),
        ("1 0\n", "5")
    );
    assert_eq!(run(&daemon, &id, "echo next").await.stdout, "next\n");
}

#[tokio::test]
async fn exit_ends_the_session_with_its_code() {
    let daemon = Daemon::start();
    let id = create(&daemon, "{\"cwd\": \"/usr\"}").await;
    check(
        &run(&daemon, &id, "pwd; exit 7; echo not reached").await,
        "/usr\n",
        "",
        "7",
    );
    let gone = daemon
        .call(
            Method::POST,
            &format!("/session/{id}/run"),
            r#"{"command":"true"}"#,
        )
        .await;
    assert_eq!(
        (gone.status, gone.code().as_str()),
        (StatusCode::NOT_FOUND, "CONTEXT_NOT_FOUND")
    );
}

#[tokio::test]
async fn a_deleted_session_is_gone() {
    let daemon = Daemon::start();
    let id = create(&daemon, "{}").await;
    let pid = run(&daemon, &id, "echo $$").await.stdout.trim().to_owned();
    let uri = format!("/session/{id}");
    assert_eq!(
        daemon.call(Method::DELETE, &uri, "").await.status,
        StatusCode::OK
    );
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    let again = daemon.call(Method::DELETE, &uri, "").await;
    assert_eq!(
        (again.status, again.code().as_str()),
        (StatusCode::NOT_FOUND, "CONTEXT_NOT_FOUND")
    );
}

#[tokio::test]
async fn bad_requests_are_refused() {
    let daemon = Daemon::start();
    let no_directory = daemon
        .call(Method::POST, "/session", r#"{"cwd":"/no/such"}"#)
        .await;
    assert_eq!(no_directory.status, StatusCode::BAD_REQUEST);
    let id = create(&daemon, "").await;
    for body in [
        r#"{"command":""}"#,
        r#"{"command":"true","timeout":-1}"#,
        r#"{"command":"true","cwd":"/no/such"}"#,
        "{",
    ] {
        let answer = daemon
            .call(Method::POST, &format!("/session/{id}/run"), body)
            .await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (StatusCode::BAD_REQUEST, "INVALID_REQUEST_BODY"),
            "{body}"
        );
    }
}
