//! `osb stats`, `osb top`: what sandboxes use, live. Each sandbox streams its own samples; the
//! table is drawn anew when one arrives.

use std::collections::BTreeMap;

use api::exec::metrics::Metrics;
use api::query::ListSandboxesQuery;
use api::sandbox::SandboxState;
use futures_util::StreamExt as _;
use tokio::sync::mpsc;

use super::{DONE, Outcome};
use crate::app::App;
use crate::args::sandbox::Stats;
use crate::error::Error;
use crate::interrupts::Interrupts;
use crate::output::{Format, Message, Record, write};
use crate::progress::bytes;

const COLUMNS: [&str; 5] = ["id", "cpu", "cores", "memory", "memory_limit"];

const MIB: f64 = 1024.0 * 1024.0;

/// Samples that wait to be drawn; each sandbox sends one a second.
const SAMPLES: usize = 64;

pub(super) async fn run(app: &App, args: &Stats) -> Outcome {
    let printer = app.printer();
    let ids = ids(app, args).await?;
    if ids.is_empty() {
        printer.note(Message::Info, "no sandbox runs")?;
        return Ok(DONE);
    }
    let is_live = !args.no_stream && printer.is_terminal() && printer.format() == Format::Table;
    if !is_live {
        let mut rows = Vec::new();
        for id in &ids {
            let sample = app.sandbox(id).await?.metrics().await?;
            rows.push(match printer.format() {
                Format::Json | Format::Yaml => data_row(id, &sample),
                _ => row(id, &sample),
            });
        }
        printer.rows("Usage", &COLUMNS, &rows)?;
        return Ok(DONE);
    }
    let (send, mut samples) = mpsc::channel(SAMPLES);
    for id in ids {
        let sandbox = app.sandbox(&id).await?;
        let send = send.clone();
        tokio::spawn(async move {
            let Ok(stream) = sandbox.watch_metrics().await else {
                return;
            };
            let mut stream = std::pin::pin!(stream);
            while let Some(Ok(sample)) = stream.next().await {
                if send.send((id.clone(), Some(sample))).await.is_err() {
                    return;
                }
            }
            let _ = send.send((id, None)).await;
        });
    }
    drop(send);
    let mut interrupts = Interrupts::listen()?;
    let mut latest: BTreeMap<String, Metrics> = BTreeMap::new();
    loop {
        let (id, sample) = tokio::select! {
            _ = interrupts.next() => return Ok(DONE),
            sample = samples.recv() => match sample {
                Some(sample) => sample,
                // Every sandbox has ended.
                None => return Ok(DONE),
            },
        };
        match sample {
            Some(sample) => drop(latest.insert(id, sample)),
            None => drop(latest.remove(&id)),
        }
        let rows: Vec<Record> = latest.iter().map(|(id, sample)| row(id, sample)).collect();
        write(&format!(
            "\x1b[H\x1b[2J{}",
            printer.table_text(&COLUMNS, &rows)
        ))?;
    }
}

/// The sandboxes named, else all that run.
async fn ids(app: &App, args: &Stats) -> Result<Vec<String>, Error> {
    if !args.sandbox_ids.is_empty() {
        return app.find_all(&args.sandbox_ids).await;
    }
    let query = ListSandboxesQuery {
        states: vec![SandboxState::Running],
        ..ListSandboxesQuery::default()
    };
    let mut all = std::pin::pin!(app.client()?.list_all(query));
    let mut ids = Vec::new();
    while let Some(info) = all.next().await {
        ids.push(info?.id.to_string());
    }
    Ok(ids)
}

fn row(id: &str, sample: &Metrics) -> Record {
    let mib = |amount: f64| bytes((amount * MIB) as u64);
    Record::new()
        .with("id", id)
        .with("cpu", format!("{:.1}%", sample.cpu_used_pct))
        .with("cores", sample.cpu_count)
        .with("memory", mib(sample.mem_used_mib))
        .with("memory_limit", mib(sample.mem_total_mib))
}

/// A row for programs: numbers, with the unit in the field's name.
fn data_row(id: &str, sample: &Metrics) -> Record {
    Record::new()
        .with("id", id)
        .with("cpu_percent", sample.cpu_used_pct)
        .with("cores", sample.cpu_count)
        .with("memory_bytes", (sample.mem_used_mib * MIB) as u64)
        .with("memory_limit_bytes", (sample.mem_total_mib * MIB) as u64)
}
