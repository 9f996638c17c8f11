//! The routes of sessions.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use api::exec::session::{CreateSessionRequest, CreateSessionResponse, RunInSessionRequest};
use api::id::SessionId;
use axum::Router;
use axum::extract::{Path, State as Extracted};
use axum::response::Response;
use axum::routing::{delete, post};
use http::HeaderMap;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::BufReader;
use tokio::net::unix::pipe;
use tokio::sync::{Notify, mpsc, watch};

use super::shell::{self, Protocol, REPORT_FD};
use super::worker::{self, Shell};
use super::{Run, Session, State};
use crate::command;
use crate::http::{Json, OptionalJson, Problem};
use crate::limits::{self, Reached};
use crate::output::{self, Channel, EventShape, Journal, Pump, Source, StreamStart};
use crate::process::{self, Launch, LaunchError, Process};
use crate::state::{self, Shared};

type Answer<T> = Result<T, Problem>;

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/session", post(create))
        .route("/session/{id}/run", post(run))
        .route("/session/{id}", delete(remove))
        .with_state(shared)
}

async fn create(
    Extracted(shared): Extracted<Arc<Shared>>,
    OptionalJson(request): OptionalJson<CreateSessionRequest>,
) -> Answer<axum::Json<CreateSessionResponse>> {
    let (sender, runs) = mpsc::channel(limits::SESSION_QUEUE);
    let session = Arc::new(Session {
        id: state::fresh_id::<SessionId>(),
        runs: sender,
        interrupted: Notify::new(),
        closed: Notify::new(),
        state: watch::Sender::new(State::Idle),
    });
    shared.sessions.add(&session)?;
    let started = start(&shared, request.cwd).await;
    let shell = started.inspect_err(|_| shared.sessions.remove(&session))?;
    let session_id = session.id.clone();
    tokio::spawn(worker::work(shared, session, shell, runs));
    Ok(axum::Json(CreateSessionResponse { session_id }))
}

async fn run(
    Extracted(shared): Extracted<Arc<Shared>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    Json(request): Json<RunInSessionRequest>,
) -> Answer<Response> {
    let session = shared
        .sessions
        .find(&id)
        .ok_or_else(|| Problem::no_such("session", &id))?;
    let timeout = match request.timeout.unwrap_or(0) {
        0 => None,
        milliseconds => Some(Duration::from_millis(u64::try_from(milliseconds).map_err(
            |_| Problem::bad_request("timeout is in milliseconds and cannot be negative"),
        )?)),
    };
    if request.command.is_empty() || request.command.contains('\0') {
        return Err(Problem::bad_request(
            "command is empty or contains a NUL byte",
        ));
    }
    let cwd = check_cwd(&shared, request.cwd).await?;
    let journal = Journal::new(Arc::clone(&shared.spool));
    let start = StreamStart {
        id: session.id.to_string(),
        started_ms: jiff::Timestamp::now().as_millisecond(),
        shape: EventShape::of(&headers),
        after: 0,
        is_detached: false,
    };
    // Attached before it can run, so that no output is dropped before the client sees it.
    let response = output::respond(&journal, &start)?;
    let run = Run {
        code: request.command,
        cwd,
        timeout,
        journal,
    };
    session.runs.try_send(run).map_err(|error| match error {
        mpsc::error::TrySendError::Full(_) => Problem::from(Reached {
            name: "SESSION_QUEUE",
            value: limits::SESSION_QUEUE,
            advice: "wait for a run in this session to end, or use another session",
        }),
        mpsc::error::TrySendError::Closed(_) => Problem::no_such("session", &id),
    })?;
    Ok(response)
}

async fn remove(Extracted(shared): Extracted<Arc<Shared>>, Path(id): Path<String>) -> Answer<()> {
    let session = shared
        .sessions
        .find(&id)
        .ok_or_else(|| Problem::no_such("session", &id))?;
    session.close().await;
    Ok(())
}

/// A directory written absolutely must exist; any other is for the shell to find, from
/// where it is.
async fn check_cwd(shared: &Arc<Shared>, cwd: Option<String>) -> Answer<Option<String>> {
    let Some(cwd) = cwd.filter(|cwd| !cwd.is_empty()) else {
        return Ok(None);
    };
    let shared = Arc::clone(shared);
    let checked = tokio::task::spawn_blocking(move || {
        let path = crate::path::expand(&cwd, &shared.environment)
            .map_err(|error| Problem::bad_request(format!("cwd is not usable: {error}")))?;
        if path.is_absolute() {
            command::directory(&cwd, &shared.environment)
                .map_err(|error| Problem::bad_request(error.to_string()))?;
        }
        Ok(Some(path.to_string_lossy().into_owned()))
    });
    checked
        .await
        .expect("looking at a directory does not panic")
}

async fn start(shared: &Arc<Shared>, cwd: Option<String>) -> Answer<Shell> {
    let prepared = {
        let shared = Arc::clone(shared);
        tokio::task::spawn_blocking(move || launch(&shared, cwd))
    };
    let (process, ends) = prepared.await.expect("starting a shell does not panic")?;
    let mut shell = assemble(shared, process, ends)
        .map_err(|error| Problem::runtime(format!("the shell's pipes are not usable: {error}")))?;
    shell.greet().await.map_err(|exit| {
        Problem::runtime(format!(
            "the shell ended at once, with status {}",
            exit.shell_code()
        ))
    })?;
    Ok(shell)
}

/// The daemon's ends of the shell's pipes.
struct PipeEnds {
    commands: std::os::fd::OwnedFd,
    reports: std::os::fd::OwnedFd,
    stdout: std::os::fd::OwnedFd,
    stderr: std::os::fd::OwnedFd,
}

fn launch(shared: &Arc<Shared>, cwd: Option<String>) -> Answer<(Process, PipeEnds)> {
    let mut environment = command::environment(shared, &[]);
    for name in shell::UNWANTED {
        environment.remove(name);
    }
    environment.set("PS1", "");
    environment.set("PS2", "");
    let directory = cwd
        .filter(|cwd| !cwd.is_empty())
        .map(|cwd| command::directory(&cwd, &environment))
        .transpose()
        .map_err(|error| Problem::bad_request(error.to_string()))?;
    let failed = |error: LaunchError| Problem::runtime(api::error_chain(&error).to_string());
    let program = process::find_shell(&environment).map_err(failed)?;
    let is_bash = program.file_name().is_some_and(|name| name == "bash");
    let mut argv = vec![program.into_os_string()];
    argv.extend(shell::arguments(is_bash).iter().map(OsString::from));
    let pipe = || {
        pipe_with(PipeFlags::CLOEXEC)
            .map_err(|error| failed(LaunchError::Descriptors(error.into())))
    };
    let ((stdin, commands), (reports, report)) = (pipe()?, pipe()?);
    let ((stdout, output), (stderr, errors)) = (pipe()?, pipe()?);
    let launch = Launch {
        argv,
        environment,
        directory,
        identity: None,
        stdio: [stdin, output, errors],
        descriptors: vec![(report, REPORT_FD)],
        takes_terminal: false,
    };
    let process = shared.processes.launch_blocking(launch).map_err(failed)?;
    Ok((
        process,
        PipeEnds {
            commands,
            reports,
            stdout,
            stderr,
        },
    ))
}

fn assemble(shared: &Arc<Shared>, process: Process, ends: PipeEnds) -> std::io::Result<Shell> {
    for fd in [&ends.commands, &ends.reports] {
        rustix::io::ioctl_fionbio(fd, true)?;
    }
    let between = Journal::new(Arc::clone(&shared.spool));
    let sources = vec![
        Source::new(Channel::Stdout, ends.stdout)?,
        Source::new(Channel::Stderr, ends.stderr)?.holding(shell::FAREWELL),
    ];
    Ok(Shell {
        process,
        protocol: Protocol::new(),
        commands: pipe::Sender::from_owned_fd(ends.commands)?,
        reports: BufReader::new(pipe::Receiver::from_owned_fd(ends.reports)?),
        pump: Pump::new(Arc::clone(&between), sources),
        spool: Arc::clone(&shared.spool),
        between,
        line: Vec::new(),
    })
}
