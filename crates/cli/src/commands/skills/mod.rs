//! `osb skills …`: instructions for AI coding tools, put where each of them looks.

mod installation;
mod text;

use super::{DONE, Outcome};
use crate::app::App;
use crate::args::local::{Scope, Skills};
use crate::error::Error;
use crate::output::{Format, Record, Value};

use installation::{Installation, TOOLS, installations, word};
use text::Text;

pub(super) fn run(app: &App, command: &Skills) -> Outcome {
    match *command {
        Skills::List => list(app),
        Skills::Show { skill_name } => show(app, text::of(skill_name)),
        Skills::Install {
            skill_name,
            all_builtins,
            target,
            scope,
            ..
        } => {
            let skills = match (skill_name, all_builtins) {
                (Some(skill), _) => vec![text::of(skill)],
                (None, true) => text::all().iter().collect(),
                (None, false) => {
                    let names: Vec<&str> = text::all().iter().map(|skill| skill.slug).collect();
                    return Err(Error::Usage(format!(
                        "which skill? Name one ({}), or take --all-builtins",
                        names.join(", ")
                    )));
                }
            };
            let mut results = Vec::new();
            for skill in skills {
                for installation in installations(target, scope)? {
                    let status = installation.install(skill)?;
                    results.push(installation.result(skill, status));
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
            let skill = text::of(skill_name);
            let mut results = Vec::new();
            for installation in installations(target, scope)? {
                let status = installation.uninstall(skill)?;
                results.push(installation.result(skill, status));
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
    let record = Record::new()
        .with("skill", skill.slug)
        .with("title", skill.title)
        .with("area", skill.area)
        .with("summary", skill.summary())
        .with("trigger_hint", skill.trigger)
        .with("when_to_use", skill.section("When To Use"))
        .with("quick_start", skill.quick_start())
        .with("json_shapes", skill.json_shapes())
        .with("content", skill.markdown.trim());
    printer.record("Skill", &record)?;
    Ok(DONE)
}

fn list(app: &App) -> Outcome {
    let printer = app.printer();
    let texts = text::all();
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
            let Ok(installation) = Installation::new(tool, scope) else {
                continue;
            };
            let states: Vec<Value> = texts
                .iter()
                .map(|skill| {
                    let installed = installation.is_installed(skill);
                    let status = if installed {
                        "installed"
                    } else {
                        "not installed"
                    };
                    let record = Record::new()
                        .with("skill", skill.slug)
                        .with("status", status)
                        .with("path", installation.path(skill).display().to_string());
                    Value::Record(record)
                })
                .collect();
            let count = texts
                .iter()
                .filter(|skill| installation.is_installed(skill))
                .count();
            targets.push(
                Record::new()
                    .with("target", word(tool))
                    .with("scope", word(scope))
                    .with("label", installation.label)
                    .with("layout", installation.summary())
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
