//! `osb bench`: how fast this server makes, reaches and removes sandboxes, as a client sees it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use opensandbox::Client;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::{DONE, Outcome};
use crate::app::App;
use crate::args::local::Bench;
use crate::error::Error;
use crate::output::{Record, Value};
use crate::progress::Progress;

const COLUMNS: [&str; 6] = ["step", "count", "p50_ms", "p90_ms", "p99_ms", "max_ms"];

/// A file of this size is written and read.
const FILE_BYTES: usize = 1024 * 1024;

/// How long each step of one sandbox took.
struct Times {
    create: Duration,
    first_command: Duration,
    next_command: Duration,
    write_file: Duration,
    read_file: Duration,
    kill: Duration,
}

pub(super) async fn run(app: &App, args: &Bench) -> Outcome {
    let printer = app.printer();
    let client = app.client()?.clone();
    // The first sandbox may wait for its image, which is not what is measured.
    once(&client, &args.image).await?;
    let room = Arc::new(Semaphore::new(args.concurrency as usize));
    let mut progress = Progress::new("sandboxes", Some(args.count.into()), true);
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..args.count {
        let (client, image, room) = (client.clone(), args.image.clone(), Arc::clone(&room));
        tasks.spawn(async move {
            let _permit = room.acquire().await.expect("never closed");
            once(&client, &image).await
        });
    }
    let mut all = Vec::new();
    while let Some(done) = tasks.join_next().await {
        all.push(done.map_err(|error| std::io::Error::other(error.to_string()))??);
        progress.set(all.len() as u64);
    }
    let took = began.elapsed();
    drop(progress);
    let rows: Vec<Record> = [
        ("create", all.iter().map(|it| it.create).collect::<Vec<_>>()),
        (
            "first command",
            all.iter().map(|it| it.first_command).collect(),
        ),
        (
            "next command",
            all.iter().map(|it| it.next_command).collect(),
        ),
        ("write 1 MiB", all.iter().map(|it| it.write_file).collect()),
        ("read 1 MiB", all.iter().map(|it| it.read_file).collect()),
        ("kill", all.iter().map(|it| it.kill).collect()),
    ]
    .into_iter()
    .map(|(step, times)| row(step, times))
    .collect();
    printer.rows("Benchmark", &COLUMNS, &rows)?;
    let rate = f64::from(args.count) / took.as_secs_f64();
    let text = format!(
        "{rate:.1} whole lives a second, {} at once",
        args.concurrency
    );
    printer.note(crate::output::Message::Info, &text)?;
    Ok(DONE)
}

async fn once(client: &Client, image: &str) -> Result<Times, Error> {
    let (sandbox, create) = timed(async { client.create(image).await }).await?;
    let steps = async {
        let command = || async { sandbox.commands().exec(["true"]).await };
        let (_, first_command) = timed(command()).await?;
        let (_, next_command) = timed(command()).await?;
        let files = sandbox.files();
        let contents = vec![b'x'; FILE_BYTES];
        let (_, write_file) = timed(files.write("/tmp/osb-bench", contents)).await?;
        let (_, read_file) = timed(files.read("/tmp/osb-bench")).await?;
        Ok::<_, Error>((first_command, next_command, write_file, read_file))
    };
    let steps = steps.await;
    let (_, kill) = timed(sandbox.kill()).await?;
    let (first_command, next_command, write_file, read_file) = steps?;
    Ok(Times {
        create,
        first_command,
        next_command,
        write_file,
        read_file,
        kill,
    })
}

async fn timed<T>(
    work: impl Future<Output = Result<T, opensandbox::Error>>,
) -> Result<(T, Duration), Error> {
    let began = Instant::now();
    let value = work.await?;
    Ok((value, began.elapsed()))
}

fn row(step: &str, mut times: Vec<Duration>) -> Record {
    times.sort();
    let at = |part: f64| {
        let index = ((times.len() as f64 * part).ceil() as usize).clamp(1, times.len()) - 1;
        let milliseconds = times[index].as_secs_f64() * 1000.0;
        Value::Float((milliseconds * 100.0).round() / 100.0)
    };
    Record::new()
        .with("step", step)
        .with("count", times.len() as u64)
        .with("p50_ms", at(0.5))
        .with("p90_ms", at(0.9))
        .with("p99_ms", at(0.99))
        .with("max_ms", at(1.0))
}
