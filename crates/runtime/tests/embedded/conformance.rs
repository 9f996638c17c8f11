//! The suite that every backend has to pass.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use api::id::SandboxId;
use async_trait::async_trait;
use lifecycle::backend::Backend;
use lifecycle::conformance::{Factory, Facts, run};
use runtime::Embedded;

use crate::stage::{Stage, processes_of, settled};

struct Embeddeds {
    stage: Stage,
    volumes: PathBuf,
    /// A handle to the backend in use, to wait for what it does behind its callers. Given up
    /// before the next is opened.
    current: Mutex<Option<Embedded>>,
}

/// Sends `hello` to one client. bash cannot listen, so a language that can is used.
const LISTEN: &str = "python3 -u -c 'import socket; s = socket.socket(); \
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind((\"127.0.0.1\", {port})); \
    s.listen(); print(\"listening\"); c, _ = s.accept(); c.sendall(b\"hello\"); c.close()'";

#[async_trait]
impl Factory for Embeddeds {
    async fn open(&self) -> Arc<dyn Backend> {
        self.current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let backend = self.stage.open().await;
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(backend.clone());
        Arc::new(backend)
    }

    fn facts(&self) -> Facts {
        Facts {
            image: "host".to_owned(),
            missing_image: "127.0.0.1:9/no/such-image:latest".to_owned(),
            has_shell: true,
            listen: Some(LISTEN.to_owned()),
            host_root: Some(self.volumes.clone()),
            has_named_volumes: true,
            enforces_limits: true,
        }
    }

    async fn leftovers(&self, id: &SandboxId) -> Vec<String> {
        let current = self
            .current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(backend) = current {
            settled(&backend).await;
        }
        let processes = processes_of(id.as_str())
            .into_iter()
            .map(|pid| format!("process {pid}"));
        let named = |left: &String| left.contains(id.as_str());
        self.stage
            .leftovers()
            .into_iter()
            .filter(named)
            .chain(processes)
            .collect()
    }
}

pub(crate) async fn the_suite_of_all_backends_passes(stage: Stage) {
    let volumes = stage.directory.path().join("volumes");
    std::fs::create_dir(&volumes).unwrap();
    let factory = Arc::new(Embeddeds {
        stage,
        volumes,
        current: Mutex::new(None),
    });
    let filter = std::env::var("CONFORMANCE").ok();
    let report = run(factory, filter.as_deref()).await;
    println!("{report}");
    assert!(report.failures().is_empty(), "some cases failed");
}
