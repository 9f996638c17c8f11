//! The network on real namespaces: one plays the host, one the outside behind it, and the pool
//! makes the sandboxes' own. The machine's own network is not touched.
//!
//! What must not arrive is shown by what does: a probe is sent, then a packet over an allowed
//! way is seen to arrive, and the probe has not. The same probe arrives once the protection is
//! taken away, so a test that would pass for another reason fails.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::netlink::{Family, Socket};
use super::slot::{in_namespace, make_namespaces};
use super::*;

/// How long a packet that must arrive may take; only a broken network needs this long.
const ARRIVAL: Duration = Duration::from_secs(90);
const HOST: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
/// On an interface of the host that faces nobody.
const HOST_INNER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
/// A port nobody uses.
const PORT: u16 = 7_777;

struct World {
    host: OwnedFd,
    outside: OwnedFd,
    temp: tempfile::TempDir,
}

/// Runs `test` on a thread in a namespace that plays the host.
fn on_a_host(test: impl FnOnce(&World) + Send) {
    if !rustix::process::geteuid().is_root() {
        assert!(
            std::env::var_os("CI").is_none(),
            "needs root: sudo make test"
        );
        eprintln!("SKIPPED, needs root: sudo make test");
        return;
    }
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // On one processor packets keep their order, so what was sent before a packet that
            // arrived has arrived too, or never will.
            let mut one = rustix::thread::CpuSet::new();
            one.set(0);
            rustix::thread::sched_setaffinity(None, &one).unwrap();
            // Names for namespaces; the ids are of no account.
            let (_, host) = make_namespaces(0x6000_0000).unwrap();
            let (_, outside) = make_namespaces(0x6001_0000).unwrap();
            enter(host.as_fd());
            let world = World {
                host,
                outside,
                temp: tempfile::tempdir().unwrap(),
            };
            world.wire();
            test(&world);
        });
    });
}

impl World {
    fn wire(&self) {
        let outside = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.outside.as_raw_fd()
        );
        ip("link set lo up");
        ip(&format!("addr add {HOST_INNER}/32 dev lo"));
        ip(&format!(
            "link add up0 mtu 1400 type veth peer name wan0 netns {outside}"
        ));
        ip(&format!("addr add {HOST}/24 dev up0"));
        ip("link set up0 up");
        in_namespace(self.outside.as_fd(), self.host.as_fd(), || {
            ip("link set lo up");
            ip(&format!("addr add {FAR}/32 dev lo"));
            ip(&format!("addr add {METADATA}/32 dev lo"));
            ip(&format!("addr add {OUTSIDE}/24 dev wan0"));
            ip("link set wan0 up");
        })
        .unwrap();
        ip(&format!("route add default via {OUTSIDE}"));
    }

    fn config(&self) -> Config {
        let data = self.temp.path().join("data");
        std::fs::create_dir_all(&data).unwrap();
        Config {
            claims_dir: self.temp.path().join("claims"),
            ready_outside: 3,
            ready_none: 1,
            nameservers: Some(vec![FAR]),
            ..Config::new(data)
        }
    }

    /// Makes `work` run with this thread in the namespace.
    fn inside<T>(&self, namespace: BorrowedFd<'_>, work: impl FnOnce() -> T) -> T {
        in_namespace(namespace, self.host.as_fd(), work).unwrap()
    }

    fn listener(&self, namespace: BorrowedFd<'_>, address: Ipv4Addr, port: u16) -> UdpSocket {
        let socket = self.inside(namespace, || UdpSocket::bind((address, port)).unwrap());
        socket.set_read_timeout(Some(ARRIVAL)).unwrap();
        socket
    }

    fn sender(&self, slot: &Slot) -> UdpSocket {
        self.listener(slot.net.as_fd(), Ipv4Addr::UNSPECIFIED, 0)
    }

    /// Sends a datagram that must not reach `receiver`.
    fn is_stopped(&self, slot: &Slot, receiver: &UdpSocket, target: Ipv4Addr) -> bool {
        let sender = self.sender(slot);
        self.is_stopped_from(&sender, slot, receiver, target)
    }

    /// Sends a datagram from the slot that must reach `receiver`.
    fn arrives(&self, slot: &Slot, receiver: &UdpSocket, target: Ipv4Addr) -> bool {
        arrives_from(&self.sender(slot), receiver, target)
    }

    fn is_stopped_from(
        &self,
        sender: &UdpSocket,
        slot: &Slot,
        receiver: &UdpSocket,
        target: Ipv4Addr,
    ) -> bool {
        // A refusal at once is as good as a loss.
        let _ = sender.send_to(b"probe", (target, receiver.local_addr().unwrap().port()));
        let fence = self.listener(self.outside.as_fd(), FAR, PORT + 1);
        self.sender(slot)
            .send_to(b"fence", (FAR, PORT + 1))
            .unwrap();
        assert_eq!(receive(&fence).0, "fence");
        receiver.set_nonblocking(true).unwrap();
        let found = receiver.recv_from(&mut [0; 64]);
        receiver.set_nonblocking(false).unwrap();
        found.is_err()
    }
}

fn arrives_from(sender: &UdpSocket, receiver: &UdpSocket, target: Ipv4Addr) -> bool {
    sender
        .send_to(b"probe", (target, receiver.local_addr().unwrap().port()))
        .unwrap();
    receive(receiver).0 == "probe"
}

fn enter(namespace: BorrowedFd<'_>) {
    move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network)).unwrap();
}

fn ip(arguments: &str) {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn receive(socket: &UdpSocket) -> (String, IpAddr) {
    let mut buffer = [0; 512];
    let (len, from) = socket.recv_from(&mut buffer).expect("a packet must arrive");
    (
        String::from_utf8_lossy(&buffer[..len]).into_owned(),
        from.ip(),
    )
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

fn host_links() -> Vec<String> {
    let socket = Socket::open(Family::Route).unwrap();
    link::list(&socket)
        .unwrap()
        .into_iter()
        .map(|l| l.name)
        .filter(|n| n.starts_with("osb"))
        .collect()
}

/// Waits until no interface of ours is left on the host; the kernel tells of each that goes.
fn wait_for_no_links() {
    let monitor = Socket::monitor_links(ARRIVAL).unwrap();
    while !host_links().is_empty() {
        monitor
            .wait()
            .expect("the kernel removes interfaces of dropped namespaces");
    }
}

#[test]
fn a_sandbox_reaches_the_outside_under_the_hosts_address() {
    on_a_host(|world| {
        let runtime = runtime();
        runtime.block_on(async {
            let pool = Pool::open(world.config(), &[]).unwrap();
            let slot = pool.take(Network::Outside).await.unwrap();
            let server = world.listener(world.outside.as_fd(), FAR, PORT);
            let client = world.sender(&slot);
            client.send_to(b"hello", (FAR, PORT)).unwrap();
            let (text, from) = receive(&server);
            assert_eq!((text.as_str(), from), ("hello", IpAddr::V4(HOST)));

            // And TCP, with its answers.
            let listener = world.inside(world.outside.as_fd(), || {
                TcpListener::bind((FAR, PORT)).unwrap()
            });
            let address = SocketAddr::from((FAR, PORT));
            let mut stream = world.inside(slot.net.as_fd(), || {
                std::net::TcpStream::connect_timeout(&address, ARRIVAL).unwrap()
            });
            let (mut accepted, _) = listener.accept().unwrap();
            accepted.write_all(b"answer").unwrap();
            let mut answer = [0; 6];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"answer");
        });
    });
}

#[test]
fn a_sandbox_does_not_reach_neighbours_the_host_or_metadata() {
    on_a_host(|world| {
        let runtime = runtime();
        runtime.block_on(async {
            let config = world.config();
            let pool = Pool::open(config.clone(), &[]).unwrap();
            let slot = pool.take(Network::Outside).await.unwrap();
            let neighbour = pool.take(Network::Outside).await.unwrap();
            let neighbour_address = neighbour.address.unwrap();
            let host = |address| world.listener(world.host.as_fd(), address, PORT);
            let cases = [
                (
                    "neighbour",
                    world.listener(neighbour.net.as_fd(), neighbour_address, PORT),
                    neighbour_address,
                ),
                ("host", host(HOST), HOST),
                ("host's inner address", host(HOST_INNER), HOST_INNER),
                (
                    "metadata",
                    world.listener(world.outside.as_fd(), METADATA, PORT),
                    METADATA,
                ),
            ];
            for (name, receiver, target) in &cases {
                assert!(
                    world.is_stopped(&slot, receiver, *target),
                    "{name} was reached"
                );
            }
            firewall::remove(&config).unwrap();
            // Without the rules nothing hides the sandbox behind the host's address either, so
            // the way back is a route.
            world.inside(world.outside.as_fd(), || {
                ip(&format!("route add 10.88.0.0/16 via {HOST}"));
            });
            for (name, receiver, target) in &cases {
                assert!(
                    world.arrives(&slot, receiver, *target),
                    "{name}: the probe proves nothing"
                );
            }
        });
    });
}

#[test]
fn every_single_rule_against_reaching_the_host_holds_alone() {
    on_a_host(|world| {
        let runtime = runtime();
        runtime.block_on(async {
            let pool = Pool::open(world.config(), &[]).unwrap();
            let slot = pool.take(Network::Outside).await.unwrap();
            let receiver = world.listener(world.host.as_fd(), HOST, PORT);
            // A destination NAT of somebody else's turns an address of the host into a service
            // behind it; it must not become a way there.
            nft("add table ip other");
            nft("add chain ip other pre { type nat hook prerouting priority -100; }");
            nft(&format!(
                "add rule ip other pre udp dport {} dnat to {FAR}:{PORT}",
                PORT + 2
            ));
            let behind = world.listener(world.outside.as_fd(), FAR, PORT);
            let sender = world.sender(&slot);
            let _ = sender.send_to(b"probe", (HOST, PORT + 2));
            assert!(world.is_stopped(&slot, &receiver, HOST));
            behind.set_nonblocking(true).unwrap();
            assert!(
                behind.recv_from(&mut [0; 8]).is_err(),
                "reached through somebody's NAT"
            );
            nft("flush chain inet osb arrival");
            sender.send_to(b"probe", (HOST, PORT + 2)).unwrap();
            behind.set_nonblocking(false).unwrap();
            assert_eq!(receive(&behind).0, "probe");
            // The chain for the host itself still stands.
            assert!(world.is_stopped(&slot, &receiver, HOST));
        });
    });
}

#[test]
fn a_forged_source_address_is_dropped() {
    on_a_host(|world| {
        let runtime = runtime();
        runtime.block_on(async {
            let pool = Pool::open(world.config(), &[]).unwrap();
            let slot = pool.take(Network::Outside).await.unwrap();
            let neighbour = pool.take(Network::Outside).await.unwrap();
            let receiver = world.listener(world.outside.as_fd(), FAR, PORT);
            for forged in [
                neighbour.address.unwrap(),
                Ipv4Addr::new(192, 0, 2, 99),
                HOST_INNER,
            ] {
                let sender = world.inside(slot.net.as_fd(), || {
                    ip(&format!("addr add {forged}/32 dev eth0"));
                    UdpSocket::bind((forged, 0)).unwrap()
                });
                let stopped = world.is_stopped_from(&sender, &slot, &receiver, FAR);
                assert!(stopped, "a packet from {forged} left the host");
            }
            // The kernel's own check and the rules each suffice; without both it leaves.
            let name = format!("osb-{}", slot.index);
            set_parameter("net/ipv4/conf/all/rp_filter", "0");
            set_parameter(&format!("net/ipv4/conf/{name}/rp_filter"), "0");
            let sender = world.inside(slot.net.as_fd(), || {
                UdpSocket::bind((Ipv4Addr::new(192, 0, 2, 99), 0)).unwrap()
            });
            assert!(
                world.is_stopped_from(&sender, &slot, &receiver, FAR),
                "the rules alone"
            );
            nft("flush chain inet osb arrival");
            assert!(arrives_from(&sender, &receiver, FAR), "proves nothing");
        });
    });
}

fn set_parameter(name: &str, value: &str) {
    std::fs::write(format!("/proc/sys/{name}"), value).unwrap();
}

fn nft(command: &str) {
    let output = Command::new("nft").arg(command).output().unwrap();
    assert!(
        output.status.success(),
        "nft {command}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn the_host_and_the_outside_do_not_reach_a_sandbox_by_address() {
    on_a_host(|world| {
        let runtime = runtime();
        runtime.block_on(async {
            let config = world.config();
            let pool = Pool::open(config.clone(), &[]).unwrap();
            let slot = pool.take(Network::Outside).await.unwrap();
            let address = slot.address.unwrap();
            let receiver = world.listener(slot.net.as_fd(), address, PORT);
            world.inside(world.outside.as_fd(), || {
                ip(&format!("route add {address}/32 via {HOST}"));
            });
            let from_outside = world.listener(world.outside.as_fd(), FAR, 0);
            let from_host = world.listener(world.host.as_fd(), HOST, 0);
            assert!(world.is_stopped_from(&from_outside, &slot, &receiver, address));
            assert!(world.is_stopped_from(&from_host, &slot, &receiver, address));
            firewall::remove(&config).unwrap();
            assert!(
                arrives_from(&from_outside, &receiver, address),
                "the probe proves nothing"
            );
            assert!(
                arrives_from(&from_host, &receiver, address),
                "the probe proves nothing"
            );
        });
    });
}

#[test]
fn ipv6_of_a_sandbox_goes_nowhere() {
    on_a_host(|world| {
        let runtime = runtime();
        runtime.block_on(async {
            let pool = Pool::open(world.config(), &[]).unwrap();
            let slot = pool.take(Network::Outside).await.unwrap();
            let name = format!("osb-{}", slot.index);
            // Root inside turns IPv6 back on and gives itself an address; the host's end is
            // made to have one as well, which it never has by itself.
            ip(&format!("addr add fd00::1/64 dev {name} nodad"));
            let host = UdpSocket::bind("[fd00::1]:7777").unwrap();
            let sender = world.inside(slot.net.as_fd(), || {
                set_parameter("net/ipv6/conf/eth0/disable_ipv6", "0");
                ip("addr add fd00::2/64 dev eth0 nodad");
                // No neighbour discovery: it is IPv6 too, and dropped.
                ip(&format!(
                    "neigh replace fd00::1 lladdr {} dev eth0",
                    hardware(&slot, 0)
                ));
                UdpSocket::bind("[fd00::2]:0").unwrap()
            });
            let probe = || {
                sender.send_to(b"probe", "[fd00::1]:7777").unwrap();
                let fence = world.listener(world.outside.as_fd(), FAR, PORT);
                world.sender(&slot).send_to(b"fence", (FAR, PORT)).unwrap();
                assert_eq!(receive(&fence).0, "fence");
                host.set_nonblocking(true).unwrap();
                assert!(host.recv_from(&mut [0; 8]).is_err(), "a packet arrived");
                host.set_nonblocking(false).unwrap();
            };
            probe();
            nft("flush table inet osb");
            sender.send_to(b"probe", "[fd00::1]:7777").unwrap();
            host.set_read_timeout(Some(ARRIVAL)).unwrap();
            assert_eq!(receive(&host).0, "probe");
        });
    });
}

fn hardware(slot: &Slot, end: u8) -> String {
    let [_, a, b, c] = slot.index.to_be_bytes();
    format!("02:4f:{end:02x}:{a:02x}:{b:02x}:{c:02x}")
}

#[test]
fn without_a_network_there_is_loopback_and_nothing_else() {
    on_a_host(|world| {
        let runtime = runtime();
        runtime.block_on(async {
            let pool = Pool::open(world.config(), &[]).unwrap();
            let slot = pool.take(Network::None).await.unwrap();
            assert_eq!(slot.address, None);
            world.inside(slot.net.as_fd(), || {
                let socket = Socket::open(Family::Route).unwrap();
                let links: Vec<_> = link::list(&socket)
                    .unwrap()
                    .into_iter()
                    .map(|l| l.name)
                    .collect();
                assert_eq!(links, ["lo"]);
                // `lo` is up, and low ports are open to whoever is inside.
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 80)).unwrap();
                std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let unreachable = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
                assert!(unreachable.send_to(b"x", (FAR, PORT)).is_err());
            });
        });
    });
}

#[test]
fn ids_and_namespaces_belong_together() {
    on_a_host(|world| {
        let runtime = runtime();
        runtime.block_on(async {
            let config = world.config();
            let pool = Pool::open(config.clone(), &[]).unwrap();
            let (a, b) = (
                pool.take(Network::Outside).await.unwrap(),
                pool.take(Network::None).await.unwrap(),
            );
            assert_ne!(a.index, b.index);
            assert_eq!(a.first_id, config.first_id + a.index * IDS_PER_SLOT);
            assert!(a.first_id.abs_diff(b.first_id) >= IDS_PER_SLOT);
            // NS_GET_USERNS of the network namespace is the user namespace of the slot.
            let owner =
                rustix::fs::fstat(crate::sys::userns::owner_of(a.net.as_fd()).unwrap()).unwrap();
            let user = rustix::fs::fstat(&a.user).unwrap();
            assert_eq!((owner.st_dev, owner.st_ino), (user.st_dev, user.st_ino));
        });
    });
}

#[test]
fn a_slot_is_owned_by_its_own_user_and_not_by_root() {
    on_a_host(|world| {
        let runtime = runtime();
        runtime.block_on(async {
            let pool = Pool::open(world.config(), &[]).unwrap();
            for network in [Network::Outside, Network::None] {
                let slot = pool.take(network).await.unwrap();
                let owner = crate::sys::userns::owner_id(slot.user.as_fd()).unwrap();
                assert_eq!(owner, slot.first_id);
            }
            // And this process is what it was.
            assert!(rustix::process::geteuid().is_root());
        });
    });
}

#[test]
fn connections_are_opened_inside_the_sandbox() {
    on_a_host(|world| {
        let runtime = runtime();
        runtime.block_on(async {
            let pool = Pool::open(world.config(), &[]).unwrap();
            let slot = pool.take(Network::Outside).await.unwrap();
            let (v4, v6) = world.inside(slot.net.as_fd(), || {
                (
                    TcpListener::bind("127.0.0.1:80").unwrap(),
                    TcpListener::bind("[::1]:81").unwrap(),
                )
            });
            for (listener, port) in [(&v4, 80), (&v6, 81)] {
                let stream = pool.dialer().connect(slot.net.as_fd(), port).await.unwrap();
                let (accepted, peer) = listener.accept().unwrap();
                assert_eq!(stream.local_addr().unwrap(), peer);
                drop(accepted);
            }
            let refused = pool
                .dialer()
                .connect(slot.net.as_fd(), 82)
                .await
                .unwrap_err();
            assert!(
                matches!(refused, DialError::NotListening(82)),
                "{refused:?}"
            );
        });
    });
}

#[test]
fn names_resolve_through_the_relay_and_it_offers_nothing_else() {
    on_a_host(|world| {
        let runtime = runtime();
        runtime.block_on(async {
            let config = world.config();
            let pool = Pool::open(config.clone(), &[]).unwrap();
            let slot = pool.take(Network::Outside).await.unwrap();
            let relay_slot = pool.make_for(slot::Purpose::Resolver);
            let relay = relay_slot.address.unwrap();
            // The host's nameserver, on a loopback address that no sandbox reaches.
            let nameserver = UdpSocket::bind("127.0.0.53:0").unwrap();
            let nameserver_tcp = TcpListener::bind(nameserver.local_addr().unwrap()).unwrap();
            nameserver.set_read_timeout(Some(ARRIVAL)).unwrap();
            let upstream = nameserver.local_addr().unwrap();
            let sockets = world.inside(relay_slot.net.as_fd(), || {
                dns::Sockets::bind(relay).unwrap()
            });
            let stop = tokio_util::sync::CancellationToken::new();
            let upstreams: dns::Upstreams = std::sync::Arc::new(move || vec![upstream]);
            let task = tokio::spawn(dns::relay(sockets, upstreams, stop.clone()));

            let answering = std::thread::spawn(move || {
                let mut query = [0; 64];
                let (len, from) = nameserver.recv_from(&mut query).unwrap();
                let mut answer = query[..len].to_vec();
                answer.extend_from_slice(b" is 42");
                nameserver.send_to(&answer, from).unwrap();
                let (mut stream, _) = nameserver_tcp.accept().unwrap();
                stream.write_all(b"over tcp").unwrap();
            });
            let client = world.sender(&slot);
            client.send_to(b"what", (relay, dns::PORT)).unwrap();
            assert_eq!(receive(&client).0, "what is 42");
            let address = SocketAddr::from((relay, dns::PORT));
            let mut stream = world.inside(slot.net.as_fd(), || {
                std::net::TcpStream::connect_timeout(&address, ARRIVAL).unwrap()
            });
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, "over tcp");
            answering.join().unwrap();

            let other = world.listener(relay_slot.net.as_fd(), relay, PORT);
            assert!(
                world.is_stopped(&slot, &other, relay),
                "another port of the relay"
            );
            stop.cancel();
            task.await.unwrap();
        });
    });
}

#[test]
fn a_restarted_server_keeps_used_slots_and_drops_the_rest() {
    on_a_host(|world| {
        let runtime = runtime();
        let config = Config {
            ready_outside: 0,
            ready_none: 0,
            ..world.config()
        };
        let (slot, held) = runtime.block_on(async {
            let pool = Pool::open(config.clone(), &[]).unwrap();
            let slot = pool.take(Network::Outside).await.unwrap();
            let forgotten = pool.take(Network::Outside).await.unwrap();
            // As after `kill -9`: no handle is closed in order, and the claims of what was ready
            // or half made stay behind.
            std::mem::forget(pool);
            (slot, forgotten.index)
        });
        let claims = claim::Claims::open(&config.claims_dir, &config.owner, 10).unwrap();
        assert!(claims.ours().unwrap().contains(&held));
        runtime.block_on(async {
            let pool = Pool::open(config.clone(), &[slot.index]).unwrap();
            assert_eq!(claims.ours().unwrap(), [slot.index]);
            let server = world.listener(world.outside.as_fd(), FAR, PORT);
            world
                .sender(&slot)
                .send_to(b"still here", (FAR, PORT))
                .unwrap();
            assert_eq!(receive(&server).0, "still here");
            pool.release(slot.index);
            assert!(claims.ours().unwrap().is_empty());
        });
    });
}

#[test]
fn an_exhausted_pool_says_so_and_recovers() {
    on_a_host(|world| {
        let runtime = runtime();
        runtime.block_on(async {
            let config = Config {
                addresses: "10.99.0.0/29".parse().unwrap(),
                ready_outside: 0,
                ready_none: 0,
                ..world.config()
            };
            let pool = Pool::open(config, &[]).unwrap();
            let mut slots = Vec::new();
            for _ in 0..5 {
                slots.push(pool.take(Network::Outside).await.unwrap());
            }
            let full = pool.take(Network::Outside).await.unwrap_err();
            assert!(matches!(full, Error::Exhausted(5)), "{full}");
            let index = slots.pop().map(|slot| slot.index).unwrap();
            wait_for_link_gone(&format!("osb-{index}"));
            pool.release(index);
            assert_eq!(pool.take(Network::Outside).await.unwrap().index, index);
        });
    });
}

fn wait_for_link_gone(name: &str) {
    let monitor = Socket::monitor_links(ARRIVAL).unwrap();
    while host_links().iter().any(|link| link == name) {
        monitor
            .wait()
            .expect("the kernel removes interfaces of dropped namespaces");
    }
}

#[test]
fn many_takers_at_once_and_more_than_a_thousand_slots() {
    const SLOTS: usize = 1_200;
    const TAKERS: usize = 32;
    on_a_host(|world| {
        let runtime = runtime();
        runtime.block_on(async {
            let config = Config {
                ready_outside: 32,
                ready_none: 0,
                ..world.config()
            };
            let pool = Pool::open(config.clone(), &[]).unwrap();
            let mut takers = tokio::task::JoinSet::new();
            for _ in 0..TAKERS {
                let pool = pool.clone();
                takers.spawn(async move {
                    let mut slots = Vec::new();
                    for _ in 0..SLOTS.div_ceil(TAKERS) {
                        slots.push(pool.take(Network::Outside).await.unwrap());
                    }
                    slots
                });
            }
            let slots: Vec<Slot> = takers.join_all().await.into_iter().flatten().collect();
            assert!(slots.len() >= SLOTS);
            let mut indexes: Vec<SlotIndex> = slots.iter().map(|slot| slot.index).collect();
            indexes.sort_unstable();
            indexes.dedup();
            assert_eq!(indexes.len(), slots.len(), "a number was handed out twice");
            let server = world.listener(world.outside.as_fd(), FAR, PORT);
            for slot in [&slots[0], &slots[SLOTS / 2], slots.last().unwrap()] {
                world.sender(slot).send_to(b"hello", (FAR, PORT)).unwrap();
                assert_eq!(receive(&server).0, "hello");
            }
            for slot in slots {
                let index = slot.index;
                drop(slot);
                pool.release(index);
            }
            pool.close().await;
            wait_for_no_links();
            let left: Vec<PathBuf> = std::fs::read_dir(&config.claims_dir)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .filter(|path| !path.ends_with(".users"))
                .collect();
            assert!(left.is_empty(), "{left:?}");
            let tables = Command::new("nft")
                .args(["list", "tables"])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8_lossy(&tables.stdout), "");
        });
    });
}

#[test]
fn one_sandbox_cannot_fill_the_hosts_table_of_connections() {
    on_a_host(|world| {
        let runtime = runtime();
        runtime.block_on(async {
            let pool = Pool::open(world.config(), &[]).unwrap();
            let slot = pool.take(Network::Outside).await.unwrap();
            let neighbour = pool.take(Network::Outside).await.unwrap();
            let receiver = world.listener(world.outside.as_fd(), FAR, PORT);
            let early = world.sender(&slot);
            early.send_to(b"hello", (FAR, PORT)).unwrap();
            let (_, from) = receiver.recv_from(&mut [0; 8]).unwrap();
            // A connection is one when it was answered.
            receiver.send_to(b"answer", from).unwrap();
            assert_eq!(receive(&early).0, "answer");
            // A flow per destination port; nobody listens on most of them.
            let flood = world.sender(&slot);
            for port in 10_000..10_000 + firewall::CONNECTIONS_PER_SANDBOX {
                let _ = flood.send_to(b"x", (FAR, u16::try_from(port).unwrap()));
            }
            let late = world.sender(&slot);
            late.send_to(b"late", (FAR, PORT)).unwrap();
            early.send_to(b"early", (FAR, PORT)).unwrap();
            assert_eq!(
                receive(&receiver).0,
                "early",
                "one more connection was let through"
            );
            assert!(world.arrives(&neighbour, &receiver, FAR));
            nft("flush chain inet osb through");
            assert!(arrives_from(&late, &receiver, FAR), "proves nothing");
        });
    });
}

#[test]
fn the_firewall_stays_while_anybody_needs_it() {
    on_a_host(|world| {
        let runtime = runtime();
        runtime.block_on(async {
            let config = Config {
                ready_outside: 0,
                ready_none: 0,
                ..world.config()
            };
            let second = world.temp.path().join("second");
            std::fs::create_dir(&second).unwrap();
            let has_rules = || {
                let tables = Command::new("nft")
                    .args(["list", "tables"])
                    .output()
                    .unwrap();
                !tables.stdout.is_empty()
            };
            let other = Pool::open(
                Config {
                    owner: second,
                    ..config.clone()
                },
                &[],
            )
            .unwrap();
            let pool = Pool::open(config.clone(), &[]).unwrap();
            drop(pool);
            assert!(has_rules(), "another server runs");
            drop(other);
            assert!(!has_rules(), "nobody is left");

            let pool = Pool::open(config.clone(), &[]).unwrap();
            let slot = pool.take(Network::Outside).await.unwrap();
            drop(pool);
            assert!(has_rules(), "a sandbox outlives its server");
            let pool = Pool::open(config, &[slot.index]).unwrap();
            pool.release(slot.index);
            pool.close().await;
            assert!(!has_rules(), "nobody is left");
        });
    });
}
