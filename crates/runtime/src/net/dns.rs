//! Names resolve inside sandboxes as they do on the host.
//!
//! Where the host asks nameservers that sandboxes can reach too, they ask them directly. Where
//! it asks one on a loopback, link-local or IPv6 address (a local stub resolver, a cloud's), a
//! relay stands between: it listens on port 53 in a namespace of its own, at an address of the
//! sandboxes' pool, and passes queries to whatever the host's resolv.conf names at that moment.
//! The rules let sandboxes reach that one port there and nothing else.
//!
//! A relay and no resolver: it neither parses, caches nor filters, and it dies with the server.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub(super) const PORT: u16 = 53;
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// What glibc waits for one nameserver before it asks the next.
const UPSTREAM_WAIT: Duration = Duration::from_secs(5);
/// Long enough for a zone of answers, short enough that idle ones do not pile up.
const TCP_WAIT: Duration = Duration::from_secs(30);
/// Queries of one sandbox that may be under way, so that one that floods leaves room for others;
/// a resolver library sends two at a time.
const QUERIES_PER_SANDBOX: usize = 128;
/// Queries of all sandboxes under way: each holds a socket and a buffer.
const QUERIES_MAX: usize = 2_048;
/// The largest message that UDP carries.
const MESSAGE_BYTES: usize = 65_535;

/// What the host's resolv.conf says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HostResolver {
    nameservers: Vec<IpAddr>,
    /// `search` and `options` lines, as they are.
    rest: Vec<String>,
}

impl HostResolver {
    pub(super) fn read() -> Self {
        // A host without the file resolves through 127.0.0.1, says resolv.conf(5).
        Self::parse(&std::fs::read_to_string(RESOLV_CONF).unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let mut found = Self::default();
        for line in text.lines().map(str::trim) {
            let mut words = line.split_whitespace();
            match (words.next(), words.next()) {
                (Some("nameserver"), Some(address)) => {
                    // A scoped IPv6 address is of no use without its interface.
                    found.nameservers.extend(address.parse::<IpAddr>());
                }
                (Some("search" | "domain" | "options"), Some(_)) => {
                    found.rest.push(line.to_owned());
                }
                _ => {}
            }
        }
        if found.nameservers.is_empty() {
            found.nameservers.push(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        found
    }

    /// Those that a sandbox can have a way to.
    pub(super) fn ipv4(&self) -> Vec<Ipv4Addr> {
        let v4 = |address: &IpAddr| match address {
            IpAddr::V4(v4) => Some(*v4),
            IpAddr::V6(_) => None,
        };
        self.nameservers.iter().filter_map(v4).collect()
    }

    /// Whether sandboxes cannot ask these nameservers themselves. `local` are the host's own
    /// addresses.
    pub(super) fn needs_relay(&self, local: &[Ipv4Addr]) -> bool {
        !self.nameservers.iter().any(|address| match address {
            IpAddr::V4(v4) => !super::firewall::is_denied(*v4) && !local.contains(v4),
            IpAddr::V6(_) => false,
        })
    }

    /// The text of a sandbox's resolv.conf; with a relay that is the only nameserver.
    pub(super) fn for_sandboxes(&self, relay: Option<Ipv4Addr>, local: &[Ipv4Addr]) -> String {
        let direct = self.nameservers.iter().filter_map(|address| match address {
            IpAddr::V4(v4) if !super::firewall::is_denied(*v4) && !local.contains(v4) => Some(*v4),
            _ => None,
        });
        let nameservers: Vec<Ipv4Addr> =
            relay.map_or_else(|| direct.collect(), |relay| vec![relay]);
        let mut text = String::new();
        for address in nameservers {
            text.push_str(&format!("nameserver {address}\n"));
        }
        for line in &self.rest {
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}

/// The sockets of the relay, made inside its namespace.
pub(super) struct Sockets {
    udp: std::net::UdpSocket,
    tcp: std::net::TcpListener,
}

impl Sockets {
    /// To be called by a thread that is in the relay's namespace.
    pub(super) fn bind(address: Ipv4Addr) -> io::Result<Self> {
        let udp = std::net::UdpSocket::bind((address, PORT))?;
        let tcp = std::net::TcpListener::bind((address, PORT))?;
        udp.set_nonblocking(true)?;
        tcp.set_nonblocking(true)?;
        Ok(Self { udp, tcp })
    }
}

/// Where queries go: read anew for each, as the host may move to another network.
pub(super) type Upstreams = Arc<dyn Fn() -> Vec<SocketAddr> + Send + Sync>;

/// The host's nameservers, as its own programs would ask them.
pub(super) fn host_upstreams() -> Upstreams {
    Arc::new(|| {
        let host = HostResolver::read();
        host.nameservers
            .into_iter()
            .map(|address| SocketAddr::new(address, PORT))
            .collect()
    })
}

/// Relays until `stop`.
pub(super) async fn relay(sockets: Sockets, upstreams: Upstreams, stop: CancellationToken) {
    let (udp, tcp) = match (
        UdpSocket::from_std(sockets.udp),
        TcpListener::from_std(sockets.tcp),
    ) {
        (Ok(udp), Ok(tcp)) => (Arc::new(udp), tcp),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(error = %api::error_chain(&error), "the relay for DNS could not start; names will not resolve");
            return;
        }
    };
    let limits = QueryLimits::default();
    let tasks = tokio_util::task::TaskTracker::new();
    let mut query = vec![0_u8; MESSAGE_BYTES];
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            received = udp.recv_from(&mut query) => {
                // Errors here are those of earlier answers coming back; the socket goes on.
                let Ok((len, from)) = received else { continue };
                // Over the limit a query is dropped, as a busy nameserver would.
                let Some(permit) = limits.try_acquire(from.ip()) else { continue };
                let (udp, upstreams, query) = (udp.clone(), upstreams.clone(), query[..len].to_vec());
                tasks.spawn(stop.child_token().run_until_cancelled_owned(async move {
                    if let Some(answer) = ask(&query, &upstreams()).await {
                        let _ = udp.send_to(&answer, from).await;
                    }
                    drop(permit);
                }));
            }
            accepted = tcp.accept() => {
                let Ok((stream, from)) = accepted else { continue };
                let Some(permit) = limits.try_acquire(from.ip()) else { continue };
                let upstreams = upstreams.clone();
                tasks.spawn(stop.child_token().run_until_cancelled_owned(async move {
                    let _ = timeout(TCP_WAIT, relay_stream(stream, &upstreams())).await;
                    drop(permit);
                }));
            }
        }
    }
    tasks.close();
    tasks.wait().await;
}

async fn ask(query: &[u8], upstreams: &[SocketAddr]) -> Option<Vec<u8>> {
    for upstream in upstreams {
        match timeout(UPSTREAM_WAIT, ask_one(query, *upstream)).await {
            Ok(Ok(answer)) => return Some(answer),
            Ok(Err(error)) => {
                tracing::debug!(%upstream, error = %api::error_chain(&error), "a nameserver gave no answer");
            }
            Err(_) => tracing::debug!(%upstream, "a nameserver did not answer in time"),
        }
    }
    None
}

async fn ask_one(query: &[u8], upstream: SocketAddr) -> io::Result<Vec<u8>> {
    let any: SocketAddr = match upstream {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // A port of its own for each query is what makes answers hard to forge.
    let socket = UdpSocket::bind(any).await?;
    socket.connect(upstream).await?;
    socket.send(query).await?;
    let mut answer = vec![0_u8; MESSAGE_BYTES];
    loop {
        let len = socket.recv(&mut answer).await?;
        // Anything with another id is not the answer.
        if answer[..len].get(..2) == query.get(..2) {
            answer.truncate(len);
            return Ok(answer);
        }
    }
}

async fn relay_stream(mut stream: TcpStream, upstreams: &[SocketAddr]) -> io::Result<()> {
    for upstream in upstreams {
        if let Ok(Ok(mut server)) = timeout(UPSTREAM_WAIT, TcpStream::connect(upstream)).await {
            copy_bidirectional(&mut stream, &mut server).await?;
            return Ok(());
        }
    }
    Err(io::Error::other("no nameserver accepts connections"))
}

/// Counts what each sandbox has under way.
#[derive(Debug, Clone, Default)]
struct QueryLimits(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    by_sandbox: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct Permit {
    limits: QueryLimits,
    from: IpAddr,
}

impl QueryLimits {
    fn try_acquire(&self, from: IpAddr) -> Option<Permit> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = counts.by_sandbox.get(&from).copied().unwrap_or(0);
        if counts.all >= QUERIES_MAX || own >= QUERIES_PER_SANDBOX {
            return None;
        }
        counts.all += 1;
        counts.by_sandbox.insert(from, own + 1);
        Some(Permit {
            limits: self.clone(),
            from,
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.limits.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.all -= 1;
        if let Some(own) = counts.by_sandbox.get_mut(&self.from) {
            *own -= 1;
            if *own == 0 {
                counts.by_sandbox.remove(&self.from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolver(text: &str) -> HostResolver {
        HostResolver::parse(text)
    }

    #[test]
    fn nameservers_a_sandbox_can_reach_are_used_directly() {
        let host =
            resolver("# x\nnameserver 10.0.0.2\nnameserver ::1\nsearch a b\noptions ndots:2\n");
        assert!(!host.needs_relay(&[]));
        let expected = "nameserver 10.0.0.2\nsearch a b\noptions ndots:2\n";
        assert_eq!(host.for_sandboxes(None, &[]), expected);
    }

    #[test]
    fn local_link_local_ipv6_and_absent_nameservers_need_the_relay() {
        let own = Ipv4Addr::new(192, 0, 2, 7);
        for text in [
            "",
            "nameserver 127.0.0.53",
            "nameserver 169.254.169.253",
            "nameserver 192.0.2.7",
            "nameserver 2001:db8::1",
        ] {
            assert!(resolver(text).needs_relay(&[own]), "{text}");
        }
        let relay = Ipv4Addr::new(10, 88, 0, 9);
        let text = resolver("nameserver 127.0.0.53\nsearch x").for_sandboxes(Some(relay), &[own]);
        assert_eq!(text, "nameserver 10.88.0.9\nsearch x\n");
    }

    #[test]
    fn one_sandbox_cannot_take_every_query() {
        let limits = QueryLimits::default();
        let (greedy, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let held: Vec<_> = std::iter::from_fn(|| limits.try_acquire(greedy)).collect();
        assert_eq!(held.len(), QUERIES_PER_SANDBOX);
        assert!(limits.try_acquire(other).is_some());
        drop(held);
        assert!(limits.try_acquire(greedy).is_some());
        assert!(limits.0.lock().unwrap().by_sandbox.is_empty());
    }
}
