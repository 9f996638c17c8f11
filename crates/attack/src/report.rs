//! What was found, as text and as JSON that can be signed and compared: the same cases in the same order, nothing
//! in it that changes from run to run unless an outcome does.

use std::fmt;
use std::fs;

use serde::Serialize;

use crate::case::{Case, Class, Verdict};
use crate::cases;
use crate::protection::Protection;

/// The form of the JSON report; a later form that cannot be read as this one has another number.
const FORMAT: u32 = 1;

/// How a case ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The attack was stopped by what must stop it.
    Held,
    /// It reached what it must not.
    GotThrough,
    /// It failed for another reason, or was not made: that shows nothing.
    Unclear,
    /// This machine lacks what the case needs.
    NotRun,
}

/// One case and how it ended.
#[derive(Debug, Clone, Serialize)]
pub struct CaseReport {
    /// Names the case for ever.
    pub id: String,
    /// What it is aimed at.
    pub class: Class,
    /// What is tried.
    pub attack: &'static str,
    /// Each would stop it by itself.
    pub protections: &'static [Protection],
    /// What it would mean if it got through.
    pub consequence: &'static str,
    /// How it ended.
    pub outcome: Outcome,
    /// What was seen, where it did not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl CaseReport {
    pub(crate) fn of(class: Class, case: &'static Case, verdict: Verdict) -> Self {
        let (outcome, detail) = match verdict {
            Verdict::Held => (Outcome::Held, None),
            Verdict::GotThrough(detail) => (Outcome::GotThrough, Some(detail)),
            Verdict::Unclear(detail) => (Outcome::Unclear, Some(detail)),
            Verdict::NotRun(detail) => (Outcome::NotRun, Some(detail)),
        };
        Self {
            id: cases::id(class, case),
            class,
            attack: case.attack,
            protections: case.protections,
            consequence: case.consequence,
            outcome,
            detail,
        }
    }
}

/// What of the machine decides the outcomes.
#[derive(Debug, Clone, Serialize)]
struct Machine {
    kernel: String,
    architecture: String,
    system: String,
    cgroup_version: u8,
    /// Security modules of the kernel, as it lists them.
    modules: String,
    bpf_jit: String,
    unprivileged_bpf: String,
    core_pattern: String,
}

impl Machine {
    fn this() -> Self {
        let text = |path: &str| {
            fs::read_to_string(path)
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let name = rustix::system::uname();
        let system = text("/etc/os-release");
        let pretty = system
            .lines()
            .find_map(|line| line.strip_prefix("PRETTY_NAME="));
        Self {
            kernel: name.release().to_string_lossy().into_owned(),
            architecture: name.machine().to_string_lossy().into_owned(),
            system: pretty.unwrap_or_default().trim_matches('"').to_owned(),
            cgroup_version: match text("/proc/self/cgroup")
                .lines()
                .any(|line| line.contains(":memory"))
            {
                true => 1,
                false => 2,
            },
            modules: text("/sys/kernel/security/lsm"),
            bpf_jit: text("/proc/sys/net/core/bpf_jit_enable"),
            unprivileged_bpf: text("/proc/sys/kernel/unprivileged_bpf_disabled"),
            core_pattern: text("/proc/sys/kernel/core_pattern"),
        }
    }
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    format: u32,
    /// Of osb.
    version: &'static str,
    machine: Machine,
    summary: Summary,
    /// In the order of the tables.
    pub cases: Vec<CaseReport>,
    /// What the cases left on the host: nothing, or they did not end as they must.
    pub left_behind: Vec<String>,
    /// What else of the host is not as it was. On a busy machine that may be anybody's doing.
    pub changed_meanwhile: Vec<String>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Summary {
    cases: usize,
    held: usize,
    got_through: usize,
    unclear: usize,
    not_run: usize,
    host_is_as_before: bool,
}

impl Report {
    pub(crate) fn new(
        cases: Vec<CaseReport>,
        left_behind: Vec<String>,
        changed_meanwhile: Vec<String>,
    ) -> Self {
        let count = |outcome| cases.iter().filter(|case| case.outcome == outcome).count();
        let summary = Summary {
            cases: cases.len(),
            held: count(Outcome::Held),
            got_through: count(Outcome::GotThrough),
            unclear: count(Outcome::Unclear),
            not_run: count(Outcome::NotRun),
            host_is_as_before: left_behind.is_empty(),
        };
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION"),
            machine: Machine::this(),
            summary,
            cases,
            left_behind,
            changed_meanwhile,
        }
    }

    /// Whether every attack that was made was stopped, by what must stop it, and the host is as it was.
    pub fn has_held(&self) -> bool {
        let Summary {
            cases,
            held,
            not_run,
            ..
        } = self.summary;
        held > 0 && held + not_run == cases && self.left_behind.is_empty()
    }

    /// For programs, and to be signed. Ends with a line break.
    pub fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("a report is plain data");
        format!("{text}\n")
    }
}

impl CaseReport {
    /// What the case is, without how it ended.
    pub fn explained(&self) -> String {
        let names: Vec<String> = self.protections.iter().map(|it| it.name()).collect();
        let (id, attack, consequence) = (&self.id, self.attack, self.consequence);
        format!(
            "{id}\n  {attack}\n  stopped by {}\n  else {consequence}\n",
            names.join(", ")
        )
    }
}

impl fmt::Display for CaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.outcome {
            Outcome::Held => "held",
            Outcome::GotThrough => "GOT THROUGH",
            Outcome::Unclear => "UNCLEAR",
            Outcome::NotRun => "not run",
        };
        write!(f, "{mark:<11} {}: {}", self.id, self.attack)?;
        if self.outcome == Outcome::Held {
            return Ok(());
        }
        let names: Vec<String> = self.protections.iter().map(|it| it.name()).collect();
        write!(f, "\n            should be stopped by {}", names.join(", "))?;
        write!(f, "\n            if it gets through, {}", self.consequence)?;
        for line in self.detail.iter().flat_map(|detail| detail.lines()) {
            write!(f, "\n            | {line}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    /// The end of the text: each case is told of as it ends.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.left_behind {
            writeln!(f, "LEFT BEHIND {line}")?;
        }
        for line in &self.changed_meanwhile {
            writeln!(f, "changed meanwhile, perhaps by others: {line}")?;
        }
        let Summary {
            cases,
            held,
            got_through,
            unclear,
            not_run,
            ..
        } = self.summary;
        writeln!(
            f,
            "\n{cases} attacks: {held} held, {got_through} got through, {unclear} unclear, {not_run} not run."
        )?;
        if self.has_held() {
            writeln!(f, "Nothing got through, and the host is as it was.")
        } else {
            writeln!(
                f,
                "Do not run code here that you do not trust until this is mended: see SECURITY.md."
            )
        }
    }
}
