//! The suite that every backend has to pass.

use std::path::PathBuf;
use std::sync::Arc;

use api::id::SandboxId;
use async_trait::async_trait;
use lifecycle::backend::Backend;
use lifecycle::conformance::{Factory, Facts, run};

use crate::stage::{self, Stage, engine_says};

struct Engines {
    stage: Stage,
    volumes: PathBuf,
}

/// The case ends a sandbox's entrypoint from the host, through a named pipe in a volume. A pipe that
/// gVisor's kernel has made is no pipe for the host's, so the entrypoint never hears of it. That ends
/// are found again is shown by the case's neighbours.
const NOT_IN_GVISOR: &str = "restart::an_end_while_nobody_looked_is_found";

const LISTEN: &str = "python3 -u -c 'import socket; s = socket.socket(); \
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind((\"127.0.0.1\", {port})); \
    s.listen(); print(\"listening\"); c, _ = s.accept(); c.sendall(b\"hello\"); c.close()'";

#[async_trait]
impl Factory for Engines {
    async fn open(&self) -> Arc<dyn Backend> {
        Arc::new(self.stage.open().await)
    }

    fn facts(&self) -> Facts {
        Facts {
            image: stage::image(),
            missing_image: "127.0.0.1:9/no/such-image:latest".to_owned(),
            has_shell: true,
            listen: Some(LISTEN.to_owned()),
            host_root: Some(self.volumes.clone()),
            has_named_volumes: true,
            // gVisor is run without cgroups here, so nothing enforces them.
            enforces_limits: !stage::is_secure(),
        }
    }

    async fn leftovers(&self, id: &SandboxId) -> Vec<String> {
        let mut left = Vec::new();
        let containers = engine_says("GET", "/containers/json?all=1");
        if containers.contains(id.as_str()) {
            left.push(format!("a container: {containers}"));
        }
        let directory = self
            .stage
            .config()
            .data_dir
            .join("sandboxes")
            .join(id.as_str());
        if directory.exists() {
            left.push(format!("{}", directory.display()));
        }
        left
    }
}

pub(crate) async fn the_suite_of_all_backends_passes(stage: Stage) {
    let volumes = stage.directory.path().join("volumes");
    std::fs::create_dir(&volumes).unwrap();
    let filter = std::env::var("CONFORMANCE").ok();
    let report = run(Arc::new(Engines { stage, volumes }), filter.as_deref()).await;
    println!("{report}");
    let mut failures = report.failures();
    if stage::is_secure() {
        failures.retain(|(name, _)| !name.ends_with(NOT_IN_GVISOR));
    }
    assert!(failures.is_empty(), "some cases failed");
}
