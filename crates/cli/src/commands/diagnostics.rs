//! `osb diagnostics …` and the older `osb devops …`: what went wrong in a sandbox.

use api::diagnostics::DiagnosticContent;
use api::query::QueryWriter;

use super::{DONE, Outcome};
use crate::app::App;
use crate::args::sandbox_side::{Devops, Diagnostics};
use crate::error::Error;
use crate::model;
use crate::output::{Format, Message, Value};

pub(super) async fn stable(app: &App, command: Diagnostics) -> Outcome {
    let client = app.client()?;
    let (title, content) = match command {
        Diagnostics::Logs { sandbox_id, scope } => (
            "Diagnostic logs",
            client
                .diagnostic_logs(&app.find(&sandbox_id).await?, &scope)
                .await?,
        ),
        Diagnostics::Events { sandbox_id, scope } => (
            "Diagnostic events",
            client
                .diagnostic_events(&app.find(&sandbox_id).await?, &scope)
                .await?,
        ),
    };
    show(app, title, &content)
}

fn show(app: &App, title: &str, content: &DiagnosticContent) -> Outcome {
    let formats = [
        Format::Raw,
        Format::Table,
        Format::Plain,
        Format::Json,
        Format::Yaml,
    ];
    let printer = app.printer_of(&formats)?;
    let record = model::diagnostics(content);
    if printer.format() != Format::Raw {
        printer.record(title, &record)?;
        return Ok(DONE);
    }
    let text = |name: &str| match record.get(name) {
        Some(Value::Text(text)) => Some(text.clone()),
        _ => None,
    };
    if record.get("truncated") == Some(&Value::Bool(true)) {
        printer.note(Message::Warning, "the content was cut")?;
    }
    if let Some(Value::List(warnings)) = record.get("warnings") {
        for warning in warnings {
            printer.note(Message::Warning, &warning.cell())?;
        }
    }
    match text("content").or_else(|| text("content_url")) {
        Some(text) => printer.text(&text)?,
        None if text("delivery").as_deref() == Some("inline") => {}
        None => {
            return Err(Error::Failed {
                message: "the server gave neither the content nor where it is".to_owned(),
                next: None,
            });
        }
    }
    Ok(DONE)
}

pub(super) async fn devops(app: &App, command: Devops) -> Outcome {
    let printer = app.printer_of(&[Format::Raw])?;
    let query = QueryWriter::new();
    let (id, kind, query) = match command {
        Devops::Logs {
            sandbox_id,
            tail,
            since,
        } => {
            let note = "`osb devops logs` is deprecated: use `osb diagnostics logs` or `osb logs`";
            printer.note(Message::Warning, note)?;
            let query = query
                .pair("tail", &tail.to_string())
                .optional("since", since.as_deref());
            (sandbox_id, "logs", query)
        }
        Devops::Inspect { sandbox_id } => (sandbox_id, "inspect", query),
        Devops::Events { sandbox_id, limit } => {
            let note = "`osb devops events` is deprecated: use `osb diagnostics events`";
            printer.note(Message::Warning, note)?;
            (
                sandbox_id,
                "events",
                query.pair("limit", &limit.to_string()),
            )
        }
        Devops::Summary {
            sandbox_id,
            tail,
            event_limit,
        } => {
            let query = query
                .pair("tail", &tail.to_string())
                .pair("event_limit", &event_limit.to_string());
            (sandbox_id, "summary", query)
        }
    };
    let id = app.find(&id).await?;
    let text = app
        .client()?
        .diagnostics_text(&id, kind, &query.finish())
        .await?;
    printer.text(&text)?;
    Ok(DONE)
}
