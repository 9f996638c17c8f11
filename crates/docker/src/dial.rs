//! Byte streams into a sandbox: to execd's control socket, or through execd to any port inside.
//!
//! No lookup but in memory, and no call of the engine.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use lifecycle::backend::{ConnectError, Stream, Target};
use lifecycle::execd::tunnel;
use secrecy::ExposeSecret as _;
use tokio::net::{TcpStream, UnixStream};

use crate::sandbox::{Reach, Sandbox, State};

/// How long the sandbox's side may take to accept or refuse. A healthy one answers at once.
const ANSWER_MAX: Duration = Duration::from_secs(15);

pub(crate) async fn connect(
    sandbox: &Sandbox,
    target: Target,
) -> Result<Box<dyn Stream>, ConnectError> {
    match sandbox.state() {
        State::Paused => return Err(ConnectError::Paused),
        State::Exited(_) | State::Gone => return Err(ConnectError::Ended),
        State::Made | State::Running => {}
    }
    let reach = sandbox.reach.get().ok_or_else(|| unknown("not started"))?;
    let opened = tokio::time::timeout(ANSWER_MAX, open(sandbox, reach, target)).await;
    opened.unwrap_or_else(|_| Err(ConnectError::Failed("no answer from inside".to_owned())))
}

async fn open(
    sandbox: &Sandbox,
    reach: &Reach,
    target: Target,
) -> Result<Box<dyn Stream>, ConnectError> {
    match (reach, target, &sandbox.token) {
        (Reach::Nowhere(why), ..) => Err(unknown(why)),
        (Reach::Socket(control), Target::Control, _) => Ok(Box::new(dial_socket(control).await?)),
        (Reach::Socket(control), Target::Port(port), Some(token)) => {
            let stream = dial_socket(control).await?;
            tunnel(stream, port, token.expose_secret()).await
        }
        (Reach::Address(ip), Target::Control, _) => {
            Ok(Box::new(dial_address(*ip, api::exec::PORT).await?))
        }
        (Reach::Address(ip), Target::Port(port), Some(token)) => {
            let stream = dial_address(*ip, api::exec::PORT).await?;
            tunnel(stream, port, token.expose_secret()).await
        }
        // Made by another server: its daemon has no tunnel, but what listens on all addresses
        // answers on the network.
        (Reach::Address(ip), Target::Port(port), None) => match dial_address(*ip, port).await {
            Err(ConnectError::Ended) => Err(ConnectError::NotListening(port)),
            other => Ok(Box::new(other?)),
        },
        (Reach::Socket(_), Target::Port(_), None) => Err(unknown("its token is lost")),
    }
}

fn unknown(why: &str) -> ConnectError {
    ConnectError::Failed(why.to_owned())
}

async fn dial_socket(control: &std::os::fd::OwnedFd) -> Result<UnixStream, ConnectError> {
    let path = format!("/proc/self/fd/{}", control.as_raw_fd());
    UnixStream::connect(path)
        .await
        .map_err(|error| told(&error))
}

async fn dial_address(ip: IpAddr, port: u16) -> Result<TcpStream, ConnectError> {
    let stream = TcpStream::connect((ip, port))
        .await
        .map_err(|error| told(&error))?;
    // Events are small and must leave at once.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

fn told(error: &io::Error) -> ConnectError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => ConnectError::Ended,
        _ => ConnectError::Failed(error.to_string()),
    }
}
