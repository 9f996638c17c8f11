//! `/code`: live interpreters.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::events::{Stream, open};

/// What one run said.
#[derive(Debug)]
struct Said {
    context: String,
    stdout: String,
    stderr: String,
    /// Of the last value, by media type.
    results: Value,
    /// Name and value of every error.
    errors: Vec<(String, String)>,
    traceback: String,
    events: Vec<Value>,
}

impl Said {
    fn text(&self) -> &str {
        self.results["text"].as_str().unwrap_or_default()
    }

    fn error(&self) -> (&str, &str) {
        assert_eq!(self.errors.len(), 1, "{self:?}");
        (&self.errors[0].0, &self.errors[0].1)
    }

    fn kinds(&self) -> Vec<&str> {
        let kinds = self.events.iter().map(|event| event["type"].as_str());
        kinds.map(Option::unwrap).collect()
    }
}

async fn create(daemon: &Daemon, language: &str) -> String {
    let body = json!({"language": language}).to_string();
    let answer = daemon.call(Method::POST, "/code/context", body).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert_eq!(answer.json()["language"], language);
    answer.json()["id"].as_str().unwrap().to_owned()
}

async fn begin(daemon: &Daemon, body: &Value) -> (String, Stream) {
    let mut stream = open(daemon, Method::POST, "/code", body).await;
    let init = stream.next().await.unwrap();
    assert_eq!(init["type"], "init");
    (init["text"].as_str().unwrap().to_owned(), stream)
}

async fn begin_in(daemon: &Daemon, context: &str, code: &str) -> Stream {
    let body = json!({"context": {"id": context}, "code": code});
    let (id, stream) = begin(daemon, &body).await;
    assert_eq!(id, context, "init names the context");
    stream
}

async fn finish(context: String, stream: Stream) -> Said {
    let events = stream.rest().await;
    let text = |kind: &str| -> String {
        let events = events.iter().filter(|event| event["type"] == kind);
        events
            .map(|event| event["text"].as_str().unwrap())
            .collect()
    };
    let all = |kind: &str| -> Vec<Value> {
        let events = events.iter().filter(|event| event["type"] == kind);
        events.cloned().collect()
    };
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    let errors = all("error");
    let ends = all("execution_complete");
    assert_eq!(ends.len(), 1, "{events:?}");
    assert_eq!(events.last(), ends.last(), "the end is the last event");
    assert!(ends[0]["execution_time"].is_u64());
    Said {
        context,
        stdout: text("stdout"),
        stderr: text("stderr"),
        results: all("result").pop().unwrap_or_default()["results"].clone(),
        traceback: errors.last().map_or_else(String::new, |event| {
            let lines = event["error"]["traceback"].as_array().unwrap();
            lines.iter().map(word).collect::<Vec<_>>().join("\n")
        }),
        errors: errors
            .iter()
            .map(|event| {
                (
                    word(&event["error"]["ename"]),
                    word(&event["error"]["evalue"]),
                )
            })
            .collect(),
        events,
    }
}

async fn run_body(daemon: &Daemon, body: &Value) -> Said {
    let (context, stream) = begin(daemon, body).await;
    finish(context, stream).await
}

async fn run(daemon: &Daemon, context: &str, code: &str) -> Said {
    run_body(daemon, &json!({"context": {"id": context}, "code": code})).await
}

/// In the language's default context.
async fn run_default(daemon: &Daemon, language: &str, code: &str) -> Said {
    run_body(
        daemon,
        &json!({"context": {"language": language}, "code": code}),
    )
    .await
}

async fn interrupt(daemon: &Daemon, context: &str) {
    let uri = format!("/code?id={context}");
    let answer = daemon.call(Method::DELETE, &uri, "").await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
}

async fn contexts(daemon: &Daemon, query: &str) -> Vec<String> {
    let answer = daemon.get(&format!("/code/contexts{query}")).await.json();
    let ids = answer.as_array().unwrap().iter();
    ids.map(|context| context["id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn contexts_are_made_found_listed_and_deleted() {
    let daemon = Daemon::start();
    let python = create(&daemon, "python").await;
    let bash = create(&daemon, "bash").await;
    let found = daemon.get(&format!("/code/contexts/{python}")).await;
    assert_eq!(found.json(), json!({"id": python, "language": "python"}));
    let mut all = vec![python.clone(), bash.clone()];
    all.sort();
    assert_eq!(contexts(&daemon, "").await, all);
    assert_eq!(contexts(&daemon, "?language=python").await, [&*python]);

    let uri = format!("/code/contexts/{python}");
    let deleted = daemon.call(Method::DELETE, &uri, "").await;
    assert_eq!(deleted.status, StatusCode::OK);
    for method in [Method::GET, Method::DELETE] {
        let gone = daemon.call(method, &uri, "").await;
        assert_eq!(gone.status, StatusCode::NOT_FOUND);
        assert_eq!(gone.code(), "CONTEXT_NOT_FOUND");
    }
    let run = json!({"context": {"id": python}, "code": "1"}).to_string();
    let gone = daemon.call(Method::POST, "/code", run).await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
    assert_eq!(gone.code(), "CONTEXT_NOT_FOUND");

    let without = daemon.call(Method::DELETE, "/code/contexts", "").await;
    assert_eq!(without.status, StatusCode::BAD_REQUEST);
    assert_eq!(without.code(), "MISSING_QUERY");
    let uri = "/code/contexts?language=bash";
    let all_of_it = daemon.call(Method::DELETE, uri, "").await;
    assert_eq!(all_of_it.status, StatusCode::OK);
    assert!(contexts(&daemon, "").await.is_empty());
}

#[tokio::test]
async fn what_cannot_be_run_is_refused() {
    let daemon = Daemon::start();
    for (uri, body, says) in [
        (
            "/code",
            json!({"context": {"language": "cobol"}, "code": "1"}),
            "cobol",
        ),
        ("/code/context", json!({"language": "cobol"}), "python"),
        (
            "/code/context",
            json!({"language": "bash", "cwd": "/no/such"}),
            "/no/such",
        ),
        ("/code/context", json!({"envs": {"A=B": "x"}}), "envs"),
        ("/code/context", json!({"envs": {"A": "\u{0}"}}), "envs"),
        ("/code", json!({"code": "1", "timeout": -1}), "timeout"),
        ("/code", json!({"context": {}}), "code"),
    ] {
        let answer = daemon.call(Method::POST, uri, body.to_string()).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{body}");
        assert_eq!(answer.code(), "INVALID_REQUEST_BODY", "{body}");
        assert!(answer.text().contains(says), "{}", answer.text());
    }
    let uri = "/code?id=nobody";
    let nobody = daemon.call(Method::DELETE, uri, "").await;
    assert_eq!(nobody.status, StatusCode::NOT_FOUND);
    let nothing = daemon.call(Method::DELETE, "/code", "").await;
    assert_eq!(nothing.code(), "MISSING_QUERY");
}

#[tokio::test]
async fn an_interpreter_that_does_not_start_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("python3");
    // By another program: one that a test starts while this one writes would keep it "busy".
    let script = r"#!/bin/sh\necho no licence >&2\nexit 9\n";
    let written = std::process::Command::new("sh")
        .args(["-c", r#"printf "$1" > "$0" && chmod 755 "$0""#])
        .args([program.as_os_str(), script.as_ref()])
        .status();
    assert!(written.unwrap().success());
    let path = format!("PATH={}", directory.path().display());
    let daemon = Daemon::start_with(&[&path]);
    for (language, says) in [
        ("python", "no licence"),
        ("bash", "bash"),
        ("javascript", "node"),
    ] {
        let body = json!({"language": language}).to_string();
        let answer = daemon.call(Method::POST, "/code/context", body).await;
        assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(answer.code(), "RUNTIME_ERROR");
        assert!(answer.text().contains(says), "{}", answer.text());
    }
}

#[tokio::test]
async fn the_default_context_of_a_language_is_one_and_keeps_its_state() {
    let daemon = Daemon::start();
    let body = json!({"code": "x = 41"});
    let first = run_body(&daemon, &body);
    let second = run_default(&daemon, "python", "y = 1");
    let (first, second) = tokio::join!(first, second);
    assert_eq!(first.context, second.context, "two first runs share it");
    assert_eq!(run_default(&daemon, "python", "x + y").await.text(), "42");
    let shell = run_default(&daemon, "bash", "z=5; echo $z").await;
    assert_ne!(shell.context, first.context);
    assert_eq!(shell.stdout, "5\n");
    assert_eq!(contexts(&daemon, "").await.len(), 2);
    let uri = format!("/code/contexts/{}", first.context);
    daemon.call(Method::DELETE, &uri, "").await;
    let anew = run_default(&daemon, "python", "x").await;
    assert_eq!(anew.error().0, "NameError");
}

#[tokio::test]
async fn events_have_their_order_and_shape() {
    let daemon = Daemon::start();
    let id = create(&daemon, "python").await;
    let code = "import sys\nprint('a')\nprint('b', file=sys.stderr)\nprint('c')\n6 * 7";
    let said = run(&daemon, &id, code).await;
    assert_eq!((&*said.stdout, &*said.stderr), ("a\nc\n", "b\n"));
    let kinds = said.kinds();
    let tail = ["execution_count", "result", "execution_complete"];
    assert!(kinds.ends_with(&tail), "{kinds:?}");
    let both = json!({"text": "42", "text/plain": "42"});
    assert_eq!(said.results, both);
    let count = |said: &Said| said.events[said.events.len() - 3]["execution_count"].clone();
    assert_eq!(count(&said), 1);
    assert!(said.events.iter().all(|event| event["timestamp"].is_i64()));
    assert_eq!(count(&run(&daemon, &id, "'again'").await), 2);
    let quiet = run(&daemon, &id, "None").await;
    assert_eq!(quiet.kinds(), ["execution_complete"]);
    let silenced = run(&daemon, &id, "5;").await;
    assert_eq!(silenced.kinds(), ["execution_complete"]);
}

#[tokio::test]
async fn errors_look_as_python_prints_them() {
    let daemon = Daemon::start();
    let id = create(&daemon, "python").await;
    let said = run(&daemon, &id, "def f():\n    return nope\n\nf()").await;
    assert_eq!(said.error(), ("NameError", "name 'nope' is not defined"));
    let lines: Vec<&str> = said.traceback.lines().collect();
    assert_eq!(lines[0], "Traceback (most recent call last):");
    assert_eq!(lines[1], "  File \"<cell 1>\", line 4, in <module>");
    assert!(said.traceback.contains("    return nope"), "{lines:?}");
    assert!(!said.traceback.contains("<driver>"), "{lines:?}");
    assert_eq!(
        *lines.last().unwrap(),
        "NameError: name 'nope' is not defined"
    );
    let broken = run(&daemon, &id, "x = = 1").await;
    assert_eq!(broken.error().0, "SyntaxError");
    assert!(broken.traceback.contains("x = = 1"));
    let leaves = run(&daemon, &id, "kept = 1\nraise SystemExit(3)").await;
    assert_eq!(leaves.error(), ("SystemExit", "3"));
    let unshowable = "class Bad:\n  def __repr__(self): raise ValueError('no')\nBad()";
    assert_eq!(
        run(&daemon, &id, unshowable).await.error(),
        ("ValueError", "no")
    );
    let unsayable = "class Worse(Exception):\n  def __str__(self): raise ValueError\nraise Worse";
    assert_eq!(run(&daemon, &id, unsayable).await.error().0, "Worse");
    assert_eq!(run(&daemon, &id, "kept").await.text(), "1");
}

#[tokio::test]
async fn errors_in_other_languages_have_names() {
    let daemon = Daemon::start();
    for (language, code, name) in [
        ("javascript", "null.x", "TypeError"),
        ("javascript", "let = = 1", "SyntaxError"),
        ("typescript", "const a: number = nope", "ReferenceError"),
        ("typescript", "throw new RangeError('r')", "RangeError"),
        ("bash", "(exit 4)", "CommandExecError"),
        ("bash", "if", "CommandExecError"),
    ] {
        let said = run_default(&daemon, language, code).await;
        assert_eq!(said.error().0, name, "{code}: {said:?}");
        let next = run_default(&daemon, language, "").await;
        assert_eq!(next.kinds(), ["execution_complete"], "{next:?}");
    }
}

#[tokio::test]
async fn javascript_and_typescript_keep_state_and_await() {
    let daemon = Daemon::start();
    for (language, first) in [
        (
            "javascript",
            "const a = await Promise.resolve(20); function f(x) { return x + a }",
        ),
        (
            "typescript",
            "const a: number = await Promise.resolve(20); function f(x: number): number { return x + a }",
        ),
    ] {
        run_default(&daemon, language, first).await;
        let said = run_default(
            &daemon,
            language,
            "console.log('out'); console.error('err'); f(22)",
        )
        .await;
        assert_eq!(
            (said.text(), &*said.stdout, &*said.stderr),
            ("42", "out\n", "err\n")
        );
        let again = run_default(&daemon, language, "const a = 1; a").await;
        assert_eq!(again.text(), "1", "declared again");
        let imported = run_default(
            &daemon,
            language,
            "import { basename } from 'path'\nbasename('/x/y')",
        )
        .await;
        assert_eq!(imported.text(), "'y'");
    }
    let rich = "display({[Symbol.for('Jupyter.display')]: () => ({'text/html': '<b>x</b>'})})";
    assert_eq!(
        run_default(&daemon, "javascript", rich).await.results["text/html"],
        "<b>x</b>"
    );
}

#[tokio::test]
async fn rich_values_and_displays_come_with_their_types() {
    let daemon = Daemon::start();
    let id = create(&daemon, "python").await;
    let code = "class Rich:\n  def _repr_html_(self): return '<i>r</i>'\n  def _repr_png_(self): return b'\\x89PNG'\n  def __repr__(self): return 'R'\ndisplay(Rich())\nprint('between')\nRich()";
    let said = run(&daemon, &id, code).await;
    let expected =
        json!({"text": "R", "text/plain": "R", "text/html": "<i>r</i>", "image/png": "iVBORw=="});
    assert_eq!(said.results, expected);
    assert_eq!(
        said.kinds(),
        [
            "result",
            "stdout",
            "execution_count",
            "result",
            "execution_complete"
        ]
    );
    let waits = "import asyncio\nasync def f():\n  await asyncio.sleep(0)\n  return 9\nawait f()";
    assert_eq!(run(&daemon, &id, waits).await.text(), "9");
}

#[tokio::test]
async fn runs_wait_their_turn_and_contexts_do_not_wait_for_each_other() {
    let daemon = Daemon::start();
    let (one, two) = (
        create(&daemon, "python").await,
        create(&daemon, "python").await,
    );
    run(&daemon, &one, "order = []").await;
    let mut streams = Vec::new();
    for number in 0..8 {
        let code = format!("order.append({number}); order[-2:]");
        streams.push(begin_in(&daemon, &one, &code).await);
    }
    for stream in streams {
        finish(one.clone(), stream).await;
    }
    assert_eq!(
        run(&daemon, &one, "order").await.text(),
        "[0, 1, 2, 3, 4, 5, 6, 7]"
    );

    // Each waits for what only the other can do.
    let wait = |mine: &str, other: &str| {
        let (mine, other) = (daemon.path(mine), daemon.path(other));
        format!(
            "import os\nos.mkfifo({mine:?}) if not os.path.exists({mine:?}) else None\nimport threading\nt = threading.Thread(target=lambda: open({mine:?}, 'w').close()); t.start()\nwhile not os.path.exists({other:?}): pass\nopen({other:?}).close(); t.join(); 'met'"
        )
    };
    let (first, second) = (wait("a", "b"), wait("b", "a"));
    let (first, second) = tokio::join!(run(&daemon, &one, &first), run(&daemon, &two, &second));
    assert_eq!((first.text(), second.text()), ("'met'", "'met'"));
    assert_eq!(run(&daemon, &two, "order").await.error().0, "NameError");
}

#[tokio::test]
async fn an_interrupt_ends_the_cell_and_keeps_the_state() {
    let daemon = Daemon::start();
    for (language, code, name, check, shows) in [
        (
            "python",
            "kept = 1\nprint('up')\nwhile True: pass",
            "KeyboardInterrupt",
            "kept",
            "1",
        ),
        (
            "python",
            "kept = 2\nprint('up')\nimport time; time.sleep(1000)",
            "KeyboardInterrupt",
            "kept",
            "2",
        ),
        (
            "python",
            "kept = 3\nprint('up')\nimport asyncio; await asyncio.sleep(1000)",
            "KeyboardInterrupt",
            "kept",
            "3",
        ),
        (
            "javascript",
            "kept = 1; console.log('up'); for (;;) {}",
            "KeyboardInterrupt",
            "kept",
            "1",
        ),
        (
            "javascript",
            "kept = 2; console.log('up'); await new Promise(() => {})",
            "KeyboardInterrupt",
            "kept",
            "2",
        ),
        (
            "typescript",
            "var kept: number = 3; console.log('up'); while (true) {}",
            "KeyboardInterrupt",
            "kept",
            "3",
        ),
        (
            "bash",
            "kept=1; echo up; sleep 1000; echo not reached",
            "CommandExecError",
            "echo $kept",
            "1\n",
        ),
        (
            "bash",
            "kept=2; echo up; while :; do :; done",
            "CommandExecError",
            "echo $kept",
            "2\n",
        ),
    ] {
        let body = json!({"context": {"language": language}, "code": code});
        let (id, mut stream) = begin(&daemon, &body).await;
        assert_eq!(stream.next().await.unwrap()["text"], "up\n", "{code}");
        interrupt(&daemon, &id).await;
        let said = finish(id.clone(), stream).await;
        assert_eq!(said.error().0, name, "{code}");
        assert_eq!((&*said.stdout, &*said.stderr), ("", ""), "{code}");
        let after = run(&daemon, &id, check).await;
        let shown = match language {
            "bash" => &after.stdout,
            _ => after.text(),
        };
        assert_eq!(shown, shows, "{code}: {after:?}");
        // When nothing runs it does nothing.
        interrupt(&daemon, &id).await;
        run(&daemon, &id, "").await;
    }
}

/// As in sessions: an interrupt that meets a fork is lost on the child.
#[tokio::test]
async fn an_interrupt_in_the_middle_of_a_fork_leaves_the_shell_usable() {
    let daemon = Daemon::start();
    let id = create(&daemon, "bash").await;
    let text = "p=0; PROMPT_COMMAND='p=$((p+1)); [ $p != 3 ] || sleep 1000'; echo up; sleep 1000";
    let mut stream = begin_in(&daemon, &id, text).await;
    assert_eq!(stream.next().await.unwrap()["text"], "up\n");
    interrupt(&daemon, &id).await;
    assert_eq!(
        finish(id.clone(), stream).await.error(),
        ("CommandExecError", "130")
    );
    assert_eq!(run(&daemon, &id, "echo next").await.stdout, "next\n");
}

#[tokio::test]
async fn a_timeout_ends_the_cell_and_keeps_the_state_if_it_can() {
    let daemon = Daemon::start();
    let timed = async |language: &str, code: &str| {
        let body = json!({"context": {"language": language}, "code": code, "timeout": 200});
        run_body(&daemon, &body).await
    };
    // The state is there before: how far a cell gets in its time is the machine's affair.
    for (language, before, code, check, shows) in [
        ("python", "kept = 1", "while True: pass", "kept", "1"),
        ("javascript", "kept = 1", "for (;;) {}", "kept", "1"),
        ("bash", "kept=1", "sleep 1000", "echo $kept", "1\n"),
    ] {
        run_default(&daemon, language, before).await;
        let said = timed(language, code).await;
        assert_eq!(said.error().0, "TimeoutError", "{code}");
        let after = run_default(&daemon, language, check).await;
        assert_eq!(
            if language == "bash" {
                &after.stdout
            } else {
                after.text()
            },
            shows,
            "{code}"
        );
    }
    let deaf = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('deaf')\nwhile True: pass";
    loop {
        let said = timed("python", deaf).await;
        assert_eq!(said.error().0, "TimeoutError");
        // Else it was interrupted before it had closed its ears.
        if said.stdout == "deaf\n" {
            break;
        }
    }
    let after = run_default(&daemon, "python", "1 + 1").await;
    assert_eq!(after.text(), "2");
    assert!(after.stderr.contains("new one"), "{}", after.stderr);
}

#[tokio::test]
async fn an_interpreter_that_dies_is_reported_and_started_again() {
    let daemon = Daemon::start();
    for (language, code, how, next) in [
        ("python", "import os; os._exit(3)", "exit code 3", "1 + 1"),
        (
            "python",
            "import os; os.kill(os.getpid(), 9)",
            "signal: killed",
            "1 + 1",
        ),
        ("python", "import os; os.close(3); [].x", "", "1 + 1"),
        ("javascript", "process.exit(4)", "exit code 4", "1 + 1"),
        ("bash", "kill -9 $$", "signal: killed", ""),
        ("bash", "echo last; exit 5", "exit code 5", ""),
        // It may be noticed by the channel that closes, before the program has ended.
        ("bash", "exec true", "", ""),
    ] {
        let id = create(&daemon, language).await;
        let said = run(&daemon, &id, code).await;
        let (name, value) = said.error();
        assert_eq!(name, "InterpreterDied", "{code}");
        assert!(value.contains(how), "{code}: {value}");
        assert_eq!(said.stderr, "", "{code}");
        let after = run(&daemon, &id, next).await;
        assert!(after.errors.is_empty(), "{code}: {after:?}");
        if !next.is_empty() {
            assert_eq!(after.text(), "2", "{code}");
        }
    }
    // While nothing ran: the next run tells, and works.
    let id = create(&daemon, "python").await;
    let pid = run(&daemon, &id, "import os; os.getpid()")
        .await
        .text()
        .parse()
        .unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let after = run(&daemon, &id, "7").await;
    // The signal may also arrive when the cell has been handed over.
    assert!(
        after.text() == "7" || after.errors[0].0 == "InterpreterDied",
        "{after:?}"
    );
    assert_eq!(run(&daemon, &id, "8").await.text(), "8");
}

#[tokio::test]
async fn shells_keep_what_shells_keep() {
    let daemon = Daemon::start();
    let id = create(&daemon, "bash").await;
    run(&daemon, &id, "x=1; f() { echo f$x; }; cd /usr").await;
    let said = run(&daemon, &id, "f; pwd; echo e >&2; exit_code=3").await;
    assert_eq!((&*said.stdout, &*said.stderr), ("f1\n/usr\n", "e\n"));
    // The word alone is no farewell.
    assert_eq!(run(&daemon, &id, "echo exit >&2").await.stderr, "exit\n");
    assert_eq!(
        run(&daemon, &id, "cat; read line || echo none")
            .await
            .stdout,
        "none\n"
    );
}

#[tokio::test]
async fn input_ends_at_once_and_says_so() {
    let daemon = Daemon::start();
    for (language, code, says) in [
        ("python", "input('name? ')", "EOFError"),
        ("python", "import getpass; getpass.getpass()", "EOFError"),
        ("javascript", "await input('name? ')", "Error"),
    ] {
        let said = run_default(&daemon, language, code).await;
        assert_eq!(said.error().0, says, "{code}: {said:?}");
        assert!(said.error().1.contains("no input"), "{code}: {said:?}");
    }
    let empty = run_default(&daemon, "python", "import sys; sys.stdin.read()").await;
    assert_eq!(empty.text(), "''");
}

#[tokio::test]
async fn output_without_end_is_bounded_and_can_be_interrupted() {
    const ENOUGH: usize = 64 * 1024 * 1024;
    let daemon = Daemon::start();
    let id = create(&daemon, "python").await;
    let code = "import os\nwhile True: os.write(1, b'x' * 65536)";
    let mut stream = begin_in(&daemon, &id, code).await;
    let mut seen = 0;
    while seen < ENOUGH {
        let event = stream.next().await.unwrap();
        let text = event["text"].as_str().unwrap();
        assert!(
            text.len() <= 1024 * 1024,
            "{} bytes in one event",
            text.len()
        );
        seen += text.len();
    }
    // A client that leaves in the middle; the code goes on until it is told.
    drop(stream);
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let kib: usize = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 100 * 1024, "the daemon used {kib} KiB");
    let next = begin_in(&daemon, &id, "'still here'").await;
    interrupt(&daemon, &id).await;
    assert_eq!(finish(id.clone(), next).await.text(), "'still here'");
    let large = run(&daemon, &id, "'x' * 5_000_000").await;
    assert_eq!(large.error().0, "ResultTooLarge");
    assert_eq!(run(&daemon, &id, "1").await.text(), "1");
}

#[tokio::test]
async fn binary_output_does_not_break_the_stream() {
    let daemon = Daemon::start();
    let id = create(&daemon, "python").await;
    let code =
        "import sys\nsys.stdout.buffer.write(bytes(range(256)))\nsys.stdout.flush()\n'\\udc80'";
    let said = run(&daemon, &id, code).await;
    assert!(said.stdout.starts_with("\0\u{1}\u{2}"));
    assert!(said.stdout.contains('\u{fffd}'));
    assert_eq!(said.text(), r"'\udc80'");
    assert_eq!(
        run(&daemon, &id, "print('\\udc80')").await.stdout,
        "\\udc80\n"
    );
}

#[tokio::test]
async fn forks_and_threads_do_not_confuse_the_context() {
    let daemon = Daemon::start();
    let id = create(&daemon, "python").await;
    let forks =
        "import os, sys\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nelse: print('child')\n'done'";
    let said = run(&daemon, &id, forks).await;
    assert_eq!((said.text(), &*said.stdout), ("'done'", "child\n"));
    let pool = "from multiprocessing import get_context\nwith get_context('fork').Pool(2) as p: r = p.map(abs, [-1, -2])\nr";
    assert_eq!(run(&daemon, &id, pool).await.text(), "[1, 2]");
    let threads = "import threading\ngo = threading.Event()\nsaid = threading.Event()\ndef late():\n  go.wait(); print('late'); said.set()\nthreading.Thread(target=late).start()\n'started'";
    assert_eq!(run(&daemon, &id, threads).await.text(), "'started'");
    let after = run(&daemon, &id, "go.set(); said.wait(); 'next'").await;
    assert_eq!((after.text(), &*after.stdout), ("'next'", "late\n"));
}

#[tokio::test]
async fn a_deleted_context_takes_its_processes_with_it() {
    let daemon = Daemon::start();
    for (language, code) in [
        (
            "python",
            "import subprocess, os\nprint(os.getpid(), subprocess.Popen(['sleep', '1000']).pid)",
        ),
        ("bash", "sleep 1000 & echo $$ $!"),
    ] {
        let id = create(&daemon, language).await;
        let said = run(&daemon, &id, code).await;
        let pids: Vec<_> = said.stdout.split_whitespace().collect();
        assert_eq!(pids.len(), 2);
        let uri = format!("/code/contexts/{id}");
        daemon.call(Method::DELETE, &uri, "").await;
        for pid in pids {
            assert!(
                crate::commands::has_ended(pid),
                "{language}: {pid} lives on"
            );
        }
    }
}

#[tokio::test]
async fn a_context_has_its_directory_and_the_variables_of_the_sandbox() {
    let daemon = Daemon::start_with(&["EXECD_ENVS={dir}/envs"]);
    std::fs::write(daemon.path("envs"), "GREETING='hello there'\n").unwrap();
    let body = json!({"language": "python", "cwd": daemon.path("")}).to_string();
    let made = daemon
        .call(Method::POST, "/code/context", body)
        .await
        .json();
    let id = made["id"].as_str().unwrap();
    let said = run(
        &daemon,
        id,
        "import os; print(os.getcwd()); os.environ['GREETING']",
    )
    .await;
    let directory = daemon.directory.path().canonicalize().unwrap();
    assert_eq!(said.stdout.trim(), directory.to_str().unwrap());
    assert_eq!(said.text(), "'hello there'");
}

#[tokio::test]
async fn variables_and_directory_are_each_contexts_own_and_survive_its_interpreter() {
    let daemon = Daemon::start_with(&["EXECD_ENVS={dir}/envs", "OWN=of the daemon"]);
    std::fs::write(daemon.path("envs"), "OWN='of the sandbox'\n").unwrap();
    let directory = daemon.directory.path().canonicalize().unwrap();
    for (language, show, end) in [
        (
            "python",
            "import os; print(os.environ['OWN'], os.getcwd())",
            "os._exit(1)",
        ),
        ("bash", "echo $OWN $PWD", "exit 1"),
        (
            "typescript",
            "console.log(process.env.OWN, process.cwd())",
            "process.exit(1)",
        ),
    ] {
        let body = json!({"language": language, "cwd": directory, "envs": {"OWN": "mine"}});
        let made = daemon.call(Method::POST, "/code/context", body.to_string());
        let made = made.await.json();
        let id = made["id"].as_str().unwrap();
        assert!(made.get("envs").is_none(), "secrets are not told again");
        let expected = format!("mine {}\n", directory.display());
        assert_eq!(run(&daemon, id, show).await.stdout, expected);
        assert_eq!(run(&daemon, id, end).await.error().0, "InterpreterDied");
        assert_eq!(run(&daemon, id, show).await.stdout, expected, "{language}");
        let other = run_default(&daemon, language, show).await.stdout;
        assert!(other.starts_with("of the sandbox "), "{language}: {other}");
    }
}

/// The deadline of the test below also holds for the starts that must succeed, which a busy
/// machine may make late; those are asked for again, and this often is enough for any machine.
const STARTS: usize = 20;

#[tokio::test]
async fn an_interpreter_that_never_becomes_ready_is_an_error_in_time_and_the_next_run_works() {
    let daemon = Daemon::start_with(&[
        "PATH={dir}:/usr/local/bin:/usr/bin:/bin",
        "EXECD_INTERPRETER_START_SECONDS=3",
    ]);
    let stuck = daemon.path("stuck");
    for (program, real) in [("python3", "python3"), ("node", "node"), ("bash", "bash")] {
        let text = format!(
            "#!/bin/sh\nif [ -e {stuck} ]; then echo $$ >{stuck}; exec sleep 1000; fi\n\
             PATH=/usr/local/bin:/usr/bin:/bin; exec {real} \"$@\"\n",
            stuck = stuck.display(),
        );
        std::fs::write(daemon.path(program), text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(daemon.path(program), mode).unwrap();
    }
    for (language, end, fine) in [
        ("python", "import os; os._exit(1)", "print('fine')"),
        ("javascript", "process.exit(1)", "console.log('fine')"),
        ("bash", "exit 1", "echo fine"),
    ] {
        let body = json!({"language": language}).to_string();
        let mut id = String::new();
        for _ in 0..STARTS {
            let answer = daemon.call(Method::POST, "/code/context", body.clone());
            let answer = answer.await.json();
            if let Some(made) = answer["id"].as_str() {
                made.clone_into(&mut id);
                break;
            }
            assert!(answer.to_string().contains("not ready after"), "{answer}");
        }
        assert_eq!(run(&daemon, &id, end).await.error().0, "InterpreterDied");

        std::fs::write(&stuck, "").unwrap();
        let said = run(&daemon, &id, fine).await;
        let (name, value) = said.error();
        assert_eq!(name, "InterpreterNotStarted", "{language}");
        assert!(value.contains("not ready after 3 seconds"), "{value}");
        let pid = std::fs::read_to_string(&stuck).unwrap();
        assert!(
            pid.is_empty() || crate::commands::has_ended(pid.trim()),
            "{language}: {pid} lives on"
        );
        std::fs::remove_file(&stuck).unwrap();

        let mut stdout = String::new();
        for _ in 0..STARTS {
            let said = run(&daemon, &id, fine).await;
            if said.errors.is_empty() {
                stdout = said.stdout;
                break;
            }
            assert_eq!(said.error().0, "InterpreterNotStarted", "{language}");
        }
        assert_eq!(stdout, "fine\n", "{language}");
    }
}

#[tokio::test]
async fn what_javascript_prints_and_shows_stays_in_order() {
    let daemon = Daemon::start();
    let id = create(&daemon, "javascript").await;
    // More than a pipe holds, then a display, many times over: each on its own way to execd.
    let code = "for (let i = 0; i < 50; i++) {\n\
        console.log('o'.repeat(i % 5 ? 10 : 200000)); display(i); console.error('e'); display(i)\n\
        }\nconsole.log('last')\n'end'";
    let said = run(&daemon, &id, code).await;
    let mut order: Vec<String> = Vec::new();
    for event in &said.events {
        let kind = event["type"].as_str().unwrap();
        let shown = event["results"]["text"].as_str().unwrap_or_default();
        let next = match kind {
            "result" => format!("display {shown}"),
            _ => kind.to_owned(),
        };
        // A long line comes in several events.
        if kind != "stdout" || order.last().is_none_or(|before| before != "stdout") {
            order.push(next);
        }
    }
    let mut expected: Vec<String> = Vec::new();
    for i in 0..50 {
        let shown = format!("display {i}");
        expected.extend([
            "stdout".to_owned(),
            shown.clone(),
            "stderr".to_owned(),
            shown,
        ]);
    }
    expected.extend(
        [
            "stdout",
            "execution_count",
            "display 'end'",
            "execution_complete",
        ]
        .map(str::to_owned),
    );
    assert_eq!(order, expected);
    assert_eq!(said.stdout.len(), 10 * 200_001 + 40 * 11 + 5);
    // Shown when no cell runs: nobody listens, and nothing waits for ever.
    let late = "setTimeout(() => { display(1); globalThis.isShown = true }, 0); 0";
    assert_eq!(run(&daemon, &id, late).await.text(), "0");
    let waits = "while (!globalThis.isShown) await new Promise(setImmediate)\n'shown'";
    assert_eq!(run(&daemon, &id, waits).await.text(), "'shown'");
}

#[tokio::test]
async fn interpreters_end_with_a_daemon_that_is_killed() {
    let mut daemon = Daemon::start();
    let mut busy = Vec::new();
    for (language, code) in [
        (
            "python",
            "import os\nprint(os.getpid(), flush=True)\nwhile True: pass",
        ),
        ("javascript", "console.log(process.pid); for (;;);"),
        ("bash", "echo $$; while :; do :; done"),
    ] {
        let id = create(&daemon, language).await;
        let mut stream = begin_in(&daemon, &id, code).await;
        let pid: i32 = loop {
            let event = stream.next().await.unwrap();
            if event["type"] == "stdout" {
                break event["text"].as_str().unwrap().trim().parse().unwrap();
            }
        };
        busy.push((language, crate::daemon::Watched::new(pid)));
    }
    daemon.kill();
    for (language, process) in busy {
        assert!(process.has_ended(), "{language} outlives the daemon");
    }
}

#[tokio::test]
async fn the_limit_of_waiting_runs_is_named() {
    let daemon = Daemon::start();
    let id = create(&daemon, "bash").await;
    let mut held = vec![begin_in(&daemon, &id, "echo up; sleep 1000").await];
    assert_eq!(held[0].next().await.unwrap()["text"], "up\n");
    for _ in 0..64 {
        held.push(begin_in(&daemon, &id, "").await);
    }
    let body = json!({"context": {"id": id}, "code": ""}).to_string();
    let full = daemon.call(Method::POST, "/code", body).await;
    assert_eq!(full.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(full.text().contains("QUEUED_RUNS"), "{}", full.text());
}

#[tokio::test]
async fn twenty_contexts_at_once() {
    let daemon = std::sync::Arc::new(Daemon::start());
    let mut all = tokio::task::JoinSet::new();
    for number in 0..20 {
        let daemon = std::sync::Arc::clone(&daemon);
        all.spawn(async move {
            let id = create(&daemon, "python").await;
            run(&daemon, &id, &format!("x = {number}")).await;
            assert_eq!(run(&daemon, &id, "x").await.text(), number.to_string());
        });
    }
    let ended = tokio::time::timeout(Duration::from_secs(90), all.join_all()).await;
    assert!(ended.is_ok(), "twenty contexts were not done in time");
}
