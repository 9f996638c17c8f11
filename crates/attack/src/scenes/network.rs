//! Attacks by packets: to everybody, by ways of their own, and too many of them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use crate::case::Verdict;
use crate::played::{FAR, HOST};
use crate::scenes::neighbours::address_in;
use crate::world::{Setup, World};

/// What the host tracks of one sandbox, see `CONNECTIONS_PER_SANDBOX` of the runtime's firewall.
const CONNECTIONS_MAX: usize = 4_096;
/// More than that by far, for ports come up more than once.
const CONNECTIONS_TRIED: usize = 2 * CONNECTIONS_MAX;

fn port(socket: &UdpSocket) -> String {
    socket.local_addr().expect("bound").port().to_string()
}

/// Whether something has come by now; what was sent before the fence has.
fn has_received(socket: &UdpSocket) -> bool {
    socket.set_nonblocking(true).expect("a mode can be set");
    socket.recv_from(&mut [0; 16]).is_ok()
}

/// When this arrives, what was sent before it has arrived or never will.
async fn fence(world: &World) -> Verdict {
    let receiver = world.datagrams(world.outside(), FAR);
    let words = ["send_datagrams", &FAR.to_string(), &port(&receiver)];
    let sent = world.attack(&Setup::default(), &words).await.verdict();
    let came = receiver.recv_from(&mut [0; 16]).is_ok();
    sent.and(if came {
        Verdict::Held
    } else {
        Verdict::Unclear("the outside was not reached".to_owned())
    })
}

/// The host listens on every address that it has, of both versions.
pub(crate) async fn to_everybody(world: &World) -> Verdict {
    let ours = world.inside(world.host(), || {
        let v4 = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("free port");
        let same = v4.local_addr().expect("bound").port();
        // Where the host has no version 6 nobody can be reached by it.
        let v6 = rustix::net::socket(
            rustix::net::AddressFamily::INET6,
            rustix::net::SocketType::DGRAM,
            None,
        )
        .and_then(|socket| {
            rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
            rustix::net::bind(&socket, &SocketAddr::from((Ipv6Addr::UNSPECIFIED, same)))?;
            Ok(UdpSocket::from(socket))
        });
        (v4, v6.ok())
    });
    let sent = world
        .attack(&Setup::default(), &["to_everybody", &port(&ours.0)])
        .await
        .verdict();
    let verdict = sent.and(fence(world).await);
    let sockets = [Some(&ours.0), ours.1.as_ref()];
    let reached = sockets.into_iter().flatten().any(has_received);
    verdict.and(Verdict::of(!reached, || "the host received one".to_owned()))
}

/// By the gateway to a neighbour, and by the outside to the host.
pub(crate) async fn source_route(world: &World) -> Verdict {
    let victim = world.victim().await;
    let namespace = world.namespace_of(&victim);
    let neighbour = address_in(world, &namespace);
    let theirs = world.datagrams(namespace.as_fd(), neighbour);
    let hosts = world.datagrams(world.host(), HOST);
    let mut verdict = Verdict::Held;
    for (via, end, socket) in [
        (FAR, neighbour, &theirs),
        (FAR, HOST, &hosts),
        (neighbour, FAR, &theirs),
    ] {
        let words = [
            "source_route",
            &via.to_string(),
            &end.to_string(),
            &port(socket),
        ];
        verdict = verdict.and(world.attack(&Setup::default(), &words).await.verdict());
    }
    verdict = verdict.and(fence(world).await);
    for (who, socket) in [("the neighbour", &theirs), ("the host", &hosts)] {
        verdict = verdict.and(Verdict::of(!has_received(socket), || {
            format!("{who} received one")
        }));
    }
    world.delete(&victim).await;
    verdict
}

/// Of more connections than the host tracks for one sandbox, the rest do not come through.
pub(crate) async fn connection_table(world: &World) -> Verdict {
    let receiver = world.datagrams(world.outside(), FAR);
    let room = 64 << 20;
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&receiver, room);
    let counted = CONNECTIONS_TRIED.to_string();
    let words = [
        "connection_table",
        &FAR.to_string(),
        &port(&receiver),
        &counted,
    ];
    let sent = world.attack(&Setup::default(), &words).await.verdict();
    let verdict = sent.and(fence(world).await);
    receiver.set_nonblocking(true).expect("a mode can be set");
    // Ports come up more than once, and so do the connections then.
    let sources =
        std::iter::from_fn(|| receiver.recv_from(&mut [0; 16]).ok()).map(|(_, source)| source);
    let came = sources.collect::<std::collections::BTreeSet<_>>().len();
    if came == 0 {
        return verdict.and(Verdict::Unclear("none came through".to_owned()));
    }
    verdict.and(Verdict::of(came <= CONNECTIONS_MAX, || {
        format!("{came} connections came through, of {CONNECTIONS_MAX} that may be")
    }))
}
