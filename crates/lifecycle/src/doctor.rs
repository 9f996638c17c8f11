//! What `osb doctor` says: what a machine can do for the sandboxes of a backend, in a form that all
//! backends share.

use std::fmt;

use serde::Serialize;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// In the order they are shown.
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

    /// All checks, of every section.
    pub fn checks(&self) -> impl Iterator<Item = &Check> {
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
    /// As it should be.
    pub fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self {
            name,
            status: Status::Ok,
            detail: detail.into(),
            fix: None,
        }
    }

    /// Works, with something worth knowing.
    pub fn note(name: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status: Status::Note,
            ..Self::ok(name, detail)
        }
    }

    /// Something about sandboxes does not work or is not enforced.
    pub fn degraded(name: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status: Status::Degraded,
            ..Self::ok(name, detail)
        }
    }

    /// Sandboxes cannot be made.
    pub fn failed(name: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status: Status::Failed,
            ..Self::ok(name, detail)
        }
    }

    /// Adds the command or change that mends it.
    #[must_use]
    pub fn mended_by(self, fix: impl Into<String>) -> Self {
        Self {
            fix: Some(fix.into()),
            ..self
        }
    }
}
