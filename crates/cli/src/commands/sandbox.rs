//! `osb sandbox …`, `osb ls`, `osb rm`: whole sandboxes.

use std::pin::pin;

use api::query::{ListSandboxesQuery, PAGE_SIZE_MAX, Page};
use api::sandbox::SandboxState;
use futures_util::StreamExt as _;
use opensandbox::Sandbox as Handle;

use super::{DONE, Outcome, create};
use crate::app::{App, DATA};
use crate::args::Pair;
use crate::args::manage::Ps;
use crate::args::sandbox::{Endpoint, Ids, List, Metrics, Remove, Renew, Resume, Sandbox};
use crate::error::Error;
use crate::find::name_of;
use crate::model;
use crate::output::template::Template;
use crate::output::{Format, Message, Printer, Record, aligned, write};

/// The columns for programs, the last of them ours.
const COLUMNS: [&str; 6] = ["id", "status", "image", "created_at", "expires_at", "name"];

/// The columns for people.
const HUMAN_COLUMNS: [&str; 6] = ["id", "name", "image", "status", "created_at", "expires_at"];

/// States of a sandbox that has not ended.
const LIVING: [SandboxState; 6] = [
    SandboxState::Pending,
    SandboxState::Running,
    SandboxState::Pausing,
    SandboxState::Paused,
    SandboxState::Resuming,
    SandboxState::Stopping,
];

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
    let printer = printer(app, args);
    let query = query(args)?;
    if args.watch {
        return watch(app, &printer, &query).await;
    }
    let page = app.client()?.list(&query).await?;
    let has_more = page.pagination.has_next_page;
    let mut items = page.items;
    let chosen = Chosen::new(args)?;
    items.retain(|info| chosen.has(info));
    if let Some(template) = &chosen.template {
        formatted(template, &items, true)?;
        return Ok(DONE);
    }
    printer.page(
        "Sandboxes",
        columns(&printer),
        &rows(&printer, &items),
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
    let printer = printer(app, args);
    let mut query = query(args)?;
    if args.page_size.is_none() {
        query.page.size = PAGE_SIZE_MAX;
    }
    let chosen = Chosen::new(args)?;
    let mut table = printer.paged("Sandboxes", columns(&printer));
    loop {
        let mut page = app.client()?.list(&query).await?;
        page.items.retain(|info| chosen.has(info));
        if let Some(template) = &chosen.template {
            formatted(template, &page.items, query.page.number == 1)?;
            if !page.pagination.has_next_page {
                return Ok(DONE);
            }
            query.page.number += 1;
            continue;
        }
        table.more(rows(&printer, &page.items))?;
        if !page.pagination.has_next_page {
            table.end(model::pagination(&page.pagination))?;
            return Ok(DONE);
        }
        query.page.number += 1;
    }
}

/// `osb ps`: those that have not ended, unless all are asked for.
pub(super) async fn list_living(app: &App, args: &Ps) -> Outcome {
    let mut list = args.list.clone();
    let has_state = !list.state.is_empty() || list.filter.iter().any(|pair| pair.key == "status");
    if !args.all && !has_state {
        list.state = LIVING.iter().map(|state| state.to_string()).collect();
    }
    list_all(app, &list).await
}

fn printer(app: &App, args: &List) -> Printer {
    let printer = match args.quiet {
        true => app.printer_as(Format::Name),
        false => app.printer(),
    };
    printer.whole(args.no_trunc)
}

fn columns(printer: &Printer) -> &'static [&'static str] {
    match printer.format() {
        Format::Table => &HUMAN_COLUMNS,
        _ => &COLUMNS,
    }
}

/// What of a list is shown, beyond what the server can be asked for.
struct Chosen {
    name: Option<String>,
    image: Option<String>,
    template: Option<Template>,
}

impl Chosen {
    fn new(args: &List) -> Result<Self, Error> {
        let of = |key: &str| {
            let found = args.filter.iter().find(|pair| pair.key == key);
            found.map(|pair| pair.value.clone())
        };
        let template = args.format.as_deref().map(Template::parse).transpose();
        Ok(Self {
            name: of("name"),
            image: of("ancestor"),
            template: template.map_err(Error::Usage)?,
        })
    }

    fn has(&self, info: &api::sandbox::Sandbox) -> bool {
        let name = name_of(info).unwrap_or_default();
        let image = info.image.as_ref().map_or("", |image| image.uri.as_str());
        self.name.as_deref().is_none_or(|part| name.contains(part))
            && self.image.as_deref().is_none_or(|wanted| image == wanted)
    }
}

/// Rows as a template has them; a table is aligned page by page.
fn formatted(
    template: &Template,
    items: &[api::sandbox::Sandbox],
    is_first: bool,
) -> Result<(), Error> {
    let lines: Result<Vec<String>, String> = items
        .iter()
        .map(|info| template.render(&named_row(info)))
        .collect();
    let lines = lines.map_err(Error::Usage)?;
    let text = match template.is_table {
        true => aligned(is_first.then(|| template.header()).as_deref(), &lines),
        false => lines.iter().map(|line| format!("{line}\n")).collect(),
    };
    write(&text)?;
    Ok(())
}

fn named_row(info: &api::sandbox::Sandbox) -> Record {
    let name = name_of(info).map(str::to_owned);
    model::flat(model::sandbox(info)).with("name", name)
}

fn is_data(printer: &Printer) -> bool {
    matches!(printer.format(), Format::Json | Format::Yaml)
}

fn rows(printer: &Printer, items: &[api::sandbox::Sandbox]) -> Vec<Record> {
    let row = |info| match is_data(printer) {
        true => model::sandbox(info),
        false => named_row(info),
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
                printer.table_text(columns(printer), &rows)
            ))?;
        } else {
            printer.rows("Sandboxes", columns(printer), &rows)?;
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
    let (mut states, mut labels) = (args.state.clone(), args.metadata.clone());
    for Pair { key, value } in &args.filter {
        match key.as_str() {
            "status" => states.push(docker_state(value).to_owned()),
            "label" => labels.push(value.parse().map_err(Error::Usage)?),
            "name" | "ancestor" => {}
            other => {
                return Err(Error::Usage(format!(
                    "there is no filter {other}; there are name, status, label and ancestor"
                )));
            }
        }
    }
    Ok(ListSandboxesQuery {
        page,
        ..filter(&states, &labels)?
    })
}

/// A state by Docker's word for it.
fn docker_state(text: &str) -> &str {
    match text {
        "exited" | "dead" => "Terminated",
        "created" => "Pending",
        other => other,
    }
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

async fn get(app: &App, text: &str) -> Outcome {
    let printer = app.printer();
    let id = app.find(text).await?;
    let record = model::sandbox(&app.client()?.get(&id).await?);
    let record = match printer.format() {
        Format::Json | Format::Yaml => record,
        _ => model::flat(record),
    };
    printer.record("Sandbox", &record)?;
    Ok(DONE)
}

/// `osb sandbox kill`, as the published command line has it.
async fn kill(app: &App, args: &Ids) -> Outcome {
    let ids = app.find_all(&args.sandbox_ids).await?;
    kill_all(app, ids, false).await
}

/// `osb rm`: the sandboxes named, or those that a filter finds.
pub(super) async fn remove(app: &App, args: &Remove) -> Outcome {
    if !args.sandbox_ids.is_empty() {
        let ids = app.find_all(&args.sandbox_ids).await?;
        return kill_all(app, ids, args.force).await;
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

pub(super) async fn kill_all(app: &App, ids: Vec<String>, may_be_gone: bool) -> Outcome {
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
    app.client()?.pause(&app.find(id).await?).await?;
    printer.message(Message::Ok, &format!("Sandbox paused: {id}"))?;
    Ok(DONE)
}

async fn resume(app: &App, args: &Resume) -> Outcome {
    let printer = app.printer();
    let id = app.find(&args.sandbox_id).await?;
    let mut connect = Handle::resume(id).client(app.client()?);
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
    let id = app.find(&args.sandbox_id).await?;
    let expires_at = app.client()?.renew(&id, args.timeout).await?;
    let record = Record::new()
        .with("sandbox_id", id)
        .with("expires_at", expires_at);
    printer.done("Sandbox renewed", &record)?;
    Ok(DONE)
}

async fn endpoint(app: &App, args: &Endpoint) -> Outcome {
    let printer = app.printer();
    let id = app.find(&args.sandbox_id).await?;
    let endpoint = app.client()?.endpoint(&id, args.port).await?;
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
    let answer = app.sandbox(id).await?.ping().await;
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
    let sandbox = app.sandbox(&args.sandbox_id).await?;
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
