//! Configuration: a TOML file, then the environment, then flags, read into one struct that
//! describes itself.
//!
//! A program declares its settings once with [`section!`](crate::section): name, type, default
//! and what it means. From that come the struct, the check of what a user wrote (every problem at
//! once, a misspelt key with the nearest known one), the names of the environment variables, the
//! commented example file and the reference page. Nothing is read again after the start, and
//! nothing else of a process reads the environment.

mod describe;
mod nearest;
mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

pub use describe::{Described, Key, Setting};
pub use page::{example, reference};
/// A value as it stands in a file.
pub use toml::Value as TomlValue;

/// Where settings come from.
#[derive(Debug, Clone)]
pub struct Sources {
    /// `--config`.
    pub flag: Option<PathBuf>,
    /// The variable that names a file where no flag does.
    pub path_variable: &'static str,
    /// The file in the user's home that is read where it exists and nothing else was named.
    pub home_file: &'static str,
    /// A key `a.b` is overridden by the variable `{prefix}A_B`.
    pub variable_prefix: &'static str,
    /// Beginnings of variables that look like ours and belong to others, so that unknown ones
    /// among them are no mistake.
    pub foreign: &'static [&'static str],
    /// The environment, as a value.
    pub environment: BTreeMap<String, String>,
    /// Keys that are known from elsewhere and mean nothing here.
    pub without_meaning: &'static [WithoutMeaning],
    /// Flags that set single keys: the key, the value as on the command line, and the flag.
    pub flags: Vec<(String, String, String)>,
}

/// A key, or a section with all its keys, that another server of the same contract has and this
/// one does not. A user who brings a file from there is told what becomes of it.
#[derive(Debug, Clone, Copy)]
pub struct WithoutMeaning {
    /// Dotted path of the key or section.
    pub path: &'static str,
    /// What becomes of it.
    pub verdict: Verdict,
    /// Why, and what to do instead.
    pub why: &'static str,
}

/// What becomes of a key without meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing would behave otherwise: noted and left alone.
    Unused,
    /// It asks for behaviour that we do not have: refused, unless it has this value.
    RefusedUnless(&'static str),
    /// It asks for behaviour that we do not have: refused.
    Refused,
}

/// A configuration that was read without problems.
#[derive(Debug, Clone)]
pub struct Loaded<T> {
    /// The settings.
    pub settings: T,
    /// The file they were read from, if any.
    pub file: Option<PathBuf>,
    /// Every setting that is not left at its default, with where it was set. Secrets are hidden.
    pub changed: Vec<Change>,
    /// Keys that were set and mean nothing here, with the reason.
    pub unused: Vec<String>,
}

/// A setting that somebody made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its key.
    pub key: String,
    /// Its value, `[hidden]` for a secret.
    pub value: String,
    /// Who made it: `line 3`, a variable or a flag.
    pub origin: String,
}

/// Everything that is wrong with a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems(Vec<String>);

impl Problems {
    /// Notes a problem: which key, what is wrong, what would be right.
    pub fn add(&mut self, problem: impl Into<String>) {
        self.0.push(problem.into());
    }

    /// Every problem, in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    fn result<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(self)
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            [one] => write!(f, "the configuration has a problem: {one}"),
            all => {
                write!(f, "the configuration has {} problems:", all.len())?;
                all.iter()
                    .try_for_each(|problem| write!(f, "\n  - {problem}"))
            }
        }
    }
}

impl std::error::Error for Problems {}

/// Reads a configuration and checks all of it. `check` adds what only the program itself can
/// know, such as two settings that exclude each other; it runs when every single one is valid.
pub fn load<T>(
    sources: &Sources,
    check: impl FnOnce(&T, &mut Problems),
) -> Result<Loaded<T>, Problems>
where
    T: Described + Default + DeserializeOwned,
{
    let keys = describe::keys::<T>();
    let mut reading = Reading {
        keys: &keys,
        without_meaning: sources.without_meaning,
        ..Reading::default()
    };
    let file = find_file(sources, &mut reading.problems);
    if let Some(path) = &file {
        reading.file(path);
    }
    reading.environment(sources);
    reading.flags(&sources.flags);
    let Reading {
        mut problems,
        values,
        changed,
        unused,
        ..
    } = reading;
    if !problems.0.is_empty() {
        return Err(problems);
    }
    match T::deserialize(Value::Table(values)) {
        Ok(settings) => {
            check(&settings, &mut problems);
            let changed = changed.into_values().collect();
            problems.result(Loaded {
                settings,
                file,
                changed,
                unused,
            })
        }
        Err(error) => {
            problems.add(error.message());
            Err(problems)
        }
    }
}

/// Which file to read. A file that was named must exist; the one in the home need not.
fn find_file(sources: &Sources, problems: &mut Problems) -> Option<PathBuf> {
    let named = sources
        .environment
        .get(sources.path_variable)
        .filter(|path| !path.is_empty());
    let named = sources
        .flag
        .clone()
        .map(|path| (path, "--config"))
        .or_else(|| named.map(|path| (PathBuf::from(path), sources.path_variable)));
    if let Some((path, origin)) = named {
        if path.is_file() {
            return Some(path);
        }
        problems.add(format!(
            "{origin} names {}, which is not a file; `osb server init-config PATH` writes one",
            path.display()
        ));
        return None;
    }
    let home = sources.environment.get("HOME")?;
    let path = Path::new(home).join(sources.home_file);
    path.is_file().then_some(path)
}

#[derive(Default)]
struct Reading<'a> {
    keys: &'a [Key],
    problems: Problems,
    values: Table,
    changed: BTreeMap<String, Change>,
    without_meaning: &'static [WithoutMeaning],
    unused: Vec<String>,
}

impl Reading<'_> {
    fn file(&mut self, path: &Path) {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                return self
                    .problems
                    .add(format!("{} cannot be read: {error}", path.display()));
            }
        };
        match (DeTable::parse(&text), text.parse::<Table>()) {
            (Ok(spanned), Ok(table)) => {
                let lines = Lines { text: &text, path };
                self.table("", &table, spanned.get_ref(), &lines);
            }
            (Err(error), _) | (_, Err(error)) => {
                let line = error.span().map_or(1, |span| line_of(&text, span.start));
                let what = error.message();
                self.problems
                    .add(format!("{} line {line}: {what}", path.display()));
            }
        }
    }

    /// One table of the file and those below it.
    fn table(&mut self, prefix: &str, table: &Table, spans: &DeTable<'_>, lines: &Lines<'_>) {
        for (spanned_name, spanned_value) in spans {
            let name: &str = spanned_name.get_ref();
            let Some(value) = table.get(name) else {
                continue;
            };
            let path = join(prefix, name);
            let at = lines.at(spanned_name.span().start);
            if let Some(key) = self.keys.iter().find(|key| key.path == path) {
                self.set(key, value.clone(), at);
            } else if let Some(known) = self.without_meaning.iter().find(|k| k.path == path) {
                self.pass_over(known, value, &at);
            } else if self.is_section(&path) {
                match (value, spanned_value.get_ref()) {
                    (Value::Table(inner), DeValue::Table(spans)) => {
                        self.table(&path, inner, spans, lines);
                    }
                    _ => self
                        .problems
                        .add(format!("{at}: {path} is a section; write [{path}]")),
                }
            } else {
                let hint = nearest::hint(self.keys, prefix, name);
                self.problems
                    .add(format!("{at}: {path} is not a known key{hint}"));
            }
        }
    }

    fn is_section(&self, path: &str) -> bool {
        self.keys.iter().any(|key| is_below(&key.path, path))
            || self
                .without_meaning
                .iter()
                .any(|known| is_below(known.path, path))
    }

    fn pass_over(&mut self, known: &WithoutMeaning, value: &Value, at: &str) {
        let WithoutMeaning { path, verdict, why } = known;
        let shown = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        match verdict {
            Verdict::RefusedUnless(harmless) if shown == *harmless => {}
            Verdict::Unused => self.unused.push(format!("{at}: {path} is not used: {why}")),
            Verdict::RefusedUnless(_) | Verdict::Refused => {
                self.problems
                    .add(format!("{at}: {path} is not supported: {why}"));
            }
        }
    }

    fn environment(&mut self, sources: &Sources) {
        let keys = self.keys;
        for key in keys {
            let variable = key.variable(sources.variable_prefix);
            if let Some(text) = sources.environment.get(&variable) {
                self.text(key, text, variable);
            }
        }
        // A variable that looks like one of ours but sets nothing would be ignored in silence.
        let known: Vec<String> = keys
            .iter()
            .map(|key| key.variable(sources.variable_prefix))
            .collect();
        let sections: BTreeSet<&str> = keys
            .iter()
            .filter_map(|key| key.path.split_once('.'))
            .map(|(top, _)| top)
            .collect();
        for section in sections {
            let prefix = format!("{}{}_", sources.variable_prefix, section.to_uppercase());
            if sources.foreign.contains(&prefix.as_str()) {
                continue;
            }
            for variable in sources
                .environment
                .keys()
                .filter(|name| name.starts_with(&prefix))
            {
                if !known.contains(variable) {
                    let hint = nearest::among(variable, known.iter().map(String::as_str));
                    self.problems
                        .add(format!("environment variable {variable} sets no key{hint}"));
                }
            }
        }
    }

    fn flags(&mut self, flags: &[(String, String, String)]) {
        let keys = self.keys;
        for (path, text, flag) in flags {
            match keys.iter().find(|key| key.path == *path) {
                Some(key) => self.text(key, text, flag.clone()),
                None => {
                    let hint = nearest::among(path, keys.iter().map(|key| &*key.path));
                    self.problems
                        .add(format!("{flag}: {path} is not a known key{hint}"));
                }
            }
        }
    }

    /// A value from outside the file: text as it is where the key takes text, else as TOML.
    fn text(&mut self, key: &Key, text: &str, origin: String) {
        let plain = Value::String(text.to_owned());
        let parsed = format!("v = {text}")
            .parse::<Table>()
            .ok()
            .and_then(|mut t| t.remove("v"));
        let value = match parsed {
            _ if (key.check)(&plain).is_ok() => plain,
            Some(value) => value,
            None => plain,
        };
        self.set(key, value, origin);
    }

    fn set(&mut self, key: &Key, value: Value, origin: String) {
        if let Err(found) = (key.check)(&value) {
            let shown = if key.is_secret {
                "[hidden]".to_owned()
            } else {
                value.to_string()
            };
            let path = &key.path;
            let kind = key.kind;
            return self.problems.add(format!(
                "{origin}: {path} must be {kind}, not {shown}{found}"
            ));
        }
        let shown = if key.is_secret {
            "[hidden]".to_owned()
        } else {
            value.to_string()
        };
        let change = Change {
            key: key.path.clone(),
            value: shown,
            origin,
        };
        self.changed.insert(key.path.clone(), change);
        insert(&mut self.values, &key.path, value);
    }
}

struct Lines<'a> {
    text: &'a str,
    path: &'a Path,
}

impl Lines<'_> {
    fn at(&self, offset: usize) -> String {
        format!(
            "{} line {}",
            self.path.display(),
            line_of(self.text, offset)
        )
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()
        .iter()
        .take(offset)
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() {
        name.to_owned()
    } else {
        format!("{prefix}.{name}")
    }
}

fn is_below(path: &str, section: &str) -> bool {
    path.strip_prefix(section)
        .is_some_and(|rest| rest.starts_with('.'))
}

/// Puts a value at a dotted path. Every section on the way is a table, since keys and sections
/// never share a path.
fn insert(table: &mut Table, path: &str, value: Value) {
    match path.split_once('.') {
        None => drop(table.insert(path.to_owned(), value)),
        Some((section, rest)) => {
            let inner = table
                .entry(section.to_owned())
                .or_insert_with(|| Value::Table(Table::new()))
                .as_table_mut()
                .expect("a section is a table");
            insert(inner, rest, value);
        }
    }
}

#[cfg(test)]
mod tests;
