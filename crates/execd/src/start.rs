//! From arguments to a serving daemon, by the shortest way: the budget from exec to
//! answering is three milliseconds.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use rustix::fs::MemfdFlags;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, setrlimit};

use crate::args::{self, ENVS_VARIABLE, Options, TOKEN_VARIABLE};
use crate::command::Commands;
use crate::handoff::{self, Handoff, Message};
use crate::http::{App, Token};
use crate::identity::Accounts;
use crate::init::Signals;
use crate::path::Environment;
use crate::process::{DEFAULT_PATH, Processes};
use crate::pty::Ptys;
use crate::session::Sessions;
use crate::state::Shared;
use crate::sys::spawn::{OomScore, Restore};
use crate::{code, init, install, log, sys};

/// Descriptors the daemon wants: all commands, sessions, terminals and connections at
/// their limits.
const OPEN_FILES: u64 = 16 * 1024;

/// Far below the workload's 0, above what only the machine's own services have.
const OOM_SCORE: &str = "-900";

/// Why the daemon could not start.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("descriptor {fd} given with {option} cannot be used")]
    Descriptor {
        option: &'static str,
        fd: i32,
        source: io::Error,
    },
    #[error("the access token could not be read")]
    Token { source: io::Error },
    #[error(
        "what the backend hands over could not be had from {path}; a sandbox is started by its backend only"
    )]
    Handoff { path: String, source: io::Error },
    #[error("TCP port {port} could not be bound, and there is no unix socket to serve")]
    Port { port: u16, source: io::Error },
    #[error("the unix socket {path} could not be bound")]
    Path { path: String, source: io::Error },
    #[error("nothing to listen on: give --listen-fd, --listen-path or a --port other than 0")]
    NoListener,
    #[error(
        "execd could not start over without the token in its environment; give it with --token-fd"
    )]
    Restart { source: io::Error },
    #[error("execd could not be installed in {path}")]
    Install { path: String, source: io::Error },
    #[error("the event loop could not be made")]
    Runtime { source: io::Error },
}

/// Runs the daemon until it is told to end.
pub fn run(options: Options) -> ExitCode {
    log::start();
    match serve(options) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!(error = %api::error_chain(&error), "execd cannot start");
            ExitCode::FAILURE
        }
    }
}

fn serve(mut options: Options) -> Result<ExitCode, Error> {
    if let Some(token) = options.exposed_token.take() {
        return Err(hide_token(&token));
    }
    if let Some(to) = &options.install {
        let installed = install::install(to, options.handoff.as_deref());
        let failed = |source| Error::Install {
            path: to.display().to_string(),
            source,
        };
        return installed.map(|()| ExitCode::SUCCESS).map_err(failed);
    }
    sys::use_one_arena();
    sys::close_on_exec_from_three();
    // Commands run as the same user: without this they could take the daemon's memory and
    // descriptors, the host's log file among them. Nothing can refuse it.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let mut handoff = options.handoff.as_deref().map(take_over).transpose()?;
    let token = match &handoff {
        Some(handoff) => Token::new(handoff.message.token.as_bytes()),
        None => read_token(&options)?,
    };
    let mut unix = unix_listeners(&options)?;
    if let Some(listener) = handoff.as_mut().and_then(|handoff| handoff.listener.take()) {
        unix.push(ready_listener(listener).map_err(runtime_error)?);
    }
    let tcp = tcp_listener(&options, unix.is_empty())?;
    if unix.is_empty() && tcp.is_none() {
        return Err(Error::NoListener);
    }
    // Before any thread exists, because threads inherit what it blocks.
    let signals = options
        .init
        .then(Signals::block)
        .transpose()
        .map_err(runtime_error)?;
    let given = handoff.as_ref().map(|handoff| &handoff.message);
    let shared = Arc::new(share(&options, given)?);
    let app = App::new(&shared, token);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(runtime_error)?;
    runtime.block_on(async {
        for listener in unix {
            let listener = tokio::net::UnixListener::from_std(listener).map_err(runtime_error)?;
            tokio::spawn(app.clone().serve_unix(listener));
        }
        if let Some(listener) = tcp {
            let listener = tokio::net::TcpListener::from_std(listener).map_err(runtime_error)?;
            tokio::spawn(app.clone().serve_tcp(listener));
        }
        if let Some(handoff) = &mut handoff {
            Handoff::serving(handoff.connection());
        }
        let prober = Arc::clone(&shared);
        tokio::spawn(async move { code::answer_probe(&prober).await });
        match signals {
            Some(signals) => init::run(&shared, signals, options)
                .await
                .map_err(runtime_error),
            None => std::future::pending().await,
        }
    })
}

fn runtime_error(source: io::Error) -> Error {
    Error::Runtime { source }
}

/// A token on the command line or in the environment can be read by every process of the
/// same user through /proc, for as long as the daemon runs. Starting over with the token
/// in a descriptor erases it from both. Returns only when that failed.
fn hide_token(token: &OsStr) -> Error {
    let held = || {
        // Not close-on-exec: the next image of this program reads it.
        let memory = rustix::fs::memfd_create("token", MemfdFlags::empty())?;
        let mut file = File::from(memory);
        file.write_all(token.as_bytes())?;
        file.rewind()?;
        io::Result::Ok(file)
    };
    let file = match held() {
        Ok(file) => file,
        Err(source) => return Error::Token { source },
    };
    let mut arguments = args::without_token(std::env::args_os().skip(1));
    let at = arguments
        .iter()
        .position(|argument| argument == "--")
        .unwrap_or(arguments.len());
    let option = OsString::from(format!("--token-fd={}", file.as_raw_fd()));
    arguments.insert(at, option);
    let source = Command::new("/proc/self/exe")
        .arg0(std::env::args_os().next().unwrap_or_else(|| "execd".into()))
        .args(arguments)
        .env_remove(TOKEN_VARIABLE)
        .exec();
    Error::Restart { source }
}

fn share(options: &Options, given: Option<&Message>) -> Result<Shared, Error> {
    let mut environment = Environment::inherited(&[TOKEN_VARIABLE]);
    for (name, value) in given.iter().flat_map(|given| &given.env) {
        environment.set(name, value);
    }
    if environment.get("PATH").is_none() {
        environment.set("PATH", DEFAULT_PATH);
    }
    if environment.get("HOME").is_none() {
        let accounts = Accounts::load();
        let user = accounts.user(rustix::process::geteuid().as_raw());
        environment.set("HOME", user.map_or("/".into(), |user| user.home.clone()));
    }
    // Clients append variables through a command that finds the file by this name.
    environment.set(ENVS_VARIABLE, &options.envs_file);
    let before = raise_open_files();
    let limit = given.and_then(|given| given.open_files);
    let restore = Restore {
        open_files: limit.map(|limit| (limit, limit)).or(before),
        oom_score: options.init.then(children_oom_score).flatten(),
    };
    Ok(Shared {
        environment,
        envs_file: options.envs_file.clone(),
        processes: Processes::new(restore).map_err(runtime_error)?,
        spool: Arc::default(),
        commands: Commands::new(),
        sessions: Sessions::default(),
        ptys: Ptys::default(),
    })
}

/// Takes all descriptors the daemon may have: every command needs four. Returns what the
/// limit was, which commands get back.
fn raise_open_files() -> Option<(u64, u64)> {
    let limit = getrlimit(Resource::Nofile);
    let (soft, hard) = (limit.current?, limit.maximum?);
    let wanted = hard.min(OPEN_FILES);
    if wanted <= soft {
        return None;
    }
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(wanted),
            maximum: Some(hard),
        },
    )
    .ok()?;
    Some((soft, hard))
}

/// What children have as their score for the OOM killer: when the sandbox runs out of memory the
/// workload must go, not the daemon that reports it. The daemon takes the protection that it may
/// have; where it may have none, as in a sandbox whose processes all go before the machine's own,
/// its children go before it, which needs no privilege.
fn children_oom_score() -> Option<OomScore> {
    const FILE: &str = "/proc/self/oom_score_adj";
    /// More than any share of the limit that the daemon itself could use.
    const BEFORE_THE_DAEMON: i16 = 500;
    if std::fs::write(FILE, OOM_SCORE).is_ok() {
        return Some(OomScore::new(0));
    }
    let own: i16 = std::fs::read_to_string(FILE).ok()?.trim().parse().ok()?;
    Some(match own {
        ..0 => OomScore::new(0),
        own => OomScore::new(own.saturating_add(BEFORE_THE_DAEMON)),
    })
}

fn read_token(options: &Options) -> Result<Token, Error> {
    let Some(fd) = options.token_fd else {
        return Ok(Token::new(&[]));
    };
    let owned = sys::inherited(fd).map_err(|source| Error::Descriptor {
        option: "--token-fd",
        fd,
        source,
    })?;
    let mut token = Vec::new();
    File::from(owned)
        .read_to_end(&mut token)
        .map_err(|source| Error::Token { source })?;
    Ok(Token::new(&token))
}

fn unix_listeners(options: &Options) -> Result<Vec<UnixListener>, Error> {
    let mut listeners = Vec::new();
    if let Some(fd) = options.listen_fd {
        let failed = |source| Error::Descriptor {
            option: "--listen-fd",
            fd,
            source,
        };
        let inherited = sys::inherited(fd).map_err(failed)?;
        listeners.push(ready_listener(inherited).map_err(failed)?);
    }
    if let Some(path) = &options.listen_path {
        let bound = UnixListener::bind(path)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
        listeners.push(bound.map_err(|source| Error::Path {
            path: path.display().to_string(),
            source,
        })?);
    }
    Ok(listeners)
}

fn ready_listener(fd: OwnedFd) -> io::Result<UnixListener> {
    let listener = UnixListener::from(fd);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn take_over(path: &Path) -> Result<Handoff, Error> {
    handoff::receive(path).map_err(|source| Error::Handoff {
        path: path.display().to_string(),
        source,
    })
}

/// With a unix socket at hand a taken port is a warning: the control plane does not need
/// it, and user code may have its own reasons to listen there.
fn tcp_listener(options: &Options, is_only: bool) -> Result<Option<TcpListener>, Error> {
    let Some(port) = options.port else {
        return Ok(None);
    };
    let bound = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    match bound {
        Ok(listener) => Ok(Some(listener)),
        Err(source) if is_only => Err(Error::Port { port, source }),
        Err(error) => {
            tracing::warn!(port, error = %api::error_chain(&error), "the TCP port could not be bound; serving the unix socket only");
            Ok(None)
        }
    }
}
