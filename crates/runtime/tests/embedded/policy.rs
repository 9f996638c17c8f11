//! Network policies over a restart at bad moments.

use std::process::Command;

use api::egress::policy::EgressPolicy;
use lifecycle::backend::Backend;

use crate::stage::{Stage, create, delete, id, settled, spec};

/// Whether the host's own namespace has the other end of a sandbox's network.
fn leads_to_the_host(interface: &str) -> bool {
    let links = Command::new("ip")
        .args(["-o", "link", "show", interface])
        .output();
    links.expect("ip runs").status.success()
}

/// A server that dies after it has written that a sandbox has rules, and before it has led its network to the gate,
/// leaves one that reaches everything. The next one leads it there before it serves.
pub(crate) async fn a_sandbox_is_led_to_the_gate_that_its_record_names(stage: Stage) {
    let backend = stage.open().await;
    create(&backend, spec("late")).await.unwrap();
    drop(backend);
    let path = stage.data_dir().join("sandboxes/late/record.json");
    let text = std::fs::read(&path).unwrap();
    let mut record: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let interface = format!("osb-{}", record["slot"]);
    assert!(leads_to_the_host(&interface));
    record["network"] = "Gated".into();
    record["policy"] = serde_json::to_value(EgressPolicy::DENY_ALL).unwrap();
    std::fs::write(&path, record.to_string()).unwrap();

    let backend = stage.open().await;
    assert!(!leads_to_the_host(&interface), "it still leads to the host");
    let policy = backend.network_policy(&id("late")).await.unwrap();
    assert_eq!(policy, EgressPolicy::DENY_ALL);
    let inside =
        std::fs::read_to_string(format!("/proc/{}/net/route", stage.first_process("late")));
    assert!(inside.unwrap().contains("eth0"), "it has no network at all");
    delete(&backend, "late").await;
    settled(&backend).await;
    assert_eq!(stage.leftovers(), Vec::<String>::new());
}
