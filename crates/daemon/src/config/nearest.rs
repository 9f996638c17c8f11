//! The known name that a misspelt one most likely meant.

use super::Key;

/// Names differ at most by this share of their length to be taken for a slip: one letter in three.
const LETTERS_PER_SLIP: usize = 3;

/// For a name that is not known in section `prefix`: ` ; did you mean …?`, or nothing.
pub(super) fn hint(keys: &[Key], prefix: &str, name: &str) -> String {
    let here = |key: &&Key| prefix.is_empty() || super::is_below(&key.path, prefix);
    let depth = if prefix.is_empty() {
        0
    } else {
        prefix.len() + 1
    };
    let siblings: Vec<&str> = keys
        .iter()
        .filter(here)
        .filter_map(|key| key.path[depth..].split('.').next())
        .collect();
    if let Some(found) = closest(name, siblings.iter().copied()) {
        return format!("; did you mean {}?", super::join(prefix, found));
    }
    // The right name in the wrong section.
    let elsewhere = keys
        .iter()
        .find(|key| key.path.rsplit('.').next() == Some(name));
    elsewhere
        .map(|key| format!("; did you mean {}?", key.path))
        .unwrap_or_default()
}

/// The same for a list of names.
pub(super) fn among<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    closest(name, known)
        .map(|found| format!("; did you mean {found}?"))
        .unwrap_or_default()
}

fn closest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let slips_max = (name.len() / LETTERS_PER_SLIP).max(1);
    known
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(slips, _)| *slips <= slips_max)
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, remove, replace or swap with a neighbour to get from one to the other.
fn distance(from: &str, to: &str) -> usize {
    let from: Vec<char> = from.chars().collect();
    let to: Vec<char> = to.chars().collect();
    let mut rows = vec![(0..=to.len()).collect::<Vec<usize>>()];
    for (i, &a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &b) in to.iter().enumerate() {
            let mut best = (rows[i][j] + usize::from(a != b))
                .min(rows[i][j + 1] + 1)
                .min(row[j] + 1);
            if i > 0 && j > 0 && a == to[j - 1] && from[i - 1] == b {
                best = best.min(rows[i - 1][j - 1] + 1);
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
    fn counts_slips() {
        for (from, to, slips) in [
            ("port", "port", 0),
            ("prot", "port", 1),
            ("por", "port", 1),
            ("", "ab", 2),
            ("host", "port", 2),
        ] {
            assert_eq!(distance(from, to), slips, "{from} {to}");
        }
    }

    #[test]
    fn finds_a_slip_and_nothing_for_another_word() {
        let known = ["host", "port", "api_key"];
        assert_eq!(closest("apikey", known.into_iter()), Some("api_key"));
        assert_eq!(closest("prot", known.into_iter()), Some("port"));
        assert_eq!(closest("colour", known.into_iter()), None);
    }
}
