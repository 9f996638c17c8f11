//! What the engine can do for sandboxes, for `osb doctor`.

use bollard::models::{SystemInfo, SystemVersion};
use lifecycle::doctor::{Check, Section};

use crate::config::Config;
use crate::engine::Engine;

/// Examines the engine. Changes nothing.
pub async fn examine(config: &Config) -> Section {
    Section {
        name: "Docker engine",
        checks: checks(config).await,
    }
}

async fn checks(config: &Config) -> Vec<Check> {
    let engine = match Engine::connect(&config.socket, config.call_timeout).await {
        Ok(engine) => engine,
        Err(error) => return vec![Check::failed("engine", error.to_string())],
    };
    let info = match engine.info().await {
        Ok(info) => info,
        Err(error) => return vec![Check::failed("engine", error.to_string())],
    };
    let version = engine.version().await.unwrap_or_default();
    let mut checks = vec![
        versions(&info, &version),
        limit("memory limits", info.memory_limit),
        limit("swap limits", info.swap_limit),
        limit("process limits", info.pids_limit),
        limit("CPU limits", info.cpu_cfs_quota),
        confinement(&info),
    ];
    if let Err(error) = crate::backend::check_runtime(config, &info) {
        checks.push(Check::failed("secure runtime", error.to_string()));
    }
    if !crate::backend::keeps_snapshots(config, &info) {
        let detail = "gVisor keeps what is written to itself; add \"--overlay2=none\" to its \
                      runtimeArgs in the engine's daemon.json";
        checks.push(Check::degraded("snapshots", detail));
    }
    if !config.execd.is_file() {
        let detail = format!(
            "is not at {}; install it beside osb or set runtime.execd_path",
            config.execd.display()
        );
        checks.push(Check::failed("execd", detail));
    }
    checks
}

fn versions(info: &SystemInfo, version: &SystemVersion) -> Check {
    let detail = format!(
        "version {}, API {}, storage {}, cgroups v{}",
        info.server_version.as_deref().unwrap_or("unknown"),
        version.api_version.as_deref().unwrap_or("unknown"),
        info.driver.as_deref().unwrap_or("unknown"),
        info.cgroup_version
            .map_or("unknown".to_owned(), |it| it.to_string()),
    );
    Check::ok("engine", detail)
}

fn limit(name: &'static str, has: Option<bool>) -> Check {
    match has {
        Some(true) => Check::ok(name, "enforced"),
        _ => Check::degraded(name, "this kernel or engine does not enforce it"),
    }
}

fn confinement(info: &SystemInfo) -> Check {
    let security = info.security_options.clone().unwrap_or_default();
    let has = |word: &str| security.iter().any(|option| option.contains(word));
    let name = "confinement";
    match (has("seccomp"), has("apparmor")) {
        (true, true) => Check::ok(name, "seccomp and AppArmor"),
        (true, false) => Check::ok(name, "seccomp; this machine has no AppArmor"),
        (false, _) => Check::degraded(name, "no seccomp: sandboxes may use every system call"),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixListener;

    use lifecycle::doctor::Status;

    use super::*;

    /// What the doctor says of an engine that answers everything like this.
    async fn of(status: &str, body: &str) -> Vec<Check> {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::new(directory.path()).unwrap();
        config.socket = directory.path().join("engine.sock");
        let listener = UnixListener::bind(&config.socket).unwrap();
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        );
        let engine = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let _ = client.read(&mut [0; 4096]).await;
                let _ = client.write_all(answer.as_bytes()).await;
            }
        });
        let findings = examine(&config).await.checks;
        engine.abort();
        findings
    }

    #[tokio::test]
    async fn an_old_engine_is_told_what_is_needed() {
        let findings = of("200 OK", r#"{"Version": "18.09", "ApiVersion": "1.39"}"#).await;
        let [finding] = &findings[..] else {
            panic!("{findings:?}")
        };
        assert_eq!(finding.status, Status::Failed);
        for word in ["1.39", "too old", "1.40", "Docker 19.03"] {
            assert!(finding.detail.contains(word), "{}", finding.detail);
        }
    }

    #[test]
    fn snapshots_in_gvisor_need_writes_that_reach_the_layer() {
        use bollard::models::{Runtime, SystemInfo};
        let keeps = |name: Option<&str>, path: &str, arguments: Option<&str>| {
            let mut config = Config::new("/data").unwrap();
            config.secure_runtime = name.map(str::to_owned);
            let runtime = Runtime {
                path: Some(path.to_owned()),
                runtime_args: arguments.map(|it| it.split(' ').map(str::to_owned).collect()),
                ..Runtime::default()
            };
            let info = SystemInfo {
                runtimes: Some(
                    [
                        ("own".to_owned(), runtime.clone()),
                        ("runsc".to_owned(), runtime),
                    ]
                    .into(),
                ),
                ..SystemInfo::default()
            };
            crate::backend::keeps_snapshots(&config, &info)
        };
        assert!(keeps(None, "runc", None));
        assert!(keeps(Some("own"), "/usr/bin/kata-runtime", None));
        assert!(!keeps(Some("runsc"), "x", None));
        assert!(!keeps(
            Some("own"),
            "/usr/bin/runsc",
            Some("--platform=kvm")
        ));
        assert!(keeps(
            Some("own"),
            "/usr/bin/runsc",
            Some("--debug --overlay2=none")
        ));
        assert!(keeps(Some("runsc"), "x", Some("-overlay2=none")));
    }

    #[tokio::test]
    async fn a_refusing_engine_is_quoted() {
        for (status, says) in [
            ("403 Forbidden", "a policy forbids it"),
            ("500 Internal Server Error", "out of order"),
        ] {
            let findings = of(status, &format!(r#"{{"message": "{says}"}}"#)).await;
            let [finding] = &findings[..] else {
                panic!("{findings:?}")
            };
            assert_eq!(finding.status, Status::Failed);
            assert!(finding.detail.contains(says), "{}", finding.detail);
        }
        let findings = of("200 OK", "this is no engine").await;
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].status, Status::Failed);
    }
}
