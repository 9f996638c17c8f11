//! Whether what was typed at a prompt can be run, or more of it is to come.
//!
//! Knows brackets, texts and Python's indented blocks; what is right code the interpreter decides.

/// Whether a block can be run as it is, judged as a person at a prompt would: brackets and long
/// texts are closed, and in Python a block that was opened ends with an empty line.
pub(super) fn is_whole(language: &str, block: &str) -> bool {
    let hashes = matches!(language, "python" | "bash");
    if is_open(block, hashes) || block.trim_end().ends_with('\\') {
        return false;
    }
    if language != "python" {
        return true;
    }
    let has_block = block
        .lines()
        .any(|line| line.trim_end().ends_with(':') || line.starts_with([' ', '\t', '@']));
    !has_block || block.ends_with("\n\n")
}

/// Whether a bracket or a text is still open.
fn is_open(block: &str, hashes: bool) -> bool {
    let mut depth = 0_i32;
    let mut rest = block;
    while let Some(letter) = rest.chars().next() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '#' if hashes => {
                rest = rest.split_once('\n').map_or("", |(_, after)| after);
                continue;
            }
            '"' | '\'' => {
                let triple = letter.to_string().repeat(3);
                if let Some(inside) = rest.strip_prefix(triple.as_str()) {
                    match inside.find(triple.as_str()) {
                        Some(end) => rest = &inside[end + 3..],
                        None => return true,
                    }
                } else {
                    rest = after_text(&rest[1..], letter);
                }
                continue;
            }
            _ => {}
        }
        rest = &rest[letter.len_utf8()..];
    }
    depth > 0
}

/// What follows a text of one line.
fn after_text(inside: &str, quote: char) -> &str {
    let mut is_escaped = false;
    for (at, letter) in inside.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '\n' => return &inside[at..],
            _ if letter == quote => return &inside[at + 1..],
            _ => {}
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_read_to_their_end() {
        for whole in [
            "1 + 1\n",
            "x = {'a': 1}\n",
            "print(':')\n",
            "f('it\\'s (')\n",
            "# (\n",
        ] {
            assert!(is_whole("python", whole), "{whole}");
        }
        for half in [
            "def f():\n",
            "for i in x:\n  pass\n",
            "f(1,\n",
            "\"\"\"a\n",
            "a = \\\n",
            "@x\n",
        ] {
            assert!(!is_whole("python", half), "{half}");
        }
        assert!(is_whole("python", "def f():\n  pass\n\n"));
        assert!(!is_whole("javascript", "function f() {\n"));
        assert!(is_whole("javascript", "function f() { return 1 }\n"));
    }
}
