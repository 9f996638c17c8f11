//! What a sandbox is made of, seen from inside and from the engine.

use std::time::Duration;

use api::egress::policy::EgressPolicy;
use lifecycle::backend::{
    Backend as _, Error, LogQuery, ObservedState, Platform, Source, Spec, Target,
};
use lifecycle::doctor::Status;

use crate::stage::{self, Stage, TOKEN, ask, engine_says, run, spec};

fn of(image: &str, spec: Spec) -> Spec {
    Spec {
        source: Source::Image {
            reference: image.to_owned(),
            auth: None,
        },
        ..spec
    }
}

pub(crate) async fn an_image_with_nothing_but_a_program_works(stage: Stage) {
    let backend = stage.open().await;
    let mut spec = of(&stage::static_image(), spec("static"));
    spec.entrypoint = None;
    let created = backend.create(spec.clone()).await.unwrap();
    assert_eq!(created.entrypoint, ["/sleep", "1000000"]);
    assert!(ask(&backend, &spec, "GET /ping").await.contains(" 200 "));
    backend.delete(&spec.id, Duration::ZERO).await.unwrap();
}

pub(crate) async fn the_image_s_own_command_runs(stage: Stage) {
    let backend = stage.open().await;
    let spec = Spec {
        entrypoint: None,
        ..spec("own-command")
    };
    let created = backend.create(spec.clone()).await.unwrap();
    assert_eq!(created.entrypoint, ["sleep", "infinity"]);
    let seen = run(&backend, &spec, "cat /proc/*/cmdline | tr '\\0' ' '").await;
    assert!(seen.contains("sleep infinity"), "{seen}");
    backend.delete(&spec.id, Duration::ZERO).await.unwrap();
}

pub(crate) async fn nothing_secret_is_in_the_configuration(stage: Stage) {
    let backend = stage.open().await;
    let mut spec = spec("secrets");
    spec.env
        .insert("PASSWORD".to_owned(), "open-sesame".to_owned());
    backend.create(spec.clone()).await.unwrap();
    assert!(
        run(&backend, &spec, "echo $PASSWORD")
            .await
            .contains("open-sesame")
    );
    let seen = engine_says("GET", "/containers/sandbox-secrets/json");
    assert!(seen.contains("sandbox-secrets"), "{seen}");
    for secret in ["open-sesame", TOKEN, "PASSWORD"] {
        assert!(!seen.contains(secret), "{secret} is in {seen}");
    }
    let query = LogQuery {
        tail_lines: 100,
        since: None,
        max_bytes: 1 << 16,
    };
    let logs = backend.logs(&spec.id, query).await.unwrap();
    assert!(!logs.text.contains(TOKEN), "{logs:?}");
    backend.delete(&spec.id, Duration::ZERO).await.unwrap();
}

pub(crate) async fn the_handoff_is_gone_and_execd_cannot_be_written(stage: Stage) {
    let backend = stage.open().await;
    let spec = spec("handoff");
    backend.create(spec.clone()).await.unwrap();
    let tries = "ls -A /opt/opensandbox/run | wc -l; \
                 (echo x > /opt/opensandbox/run/socket) 2>&1; (ln -s / /opt/opensandbox/run/x) 2>&1; \
                 rm /opt/opensandbox/bin/execd 2>&1; touch /opt/opensandbox/bin/x 2>&1; \
                 find / -name control.sock -not -path '/proc/*' 2>/dev/null; echo end";
    let seen = run(&backend, &spec, tries).await;
    assert_eq!(seen.matches("Read-only file system").count(), 4, "{seen}");
    assert!(seen.contains("\"text\":\"0"), "{seen}");
    assert!(!seen.contains("control.sock"), "{seen}");
    backend.delete(&spec.id, Duration::ZERO).await.unwrap();
}

pub(crate) async fn every_kind_of_network_works(stage: Stage) {
    let made = std::process::Command::new("curl")
        .args(["-sS", "--fail", "--unix-socket"])
        .arg(stage::socket())
        .args([
            "-H",
            "Content-Type: application/json",
            "-d",
            "{\"Name\":\"osb-test\"}",
        ])
        .arg("http://engine/networks/create")
        .status()
        .unwrap();
    assert!(made.success());
    for mode in ["bridge", "host", "none", "osb-test"] {
        let mut config = stage.config();
        config.network_mode = mode.to_owned();
        let backend = docker::Docker::open(config).await.unwrap();
        let spec = spec(&format!("net-{mode}"));
        backend.create(spec.clone()).await.unwrap();
        assert!(
            ask(&backend, &spec, "GET /ping").await.contains(" 200 "),
            "{mode}"
        );
        let refused = backend.connect(&spec.id, Target::Port(9)).await.err();
        assert!(
            refused.is_some_and(|error| error.to_string().contains("port 9")),
            "{mode}"
        );
        let seen = engine_says(
            "GET",
            &format!("/containers/{}/json", format_args!("sandbox-{}", spec.id)),
        );
        assert!(!seen.contains("HostPort"), "{mode} publishes a port");
        backend.delete(&spec.id, Duration::ZERO).await.unwrap();
    }
    engine_says("DELETE", "/networks/osb-test");
}

pub(crate) async fn privileges_are_dropped(stage: Stage) {
    let backend = stage.open().await;
    let mut spec = spec("privileges");
    spec.network = EgressPolicy::DENY_ALL;
    backend.create(spec.clone()).await.unwrap();
    let seen = run(
        &backend,
        &spec,
        "grep -E 'NoNewPrivs|Seccomp:|CapBnd' /proc/self/status",
    )
    .await;
    assert!(seen.contains("NoNewPrivs:\\t1"), "{seen}");
    assert!(seen.contains("Seccomp:\\t2"), "{seen}");
    let bits = seen
        .split("CapBnd:\\t")
        .nth(1)
        .and_then(|rest| rest.get(..16))
        .unwrap();
    let bits = u64::from_str_radix(bits, 16).unwrap();
    // NET_ADMIN, NET_RAW, SYS_MODULE, SYS_PTRACE, SYS_ADMIN, SYS_TIME, MKNOD, AUDIT_WRITE
    for capability in [12, 13, 16, 19, 21, 25, 27, 29] {
        assert_eq!(
            bits & (1 << capability),
            0,
            "capability {capability} in {bits:x}"
        );
    }
    let devices = run(
        &backend,
        &spec,
        "mount -t tmpfs x /tmp 2>&1; mknod /tmp/d b 8 0 2>&1; :",
    )
    .await;
    assert_eq!(
        devices.to_lowercase().matches("denied").count() + devices.matches("not permitted").count(),
        2,
        "{devices}"
    );
    backend.delete(&spec.id, Duration::ZERO).await.unwrap();
}

pub(crate) async fn a_creation_is_two_calls_and_looking_is_none(stage: Stage) {
    let counter = crate::faults::Relay::start(&stage);
    let mut config = stage.config();
    config.socket = counter.socket();
    let backend = docker::Docker::open(config).await.unwrap();
    let warm = spec("calls-warm");
    backend.create(warm.clone()).await.unwrap();
    let before = counter.calls();
    let spec = spec("calls");
    backend.create(spec.clone()).await.unwrap();
    assert_eq!(counter.calls() - before, 2, "{:?}", counter.seen());
    let before = counter.calls();
    backend.list().await.unwrap();
    backend.inspect(&spec.id).await.unwrap();
    assert!(ask(&backend, &spec, "GET /ping").await.contains(" 200 "));
    let source = spec.source.clone();
    assert!(backend.is_local(&source, None).await);
    assert_eq!(counter.calls(), before, "{:?}", counter.seen());
    for id in [&warm.id, &spec.id] {
        backend.delete(id, Duration::ZERO).await.unwrap();
    }
}

/// The published server's names, labels and formats, on a container it would have made.
pub(crate) async fn a_sandbox_of_the_published_server_is_found(stage: Stage) {
    let body = serde_json::json!({
        "Image": stage::image(),
        "Cmd": ["python3", "-m", "http.server", "44772"],
        "Labels": {
            "opensandbox.io/id": "0b5c7a54-0000-4000-8000-000000000001",
            "opensandbox.io/expires-at": "2099-01-01T00:00:00.123456+00:00",
            "opensandbox.io/platform-os": "linux",
            "team": "blue",
        },
    });
    let file = stage.directory.path().join("body.json");
    std::fs::write(&file, body.to_string()).unwrap();
    let make = std::process::Command::new("curl")
        .args(["-sS", "--fail", "--unix-socket"])
        .arg(stage::socket())
        .args(["-H", "Content-Type: application/json", "-d"])
        .arg(format!("@{}", file.display()))
        .arg("http://engine/containers/create?name=sandbox-0b5c7a54-0000-4000-8000-000000000001")
        .status();
    assert!(make.unwrap().success());
    engine_says(
        "POST",
        "/containers/sandbox-0b5c7a54-0000-4000-8000-000000000001/start",
    );
    let backend = stage.open().await;
    let id = "0b5c7a54-0000-4000-8000-000000000001".parse().unwrap();
    let seen = backend.inspect(&id).await.unwrap();
    assert_eq!(seen.state, ObservedState::Running);
    assert_eq!(seen.labels["team"], "blue");
    assert!(seen.started_at.is_some());
    let kept = seen.labels[lifecycle::labels::RECORD].clone();
    assert!(kept.contains("blue"), "{kept}");
    backend.pause(&id).await.unwrap();
    backend.resume(&id).await.unwrap();
    backend.delete(&id, Duration::ZERO).await.unwrap();
    assert!(!engine_says("GET", "/containers/json?all=1").contains("0b5c7a54"));
}

/// There is no GPU here, and the engine says so; it was asked for one.
pub(crate) async fn gpus_that_the_engine_lacks_are_refused(stage: Stage) {
    let backend = stage.open().await;
    let mut spec = spec("gpus");
    spec.limits.gpus = Some(1);
    let refused = backend.create(spec.clone()).await;
    let is_told =
        matches!(&refused, Err(Error::Invalid { field, .. }) if *field == "resourceLimits.gpu");
    assert!(is_told, "{refused:?}");
    assert!(!engine_says("GET", "/containers/json?all=1").contains("sandbox-gpus"));
}

/// An image of another platform than the one that is here is looked for in its registry, by the
/// platform's name.
pub(crate) async fn a_platform_is_the_engines_to_find(stage: Stage) {
    stage.import("127.0.0.1:9/platform");
    let relay = crate::faults::Relay::start(&stage);
    let mut config = stage.config();
    config.socket = relay.socket();
    let backend = docker::Docker::open(config).await.unwrap();
    let mut spec = of("127.0.0.1:9/platform:1", spec("platform"));
    spec.entrypoint = None;
    spec.platform = Some(Platform {
        os: "linux".to_owned(),
        arch: "riscv64".to_owned(),
    });
    let refused = backend.create(spec.clone()).await;
    assert!(
        matches!(refused, Err(Error::ImagePull { .. })),
        "{refused:?}"
    );
    let asked = relay.seen();
    let names_it = |line: &String| line.contains("platform=linux%2Friscv64");
    assert!(asked.iter().any(names_it), "{asked:?}");
    spec.platform = None;
    let created = backend.create(spec.clone()).await.unwrap();
    assert_eq!(created.platform.os, "linux");
    backend.delete(&spec.id, Duration::ZERO).await.unwrap();
    engine_says("DELETE", "/images/127.0.0.1:9/platform:1");
}

/// Under the name that Kata has, the engine of the tests has its ordinary runtime: enough to see that
/// the name arrives, and that a sandbox of which only the network is reached from here works.
pub(crate) async fn a_secure_runtime_is_used_by_its_name(stage: Stage) {
    let mut config = stage.config();
    config.secure_runtime = Some("kata-runtime".to_owned());
    let backend = docker::Docker::open(config.clone()).await.unwrap();
    let checks = docker::doctor::examine(&config).await.checks;
    let is_able = checks.iter().all(|it| it.status != Status::Failed);
    assert!(is_able, "{checks:?}");
    let mut spec = spec("secure");
    spec.env.insert("WORD".to_owned(), "handed over".to_owned());
    backend.create(spec.clone()).await.unwrap();
    let seen = run(&backend, &spec, "echo $WORD").await;
    assert!(seen.contains("handed over"), "{seen}");
    let seen = engine_says("GET", "/containers/sandbox-secure/json");
    assert!(seen.contains("\"Runtime\":\"kata-runtime\""), "{seen}");
    backend.delete(&spec.id, Duration::ZERO).await.unwrap();
    config.network_mode = "host".to_owned();
    let refused = docker::Docker::open(config).await.unwrap_err().to_string();
    assert!(refused.contains("network_mode"), "{refused}");
}
