//! Settings of the host that all sandboxes share, beside what the planned number of them may use.

use std::fs;

use super::{Check, Section, Settings};

/// One setting: sandboxes that use all they may must fit into it.
struct Setting {
    /// Of the report.
    name: &'static str,
    /// Below /proc/sys, as sysctl(8) writes it.
    key: &'static str,
    /// What one sandbox may use of it.
    each: u64,
    /// What the host itself needs besides.
    host: u64,
    /// Of what.
    unit: &'static str,
}

/// Sockets of a sandbox that were closed and still have something to send are few: each is charged
/// to its memory. This many fit into a hundredth of the default limit.
const ORPHANS_EACH: u64 = 1_024;

/// A filter of PID 1 takes some pages of the kernel's memory for compiled programs, and a sandbox
/// may install a few of its own.
const JIT_BYTES_EACH: u64 = 256 << 10;

/// Neighbours: the permanent entry of each end.
const NEIGHBOURS_EACH: u64 = 2;

pub(super) fn tables(settings: &Settings) -> Section {
    let limits = &settings.limits;
    let each = [
        Setting {
            name: "processes",
            key: "kernel.pid_max",
            each: limits.pids.unwrap_or(u64::MAX),
            host: 4_096,
            unit: "processes",
        },
        Setting {
            name: "threads",
            key: "kernel.threads-max",
            each: limits.pids.unwrap_or(u64::MAX),
            host: 4_096,
            unit: "threads",
        },
        Setting {
            name: "open files",
            key: "fs.file-max",
            each: limits.open_files.unwrap_or(u64::MAX),
            host: 65_536,
            unit: "open files",
        },
        Setting {
            name: "connections",
            key: "net.netfilter.nf_conntrack_max",
            each: crate::net::CONNECTIONS_PER_SANDBOX.into(),
            host: 16_384,
            unit: "connections",
        },
        Setting {
            name: "closing sockets",
            key: "net.ipv4.tcp_max_orphans",
            each: ORPHANS_EACH,
            host: 4_096,
            unit: "sockets",
        },
        Setting {
            name: "neighbours",
            key: "net.ipv4.neigh.default.gc_thresh3",
            each: NEIGHBOURS_EACH,
            host: 512,
            unit: "entries",
        },
        Setting {
            name: "compiled filters",
            key: "net.core.bpf_jit_limit",
            each: JIT_BYTES_EACH,
            host: 16 << 20,
            unit: "bytes",
        },
    ];
    let planned = u64::from(settings.planned_sandboxes);
    let mut checks: Vec<Check> = each
        .iter()
        .filter_map(|setting| examine(setting, planned))
        .collect();
    checks.push(core_pattern(
        &fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default(),
    ));
    Section {
        name: "Shared by all sandboxes",
        checks,
    }
}

/// `None` where the kernel has no such setting.
fn examine(setting: &Setting, planned: u64) -> Option<Check> {
    let path = format!("/proc/sys/{}", setting.key.replace('.', "/"));
    let value = fs::read_to_string(path).ok()?.trim().parse().ok()?;
    Some(judge(setting, planned, value))
}

fn judge(setting: &Setting, planned: u64, value: u64) -> Check {
    let Setting {
        name,
        key,
        each,
        host,
        unit,
    } = *setting;
    let wanted = planned.saturating_mul(each).saturating_add(host);
    if value >= wanted {
        return Check::ok(name, format!("{key} is {value}"));
    }
    let fit = value.saturating_sub(host) / each.max(1);
    let detail = format!(
        "{key} is {value}: {fit} sandboxes that use all {each} {unit} they may leave none for \
         others, and {planned} are planned (embedded.planned_sandboxes)"
    );
    let fix = if wanted == u64::MAX {
        "set a default limit for sandboxes, see embedded.default_pids and \
         embedded.default_open_files"
            .to_owned()
    } else {
        format!("sysctl -w {key}={wanted}")
    };
    Check::degraded(name, detail).mended_by(fix)
}

/// A program that the host runs for every crash would run for a sandbox's too, as root and on
/// memory that an attacker wrote. Sandboxes have the one limit that keeps the kernel from it.
fn core_pattern(pattern: &str) -> Check {
    const NAME: &str = "core dumps";
    match pattern.trim().strip_prefix('|') {
        None => Check::ok(NAME, "go into files, and sandboxes make none"),
        Some(program) => Check::degraded(
            NAME,
            format!(
                "kernel.core_pattern starts {} for crashes: sandboxes are kept from it by a limit \
                 of one byte and a filter that keeps it, and by nothing else",
                program.split_whitespace().next().unwrap_or("a program")
            ),
        )
        .mended_by("sysctl -w kernel.core_pattern=core"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    const PIDS: Setting = Setting {
        name: "processes",
        key: "kernel.pid_max",
        each: 4_096,
        host: 4_096,
        unit: "processes",
    };

    #[test]
    fn a_setting_that_is_too_small_is_named_with_what_it_should_be() {
        let check = judge(&PIDS, 100, 32_768);
        assert_eq!(check.status, Status::Degraded);
        assert!(check.detail.contains("7 sandboxes"), "{}", check.detail);
        assert_eq!(
            check.fix.as_deref(),
            Some("sysctl -w kernel.pid_max=413696")
        );
        assert_eq!(judge(&PIDS, 100, 413_696).status, Status::Ok);
        assert_eq!(judge(&PIDS, 7, 32_768).status, Status::Ok);
    }

    #[test]
    fn without_a_limit_no_setting_is_large_enough() {
        let unlimited = Setting {
            each: u64::MAX,
            ..PIDS
        };
        let check = judge(&unlimited, 1, 4_194_304);
        assert_eq!(check.status, Status::Degraded);
        assert!(check.fix.unwrap().contains("default_pids"));
    }

    #[test]
    fn a_program_for_core_dumps_is_told_of() {
        assert_eq!(core_pattern("core\n").status, Status::Ok);
        let check = core_pattern("|/usr/share/apport/apport %p %s\n");
        assert_eq!(check.status, Status::Degraded);
        assert!(
            check
                .detail
                .contains("/usr/share/apport/apport for crashes")
        );
    }
}
