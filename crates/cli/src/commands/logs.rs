//! `osb logs`: what a sandbox's main program, or one of its commands, printed; with `-f` as it
//! does.

use api::diagnostics::LogEvent;
use api::query::QueryWriter;
use futures_util::StreamExt as _;
use opensandbox::Client;

use super::command::follow_logs;
use super::sandbox::stream_ended;
use super::{DONE, Outcome};
use crate::app::App;
use crate::args::exec::Logs;
use crate::error::Error;
use crate::interrupts::Interrupts;
use crate::output::{Format, write};

/// As many of the last lines as are shown when nobody says how many.
const TAIL: u32 = 1000;

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
    let tail = args.tail.unwrap_or(TAIL);
    if args.follow {
        return follow(client, &args.sandbox_id, tail).await;
    }
    let text = fetch(client, &args.sandbox_id, tail).await?;
    if !text.is_empty() {
        printer.text(&text)?;
    }
    Ok(DONE)
}

async fn follow(client: &Client, id: &str, tail: u32) -> Outcome {
    let mut interrupts = Interrupts::listen()?;
    let events = client.follow_logs(id, Some(tail.into())).await?;
    let mut events = std::pin::pin!(events);
    loop {
        let event = tokio::select! {
            event = events.next() => event.transpose()?,
            code = interrupts.next() => return Ok(code),
        };
        match event {
            Some(LogEvent::Text { text }) => write(&text)?,
            Some(LogEvent::End) => return Ok(DONE),
            None => return Err(stream_ended()),
        }
    }
}

async fn fetch(client: &Client, id: &str, tail: u32) -> Result<String, Error> {
    let query = QueryWriter::new().pair("tail", &tail.to_string()).finish();
    Ok(client.diagnostics_text(id, "logs", &query).await?)
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
    fn the_last_lines() {
        assert_eq!(last("a\nb\nc\n", Some(2)), "b\nc");
        assert_eq!(last("a\n", None), "a\n");
    }
}
