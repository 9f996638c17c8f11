//! Paths as clients write them: a leading `~` and `$NAME` are expanded against the
//! daemon's environment, as the reference daemon does.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

/// Environment variables, by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// The environment of this process, without the variables in `hidden`.
    pub(crate) fn inherited(hidden: &[&str]) -> Self {
        Self(
            std::env::vars_os()
                .filter(|(name, _)| !hidden.iter().any(|h| name == h))
                .collect(),
        )
    }

    pub(crate) fn get(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        self.0.get(name.as_ref()).map(OsString::as_os_str)
    }

    pub(crate) fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.0.insert(name.into(), value.into());
    }

    pub(crate) fn remove(&mut self, name: impl AsRef<OsStr>) {
        self.0.remove(name.as_ref());
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

/// Why a path was not understood.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("the path is empty")]
    Empty,
    #[error("the path contains a NUL byte, which no file name can")]
    Nul,
    #[error("the path uses ${0}, which is not set")]
    Undefined(String),
    #[error("the path begins with ~ but HOME is not set")]
    NoHome,
}

/// Expands a leading `~`, and `$NAME` or `${NAME}` anywhere. `..` is left to the kernel.
pub(crate) fn expand(text: &str, environment: &Environment) -> Result<PathBuf, Error> {
    if text.is_empty() {
        return Err(Error::Empty);
    }
    if text.contains('\0') {
        return Err(Error::Nul);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    if text == "~" || text.starts_with("~/") {
        out.extend_from_slice(environment.get("HOME").ok_or(Error::NoHome)?.as_bytes());
        rest = &text[1..];
    }
    while let Some(dollar) = rest.find('$') {
        out.extend_from_slice(&rest.as_bytes()[..dollar]);
        rest = &rest[dollar + 1..];
        let Some((name, after)) = variable(rest) else {
            out.push(b'$');
            continue;
        };
        let value = environment
            .get(name)
            .ok_or_else(|| Error::Undefined(name.to_owned()))?;
        out.extend_from_slice(value.as_bytes());
        rest = after;
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(PathBuf::from(OsString::from_vec(out)))
}

/// The variable's name that follows a `$`, and what comes after it; `None` when the dollar
/// sign stands for itself.
pub(crate) fn variable(text: &str) -> Option<(&str, &str)> {
    if let Some(braced) = text.strip_prefix('{') {
        let (name, after) = braced.split_once('}')?;
        return is_name(name).then_some((name, after));
    }
    let end = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .unwrap_or(text.len());
    is_name(&text[..end]).then(|| text.split_at(end))
}

/// Whether `name` may be the name of a shell variable.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, Error>) {
        let mut environment = Environment::default();
        environment.set("HOME", "/root");
        environment.set("A", "x y");
        assert_eq!(
            expand(text, &environment),
            expected.map(PathBuf::from),
            "{text}"
        );
    }

    #[test]
    fn expands_home_and_variables_and_nothing_else() {
        check("/a/b", Ok("/a/b"));
        check("~", Ok("/root"));
        check("~/b", Ok("/root/b"));
        check("~bob/b", Ok("~bob/b"));
        check("/a/$A/b", Ok("/a/x y/b"));
        check("${A}b", Ok("x yb"));
        check("/a/$/b$", Ok("/a/$/b$"));
        check("/a/${", Ok("/a/${"));
        check("/a/$NOPE/b", Err(Error::Undefined("NOPE".into())));
        check("", Err(Error::Empty));
        check("/a\0b", Err(Error::Nul));
    }
}
