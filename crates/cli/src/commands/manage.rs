//! Commands that Docker's users know: `osb stop`, `start`, `rename`, `inspect` and `system`.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, Write as _};
use std::pin::pin;

use api::query::ListSandboxesQuery;
use api::sandbox::{NAME_METADATA_KEY, SandboxState};
use futures_util::StreamExt as _;

use super::sandbox::kill_all;
use super::{DONE, Outcome};
use crate::app::App;
use crate::args::manage::{Inspect, Rename, System};
use crate::args::sandbox::Ids;
use crate::error::Error;
use crate::model;
use crate::output::template::Template;
use crate::output::{Format, Message, Record, Value, write};
use crate::progress::bytes;
use crate::terminal;

pub(super) async fn stop(app: &App, args: &Ids) -> Outcome {
    for text in &args.sandbox_ids {
        let id = app.find(text).await?;
        app.client()?.pause(&id).await?;
        app.printer()
            .message(Message::Ok, &format!("Stopped: {text}"))?;
    }
    Ok(DONE)
}

pub(super) async fn start(app: &App, args: &Ids) -> Outcome {
    for text in &args.sandbox_ids {
        let id = app.find(text).await?;
        let client = app.client()?;
        let state = client.get(&id).await?.status.state;
        if matches!(state, SandboxState::Terminated | SandboxState::Failed) {
            return Err(Error::Failed {
                message: format!("{text} has ended and cannot be started again"),
                next: Some(format!(
                    "see why: osb logs {text}; make a new one: osb run -d …"
                )),
            });
        }
        if state != SandboxState::Running {
            client.resume(&id).await?;
        }
        app.printer()
            .message(Message::Ok, &format!("Started: {text}"))?;
    }
    Ok(DONE)
}

pub(super) async fn rename(app: &App, args: &Rename) -> Outcome {
    let id = app.find(&args.sandbox_id).await?;
    let name = Some(args.name.clone()).filter(|name| !name.is_empty());
    let patch = BTreeMap::from([(NAME_METADATA_KEY.to_owned(), name)]);
    app.client()?.patch_metadata(&id, &patch).await?;
    let text = match args.name.as_str() {
        "" => format!("{id} has no name any more"),
        name => format!("{id} is now {name}"),
    };
    app.printer().message(Message::Ok, &text)?;
    Ok(DONE)
}

pub(super) async fn inspect(app: &App, args: &Inspect) -> Outcome {
    let printer = app.printer_of(&[Format::Json, Format::Yaml])?;
    let template = args.format.as_deref().map(Template::parse).transpose();
    let template = template.map_err(Error::Usage)?;
    let mut records = Vec::new();
    for text in &args.sandbox_ids {
        let id = app.find(text).await?;
        let info = app.client()?.get(&id).await?;
        records.push(
            model::sandbox(&info).with("name", crate::find::name_of(&info).map(str::to_owned)),
        );
    }
    let Some(template) = template else {
        printer.data(Value::List(
            records.into_iter().map(Value::Record).collect(),
        ))?;
        return Ok(DONE);
    };
    for record in &records {
        let line = template.render(record).map_err(Error::Usage)?;
        write(&(line + "\n"))?;
    }
    Ok(DONE)
}

pub(super) async fn system(app: &App, args: &System) -> Outcome {
    match args {
        System::Df => df(app).await,
        System::Prune { volumes, force } => prune(app, *volumes, *force).await,
    }
}

/// How many sandboxes there are, and how many run.
async fn count(app: &App) -> Result<(u64, u64), Error> {
    let (mut all, mut active) = (0, 0);
    let mut found = pin!(app.client()?.list_all(ListSandboxesQuery::default()));
    while let Some(info) = found.next().await {
        all += 1;
        active += u64::from(info?.status.state == SandboxState::Running);
    }
    Ok((all, active))
}

async fn df(app: &App) -> Outcome {
    let client = app.client()?;
    let (all, active) = count(app).await?;
    let images = client.images().list().await?;
    let volumes = client.volumes().list().await?.items;
    let snapshots = client.list_snapshots(&Default::default()).await?.pagination;
    let used = |users: Option<u64>| users.is_some_and(|users| users > 0);
    let in_use = images
        .items
        .iter()
        .filter(|image| used(image.users))
        .count() as u64;
    let mounted = volumes
        .iter()
        .filter(|volume| !volume.users.is_empty())
        .count() as u64;
    let usage = images.usage;
    let row = |kind: &str, total: u64, active: Value, size: Option<u64>, free: Option<u64>| {
        let record = Record::new()
            .with("type", kind)
            .with("total", total)
            .with("active", active);
        match app.printer().format() {
            Format::Json | Format::Yaml => record
                .with("size_bytes", size)
                .with("reclaimable_bytes", free),
            _ => record
                .with("size", size.map(bytes))
                .with("reclaimable", free.map(bytes)),
        }
    };
    let rows = [
        row(
            "images",
            images.items.len() as u64,
            in_use.into(),
            usage.map(|usage| usage.layers_bytes),
            usage.map(|usage| usage.reclaimable_bytes),
        ),
        row("sandboxes", all, active.into(), None, None),
        row(
            "snapshots",
            snapshots.total_items,
            Value::Null,
            usage.map(|usage| usage.snapshots_bytes),
            None,
        ),
        row("volumes", volumes.len() as u64, mounted.into(), None, None),
    ];
    let columns = ["type", "total", "active", "size", "reclaimable"];
    app.printer()
        .rows("What the server keeps", &columns, &rows)?;
    Ok(DONE)
}

async fn prune(app: &App, with_volumes: bool, is_forced: bool) -> Outcome {
    if !is_forced {
        let volumes = match with_volumes {
            true => ", and all volumes that no sandbox has mounted, with all they hold",
            false => "",
        };
        confirm(&format!(
            "This removes sandboxes that have ended, images without a name and layers without an \
             image{volumes}."
        ))?;
    }
    let client = app.client()?;
    let query = ListSandboxesQuery {
        states: vec![SandboxState::Terminated, SandboxState::Failed],
        ..ListSandboxesQuery::default()
    };
    let mut ended = Vec::new();
    let mut found = pin!(client.list_all(query));
    while let Some(info) = found.next().await {
        ended.push(info?.id.to_string());
    }
    let sandboxes = ended.len() as u64;
    if !ended.is_empty() {
        kill_all(app, ended, true).await?;
    }
    let mut volumes = 0;
    if with_volumes {
        for volume in client.volumes().list().await?.items {
            if volume.users.is_empty() {
                client.volumes().remove(&volume.name, false).await?;
                volumes += 1;
            }
        }
    }
    let gone = client.images().prune().await?;
    let record = Record::new()
        .with("sandboxes", sandboxes)
        .with("images", gone.images)
        .with("layers", gone.layers)
        .with("volumes", volumes)
        .with("bytes", gone.bytes);
    app.printer().done("Pruned", &record)?;
    Ok(DONE)
}

/// Asks whoever sits at the terminal; where nobody does, nothing is done unasked.
fn confirm(text: &str) -> Result<(), Error> {
    if !terminal::is_interactive() {
        return Err(Error::Usage(format!(
            "{text} Without a terminal say so with --force"
        )));
    }
    let mut err = io::stderr().lock();
    write!(err, "{text}\nGo on? [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Error::Failed {
            message: "nothing was removed".to_owned(),
            next: None,
        }),
    }
}
