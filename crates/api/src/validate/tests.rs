//! Tests of the rules: each is broken once, and all are told at once.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::egress::vault::{CreateVaultRequest, MutateVaultRequest};
use crate::exec::code::CreateContextRequest;
use crate::exec::command::RunCommandRequest;
use crate::json;
use crate::network_policy::NetworkPolicy;
use crate::sandbox::CreateSandboxRequest;

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    json::from_slice(value.to_string().as_bytes()).unwrap()
}

fn problems_of(value: &Value) -> Vec<(String, &'static str)> {
    let request: CreateSandboxRequest = read(value);
    let problems = request.validate().err().unwrap_or_default();
    problems
        .into_iter()
        .map(|it| (it.field, it.code.as_str()))
        .collect()
}

#[test]
fn one_string_of_an_entrypoint_is_split_as_a_shell_would() {
    let words = |entrypoint: Value| {
        let request: CreateSandboxRequest = read(&json!({"entrypoint": entrypoint}));
        request.entrypoint_words()
    };
    let some = |words: &[&str]| Some(words.iter().map(|&it| it.to_owned()).collect::<Vec<_>>());
    assert_eq!(
        words(json!(["tail -f /dev/null"])),
        some(&["tail", "-f", "/dev/null"])
    );
    assert_eq!(words(json!(["sh -c 'a  b'"])), some(&["sh", "-c", "a  b"]));
    assert_eq!(words(json!(["sleep"])), some(&["sleep"]));
    assert_eq!(
        words(json!(["my program", "a b"])),
        some(&["my program", "a b"])
    );
    assert_eq!(words(json!(null)), None);
}

/// A good request with one part replaced has exactly this problem.
#[track_caller]
#[expect(
    clippy::needless_pass_by_value,
    reason = "callers write the value in place"
)]
fn breaks(part: Value, field: &str, code: ErrorCode) {
    let mut request = json!({"image": {"uri": "python:3.11"}});
    request
        .as_object_mut()
        .unwrap()
        .extend(part.as_object().unwrap().clone());
    let found = problems_of(&request);
    assert_eq!(found, [(field.to_owned(), code.as_str())], "{request}");
}

#[test]
fn a_full_request_keeps_every_rule() {
    let request = json!({
        "image": {"uri": "ghcr.io/a/b:1", "auth": {"username": "u", "password": "p"}},
        "platform": {"os": "Linux", "arch": "AMD64"},
        "timeout": 600,
        "resource_limits": {"cpu": "500m", "memory": "512Mi"},
        "env": {"A": "1", "B": null},
        "metadata": {"project": "x"},
        "entrypoint": ["tail", "-f", "/dev/null"],
        "networkPolicy": {"default_action": "deny", "egress": [
            {"action": "allow", "target": "*.example.com"}, {"action": "deny", "target": "10.0.0.0/8"},
        ]},
        "credentialProxy": {"enabled": true},
        "volumes": [{"name": "data", "mount_path": "/data", "pvc": {"claim_name": "c", "storage": "1Gi"}}],
        "lifecycle": {"preStart": {"command": ["true"], "timeoutSeconds": 5}},
        "extensions": {"access.renew.extend.seconds": "300"},
        "unknown": 1,
    });
    assert_eq!(problems_of(&request), []);
    let request: CreateSandboxRequest = read(&request);
    assert_eq!(request.env_given().len(), 1);
    assert_eq!(request.image_reference().unwrap().registry(), "ghcr.io");
}

#[test]
fn each_rule_is_told_with_its_field_and_code() {
    use ErrorCode::*;
    breaks(json!({"image": {"uri": " "}}), "image", ValidationFailed);
    breaks(
        json!({"image": {"uri": "A b"}}),
        "image.uri",
        SandboxInvalidParameter,
    );
    breaks(json!({"snapshotId": "s"}), "snapshotId", ValidationFailed);
    breaks(
        json!({"platform": {"os": "plan9", "arch": "amd64"}}),
        "platform.os",
        SandboxInvalidParameter,
    );
    breaks(json!({"timeout": 59}), "timeout", ValidationFailed);
    breaks(
        json!({"timeout": i64::MAX}),
        "timeout",
        SandboxInvalidParameter,
    );
    breaks(
        json!({"resourceLimits": {"cpu": "x"}}),
        "resourceLimits.cpu",
        SandboxInvalidParameter,
    );
    breaks(
        json!({"resourceRequests": {"memory": ""}}),
        "resourceRequests.memory",
        SandboxInvalidParameter,
    );
    breaks(json!({"env": {"A=B": "c"}}), "env", SandboxInvalidParameter);
    breaks(
        json!({"env": {"A": "x\u{0}"}}),
        "env",
        SandboxInvalidParameter,
    );
    breaks(
        json!({"env": {"A": "x".repeat(140_000)}}),
        "env",
        SandboxInvalidParameter,
    );
    breaks(
        json!({"env": {"OPENSANDBOX_LIFECYCLE": "x"}}),
        "env",
        ValidationFailed,
    );
    breaks(
        json!({"metadata": {"opensandbox.io/id": "x"}}),
        "metadata",
        SandboxInvalidMetadataLabel,
    );
    breaks(
        json!({"entrypoint": []}),
        "entrypoint",
        DockerInvalidEntrypoint,
    );
    breaks(
        json!({"entrypoint": [""]}),
        "entrypoint[0]",
        DockerInvalidEntrypoint,
    );
    for line in ["sh -c 'echo", "'' -f", "# nothing"] {
        breaks(
            json!({"entrypoint": [line]}),
            "entrypoint[0]",
            DockerInvalidEntrypoint,
        );
    }
    breaks(
        json!({"credentialProxy": {"enabled": true}}),
        "credentialProxy",
        ValidationFailed,
    );
    breaks(
        json!({"networkPolicy": {"egress": [{"action": "allow", "target": "https://x"}]}}),
        "networkPolicy.egress[0].target",
        SandboxInvalidParameter,
    );
    breaks(
        json!({"lifecycle": {"preStart": {"command": ["x"], "timeoutSeconds": 0}}}),
        "lifecycle.preStart.timeoutSeconds",
        ValidationFailed,
    );
    for seconds in ["299", "86401", "", "+300", "five"] {
        let field = "extensions.access.renew.extend.seconds";
        let part = json!({"extensions": {"access.renew.extend.seconds": seconds}});
        breaks(part, field, SandboxInvalidParameter);
    }
}

#[test]
fn each_rule_for_volumes_is_told() {
    use ErrorCode::*;
    #[track_caller]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "callers write the value in place"
    )]
    fn breaks_volume(part: Value, field: &str, code: ErrorCode) {
        let mut volume = json!({"name": "v", "mountPath": "/v", "host": {"path": "/srv"}});
        volume
            .as_object_mut()
            .unwrap()
            .extend(part.as_object().unwrap().clone());
        breaks(
            json!({"volumes": [volume]}),
            &format!("volumes[0]{field}"),
            code,
        );
    }
    breaks_volume(json!({"name": "V"}), ".name", VolumeInvalidName);
    breaks_volume(json!({"host": null}), "", VolumeInvalidBackend);
    breaks_volume(json!({"pvc": {"claimName": "c"}}), "", VolumeInvalidBackend);
    for path in ["v", "/", "//", "/a/../b", "/a\u{0}"] {
        breaks_volume(
            json!({"mountPath": path}),
            ".mountPath",
            VolumeInvalidMountPath,
        );
    }
    for path in ["", "/a", "a/..", "..\\b"] {
        breaks_volume(json!({"subPath": path}), ".subPath", VolumeInvalidSubPath);
    }
    for path in ["srv", "/srv/../etc", ""] {
        breaks_volume(
            json!({"host": {"path": path}}),
            ".host.path",
            VolumeInvalidHostPath,
        );
    }
    breaks_volume(
        json!({"host": null, "pvc": {"claimName": "C"}}),
        ".pvc.claimName",
        VolumeInvalidPvcName,
    );
    breaks_volume(
        json!({"host": null, "ossfs": {"bucket": "abc", "endpoint": "e"}}),
        ".ossfs",
        VolumeInvalidOssfsCredentials,
    );
    let two = json!([
        {"name": "v", "mountPath": "/a", "host": {"path": "/x"}},
        {"name": "v", "mountPath": "/a/", "host": {"path": "/x"}},
    ]);
    let found = problems_of(&json!({"image": {"uri": "a"}, "volumes": two}));
    assert_eq!(
        found,
        [
            ("volumes[1].name".to_owned(), "VOLUME::DUPLICATE_NAME"),
            (
                "volumes[1].mountPath".to_owned(),
                "VOLUME::INVALID_MOUNT_PATH"
            ),
        ]
    );
}

#[test]
fn all_problems_are_told_at_once() {
    let request = json!({
        "timeout": 1, "env": {"": "x"}, "entrypoint": [], "metadata": {"a b": "c d"},
        "platform": {"os": "x", "arch": "y"},
    });
    assert_eq!(problems_of(&request).len(), 8);
}

#[test]
fn templates_and_pools_exclude_what_they_bring() {
    let request = json!({"templateId": "t", "image": {"uri": "a"}, "env": {}});
    let fields: Vec<_> = problems_of(&request)
        .into_iter()
        .map(|(field, _)| field)
        .collect();
    assert_eq!(fields, ["image", "env", "timeout"]);
    let request = json!({"extensions": {"poolRef": "p"}, "snapshotId": "s", "lifecycle": {}});
    let fields: Vec<_> = problems_of(&request)
        .into_iter()
        .map(|(field, _)| field)
        .collect();
    assert_eq!(fields, ["lifecycle", "snapshotId"]);
    assert_eq!(problems_of(&json!({"extensions": {"poolRef": "*"}})), []);
}

#[test]
fn commands_are_one_of_two_kinds() {
    let problems = |value: Value| {
        let request: RunCommandRequest = read(&value);
        let problems = request.validate().err().unwrap_or_default();
        problems
            .into_iter()
            .map(|problem| problem.field)
            .collect::<Vec<_>>()
    };
    let none: [&str; 0] = [];
    assert_eq!(
        problems(json!({"command": "ls", "envs": null, "background": null})),
        none
    );
    assert_eq!(
        problems(json!({"argv": ["ls"], "uid": 0, "gid": 0, "timeout": 0})),
        none
    );
    assert_eq!(problems(json!({})), ["command"]);
    assert_eq!(problems(json!({"command": "", "argv": []})), ["argv"]);
    assert_eq!(problems(json!({"command": "a", "argv": ["b"]})), ["argv"]);
    assert_eq!(
        problems(json!({"command": "a", "gid": 1, "timeout": -1})),
        ["timeout", "uid"]
    );
    assert_eq!(
        problems(json!({"command": "a\u{0}", "cwd": "\u{0}"})),
        ["command", "cwd"]
    );
    assert_eq!(problems(json!({"command": "a", "uid": u32::MAX})), ["uid"]);
}

#[test]
fn code_contexts_take_variables_that_a_process_can_have() {
    let problems = |value: Value| {
        let request: CreateContextRequest = read(&value);
        let problems = request.validate().err().unwrap_or_default();
        problems
            .into_iter()
            .map(|problem| problem.field)
            .collect::<Vec<_>>()
    };
    let none: [&str; 0] = [];
    assert_eq!(problems(json!({})), none);
    assert_eq!(problems(json!({"envs": null})), none);
    assert_eq!(problems(json!({"envs": {"A": "", "b_2": "=x y"}})), none);
    for envs in [json!({"": "x"}), json!({"A=B": "x"}), json!({"A": "\u{0}"})] {
        let found = problems(json!({"cwd": "\u{0}", "envs": envs}));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[1].starts_with("envs"), "{found:?}");
    }
}

#[test]
fn targets_are_names_below_names_or_addresses() {
    use std::net::IpAddr;
    let range = |address: &str, length| Target::Range {
        address: address.parse::<IpAddr>().unwrap(),
        length,
    };
    for (text, target) in [
        ("Example.COM", Target::Name("example.com".into())),
        ("*.a.b", Target::NamesBelow("a.b".into())),
        ("_dmarc.a.b", Target::Name("_dmarc.a.b".into())),
        ("10.1.2.3", range("10.1.2.3", 32)),
        ("10.0.0.0/8", range("10.0.0.0", 8)),
        ("::1", range("::1", 128)),
        ("fe80::/10", range("fe80::", 10)),
    ] {
        assert_eq!(text.parse::<Target>().as_ref(), Ok(&target), "{text}");
    }
    for text in [
        "",
        "*",
        "*.",
        "example.com.",
        "https://x",
        "x:443",
        "a..b",
        "10.0.0.0/33",
        "10.0.0.0/",
        "10.0.0.0/+8",
        "x/8",
        "10.0.0",
        "fe80::1%eth0",
        "пример.рф",
        "a b",
        "-a.b",
        "a*.b",
    ] {
        assert!(text.parse::<Target>().is_err(), "{text}");
    }
    let policy: NetworkPolicy = read(&json!({"egress": null}));
    assert!(policy.validate().is_ok());
    // A typo in the action must never be read as one of the two.
    assert!(json::from_slice::<NetworkPolicy>(br#"{"defaultAction":"block"}"#).is_err());
}

#[test]
fn vaults_hold_only_what_can_be_used() {
    let good = json!({
        "credentials": [{"name": "k", "source": {"value": "v"}}],
        "bindings": [{
            "name": "b",
            "match": {"hosts": ["api.example.com"]},
            "auth": {"type": "customHeaders", "headers": [{"name": "X-Key", "credential": "k"}]},
        }],
    });
    let request: CreateVaultRequest = read(&good);
    assert_eq!(request.validate(), Ok(()));
    let bad = json!({
        "credentials": [{"name": "k", "source": {"type": "inline", "value": "a\nb"}}],
        "bindings": [{
            "name": "b",
            "match": {"hosts": ["localhost", "1.2.3.4"], "ports": [8080]},
            "auth": {"type": "apiKey", "name": "Host", "credential": "other"},
        }],
    });
    let request: CreateVaultRequest = read(&bad);
    let problems = request.validate().unwrap_err();
    let fields: Vec<_> = problems
        .iter()
        .map(|problem| problem.field.as_str())
        .collect();
    assert_eq!(
        fields,
        [
            "credentials[0].source.value",
            "bindings[0].match.hosts[0]",
            "bindings[0].match.hosts[1]",
            "bindings[0].match.ports",
            "bindings[0].auth",
            "bindings[0].auth",
        ]
    );
    let twice: MutateVaultRequest = read(&json!({"credentials": {"delete": ["a", "a"]}}));
    assert_eq!(twice.validate().unwrap_err().len(), 1);
    assert!(
        json::from_slice::<CreateVaultRequest>(br#"{"credentials":[],"bindings":[],"x":1}"#)
            .is_err()
    );
}

#[test]
fn ports_have_one_spelling() {
    assert_eq!(port("port", "8080").unwrap(), 8080);
    for text in ["", "0", "65536", "-1", "+80", "http", "8 0"] {
        assert_eq!(
            port("port", text).unwrap_err().code,
            ErrorCode::DockerInvalidPort,
            "{text}"
        );
    }
}

proptest! {
    #[test]
    fn any_request_is_valid_or_refused(
        uri in any::<String>(),
        env in any::<std::collections::BTreeMap<String, Option<String>>>(),
        metadata in any::<std::collections::BTreeMap<String, String>>(),
        limits in any::<std::collections::BTreeMap<String, String>>(),
        extensions in any::<std::collections::BTreeMap<String, String>>(),
        entrypoint in any::<Vec<String>>(),
        timeout in any::<Option<i64>>(),
        path in any::<String>(),
    ) {
        let volume = json!({"name": path, "mountPath": path, "subPath": path, "host": {"path": path}});
        let request = json!({
            "image": {"uri": uri}, "env": env, "metadata": metadata, "resourceLimits": limits,
            "extensions": extensions, "entrypoint": entrypoint, "timeout": timeout,
            "volumes": [volume], "networkPolicy": {"egress": [{"target": path}]},
        });
        let request: CreateSandboxRequest = read(&request);
        if let Err(problems) = request.validate() {
            prop_assert!(!problems.is_empty());
            prop_assert!(problems.iter().all(|problem| problem.message.len() < 2000));
        }
        // What is written reads back as the same request.
        prop_assert_eq!(read::<CreateSandboxRequest>(&serde_json::to_value(&request).unwrap()), request);
    }

    #[test]
    fn any_target_is_read_or_refused(text in any::<String>(), near in r"(\*\.)?[a-zA-Z0-9._:/-]{0,30}") {
        let _ = (text.parse::<Target>(), near.parse::<Target>());
    }
}
