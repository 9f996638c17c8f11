//! `osb skills …`: instructions for AI coding tools, put where each of them looks.
//!
//! A tool either has a directory with one file a skill, or one file in which each skill has a
//! marked part of its own; everything else in that file is left as it is.

use std::path::{Path, PathBuf};

use super::{DONE, Outcome};
use crate::app::App;
use crate::args::local::{Scope, Skill, Skills, Tool};
use crate::error::Error;
use crate::output::{Format, Record, Value};

/// A skill's texts.
struct Text {
    slug: &'static str,
    title: &'static str,
    area: &'static str,
    trigger: &'static str,
    markdown: &'static str,
}

const ALL: [Skill; 6] = [
    Skill::SandboxTroubleshooting,
    Skill::SandboxLifecycle,
    Skill::CommandExecution,
    Skill::FileOperations,
    Skill::NetworkEgress,
    Skill::CredentialVault,
];

const TOOLS: [Tool; 7] = [
    Tool::Claude,
    Tool::Cursor,
    Tool::Codex,
    Tool::Copilot,
    Tool::Windsurf,
    Tool::Cline,
    Tool::OpenCode,
];

/// Headings that hold the quickest way to use a skill, best first.
const QUICK_STARTS: [&str; 6] = [
    "Triage Order",
    "Golden Paths",
    "Core Workflow",
    "Command Map",
    "Inspect Current Policy",
    "Preferred Workflow",
];

fn text(skill: Skill) -> Text {
    match skill {
        Skill::SandboxTroubleshooting => Text {
            slug: "sandbox-troubleshooting",
            title: "OpenSandbox Sandbox Troubleshooting",
            area: "Troubleshooting",
            trigger: "A sandbox does not start, crashes, runs out of memory or is not reached.",
            markdown: include_str!("../../skills/sandbox-troubleshooting.md"),
        },
        Skill::SandboxLifecycle => Text {
            slug: "sandbox-lifecycle",
            title: "OpenSandbox Sandbox Lifecycle",
            area: "Lifecycle",
            trigger: "A sandbox has to be made, kept, paused, copied or removed.",
            markdown: include_str!("../../skills/sandbox-lifecycle.md"),
        },
        Skill::CommandExecution => Text {
            slug: "command-execution",
            title: "OpenSandbox Command Execution",
            area: "Execution",
            trigger: "Something has to run in a sandbox.",
            markdown: include_str!("../../skills/command-execution.md"),
        },
        Skill::FileOperations => Text {
            slug: "file-operations",
            title: "OpenSandbox File Operations",
            area: "Files",
            trigger: "Files have to get into a sandbox, out of it, or be changed in it.",
            markdown: include_str!("../../skills/file-operations.md"),
        },
        Skill::NetworkEgress => Text {
            slug: "network-egress",
            title: "OpenSandbox Network Egress",
            area: "Network",
            trigger: "A sandbox cannot reach a host that it needs, or must not reach one.",
            markdown: include_str!("../../skills/network-egress.md"),
        },
        Skill::CredentialVault => Text {
            slug: "credential-vault",
            title: "OpenSandbox Credential Vault",
            area: "Credentials",
            trigger: "A sandbox's requests need a key that it must not see.",
            markdown: include_str!("../../skills/credential-vault.md"),
        },
    }
}

impl Text {
    /// The text between the dashes, and the rest.
    fn parts(&self) -> (&'static str, &'static str) {
        let inside = self.markdown.strip_prefix("---\n").unwrap_or("");
        inside.split_once("\n---\n").unwrap_or(("", self.markdown))
    }

    fn summary(&self) -> &'static str {
        let description = |line: &'static str| line.strip_prefix("description: ");
        self.parts().0.lines().find_map(description).unwrap_or("")
    }

    /// What stands under a heading.
    fn section(&self, heading: &str) -> Option<String> {
        let mut lines = self.parts().1.lines();
        lines.find(|line| line.strip_prefix("## ") == Some(heading))?;
        let inside: Vec<&str> = lines.take_while(|line| !line.starts_with("## ")).collect();
        Some(inside.join("\n").trim().to_owned())
    }

    fn json_shapes(&self) -> Option<String> {
        let (_, after) = self.markdown.split_once("```json\n")?;
        Some(after.split_once("```")?.0.trim().to_owned())
    }
}

/// How a tool takes skills.
enum Layout {
    /// One file a skill, at this path with the skill's name in place of `{}`.
    Files {
        pattern: &'static str,
        keeps_head: bool,
    },
    /// All in one file.
    Shared(&'static str),
}

fn layout(tool: Tool) -> (&'static str, Layout) {
    let files = |pattern, keeps_head| Layout::Files {
        pattern,
        keeps_head,
    };
    match tool {
        Tool::Claude => ("Claude Code", files(".claude/skills/{}.md", true)),
        Tool::Cursor => ("Cursor", files(".cursor/rules/{}.mdc", false)),
        Tool::Codex => ("Codex", files(".codex/skills/{}/SKILL.md", true)),
        Tool::Copilot => (
            "GitHub Copilot",
            Layout::Shared(".github/copilot-instructions.md"),
        ),
        Tool::Windsurf => ("Windsurf", Layout::Shared(".windsurfrules")),
        Tool::Cline => ("Cline", Layout::Shared(".clinerules")),
        Tool::OpenCode => ("OpenCode", files(".agents/skills/{}/SKILL.md", true)),
        Tool::All => unreachable!("taken apart before"),
    }
}

/// One tool in one scope.
struct Place {
    tool: Tool,
    scope: Scope,
    label: &'static str,
    layout: Layout,
    root: PathBuf,
}

impl Place {
    fn new(tool: Tool, scope: Scope) -> Result<Self, Error> {
        let root = match scope {
            Scope::Project => PathBuf::new(),
            Scope::Global => std::env::var_os("HOME")
                .filter(|home| !home.is_empty())
                .map(PathBuf::from)
                .ok_or(crate::config::Error::NoHome)?,
        };
        let (label, layout) = layout(tool);
        Ok(Self {
            tool,
            scope,
            label,
            layout,
            root,
        })
    }

    fn path(&self, skill: &Text) -> PathBuf {
        match self.layout {
            Layout::Files { pattern, .. } => self.root.join(pattern.replace("{}", skill.slug)),
            Layout::Shared(path) => self.root.join(path),
        }
    }

    fn summary(&self) -> String {
        match self.layout {
            Layout::Files { pattern, .. } => {
                let path = self.root.join(pattern.replace("{}", "<skill-name>"));
                format!("install one file per skill under {}", path.display())
            }
            Layout::Shared(path) => {
                let path = self.root.join(path);
                format!("aggregate into one instructions file at {}", path.display())
            }
        }
    }

    /// The skill as this tool wants it.
    fn content(&self, skill: &Text) -> String {
        match self.layout {
            Layout::Files {
                keeps_head: true, ..
            } => format!("{}\n", skill.markdown.trim()),
            _ => format!(
                "# {}\n\n{}\n\n{}\n",
                skill.title,
                skill.summary(),
                skill.parts().1.trim()
            ),
        }
    }

    fn is_installed(&self, skill: &Text) -> bool {
        let Ok(found) = std::fs::read_to_string(self.path(skill)) else {
            return false;
        };
        matches!(self.layout, Layout::Files { .. }) || found.contains(&marks(skill).0)
    }

    fn install(&self, skill: &Text) -> Result<&'static str, Error> {
        let path = self.path(skill);
        let before = read(&path)?;
        let after = match self.layout {
            Layout::Files { .. } => self.content(skill),
            Layout::Shared(_) => {
                let (begin, end) = marks(skill);
                let part = format!("{begin}\n{}{end}\n", self.content(skill));
                let rest = without(before.as_deref().unwrap_or(""), skill);
                match rest.trim_end() {
                    "" => part,
                    rest => format!("{rest}\n\n{part}"),
                }
            }
        };
        let status = match before {
            Some(before) if before == after => "already_present",
            _ if self.is_installed(skill) => "updated",
            _ => "installed",
        };
        write(&path, &after)?;
        Ok(status)
    }

    fn uninstall(&self, skill: &Text) -> Result<&'static str, Error> {
        let path = self.path(skill);
        let Some(before) = read(&path)? else {
            return Ok("not_installed");
        };
        let after = match self.layout {
            Layout::Files { .. } => String::new(),
            Layout::Shared(_) => without(&before, skill),
        };
        if after == before {
            return Ok("not_installed");
        }
        if after.trim().is_empty() {
            std::fs::remove_file(&path).map_err(|error| Error::file("removed", &path, error))?;
            if let (Layout::Files { .. }, Some(parent)) = (&self.layout, path.parent()) {
                // Only an empty directory goes.
                let _ = std::fs::remove_dir(parent);
            }
        } else {
            write(&path, &format!("{}\n", after.trim_end()))?;
        }
        Ok("removed")
    }

    fn result(&self, skill: &Text, status: &str) -> Record {
        Record::new()
            .with("skill", skill.slug)
            .with("target", word(self.tool))
            .with("target_label", self.label)
            .with("scope", word(self.scope))
            .with("path", self.path(skill).display().to_string())
            .with("status", status)
            .with("requires_restart", true)
    }
}

/// The lines around a skill's part of a shared file.
fn marks(skill: &Text) -> (String, String) {
    let slug = skill.slug;
    (
        format!("<!-- BEGIN opensandbox-{slug} -->"),
        format!("<!-- END opensandbox-{slug} -->"),
    )
}

/// A shared file without a skill's part.
fn without(text: &str, skill: &Text) -> String {
    let (begin, end) = marks(skill);
    let Some((before, rest)) = text.split_once(&begin) else {
        return text.to_owned();
    };
    // Without its end nobody knows where it stops: better twice than lost.
    let Some((_, after)) = rest.split_once(&end) else {
        return text.to_owned();
    };
    let after = after.trim_start_matches('\n');
    match before.trim_end_matches('\n') {
        "" => after.to_owned(),
        before if after.is_empty() => format!("{before}\n"),
        before => format!("{before}\n\n{after}"),
    }
}

fn read(path: &Path) -> Result<Option<String>, Error> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::file("read", path, error)),
    }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|error| Error::file("written", path, error))?;
    }
    std::fs::write(path, text).map_err(|error| Error::file("written", path, error))
}

fn word(value: impl clap::ValueEnum + Copy) -> String {
    let value = value.to_possible_value().expect("no value is hidden");
    value.get_name().to_owned()
}

fn places(tool: Tool, scope: Scope) -> Result<Vec<Place>, Error> {
    match tool {
        Tool::All => TOOLS.iter().map(|tool| Place::new(*tool, scope)).collect(),
        tool => Ok(vec![Place::new(tool, scope)?]),
    }
}

pub(super) fn run(app: &App, command: &Skills) -> Outcome {
    match *command {
        Skills::List => list(app),
        Skills::Show { skill_name } => show(app, &text(skill_name)),
        Skills::Install {
            skill_name,
            all_builtins,
            target,
            scope,
            ..
        } => {
            let skills = match (skill_name, all_builtins) {
                (Some(skill), _) => vec![skill],
                (None, true) => ALL.to_vec(),
                (None, false) => {
                    let names: Vec<String> = ALL.iter().map(|skill| word(*skill)).collect();
                    return Err(Error::Usage(format!(
                        "which skill? Name one ({}), or take --all-builtins",
                        names.join(", ")
                    )));
                }
            };
            let mut results = Vec::new();
            for skill in skills.into_iter().map(text) {
                for place in places(target, scope)? {
                    let status = place.install(&skill)?;
                    results.push(place.result(&skill, status));
                }
            }
            finish(
                app,
                results,
                "Done! Restart your AI coding tool to pick up the skills.",
            )
        }
        Skills::Uninstall {
            skill_name,
            target,
            scope,
        } => {
            let skill = text(skill_name);
            let mut results = Vec::new();
            for place in places(target, scope)? {
                let status = place.uninstall(&skill)?;
                results.push(place.result(&skill, status));
            }
            finish(app, results, "")
        }
    }
}

fn finish(app: &App, results: Vec<Record>, closing: &str) -> Outcome {
    let printer = app.printer();
    if matches!(printer.format(), Format::Json | Format::Yaml) {
        let operations = results.into_iter().map(Value::Record).collect();
        let all = Record::new()
            .with("operations", Value::List(operations))
            .with("requires_restart", true);
        printer.record("Skills", &all)?;
    } else {
        printer.rows(
            "Skills",
            &["skill", "target", "scope", "status", "path"],
            &results,
        )?;
        if printer.is_terminal() && !closing.is_empty() {
            printer.text(closing)?;
        }
    }
    Ok(DONE)
}

fn show(app: &App, skill: &Text) -> Outcome {
    let printer = app.printer();
    if !matches!(printer.format(), Format::Json | Format::Yaml) {
        printer.text(skill.markdown)?;
        return Ok(DONE);
    }
    let quick_start = QUICK_STARTS
        .iter()
        .find_map(|heading| skill.section(heading));
    let record = Record::new()
        .with("skill", skill.slug)
        .with("title", skill.title)
        .with("area", skill.area)
        .with("summary", skill.summary())
        .with("trigger_hint", skill.trigger)
        .with("when_to_use", skill.section("When To Use"))
        .with("quick_start", quick_start)
        .with("json_shapes", skill.json_shapes())
        .with("content", skill.markdown.trim());
    printer.record("Skill", &record)?;
    Ok(DONE)
}

fn list(app: &App) -> Outcome {
    let printer = app.printer();
    let texts: Vec<Text> = ALL.into_iter().map(text).collect();
    let skills: Vec<Record> = texts
        .iter()
        .map(|skill| {
            Record::new()
                .with("slug", skill.slug)
                .with("area", skill.area)
                .with("title", skill.title)
                .with("summary", skill.summary())
                .with("trigger_hint", skill.trigger)
        })
        .collect();
    let mut targets = Vec::new();
    for tool in TOOLS {
        for scope in [Scope::Project, Scope::Global] {
            // Without a home there is nothing to say about it.
            let Ok(place) = Place::new(tool, scope) else {
                continue;
            };
            let states: Vec<Value> = texts
                .iter()
                .map(|skill| {
                    let installed = place.is_installed(skill);
                    let status = if installed {
                        "installed"
                    } else {
                        "not installed"
                    };
                    let record = Record::new()
                        .with("skill", skill.slug)
                        .with("status", status)
                        .with("path", place.path(skill).display().to_string());
                    Value::Record(record)
                })
                .collect();
            let count = texts
                .iter()
                .filter(|skill| place.is_installed(skill))
                .count();
            targets.push(
                Record::new()
                    .with("target", word(tool))
                    .with("scope", word(scope))
                    .with("label", place.label)
                    .with("layout", place.summary())
                    .with("installed", format!("{count}/{}", texts.len()))
                    .with("skills", Value::List(states)),
            );
        }
    }
    if matches!(printer.format(), Format::Json | Format::Yaml) {
        let all = Record::new()
            .with(
                "skills",
                Value::List(skills.into_iter().map(Value::Record).collect()),
            )
            .with(
                "targets",
                Value::List(targets.into_iter().map(Value::Record).collect()),
            );
        printer.record("Skills", &all)?;
    } else {
        printer.rows("Skills", &["slug", "area", "summary"], &skills)?;
        printer.rows(
            "Targets",
            &["target", "scope", "installed", "layout"],
            &targets,
        )?;
    }
    Ok(DONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(tool: Tool, root: &Path) -> Place {
        let (label, layout) = layout(tool);
        Place {
            tool,
            scope: Scope::Project,
            label,
            layout,
            root: root.to_owned(),
        }
    }

    #[test]
    fn a_shared_file_keeps_everything_else() {
        let root = tempfile::tempdir().unwrap();
        let place = place(Tool::Windsurf, root.path());
        let (one, two) = (text(Skill::FileOperations), text(Skill::NetworkEgress));
        let path = place.path(&one);
        std::fs::write(&path, "my own rules\n").unwrap();
        assert_eq!(place.install(&one).unwrap(), "installed");
        assert_eq!(place.install(&two).unwrap(), "installed");
        assert_eq!(place.install(&two).unwrap(), "already_present");
        assert_eq!(place.uninstall(&one).unwrap(), "removed");
        assert_eq!(place.uninstall(&one).unwrap(), "not_installed");
        assert!(place.is_installed(&two));
        assert_eq!(place.uninstall(&two).unwrap(), "removed");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "my own rules\n");
    }

    #[test]
    fn a_directory_gets_one_file_a_skill() {
        let root = tempfile::tempdir().unwrap();
        for tool in [Tool::Claude, Tool::Cursor, Tool::Codex, Tool::OpenCode] {
            let place = place(tool, root.path());
            for skill in ALL.into_iter().map(text) {
                assert_eq!(place.install(&skill).unwrap(), "installed");
                assert_eq!(place.install(&skill).unwrap(), "already_present");
                std::fs::write(place.path(&skill), "old").unwrap();
                assert_eq!(place.install(&skill).unwrap(), "updated");
                assert_eq!(place.uninstall(&skill).unwrap(), "removed");
                assert!(!place.path(&skill).exists());
            }
        }
    }

    #[test]
    fn every_skill_says_what_it_is_for() {
        for skill in ALL.into_iter().map(text) {
            assert!(!skill.summary().is_empty(), "{}", skill.slug);
            assert!(skill.section("When To Use").is_some(), "{}", skill.slug);
            let has_start = QUICK_STARTS.iter().any(|it| skill.section(it).is_some());
            assert!(has_start, "{}", skill.slug);
        }
    }
}
