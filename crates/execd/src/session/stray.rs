//! Finding the processes that a run has started and that do not end on an interrupt.
//!
//! They cannot be told by their group, which is the shell's own, nor by their parent,
//! which may have died. They are the members of the shell's session that began after the
//! run did, and of its group those that an interrupt would have ended. The kernel counts a process's beginning in ticks of 10 ms.

use std::fs;

use rustix::process::{Pid, Signal};
use rustix::time::{ClockId, clock_gettime};

/// Ticks per second in /proc, fixed in the kernel's user interface.
const TICKS_PER_SECOND: i64 = 100;

/// Now, as /proc counts.
pub(crate) fn now_ticks() -> i64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec * TICKS_PER_SECOND + now.tv_nsec * TICKS_PER_SECOND / 1_000_000_000
}

/// Kills every process of the shell's session that began at `since` or later.
pub(crate) fn kill(shell: i32, since: i64) {
    signal(shell, Signal::KILL, |found| {
        found.session == shell && found.began >= since
    });
}

/// Interrupts the processes that an interrupt of the shell's group did not reach, because
/// they were being forked just then. One on which the interrupt has its default action, and
/// that lives nevertheless, is such a process; background jobs ignore it.
pub(crate) fn interrupt_missed(shell: i32, since: i64) {
    signal(shell, Signal::INT, |found| {
        found.group == shell && found.began >= since && found.dies_of_interrupt
    });
}

fn signal(shell: i32, signal: Signal, is_meant: impl Fn(&Found) -> bool) {
    let Ok(entries) = fs::read_dir("/proc") else {
        return;
    };
    for entry in entries.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        if pid != shell
            && Found::read(&stat).is_some_and(|found| is_meant(&found))
            && let Some(pid) = Pid::from_raw(pid)
        {
            // It may have ended meanwhile, which is what was wanted.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

/// What `/proc/PID/stat` says of a process.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    group: i32,
    session: i32,
    /// In ticks since the machine started.
    began: i64,
    /// It neither ignores nor catches SIGINT.
    dies_of_interrupt: bool,
}

impl Found {
    /// Fields 5 and 6 are the group and the session, 22 the beginning, 33 and 34 the signals
    /// that are ignored and caught; the name, field 2, may contain anything up to the last
    /// parenthesis.
    fn read(stat: &str) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<i64>().ok();
        let interrupt = 1 << (Signal::INT.as_raw() - 1);
        Some(Self {
            group: i32::try_from(number(5)?).ok()?,
            session: i32::try_from(number(6)?).ok()?,
            began: number(22)?,
            dies_of_interrupt: (number(33)? | number(34)?) & interrupt == 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_decides() {
        let stat = |ignored: u64, caught: u64| {
            format!(
                "7 (a) b) S 1 5 42 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 900 1 1 1 1 1 1 1 1 0 0 {ignored} {caught} 0"
            )
        };
        let expected = Found {
            group: 5,
            session: 42,
            began: 900,
            dies_of_interrupt: true,
        };
        assert_eq!(Found::read(&stat(1, 4)), Some(expected));
        for (ignored, caught) in [(2, 0), (0, 2)] {
            let found = Found::read(&stat(ignored, caught)).unwrap();
            assert!(!found.dies_of_interrupt);
        }
        assert_eq!(Found::read("nonsense"), None);
    }
}
