//! `osb sandbox …`, `osb ls`, `osb rm`: whole sandboxes.

use std::pin::pin;

use api::query::{ListSandboxesQuery, PAGE_SIZE_MAX, Page};
use api::sandbox::SandboxState;
use futures_util::StreamExt as _;
use opensandbox::Sandbox as Handle;

use super::{DONE, Outcome, create};
use crate::app::{App, DATA};
use crate::args::Pair;
use crate::args::sandbox::{Endpoint, Ids, List, Metrics, Remove, Renew, Resume, Sandbox};
use crate::error::Error;
use crate::model;
use crate::output::{Format, Message, Printer, Record, write};

const COLUMNS: [&str; 5] = ["id", "status", "image", "created_at", "expires_at"];

/// Sandboxes that are removed at the same time: enough to hide the way to the server and back.
const AT_ONCE: usize = 8;

const STATES: [SandboxState; 8] = [
    SandboxState::Pending,
    SandboxState::Running,
    SandboxState::Pausing,
    SandboxState::Paused,
    SandboxState::Resuming,
    SandboxState::Stopping,
    SandboxState::Terminated,
    SandboxState::Failed,
];

pub(super) async fn run(app: &App, command: Sandbox) -> Outcome {
    match command {
        Sandbox::Create(args) => create::run(app, &args).await,
        Sandbox::List(args) => list(app, &args).await,
        Sandbox::Get(args) => get(app, &args.sandbox_id).await,
        Sandbox::Kill(args) => kill(app, &args).await,
        Sandbox::Pause(args) => pause(app, &args.sandbox_id).await,
        Sandbox::Resume(args) => resume(app, &args).await,
        Sandbox::Renew(args) => renew(app, &args).await,
        Sandbox::Endpoint(args) => endpoint(app, &args).await,
        Sandbox::Health(args) => health(app, &args.sandbox_id).await,
        Sandbox::Metrics(args) => metrics(app, &args).await,
    }
}

/// One page, as the published command line lists them.
async fn list(app: &App, args: &List) -> Outcome {
    let printer = app.printer();
    let query = query(args)?;
    if args.watch {
        return watch(app, &printer, &query).await;
    }
    let page = app.client()?.list(&query).await?;
    let has_more = page.pagination.has_next_page;
    printer.page(
        "Sandboxes",
        &COLUMNS,
        &rows(&printer, &page.items),
        model::pagination(&page.pagination),
    )?;
    if has_more && !is_data(&printer) {
        let (page, total) = (page.pagination.page, page.pagination.total_items);
        let text = format!("{total} in all; the next are on --page {}", page + 1);
        printer.note(Message::Info, &text)?;
    }
    Ok(DONE)
}

/// All of them, each page printed when it comes; one page where one is named.
pub(super) async fn list_all(app: &App, args: &List) -> Outcome {
    if args.watch || args.page.is_some() {
        return list(app, args).await;
    }
    let printer = app.printer();
    let mut query = query(args)?;
    if args.page_size.is_none() {
        query.page.size = PAGE_SIZE_MAX;
    }
    let mut table = printer.paged("Sandboxes", &COLUMNS);
    loop {
        let page = app.client()?.list(&query).await?;
        table.more(rows(&printer, &page.items))?;
        if !page.pagination.has_next_page {
            table.end(model::pagination(&page.pagination))?;
            return Ok(DONE);
        }
        query.page.number += 1;
    }
}

fn is_data(printer: &Printer) -> bool {
    matches!(printer.format(), Format::Json | Format::Yaml)
}

fn rows(printer: &Printer, items: &[api::sandbox::Sandbox]) -> Vec<Record> {
    let row = |info| match is_data(printer) {
        true => model::sandbox(info),
        false => model::flat(model::sandbox(info)),
    };
    items.iter().map(row).collect()
}

/// The list again after every change, until interrupted. At a terminal it stays in place.
async fn watch(app: &App, printer: &Printer, query: &ListSandboxesQuery) -> Outcome {
    let client = app.client()?;
    // Subscribed before the first list, so that no change falls between.
    let mut events = pin!(client.events(None, None).await?);
    loop {
        let page = client.list(query).await?;
        let rows = rows(printer, &page.items);
        if printer.is_terminal() && printer.format() == Format::Table {
            write(&format!(
                "\x1b[H\x1b[2J{}",
                printer.table_text(&COLUMNS, &rows)
            ))?;
        } else {
            printer.rows("Sandboxes", &COLUMNS, &rows)?;
        }
        match events.next().await {
            Some(event) => event?,
            None => return Err(stream_ended()),
        };
    }
}

pub(super) fn stream_ended() -> Error {
    Error::Failed {
        message: "the server ended the stream of events".to_owned(),
        next: Some("it may be restarting: try again".to_owned()),
    }
}

fn query(args: &List) -> Result<ListSandboxesQuery, Error> {
    let mut page = Page::default();
    if let Some(number) = args.page {
        page.number = number.into();
    }
    if let Some(size) = args.page_size {
        page.size = size.into();
    }
    Ok(ListSandboxesQuery {
        page,
        ..filter(&args.state, &args.metadata)?
    })
}

fn filter(states: &[String], labels: &[Pair]) -> Result<ListSandboxesQuery, Error> {
    let states: Result<Vec<SandboxState>, Error> = states.iter().map(|text| state(text)).collect();
    Ok(ListSandboxesQuery {
        states: states?,
        metadata: Pair::map(labels).unwrap_or_default(),
        ..ListSandboxesQuery::default()
    })
}

/// A state, in any case of letters.
fn state(text: &str) -> Result<SandboxState, Error> {
    let known = |state: &&SandboxState| state.as_str().eq_ignore_ascii_case(text.trim());
    STATES.iter().find(known).copied().ok_or_else(|| {
        let all: Vec<&str> = STATES.iter().map(|state| state.as_str()).collect();
        Error::Usage(format!(
            "'{text}' is not a state; there are {}",
            all.join(", ")
        ))
    })
}

async fn get(app: &App, id: &str) -> Outcome {
    let printer = app.printer();
    let record = model::sandbox(&app.client()?.get(id).await?);
    let record = match printer.format() {
        Format::Json | Format::Yaml => record,
        _ => model::flat(record),
    };
    printer.record("Sandbox", &record)?;
    Ok(DONE)
}

/// `osb sandbox kill`, as the published command line has it.
async fn kill(app: &App, args: &Ids) -> Outcome {
    kill_all(app, args.sandbox_ids.clone(), false).await
}

/// `osb rm`: the sandboxes named, or those that a filter finds.
pub(super) async fn remove(app: &App, args: &Remove) -> Outcome {
    if !args.sandbox_ids.is_empty() {
        return kill_all(app, args.sandbox_ids.clone(), args.force).await;
    }
    let query = filter(&args.state, &args.metadata)?;
    // Named before the first goes: pages move when sandboxes do.
    let mut all = pin!(app.client()?.list_all(query));
    let mut ids = Vec::new();
    while let Some(info) = all.next().await {
        ids.push(info?.id.to_string());
    }
    // One that ends by itself meanwhile is as gone as the others.
    kill_all(app, ids, true).await
}

async fn kill_all(app: &App, ids: Vec<String>, may_be_gone: bool) -> Outcome {
    let printer = app.printer();
    let client = app.client()?;
    let kill = async |id: String| {
        let killed = client.kill(&id).await;
        (id, killed)
    };
    let mut killing = futures_util::stream::iter(ids).map(kill).buffered(AT_ONCE);
    let mut rows = Vec::new();
    let mut failed = None;
    while let Some((id, killed)) = killing.next().await {
        // One that cannot be killed does not save the others.
        match killed {
            Ok(()) => rows.push(
                Record::new()
                    .with("sandbox_id", id)
                    .with("status", "terminated"),
            ),
            Err(error) if may_be_gone && error.is_not_found() => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    if rows.is_empty() && failed.is_none() && !is_data(&printer) {
        printer.note(Message::Info, "No sandboxes found.")?;
    } else if !rows.is_empty() || failed.is_none() {
        printer.rows("Sandboxes", &["sandbox_id", "status"], &rows)?;
    }
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(DONE),
    }
}

async fn pause(app: &App, id: &str) -> Outcome {
    let printer = app.printer();
    app.client()?.pause(id).await?;
    printer.message(Message::Ok, &format!("Sandbox paused: {id}"))?;
    Ok(DONE)
}

async fn resume(app: &App, args: &Resume) -> Outcome {
    let printer = app.printer();
    let mut connect = Handle::resume(&args.sandbox_id).client(app.client()?);
    if let Some(timeout) = args.resume_timeout {
        connect = connect.timeout(timeout);
    }
    if args.skip_health_check {
        connect = connect.skip_health_check();
    }
    connect.await?;
    printer.message(
        Message::Ok,
        &format!("Sandbox resumed: {}", args.sandbox_id),
    )?;
    Ok(DONE)
}

async fn renew(app: &App, args: &Renew) -> Outcome {
    let printer = app.printer();
    let expires_at = app.client()?.renew(&args.sandbox_id, args.timeout).await?;
    let record = Record::new()
        .with("sandbox_id", &args.sandbox_id)
        .with("expires_at", expires_at);
    printer.done("Sandbox renewed", &record)?;
    Ok(DONE)
}

async fn endpoint(app: &App, args: &Endpoint) -> Outcome {
    let printer = app.printer();
    let endpoint = app.client()?.endpoint(&args.sandbox_id, args.port).await?;
    if matches!(printer.format(), Format::Raw | Format::Name) {
        printer.text(&endpoint.endpoint)?;
        return Ok(DONE);
    }
    let headers = endpoint.headers.unwrap_or_default();
    let headers = headers.iter().fold(Record::new(), |record, (name, value)| {
        record.with(name, value)
    });
    let record = Record::new()
        .with("endpoint", &endpoint.endpoint)
        .with("headers", headers);
    printer.record("Endpoint", &record)?;
    Ok(DONE)
}

async fn health(app: &App, id: &str) -> Outcome {
    let printer = app.printer();
    let answer = app.sandbox(id)?.ping().await;
    if let Err(error) = &answer
        && (error.is_not_found() || error.is_unauthorized() || is_away(error))
    {
        return Err(answer.expect_err("looked at above").into());
    }
    let healthy = answer.is_ok();
    if matches!(printer.format(), Format::Json | Format::Yaml) {
        let record = Record::new()
            .with("sandbox_id", id)
            .with("healthy", healthy);
        printer.record("Health", &record)?;
    } else if healthy {
        printer.message(Message::Ok, &format!("Sandbox {id} is healthy"))?;
    } else {
        printer.message(Message::Error, &format!("Sandbox {id} is unhealthy"))?;
    }
    Ok(u8::from(!healthy))
}

/// The server itself cannot be reached: that says nothing about the sandbox.
fn is_away(error: &opensandbox::Error) -> bool {
    matches!(error, opensandbox::Error::Connection { .. })
}

async fn metrics(app: &App, args: &Metrics) -> Outcome {
    let sandbox = app.sandbox(&args.sandbox_id)?;
    if !args.watch {
        let printer = app.printer();
        let metrics = sandbox.metrics().await?;
        if printer.format() == Format::Raw {
            printer.text(&line(&metrics))?;
        } else {
            printer.record("Metrics", &model::metrics(&metrics))?;
        }
        return Ok(DONE);
    }
    let mut formats = DATA.to_vec();
    formats.rotate_left(4);
    let printer = app.printer_of(&formats)?;
    let mut samples = pin!(sandbox.watch_metrics().await?);
    while let Some(sample) = samples.next().await {
        let sample = sample?;
        printer.streamed(&model::metrics(&sample), &line(&sample))?;
    }
    Ok(DONE)
}

/// One sample as one line.
fn line(sample: &api::exec::metrics::Metrics) -> String {
    let at = jiff::Timestamp::from_millisecond(sample.timestamp).unwrap_or_default();
    format!(
        "[{at}] cpu={:.2}% cores={} mem={:.2}/{:.2}MiB",
        sample.cpu_used_pct, sample.cpu_count, sample.mem_used_mib, sample.mem_total_mib
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_known_in_any_case() {
        assert_eq!(state(" running ").unwrap(), SandboxState::Running);
        assert!(state("ready").unwrap_err().to_string().contains("Paused"));
    }
}
