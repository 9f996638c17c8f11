//! The connections of sandboxes: each is judged, dialled and carried, or reset.
//!
//! Where a rule is about the address, that decides. Else the name does: of TLS the one in the ClientHello,
//! of HTTP the Host. The gate looks it up itself and dials what it found, so neither the address that the
//! sandbox chose nor one that the name had earlier matters. A protocol that says no name passes to an
//! address that the sandbox was told for a name it may reach, and not at the ports of HTTP and TLS.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use api::egress::policy::PolicyAction;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::judge::{Judge, Port};
use crate::relay::{pour, reset};
use crate::sandbox::{Claim, Flow, Sandbox};
use crate::serve::Shared;
use crate::sniff::{self, First};

/// How long a client may take to say where it wants to go.
const FIRST_BYTES_WAIT: Duration = Duration::from_secs(10);
/// How long one address may take to accept a connection. The kernel would try for two minutes.
const DIAL_WAIT: Duration = Duration::from_secs(10);
/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 4;
/// Where a protocol that does not say its host is not carried: HTTP and TLS.
const NAMED_PORTS: [u16; 2] = [80, 443];

/// Why a connection is not carried.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{0}")]
    NotAllowed(&'static str),
    #[error("it could not be connected")]
    Failed(#[from] io::Error),
    #[error("its name could not be looked up")]
    Unknown,
}

/// How a connection is made.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    /// To the address that the sandbox chose; what it says there is not looked at.
    Plain,
    /// To that address; a name that it says there must not be denied.
    NotDenied,
    /// To that address, which the sandbox was told for this name; another that it says must lead there, too.
    Told(String),
    /// To an address of the name that it says.
    Named,
}

/// Carries connections until the listener fails, which it does when the gate ends.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let tasks = TaskTracker::new();
    loop {
        let Ok(room) = shared.room().await else {
            return;
        };
        let Ok((stream, from)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        let sandbox = shared.sandbox(from.ip());
        let Some((sandbox, permit)) = sandbox.and_then(|it| Some((it.clone(), it.connection()?)))
        else {
            reset(&stream);
            continue;
        };
        let shared = shared.clone();
        tasks.spawn(async move {
            if let Err(refusal) = carry(&stream, &sandbox, &shared).await {
                tracing::debug!(sandbox_id = %sandbox.id, error = %api::error_chain(&refusal), "a connection was refused");
                reset(&stream);
            }
            drop((permit, room));
        });
    }
}

async fn carry(stream: &TcpStream, sandbox: &Arc<Sandbox>, shared: &Shared) -> Result<(), Refusal> {
    let target =
        SocketAddr::V4(rustix::net::sockopt::ip_original_dst(stream).map_err(io::Error::from)?);
    let way = way(&sandbox.judge(), sandbox, target)?;
    let claim = Claim {
        name: match &way {
            Way::Told(name) => Some(name.clone()),
            _ => None,
        },
        address: target.ip(),
        port: target.port(),
        is_unread: way == Way::Plain,
    };
    if way == Way::Named {
        return by_name(stream, sandbox, claim, shared).await;
    }
    let flow = sandbox.begin(&claim).ok_or(NOT_ALLOWED)?;
    let upstream = cut(&flow, dial(target, shared)).await??;
    let up = async {
        if way != Way::Plain {
            inspect(stream, &upstream, (&way, &flow), target, shared).await?;
        }
        Ok(pour(stream, &upstream).await?)
    };
    join(&flow, up, &upstream, stream).await
}

const NOT_ALLOWED: Refusal = Refusal::NotAllowed("the policy does not allow it");

fn way(judge: &Judge, sandbox: &Sandbox, target: SocketAddr) -> Result<Way, Refusal> {
    let port = Port::Tcp(target.port());
    match judge.address(target.ip(), port) {
        Some(verdict) if verdict.is_allowed() => return Ok(Way::Plain),
        Some(_) => return Err(NOT_ALLOWED),
        None => {}
    }
    if judge.default_action() == PolicyAction::Allow {
        return Ok(match judge.has_denied_names() {
            true => Way::NotDenied,
            false => Way::Plain,
        });
    }
    if NAMED_PORTS.contains(&target.port()) {
        return Ok(Way::Named);
    }
    let mut names = sandbox.names_of(target.ip()).into_iter();
    let name = names.find(|name| judge.name(name, port).is_allowed());
    Ok(name.map_or(Way::Named, Way::Told))
}

/// Waits for the name, and connects to that.
async fn by_name(
    stream: &TcpStream,
    sandbox: &Arc<Sandbox>,
    mut claim: Claim,
    shared: &Shared,
) -> Result<(), Refusal> {
    let reading = timeout(FIRST_BYTES_WAIT, read_first(stream));
    let (bytes, first) = reading
        .await
        .map_err(|_| Refusal::NotAllowed("it did not say where it goes"))??;
    let (name, send) = match first {
        First::Tls(Some(name)) => (name, bytes),
        First::Http(head) => {
            let host = head.host.ok_or(Refusal::NotAllowed("it names no host"))?;
            let mut send = head.sent_on;
            send.extend_from_slice(&bytes[head.length..]);
            (host, send)
        }
        First::Refused(why) => return Err(Refusal::NotAllowed(why)),
        First::Tls(None) | First::Other | First::Unfinished => {
            return Err(Refusal::NotAllowed("it names no host"));
        }
    };
    let port = claim.port;
    claim.name = Some(name.clone());
    let flow = sandbox.begin(&claim).ok_or(NOT_ALLOWED)?;
    let dialling = async {
        let addresses = shared.addresses(&name, port, &sandbox.judge()).await;
        dial_any(&addresses.map_err(|_| Refusal::Unknown)?, port, shared).await
    };
    let (upstream, address) = cut(&flow, dialling).await??;
    if !flow.is_at(address) {
        return Err(NOT_ALLOWED);
    }
    let up = async {
        write_all(&upstream, &send).await?;
        Ok(pour(stream, &upstream).await?)
    };
    join(&flow, up, &upstream, stream).await
}

/// Runs both directions until both have ended, or the policy ends them.
async fn join(
    flow: &Flow,
    up: impl Future<Output = Result<(), Refusal>>,
    upstream: &TcpStream,
    stream: &TcpStream,
) -> Result<(), Refusal> {
    let down = async { Ok(pour(upstream, stream).await?) };
    let both = async { tokio::try_join!(up, down).map(|_| ()) };
    let outcome = cut(flow, both).await.and_then(|inner| inner);
    if outcome.is_err() {
        reset(upstream);
    }
    outcome
}

/// Gives up when the policy no longer allows the connection.
async fn cut<T>(flow: &Flow, work: impl Future<Output = T>) -> Result<T, Refusal> {
    tokio::select! {
        () = flow.cut.cancelled() => Err(NOT_ALLOWED),
        done = work => Ok(done),
    }
}

/// Looks at what the client says first, and sends it on if that is allowed.
async fn inspect(
    stream: &TcpStream,
    upstream: &TcpStream,
    (way, flow): (&Way, &Flow),
    target: SocketAddr,
    shared: &Shared,
) -> Result<(), Refusal> {
    let (bytes, first) = read_first(stream).await?;
    let is_open = *way == Way::NotDenied;
    let (name, send) = match first {
        First::Tls(name) => (name, bytes),
        First::Http(head) => {
            let mut send = head.sent_on;
            send.extend_from_slice(&bytes[head.length..]);
            (head.host, send)
        }
        First::Refused(why) => return Err(Refusal::NotAllowed(why)),
        First::Other | First::Unfinished => {
            return Ok(write_all(upstream, &bytes).await?);
        }
    };
    match name {
        None if is_open => {}
        None => return Err(Refusal::NotAllowed("it names no host")),
        Some(name) => {
            if !flow.is_to(&name) {
                return Err(NOT_ALLOWED);
            }
            if !is_open && !leads_to(&name, target, shared).await {
                return Err(Refusal::NotAllowed("the name leads elsewhere"));
            }
        }
    }
    Ok(write_all(upstream, &send).await?)
}

async fn leads_to(name: &str, target: SocketAddr, shared: &Shared) -> bool {
    let found = shared.resolver().addresses(name).await;
    found.is_ok_and(|answers| {
        let mut addresses = answers.iter().flat_map(|answer| &answer.addresses);
        addresses.any(|address| *address == target.ip())
    })
}

/// Reads until it is clear what the first message is, or the client has no more to say.
async fn read_first(stream: &TcpStream) -> io::Result<(Vec<u8>, First)> {
    let mut bytes = Vec::with_capacity(2_048);
    loop {
        match sniff::first(&bytes) {
            First::Unfinished => {}
            found => return Ok((bytes, found)),
        }
        stream.readable().await?;
        match stream.try_read_buf(&mut bytes) {
            Ok(0) => return Ok((bytes, First::Unfinished)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

async fn dial_any(
    addresses: &[IpAddr],
    port: u16,
    shared: &Shared,
) -> Result<(TcpStream, IpAddr), Refusal> {
    let mut last = Refusal::NotAllowed("its name has no address that may be reached");
    for address in addresses.iter().take(ADDRESSES_MAX) {
        match dial(SocketAddr::new(*address, port), shared).await {
            Ok(stream) => return Ok((stream, *address)),
            Err(refusal) => last = refusal,
        }
    }
    Err(last)
}

async fn dial(target: SocketAddr, shared: &Shared) -> Result<TcpStream, Refusal> {
    if !shared.is_reachable(target.ip()) {
        return Err(Refusal::NotAllowed("no sandbox may reach that address"));
    }
    let connected = timeout(DIAL_WAIT, TcpStream::connect(target)).await;
    let stream = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    // The other side may be gone without a word; else nothing would ever end the connection.
    rustix::net::sockopt::set_socket_keepalive(&stream, true).map_err(io::Error::from)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
