//! Cells as people read them: how long ago instead of when, and as much of an id as tells it apart.

use super::{NAMES, TIMES};
use crate::{duration, find};

/// Letters of a digest that people are shown, as Docker has it.
const DIGEST_LETTERS: usize = 12;

/// A cell as people read it: how long ago, and as much of an id as tells it apart.
pub(super) fn human(name: &str, text: String, now: jiff::Timestamp) -> String {
    if TIMES.contains(&name) {
        return match text.parse::<jiff::Timestamp>() {
            Ok(at) => duration::relative(at, now),
            Err(_) => text,
        };
    }
    if !NAMES[..5].contains(&name) {
        return text;
    }
    match text.strip_prefix("sha256:") {
        Some(digest) => digest.chars().take(DIGEST_LETTERS).collect(),
        None => find::short(&text).to_owned(),
    }
}
