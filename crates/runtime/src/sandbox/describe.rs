//! A sandbox in words, for diagnostics. Carries no secret.

use std::fmt::Write as _;

use lifecycle::backend::{Exit, Limits};

use super::{Sandbox, State};
use crate::cgroup::Usage;
use crate::net::Network;

const MIB: u64 = 1024 * 1024;

impl Sandbox {
    /// For people.
    pub(crate) fn describe(&self) -> String {
        let (record, state) = (&self.record, self.state());
        let network = match self.network() {
            Network::None => "none",
            Network::Outside => "its own, with a way out",
            Network::Gated => "its own, through the egress gate",
        };
        let mut text = String::new();
        let mut line = |name: &str, value: &str| {
            let _ = writeln!(text, "{name:<10}{value}");
        };
        line("sandbox", record.id.as_str());
        line("source", &record.source.to_string());
        line("image", record.image.as_str());
        line("state", state.name());
        line("network", network);
        line("slot", &record.slot.to_string());
        line("cgroup", &record.group.to_string());
        line("limits", &limits(&record.limits));
        line("command", &command(&record.entrypoint));
        if let State::Exited(exit) = &state {
            line("exit", &ended(exit));
        }
        if let Some(alive) = self.live() {
            line("usage", &usage(&alive.group.usage()));
        }
        text
    }
}

fn limits(limits: &Limits) -> String {
    let parts = [
        limits.cpu_millis.map(|it| format!("{it}m cpu")),
        limits
            .memory_bytes
            .map(|it| format!("{} MiB memory", it / MIB)),
        limits.disk_bytes.map(|it| format!("{} MiB disk", it / MIB)),
        limits.pids.map(|it| format!("{it} processes")),
        limits
            .open_files
            .map(|it| format!("{it} open files per process")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return "none".to_owned();
    }
    parts.join(", ")
}

/// As a shell would take it.
fn command(arguments: &[String]) -> String {
    let quoted = arguments.iter().map(|argument| {
        let is_plain =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '=' | ':');
        if !argument.is_empty() && argument.chars().all(is_plain) {
            argument.clone()
        } else {
            format!("'{}'", argument.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

fn ended(exit: &Exit) -> String {
    let how = match (exit.code, exit.signal) {
        (Some(code), _) => format!("code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "not known".to_owned(),
    };
    let why = if exit.oom_killed {
        ", out of memory"
    } else {
        ""
    };
    let when = exit.at.map_or_else(String::new, |at| format!(", at {at}"));
    format!("{how}{why}{when}")
}

fn usage(usage: &Usage) -> String {
    let of = usage
        .memory_limit_bytes
        .map_or_else(String::new, |limit| format!(" of {}", limit / MIB));
    format!(
        "{:.3} s of processor time, {}{of} MiB memory, {} processes",
        usage.cpu.as_secs_f64(),
        usage.memory_bytes / MIB,
        usage.pids
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_not_the_names_of_types() {
        let some = Limits {
            cpu_millis: Some(500),
            memory_bytes: Some(512 * MIB),
            ..Limits::default()
        };
        assert_eq!(limits(&some), "500m cpu, 512 MiB memory");
        assert_eq!(limits(&Limits::default()), "none");
        let words = ["sh", "-c", "echo 'a b'", ""].map(str::to_owned);
        assert_eq!(command(&words), r"sh -c 'echo '\''a b'\''' ''");
        let exit = Exit {
            code: None,
            signal: Some(9),
            oom_killed: true,
            at: None,
        };
        assert_eq!(ended(&exit), "signal 9, out of memory");
    }
}
