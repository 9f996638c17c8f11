//! `osb logs`: what a sandbox's main program, or one of its commands, printed.
//!
//! The server hands out the main program's log in one piece and tells nobody when it grows, so
//! that following it means to ask again; a command's output is streamed.

use std::time::Duration;

use api::query::QueryWriter;
use opensandbox::Client;

use super::command::follow_logs;
use super::{DONE, Outcome};
use crate::app::App;
use crate::args::exec::Logs;
use crate::error::Error;
use crate::interrupts::Interrupts;
use crate::output::{Format, write};

/// As many of the last lines as are shown when nobody says how many.
const TAIL: u32 = 1000;

/// How long to wait before asking again, and how many lines to ask for then: nothing is missed
/// unless a program prints more lines than this in a second.
const ASK_AGAIN: Duration = Duration::from_secs(1);
const TAIL_AGAIN: u32 = 10_000;

pub(super) async fn run(app: &App, args: &Logs) -> Outcome {
    let printer = app.printer_of(&[Format::Raw, Format::Plain])?;
    if let Some(id) = &args.execution_id {
        let sandbox = app.sandbox(&args.sandbox_id)?;
        if args.follow {
            return follow_logs(&sandbox, id).await;
        }
        let text = sandbox.commands().logs(id, None).await?.text;
        printer.text(&last(&text, args.tail))?;
        return Ok(DONE);
    }
    let client = app.client()?;
    let text = fetch(client, &args.sandbox_id, args.tail.unwrap_or(TAIL)).await?;
    if !text.is_empty() {
        printer.text(&text)?;
    }
    if args.follow {
        return follow(client, &args.sandbox_id, text).await;
    }
    Ok(DONE)
}

async fn follow(client: &Client, id: &str, mut seen: String) -> Outcome {
    let mut interrupts = Interrupts::listen()?;
    loop {
        tokio::select! {
            code = interrupts.next() => return Ok(code),
            () = tokio::time::sleep(ASK_AGAIN) => {}
        }
        let now = match fetch(client, id, TAIL_AGAIN).await {
            Ok(now) => now,
            // A sandbox that has gone prints nothing more.
            Err(Error::Remote(error)) if error.is_not_found() => return Ok(DONE),
            Err(error) => return Err(error),
        };
        write(added(&seen, &now))?;
        seen = now;
    }
}

async fn fetch(client: &Client, id: &str, tail: u32) -> Result<String, Error> {
    let query = QueryWriter::new().pair("tail", &tail.to_string()).finish();
    Ok(client.diagnostics_text(id, "logs", &query).await?)
}

/// What `now` has behind the end of `seen`. Both are the last lines of the same text, of which
/// the older may have gone; where nothing of `seen` is left, everything is new.
fn added<'a>(seen: &str, now: &'a str) -> &'a str {
    if seen.is_empty() {
        return now;
    }
    let mut rest = seen;
    loop {
        // The longest end of what was seen that now stands somewhere, looked for by its place.
        if let Some(at) = now.rfind(rest)
            && (at == 0 || rest.len() < seen.len() || now[..at].ends_with('\n'))
        {
            return &now[at + rest.len()..];
        }
        match rest.find('\n') {
            Some(end) if end + 1 < rest.len() => rest = &rest[end + 1..],
            _ => return now,
        }
    }
}

/// The last lines of a text.
fn last(text: &str, count: Option<u32>) -> String {
    let Some(count) = count else {
        return text.to_owned();
    };
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(count as usize);
    lines[from..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new_is_shown() {
        assert_eq!(added("", "a\n"), "a\n");
        assert_eq!(added("a\n", "a\n"), "");
        assert_eq!(added("a\nb\n", "a\nb\nc\n"), "c\n");
        assert_eq!(added("a\nb\n", "b\nc\nd\n"), "c\nd\n");
        assert_eq!(added("a\nb\n", "x\ny\n"), "x\ny\n");
        assert_eq!(added("a\nb", "a\nbc\n"), "c\n");
    }

    #[test]
    fn the_last_lines() {
        assert_eq!(last("a\nb\nc\n", Some(2)), "b\nc");
        assert_eq!(last("a\n", None), "a\n");
    }
}
