//! `osb logs`: what a sandbox's main program, or one of its commands, printed; with `-f` as it
//! does.

use std::fmt::Write as _;

use api::diagnostics::LogEvent;
use api::query::QueryWriter;
use futures_util::StreamExt as _;
use jiff::Timestamp;
use opensandbox::Client;

use super::command::follow_logs;
use super::sandbox::stream_ended;
use super::{DONE, Outcome};
use crate::app::App;
use crate::args::exec::Logs;
use crate::duration;
use crate::error::Error;
use crate::interrupts::Interrupts;
use crate::output::{Format, write};

/// As many of the last lines as are shown when nobody says how many.
const TAIL: u32 = 1000;

pub(super) async fn run(app: &App, args: &Logs) -> Outcome {
    let printer = app.printer_of(&[Format::Raw, Format::Plain])?;
    if let Some(id) = &args.execution_id {
        let sandbox = app.sandbox(&args.sandbox_id).await?;
        if args.follow {
            return follow_logs(&sandbox, id).await;
        }
        let text = sandbox.commands().logs(id, None).await?.text;
        printer.text(&last(&text, args.tail))?;
        return Ok(DONE);
    }
    let client = app.client()?;
    let id = app.find(&args.sandbox_id).await?;
    let tail = args.tail.unwrap_or(TAIL);
    if args.follow {
        return follow(client, &id, tail, args.timestamps).await;
    }
    let since = args.since.as_deref().map(since).transpose()?;
    let text = fetch(client, &id, tail, since).await?;
    if !text.is_empty() {
        printer.text(&text)?;
    }
    Ok(DONE)
}

async fn follow(client: &Client, id: &str, tail: u32, is_timed: bool) -> Outcome {
    let mut interrupts = Interrupts::listen()?;
    let events = client.follow_logs(id, Some(tail.into())).await?;
    let mut events = std::pin::pin!(events);
    let mut stamp = Stamp::default();
    loop {
        let event = tokio::select! {
            event = events.next() => event.transpose()?,
            code = interrupts.next() => return Ok(code),
        };
        match event {
            Some(LogEvent::Text { text }) if is_timed => {
                write(&stamp.lines(&text, Timestamp::now()))?;
            }
            Some(LogEvent::Text { text }) => write(&text)?,
            Some(LogEvent::End) => return Ok(DONE),
            None => return Err(stream_ended()),
        }
    }
}

/// Puts the time before each line, also where a line comes in pieces.
#[derive(Default)]
struct Stamp {
    is_within_line: bool,
}

impl Stamp {
    fn lines(&mut self, text: &str, now: Timestamp) -> String {
        let mut out = String::with_capacity(text.len() + 32);
        for piece in text.split_inclusive('\n') {
            if !self.is_within_line {
                let _ = write!(out, "{now:.6} ");
            }
            out += piece;
            self.is_within_line = !piece.ends_with('\n');
        }
        out
    }
}

/// A time, or how long ago it was.
fn since(text: &str) -> Result<Timestamp, Error> {
    if let Ok(ago) = duration::parse(text) {
        return Ok(Timestamp::now()
            .saturating_sub(ago)
            .unwrap_or(Timestamp::MIN));
    }
    text.parse().map_err(|_| {
        Error::Usage(format!(
            "'{text}' is neither a time such as 2026-01-31T12:00:00Z nor how long ago, such as 10m"
        ))
    })
}

async fn fetch(
    client: &Client,
    id: &str,
    tail: u32,
    since: Option<Timestamp>,
) -> Result<String, Error> {
    // The server takes a length of time, counted from when it is asked.
    let since = since.map(|at| Timestamp::now().duration_since(at).as_secs().max(0));
    let since = since.map(|seconds| format!("{seconds}s"));
    let query = QueryWriter::new()
        .pair("tail", &tail.to_string())
        .optional("since", since.as_deref());
    Ok(client.diagnostics_text(id, "logs", &query.finish()).await?)
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
    fn each_line_has_one_time() {
        let mut stamp = Stamp::default();
        let now = Timestamp::UNIX_EPOCH;
        let text = stamp.lines("a\nb", now) + &stamp.lines("c\n\n", now);
        let times = text.matches("1970-01-01T00:00:00.000000Z ").count();
        assert_eq!((times, text.lines().count()), (3, 3), "{text}");
    }

    #[test]
    fn since_is_a_time_or_how_long_ago() {
        assert_eq!(
            since("1970-01-01T00:00:00Z").unwrap(),
            Timestamp::UNIX_EPOCH
        );
        let ago = Timestamp::now()
            .duration_since(since("10m").unwrap())
            .as_secs();
        assert!((599..=601).contains(&ago), "{ago}");
        assert!(since("yesterday").is_err());
    }

    #[test]
    fn the_last_lines() {
        assert_eq!(last("a\nb\nc\n", Some(2)), "b\nc");
        assert_eq!(last("a\n", None), "a\n");
    }
}
