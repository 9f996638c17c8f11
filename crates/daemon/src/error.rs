//! One way to print an error with everything that caused it, for the place that handles it.

use std::error::Error;
use std::fmt;

/// Prints an error and its sources, joined by `: `.
///
/// Our errors never print their source themselves, so nothing appears twice.
pub fn chain<'a>(error: &'a (dyn Error + 'a)) -> Chain<'a> {
    Chain(error)
}

/// What [`chain`] returns; print it.
#[derive(Debug, Clone, Copy)]
pub struct Chain<'a>(&'a (dyn Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut next = self.0.source();
        while let Some(error) = next {
            write!(f, ": {error}")?;
            next = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the outer thing failed")]
    struct Outer {
        #[source]
        source: std::io::Error,
    }

    #[test]
    fn prints_every_cause_once() {
        let error = Outer {
            source: std::io::Error::other("the disk is full"),
        };
        assert_eq!(
            chain(&error).to_string(),
            "the outer thing failed: the disk is full"
        );
    }
}
