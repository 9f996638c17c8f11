//! The operator's pod template, which lies under every sandbox: a PodTemplate, or the manifest of a BatchSandbox as
//! the published server takes it, in YAML.
//!
//! Lists that have names are merged by them, so that a template can add containers, volumes and variables; what the
//! sandbox itself needs is laid over it and wins.

use std::path::Path;

use k8s_openapi::DeepMerge as _;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use lifecycle::backend::Error;
use serde_json::Value;

use crate::call::unavailable;
use crate::names::INSTALLER;

/// Reads a template.
pub(crate) fn read(path: &Path) -> Result<PodTemplateSpec, Error> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|source| Error::Io {
        action: format!("reading the pod template {name}"),
        source,
    })?;
    parse(&text).map_err(|message| unavailable(format!("the pod template {name}: {message}")))
}

fn parse(text: &str) -> Result<PodTemplateSpec, String> {
    let document: Value = serde_yaml_ng::from_str(text).map_err(|error| error.to_string())?;
    // A BatchSandbox, a PodTemplate, or what is inside of both.
    let template = ["/spec/template", "/template"]
        .iter()
        .find_map(|place| document.pointer(place));
    let template = template.unwrap_or(&document);
    if template.get("spec").is_none() && template.get("metadata").is_none() {
        return Err("it has neither spec.template nor a spec of pods".to_owned());
    }
    let template: PodTemplateSpec =
        serde_json::from_value(template.clone()).map_err(|error| error.to_string())?;
    let spec = template.spec.as_ref();
    let taken = spec.and_then(|spec| spec.init_containers.as_ref());
    if taken.is_some_and(|all| all.iter().any(|it| it.name == INSTALLER)) {
        return Err(format!("an init container must not be called {INSTALLER}"));
    }
    Ok(template)
}

/// The pod with the template under it.
pub(crate) fn under(template: &PodTemplateSpec, pod: Pod) -> Pod {
    let mut merged = Pod {
        metadata: template.metadata.clone().unwrap_or_default(),
        spec: template.spec.clone(),
        status: None,
    };
    merged.merge_from(pod);
    merged
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TEMPLATE: &str = "
apiVersion: sandbox.opensandbox.io/v1alpha1
kind: BatchSandbox
spec:
  template:
    metadata:
      labels: {team: blue, opensandbox.io/id: forged}
    spec:
      automountServiceAccountToken: true
      tolerations: [{key: gpu, operator: Exists}]
      containers:
      - name: sandbox
        image: other
        env: [{name: PROXY, value: here}]
        volumeMounts: [{name: cache, mountPath: /cache}]
      - {name: sidecar, image: side}
      volumes: [{name: cache, emptyDir: {}}]
";

    #[test]
    fn a_template_adds_and_the_sandbox_wins() {
        let pod = json!({
            "metadata": { "name": "x", "labels": { "opensandbox.io/id": "a" } },
            "spec": {
                "automountServiceAccountToken": false,
                "containers": [{ "name": "sandbox", "image": "ours",
                    "volumeMounts": [{ "name": "bin", "mountPath": "/bin2" }] }],
                "volumes": [{ "name": "bin", "emptyDir": {} }],
            },
        });
        let template = parse(TEMPLATE).unwrap();
        let merged = under(&template, serde_json::from_value(pod).unwrap());
        let merged = serde_json::to_value(merged).unwrap();
        assert_eq!(
            merged["metadata"]["labels"],
            json!({ "team": "blue", "opensandbox.io/id": "a" })
        );
        let spec = &merged["spec"];
        assert_eq!(spec["automountServiceAccountToken"], false);
        assert_eq!(spec["tolerations"][0]["key"], "gpu");
        assert_eq!(spec["containers"][0]["image"], "ours");
        assert_eq!(spec["containers"][0]["env"][0]["name"], "PROXY");
        assert_eq!(
            spec["containers"][0]["volumeMounts"]
                .as_array()
                .unwrap()
                .len(),
            2
        );
        assert_eq!(spec["containers"][1]["name"], "sidecar");
        assert_eq!(spec["volumes"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn what_is_no_template_is_refused() {
        for text in ["a: [", "- 1", "kind: Pool", "spec: {containers: 7}"] {
            assert!(parse(text).is_err(), "{text}");
        }
        let taken = "spec: {containers: [], initContainers: [{name: execd-installer}]}";
        assert!(parse(taken).unwrap_err().contains("execd-installer"));
    }
}
