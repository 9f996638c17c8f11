//! What only this backend promises about its sandboxes.

use std::time::Duration;

use kubernetes::{Kubernetes, Security};
use lifecycle::backend::{Backend, LogQuery, Source, Target};
use serde_json::json;

use crate::stage::{self, TOKEN, delete, get, open, sh, spec};

pub(crate) async fn an_image_with_nothing_but_a_program_works() {
    let backend = open().await;
    let mut spec = spec("static");
    spec.source = Source::Image {
        reference: stage::static_image(),
        auth: None,
    };
    spec.entrypoint = Some(vec!["/sleep".to_owned(), "100000".to_owned()]);
    backend.create(spec.clone()).await.unwrap();
    let answer = stage::ask(&backend, &spec, "GET /ping").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    delete(&backend, &spec).await;
}

pub(crate) async fn nothing_secret_is_in_the_pod_and_the_handoff_is_gone() {
    let backend = open().await;
    let mut spec = spec("secret");
    spec.env
        .insert("PASSWORD".to_owned(), "open-sesame".to_owned());
    spec.labels
        .insert("record".to_owned(), "sealed-record".to_owned());
    backend.create(spec.clone()).await.unwrap();
    let pod = get(&["pod", "sandbox-secret"]).to_string();
    for secret in ["open-sesame", "sealed-record", TOKEN] {
        assert!(!pod.contains(secret), "{secret} is in {pod}");
    }
    // The workload has its environment, and nothing of what execd was told.
    let seen = sh(
        &backend,
        &spec,
        "echo got $PASSWORD left $(ls -A /opt/opensandbox/handoff | wc -l) \
         found $(grep -rs a-token-for-tests /opt/opensandbox /run /proc/1/environ /proc/self/environ | wc -l); \
         touch /opt/opensandbox/bin/execd || echo read-only; ls -d /run/opensandbox /var/run/secrets/*",
    )
    .await;
    assert!(seen.contains("got open-sesame left 0 found 0"), "{seen}");
    assert!(seen.contains("read-only"), "{seen}");
    assert!(!seen.contains("kubernetes.io"), "{seen}");
    delete(&backend, &spec).await;
}

pub(crate) async fn a_template_is_merged_under_the_sandbox() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let template = "
spec:
  template:
    metadata: {labels: {team: blue}}
    spec:
      tolerations: [{key: gpu, operator: Exists}]
      containers:
      - name: sandbox
        env: [{name: FROM_TEMPLATE, value: 'yes'}]
        volumeMounts: [{name: scratch, mountPath: /scratch}]
      volumes: [{name: scratch, emptyDir: {}}]
";
    std::fs::write(file.path(), template).unwrap();
    let mut config = stage::config();
    config.template = Some(file.path().to_owned());
    let backend = Kubernetes::open(config).await.unwrap();
    let spec = spec("template");
    backend.create(spec.clone()).await.unwrap();
    let seen = sh(
        &backend,
        &spec,
        "echo $FROM_TEMPLATE; touch /scratch/x && echo wrote",
    )
    .await;
    assert!(seen.contains("yes") && seen.contains("wrote"), "{seen}");
    let pod = get(&["pod", "sandbox-template"]);
    assert_eq!(pod["metadata"]["labels"]["team"], "blue");
    delete(&backend, &spec).await;
}

pub(crate) async fn restricted_sandboxes_run_as_nobody_special() {
    let name = "restricted";
    stage::apply(
        &json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name,
        "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } }),
    );
    let mut config = stage::config();
    config.namespace = Some(name.to_owned());
    // The standard is enforced: what asks for more does not come in, and is told why.
    let backend = Kubernetes::open(config.clone()).await.unwrap();
    let refused = backend.create(spec("loose")).await.unwrap_err();
    assert!(
        refused.to_string().contains("violates PodSecurity"),
        "{refused}"
    );
    drop(backend);
    config.security = Security::Restricted { user: 12345 };
    let backend = Kubernetes::open(config).await.unwrap();
    let spec = spec("tight");
    backend.create(spec.clone()).await.unwrap();
    let seen = sh(
        &backend,
        &spec,
        "id -u; grep CapEff /proc/self/status; grep NoNewPrivs /proc/self/status",
    )
    .await;
    for word in ["12345", "0000000000000000", "NoNewPrivs:\\t1"] {
        assert!(seen.contains(word), "no {word} in {seen}");
    }
    backend.delete(&spec.id, Duration::ZERO).await.unwrap();
    stage::kubectl(&["delete", "namespace", name, "--wait=false"]);
}

/// Requests that the API server has answered, watches that are open not among them.
fn calls() -> f64 {
    let metrics = stage::kubectl(&["get", "--raw", "/metrics"]);
    let counts = metrics.lines().filter(|line| {
        line.starts_with("apiserver_request_total{")
            && (line.contains("resource=\"pods\"") || line.contains("resource=\"secrets\""))
            && ["GET", "LIST", "POST"]
                .iter()
                .any(|verb| line.contains(&format!("verb=\"{verb}\"")))
            && line.contains("subresource=\"\"")
    });
    let counts = counts.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
    counts.sum()
}

pub(crate) async fn looking_makes_no_call() {
    let backend = open().await;
    let spec = spec("looked-at");
    backend.create(spec.clone()).await.unwrap();
    // The kubelet and the controllers ask a little of their own.
    let before = calls();
    for _ in 0..200 {
        backend.inspect(&spec.id).await.unwrap();
        assert_eq!(backend.list().await.unwrap().len(), 1);
        drop(backend.connect(&spec.id, Target::Control).await.unwrap());
    }
    let made = calls() - before;
    assert!(made < 100.0, "{made} calls for 600 looks");
    let query = LogQuery {
        tail_lines: 1,
        since: None,
        max_bytes: 1,
    };
    backend.logs(&spec.id, query).await.unwrap();
    delete(&backend, &spec).await;
}
