//! `osb completions`: scripts for shells, made from the command line itself so that they never lag,
//! with names and ids from the server; and `osb complete`, which those scripts ask for them.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::pin::pin;
use std::time::Duration;

use api::query::{ListSandboxesQuery, ListSnapshotsQuery, PAGE_SIZE_MAX, Page};
use clap_complete::Shell;
use futures_util::StreamExt as _;

use super::{DONE, Outcome};
use crate::app::App;
use crate::args::local::{Complete, Completions, Kind};
use crate::error::Error;
use crate::find::name_of;
use crate::tree;

/// Nobody waits longer for a key to have an effect; what the server did not say by then is left out.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn completions(args: &Completions) -> Outcome {
    // Through memory: the generator takes an output that fails for a mistake of its own.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut tree(), "osb", &mut text);
    let mut text = String::from_utf8_lossy(&text).into_owned();
    let mut places = Vec::new();
    let mut tree = tree();
    tree.build();
    find_places(&tree, &mut Vec::new(), &mut places);
    match args.shell {
        Shell::Bash => in_bash(&mut text, &places),
        Shell::Zsh => text = in_zsh(&text),
        Shell::Fish => in_fish(&mut text, &places),
        _ => {}
    }
    io::stdout().write_all(text.as_bytes())?;
    Ok(DONE)
}

/// A command that is given names or ids which the server knows.
struct Place {
    words: Vec<String>,
    kind: Kind,
}

/// What the server knows under the name that an argument has.
fn kind_of(command: &str, argument: &str) -> Option<Kind> {
    match (command, argument) {
        (_, "sandbox_id" | "sandbox_ids") => Some(Kind::Sandboxes),
        (_, "snapshot_id") => Some(Kind::Snapshots),
        ("run", "words") | ("rm" | "export" | "tag" | "pull", "references" | "reference") => {
            Some(Kind::Images)
        }
        ("rm", "names") => Some(Kind::Volumes),
        _ => None,
    }
}

fn find_places(command: &clap::Command, words: &mut Vec<String>, places: &mut Vec<Place>) {
    for inner in command.get_subcommands() {
        if inner.get_name() == "help" || inner.is_hide_set() {
            continue;
        }
        for name in std::iter::once(inner.get_name()).chain(inner.get_visible_aliases()) {
            words.push(name.to_owned());
            let mut known = inner.get_positionals();
            let kind = known.find_map(|it| kind_of(inner.get_name(), it.get_id().as_str()));
            if let Some(kind) = kind {
                let words = words.clone();
                places.push(Place { words, kind });
            }
            find_places(inner, words, places);
            words.pop();
        }
    }
}

/// Asks for names where a word that is no option is to be completed; what has no name that fits is
/// completed as before.
fn in_bash(text: &mut String, places: &[Place]) {
    let mut cases = String::new();
    for place in places {
        let (words, kind) = (place.words.join(" "), place.kind.word());
        let _ = writeln!(cases, "        \" {words} \"*) kind={kind} ;;");
    }
    *text = text.replace("complete -F _osb ", "complete -F _osb_named ");
    let _ = write!(
        text,
        r#"
_osb_named() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" words="" kind="" word
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$word" in
            --) words=""; break ;;
            -*) ;;
            *) words="$words $word" ;;
        esac
    done
    case "$words " in
{cases}    esac
    if [[ -n "$kind" && "$cur" != -* ]]; then
        COMPREPLY=( $(compgen -W "$("${{COMP_WORDS[0]}}" complete "$kind" 2>/dev/null)" -- "$cur") )
        if [[ ${{#COMPREPLY[@]}} -gt 0 ]]; then return 0; fi
    fi
    _osb "$@"
}}
"#
    );
}

/// Every argument says by its own name what it is.
fn in_zsh(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut command = String::new();
    for line in text.lines() {
        if let Some(name) = line
            .strip_prefix('(')
            .and_then(|rest| rest.strip_suffix(')'))
        {
            name.clone_into(&mut command);
        }
        let argument = line.trim_start_matches(['\'', '*', ':']);
        let argument = argument.split(" -- ").next().unwrap_or_default();
        let is_argument = line.starts_with("':") || line.starts_with("'*:");
        match kind_of(&command, argument).filter(|_| is_argument) {
            Some(kind) => out += &line.replace(":_default'", &format!(":_osb_{}'", kind.word())),
            None => out += line,
        }
        out.push('\n');
    }
    for kind in Kind::ALL {
        let word = kind.word();
        let function = format!(
            "_osb_{word}() {{\n    local -a found\n    found=(\"${{(@f)$(osb complete {word} \
             2>/dev/null)}}\")\n    compadd -a found\n}}\n\n"
        );
        // Before the function that is called at the end.
        let at = out.find("\n_osb() {").map_or(0, |at| at + 1);
        out.insert_str(at, &function);
    }
    out
}

fn in_fish(text: &mut String, places: &[Place]) {
    for place in places {
        let condition = match place.words.as_slice() {
            [command] => format!("__fish_osb_using_subcommand {command}"),
            [group, .., last] => format!(
                "__fish_osb_using_subcommand {group}; and __fish_seen_subcommand_from {last}"
            ),
            [] => continue,
        };
        let word = place.kind.word();
        let _ = writeln!(
            text,
            "complete -c osb -n \"{condition}\" -f -a \"(osb complete {word} 2>/dev/null)\""
        );
    }
}

/// `osb complete`: names and ids, one a line.
pub(super) async fn complete(app: &App, args: &Complete) -> Outcome {
    let asked = tokio::time::timeout(PATIENCE, known(app, args.kind)).await;
    // Whoever completes a word is not helped by a message in the middle of it.
    if let Ok(Ok(words)) = asked {
        let text: String = words.iter().map(|word| format!("{word}\n")).collect();
        io::stdout().write_all(text.as_bytes())?;
    }
    Ok(DONE)
}

async fn known(app: &App, kind: Kind) -> Result<Vec<String>, Error> {
    let client = app.client()?;
    let page = Page {
        size: PAGE_SIZE_MAX,
        ..Page::default()
    };
    let mut words = Vec::new();
    match kind {
        Kind::Sandboxes => {
            let query = ListSandboxesQuery {
                page,
                ..ListSandboxesQuery::default()
            };
            let mut all = pin!(client.list_all(query));
            while let Some(info) = all.next().await {
                let info = info?;
                words.extend(name_of(&info).map(str::to_owned));
                words.push(info.id.to_string());
            }
        }
        Kind::Snapshots => {
            let query = ListSnapshotsQuery {
                page,
                ..ListSnapshotsQuery::default()
            };
            let found = client.list_snapshots(&query).await?.items;
            words.extend(found.iter().map(|snapshot| snapshot.id.to_string()));
        }
        Kind::Images => {
            let found = client.images().list().await?.items;
            let short = |name: String| match name.parse::<api::image_reference::ImageReference>() {
                Ok(reference) => reference.familiar(),
                Err(_) => name,
            };
            words.extend(
                found
                    .into_iter()
                    .flat_map(|image| image.references)
                    .map(short),
            );
            words.push(runtime::image::HOST.to_owned());
        }
        Kind::Volumes => {
            let found = client.volumes().list().await?.items;
            words.extend(found.into_iter().map(|volume| volume.name));
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_that_is_given_a_sandbox_completes_it() {
        let mut places = Vec::new();
        let mut tree = tree();
        tree.build();
        find_places(&tree, &mut Vec::new(), &mut places);
        let kind = |words: &str| {
            let found = places.iter().find(|place| place.words.join(" ") == words);
            found.map(|place| place.kind.word())
        };
        for words in [
            "exec",
            "rm",
            "logs",
            "stats",
            "top",
            "sandbox kill",
            "file cat",
            "command session run",
        ] {
            assert_eq!(kind(words), Some("sandboxes"), "{words}");
        }
        assert_eq!(kind("run"), Some("images"));
        assert_eq!(kind("volume rm"), Some("volumes"));
        assert_eq!(kind("image rm"), Some("images"));
        assert_eq!(kind("ls"), None);
    }
}
