//! From arguments to a serving daemon, by the shortest way: the budget from exec to
//! answering is three milliseconds.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixListener;
use std::process::ExitCode;
use std::sync::Arc;

use crate::args::{ENVS_VARIABLE, Options, TOKEN_VARIABLE};
use crate::command::Commands;
use crate::http::{App, Token};
use crate::path::Environment;
use crate::process::Processes;
use crate::state::Shared;
use crate::{log, sys};

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
    #[error("TCP port {port} could not be bound, and there is no unix socket to serve")]
    Port { port: u16, source: io::Error },
    #[error("the unix socket {path} could not be bound")]
    Path { path: String, source: io::Error },
    #[error("nothing to listen on: give --listen-fd, --listen-path or a --port other than 0")]
    NoListener,
    #[error("the event loop could not be made")]
    Runtime { source: io::Error },
}

/// Runs the daemon until it is told to end.
pub fn run(options: Options) -> ExitCode {
    log::start();
    match serve(&options) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!(error = log::chain(&error), "execd cannot start");
            ExitCode::FAILURE
        }
    }
}

fn serve(options: &Options) -> Result<ExitCode, Error> {
    let token = read_token(options)?;
    let unix = unix_listeners(options)?;
    let tcp = tcp_listener(options, unix.is_empty())?;
    if unix.is_empty() && tcp.is_none() {
        return Err(Error::NoListener);
    }
    let shared = Arc::new(share(options)?);
    let app = App::new(&shared, token);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| Error::Runtime { source })?;
    runtime.block_on(async {
        for listener in unix {
            let listener = tokio::net::UnixListener::from_std(listener)
                .map_err(|source| Error::Runtime { source })?;
            tokio::spawn(app.clone().serve_unix(listener));
        }
        if let Some(listener) = tcp {
            let listener = tokio::net::TcpListener::from_std(listener)
                .map_err(|source| Error::Runtime { source })?;
            tokio::spawn(app.clone().serve_tcp(listener));
        }
        std::future::pending::<Result<ExitCode, Error>>().await
    })
}

fn share(options: &Options) -> Result<Shared, Error> {
    let mut environment = Environment::inherited(&[TOKEN_VARIABLE]);
    // Clients append variables through a command that finds the file by this name.
    environment.set(ENVS_VARIABLE, &options.envs_file);
    let restore = sys::spawn::Restore::default();
    Ok(Shared {
        environment,
        envs_file: options.envs_file.clone(),
        processes: Processes::new(restore).map_err(|source| Error::Runtime { source })?,
        spool: Arc::default(),
        commands: Commands::new(),
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
        let listener = UnixListener::from(sys::inherited(fd).map_err(failed)?);
        listener.set_nonblocking(true).map_err(failed)?;
        listeners.push(listener);
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
            tracing::warn!(port, %error, "the TCP port could not be bound; serving the unix socket only");
            Ok(None)
        }
    }
}
