//! Options of `docker run` that make no sense for a sandbox, with what to use instead of each.

/// Options of `docker run` that `osb run` does not have, and what to use instead.
const INSTEAD: [(&[&str], &str); 17] = [
    (
        &[
            "--privileged",
            "--cap-add",
            "--security-opt",
            "--device",
            "--pid",
            "--ipc",
            "--userns",
        ],
        "a sandbox never gets more rights on the machine; it is root within itself already",
    ),
    (
        &["--cap-drop"],
        "a sandbox has few capabilities already, within itself only",
    ),
    (
        &["--restart"],
        "nothing is started again by itself; run it in a loop, or ask a supervisor",
    ),
    (&["--gpus"], "graphics processors are not handed on"),
    (
        &["--link", "--network-alias", "--ip"],
        "sandboxes do not share networks; reach a port of one with -p or `osb port-forward`",
    ),
    (
        &["--publish-all", "-P"],
        "name the ports: -p HOST_PORT:PORT",
    ),
    (
        &["--hostname"],
        "the host name is the sandbox's own; give it a name with --name",
    ),
    (
        &["--add-host", "--dns"],
        "names are resolved as the server has set it up; write to /etc/hosts with `osb exec`",
    ),
    (
        &["--tmpfs", "--shm-size"],
        "/tmp and /dev/shm are the sandbox's own already, within its memory limit (-m)",
    ),
    (
        &["--read-only"],
        "the image is never written to: a sandbox's changes are gone with it",
    ),
    (
        &[
            "--memory-swap",
            "--memory-reservation",
            "--oom-kill-disable",
        ],
        "there is one limit of memory: -m",
    ),
    (
        &[
            "--cpu-shares",
            "--cpuset-cpus",
            "--cpu-quota",
            "--cpu-period",
        ],
        "there is one limit of processors: --cpus",
    ),
    (
        &["--volumes-from"],
        "name the volume in both: -v NAME:/path",
    ),
    (
        &["--ulimit", "--pids-limit", "--sysctl"],
        "limits of processes are set by the server; see `osb doctor`",
    ),
    (
        &["--log-driver", "--log-opt"],
        "logs are kept by the server: osb logs SANDBOX",
    ),
    (
        &["--health-cmd", "--no-healthcheck"],
        "whether a sandbox answers says `osb sandbox health SANDBOX`",
    ),
    (
        &[
            "--stop-signal",
            "--stop-timeout",
            "--cidfile",
            "--isolation",
            "--runtime",
        ],
        "see `osb run --help` for what there is; with -d the id is printed: osb run -d … >FILE",
    ),
];

/// What to use instead of an option of Docker's that is not here.
pub fn instead_of(option: &str) -> Option<&'static str> {
    let name = option.split('=').next().unwrap_or(option);
    let known = INSTEAD.iter().find(|(names, _)| names.contains(&name));
    known.map(|(_, instead)| *instead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_here_has_an_answer() {
        assert!(instead_of("--restart=always").unwrap().contains("loop"));
        assert!(instead_of("--memory").is_none());
    }
}
