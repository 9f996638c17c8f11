//! What the engine can do for sandboxes, for `osb doctor`.

use lifecycle::backend::Error;

use crate::config::Config;
use crate::engine::Engine;

/// One thing that was examined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was examined.
    pub name: &'static str,
    /// What was found.
    pub detail: String,
    /// How bad it is.
    pub verdict: Verdict,
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Sandboxes can be made, but not with everything.
    Poor,
    /// No sandbox can be made.
    Bad,
}

/// Examines the engine. Changes nothing.
pub async fn examine(config: &Config) -> Vec<Finding> {
    let engine = match Engine::connect(&config.socket, config.call_timeout).await {
        Ok(engine) => engine,
        Err(error) => return vec![bad("engine", &error)],
    };
    let info = match engine.info().await {
        Ok(info) => info,
        Err(error) => return vec![bad("engine", &error)],
    };
    let version = engine.version().await.unwrap_or_default();
    let mut findings = vec![Finding {
        name: "engine",
        detail: format!(
            "version {}, API {}, storage {}, cgroups v{}",
            info.server_version.as_deref().unwrap_or("unknown"),
            version.api_version.as_deref().unwrap_or("unknown"),
            info.driver.as_deref().unwrap_or("unknown"),
            info.cgroup_version
                .map_or("unknown".to_owned(), |it| it.to_string()),
        ),
        verdict: Verdict::Good,
    }];
    let limit = |name, has: Option<bool>| {
        let is_there = has == Some(true);
        let detail = if is_there {
            "enforced"
        } else {
            "this kernel or engine does not enforce it"
        };
        let verdict = if is_there {
            Verdict::Good
        } else {
            Verdict::Poor
        };
        Finding {
            name,
            detail: detail.to_owned(),
            verdict,
        }
    };
    findings.push(limit("memory limits", info.memory_limit));
    findings.push(limit("swap limits", info.swap_limit));
    findings.push(limit("process limits", info.pids_limit));
    findings.push(limit("CPU limits", info.cpu_cfs_quota));
    let security = info.security_options.clone().unwrap_or_default();
    let has = |word: &str| security.iter().any(|option| option.contains(word));
    findings.push(Finding {
        name: "confinement",
        detail: match (has("seccomp"), has("apparmor")) {
            (true, true) => "seccomp and AppArmor".to_owned(),
            (true, false) => "seccomp; this machine has no AppArmor".to_owned(),
            (false, _) => "no seccomp: sandboxes may use every system call".to_owned(),
        },
        verdict: if has("seccomp") {
            Verdict::Good
        } else {
            Verdict::Poor
        },
    });
    if let Err(error) = crate::backend::check_runtime(config, &info) {
        findings.push(bad("secure runtime", &error));
    }
    if !config.execd.is_file() {
        findings.push(Finding {
            name: "execd",
            detail: format!(
                "is not at {}; install it beside osb or set runtime.execd_path",
                config.execd.display()
            ),
            verdict: Verdict::Bad,
        });
    }
    findings
}

fn bad(name: &'static str, error: &Error) -> Finding {
    Finding {
        name,
        detail: error.to_string(),
        verdict: Verdict::Bad,
    }
}
