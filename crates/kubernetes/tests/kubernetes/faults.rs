//! What goes wrong around the backend: told, and nothing left behind.

use std::process::Command;

use kubernetes::Kubernetes;
use lifecycle::backend::{Backend, Error, Event, Limits};
use serde_json::json;

use crate::stage::{self, SOON, apply, delete, kubectl, left_of, open, spec};

pub(crate) async fn no_cluster_is_explained() {
    let mut config = stage::config();
    config.kubeconfig = Some("/nonexistent/kubeconfig".into());
    let error = Kubernetes::open(config).await.unwrap_err().to_string();
    assert!(error.contains("kubernetes.kubeconfig_path"), "{error}");
}

pub(crate) async fn no_node_takes_it_is_told_at_once() {
    let backend = open().await;
    let mut spec = spec("too-large");
    spec.limits = Limits {
        cpu_millis: Some(1_000_000),
        ..Limits::default()
    };
    // Well within the deadline: nobody waits for a node that does not come.
    let created = tokio::time::timeout(SOON, backend.create(spec))
        .await
        .unwrap();
    let error = created.unwrap_err();
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
    assert!(error.to_string().contains("Insufficient cpu"), "{error}");
    assert!(left_of("too-large").is_empty());
}

pub(crate) async fn a_pod_removed_behind_our_back_is_told_and_leaves_nothing() {
    let backend = open().await;
    let mut events = backend.events();
    let spec = spec("removed");
    backend.create(spec.clone()).await.unwrap();
    kubectl(&["delete", "pod", "sandbox-removed", "--grace-period=1"]);
    let told = async {
        loop {
            if let Event::Vanished { id } = events.recv().await.unwrap() {
                return id;
            }
        }
    };
    let id = tokio::time::timeout(SOON, told).await.unwrap();
    assert_eq!(id, spec.id);
    // Its Secret goes, too, after it was forgotten here.
    kubectl(&[
        "wait",
        "--for=delete",
        "secret/sandbox-removed",
        "--timeout=60s",
    ]);
    let inspected = backend.inspect(&spec.id).await;
    assert!(
        matches!(inspected, Err(Error::NotFound(_))),
        "{inspected:?}"
    );
}

pub(crate) async fn a_quota_is_told() {
    let namespace = "quota";
    stage::namespace(namespace, &json!({}));
    apply(&json!({ "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": { "name": "none", "namespace": namespace }, "spec": { "hard": { "pods": "0" } } }));
    let counted = "--for=jsonpath={.status.hard.pods}=0";
    kubectl(&[
        "-n",
        namespace,
        "wait",
        counted,
        "resourcequota/none",
        "--timeout=60s",
    ]);
    let mut config = stage::config();
    config.namespace = Some(namespace.to_owned());
    let backend = Kubernetes::open(config).await.unwrap();
    let error = backend.create(spec("over-quota")).await.unwrap_err();
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
    let left = kubectl(&["-n", namespace, "get", "pods,secrets", "-o", "name"]);
    assert!(left.is_empty(), "{left}");
    kubectl(&["delete", "namespace", namespace, "--wait=false"]);
}

pub(crate) async fn what_a_killed_server_left_is_removed() {
    let backend = open().await;
    let spec = spec("kept");
    backend.create(spec.clone()).await.unwrap();
    drop(backend);
    // A volume of a sandbox that is no more.
    apply(
        &json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "orphan", "labels": { "opensandbox.io/id": "gone" } },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Mi" } } } }),
    );
    let backend = open().await;
    backend.inspect(&spec.id).await.unwrap();
    kubectl(&["wait", "--for=delete", "pvc/orphan", "--timeout=60s"]);
    delete(&backend, &spec).await;
}

pub(crate) async fn an_api_server_that_is_killed_comes_back() {
    let backend = open().await;
    let (first, second) = (spec("before"), spec("after"));
    backend.create(first.clone()).await.unwrap();
    let home = stage::cluster();
    let pid = std::fs::read_to_string(home.join("apiserver.pid")).unwrap();
    let killed = Command::new("kill")
        .args(["-9", pid.trim()])
        .status()
        .unwrap();
    assert!(killed.success());
    // Sandboxes are seen and reached all the same, and what cannot be done is told.
    let seen = stage::sh(&backend, &first, "echo still here").await;
    assert!(seen.contains("still here"), "{seen}");
    assert_eq!(backend.list().await.unwrap().len(), 1);
    let error = backend.create(spec("meanwhile")).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    let again = Command::new(home.join("start-apiserver")).status().unwrap();
    assert!(again.success());
    // The watch goes on: an end is told, and a creation sees its pod.
    let mut events = backend.events();
    backend.create(second.clone()).await.unwrap();
    kubectl(&["delete", "pod", "sandbox-before", "--grace-period=1"]);
    let told = async {
        loop {
            if let Event::Vanished { id } = events.recv().await.unwrap() {
                return id;
            }
        }
    };
    let id = tokio::time::timeout(SOON, told).await.unwrap();
    assert_eq!(id, first.id);
    delete(&backend, &second).await;
}
