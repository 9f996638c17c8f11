//! What the skills say: the texts are files beside this crate, with a head as agents want it.

use crate::args::local::Skill;

/// A skill's texts.
pub(super) struct Text {
    pub(super) slug: &'static str,
    pub(super) title: &'static str,
    pub(super) area: &'static str,
    pub(super) trigger: &'static str,
    pub(super) markdown: &'static str,
}

/// In the order of [`Skill`].
const TEXTS: [Text; 6] = [
    Text {
        slug: "sandbox-troubleshooting",
        title: "OpenSandbox Sandbox Troubleshooting",
        area: "Troubleshooting",
        trigger: "A sandbox does not start, crashes, runs out of memory or is not reached.",
        markdown: include_str!("../../../skills/sandbox-troubleshooting.md"),
    },
    Text {
        slug: "sandbox-lifecycle",
        title: "OpenSandbox Sandbox Lifecycle",
        area: "Lifecycle",
        trigger: "A sandbox has to be made, kept, paused, copied or removed.",
        markdown: include_str!("../../../skills/sandbox-lifecycle.md"),
    },
    Text {
        slug: "command-execution",
        title: "OpenSandbox Command Execution",
        area: "Execution",
        trigger: "Something has to run in a sandbox.",
        markdown: include_str!("../../../skills/command-execution.md"),
    },
    Text {
        slug: "file-operations",
        title: "OpenSandbox File Operations",
        area: "Files",
        trigger: "Files have to get into a sandbox, out of it, or be changed in it.",
        markdown: include_str!("../../../skills/file-operations.md"),
    },
    Text {
        slug: "network-egress",
        title: "OpenSandbox Network Egress",
        area: "Network",
        trigger: "A sandbox must reach nothing outside, or cannot reach a host that it needs.",
        markdown: include_str!("../../../skills/network-egress.md"),
    },
    Text {
        slug: "credential-vault",
        title: "OpenSandbox Credentials",
        area: "Credentials",
        trigger: "A program in a sandbox needs a key for a service.",
        markdown: include_str!("../../../skills/credential-vault.md"),
    },
];

/// Headings that hold the quickest way to use a skill, best first.
const QUICK_STARTS: [&str; 5] = [
    "Triage Order",
    "Golden Paths",
    "Core Workflow",
    "Command Map",
    "Preferred Workflow",
];

/// All of them.
pub(super) fn all() -> &'static [Text] {
    &TEXTS
}

/// The texts of one.
pub(super) fn of(skill: Skill) -> &'static Text {
    &TEXTS[skill as usize]
}

impl Text {
    /// The text between the dashes, and the rest.
    pub(super) fn parts(&self) -> (&'static str, &'static str) {
        let inside = self.markdown.strip_prefix("---\n").unwrap_or("");
        inside.split_once("\n---\n").unwrap_or(("", self.markdown))
    }

    pub(super) fn summary(&self) -> &'static str {
        let description = |line: &'static str| line.strip_prefix("description: ");
        self.parts().0.lines().find_map(description).unwrap_or("")
    }

    /// What stands under a heading.
    pub(super) fn section(&self, heading: &str) -> Option<String> {
        let mut lines = self.parts().1.lines();
        lines.find(|line| line.strip_prefix("## ") == Some(heading))?;
        let inside: Vec<&str> = lines.take_while(|line| !line.starts_with("## ")).collect();
        Some(inside.join("\n").trim().to_owned())
    }

    pub(super) fn json_shapes(&self) -> Option<String> {
        let (_, after) = self.markdown.split_once("```json\n")?;
        Some(after.split_once("```")?.0.trim().to_owned())
    }

    /// The quickest way to use it.
    pub(super) fn quick_start(&self) -> Option<String> {
        QUICK_STARTS.iter().find_map(|it| self.section(it))
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn every_skill_says_what_it_is_for() {
        assert_eq!(Skill::value_variants().len(), TEXTS.len());
        for skill in Skill::value_variants() {
            let text = of(*skill);
            let value = skill.to_possible_value().unwrap();
            assert_eq!(value.get_name(), text.slug);
            assert!(!text.summary().is_empty(), "{}", text.slug);
            assert!(text.section("When To Use").is_some(), "{}", text.slug);
            assert!(text.quick_start().is_some(), "{}", text.slug);
        }
    }
}
