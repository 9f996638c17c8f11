//! How the daemon talks to a live shell.
//!
//! The shell is an interactive one that reads its commands from a pipe. Interactive,
//! because only then does an interrupt end the command list that runs and not the shell.
//! Each run is one line that evaluates the user's text, and behind it a line that reports
//! the status on descriptor 4:
//!
//! ```text
//!   command eval 'the text' 4>&- </dev/null
//!   (an empty line, which a syntax error may swallow in place of the next)
//!   { command printf 'NONCE MARK %s\n' "$?" >&4; } 2>/dev/null
//! ```
//!
//! The text never sees descriptor 4 nor, therefore, can anything it starts; and a report
//! counts only with the session's nonce and the mark of what was asked.

use std::fmt::{self, Write as _};

/// The descriptor on which the shell reports.
pub(super) const REPORT_FD: i32 = 4;

/// What an interactive bash prints on standard error when `exit` is called.
pub(super) const FAREWELL: &[u8] = b"exit\n";

/// Arguments that make the shell interactive, without start-up files, line editing or
/// history expansion.
pub(super) fn arguments(is_bash: bool) -> &'static [&'static str] {
    if is_bash {
        &["--noprofile", "--norc", "--noediting", "-i", "+H"]
    } else {
        &["-i"]
    }
}

/// Variables that would make an interactive shell print prompts, read files or leave.
pub(super) const UNWANTED: [&str; 7] = [
    "PROMPT_COMMAND",
    "HISTFILE",
    "TMOUT",
    "ENV",
    "MAIL",
    "MAILPATH",
    "PS0",
];

/// What a report is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// The end of the run with this number.
    Run(u64),
    /// That the shell reads on, after this step of ending this run.
    Settled(u64, u32),
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(number) => write!(f, "{number}"),
            Self::Settled(number, step) => write!(f, "{number}.{step}"),
        }
    }
}

/// The shell's side of the conversation.
pub(super) struct Protocol {
    nonce: String,
}

impl Protocol {
    pub(super) fn new() -> Self {
        Self {
            nonce: crate::state::hex(&crate::state::random::<16>()),
        }
    }

    /// The first line: no history, no prompts. Reported as run 0.
    pub(super) fn greeting(&self) -> String {
        let mut text = String::from("PS1=; PS2=; unset HISTFILE; set +o history 2>/dev/null\n");
        self.push_report(&mut text, Mark::Run(0));
        text
    }

    /// The lines of one run.
    pub(super) fn run(&self, number: u64, cwd: Option<&str>, code: &str) -> String {
        let mut text = String::with_capacity(code.len() + 256);
        if let Some(cwd) = cwd {
            let _ = write!(text, "command cd -- {} && ", quoted(cwd));
        }
        let _ = write!(
            text,
            "command eval {} {REPORT_FD}>&- </dev/null\n\n",
            quoted(code)
        );
        self.push_report(&mut text, Mark::Run(number));
        text
    }

    /// A question alone: after an interrupt made the shell throw away its input, or to learn
    /// whether it reads at all.
    pub(super) fn ask(&self, mark: Mark) -> String {
        let mut text = String::from("\n");
        self.push_report(&mut text, mark);
        text
    }

    /// The status in a line from the shell, when it has this mark.
    pub(super) fn status(&self, line: &str, mark: Mark) -> Option<i32> {
        let rest = line.strip_prefix(self.nonce.as_str())?.strip_prefix(' ')?;
        let (found, status) = rest.split_once(' ')?;
        (found == mark.to_string()).then(|| status.parse().ok())?
    }

    fn push_report(&self, text: &mut String, mark: Mark) {
        let nonce = &self.nonce;
        let _ = writeln!(
            text,
            "{{ command printf '{nonce} {mark} %s\\n' \"$?\" >&{REPORT_FD}; }} 2>/dev/null"
        );
    }
}

/// One word of shell text.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_report_with_nonce_and_number_counts() {
        let protocol = Protocol {
            nonce: "abc".to_owned(),
        };
        let mark = Mark::Run(3);
        assert_eq!(protocol.status("abc 3 127", mark), Some(127));
        assert_eq!(protocol.status("abc 2 0", mark), None);
        assert_eq!(protocol.status("abc 3.0 0", mark), None);
        assert_eq!(protocol.status("abc 3.1 0", Mark::Settled(3, 1)), Some(0));
        assert_eq!(protocol.status("abd 3 0", mark), None);
        assert_eq!(protocol.status("3 0", mark), None);
        assert_eq!(protocol.status("abc 3 x", mark), None);
    }

    #[test]
    fn text_is_one_word_whatever_it_contains() {
        assert_eq!(quoted("it's $x\n"), r"'it'\''s $x".to_owned() + "\n'");
    }
}
