//! What a test works on: the cluster beside which it runs, the backend, and small requests.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use api::egress::policy::EgressPolicy;
use kubernetes::{Config, Kubernetes};
use lifecycle::backend::{Backend, Limits, Source, Spec, Target};
use secrecy::SecretString;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

pub(crate) const TOKEN: &str = "a-token-for-tests";

/// Something that must happen may take so long on a loaded machine.
pub(crate) const SOON: Duration = Duration::from_secs(90);

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("tests/kubernetes/cluster/run sets {name}"))
}

pub(crate) fn image() -> String {
    variable("OSB_TEST_IMAGE")
}

pub(crate) fn static_image() -> String {
    variable("OSB_TEST_STATIC")
}

/// Where the cluster has its files.
pub(crate) fn cluster() -> PathBuf {
    variable("OSB_TEST_CLUSTER").into()
}

/// Shows what the backend logs.
pub(crate) fn say_everything() {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
}

pub(crate) fn config() -> Config {
    let mut config = Config::new(variable("OSB_TEST_EXECD_IMAGE"));
    // Thirty pods at once on two busy cores.
    config.create_timeout = Duration::from_secs(200);
    config
}

pub(crate) async fn open() -> Kubernetes {
    Kubernetes::open(config()).await.expect("the backend opens")
}

pub(crate) fn spec(id: &str) -> Spec {
    Spec {
        id: id.parse().expect("an id"),
        source: Source::Image {
            reference: image(),
            auth: None,
        },
        platform: None,
        entrypoint: Some(vec!["sleep".to_owned(), "infinity".to_owned()]),
        env: BTreeMap::new(),
        limits: Limits::default(),
        volumes: Vec::new(),
        network: EgressPolicy::ALLOW_ALL,
        access_token: SecretString::from(TOKEN.to_owned()),
        labels: BTreeMap::new(),
    }
}

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(cluster().join("bin/kubectl"));
    command.args(arguments).output().expect("kubectl")
}

/// The cluster's own answer, past the backend.
pub(crate) fn kubectl(arguments: &[&str]) -> String {
    let done = run(arguments);
    assert!(done.status.success(), "kubectl {arguments:?}: {done:?}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// The same as JSON.
pub(crate) fn get(arguments: &[&str]) -> Value {
    let text = kubectl(&[&["get", "-o", "json"], arguments].concat());
    serde_json::from_str(&text).expect("JSON")
}

/// Gives the cluster an object.
pub(crate) fn apply(object: &Value) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), object.to_string()).expect("a file");
    kubectl(&["apply", "-f", &file.path().display().to_string()]);
}

/// Makes a namespace, and waits until pods can be made in it.
pub(crate) fn namespace(name: &str, labels: &Value) {
    apply(
        &serde_json::json!({ "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": name, "labels": labels } }),
    );
    kubectl(&[
        "-n",
        name,
        "wait",
        "--for=create",
        "serviceaccount/default",
        "--timeout=60s",
    ]);
}

/// Names of what the cluster has of a sandbox.
pub(crate) fn left_of(id: &str) -> Vec<String> {
    let label = format!("opensandbox.io/id={id}");
    let kinds = "pods,secrets,persistentvolumeclaims";
    let text = kubectl(&["get", kinds, "-l", &label, "-o", "name"]);
    text.lines().map(str::to_owned).collect()
}

/// One exchange with the daemon inside: the whole answer.
pub(crate) async fn ask(backend: &Kubernetes, spec: &Spec, request: &str) -> String {
    let stream = backend.connect(&spec.id, Target::Control).await;
    let mut stream = stream.expect("a connection to the daemon");
    let (line, body) = request.split_once('\n').unwrap_or((request, ""));
    let request = format!(
        "{line} HTTP/1.1\r\nHost: x\r\nX-EXECD-ACCESS-TOKEN: {TOKEN}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream
        .write_all(request.as_bytes())
        .await
        .expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer
}

/// Runs a shell command inside; its events.
pub(crate) async fn sh(backend: &Kubernetes, spec: &Spec, command: &str) -> String {
    let body = serde_json::json!({ "command": command });
    ask(backend, spec, &format!("POST /command\n{body}")).await
}

pub(crate) async fn delete(backend: &Kubernetes, spec: &Spec) {
    backend
        .delete(&spec.id, Duration::ZERO)
        .await
        .expect("a deletion");
    let left = left_of(spec.id.as_str());
    assert!(left.is_empty(), "left over: {left:?}");
}
