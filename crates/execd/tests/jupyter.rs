//! Jupyter kernels in code contexts: a real one, and one that misbehaves on purpose.
//!
//! The real kernel is ipykernel from PyPI, which `tools/setup test` installs into .tools/.

#![expect(
    clippy::unwrap_used,
    reason = "a failed unwrap in a test is the test's failure"
)]
#![expect(clippy::print_stderr, reason = "a missing need is told loudly")]

mod daemon;
#[path = "exec/events.rs"]
#[expect(dead_code, reason = "commands are tested elsewhere")]
mod events;

use std::path::{Path, PathBuf};

use http::Method;
use serde_json::{Value, json};

use daemon::Daemon;
use events::Stream;

/// A daemon whose kernels are those that the test installs.
struct Place {
    daemon: Daemon,
    _jupyter: tempfile::TempDir,
    temporary: PathBuf,
}

impl Place {
    fn new(install: impl FnOnce(&Path)) -> Self {
        let jupyter = tempfile::tempdir().unwrap();
        install(&jupyter.path().join("kernels"));
        let temporary = jupyter.path().join("tmp");
        std::fs::create_dir(&temporary).unwrap();
        let daemon = Daemon::start_with(&[
            &format!("JUPYTER_PATH={}", jupyter.path().display()),
            &format!("TMPDIR={}", temporary.display()),
            "HOME=/nonexistent",
            "EXECD_INTERPRETER_START_SECONDS=80",
        ]);
        Self {
            daemon,
            _jupyter: jupyter,
            temporary,
        }
    }

    fn with_fake(manner: &str) -> Self {
        Self::new(|kernels| {
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/jupyter/fake_kernel.py");
            let spec = json!({
                "argv": ["python3", script, "{connection_file}", manner],
                "language": "nonsense",
            });
            install(kernels, "fake", &spec);
        })
    }

    async fn create(&self, language: &str) -> (u16, Value) {
        let body = json!({"language": language}).to_string();
        let answer = self.daemon.call(Method::POST, "/code/context", body).await;
        (answer.status.as_u16(), answer.json())
    }

    async fn context(&self, language: &str) -> String {
        let (status, answer) = self.create(language).await;
        assert_eq!(status, 200, "{answer}");
        answer["id"].as_str().unwrap().to_owned()
    }

    async fn begin(&self, context: &str, code: &str, timeout: u64) -> Stream {
        let body = json!({"context": {"id": context}, "code": code, "timeout": timeout});
        events::open(&self.daemon, Method::POST, "/code", &body).await
    }

    async fn run(&self, context: &str, code: &str) -> Cell {
        Cell(self.begin(context, code, 0).await.rest().await)
    }
}

/// All events of a cell.
struct Cell(Vec<Value>);

impl Cell {
    fn text(&self, kind: &str) -> String {
        let of_kind = self.0.iter().filter(|event| event["type"] == kind);
        of_kind.filter_map(|event| event["text"].as_str()).collect()
    }

    fn results(&self) -> Vec<&Value> {
        let results = self.0.iter().filter(|event| event["type"] == "result");
        results.map(|event| &event["results"]).collect()
    }

    fn error(&self) -> &str {
        let error = self.0.iter().find(|event| event["type"] == "error");
        error.map_or("", |event| event["error"]["ename"].as_str().unwrap())
    }

    fn is_complete(&self) -> bool {
        self.0.last().unwrap()["type"] == "execution_complete"
    }
}

fn install(kernels: &Path, name: &str, spec: &Value) {
    let directory = kernels.join(name);
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("kernel.json"), spec.to_string()).unwrap();
}

/// ipykernel's interpreter; `None`, loudly, where it is not installed.
fn ipykernel() -> Option<String> {
    let python = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../.tools/kernels/bin/python"
    );
    if Path::new(python).exists() {
        return Some(python.to_owned());
    }
    let message = "the real kernel of these tests is missing: run `tools/setup test`";
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{message}");
    eprintln!("{message}");
    None
}

fn install_ipykernel(kernels: &Path, python: &str) {
    let argv = json!([
        python,
        "-m",
        "ipykernel_launcher",
        "-f",
        "{connection_file}"
    ]);
    install(
        kernels,
        "ipython",
        &json!({"argv": argv, "language": "python"}),
    );
}

#[tokio::test]
async fn a_real_kernel_keeps_state_and_shows_everything() {
    let Some(python) = ipykernel() else { return };
    let place = Place::new(|kernels| install_ipykernel(kernels, &python));
    let context = place.context("ipython").await;
    let left: Vec<_> = std::fs::read_dir(&place.temporary)
        .unwrap()
        .filter(|entry| {
            entry
                .as_ref()
                .unwrap()
                .file_name()
                .to_string_lossy()
                .starts_with("kernel-")
        })
        .collect();
    assert!(left.is_empty(), "the key lies on the disk: {left:?}");

    let cell = place
        .run(
            &context,
            "import sys\nx = 40\nprint('out')\nprint('err', file=sys.stderr)\nx + 2",
        )
        .await;
    assert_eq!(cell.text("stdout"), "out\n");
    assert_eq!(cell.text("stderr"), "err\n");
    let results = cell.results();
    assert_eq!(
        (
            results[0]["text"].as_str(),
            results[0]["text/plain"].as_str()
        ),
        (Some("42"), Some("42"))
    );
    assert!(cell.is_complete());
    assert_eq!(place.run(&context, "x").await.results()[0]["text"], "40");

    let shown = "from IPython.display import display, update_display, HTML, clear_output\n\
        display(HTML('<b>1</b>'), display_id='d')\nupdate_display(HTML('<b>2</b>'), display_id='d')\nclear_output()";
    let cell = place.run(&context, shown).await;
    let html: Vec<_> = cell
        .results()
        .iter()
        .map(|result| result["text/html"].clone())
        .collect();
    assert_eq!(html, ["<b>1</b>", "<b>2</b>"]);

    let cell = place.run(&context, "undefined_name").await;
    assert_eq!(cell.error(), "NameError");
    assert!(cell.is_complete());
    let cell = place.run(&context, "input()").await;
    assert_eq!(cell.error(), "StdinNotImplementedError");
    assert_eq!(
        place.run(&context, "").await.0.len(),
        2,
        "an empty cell ends"
    );

    let other = place.context("ipython").await;
    assert_eq!(
        place.run(&other, "x").await.error(),
        "NameError",
        "contexts are apart"
    );
}

#[tokio::test]
async fn a_real_kernel_is_interrupted_and_dies_and_starts_again() {
    let Some(python) = ipykernel() else { return };
    let place = Place::new(|kernels| install_ipykernel(kernels, &python));
    let context = place.context("ipython").await;
    place.run(&context, "x = 1").await;
    let busy = "print('on', flush=True)\nwhile True: pass";
    let mut stream = place.begin(&context, busy, 0).await;
    while stream.next().await.unwrap()["text"] != "on\n" {}
    let interrupt = format!("/code?id={context}");
    assert_eq!(
        place
            .daemon
            .call(Method::DELETE, &interrupt, "")
            .await
            .status,
        200
    );
    assert_eq!(Cell(stream.rest().await).error(), "KeyboardInterrupt");
    assert_eq!(
        place.run(&context, "x").await.results()[0]["text"],
        "1",
        "state survives"
    );

    // More time when the cell had not begun: a kernel that is not at it misses the interrupt and is
    // given up, with its state.
    for timeout_ms in [300, 3000, 30_000] {
        place.run(&context, "x = 1").await;
        let busy = place.begin(&context, busy, timeout_ms).await;
        let cell = Cell(busy.rest().await);
        assert_eq!(cell.error(), "TimeoutError");
        if cell.text("stdout") == "on\n" {
            break;
        }
    }
    assert_eq!(place.run(&context, "x").await.results()[0]["text"], "1");

    let cell = place.run(&context, "import os; os._exit(3)").await;
    assert_eq!(cell.error(), "InterpreterDied");
    assert!(cell.is_complete());
    assert_eq!(place.run(&context, "1 + 1").await.results()[0]["text"], "2");
}

#[tokio::test]
async fn a_real_kernel_ends_with_a_daemon_that_is_killed() {
    let Some(python) = ipykernel() else { return };
    let mut place = Place::new(|kernels| install_ipykernel(kernels, &python));
    let context = place.context("ipython").await;
    let cell = place.run(&context, "import os; os.getpid()").await;
    let pid = cell.results()[0]["text"].as_str().unwrap().parse().unwrap();
    let kernel = daemon::Watched::new(pid);
    place.daemon.kill();
    assert!(kernel.has_ended(), "the kernel outlives the daemon");
}

#[tokio::test]
async fn variables_of_a_context_reach_its_kernel_over_those_of_the_kernelspec() {
    let place = Place::new(|kernels| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/jupyter/fake_kernel.py");
        let spec = json!({
            "argv": ["python3", script, "{connection_file}", "variables"],
            "env": {"ONE": "kernelspec", "TWO": "kernelspec"},
        });
        install(kernels, "fake", &spec);
    });
    let body = json!({"language": "fake", "envs": {"ONE": "context"}}).to_string();
    let made = place.daemon.call(Method::POST, "/code/context", body).await;
    let made = made.json();
    let id = made["id"].as_str().unwrap();
    assert_eq!(place.run(id, "ONE").await.text("stdout"), "context");
    assert_eq!(place.run(id, "TWO").await.text("stdout"), "kernelspec");
}

#[tokio::test]
async fn what_is_not_signed_with_the_key_is_not_believed() {
    let place = Place::with_fake("forged");
    let context = place.context("nonsense").await;
    for code in ["one", "two"] {
        let cell = place.run(&context, code).await;
        assert_eq!(cell.text("stdout"), code);
        assert!(cell.is_complete());
    }
}

#[tokio::test]
async fn bytes_that_are_not_frames_end_the_kernel_and_the_next_run_works() {
    let place = Place::with_fake("garbled");
    let context = place.context("fake").await;
    assert_eq!(
        place.run(&context, "garble").await.error(),
        "InterpreterDied"
    );
    assert_eq!(place.run(&context, "fine").await.text("stdout"), "fine");
    assert_eq!(place.run(&context, "die").await.error(), "InterpreterDied");
    assert_eq!(place.run(&context, "fine").await.text("stdout"), "fine");
}

#[tokio::test]
async fn a_kernel_that_asks_although_nobody_is_there_is_told_so() {
    let place = Place::with_fake("asking");
    let context = place.context("fake").await;
    assert_eq!(place.run(&context, "x").await.text("stdout"), r"'\x04'");
}

#[tokio::test]
async fn a_cell_ends_although_its_idle_was_lost() {
    let forgets = async |manner| {
        let place = Place::with_fake(manner);
        let context = place.context("fake").await;
        for code in ["x", "y"] {
            let cell = place.run(&context, code).await;
            assert_eq!(cell.text("stdout"), code);
            assert!(cell.is_complete());
        }
    };
    // The second says nothing of the kind ever again.
    tokio::join!(forgets("forgetful"), forgets("mute"));
}

#[tokio::test]
async fn a_message_over_the_limit_is_an_error_and_the_rest_arrives() {
    let place = Place::with_fake("large");
    let context = place.context("fake").await;
    let cell = place.run(&context, "x").await;
    assert_eq!(cell.error(), "ResultTooLarge");
    assert_eq!(cell.text("stdout"), "x");
}

#[tokio::test]
async fn a_kernel_that_does_not_start_is_an_error_that_says_why() {
    let place = Place::new(|kernels| {
        let broken = "import sys; sys.exit('no such module')";
        install(
            kernels,
            "broken",
            &json!({"argv": ["python3", "-c", broken], "language": "b"}),
        );
        install(
            kernels,
            "absent",
            &json!({"argv": ["/no/such/kernel"], "language": "a"}),
        );
    });
    let (status, answer) = place.create("broken").await;
    let message = answer["message"].as_str().unwrap();
    assert!(
        status == 500 && message.contains("no such module"),
        "{answer}"
    );
    let (status, answer) = place.create("absent").await;
    let message = answer["message"].as_str().unwrap();
    assert!(
        status == 500 && message.contains("/no/such/kernel"),
        "{answer}"
    );
    let (status, answer) = place.create("cobol").await;
    let message = answer["message"].as_str().unwrap();
    assert!(
        status == 400 && message.contains("bash, absent, broken"),
        "{answer}"
    );

    for manner in ["deaf", "stranger"] {
        let directory = tempfile::tempdir().unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/jupyter/fake_kernel.py");
        let argv = json!(["python3", script, "{connection_file}", manner]);
        install(
            &directory.path().join("kernels"),
            manner,
            &json!({"argv": argv}),
        );
        let daemon = Daemon::start_with(&[
            &format!("JUPYTER_PATH={}", directory.path().display()),
            "EXECD_INTERPRETER_START_SECONDS=2",
        ]);
        let body = json!({"language": manner}).to_string();
        let answer = daemon.call(Method::POST, "/code/context", body).await;
        assert_eq!(answer.status, 500, "{manner}: {}", answer.text());
        assert!(
            answer.text().contains("ready"),
            "{manner}: {}",
            answer.text()
        );
    }
}
