//! The suite that backends must pass, on the fake one: whatever looks from outside applies.

use std::sync::Arc;

use api::id::SandboxId;
use async_trait::async_trait;
use lifecycle::conformance::{Factory, Facts, Verdict, run};
use lifecycle::fake::Backend;

struct Fake(Backend);

#[async_trait]
impl Factory for Fake {
    async fn open(&self) -> Arc<dyn lifecycle::backend::Backend> {
        Arc::new(self.0.clone())
    }

    fn facts(&self) -> Facts {
        Facts {
            image: "local".to_owned(),
            missing_image: "nowhere".to_owned(),
            has_shell: false,
            listen: None,
            host_root: None,
            has_named_volumes: false,
            enforces_limits: false,
        }
    }

    async fn leftovers(&self, id: &SandboxId) -> Vec<String> {
        let state = self.0.sandboxes().remove(id);
        state
            .map(|state| format!("the sandbox itself, {state:?}"))
            .into_iter()
            .collect()
    }
}

#[tokio::test]
async fn the_fake_backend_keeps_the_contract() {
    let report = run(Arc::new(Fake(Backend::new())), None).await;
    assert!(report.failures().is_empty(), "{report}");
    assert!(report.passed() >= 34, "{report}");
    assert!(
        report
            .verdicts
            .iter()
            .any(|(_, v)| matches!(v, Verdict::NotApplicable(_)))
    );
}

#[tokio::test]
async fn a_backend_that_leaves_something_behind_fails_the_suite() {
    struct Leaky(Fake);

    #[async_trait]
    impl Factory for Leaky {
        async fn open(&self) -> Arc<dyn lifecycle::backend::Backend> {
            self.0.open().await
        }

        fn facts(&self) -> Facts {
            self.0.facts()
        }

        async fn leftovers(&self, _id: &SandboxId) -> Vec<String> {
            vec!["a mount".to_owned()]
        }
    }

    let leaky = Arc::new(Leaky(Fake(Backend::new())));
    let report = run(leaky, Some("a_deleted_sandbox_is_gone")).await;
    assert_eq!(report.verdicts.len(), 1);
    assert!(report.failures()[0].1.contains("a mount"), "{report}");
}
