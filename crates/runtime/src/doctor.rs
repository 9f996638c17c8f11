//! Says what this machine can do for sandboxes, what is missing, and the command that mends it.
//!
//! Every answer is tried, not guessed from a version, where trying leaves no trace. Nothing is
//! changed: what is made to find out is gone when the report is done. The report has sections, so
//! that other backends can add theirs.

mod host;
mod kernel;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use crate::net;

/// What to examine.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the server keeps its state. Need not exist yet.
    pub data_dir: PathBuf,
    /// The program that becomes PID 1 of every sandbox.
    pub execd: PathBuf,
    /// Addresses and ids of the sandboxes.
    pub network: net::Config,
}

impl From<&crate::Config> for Settings {
    fn from(config: &crate::Config) -> Self {
        Self {
            data_dir: config.data_dir.clone(),
            execd: config.execd.clone(),
            network: config.network.clone(),
        }
    }
}

/// Examines this machine. Blocks for some ten milliseconds.
pub fn run(settings: &Settings) -> Report {
    Report {
        sections: vec![
            kernel::privileges(),
            kernel::features(settings),
            kernel::cgroups(),
            host::disk(settings),
            host::network(settings),
            host::programs(settings),
        ],
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// In the order they are shown. Other backends push theirs.
    pub sections: Vec<Section>,
}

/// Checks that belong together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Section {
    /// A word or two.
    pub name: &'static str,
    /// In the order they are shown.
    pub checks: Vec<Check>,
}

/// One thing that was examined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was examined.
    pub name: &'static str,
    /// How it is.
    pub status: Status,
    /// What was found, and with anything but [`Status::Ok`] what follows from it.
    pub detail: String,
    /// The command or change that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// How good a check's answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Works, with something worth knowing.
    Note,
    /// Sandboxes can be made, but something about them does not work or is not enforced.
    Degraded,
    /// Sandboxes cannot be made.
    Failed,
}

impl Report {
    /// Whether sandboxes can be made. Decides the exit code of `osb doctor`.
    pub fn is_able(&self) -> bool {
        self.worst() != Some(Status::Failed)
    }

    fn worst(&self) -> Option<Status> {
        self.checks().map(|check| check.status).max()
    }

    fn checks(&self) -> impl Iterator<Item = &Check> {
        self.sections.iter().flat_map(|section| &section.checks)
    }

    /// The report for programs.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({ "able": self.is_able(), "sections": self.sections })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for section in &self.sections {
            writeln!(f, "{}", section.name)?;
            for check in &section.checks {
                let mark = match check.status {
                    Status::Ok => "ok  ",
                    Status::Note => "note",
                    Status::Degraded => "warn",
                    Status::Failed => "FAIL",
                };
                writeln!(f, "  {mark}  {:<18} {}", check.name, check.detail)?;
                if let Some(fix) = &check.fix {
                    writeln!(f, "        {:<18} to mend it: {fix}", "")?;
                }
            }
            writeln!(f)?;
        }
        match self.worst() {
            Some(Status::Failed) => writeln!(f, "Sandboxes cannot be made on this machine."),
            Some(Status::Degraded) => {
                writeln!(
                    f,
                    "Sandboxes can be made, with the restrictions marked above."
                )
            }
            _ => writeln!(f, "Sandboxes can be made."),
        }
    }
}

impl Check {
    fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self {
            name,
            status: Status::Ok,
            detail: detail.into(),
            fix: None,
        }
    }

    fn note(name: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status: Status::Note,
            ..Self::ok(name, detail)
        }
    }

    fn degraded(name: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status: Status::Degraded,
            ..Self::ok(name, detail)
        }
    }

    fn failed(name: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status: Status::Failed,
            ..Self::ok(name, detail)
        }
    }

    fn mended_by(self, fix: impl Into<String>) -> Self {
        Self {
            fix: Some(fix.into()),
            ..self
        }
    }
}
