//! The command that was probably meant, for a word that is none.
//!
//! clap's own guess measures letters in common and prefers long names; people mistype one or two.

use crate::args::instead::instead_of;
use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// So many letters may be missing, too many, wrong or swapped.
const MISTAKES_MAX: usize = 2;

/// The error with the commands that are nearest to the unknown word, if any are near.
pub(crate) fn corrected(mut error: Error, tree: &Command) -> Error {
    if error.kind() == ErrorKind::UnknownArgument {
        return with_instead(error, tree);
    }
    if error.kind() != ErrorKind::InvalidSubcommand {
        return error;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand).cloned()
    else {
        return error;
    };
    // The group whose command it was to be: clap says so in the usage only.
    let usage = match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => usage.to_string(),
        _ => String::new(),
    };
    let group = usage.split_whitespace().skip(2).fold(tree, |group, word| {
        group.find_subcommand(word).unwrap_or(group)
    });
    let found = nearest(&word, group);
    if found.is_empty() {
        error.remove(ContextKind::SuggestedSubcommand);
    } else {
        error.insert(
            ContextKind::SuggestedSubcommand,
            ContextValue::Strings(found),
        );
    }
    error
}

/// An option of `docker run` that `osb run` does not have: what to use instead.
fn with_instead(error: Error, tree: &Command) -> Error {
    let is_run = match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => usage.to_string().contains("osb run"),
        _ => false,
    };
    let option = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) if is_run => option.clone(),
        _ => return error,
    };
    match instead_of(&option) {
        Some(instead) => {
            let text = format!("there is no {option} for sandboxes: {instead}");
            let run = tree.find_subcommand("run").unwrap_or(tree);
            run.clone().error(ErrorKind::ArgumentConflict, text)
        }
        None => error,
    }
}

fn nearest(word: &str, group: &Command) -> Vec<String> {
    let names = group.get_subcommands().flat_map(|command| {
        std::iter::once(command.get_name()).chain(command.get_visible_aliases())
    });
    let mut near: Vec<(usize, &str)> = names
        .map(|name| (distance(word, name), name))
        // As many mistakes as letters make any word of any other.
        .filter(|(mistakes, name)| *mistakes <= MISTAKES_MAX && *mistakes < name.len())
        .collect();
    near.sort();
    let Some((fewest, _)) = near.first().copied() else {
        return Vec::new();
    };
    let best = near.into_iter().filter(|(mistakes, _)| *mistakes == fewest);
    best.map(|(_, name)| name.to_owned()).collect()
}

/// Letters to insert, remove, replace or swap with their neighbour, from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=to.len()).collect()];
    for i in 1..=from.len() {
        let mut row = vec![i];
        for j in 1..=to.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_commands_are_named() {
        let tree = crate::tree();
        let said = |words: &[&str]| {
            let words = std::iter::once("osb").chain(words.iter().copied());
            let mut tree = crate::tree();
            let error = tree.try_get_matches_from_mut(words).unwrap_err();
            corrected(error, &tree).to_string()
        };
        assert!(said(&["rn"]).contains("'run'"), "{}", said(&["rn"]));
        assert!(said(&["rn"]).contains("'rm'"));
        assert!(!said(&["rn"]).contains("credential-vault"));
        assert!(said(&["sandbox", "lst"]).contains("'list'"));
        assert!(said(&["exce"]).contains("'exec'"));
        assert!(!said(&["zzzz"]).contains("similar"));
        assert!(nearest("stast", &tree).contains(&"stats".to_owned()));
    }
}
