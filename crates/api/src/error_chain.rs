//! An error printed with everything that caused it, for the place that logs or reports it.
//!
//! Our errors give their cause by `Error::source` and never in their own text, so whoever prints
//! one without its chain loses the reason. Errors of libraries often do both; a cause that was
//! printed already is not printed again.

use std::error::Error;
use std::fmt;

/// Prints an error and its causes, joined by `: `.
pub fn error_chain<'a>(error: &'a (dyn Error + 'a)) -> ErrorChain<'a> {
    ErrorChain(error)
}

/// What [`error_chain`] returns; print it.
#[derive(Debug, Clone, Copy)]
pub struct ErrorChain<'a>(&'a (dyn Error + 'a));

impl ErrorChain<'_> {
    /// The causes, nearest first, without those that an earlier text contains.
    pub fn causes(&self) -> Vec<String> {
        let error = self.0.to_string();
        let mut causes: Vec<String> = Vec::new();
        let mut next = self.0.source();
        while let Some(cause) = next {
            let text = cause.to_string();
            if !error.contains(&text) && !causes.iter().any(|earlier| earlier.contains(&text)) {
                causes.push(text);
            }
            next = cause.source();
        }
        causes
    }
}

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        for cause in self.causes() {
            write!(f, ": {cause}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Step {
        text: &'static str,
        #[source]
        source: Option<Box<Step>>,
    }

    fn steps(texts: &[&'static str]) -> Step {
        let (text, rest) = texts.split_first().unwrap();
        let source = (!rest.is_empty()).then(|| Box::new(steps(rest)));
        Step { text, source }
    }

    #[test]
    fn prints_every_cause_once() {
        for (texts, expected) in [
            (&["alone"][..], "alone"),
            (
                &["cannot save", "cannot write", "disk full"],
                "cannot save: cannot write: disk full",
            ),
            // Libraries that print their source: in the first error, and in a cause.
            (
                &["cannot save: disk full", "disk full"],
                "cannot save: disk full",
            ),
            (
                &["cannot ask", "connect: refused", "refused", "os error 111"],
                "cannot ask: connect: refused: os error 111",
            ),
        ] {
            assert_eq!(error_chain(&steps(texts)).to_string(), expected);
        }
    }
}
