//! The machine's numbers from /proc, for sandboxes that have the machine to themselves or whose
//! cgroup cannot be seen.

use std::{fs, time::Duration};

/// Ticks per second of the counters in /proc/stat: fixed at 100 for user space on every
/// architecture Linux has.
const TICKS: u64 = 100;

pub(super) struct Memory {
    pub(super) total: u64,
    pub(super) used: u64,
}

pub(super) fn memory() -> Result<Memory, String> {
    parse_meminfo(&read("/proc/meminfo")?).ok_or_else(|| "/proc/meminfo lacks MemTotal".to_string())
}

/// CPUs this process may run on.
pub(super) fn cpus() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64)
}

/// CPU time everything on the machine has used.
pub(super) fn cpu_used() -> Result<Duration, String> {
    parse_stat(&read("/proc/stat")?).ok_or_else(|| "/proc/stat lacks its first line".to_string())
}

fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(path)
        .map_err(|e| format!("{path} cannot be read: {e}; mount /proc in the sandbox"))
}

fn parse_meminfo(text: &str) -> Option<Memory> {
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let number: u64 = line
            .trim_start_matches(':')
            .split_whitespace()
            .next()?
            .parse()
            .ok()?;
        Some(number * 1024)
    };
    let total = bytes("MemTotal")?;
    let available = bytes("MemAvailable").or_else(|| bytes("MemFree"))?;
    Some(Memory {
        total,
        used: total.saturating_sub(available),
    })
}

/// user, nice, system, irq, softirq and steal; idle and iowait are no work, and guest time is in
/// user already.
fn parse_stat(text: &str) -> Option<Duration> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    let used: u64 = [0, 1, 2, 5, 6, 7]
        .iter()
        .filter_map(|&at| fields.get(at))
        .sum();
    (fields.len() >= 4).then(|| Duration::from_millis(used * 1000 / TICKS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_the_kernel_writes() {
        let memory =
            parse_meminfo("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:   400 kB\n").unwrap();
        assert_eq!((memory.total, memory.used), (1000 * 1024, 600 * 1024));
        assert_eq!(
            parse_stat("cpu  100 0 100 9999 50 0 0 10 77 0\n"),
            Some(Duration::from_millis(2100))
        );
        assert!(parse_meminfo("").is_none());
        assert!(parse_stat("cpu0 1 2").is_none());
    }

    #[test]
    fn this_machine_can_be_read() {
        assert!(memory().unwrap().used > 0);
        assert!(cpu_used().unwrap() > Duration::ZERO);
    }
}
