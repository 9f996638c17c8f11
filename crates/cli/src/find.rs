//! Which sandbox is meant: by its name, its id, or as much of the beginning of that as no other has.

use std::pin::pin;

use api::query::{ListSandboxesQuery, PAGE_SIZE_MAX, Page};
use api::sandbox::{NAME_METADATA_KEY, Sandbox, SandboxState};
use futures_util::StreamExt as _;
use opensandbox::Client;

use crate::error::Error;

/// Sandboxes that are named where several are meant.
const SHOWN_MAX: usize = 5;

/// Letters of an id that is shown to people; few sandboxes share as many.
const SHORT_ID: usize = 8;

/// Whether this is an id in full, so that nobody has to be asked: a UUID.
pub(crate) fn is_whole_id(text: &str) -> bool {
    let is_dash = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    text.len() == 36
        && text
            .bytes()
            .enumerate()
            .all(|(at, b)| (b == b'-') == is_dash(at) && (b == b'-' || b.is_ascii_hexdigit()))
}

/// As much of an id as people are shown.
pub(crate) fn short(id: &str) -> &str {
    match is_whole_id(id) {
        true => &id[..SHORT_ID],
        false => id,
    }
}

/// The name of a sandbox.
pub(crate) fn name_of(info: &Sandbox) -> Option<&str> {
    let name = info.metadata.as_ref()?.get(NAME_METADATA_KEY)?;
    Some(name.as_str()).filter(|name| !name.is_empty())
}

/// Whether a sandbox has ended, so that another may have its name.
pub(crate) fn has_ended(info: &Sandbox) -> bool {
    matches!(
        info.status.state,
        SandboxState::Stopping | SandboxState::Terminated | SandboxState::Failed
    )
}

/// The id of the sandbox that is meant. What nobody has is handed on as it is, so that the server
/// says so in its own words.
pub(crate) async fn sandbox(client: &Client, text: &str) -> Result<String, Error> {
    if text.is_empty() {
        return Err(Error::Usage(
            "a sandbox is named by more than nothing".to_owned(),
        ));
    }
    let query = ListSandboxesQuery {
        metadata: [(NAME_METADATA_KEY.to_owned(), text.to_owned())].into(),
        ..ListSandboxesQuery::default()
    };
    // Text that is no label is no name, and the server says so. Newest first, so that of several
    // that have ended the last is meant.
    if let Ok(found) = client.list(&query).await {
        let living = found.items.iter().find(|info| !has_ended(info));
        if let Some(info) = living.or(found.items.first()) {
            return Ok(info.id.to_string());
        }
    }
    let query = ListSandboxesQuery {
        page: Page {
            size: PAGE_SIZE_MAX,
            ..Page::default()
        },
        ..ListSandboxesQuery::default()
    };
    let mut all = pin!(client.list_all(query));
    let mut found = Vec::new();
    while let Some(info) = all.next().await {
        let info = info?;
        if info.id.as_str().starts_with(text) {
            found.push(info);
        }
    }
    match found.as_slice() {
        [] => Ok(text.to_owned()),
        [info] => Ok(info.id.to_string()),
        several => Err(ambiguous(text, several)),
    }
}

fn ambiguous(text: &str, several: &[Sandbox]) -> Error {
    let shown = several.iter().take(SHOWN_MAX).map(|info| info.id.as_str());
    let rest = several.len().saturating_sub(SHOWN_MAX);
    let rest = match rest {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    Error::Failed {
        message: format!(
            "{} sandboxes begin with '{text}': {}{rest}",
            several.len(),
            shown.collect::<Vec<_>>().join(", ")
        ),
        next: Some("write more of the id; all ids: osb ps --no-trunc".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_ids_are_known() {
        let id = "3f2b8c1a-9d4e-4c1a-8b7e-0123456789ab";
        assert!(is_whole_id(id));
        assert_eq!(short(id), "3f2b8c1a");
        for text in ["", "web", &id[..35], "3f2b8c1a-9d4e-4c1a-8b7e-0123456789ag"] {
            assert!(!is_whole_id(text), "{text}");
            assert_eq!(short(text), text);
        }
    }
}
