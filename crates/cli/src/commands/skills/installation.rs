//! Where AI coding tools look for instructions, and putting them there.
//!
//! A tool either has a directory with one file a skill, or one file in which each skill has a
//! marked part of its own; everything else in that file is left as it is.

use std::path::{Path, PathBuf};

use super::text::Text;
use crate::args::local::{Scope, Tool};
use crate::error::Error;
use crate::output::Record;

/// Every tool there is.
pub(super) const TOOLS: [Tool; 8] = [
    Tool::Claude,
    Tool::Cursor,
    Tool::Codex,
    Tool::Gemini,
    Tool::Copilot,
    Tool::Windsurf,
    Tool::Cline,
    Tool::OpenCode,
];

/// How a tool takes skills.
enum Layout {
    /// One file a skill, at this path with the skill's name in place of `{}`.
    Files(&'static str, Head),
    /// All in one file.
    Shared(&'static str),
}

/// What stands before a skill's text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Head {
    /// Name and description, as skills have them everywhere.
    Skill,
    /// That it is read when its description fits, as rules of Cursor say it.
    Rule,
}

fn layout(tool: Tool) -> (&'static str, Layout) {
    match tool {
        Tool::Claude => (
            "Claude Code",
            Layout::Files(".claude/skills/{}/SKILL.md", Head::Skill),
        ),
        Tool::Cursor => ("Cursor", Layout::Files(".cursor/rules/{}.mdc", Head::Rule)),
        Tool::Codex => (
            "Codex",
            Layout::Files(".codex/skills/{}/SKILL.md", Head::Skill),
        ),
        Tool::Gemini => (
            "Gemini CLI",
            Layout::Files(".gemini/skills/{}/SKILL.md", Head::Skill),
        ),
        Tool::Copilot => (
            "GitHub Copilot",
            Layout::Shared(".github/copilot-instructions.md"),
        ),
        Tool::Windsurf => ("Windsurf", Layout::Shared(".windsurfrules")),
        Tool::Cline => ("Cline", Layout::Shared(".clinerules")),
        Tool::OpenCode => (
            "OpenCode",
            Layout::Files(".agents/skills/{}/SKILL.md", Head::Skill),
        ),
        Tool::All => unreachable!("taken apart before"),
    }
}

/// Where one tool keeps skills in one scope.
pub(super) struct Installation {
    tool: Tool,
    scope: Scope,
    pub(super) label: &'static str,
    layout: Layout,
    root: PathBuf,
}

impl Installation {
    pub(super) fn new(tool: Tool, scope: Scope) -> Result<Self, Error> {
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

    pub(super) fn path(&self, skill: &Text) -> PathBuf {
        match self.layout {
            Layout::Files(pattern, _) => self.root.join(pattern.replace("{}", skill.slug)),
            Layout::Shared(path) => self.root.join(path),
        }
    }

    pub(super) fn summary(&self) -> String {
        match self.layout {
            Layout::Files(pattern, _) => {
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
        let (title, body) = (skill.title, skill.parts().1.trim());
        match self.layout {
            Layout::Files(_, Head::Skill) => format!("{}\n", skill.markdown.trim()),
            Layout::Files(_, Head::Rule) => format!(
                "---\ndescription: {}\nalwaysApply: false\n---\n\n{body}\n",
                skill.summary()
            ),
            Layout::Shared(_) => format!("# {title}\n\n{}\n\n{body}\n", skill.summary()),
        }
    }

    pub(super) fn is_installed(&self, skill: &Text) -> bool {
        let Ok(found) = std::fs::read_to_string(self.path(skill)) else {
            return false;
        };
        matches!(self.layout, Layout::Files(..)) || found.contains(&marks(skill).0)
    }

    pub(super) fn install(&self, skill: &Text) -> Result<&'static str, Error> {
        let path = self.path(skill);
        let before = read(&path)?;
        let after = match self.layout {
            Layout::Files(..) => self.content(skill),
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

    pub(super) fn uninstall(&self, skill: &Text) -> Result<&'static str, Error> {
        let path = self.path(skill);
        let Some(before) = read(&path)? else {
            return Ok("not_installed");
        };
        let after = match self.layout {
            Layout::Files(..) => String::new(),
            Layout::Shared(_) => without(&before, skill),
        };
        if after == before {
            return Ok("not_installed");
        }
        if after.trim().is_empty() {
            std::fs::remove_file(&path).map_err(|error| Error::file("removed", &path, error))?;
            if let (Layout::Files(..), Some(parent)) = (&self.layout, path.parent()) {
                // Only an empty directory goes.
                let _ = std::fs::remove_dir(parent);
            }
        } else {
            write(&path, &format!("{}\n", after.trim_end()))?;
        }
        Ok("removed")
    }

    pub(super) fn result(&self, skill: &Text, status: &str) -> Record {
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

pub(super) fn word(value: impl clap::ValueEnum + Copy) -> String {
    let value = value.to_possible_value().expect("no value is hidden");
    value.get_name().to_owned()
}

pub(super) fn installations(tool: Tool, scope: Scope) -> Result<Vec<Installation>, Error> {
    match tool {
        Tool::All => TOOLS
            .iter()
            .map(|tool| Installation::new(*tool, scope))
            .collect(),
        tool => Ok(vec![Installation::new(tool, scope)?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::local::Skill;
    use crate::commands::skills::text;

    fn installation_of(tool: Tool, root: &Path) -> Installation {
        let (label, layout) = layout(tool);
        Installation {
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
        let installation = installation_of(Tool::Windsurf, root.path());
        let (one, two) = (
            text::of(Skill::FileOperations),
            text::of(Skill::NetworkEgress),
        );
        let path = installation.path(one);
        std::fs::write(&path, "my own rules\n").unwrap();
        assert_eq!(installation.install(one).unwrap(), "installed");
        assert_eq!(installation.install(two).unwrap(), "installed");
        assert_eq!(installation.install(two).unwrap(), "already_present");
        assert_eq!(installation.uninstall(one).unwrap(), "removed");
        assert_eq!(installation.uninstall(one).unwrap(), "not_installed");
        assert!(installation.is_installed(two));
        assert_eq!(installation.uninstall(two).unwrap(), "removed");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "my own rules\n");
    }

    #[test]
    fn a_directory_gets_one_file_a_skill() {
        let root = tempfile::tempdir().unwrap();
        for tool in [
            Tool::Claude,
            Tool::Cursor,
            Tool::Codex,
            Tool::Gemini,
            Tool::OpenCode,
        ] {
            let installation = installation_of(tool, root.path());
            for skill in text::all() {
                assert_eq!(installation.install(skill).unwrap(), "installed");
                assert_eq!(installation.install(skill).unwrap(), "already_present");
                std::fs::write(installation.path(skill), "old").unwrap();
                assert_eq!(installation.install(skill).unwrap(), "updated");
                assert_eq!(installation.uninstall(skill).unwrap(), "removed");
                assert!(!installation.path(skill).exists());
            }
        }
    }
}
