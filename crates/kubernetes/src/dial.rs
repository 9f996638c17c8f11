//! Byte streams into a sandbox: to execd at the pod's address, or through execd to any port inside.
//!
//! No lookup but in memory, and no call of the API server. The server must be able to reach pods, as everything in
//! the cluster can.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use lifecycle::backend::{ConnectError, Stream, Target};
use lifecycle::execd::tunnel;
use secrecy::ExposeSecret as _;
use tokio::net::TcpStream;

use crate::sandbox::Sandbox;
use crate::status::State;

/// How long the sandbox's side may take to accept or refuse. A healthy one answers at once.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// Waits between attempts to reach an execd that was just started: it serves within milliseconds, and a port that
/// begins to listen tells nobody.
const AGAIN_MIN: Duration = Duration::from_millis(2);
const AGAIN_MAX: Duration = Duration::from_millis(200);

pub(crate) async fn connect(
    sandbox: &Sandbox,
    target: Target,
) -> Result<Box<dyn Stream>, ConnectError> {
    let seen = sandbox.seen();
    let failed = |why: &str| ConnectError::Failed(why.to_owned());
    match seen.state {
        State::Exited(_) | State::Gone => return Err(ConnectError::Ended),
        State::Pending => return Err(failed("its pod has not started yet")),
        State::Running => {}
    }
    let address = seen
        .address
        .ok_or_else(|| failed("its pod has no address"))?;
    let opened = tokio::time::timeout(ANSWER_MAX, open(sandbox, address, target)).await;
    opened.unwrap_or_else(|_| Err(failed("no answer from the pod's address")))
}

async fn open(
    sandbox: &Sandbox,
    address: IpAddr,
    target: Target,
) -> Result<Box<dyn Stream>, ConnectError> {
    match (target, &sandbox.token) {
        (Target::Control, _) => Ok(Box::new(dial(address, api::exec::PORT).await?)),
        (Target::Port(port), Some(token)) => {
            let stream = dial(address, api::exec::PORT).await?;
            tunnel(stream, port, token.expose_secret()).await
        }
        // Its Secret is lost, and with it the way through execd; what listens on all addresses still answers.
        (Target::Port(port), None) => match dial(address, port).await {
            Err(ConnectError::Ended) => Err(ConnectError::NotListening(port)),
            other => Ok(Box::new(other?)),
        },
    }
}

async fn dial(address: IpAddr, port: u16) -> Result<TcpStream, ConnectError> {
    let stream = TcpStream::connect((address, port)).await;
    let stream = stream.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => ConnectError::Ended,
        _ => ConnectError::Failed(error.to_string()),
    })?;
    // Events are small and must leave at once.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Waits until execd accepts connections; `false` where the pod has no address. The caller bounds it.
pub(crate) async fn until_served(sandbox: &Sandbox) -> bool {
    let Some(address) = sandbox.address() else {
        return false;
    };
    let mut wait = AGAIN_MIN;
    while dial(address, api::exec::PORT).await.is_err() {
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(AGAIN_MAX);
    }
    true
}
