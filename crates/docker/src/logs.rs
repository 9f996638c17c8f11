//! The end of a sandbox's log, from the engine, within the limits asked for.

use std::sync::Arc;

use api::error_chain;
use bollard::container::LogOutput;
use bollard::query_parameters::LogsOptionsBuilder;
use futures_util::{Stream, StreamExt as _};
use jiff::Timestamp;
use lifecycle::backend::{Error, LOG_PIECES, LogQuery, Logs};
use lifecycle::execd::SERVING;
use lifecycle::log_tail::{Tail, split_time};
use tokio::sync::mpsc;

use crate::engine::{Engine, EngineError};
use crate::sandbox::{EVENT_MAX, Sandbox, State};

pub(crate) async fn read(
    engine: &Engine,
    sandbox: &Sandbox,
    query: LogQuery,
) -> Result<Logs, Error> {
    // One more than asked for tells whether there was more.
    let tail = query.tail_lines.saturating_add(1).to_string();
    let mut options = LogsOptionsBuilder::default()
        .stdout(true)
        .stderr(true)
        .timestamps(true)
        .tail(&tail);
    if let Some(since) = query.since {
        // Whole seconds are all that the engine takes; the rest is filtered here.
        options = options.since(i32::try_from(since.as_second()).unwrap_or(i32::MAX));
    }
    let reports = engine.api.logs(&sandbox.container, Some(options.build()));
    let read = async {
        let mut reports = std::pin::pin!(reports);
        let mut kept = Tail::new(query);
        while let Some(report) = reports.next().await {
            kept.take(&report?.into_bytes());
        }
        Ok(kept.finish())
    };
    let done = engine.call("reading a log", read).await;
    done.map_err(|failure| match failure {
        EngineError::Refused { status: 404, .. } => Error::NotFound(sandbox.id.clone()),
        other => Error::Io {
            action: format!("reading the log of sandbox {}", sandbox.id),
            source: std::io::Error::other(error_chain(&other).to_string()),
        },
    })
}

/// The newest lines and what comes, until the container has ended and its last words were given.
pub(crate) fn follow(
    engine: &Engine,
    sandbox: &Arc<Sandbox>,
    query: LogQuery,
) -> mpsc::Receiver<String> {
    let (send, pieces) = mpsc::channel(LOG_PIECES);
    let (engine, sandbox) = (engine.clone(), sandbox.clone());
    tokio::spawn(async move {
        let told = tokio::select! {
            told = tell(&engine, &sandbox, query, &send) => told,
            () = send.closed() => return,
        };
        if let Err(error) = told {
            tracing::warn!(sandbox_id = %sandbox.id, error = %error_chain(&error), "a log is no longer followed");
        }
    });
    pieces
}

async fn tell(
    engine: &Engine,
    sandbox: &Sandbox,
    query: LogQuery,
    send: &mpsc::Sender<String>,
) -> Result<(), bollard::errors::Error> {
    let options = || {
        LogsOptionsBuilder::default()
            .stdout(true)
            .stderr(true)
            .timestamps(true)
    };
    let tail = query.tail_lines.to_string();
    let followed = options().follow(true).tail(&tail).build();
    let mut last = None;
    let reports = engine.api.logs(&sandbox.container, Some(followed));
    pass_on(reports, &mut last, send).await?;
    // The engine ends the stream with the container, and at times before a last line that has no line
    // break. What is in its log when it has told of the end is all.
    let is_over = |state: &State| matches!(state, State::Exited(_) | State::Gone);
    let _ = sandbox.until(EVENT_MAX, is_over).await;
    if sandbox.state() == State::Gone {
        return Ok(());
    }
    let rest = match last {
        // Whole seconds are all that the engine takes; what was told already is left out here.
        Some(last) => options().since(i32::try_from(last.as_second()).unwrap_or(i32::MAX)),
        None => options().tail(&tail),
    };
    let reports = engine.api.logs(&sandbox.container, Some(rest.build()));
    match pass_on(reports, &mut last, send).await {
        // Removed at the same moment.
        Err(bollard::errors::Error::DockerResponseServerError {
            status_code: 404 | 409,
            ..
        }) => Ok(()),
        other => other,
    }
}

/// Passes on what was written after `last`, which moves on.
async fn pass_on(
    reports: impl Stream<Item = Result<LogOutput, bollard::errors::Error>>,
    last: &mut Option<Timestamp>,
    send: &mpsc::Sender<String>,
) -> Result<(), bollard::errors::Error> {
    let mut reports = std::pin::pin!(reports);
    let before = *last;
    while let Some(report) = reports.next().await {
        let report = report?.into_bytes();
        let (time, text) = split_time(&report);
        if time.is_some() && time <= before {
            continue;
        }
        *last = time.max(*last);
        // The daemon's own word to the backend; the engine hands out lines one by one.
        if text == SERVING.as_bytes() {
            continue;
        }
        let text = String::from_utf8_lossy(text).into_owned();
        if send.send(text).await.is_err() {
            break;
        }
    }
    Ok(())
}
