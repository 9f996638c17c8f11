//! What the status of a pod says: whether the sandbox runs, how it ended, and what keeps it from starting, sorted into
//! the errors of backends.
//!
//! Reasons are those of Kubernetes 1.21 to 1.36 (pkg/kubelet/images/types.go, pkg/kubelet/container/sync_result.go,
//! pkg/kubelet/kuberuntime/kuberuntime_container.go).

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, Pod, PodStatus,
};
use lifecycle::backend::{Error, Exit};

use crate::call::unavailable;
use crate::names::{CONTAINER, INSTALLER};

/// What a program exits with that is killed for memory.
const KILLED: i32 = 137;

/// What a sandbox is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// Its program has not been started.
    #[default]
    Pending,
    Running,
    Exited(Exit),
    /// The pod is removed.
    Gone,
}

/// What is known of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) state: State,
    pub(crate) address: Option<IpAddr>,
    pub(crate) node: Option<String>,
    pub(crate) started_at: Option<Timestamp>,
    /// What keeps it from starting.
    pub(crate) trouble: Option<Trouble>,
}

/// What keeps a pod from starting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The sandbox's image cannot be had.
    Image { reason: String, message: String },
    /// execd's image cannot be had, or does not do what it should.
    Installer { message: String },
    /// A volume cannot be mounted as asked for.
    Volume { message: String },
    /// The container cannot be made or started.
    Start { message: String },
    /// No node takes the pod.
    Unschedulable { message: String },
    /// The node, or the cluster, ended the pod before it ran.
    Rejected { message: String },
}

/// What a pod's status says.
pub(crate) fn seen(pod: &Pod) -> Seen {
    let Some(status) = &pod.status else {
        return Seen::default();
    };
    let main = container(status, CONTAINER);
    let state = state(status, main);
    let running = main.and_then(|it| it.state.as_ref()?.running.as_ref()?.started_at.as_ref());
    let terminated = main.and_then(|it| it.state.as_ref()?.terminated.as_ref());
    let started_at = running.or(terminated.and_then(|it| it.started_at.as_ref()));
    Seen {
        trouble: (state == State::Pending)
            .then(|| trouble(status, main))
            .flatten(),
        address: status.pod_ip.as_deref().and_then(|ip| ip.parse().ok()),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        started_at: started_at.map(|time| time.0),
        state,
    }
}

fn container<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    let all = status.container_statuses.iter().flatten();
    { all }.find(|it| it.name == name)
}

fn state(status: &PodStatus, main: Option<&ContainerStatus>) -> State {
    let now = main.and_then(|it| it.state.as_ref());
    if now.is_some_and(|now| now.running.is_some()) {
        return State::Running;
    }
    if let Some(end) = now.and_then(|now| now.terminated.as_ref())
        && has_run(end)
    {
        return State::Exited(exit(end));
    }
    // A node that went away tells no container's end (reasons NodeLost, Evicted, Shutdown).
    if is_failed(status) && main.is_some_and(|it| it.started == Some(true)) {
        return State::Exited(Exit {
            code: None,
            signal: None,
            oom_killed: false,
            at: None,
        });
    }
    State::Pending
}

fn is_failed(status: &PodStatus) -> bool {
    status.phase.as_deref() == Some("Failed")
}

/// Runtimes tell of a program that could not be started as of one that ended.
fn has_run(end: &ContainerStateTerminated) -> bool {
    !matches!(
        end.reason.as_deref(),
        Some("StartError" | "ContainerCannotRun")
    )
}

fn exit(end: &ContainerStateTerminated) -> Exit {
    let is_oom = end.reason.as_deref() == Some("OOMKilled");
    // The kubelet makes a code up for what it lost sight of.
    let is_known = end.reason.as_deref() != Some("ContainerStatusUnknown");
    Exit {
        code: is_known.then_some(end.exit_code),
        signal: end.signal.filter(|signal| *signal != 0),
        oom_killed: is_oom && end.exit_code == KILLED,
        at: end.finished_at.as_ref().map(|time| time.0),
    }
}

fn trouble(status: &PodStatus, main: Option<&ContainerStatus>) -> Option<Trouble> {
    let installers = status.init_container_statuses.iter().flatten();
    for it in installers {
        let now = it.state.as_ref();
        let message = now.and_then(|now| {
            let waits = now
                .waiting
                .as_ref()
                .filter(|waiting| waiting_trouble(waiting).is_some())
                .map(words);
            let ended = now.terminated.as_ref().filter(|end| end.exit_code != 0);
            waits.or(ended.map(ended_words))
        });
        if let Some(message) = message {
            return Some(match it.name.as_str() {
                INSTALLER => Trouble::Installer { message },
                other => Trouble::Start {
                    message: format!("init container {other}: {message}"),
                },
            });
        }
    }
    let now = main.and_then(|it| it.state.as_ref());
    if let Some(end) = now.and_then(|now| now.terminated.as_ref()) {
        let message = ended_words(end);
        return Some(Trouble::Start { message });
    }
    let waiting = now.and_then(|now| now.waiting.as_ref());
    if let Some(trouble) = waiting.and_then(waiting_trouble) {
        return Some(trouble);
    }
    if is_failed(status) {
        let reason = status.reason.as_deref().unwrap_or("Failed");
        let message = status.message.as_deref().unwrap_or_default();
        let message = format!("{reason}: {message}");
        return Some(Trouble::Rejected { message });
    }
    unschedulable(status)
}

fn unschedulable(status: &PodStatus) -> Option<Trouble> {
    let conditions = status.conditions.iter().flatten();
    let scheduled = { conditions }.find(|it| it.type_ == "PodScheduled")?;
    if scheduled.reason.as_deref() != Some("Unschedulable") {
        return None;
    }
    let message = scheduled.message.clone().unwrap_or_default();
    // Volumes are bound while the scheduler looks on; it looks again when they are.
    let waits_for_volumes = message.contains("PersistentVolumeClaim");
    (!waits_for_volumes).then_some(Trouble::Unschedulable { message })
}

fn words(waiting: &ContainerStateWaiting) -> String {
    let message = waiting.message.as_deref().unwrap_or_default();
    let reason = waiting.reason.as_deref().unwrap_or_default();
    format!("{reason}: {message}")
        .trim_end_matches([':', ' '])
        .to_owned()
}

fn ended_words(end: &ContainerStateTerminated) -> String {
    let message = end.message.as_deref().unwrap_or_default();
    let reason = end.reason.as_deref().unwrap_or("Error");
    let text = format!("{reason} with code {}: {message}", end.exit_code);
    text.trim_end_matches([':', ' ']).to_owned()
}

fn waiting_trouble(waiting: &ContainerStateWaiting) -> Option<Trouble> {
    let reason = waiting.reason.as_deref()?;
    let message = waiting.message.clone().unwrap_or_default();
    match reason {
        "ErrImagePull"
        | "ImagePullBackOff"
        | "ErrImageNeverPull"
        | "InvalidImageName"
        | "ImageInspectError"
        | "RegistryUnavailable"
        | "SignatureValidationFailed" => Some(Trouble::Image {
            reason: reason.to_owned(),
            message,
        }),
        // The kubelet refuses paths that lead out of their volume (pkg/volume/util/subpath).
        "CreateContainerConfigError" if message.contains("subPath") => {
            Some(Trouble::Volume { message })
        }
        "CreateContainerConfigError"
        | "CreateContainerError"
        | "RunContainerError"
        | "CrashLoopBackOff"
        | "PostStartHookError" => Some(Trouble::Start {
            message: words(waiting),
        }),
        _ => None,
    }
}

impl Trouble {
    /// As the caller of the backend sees it; `image` is as its user wrote it.
    pub(crate) fn into_error(self, image: &str) -> Error {
        match self {
            Self::Image { reason, message } => image_error(image, &reason, message),
            Self::Installer { message } => unavailable(format!(
                "the image that brings execd does not work: {message}; see runtime.execd_image"
            )),
            Self::Volume { message } => Error::Invalid {
                field: "volumes",
                message,
            },
            Self::Start { message } => Error::Start { message },
            Self::Unschedulable { message } => Error::Exhausted {
                what: "nodes that could take the sandbox",
                message,
            },
            Self::Rejected { message } => Error::Exhausted {
                what: "room on the node",
                message,
            },
        }
    }
}

fn image_error(image: &str, reason: &str, message: String) -> Error {
    let reference = image.to_owned();
    let lower = message.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if reason == "InvalidImageName" {
        return Error::Invalid {
            field: "image.uri",
            message,
        };
    }
    if reason == "ErrImageNeverPull" {
        let message =
            "it is on no node that could run it, and image_pull_policy is Never".to_owned();
        return Error::ImageNotFound { reference, message };
    }
    if has(&[
        "no basic auth credentials",
        "unauthorized",
        "authorization failed",
        "401",
        "403 forbidden",
    ]) {
        return Error::ImageUnauthorized { reference, message };
    }
    if has(&[
        "not found",
        "manifest unknown",
        "does not exist",
        "no match for platform",
        "name unknown",
    ]) {
        return Error::ImageNotFound { reference, message };
    }
    if has(&["denied"]) {
        return Error::ImageUnauthorized { reference, message };
    }
    Error::ImagePull {
        reference,
        is_transient: !has(&["invalid reference", "unsupported", "no space left"]),
        message,
    }
}

#[cfg(test)]
mod tests;
