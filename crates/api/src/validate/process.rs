//! What the kernel lets a process be started with.

use std::collections::BTreeMap;

use crate::error::ErrorCode;
use crate::problem::{Excerpt, Problems};

/// One argument or `KEY=value` has at most this many bytes: `MAX_ARG_STRLEN` of Linux, less its
/// NUL.
pub const ARGUMENT_BYTES_MAX: usize = 128 * 1024 - 1;

/// Arguments and environment of a request together: half of what Linux takes with the usual
/// stack limit (2 MiB), so that the image's own environment has room.
pub const ENVIRONMENT_BYTES_MAX: usize = 1024 * 1024;

/// A program has at most this many arguments.
const ARGUMENTS_MAX: usize = 4096;

/// Checks a program and its arguments.
pub(super) fn check_arguments(
    code: ErrorCode,
    field: &str,
    arguments: &[String],
    problems: &mut Problems,
) {
    match arguments.first() {
        None => problems.add_code(
            code,
            field,
            "is empty; its first entry is the program to run",
        ),
        Some(program) if program.trim().is_empty() => {
            problems.add_code(
                code,
                format!("{field}[0]"),
                "is blank; name the program to run",
            );
        }
        Some(_) => {}
    }
    if arguments.len() > ARGUMENTS_MAX {
        let message = format!(
            "has {} entries; at most {ARGUMENTS_MAX} fit",
            arguments.len()
        );
        problems.add_code(code, field, message);
        return;
    }
    for (index, argument) in arguments.iter().enumerate() {
        check_text(code, || format!("{field}[{index}]"), argument, problems);
    }
    let total: usize = arguments.iter().map(String::len).sum();
    check_total(code, field, total, problems);
}

/// Checks an environment; `field` is its name in the request.
pub(super) fn check_environment<'a>(
    code: ErrorCode,
    field: &str,
    entries: impl Iterator<Item = (&'a String, &'a str)>,
    problems: &mut Problems,
) {
    let mut total = 0;
    for (key, value) in entries {
        total += key.len() + value.len() + 2;
        let quoted = Excerpt(key);
        if key.is_empty() || key.contains(['=', '\0']) || key.trim() != key {
            let rule = "must not be empty, have '=' or NUL, or begin or end with a blank";
            problems.add_code(code, field, format!("the name {quoted} {rule}"));
        }
        if value.contains('\0') {
            problems.add_code(code, field, format!("the value of {quoted} has a NUL"));
        }
        if key.len() + value.len() + 1 > ARGUMENT_BYTES_MAX {
            let message = format!("{quoted} is longer than {ARGUMENT_BYTES_MAX} bytes");
            problems.add_code(code, field, message);
        }
    }
    check_total(code, field, total, problems);
}

/// Checks the environment of a request that has no empty entries.
pub(super) fn check_environment_map(
    code: ErrorCode,
    field: &str,
    map: &BTreeMap<String, String>,
    problems: &mut Problems,
) {
    let entries = map.iter().map(|(key, value)| (key, value.as_str()));
    check_environment(code, field, entries, problems);
}

/// Checks a text that the kernel gets: no NUL, not too long.
pub(super) fn check_text(
    code: ErrorCode,
    field: impl FnOnce() -> String,
    text: &str,
    problems: &mut Problems,
) {
    if text.contains('\0') {
        problems.add_code(
            code,
            field(),
            "has a NUL, which no argument or path can hold",
        );
    } else if text.len() > ARGUMENT_BYTES_MAX {
        let message = format!("has {} bytes; at most {ARGUMENT_BYTES_MAX} fit", text.len());
        problems.add_code(code, field(), message);
    }
}

fn check_total(code: ErrorCode, field: &str, total: usize, problems: &mut Problems) {
    if total > ENVIRONMENT_BYTES_MAX {
        let message = format!("has {total} bytes in all; at most {ENVIRONMENT_BYTES_MAX} fit");
        problems.add_code(code, field, message);
    }
}
