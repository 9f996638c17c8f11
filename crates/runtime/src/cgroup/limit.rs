//! The limits of a group, as control files of either version.

use std::path::Path;

use lifecycle::backend::Limits;

use super::Error;
use super::layout::{Controller, Layout};
use super::tree::{Inner, write_raw};
use crate::protection::Protection;

/// The period over which processor time is shared out: the kernel's default. Shorter ones cut
/// latency for throttled groups and cost everybody timer interrupts.
const CPU_PERIOD_MICROS: u64 = 100_000;
/// What a group left unused of its quota it may use later, up to one period's worth: a command
/// after a quiet moment is not stopped half-way. Over any longer time the limit holds as before.
/// The kernel allows no more than the quota itself.
const CPU_BURST_PERIODS: u64 = 1;
/// The kernel refuses a quota below a millisecond in a period.
const CPU_QUOTA_MIN_MICROS: u64 = 1_000;

impl Inner {
    /// Sets the limits that are given on the group `name`.
    pub(super) fn limit(&self, name: &str, limits: &Limits) -> Result<(), Error> {
        if let Some(millis) = limits
            .cpu_millis
            .filter(|_| Protection::ProcessorLimit.is_on())
        {
            self.limit_cpu(name, millis)?;
        }
        if let Some(bytes) = limits
            .memory_bytes
            .filter(|_| Protection::MemoryLimit.is_on())
        {
            self.limit_memory(name, bytes)?;
        }
        if let Some(pids) = limits.pids.filter(|_| Protection::ProcessLimit.is_on()) {
            let dir = self
                .dir(Controller::Pids, name)
                .ok_or(Error::Unsupported("processes"))?;
            set_limit("processes", &dir.join("pids.max"), pids.to_string())?;
        }
        Ok(())
    }

    fn limit_cpu(&self, name: &str, millis: u64) -> Result<(), Error> {
        let dir = self
            .dir(Controller::Cpu, name)
            .ok_or(Error::Unsupported("processor time"))?;
        let quota = (millis.saturating_mul(CPU_PERIOD_MICROS) / 1_000).max(CPU_QUOTA_MIN_MICROS);
        let burst = match &self.layout {
            Layout::V1 { .. } => "cpu.cfs_burst_us",
            Layout::V2 { .. } => "cpu.max.burst",
        };
        let burst = dir.join(burst);
        // Since Linux 5.14. The kernel refuses a quota below the burst, so a lower one needs the
        // burst of the last to be gone.
        let has_burst = burst.exists();
        if has_burst {
            set_limit("processor", &burst, "0".to_owned())?;
        }
        match &self.layout {
            Layout::V1 { .. } => {
                let period = dir.join("cpu.cfs_period_us");
                set_limit("processor", &period, CPU_PERIOD_MICROS.to_string())?;
                set_limit(
                    "processor",
                    &dir.join("cpu.cfs_quota_us"),
                    quota.to_string(),
                )?;
            }
            Layout::V2 { .. } => set_limit(
                "processor",
                &dir.join("cpu.max"),
                format!("{quota} {CPU_PERIOD_MICROS}"),
            )?,
        }
        if has_burst {
            let unused = quota * CPU_BURST_PERIODS;
            set_limit("processor", &burst, unused.to_string())?;
        }
        Ok(())
    }

    /// Memory and swap together get the one number: swap must not be a way around the limit.
    fn limit_memory(&self, name: &str, bytes: u64) -> Result<(), Error> {
        let dir = self
            .dir(Controller::Memory, name)
            .ok_or(Error::Unsupported("memory"))?;
        let has_swap = self.capabilities().swap;
        if let Layout::V2 { .. } = &self.layout {
            if has_swap {
                set_limit("swap", &dir.join("memory.swap.max"), "0".to_owned())?;
            }
            return set_limit("memory", &dir.join("memory.max"), bytes.to_string());
        }
        // v1 has an account of its own for what waits in sockets, of UDP too; v2 has one for all.
        // Kernels without sockets in memory cgroups have no such file.
        let sockets = dir.join("memory.kmem.tcp.limit_in_bytes");
        if sockets.exists() {
            set_limit("socket memory", &sockets, bytes.to_string())?;
        }
        let memory = dir.join("memory.limit_in_bytes");
        let with_swap = dir.join("memory.memsw.limit_in_bytes");
        if !has_swap {
            return set_limit("memory", &memory, bytes.to_string());
        }
        // The kernel keeps memory at or below memory with swap at every step, so which goes
        // first depends on whether the limit grows.
        if write_raw(&memory, &bytes.to_string()).is_err() {
            set_limit("memory with swap", &with_swap, bytes.to_string())?;
            return set_limit("memory", &memory, bytes.to_string());
        }
        set_limit("memory with swap", &with_swap, bytes.to_string())
    }
}

fn set_limit(what: &'static str, path: &Path, value: String) -> Result<(), Error> {
    write_raw(path, &value).map_err(|source| Error::Limit {
        what,
        value,
        source,
    })
}
