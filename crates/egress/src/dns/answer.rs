//! Answers the questions of sandboxes: a name that a policy does not allow does not exist, and an address
//! that no sandbox may reach is not told, whoever put it into the DNS.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use api::egress::policy::PolicyAction;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::message::{
    self, NO_ERROR, NO_SUCH_NAME, NOT_IMPLEMENTED, Query, Reply, SERVER_FAILURE, TYPE_A, TYPE_AAAA,
    UDP_BYTES_PLAIN,
};
use super::resolver::Answer;
use crate::judge::{Judge, Port};
use crate::sandbox::Sandbox;
use crate::serve::Shared;

/// The largest message that UDP carries.
const MESSAGE_BYTES: usize = 65_535;
/// How long a connection may be silent between questions.
const TCP_WAIT: Duration = Duration::from_secs(30);
/// Records that hold no address and are passed on as they are: NS, CNAME, SOA, PTR, MX, TXT, SRV, NAPTR,
/// CAA.
const PASSED_ON: [u16; 9] = [2, 5, 6, 12, 15, 16, 33, 35, 257];
/// SVCB and HTTPS records tell of encrypted names and of QUIC, which the gate does not carry; without them
/// clients use TLS over TCP.
const WITHHELD: [u16; 2] = [64, 65];

/// Answers until the sockets fail, which they do when the gate ends.
pub(crate) async fn serve(udp: UdpSocket, tcp: TcpListener, shared: Arc<Shared>) {
    let udp = Arc::new(udp);
    let tasks = TaskTracker::new();
    let mut buffer = vec![0_u8; MESSAGE_BYTES];
    loop {
        tokio::select! {
            received = udp.recv_from(&mut buffer) => {
                // Errors here are those of earlier answers coming back; the socket goes on.
                let Ok((length, from)) = received else { continue };
                let Some(sandbox) = shared.sandbox(from.ip()) else { continue };
                hear(&buffer[..length], from, sandbox, &udp, &shared, &tasks);
            }
            accepted = tcp.accept() => {
                let Ok((stream, from)) = accepted else { continue };
                let Some(sandbox) = shared.sandbox(from.ip()) else { continue };
                let Some(permit) = sandbox.question() else { continue };
                let shared = shared.clone();
                tasks.spawn(async move {
                    let _ = converse(stream, &sandbox, &shared).await;
                    drop(permit);
                });
            }
        }
    }
}

/// Answers at once what is known, and the rest when it is.
fn hear(
    bytes: &[u8],
    from: SocketAddr,
    sandbox: Arc<Sandbox>,
    udp: &Arc<UdpSocket>,
    shared: &Arc<Shared>,
    tasks: &TaskTracker,
) {
    let query = match message::read_query(bytes) {
        None => return,
        Some(Err(refused)) => {
            let _ = udp.try_send_to(&message::refusal(&refused), from);
            return;
        }
        Some(Ok(query)) => query,
    };
    if let Some(reply) = answer_now(&query, &sandbox, shared) {
        let _ = udp.try_send_to(&fitted(&query, reply), from);
        return;
    }
    // Over the limit a question is dropped, as a busy nameserver would.
    let Some(permit) = sandbox.question() else {
        return;
    };
    let (udp, shared) = (udp.clone(), shared.clone());
    tasks.spawn(async move {
        let reply = answer(&query, &sandbox, &shared).await;
        let _ = udp.send_to(&fitted(&query, reply), from).await;
        drop(permit);
    });
}

fn fitted(query: &Query, reply: Vec<u8>) -> Vec<u8> {
    let room = query.udp_bytes.map_or(UDP_BYTES_PLAIN, usize::from);
    match reply.len() <= room.max(UDP_BYTES_PLAIN) {
        true => reply,
        false => query.truncated(),
    }
}

async fn converse(
    mut stream: TcpStream,
    sandbox: &Arc<Sandbox>,
    shared: &Arc<Shared>,
) -> std::io::Result<()> {
    loop {
        let Ok(length) = timeout(TCP_WAIT, stream.read_u16()).await else {
            return Ok(());
        };
        let mut bytes = vec![0_u8; usize::from(length?)];
        let Ok(read) = timeout(TCP_WAIT, stream.read_exact(&mut bytes)).await else {
            return Ok(());
        };
        read?;
        let reply = match message::read_query(&bytes) {
            None => return Ok(()),
            Some(Err(refused)) => message::refusal(&refused),
            Some(Ok(query)) => answer(&query, sandbox, shared).await,
        };
        let length = u16::try_from(reply.len()).map_err(std::io::Error::other)?;
        stream.write_all(&length.to_be_bytes()).await?;
        stream.write_all(&reply).await?;
    }
}

const NOTHING: Reply<'_> = Reply {
    code: NO_ERROR,
    addresses: &[],
    ttl: 0,
    is_filtered: false,
};

fn denied(query: &Query) -> Vec<u8> {
    query.reply(&Reply {
        code: NO_SUCH_NAME,
        is_filtered: true,
        ..NOTHING
    })
}

/// The answer, where nobody has to be asked for it.
fn answer_now(query: &Query, sandbox: &Sandbox, shared: &Shared) -> Option<Vec<u8>> {
    let judge = sandbox.judge();
    if query.name.is_empty() || !judge.name(&query.name, Port::Any).is_allowed() {
        return Some(denied(query));
    }
    match query.kind {
        TYPE_A => {
            let answer = shared.resolver().kept(&query.name, TYPE_A)?;
            Some(addresses(query, &answer, sandbox, shared))
        }
        // A sandbox has no way out over IPv6, and clients that get no such address do not try.
        TYPE_AAAA => Some(query.reply(&NOTHING)),
        kind if WITHHELD.contains(&kind) => Some(query.reply(&NOTHING)),
        kind if PASSED_ON.contains(&kind) => None,
        _ => Some(query.reply(&Reply {
            code: NOT_IMPLEMENTED,
            ..NOTHING
        })),
    }
}

async fn answer(query: &Query, sandbox: &Sandbox, shared: &Shared) -> Vec<u8> {
    if let Some(reply) = answer_now(query, sandbox, shared) {
        return reply;
    }
    let failure = || {
        query.reply(&Reply {
            code: SERVER_FAILURE,
            ..NOTHING
        })
    };
    if query.kind != TYPE_A {
        let asked = shared.resolver().ask(&query.name, query.kind).await;
        let adopted = asked.ok().and_then(|(message, _)| query.adopt(&message));
        return adopted.unwrap_or_else(failure);
    }
    match shared.resolver().lookup(&query.name, TYPE_A).await {
        Ok(answer) => addresses(query, &answer, sandbox, shared),
        Err(error) => {
            tracing::debug!(sandbox_id = %sandbox.id, error = %api::error_chain(&error), "a name could not be looked up");
            failure()
        }
    }
}

/// Tells the addresses that may be reached, and remembers which name they were told for. The policy is
/// asked once more: it may have changed since the question came.
fn addresses(query: &Query, answer: &Answer, sandbox: &Sandbox, shared: &Shared) -> Vec<u8> {
    let judge = sandbox.judge();
    let verdict = judge.name(&query.name, Port::Any);
    if !verdict.is_allowed() || has_denied_alias(answer, &judge) {
        return denied(query);
    }
    let reachable: Vec<IpAddr> = answer
        .addresses
        .iter()
        .copied()
        .filter(|address| may_reach(*address, &judge, shared))
        .collect();
    if reachable.is_empty() && !answer.addresses.is_empty() {
        // A public name with an address that is not: rebinding.
        return denied(query);
    }
    let ttl = answer.ttl();
    if let Err(error) = shared.tell(sandbox, &reachable, (&query.name, ttl)) {
        tracing::warn!(sandbox_id = %sandbox.id, error = %api::error_chain(&error), "an address could not be opened");
        return query.reply(&Reply {
            code: SERVER_FAILURE,
            ..NOTHING
        });
    }
    query.reply(&Reply {
        code: if answer.exists {
            NO_ERROR
        } else {
            NO_SUCH_NAME
        },
        addresses: &reachable,
        ttl: u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX),
        is_filtered: false,
    })
}

/// Whether the name leads to one that a rule denies. That no rule allows an alias is no matter: its owner
/// chose it.
pub(crate) fn has_denied_alias(answer: &Answer, judge: &Judge) -> bool {
    answer.aliases.iter().any(|alias| {
        let verdict = judge.name(alias, Port::Any);
        verdict.rule.is_some() && verdict.action == PolicyAction::Deny
    })
}

/// Whether an address that a name led to may be dialled.
pub(crate) fn may_reach(address: IpAddr, judge: &Judge, shared: &Shared) -> bool {
    let is_denied = judge
        .address(address, Port::Any)
        .is_some_and(|verdict| !verdict.is_allowed());
    !is_denied && shared.is_reachable(address)
}
