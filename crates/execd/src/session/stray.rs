//! Finding the processes that a run has started and that do not end on an interrupt.
//!
//! They cannot be told by their group, which is the shell's own, nor by their parent,
//! which may have died. They are the members of the shell's session that began after the
//! run did. The kernel counts a process's beginning in ticks of 10 ms.

use std::fs;

use rustix::process::{Pid, Signal};
use rustix::time::{ClockId, clock_gettime};

/// Ticks per second in /proc, fixed in the kernel's user interface.
const TICKS_PER_SECOND: i64 = 100;

/// Now, as /proc counts.
pub(super) fn now_ticks() -> i64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec * TICKS_PER_SECOND + now.tv_nsec * TICKS_PER_SECOND / 1_000_000_000
}

/// Kills every process of the shell's session that began at `since` or later.
pub(super) fn kill(shell: i32, since: i64) {
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
            && belongs(&stat, shell, since)
            && let Some(pid) = Pid::from_raw(pid)
        {
            // It may have ended meanwhile, which is what was wanted.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

/// Field 6 is the session, field 22 the beginning; the name, field 2, may contain anything
/// up to the last parenthesis.
fn belongs(stat: &str, shell: i32, since: i64) -> bool {
    let Some((_, fields)) = stat.rsplit_once(')') else {
        return false;
    };
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let number = |field: usize| {
        fields
            .get(field - 3)
            .and_then(|text| text.parse::<i64>().ok())
    };
    number(6) == Some(i64::from(shell)) && number(22).is_some_and(|began| began >= since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_session_and_beginning() {
        let stat = "7 (a) b) S 1 5 42 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 900 1 1";
        assert!(belongs(stat, 42, 900));
        assert!(!belongs(stat, 42, 901));
        assert!(!belongs(stat, 5, 0));
        assert!(!belongs("nonsense", 42, 0));
    }
}
