//! The pod as the cluster is asked for it. What a kubelet makes of it is in `tests/`.

use std::collections::BTreeMap;

use api::egress::policy::EgressPolicy;
use lifecycle::backend::{Platform, RegistryAuth};
use secrecy::SecretString;

use super::*;

fn spec() -> Spec {
    Spec {
        id: "a".parse().unwrap(),
        source: Source::Image {
            reference: "python:3".to_owned(),
            auth: None,
        },
        platform: None,
        entrypoint: Some(vec![
            "echo".to_owned(),
            "$(HOME) $HOME kill -9 $$".to_owned(),
        ]),
        env: BTreeMap::from([("PASSWORD".to_owned(), "open-sesame".to_owned())]),
        limits: Limits::default(),
        volumes: Vec::new(),
        network: EgressPolicy::ALLOW_ALL,
        access_token: SecretString::from("the-token"),
        labels: BTreeMap::from([("record".to_owned(), "sealed".to_owned())]),
    }
}

fn pod(config: &Config, spec: &Spec) -> Value {
    check(spec).unwrap();
    serde_json::to_value(of(config, spec, Mounts::default()).unwrap()).unwrap()
}

#[test]
fn nothing_secret_is_in_the_pod() {
    let text = pod(&Config::new("execd:1"), &spec()).to_string();
    for secret in ["open-sesame", "the-token", "sealed"] {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
}

#[test]
fn the_secret_is_mounted_for_the_installer_alone() {
    let pod = pod(&Config::new("execd:1"), &spec());
    let mounts = |container: &Value| container["volumeMounts"].to_string();
    assert!(mounts(&pod["spec"]["initContainers"][0]).contains("opensandbox-secret"));
    let sandbox = &pod["spec"]["containers"][0];
    assert!(!mounts(sandbox).contains("opensandbox-secret"));
    assert_eq!(pod["spec"]["automountServiceAccountToken"], false);
}

#[test]
fn an_entrypoint_is_taken_as_it_is() {
    let pod = pod(&Config::new("execd:1"), &spec());
    let command = &pod["spec"]["containers"][0]["command"];
    let words: Vec<&str> = command
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(words[5..], ["echo", "$$(HOME) $$HOME kill -9 $$$$"]);
}

#[test]
fn limits_are_requests() {
    let mut spec = spec();
    spec.limits = Limits {
        cpu_millis: Some(500),
        memory_bytes: Some(64 << 20),
        gpus: Some(1),
        ..Limits::default()
    };
    let pod = pod(&Config::new("execd:1"), &spec);
    let resources = &pod["spec"]["containers"][0]["resources"];
    let wanted = json!({ "cpu": "500m", "memory": "67108864", "nvidia.com/gpu": "1" });
    assert_eq!(resources["limits"], wanted);
    assert_eq!(resources["requests"], wanted);
}

#[test]
fn a_platform_chooses_nodes_and_a_class_the_kernel() {
    let mut config = Config::new("execd:1");
    config.runtime_class = Some("gvisor".to_owned());
    let mut spec = spec();
    spec.platform = Some(Platform {
        os: "linux".to_owned(),
        arch: "arm64".to_owned(),
    });
    let pod = pod(&config, &spec);
    assert_eq!(pod["spec"]["runtimeClassName"], "gvisor");
    assert_eq!(pod["spec"]["nodeSelector"]["kubernetes.io/arch"], "arm64");
}

#[test]
fn credentials_are_named_not_told() {
    let mut spec = spec();
    spec.source = Source::Image {
        reference: "python:3".to_owned(),
        auth: Some(RegistryAuth {
            username: "u".to_owned(),
            password: SecretString::from("hidden"),
        }),
    };
    let pod = pod(&Config::new("execd:1"), &spec);
    assert_eq!(pod["spec"]["imagePullSecrets"][0]["name"], "sandbox-a");
    assert!(!pod.to_string().contains("hidden"));
}

#[test]
fn restricted_is_what_the_standard_of_that_name_asks_for() {
    let mut config = Config::new("execd:1");
    config.security = Security::Restricted { user: 1000 };
    let pod = pod(&config, &spec());
    let spec = &pod["spec"];
    assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
    assert_eq!(spec["securityContext"]["runAsUser"], 1000);
    assert_eq!(
        spec["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );
    for container in [&spec["initContainers"][0], &spec["containers"][0]] {
        assert_eq!(
            container["securityContext"]["allowPrivilegeEscalation"],
            false
        );
        assert_eq!(
            container["securityContext"]["capabilities"]["drop"],
            json!(["ALL"])
        );
    }
}

#[test]
fn what_a_pod_cannot_have_is_refused() {
    type Change = fn(&mut Spec);
    let changes: [(&str, Change); 6] = [
        ("networkPolicy", |spec| {
            spec.network = EgressPolicy::DENY_ALL;
        }),
        ("entrypoint", |spec| spec.entrypoint = None),
        ("entrypoint", |spec| spec.entrypoint = Some(Vec::new())),
        ("resourceLimits.pids", |spec| spec.limits.pids = Some(10)),
        ("resourceLimits.disk", |spec| {
            spec.limits.disk_bytes = Some(1);
        }),
        ("resourceLimits.gpu", |spec| {
            spec.limits.gpus = Some(u64::MAX);
        }),
    ];
    for (wanted, change) in changes {
        let mut spec = spec();
        change(&mut spec);
        match check(&spec) {
            Err(Error::Invalid { field, .. }) => assert_eq!(field, wanted),
            other => panic!("{wanted}: {other:?}"),
        }
    }
}
