//! What the cluster can do for sandboxes, for `osb doctor`.

use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Api;
use kube::api::{ListParams, PostParams};
use lifecycle::doctor::{Check, Section};
use serde_json::json;

use crate::call::{CallError, Cluster};
use crate::config::Config;
use crate::names::ID;
use crate::template;

/// What the server does in its namespace: resource, its part, verb.
const NEEDED: [(&str, &str, &str); 13] = [
    ("pods", "", "create"),
    ("pods", "", "get"),
    ("pods", "", "list"),
    ("pods", "", "watch"),
    ("pods", "", "delete"),
    ("pods", "log", "get"),
    ("secrets", "", "create"),
    ("secrets", "", "get"),
    ("secrets", "", "list"),
    ("secrets", "", "delete"),
    ("persistentvolumeclaims", "", "get"),
    ("persistentvolumeclaims", "", "create"),
    ("persistentvolumeclaims", "", "delete"),
];

/// Examines the cluster. Changes nothing.
pub async fn examine(config: &Config) -> Section {
    Section {
        name: "Kubernetes",
        checks: checks(config).await,
    }
}

async fn checks(config: &Config) -> Vec<Check> {
    let cluster = match Cluster::connect(config).await {
        Ok(cluster) => cluster,
        Err(error) => return vec![Check::failed("cluster", error.to_string())],
    };
    let version = match cluster.version().await {
        Ok(version) => version,
        Err(error) => return vec![Check::failed("cluster", error.to_string())],
    };
    let namespace = &cluster.namespace;
    let mut checks = vec![
        Check::ok("cluster", format!("{version}, namespace {namespace}")),
        permissions(&cluster).await,
        nodes(&cluster).await,
        sandboxes(&cluster).await,
        network(),
    ];
    if config.execd_image.is_empty() {
        let detail = "set runtime.execd_image to an image of execd that nodes can get";
        checks.push(Check::failed("execd", detail));
    }
    if let Some(path) = &config.template
        && let Err(error) = template::read(path)
    {
        checks.push(Check::failed(
            "pod template",
            api::error_chain(&error).to_string(),
        ));
    }
    if let Some(class) = &config.runtime_class {
        checks.push(runtime_class(&cluster, class).await);
    }
    checks
}

async fn may(
    cluster: &Cluster,
    namespace: Option<&str>,
    (resource, part, verb): (&str, &str, &str),
) -> Result<bool, CallError> {
    let review = json!({ "spec": { "resourceAttributes": {
        "namespace": namespace, "resource": resource, "subresource": part, "verb": verb,
    } } });
    let review: SelfSubjectAccessReview =
        serde_json::from_value(review).map_err(|error| CallError::Broken {
            action: "asking for permissions",
            message: error.to_string(),
        })?;
    let api: Api<SelfSubjectAccessReview> = Api::all(cluster.client.clone());
    let params = PostParams::default();
    let asked = cluster
        .call("asking for permissions", api.create(&params, &review))
        .await?;
    Ok(asked.status.is_some_and(|status| status.allowed))
}

async fn permissions(cluster: &Cluster) -> Check {
    let name = "permissions";
    let mut missing = Vec::new();
    for needed in NEEDED {
        match may(cluster, Some(&cluster.namespace), needed).await {
            Ok(true) => {}
            Ok(false) => {
                let (resource, part, verb) = needed;
                let part = if part.is_empty() {
                    String::new()
                } else {
                    format!("/{part}")
                };
                missing.push(format!("{verb} {resource}{part}"));
            }
            Err(failure) => return Check::failed(name, failure.to_string()),
        }
    }
    if missing.is_empty() {
        return Check::ok(name, "all that sandboxes need");
    }
    let detail = format!(
        "a Role in namespace {} must allow: {}",
        cluster.namespace,
        missing.join(", ")
    );
    Check::failed(name, detail)
}

async fn nodes(cluster: &Cluster) -> Check {
    let name = "nodes";
    match may(cluster, None, ("nodes", "", "watch")).await {
        Ok(true) => Check::ok(name, "visible, so it is known which images they have"),
        Ok(false) => Check::degraded(
            name,
            "not visible: images that no sandbox has used count as absent; a ClusterRole may allow to list and watch \
             nodes",
        ),
        Err(failure) => Check::failed(name, failure.to_string()),
    }
}

async fn sandboxes(cluster: &Cluster) -> Check {
    let api: Api<Pod> = cluster.api();
    let params = ListParams::default().labels(ID);
    match cluster.call("listing the pods", api.list(&params)).await {
        Ok(found) => Check::ok("sandboxes", format!("{} there now", found.items.len())),
        Err(failure) => Check::failed("sandboxes", failure.to_string()),
    }
}

fn network() -> Check {
    Check::degraded(
        "network",
        "this backend limits no network: what sandboxes may reach, each other included, is for NetworkPolicies of the \
         cluster",
    )
}

async fn runtime_class(cluster: &Cluster, class: &str) -> Check {
    let name = "runtime class";
    let api: Api<RuntimeClass> = Api::all(cluster.client.clone());
    match cluster
        .call("looking for a RuntimeClass", api.get_opt(class))
        .await
    {
        Ok(Some(found)) => Check::ok(name, format!("{class}, handler {}", found.handler)),
        Ok(None) => Check::failed(
            name,
            format!("there is no RuntimeClass {class}; make it, or see secure_runtime"),
        ),
        Err(failure) => Check::degraded(name, failure.to_string()),
    }
}
