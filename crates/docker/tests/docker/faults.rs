//! Engines that die, hang or change behind our back, and servers that are killed.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use docker::Docker;
use lifecycle::backend::{Backend as _, Error, Event, ObservedState, Source};
use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::broadcast::Receiver;

use crate::stage::{self, Stage, ask, engine_home, engine_says, spec};

/// How long something that must happen may take on a loaded machine.
const SOON: Duration = Duration::from_secs(60);

async fn hear(events: &mut Receiver<Event>, is_it: impl Fn(&Event) -> bool) -> Event {
    let wait = async {
        loop {
            let event = events.recv().await.expect("the backend is open");
            if is_it(&event) {
                return event;
            }
        }
    };
    tokio::time::timeout(SOON, wait)
        .await
        .expect("the event comes")
}

/// Stands between the backend and the engine, counts calls, and can let one kind of them hang.
pub(crate) struct Relay {
    path: PathBuf,
    seen: Arc<Mutex<Vec<String>>>,
    holds: Arc<AtomicBool>,
}

impl Relay {
    pub(crate) fn start(stage: &Stage) -> Self {
        let path = stage.directory.path().join("relay.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let holds = Arc::new(AtomicBool::new(false));
        let (log, is_held) = (seen.clone(), holds.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(client, log.clone(), is_held.clone()));
            }
        });
        Self { path, seen, holds }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path.clone()
    }

    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    /// Calls so far; each is a connection of its own.
    pub(crate) fn calls(&self) -> usize {
        self.seen().len()
    }

    /// From now on the engine's answers to creations are held back.
    fn hold(&self, holds: bool) {
        self.holds.store(holds, Ordering::SeqCst);
    }
}

async fn relay(mut client: UnixStream, seen: Arc<Mutex<Vec<String>>>, holds: Arc<AtomicBool>) {
    let mut engine = UnixStream::connect(stage::socket()).await.unwrap();
    let mut head = vec![0; 65536];
    let Ok(read) = client.read(&mut head).await else {
        return;
    };
    let line = String::from_utf8_lossy(&head[..read])
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned();
    let is_creation = line.contains("/containers/create");
    seen.lock().unwrap().push(line);
    if engine.write_all(&head[..read]).await.is_err() {
        return;
    }
    if is_creation && holds.load(Ordering::SeqCst) {
        // The engine works and nobody hears of it.
        let _ = engine.read(&mut head).await;
        std::future::pending::<()>().await;
    }
    let _ = tokio::io::copy_bidirectional(&mut client, &mut engine).await;
}

pub(crate) async fn a_missing_engine_is_explained(stage: Stage) {
    let mut config = stage.config();
    config.socket = stage.directory.path().join("no.sock");
    let error = Docker::open(config.clone()).await.unwrap_err().to_string();
    assert!(error.contains("there is no such socket"), "{error}");
    drop(std::os::unix::net::UnixListener::bind(&config.socket).unwrap());
    let error = Docker::open(config.clone()).await.unwrap_err().to_string();
    assert!(error.contains("nothing listens there"), "{error}");
    let findings = docker::doctor::examine(&config).await.checks;
    assert!(
        findings
            .iter()
            .any(|it| it.status == lifecycle::doctor::Status::Failed),
        "{findings:?}"
    );
    let findings = docker::doctor::examine(&stage.config()).await.checks;
    assert!(
        findings
            .iter()
            .all(|it| it.status != lifecycle::doctor::Status::Failed),
        "{findings:?}"
    );
}

pub(crate) async fn a_runtime_that_the_engine_lacks_is_refused(stage: Stage) {
    let mut config = stage.config();
    config.secure_runtime = Some("no-such-runtime".to_owned());
    let error = Docker::open(config).await.unwrap_err().to_string();
    assert!(
        error.contains("no-such-runtime") && error.contains("runc"),
        "{error}"
    );
}

pub(crate) async fn a_container_removed_behind_our_back_is_told(stage: Stage) {
    let backend = stage.open().await;
    let spec = spec("removed");
    backend.create(spec.clone()).await.unwrap();
    let mut events = backend.events();
    engine_says("DELETE", "/containers/sandbox-removed?force=1");
    hear(
        &mut events,
        |event| matches!(event, Event::Vanished { id } if *id == spec.id),
    )
    .await;
    let gone = backend.inspect(&spec.id).await;
    assert!(matches!(gone, Err(Error::NotFound(_))), "{gone:?}");
    backend.delete(&spec.id, Duration::ZERO).await.unwrap();
}

pub(crate) async fn an_image_removed_behind_our_back_is_told(stage: Stage) {
    stage.import("127.0.0.1:9/removed");
    let backend = stage.open().await;
    let source = Source::Image {
        reference: "127.0.0.1:9/removed:1".to_owned(),
        auth: None,
    };
    assert!(backend.is_local(&source, None).await);
    engine_says("DELETE", "/images/127.0.0.1:9/removed:1");
    let mut spec = spec("image-removed");
    spec.source = source;
    let refused = backend.create(spec).await;
    let is_told = matches!(
        refused,
        Err(Error::ImagePull { .. } | Error::ImageNotFound { .. })
    );
    assert!(is_told, "{refused:?}");
}

pub(crate) async fn a_hanging_engine_is_given_up_and_nothing_is_left(stage: Stage) {
    let relay = Relay::start(&stage);
    let mut config = stage.config();
    config.socket = relay.socket();
    // Every other call, removing what the hanging one made among them, has to be answered in this
    // time, however busy the machine.
    config.call_timeout = Duration::from_secs(12);
    let data = config.data_dir.clone();
    let backend = Docker::open(config).await.unwrap();
    relay.hold(true);
    let refused = backend.create(spec("hanging")).await;
    assert!(
        matches!(refused, Err(Error::Unavailable { .. })),
        "{refused:?}"
    );
    relay.hold(false);
    assert!(!engine_says("GET", "/containers/json?all=1").contains("sandbox-hanging"));
    assert!(!data.join("sandboxes/hanging").exists());
    backend.create(spec("hanging")).await.unwrap();
    backend
        .delete(&spec("hanging").id, Duration::ZERO)
        .await
        .unwrap();
}

/// Makes sandboxes until it is killed; what `server DIRECTORY` does.
pub(crate) fn server(arguments: &[String]) -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let stage = Stage::new();
        let mut config = stage.config();
        config.data_dir = arguments[0].clone().into();
        let backend = Docker::open(config).await.unwrap();
        let mut number = 0;
        loop {
            let batch = (0..4).map(|n| backend.create(spec(&format!("killed-{}", number + n))));
            for made in futures_util::future::join_all(batch).await {
                println!("{}", made.is_ok());
            }
            number += 4;
        }
    })
}

pub(crate) async fn a_server_killed_while_creating_leaves_nothing(stage: Stage) {
    use std::io::BufRead as _;
    let data = stage.config().data_dir;
    let mut server = Command::new(std::env::current_exe().unwrap())
        .arg("server")
        .arg(&data)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(server.stdout.take().unwrap()).lines();
    let made = lines
        .take(6)
        .filter(|line| line.as_deref().is_ok_and(|it| it == "true"))
        .count();
    // In the middle of the second batch or the third.
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(made, 6);
    let backend = stage.open().await;
    let mut listed = backend.list().await.unwrap();
    listed.retain(|observed| observed.id.as_str().starts_with("killed-"));
    let running = listed
        .iter()
        .filter(|it| it.state == ObservedState::Running);
    assert!(
        running.clone().count() >= 4,
        "what was made is there: {listed:?}"
    );
    for observed in running {
        let spec = spec(observed.id.as_str());
        assert!(ask(&backend, &spec, "GET /ping").await.contains(" 200 "));
    }
    // What was half made says so, and goes like all others.
    for observed in &listed {
        backend.delete(&observed.id, Duration::ZERO).await.unwrap();
    }
    let left = engine_says("GET", "/containers/json?all=1");
    assert!(!left.contains("sandbox-killed"), "{left}");
    let left = std::fs::read_dir(data.join("sandboxes")).unwrap().count();
    assert_eq!(left, 0);
}

/// Kills the engine as a crash would, and starts it again.
async fn restart_engine() {
    let pid = std::fs::read_to_string(engine_home().join("pid")).unwrap();
    let pid: i32 = pid.trim().parse().unwrap();
    let process = rustix::process::Pid::from_raw(pid).unwrap();
    let handle =
        rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    let ended = tokio::task::spawn_blocking(move || {
        let mut watched = [PollFd::new(&handle, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: 60,
            tv_nsec: 0,
        };
        rustix::event::poll(&mut watched, Some(&timeout))
    });
    assert_eq!(ended.await.unwrap(), Ok(1), "the engine ends");
    // A killed engine leaves its process id behind and would not start over it.
    let _ = std::fs::remove_file(engine_home().join("pid"));
    let _ = std::fs::remove_file(engine_home().join("exec/containerd/containerd.pid"));
    let started = tokio::process::Command::new(engine_home().join("engine")).status();
    let started = tokio::time::timeout(SOON * 2, started)
        .await
        .expect("the engine starts");
    assert!(started.unwrap().success());
}

pub(crate) async fn an_engine_that_is_killed_comes_back(stage: Stage) {
    let backend = stage.open().await;
    let spec = spec("survivor");
    backend.create(spec.clone()).await.unwrap();
    let mut events = backend.events();
    restart_engine().await;
    hear(&mut events, |event| matches!(event, Event::Resync)).await;
    backend.health().await.unwrap();
    // Without live-restore the engine ends its containers when it comes back; either way the
    // state is clear and new sandboxes can be made.
    let state = backend.inspect(&spec.id).await.unwrap().state;
    match state {
        ObservedState::Running => {
            assert!(ask(&backend, &spec, "GET /ping").await.contains(" 200 "));
        }
        ObservedState::Exited(_) => {}
        other => panic!("it is {other:?}"),
    }
    backend.delete(&spec.id, Duration::ZERO).await.unwrap();
    backend.create(stage::spec("after")).await.unwrap();
    let after = stage::spec("after");
    assert!(ask(&backend, &after, "GET /ping").await.contains(" 200 "));
    backend.delete(&after.id, Duration::ZERO).await.unwrap();
}
