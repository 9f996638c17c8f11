//! The suite that every backend has to pass.

use std::path::PathBuf;
use std::sync::Arc;

use api::id::SandboxId;
use async_trait::async_trait;
use lifecycle::backend::Backend;
use lifecycle::conformance::{Factory, Facts, Report, run};

use crate::stage;

struct Cluster {
    volumes: PathBuf,
}

/// What no pod can have, and why.
const NOT_ON_KUBERNETES: [(&str, &str); 2] = [
    (
        "limits::processes_are_limited",
        "a pod cannot ask for a limit of processes; the request is refused",
    ),
    (
        "limits::a_command_that_eats_memory_leaves_the_sandbox_alive",
        "the kubelet tells nobody of a process that was killed while its container goes on",
    ),
];

/// With CONFORMANCE=core: one case of each kind, for every run of the tests.
const CORE: [&str; 10] = [
    "life::a_new_sandbox",
    "life::an_exit_code",
    "life::an_end_by_signal",
    "life::logs_are_followed",
    "life::deletion_with_grace",
    "ports::a_port_on",
    "limits::an_entrypoint_that_eats",
    "restart::a_found_sandbox_runs",
    "errors::an_image",
    "volumes::a_sub_path_that",
];

const LISTEN: &str = "python3 -u -c 'import socket; s = socket.socket(); \
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind((\"127.0.0.1\", {port})); \
    s.listen(); print(\"listening\"); c, _ = s.accept(); c.sendall(b\"hello\"); c.close()'";

#[async_trait]
impl Factory for Cluster {
    async fn open(&self) -> Arc<dyn Backend> {
        Arc::new(stage::open().await)
    }

    fn facts(&self) -> Facts {
        Facts {
            image: stage::image(),
            missing_image: "127.0.0.1:9/no/such-image:latest".to_owned(),
            has_shell: true,
            listen: Some(LISTEN.to_owned()),
            host_root: Some(self.volumes.clone()),
            has_named_volumes: true,
            enforces_limits: true,
        }
    }

    async fn leftovers(&self, id: &SandboxId) -> Vec<String> {
        stage::left_of(id.as_str())
    }
}

pub(crate) async fn the_suite_of_all_backends_passes() {
    let volumes = stage::cluster().join("volumes");
    std::fs::create_dir(&volumes).unwrap();
    let chosen = std::env::var("CONFORMANCE").unwrap_or_default();
    let parts = match chosen.as_str() {
        "core" => CORE.to_vec(),
        part => vec![part],
    };
    let factory = Arc::new(Cluster { volumes });
    let mut verdicts = Vec::new();
    for part in parts {
        let report = run(factory.clone(), Some(part)).await;
        assert!(!report.verdicts.is_empty(), "no case is called {part}");
        verdicts.extend(report.verdicts);
    }
    let report = Report { verdicts };
    println!("{report}");
    let mut failures = report.failures();
    for (case, why) in NOT_ON_KUBERNETES {
        let before = failures.len();
        failures.retain(|(name, _)| !name.ends_with(case));
        if failures.len() < before {
            println!("does not apply: {case}: {why}");
        }
    }
    assert!(failures.is_empty(), "some cases failed");
}
