//! The file of variables that every command gets: `NAME=value` lines that clients append
//! to while the sandbox runs.
//!
//! Single quotes keep everything as it is, newlines included; double quotes know the
//! escapes `\n \r \t \\ \" \$` and expand `$NAME`; bare values expand `$NAME` and end with
//! the line. `#` begins a comment line and a leading `export` is ignored. A line that
//! fits none of this is skipped: one bad line must not keep every command from starting.

use std::path::Path;

use crate::path::{Environment, is_name, variable};

/// A file over this size is not read: variables must fit the kernel's 2 MiB for all
/// arguments and variables anyway.
const FILE_BYTES: u64 = 2 * 1024 * 1024;

/// Lays the file's variables over `environment`. A missing file has none.
pub(crate) fn overlay_file(path: &Path, environment: &mut Environment) {
    match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => return,
        Ok(metadata) if metadata.len() > FILE_BYTES => {
            tracing::warn!(path = %path.display(), limit = FILE_BYTES, "the file of variables is over FILE_BYTES and is ignored");
            return;
        }
        Ok(metadata) if metadata.len() == 0 => return,
        Ok(_) => {}
        Err(_) => return,
    }
    let Ok(bytes) = std::fs::read(path) else {
        return;
    };
    overlay(&String::from_utf8_lossy(&bytes), environment);
}

fn overlay(text: &str, environment: &mut Environment) {
    let mut rest = text;
    while !rest.is_empty() {
        let (line, next) = rest.split_once('\n').unwrap_or((rest, ""));
        let trimmed = line.trim_start();
        let entry = trimmed
            .strip_prefix("export ")
            .map_or(trimmed, str::trim_start);
        let Some((name, _)) = entry
            .split_once('=')
            .filter(|(name, _)| is_name(name.trim()))
        else {
            rest = next;
            continue;
        };
        // A quoted value may go on over several lines, so it is read from the whole rest.
        let value_at = entry.as_ptr() as usize - text.as_ptr() as usize + name.len() + 1;
        let (value, after) = value(&text[value_at..], environment);
        environment.set(name.trim(), value);
        rest = after;
    }
}

/// The value that `text` begins with, and what follows its line.
fn value<'t>(text: &'t str, environment: &Environment) -> (String, &'t str) {
    match text.as_bytes().first() {
        Some(b'\'') => {
            if let Some((quoted, after)) = text[1..].split_once('\'') {
                return (quoted.to_owned(), next_line(after));
            }
        }
        Some(b'"') => {
            if let Some(end) = closing_quote(&text[1..]) {
                let value = unescape(&text[1..=end], environment);
                return (value, next_line(&text[end + 2..]));
            }
        }
        _ => {}
    }
    let (line, after) = text.split_once('\n').unwrap_or((text, ""));
    (substitute(line.trim(), environment), after)
}

fn next_line(text: &str) -> &str {
    text.split_once('\n').map_or("", |(_, after)| after)
}

/// Where the unescaped `"` is.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}

fn unescape(text: &str, environment: &Environment) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['\\', '$']) {
        out.push_str(&rest[..at]);
        let special = &rest[at..];
        rest = &special[1..];
        if special.starts_with('$') {
            rest = substitute_one(rest, environment, &mut out);
            continue;
        }
        let Some(escaped) = rest.chars().next() else {
            out.push('\\');
            break;
        };
        rest = &rest[escaped.len_utf8()..];
        match escaped {
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            '\\' | '"' | '$' => out.push(escaped),
            other => out.extend(['\\', other]),
        }
    }
    out.push_str(rest);
    out
}

fn substitute(text: &str, environment: &Environment) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        rest = substitute_one(after, environment, &mut out);
    }
    out.push_str(rest);
    out
}

/// Appends what the `$` before `text` stands for (nothing, for an unset variable) and
/// returns the rest.
fn substitute_one<'t>(text: &'t str, environment: &Environment, out: &mut String) -> &'t str {
    let Some((name, after)) = variable(text) else {
        out.push('$');
        return text;
    };
    if let Some(value) = environment.get(name) {
        out.push_str(&value.to_string_lossy());
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, &str)]) {
        let mut environment = Environment::default();
        environment.set("HOME", "/root");
        overlay(text, &mut environment);
        let got: Vec<(String, String)> = environment
            .iter()
            .filter(|(name, _)| *name != "HOME")
            .map(|(n, v)| (n.to_str().unwrap().into(), v.to_str().unwrap().into()))
            .collect();
        let expected: Vec<(String, String)> = expected
            .iter()
            .map(|&(n, v)| (n.into(), v.into()))
            .collect();
        assert_eq!(got, expected, "{text}");
    }

    #[test]
    fn reads_bare_values() {
        check(
            "A=1\n# no\n\nB= two words \nexport C=3",
            &[("A", "1"), ("B", "two words"), ("C", "3")],
        );
        check("A=$HOME/x:${HOME}:$NOPE:$", &[("A", "/root/x:/root::$")]);
        check("A=1\nA=$A:2\n", &[("A", "1:2")]);
        check("A=", &[("A", "")]);
    }

    #[test]
    fn reads_quoted_values() {
        check(
            "A='it \\ $HOME \"x\"'\nB=2",
            &[("A", "it \\ $HOME \"x\""), ("B", "2")],
        );
        check("A='two\nlines'\nB=2", &[("A", "two\nlines"), ("B", "2")]);
        check(
            r#"A="it's \"a\" \\ b\n\t\r\q""#,
            &[("A", "it's \"a\" \\ b\n\t\r\\q")],
        );
        check(r#"A="$HOME \$HOME ü""#, &[("A", "/root $HOME ü")]);
        check("A=\"\"\nB=''", &[("A", ""), ("B", "")]);
    }

    #[test]
    fn skips_what_is_not_a_variable() {
        check("no equals\n1A=2\nA B=3\n=4\nB=5", &[("B", "5")]);
        check("A='open\nB=2", &[("A", "'open"), ("B", "2")]);
    }
}
