//! Attacks on other sandboxes and on the host's processes, sockets and services.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};

use api::egress::policy::EgressPolicy;
use lifecycle::backend::{Backend, ObservedState};

use crate::case::Verdict;
use crate::played::{FAR, HOST, HOST_INNER, METADATA, UNASSIGNED};
use crate::world::{Setup, World};

/// Terminals one sandbox may have. The host has 4,096 in all by default.
const TERMINALS_MAX: &str = "256";

async fn run(world: &World, words: &[&str]) -> Verdict {
    world.attack(&Setup::default(), words).await.verdict()
}

pub(crate) async fn host_pid(world: &World) -> Verdict {
    run(world, &["host_pid", &world.bystander.id().to_string()]).await
}

pub(crate) async fn neighbour_pid(world: &World) -> Verdict {
    let victim = world.victim().await;
    let verdict = run(world, &["host_pid", &world.pid_of(&victim).to_string()]).await;
    world.delete(&victim).await;
    verdict
}

pub(crate) async fn host_processes(world: &World) -> Verdict {
    run(
        world,
        &["host_processes", &world.bystander.id().to_string()],
    )
    .await
}

/// Everything in reach is killed: that is nothing of anybody else's. Whether the bystander
/// lives is looked at in the end.
pub(crate) async fn kill_all(world: &World) -> Verdict {
    let victim = world.victim().await;
    let verdict = run(world, &["kill_all"]).await;
    let state = world
        .backend
        .inspect(&victim)
        .await
        .map(|observed| observed.state);
    let lives = matches!(state, Ok(ObservedState::Running));
    world.delete(&victim).await;
    verdict.and(Verdict::of(lives, || format!("the neighbour is {state:?}")))
}

fn abstract_listener(name: &str) -> UnixListener {
    let address = UnixAddr::from_abstract_name(name).expect("a short name");
    UnixListener::bind_addr(&address).expect("the name is free")
}

pub(crate) async fn abstract_host(world: &World) -> Verdict {
    let name = format!("escape-host-{}", std::process::id());
    let _listener = world.inside(world.host(), || abstract_listener(&name));
    run(world, &["abstract_socket", &name]).await
}

pub(crate) async fn abstract_neighbour(world: &World) -> Verdict {
    let victim = world.victim().await;
    let name = format!("escape-neighbour-{}", std::process::id());
    let namespace = world.namespace_of(&victim);
    let listener = world.inside(namespace.as_fd(), || abstract_listener(&name));
    let verdict = run(world, &["abstract_socket", &name]).await;
    drop(listener);
    world.delete(&victim).await;
    verdict
}

/// A segment of the host's System V memory, found by its key.
pub(crate) async fn shared_segment(world: &World) -> Verdict {
    let key = 0x0e5c_0000 | (std::process::id() & 0xffff);
    let key = key.to_string();
    let on_the_host = |what: &str, argument: &str| {
        let output = std::process::Command::new(world.hostile())
            .args([what, argument])
            .output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let id = match on_the_host("make_segment", &key) {
        Ok(id) if id.parse::<u32>().is_ok() => id,
        other => {
            return Verdict::Unclear(format!("the host's segment could not be made: {other:?}"));
        }
    };
    let verdict = run(world, &["shared_segment", &key]).await;
    let _ = on_the_host("remove_segment", &id);
    verdict
}

/// Sends to everybody it must not reach, then to somebody it may: when that arrives, the others
/// have arrived or never will.
pub(crate) async fn reach_nobody(world: &World) -> Verdict {
    let victim = world.victim().await;
    let namespace = world.namespace_of(&victim);
    let neighbour = address_in(world, &namespace);
    let forbidden = [
        (
            "the neighbour",
            world.datagrams(namespace.as_fd(), neighbour),
        ),
        ("the host", world.datagrams(world.host(), HOST)),
        (
            "the host's inner address",
            world.datagrams(world.host(), HOST_INNER),
        ),
        (
            "the metadata service",
            world.datagrams(world.outside(), METADATA),
        ),
        (
            "an address that no sandbox has",
            world.datagrams(world.outside(), UNASSIGNED),
        ),
    ];
    let allowed = world.datagrams(world.outside(), FAR);
    let mut words = vec!["send_datagrams".to_owned()];
    for socket in forbidden.iter().map(|(_, socket)| socket).chain([&allowed]) {
        let SocketAddr::V4(address) = socket.local_addr().expect("bound") else {
            continue;
        };
        words.extend([address.ip().to_string(), address.port().to_string()]);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut verdict = run(world, &words).await;
    verdict = verdict.and(Verdict::of(receives(&allowed), || {
        "the outside was not reached".into()
    }));
    for (name, socket) in &forbidden {
        socket.set_nonblocking(true).expect("a mode can be set");
        let reached = receives(socket);
        verdict = verdict.and(Verdict::of(!reached, || format!("{name} was reached")));
    }
    world.delete(&victim).await;
    verdict
}

fn receives(socket: &UdpSocket) -> bool {
    socket.recv_from(&mut [0; 16]).is_ok()
}

pub(crate) fn address_in(world: &World, namespace: &std::os::fd::OwnedFd) -> Ipv4Addr {
    world.inside(namespace.as_fd(), || {
        // Which address the kernel would send from, without sending.
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("free port");
        socket.connect((FAR, 9)).expect("there is a route");
        match socket.local_addr().expect("bound") {
            SocketAddr::V4(address) => *address.ip(),
            SocketAddr::V6(_) => unreachable!("the socket is of IPv4"),
        }
    })
}

pub(crate) async fn forge_source(world: &World) -> Verdict {
    let receiver = world.datagrams(world.outside(), FAR);
    let port = receiver.local_addr().expect("bound").port().to_string();
    let far = FAR.to_string();
    let verdict = run(world, &["forge_source", "192.0.2.66", &far, &port]).await;
    let fence = run(world, &["send_datagrams", &far, &port]).await;
    let mut buffer = [0; 16];
    let first = receiver
        .recv_from(&mut buffer)
        .map(|(len, _)| buffer[..len].to_vec());
    let only_fence = first.as_deref().is_ok_and(|text| text == b"probe");
    verdict.and(fence).and(Verdict::of(only_fence, || {
        format!("arrived first: {first:?}")
    }))
}

/// 127.0.0.1 of a sandbox is its own.
pub(crate) async fn host_loopback(world: &World) -> Verdict {
    let listener = world
        .inside(world.host(), || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .expect("free port");
    let port = listener.local_addr().expect("bound").port().to_string();
    run(world, &["tcp_refused", "127.0.0.1", &port]).await
}

pub(crate) async fn no_network(world: &World) -> Verdict {
    let setup = Setup {
        network: EgressPolicy::DENY_ALL,
        ..Setup::default()
    };
    world
        .attack(&setup, &["tcp_refused", &FAR.to_string(), "80"])
        .await
        .verdict()
}

/// Runs an attack that says when it is in place, does `meanwhile`, and lets it go on.
pub(crate) async fn while_attacked(
    world: &World,
    setup: &Setup,
    words: &[&str],
    meanwhile: impl AsyncFnOnce() -> Verdict,
) -> Verdict {
    let listener = world.meeting_point();
    let port = listener.local_addr().expect("bound").port().to_string();
    let far = FAR.to_string();
    let all: Vec<&str> = words[..1]
        .iter()
        .copied()
        .chain([far.as_str(), &port])
        .chain(words[1..].iter().copied())
        .collect();
    let attack = world.attack(setup, &all);
    let meet = async {
        listener.set_nonblocking(true).expect("a mode can be set");
        let listener = tokio::net::TcpListener::from_std(listener).expect("within a runtime");
        let (stream, _) = listener.accept().await.expect("the attacker comes");
        let mut stream = stream.into_std().expect("a stream is a stream");
        stream.set_nonblocking(false).expect("a mode can be set");
        stream.read_exact(&mut [0]).expect("it is ready");
        let verdict = meanwhile().await;
        stream.write_all(b"g").expect("it still listens");
        verdict
    };
    let deadline =
        tokio::time::timeout(crate::world::DEADLINE, async { tokio::join!(attack, meet) });
    match deadline.await {
        Ok((outcome, verdict)) => outcome.verdict().and(verdict),
        Err(_) => Verdict::Unclear("the attacker did not come to the meeting".to_owned()),
    }
}

/// What one sandbox does with its devices is not seen by another.
pub(crate) async fn watch_dev(world: &World) -> Verdict {
    while_attacked(world, &Setup::default(), &["watch_dev"], async || {
        run(world, &["touch_dev"]).await
    })
    .await
}

pub(crate) async fn hog_inotify(world: &World) -> Verdict {
    let meanwhile = async || {
        let host = rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC);
        let host = Verdict::of(host.is_ok(), || format!("the host's root: {host:?}"));
        host.and(run(world, &["one_inotify"]).await)
    };
    while_attacked(world, &Setup::default(), &["hog_inotify"], meanwhile).await
}

pub(crate) async fn hog_ptys(world: &World) -> Verdict {
    let words = ["hog_ptys", TERMINALS_MAX];
    let setup = Setup::default();
    while_attacked(world, &setup, &words, async || {
        run(world, &["one_pty"]).await
    })
    .await
}
