//! What a model reads of an execution: few words, and of long output its beginning and its end.

use super::ExecutionAnswer;

/// Of each stream at most this much is answered, its beginning and its end: more fills a model's
/// context and helps nobody. command_logs returns all of it.
const STREAM_BYTES_MAX: usize = 64 * 1024;

/// What a model reads of an execution: what it printed and gave, and how it ended unless well.
pub(super) fn said(answer: &ExecutionAnswer) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut say = |text: &str| {
        let text = text.trim_end_matches('\n');
        if !text.is_empty() {
            parts.push(text.to_owned());
        }
    };
    answer
        .logs
        .stdout
        .iter()
        .for_each(|message| say(&message.text));
    answer
        .result
        .iter()
        .for_each(|result| say(result.text.as_deref().unwrap_or_default()));
    for message in &answer.logs.stderr {
        say(&format!("stderr: {}", message.text));
    }
    if let Some(error) = &answer.error {
        match answer.exit_code {
            Some(code) if code >= 0 => say(&format!("exit code {code}")),
            // A signal, or something that did not start, in the words of its one line.
            Some(_) => say(&error.traceback.join("; ")),
            None if error.traceback.is_empty() => say(&format!("{}: {}", error.name, error.value)),
            None => say(&error.traceback.join("\n")),
        }
    }
    if answer.truncated {
        let id = answer.id.as_deref().unwrap_or_default();
        say(&format!(
            "(cut; command_logs with execution_id {id} has all of it)"
        ));
    }
    if parts.is_empty() {
        parts.push("done; it printed nothing".to_owned());
    }
    parts.join("\n")
}

/// The beginning and the end of a long text.
pub(super) fn shorten(text: String) -> (String, bool) {
    if text.len() <= STREAM_BYTES_MAX {
        return (text, false);
    }
    let head = text.floor_char_boundary(STREAM_BYTES_MAX / 2);
    let tail = text.ceil_char_boundary(text.len() - STREAM_BYTES_MAX / 2);
    let left_out = tail - head;
    let note = format!("\n[... {left_out} bytes left out ...]\n");
    (format!("{}{note}{}", &text[..head], &text[tail..]), true)
}

/// As much of the logs as one answer takes; the rest is read with the cursor.
pub(super) fn head(mut text: String) -> (String, bool) {
    // What was not text takes another number of bytes here than there, so that the place of a cut
    // would not be known.
    if text.len() <= STREAM_BYTES_MAX || text.contains(char::REPLACEMENT_CHARACTER) {
        return (text, false);
    }
    text.truncate(text.floor_char_boundary(STREAM_BYTES_MAX));
    (text, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_keep_both_ends() {
        let text = format!("begin{}end", "ü".repeat(STREAM_BYTES_MAX));
        let (short, is_cut) = shorten(text);
        assert!(is_cut && short.len() < STREAM_BYTES_MAX + 100);
        assert!(short.starts_with("begin") && short.ends_with("end"));
        assert_eq!(shorten("short".to_owned()), ("short".to_owned(), false));
    }
}
