//! Statuses as kubelets write them, and what they mean. Real ones are in `tests/`.

use serde_json::{Value, json};

use super::*;

fn of(status: &Value) -> Seen {
    let pod = json!({ "metadata": { "name": "x" }, "status": status });
    seen(&serde_json::from_value(pod).unwrap())
}

fn main_is(state: &Value) -> Seen {
    of(&json!({ "podIP": "10.0.0.7", "containerStatuses": [{
        "name": "sandbox", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state,
    }] }))
}

fn waits(reason: &str, message: &str) -> Seen {
    main_is(&json!({ "waiting": { "reason": reason, "message": message } }))
}

#[test]
fn a_running_container_is_a_running_sandbox() {
    let seen = main_is(&json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } }));
    assert_eq!(seen.state, State::Running);
    assert_eq!(seen.address, "10.0.0.7".parse().ok());
    assert_eq!(seen.started_at, "2026-01-01T00:00:00Z".parse().ok());
    assert_eq!(seen.trouble, None);
}

#[test]
fn ends_say_how() {
    let end = |code: i32, reason: &str| {
        main_is(&json!({ "terminated": { "exitCode": code, "reason": reason } }))
    };
    let State::Exited(exit) = end(137, "OOMKilled").state else {
        panic!("it has ended")
    };
    assert!(exit.oom_killed);
    // A command was killed for memory, and later the entrypoint ended by itself.
    let State::Exited(exit) = end(0, "OOMKilled").state else {
        panic!("it has ended")
    };
    assert!(!exit.oom_killed && exit.code == Some(0));
    let not_started = end(128, "StartError");
    assert_eq!(not_started.state, State::Pending);
    assert!(matches!(not_started.trouble, Some(Trouble::Start { .. })));
}

#[test]
fn what_keeps_an_image_away_is_told_apart() {
    let error = |reason: &str, message: &str| match waits(reason, message).trouble {
        Some(trouble) => trouble.into_error("python:9"),
        None => panic!("{reason} is trouble"),
    };
    let missing = error("ErrImagePull", "docker.io/library/python:9: not found");
    assert!(matches!(missing, Error::ImageNotFound { .. }), "{missing}");
    let refused = error("ImagePullBackOff", "pull: 401 Unauthorized");
    assert!(
        matches!(refused, Error::ImageUnauthorized { .. }),
        "{refused}"
    );
    let away = error("ErrImagePull", "dial tcp 127.0.0.1:9: connection refused");
    assert!(
        matches!(
            away,
            Error::ImagePull {
                is_transient: true,
                ..
            }
        ),
        "{away}"
    );
    let never = error("ErrImageNeverPull", "");
    assert!(matches!(never, Error::ImageNotFound { .. }), "{never}");
    let wrong = error("InvalidImageName", "couldn't parse");
    assert!(matches!(wrong, Error::Invalid { .. }), "{wrong}");
}

#[test]
fn ordinary_waiting_is_no_trouble() {
    for reason in ["ContainerCreating", "PodInitializing"] {
        assert_eq!(waits(reason, "").trouble, None);
    }
}

#[test]
fn a_path_that_leads_out_of_its_volume_is_the_requests_fault() {
    let seen = waits(
        "CreateContainerConfigError",
        "failed to prepare subPath for volumeMount \"a\" of container \"sandbox\"",
    );
    assert!(matches!(seen.trouble, Some(Trouble::Volume { .. })));
}

#[test]
fn no_node_is_told_unless_a_volume_is_being_made() {
    let unscheduled = |message: &str| {
        of(&json!({ "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
        }] }))
        .trouble
    };
    let full = unscheduled("0/3 nodes are available: 3 Insufficient cpu.");
    assert!(matches!(full, Some(Trouble::Unschedulable { .. })));
    let waits = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.";
    assert_eq!(unscheduled(waits), None);
}

#[test]
fn an_installer_that_fails_is_the_operators_fault() {
    let seen = of(&json!({ "initContainerStatuses": [{
        "name": "execd-installer", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": { "waiting": { "reason": "ErrImagePull", "message": "not found" } },
    }] }));
    let error = seen.trouble.unwrap().into_error("python:9");
    assert!(error.to_string().contains("runtime.execd_image"), "{error}");
}

#[test]
fn a_pod_that_was_evicted_has_ended_or_never_ran() {
    let seen = of(&json!({ "phase": "Failed", "reason": "Evicted", "message": "low on disk" }));
    let error = seen.trouble.unwrap().into_error("x");
    assert!(error.to_string().contains("low on disk"), "{error}");
    let ran = of(
        &json!({ "phase": "Failed", "reason": "NodeLost", "containerStatuses": [{
        "name": "sandbox", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "started": true,
        "state": { "waiting": {} },
    }] }),
    );
    assert!(matches!(ran.state, State::Exited(Exit { code: None, .. })));
}
