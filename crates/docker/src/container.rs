//! What the engine is asked to make: the configuration of one container.

use std::collections::HashMap;

use bollard::models::{
    ContainerCreateBody, DeviceRequest, HostConfig, HostConfigLogConfig, Mount, MountType,
    ResourcesUlimits,
};
use lifecycle::backend::{Error, Limits};

use crate::config::Config;

/// Where execd is mounted.
const BIN: &str = "/opt/opensandbox/bin";
/// Where the directory with the handoff's socket is mounted.
const RUN: &str = "/opt/opensandbox/run";

/// Logs are kept by the engine up to twice this: enough to see what went wrong, too little to fill
/// a disk.
const LOG_BYTES: &str = "8m";

/// Everything about a container that is not in the configuration.
pub(crate) struct Wanted<'a> {
    pub(crate) image: &'a str,
    pub(crate) command: &'a [String],
    pub(crate) labels: HashMap<String, String>,
    pub(crate) limits: &'a Limits,
    pub(crate) has_network: bool,
    pub(crate) mounts: Vec<Mount>,
    /// The directory with execd.
    pub(crate) program: &'a str,
    /// The directory with the handoff's socket; `None` hands over on standard input.
    pub(crate) gate: Option<&'a str>,
    pub(crate) seccomp: Option<&'a str>,
}

/// The container's configuration. Neither the environment nor the token is in it: who may look at
/// the container, and a snapshot of it, would have both.
pub(crate) fn body(config: &Config, wanted: Wanted<'_>) -> Result<ContainerCreateBody, Error> {
    let mut entrypoint = vec![format!("{BIN}/execd"), "--init".to_owned()];
    match wanted.gate {
        // Only the control socket: with the host's network a port would be the host's.
        Some(_) => entrypoint.extend(
            ["--port", "0", "--handoff"]
                .map(str::to_owned)
                .into_iter()
                .chain([format!("{RUN}/{}", crate::handoff::SOCKET)]),
        ),
        None => entrypoint.extend(["--handoff", "-"].map(str::to_owned)),
    }
    entrypoint.push("--".to_owned());
    entrypoint.extend(wanted.command.iter().cloned());
    let is_fed = wanted.gate.is_none();
    Ok(ContainerCreateBody {
        image: Some(wanted.image.to_owned()),
        entrypoint: Some(entrypoint),
        // All of the command is the entrypoint, so that a snapshot can be given the image's own.
        cmd: Some(Vec::new()),
        labels: Some(wanted.labels.clone()),
        open_stdin: Some(is_fed),
        stdin_once: Some(is_fed),
        attach_stdin: Some(is_fed),
        host_config: Some(host_config(config, wanted)?),
        ..ContainerCreateBody::default()
    })
}

fn host_config(config: &Config, wanted: Wanted<'_>) -> Result<HostConfig, Error> {
    let mut mounts = vec![bind(wanted.program, BIN)];
    mounts.extend(wanted.gate.map(|gate| bind(gate, RUN)));
    mounts.extend(wanted.mounts);
    let limits = wanted.limits;
    let memory = number("resourceLimits.memory", limits.memory_bytes)?;
    let log = [("max-size", LOG_BYTES), ("max-file", "2")];
    Ok(HostConfig {
        network_mode: Some(if wanted.has_network {
            config.network_mode.clone()
        } else {
            "none".to_owned()
        }),
        mounts: Some(mounts),
        binds: Some(config.binds.clone()),
        memory,
        // The limit includes swap.
        memory_swap: memory,
        nano_cpus: number(
            "resourceLimits.cpu",
            limits
                .cpu_millis
                .map(|millis| millis.saturating_mul(1_000_000)),
        )?,
        pids_limit: number("pids", Some(limits.pids.unwrap_or(config.pids_limit)))?,
        ulimits: number("open files", limits.open_files)?.map(|files| {
            vec![ResourcesUlimits {
                name: Some("nofile".to_owned()),
                soft: Some(files),
                hard: Some(files),
            }]
        }),
        device_requests: gpus(limits.gpus)?,
        cap_drop: Some(config.drop_capabilities.clone()),
        security_opt: Some(security(config, wanted.seccomp)),
        runtime: config.secure_runtime.clone(),
        log_config: Some(HostConfigLogConfig {
            typ: Some("json-file".to_owned()),
            config: Some(log.map(|(k, v)| (k.to_owned(), v.to_owned())).into()),
        }),
        ..HostConfig::default()
    })
}

fn security(config: &Config, seccomp: Option<&str>) -> Vec<String> {
    let mut options = Vec::new();
    if config.no_new_privileges {
        options.push("no-new-privileges=true".to_owned());
    }
    options.extend(
        config
            .apparmor_profile
            .iter()
            .map(|name| format!("apparmor={name}")),
    );
    options.extend(seccomp.map(|profile| format!("seccomp={profile}")));
    options
}

fn bind(source: &str, target: &str) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(source.to_owned()),
        target: Some(target.to_owned()),
        read_only: Some(true),
        ..Mount::default()
    }
}

fn gpus(count: Option<u64>) -> Result<Option<Vec<DeviceRequest>>, Error> {
    let count = match count {
        None | Some(0) => return Ok(None),
        // The engine's word for all.
        Some(u64::MAX) => Some(-1),
        count => number("resourceLimits.gpu", count)?,
    };
    Ok(Some(vec![DeviceRequest {
        count,
        capabilities: Some(vec![vec!["gpu".to_owned()]]),
        ..DeviceRequest::default()
    }]))
}

fn number(field: &'static str, value: Option<u64>) -> Result<Option<i64>, Error> {
    let signed = value.map(i64::try_from).transpose();
    signed.map_err(|_| Error::Invalid {
        field,
        message: "is larger than any machine has".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(config: &Config, limits: &Limits, gate: Option<&str>) -> ContainerCreateBody {
        let wanted = Wanted {
            image: "image",
            command: &["sleep".to_owned(), "1".to_owned()],
            labels: HashMap::new(),
            limits,
            has_network: true,
            mounts: Vec::new(),
            program: "/execd",
            gate,
            seccomp: None,
        };
        body(config, wanted).unwrap()
    }

    #[test]
    fn nothing_is_published_and_everything_is_confined() {
        let mut config = Config::new("/data").unwrap();
        config.drop_capabilities = vec!["NET_RAW".to_owned()];
        let body = made(&config, &Limits::default(), Some("/gate"));
        let host = body.host_config.unwrap();
        assert!(
            host.port_bindings.is_none() && host.privileged.is_none() && host.cap_add.is_none()
        );
        assert_eq!(host.security_opt.unwrap(), ["no-new-privileges=true"]);
        assert_eq!(host.cap_drop.unwrap(), ["NET_RAW"]);
        assert_eq!(host.pids_limit, Some(4096));
        assert!(
            host.mounts
                .unwrap()
                .iter()
                .all(|mount| mount.read_only == Some(true))
        );
        assert!(body.env.is_none());
        let entrypoint = body.entrypoint.unwrap().join(" ");
        assert!(entrypoint.contains("--port 0") && entrypoint.ends_with("-- sleep 1"));
        assert_eq!(body.open_stdin, Some(false));
        let fed = made(&config, &Limits::default(), None);
        assert_eq!(fed.open_stdin, Some(true));
    }

    #[test]
    fn a_secure_runtime_is_asked_for_by_its_name() {
        let mut config = Config::new("/data").unwrap();
        let runtime = |config: &Config| {
            let host = made(config, &Limits::default(), None).host_config;
            host.unwrap().runtime
        };
        assert_eq!(runtime(&config), None, "the engine's own choice");
        for name in ["runsc", "kata-runtime", "io.containerd.kata.v2"] {
            config.secure_runtime = Some(name.to_owned());
            assert_eq!(runtime(&config).as_deref(), Some(name));
        }
    }

    #[test]
    fn limits_are_the_engines() {
        let limits = Limits {
            cpu_millis: Some(1500),
            memory_bytes: Some(1 << 20),
            pids: Some(7),
            open_files: Some(8),
            disk_bytes: None,
            gpus: Some(u64::MAX),
        };
        let host = made(&Config::new("/data").unwrap(), &limits, Some("/gate"));
        let host = host.host_config.unwrap();
        assert_eq!(host.nano_cpus, Some(1_500_000_000));
        assert_eq!(
            (host.memory, host.memory_swap),
            (Some(1 << 20), Some(1 << 20))
        );
        assert_eq!(host.pids_limit, Some(7));
        assert_eq!(host.ulimits.unwrap()[0].hard, Some(8));
        let gpus = &host.device_requests.unwrap()[0];
        assert_eq!(gpus.count, Some(-1));
        assert_eq!(gpus.capabilities, Some(vec![vec!["gpu".to_owned()]]));
        let two = Limits {
            gpus: Some(2),
            ..Limits::default()
        };
        let host = made(&Config::new("/data").unwrap(), &two, Some("/gate"));
        let gpus = host.host_config.unwrap().device_requests.unwrap();
        assert_eq!(gpus[0].count, Some(2));
    }
}
