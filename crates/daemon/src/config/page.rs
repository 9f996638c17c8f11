//! The texts made from the declared settings: a commented example file and a reference page.

use std::fmt::Write as _;

use super::{Described, Key, describe};

/// A commented TOML file with every setting. Those in `chosen` are set, all others are shown with
/// their default behind a `#`.
pub fn example<T: Described + Default>(title: &str, chosen: &[(&str, &str)]) -> String {
    let mut out = String::new();
    for line in title.lines() {
        let _ = writeln!(out, "# {line}");
    }
    let mut section = "";
    let keys = describe::keys::<T>();
    for key in &keys {
        let (here, name) = split(&key.path);
        if here != section {
            let _ = writeln!(out, "\n[{here}]");
            section = here;
        }
        for line in key.docs {
            let _ = writeln!(out, "#{line}");
        }
        let value = chosen
            .iter()
            .find(|(path, _)| *path == key.path)
            .map(|(_, value)| *value);
        let _ = match (value, &key.default) {
            (Some(value), _) => writeln!(out, "{name} = {value}"),
            (None, Some(default)) => writeln!(out, "# {name} = {default}"),
            (None, None) => writeln!(out, "# {name} = …  ({})", key.kind),
        };
    }
    out
}

/// A page in Markdown with every setting, its default, its variable and what it means.
pub fn reference<T: Described + Default>(variable_prefix: &str) -> String {
    let mut out = String::new();
    let mut section = "";
    let keys = describe::keys::<T>();
    for key in &keys {
        let (here, name) = split(&key.path);
        if here != section {
            let _ = writeln!(out, "\n## `[{here}]`\n");
            let _ = writeln!(
                out,
                "| key | default | variable | what |\n|---|---|---|---|"
            );
            section = here;
        }
        let default = key
            .default
            .as_deref()
            .map_or("none".into(), |text| format!("`{text}`"));
        let variable = key.variable(variable_prefix);
        let _ = writeln!(
            out,
            "| `{name}` | {default} | `{variable}` | {} |",
            prose(key)
        );
    }
    out
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('.').unwrap_or(("", path))
}

fn prose(key: &Key) -> String {
    let words: Vec<&str> = key.docs.iter().map(|line| line.trim()).collect();
    words.join(" ").replace('|', "\\|")
}
