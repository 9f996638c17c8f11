//! What is wrong with a request: every problem at once, each with the field it is about.

use std::fmt;

use crate::error::{ErrorBody, ErrorCode, ErrorDetail, Loc};

/// At most this many problems are collected: enough for any honest request, and a hostile one
/// gets an answer that is no longer than that.
pub const PROBLEMS_MAX: usize = 64;

/// One problem of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Problem {
    /// The field, as in `volumes[0].mountPath`; empty for the request as a whole.
    pub field: String,
    /// What is wrong and what would be right.
    pub message: String,
    /// The code to answer with. [`ErrorCode::ValidationFailed`] stands for a request that does
    /// not fit its schema.
    pub code: ErrorCode,
}

impl Problem {
    /// A request that does not fit its schema.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::with_code(ErrorCode::ValidationFailed, field, message)
    }

    /// A problem with a code of its own.
    pub fn with_code(
        code: ErrorCode,
        field: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
            code,
        }
    }

    /// The HTTP status the published server gives such a problem: 422 for a request that does
    /// not fit its schema, 413 for one that has more of something than it may, 400 for one that breaks a
    /// rule.
    pub const fn status(&self) -> u16 {
        match self.code {
            ErrorCode::ValidationFailed => 422,
            ErrorCode::BodyTooLarge => 413,
            _ => 400,
        }
    }
}

/// Collects problems. At least one makes the request invalid.
#[derive(Debug, Default)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// No problem yet.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Notes a request that does not fit its schema.
    pub fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.push(Problem::new(field, message));
    }

    /// Notes a problem with a code of its own.
    pub fn add_code(
        &mut self,
        code: ErrorCode,
        field: impl Into<String>,
        message: impl Into<String>,
    ) {
        self.push(Problem::with_code(code, field, message));
    }

    /// Notes a problem, unless there are too many already.
    pub fn push(&mut self, problem: Problem) {
        if self.0.len() < PROBLEMS_MAX {
            self.0.push(problem);
        }
    }

    /// Notes the error of a parser; returns what it parsed.
    pub fn check<T, E: fmt::Display>(
        &mut self,
        code: ErrorCode,
        field: impl Into<String>,
        result: Result<T, E>,
    ) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.add_code(code, field, error.to_string());
                None
            }
        }
    }

    /// Whether none was noted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value, unless a problem was noted.
    pub fn into_result<T>(self, value: T) -> Result<T, Vec<Problem>> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(self.0)
        }
    }
}

impl ErrorBody {
    /// The answer to a request with these problems. `part` is where they are: `body`, `query` or
    /// `path`. The first problem gives the code.
    pub fn from_problems(part: &str, problems: &[Problem]) -> Self {
        let code = problems
            .first()
            .map_or(ErrorCode::ValidationFailed, |problem| problem.code);
        let message = match problems {
            [] => "the request is not valid".to_owned(),
            [only] => only.to_string(),
            [first, rest @ ..] => format!("{first} (and {} more problems)", rest.len()),
        };
        let detail = problems.iter().map(|problem| ErrorDetail {
            loc: locate(part, &problem.field),
            msg: problem.message.clone(),
            kind: "value_error".to_owned(),
        });
        Self {
            detail: Some(detail.collect()),
            ..Self::new(code, message)
        }
    }
}

/// `volumes[0].mountPath` in the body is `body`, `volumes`, 0, `mountPath`.
fn locate(part: &str, field: &str) -> Vec<Loc> {
    let steps = field.split(['.', '[', ']']).filter(|step| !step.is_empty());
    let step = |step: &str| match step.parse() {
        Ok(index) => Loc::Index(index),
        Err(_) => Loc::Name(step.to_owned()),
    };
    std::iter::once(Loc::Name(part.to_owned()))
        .chain(steps.map(step))
        .collect()
}

/// The beginning of an input, quoted, so that an error never repeats a long one.
pub(crate) struct Excerpt<'a>(pub(crate) &'a str);

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const CHARACTERS: usize = 64;
        match self.0.char_indices().nth(CHARACTERS) {
            Some((end, _)) => write!(f, "{:?}…", &self.0[..end]),
            None => write!(f, "{:?}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_lists_every_problem_where_it_is() {
        let problems = [
            Problem::with_code(
                ErrorCode::VolumeInvalidMountPath,
                "volumes[1].mountPath",
                "no",
            ),
            Problem::new("", "nothing"),
        ];
        let body = ErrorBody::from_problems("body", &problems);
        assert_eq!(
            serde_json::to_value(&body).unwrap(),
            serde_json::json!({
                "code": "VOLUME::INVALID_MOUNT_PATH",
                "message": "volumes[1].mountPath: no (and 1 more problems)",
                "detail": [
                    {"loc": ["body", "volumes", 1, "mountPath"], "msg": "no", "type": "value_error"},
                    {"loc": ["body"], "msg": "nothing", "type": "value_error"},
                ],
            })
        );
    }

    #[test]
    fn a_hostile_request_does_not_make_a_long_answer() {
        let mut problems = Problems::new();
        for _ in 0..10_000 {
            problems.add("x", "y");
        }
        assert_eq!(problems.into_result(()).unwrap_err().len(), PROBLEMS_MAX);
    }
}
