//! The end of a sandbox's log, from the kubelet through the API server, within the limits asked for.

use std::sync::Arc;

use api::error_chain;
use futures_util::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use lifecycle::backend::{Error, LOG_PIECES, LogQuery, Logs};
use lifecycle::execd::SERVING;
use lifecycle::log_tail::{Tail, split_time};
use tokio::sync::mpsc;

use crate::call::{CallError, Cluster};
use crate::names::CONTAINER;
use crate::sandbox::{Sandbox, is_over};

/// How long the watch may tell of an end after the log has ended.
const END_MAX: std::time::Duration = std::time::Duration::from_secs(10);

/// A line that is longer is given out in pieces.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// More than execd says before anything else runs.
const FIRST_BYTES: i64 = 16 * 1024;

fn params() -> LogParams {
    LogParams {
        container: Some(CONTAINER.to_owned()),
        timestamps: true,
        ..LogParams::default()
    }
}

pub(crate) async fn read(
    cluster: &Cluster,
    sandbox: &Sandbox,
    query: LogQuery,
) -> Result<Logs, Error> {
    let params = LogParams {
        // One more than asked for tells whether there was more, and execd's own line does not count.
        tail_lines: Some(i64::try_from(query.tail_lines.saturating_add(2)).unwrap_or(i64::MAX)),
        since_time: query.since,
        ..params()
    };
    match whole(cluster, &sandbox.name, &params, Tail::new(query)).await {
        Ok(kept) => Ok(kept.finish()),
        // The container has not been started.
        Err(failure) if failure.status() == Some(400) => Ok(Logs::default()),
        Err(failure) if failure.status() == Some(404) => Err(Error::NotFound(sandbox.id.clone())),
        Err(failure) => Err(Error::Io {
            action: format!("reading the log of sandbox {}", sandbox.id),
            source: std::io::Error::other(error_chain(&failure).to_string()),
        }),
    }
}

async fn whole(
    cluster: &Cluster,
    pod: &str,
    params: &LogParams,
    mut kept: Tail,
) -> Result<Tail, CallError> {
    const ACTION: &str = "reading a log";
    let api: Api<Pod> = cluster.api();
    let read = async {
        let mut stream = std::pin::pin!(api.log_stream(pod, params).await?);
        let mut piece = vec![0; 64 * 1024];
        loop {
            let count = stream.read(&mut piece).await;
            match count.map_err(kube::Error::ReadEvents)? {
                0 => return Ok(kept),
                count => kept.take(&piece[..count]),
            }
        }
    };
    cluster.call(ACTION, read).await
}

/// Whether a log has this line near its beginning.
pub(crate) async fn has_line(cluster: &Cluster, pod: &str, line: &str) -> Result<bool, Error> {
    let params = LogParams {
        timestamps: false,
        limit_bytes: Some(FIRST_BYTES),
        ..params()
    };
    let api: Api<Pod> = cluster.api();
    match cluster.call("reading a log", api.logs(pod, &params)).await {
        Ok(text) => Ok(text.lines().any(|it| it == line.trim_end())),
        Err(failure) if matches!(failure.status(), Some(400 | 404)) => Ok(false),
        Err(failure) => Err(failure.into_error()),
    }
}

/// The newest lines and what comes, until the sandbox has ended and its last words were given.
pub(crate) fn follow(
    cluster: &Cluster,
    sandbox: &Arc<Sandbox>,
    query: LogQuery,
) -> mpsc::Receiver<String> {
    let (send, pieces) = mpsc::channel(LOG_PIECES);
    let (cluster, sandbox) = (cluster.clone(), sandbox.clone());
    tokio::spawn(async move {
        let told = tokio::select! {
            told = tell(&cluster, &sandbox, query, &send) => told,
            () = send.closed() => return,
        };
        if let Err(error) = told {
            tracing::warn!(sandbox_id = %sandbox.id, error = %error_chain(&error), "a log is no longer followed");
        }
    });
    pieces
}

async fn tell(
    cluster: &Cluster,
    sandbox: &Sandbox,
    query: LogQuery,
    send: &mpsc::Sender<String>,
) -> kube::Result<()> {
    let api: Api<Pod> = cluster.api();
    let mut last = None;
    loop {
        let was_over = is_over(&sandbox.seen());
        let mut params = LogParams {
            follow: !was_over,
            ..params()
        };
        match last {
            // Whole seconds are all that the kubelet takes; what was told already is left out here.
            Some(last) => params.since_time = Some(last),
            None => params.tail_lines = i64::try_from(query.tail_lines).ok(),
        }
        match api.log_stream(&sandbox.name, &params).await {
            Ok(stream) => pass_on(stream, &mut last, send).await?,
            // Removed, or not started yet.
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 400 => {}
            Err(error) => return Err(error),
        }
        if was_over || send.is_closed() {
            return Ok(());
        }
        // The stream ends with the container, or with the API server's patience; what is in the log when the end
        // was told is all.
        let _ = sandbox.until(END_MAX, is_over).await;
    }
}

/// Passes on what was written after `last`, which moves on.
async fn pass_on(
    stream: impl AsyncBufRead,
    last: &mut Option<Timestamp>,
    send: &mpsc::Sender<String>,
) -> kube::Result<()> {
    let mut stream = std::pin::pin!(stream);
    let before = *last;
    let mut line = Vec::new();
    let mut is_inside = false;
    let mut is_told = false;
    loop {
        line.clear();
        let limited = &mut stream.as_mut().take(LINE_BYTES_MAX);
        let read = limited.read_until(b'\n', &mut line).await;
        if read.map_err(kube::Error::ReadEvents)? == 0 {
            return Ok(());
        }
        let text = if is_inside {
            &line[..]
        } else {
            let (time, text) = split_time(&line);
            // The daemon's own word to the backend is for nobody else.
            is_told = (time.is_none() || time > before) && text != SERVING.as_bytes();
            *last = time.max(*last);
            text
        };
        is_inside = !line.ends_with(b"\n");
        if is_told
            && send
                .send(String::from_utf8_lossy(text).into_owned())
                .await
                .is_err()
        {
            return Ok(());
        }
    }
}
