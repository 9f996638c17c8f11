//! Pulls from a real registry on loopback.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lifecycle::backend::{Backend as _, Error, PullProgress, RegistryAuth, Source};
use secrecy::SecretString;
use tokio::sync::mpsc;

use crate::stage::{self, Stage, ask, engine_says, spec};

/// bcrypt of `secret`: the only kind of hash the registry reads.
const HASH: &str = "$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a";

struct Registry {
    process: Child,
    host: String,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Registry {
    fn start(stage: &Stage, is_private: bool) -> Self {
        let home = stage.directory.path();
        std::fs::write(home.join("htpasswd"), format!("alice:{HASH}\n")).unwrap();
        let auth = if is_private {
            format!(
                "auth: {{htpasswd: {{realm: test, path: {}/htpasswd}}}}\n",
                home.display()
            )
        } else {
            String::new()
        };
        let text = format!(
            "version: 0.1\nlog: {{level: info}}\nstorage: {{filesystem: {{rootdirectory: {}/storage}}}}\n\
             http: {{addr: \"127.0.0.1:0\"}}\n{auth}",
            home.display()
        );
        std::fs::write(home.join("registry.yml"), text).unwrap();
        let mut process = Command::new("docker-registry")
            .arg("serve")
            .arg(home.join("registry.yml"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("these tests need a registry: tools/setup test");
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let line = lines.find(|line| line.as_ref().is_ok_and(|it| it.contains("listening on")));
        let line = line.expect("the registry says where it listens").unwrap();
        let port: String = line
            .split("127.0.0.1:")
            .nth(1)
            .unwrap()
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        // It would stop at a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            process,
            host: format!("127.0.0.1:{port}"),
        }
    }

    /// Pushes the image of the tests and forgets it here.
    fn fill(&self, stage: &Stage, auth: &str) -> String {
        let name = format!("{}/app", self.host);
        stage.import(&name);
        let pushed = Command::new("curl")
            .args(["-sS", "--fail", "-X", "POST", "--unix-socket"])
            .arg(stage::socket())
            .args(["-H", &format!("X-Registry-Auth: {auth}")])
            .arg(format!("http://engine/images/{name}/push?tag=1"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&pushed.stdout).into_owned();
        assert!(said.contains("digest"), "{said}");
        engine_says("DELETE", &format!("/images/{name}:1"));
        format!("{name}:1")
    }
}

fn image(reference: &str, password: Option<&str>) -> Source {
    Source::Image {
        reference: reference.to_owned(),
        auth: password.map(|password| RegistryAuth {
            username: "alice".to_owned(),
            password: SecretString::from(password.to_owned()),
        }),
    }
}

pub(crate) async fn an_image_is_pulled_once_for_many_with_progress(stage: Stage) {
    let registry = Registry::start(&stage, false);
    let reference = registry.fill(&stage, "e30K");
    let backend = stage.open().await;
    let source = image(&reference, None);
    assert!(!backend.is_local(&source, None).await);
    // A full channel drops reports, and a slow download makes many.
    let (progress, mut reports) = mpsc::channel(100_000);
    let pulls = (0..8).map(|_| backend.pull(&source, None, progress.clone()));
    for pulled in futures_util::future::join_all(pulls).await {
        pulled.unwrap();
    }
    drop(progress);
    let mut seen = Vec::new();
    while let Ok(report) = reports.try_recv() {
        seen.push(report);
    }
    let resolved = |it: &PullProgress| matches!(it, PullProgress::Resolved { layers: 1, .. });
    assert!(seen.iter().any(resolved), "{seen:?}");
    let unpacked = |it: &&PullProgress| matches!(it, PullProgress::Unpacked { .. });
    // Each of the eight heard of the one download.
    assert_eq!(seen.iter().filter(unpacked).count(), 8, "{seen:?}");
    assert!(backend.is_local(&source, None).await);
    let mut spec = spec("pulled");
    spec.entrypoint = None;
    spec.source = source;
    backend.create(spec.clone()).await.unwrap();
    assert!(ask(&backend, &spec, "GET /ping").await.contains(" 200 "));
    backend.delete(&spec.id, Duration::ZERO).await.unwrap();
    let gone = image(&format!("{}/other:1", registry.host), None);
    let (progress, _reports) = mpsc::channel(1);
    let refused = backend.pull(&gone, None, progress).await;
    assert!(
        matches!(refused, Err(Error::ImageNotFound { .. })),
        "{refused:?}"
    );
    engine_says("DELETE", &format!("/images/{reference}"));
}

pub(crate) async fn a_private_image_needs_its_password(stage: Stage) {
    let registry = Registry::start(&stage, true);
    // {"username":"alice","password":"secret"}
    let reference = registry.fill(
        &stage,
        "eyJ1c2VybmFtZSI6ImFsaWNlIiwicGFzc3dvcmQiOiJzZWNyZXQifQ==",
    );
    let backend = stage.open().await;
    for wrong in [None, Some("wrong")] {
        let (progress, _reports) = mpsc::channel(1);
        let refused = backend
            .pull(&image(&reference, wrong), None, progress)
            .await;
        assert!(
            matches!(refused, Err(Error::ImageUnauthorized { .. })),
            "{wrong:?}: {refused:?}"
        );
    }
    let (progress, _reports) = mpsc::channel(1);
    backend
        .pull(&image(&reference, Some("secret")), None, progress)
        .await
        .unwrap();
    engine_says("DELETE", &format!("/images/{reference}"));
}
