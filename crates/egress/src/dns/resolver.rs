//! Looks names up at the host's nameservers, once for all sandboxes, and keeps the answers for as long as
//! they say. Judges nothing.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::message::{self, Found, NO_ERROR, NO_SUCH_NAME, TYPE_A, TYPE_AAAA};

/// Where questions go: read anew for each, as the host may move to another network.
pub type Upstreams = Arc<dyn Fn() -> Vec<SocketAddr> + Send + Sync>;

/// What glibc waits for one nameserver before it asks the next.
const UPSTREAM_WAIT: Duration = Duration::from_secs(5);
/// Questions under way at once: each holds a socket and a buffer.
const QUESTIONS_MAX: usize = 2_048;
/// Names that are kept; the oldest half goes when there are more.
const CACHE_MAX: usize = 16_384;
/// Nothing is kept longer: a name that moves is found again within minutes.
const KEPT_MAX: Duration = Duration::from_secs(300);
/// How long it is believed that a name does not exist, or has no such address. Short, because the answer
/// says no better time.
const KEPT_NOTHING: Duration = Duration::from_secs(5);
/// The largest message that UDP carries.
const MESSAGE_BYTES: usize = 65_535;

/// What is known of a name.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) addresses: Vec<IpAddr>,
    /// The aliases on the way to the addresses.
    pub(crate) aliases: Vec<String>,
    /// The name exists.
    pub(crate) exists: bool,
    expires: Instant,
}

impl Answer {
    /// How long it may still be believed.
    pub(crate) fn ttl(&self) -> Duration {
        self.expires.saturating_duration_since(Instant::now())
    }
}

/// Why a name is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveError {
    #[error("{0} cannot be asked for")]
    Name(String),
    #[error("no nameserver answered for {0}")]
    NoAnswer(String),
}

/// Looks names up.
pub(crate) struct Resolver {
    upstreams: Upstreams,
    cache: Mutex<HashMap<(String, u16), Arc<Answer>>>,
    questions: Semaphore,
}

impl Resolver {
    pub(crate) fn new(upstreams: Upstreams) -> Self {
        Self {
            upstreams,
            cache: Mutex::default(),
            questions: Semaphore::new(QUESTIONS_MAX),
        }
    }

    /// What is kept of a name.
    pub(crate) fn kept(&self, name: &str, kind: u16) -> Option<Arc<Answer>> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = cache.get(&(name.to_owned(), kind))?;
        (answer.expires > Instant::now()).then(|| answer.clone())
    }

    /// The addresses of a name, of the kind [`TYPE_A`] or [`TYPE_AAAA`].
    pub(crate) async fn lookup(&self, name: &str, kind: u16) -> Result<Arc<Answer>, ResolveError> {
        if let Some(kept) = self.kept(name, kind) {
            return Ok(kept);
        }
        let (_, found) = self.ask(name, kind).await?;
        let is_empty = found.addresses.is_empty();
        let ttl = match is_empty {
            true => KEPT_NOTHING,
            false => KEPT_MAX.min(Duration::from_secs(found.ttl.into())),
        };
        let answer = Arc::new(Answer {
            addresses: found.addresses,
            aliases: found.aliases,
            exists: found.code == NO_ERROR,
            expires: Instant::now() + ttl,
        });
        self.keep(name, kind, answer.clone());
        Ok(answer)
    }

    /// Where a name is, IPv4 first. Every address of it, so that the next is tried when one does not answer.
    pub(crate) async fn addresses(&self, name: &str) -> Result<Vec<Arc<Answer>>, ResolveError> {
        let v4 = self.lookup(name, TYPE_A).await?;
        if !v4.addresses.is_empty() {
            return Ok(vec![v4]);
        }
        Ok(vec![v4, self.lookup(name, TYPE_AAAA).await?])
    }

    fn keep(&self, name: &str, kind: u16, answer: Arc<Answer>) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= CACHE_MAX {
            let now = Instant::now();
            cache.retain(|_, kept| kept.expires > now);
            let mut keep_next = false;
            if cache.len() >= CACHE_MAX {
                // Any half will do: what is asked for again comes back.
                cache.retain(|_, _| {
                    keep_next = !keep_next;
                    keep_next
                });
            }
        }
        cache.insert((name.to_owned(), kind), answer);
    }

    /// Asks the nameservers one after the other; the whole message, and what it says.
    pub(crate) async fn ask(
        &self,
        name: &str,
        kind: u16,
    ) -> Result<(Vec<u8>, Found), ResolveError> {
        let no_answer = || ResolveError::NoAnswer(name.to_owned());
        let _permit = self.questions.acquire().await.map_err(|_| no_answer())?;
        for upstream in (self.upstreams)() {
            match timeout(UPSTREAM_WAIT, ask_one(name, kind, upstream)).await {
                Ok(Ok((bytes, found))) if matches!(found.code, NO_ERROR | NO_SUCH_NAME) => {
                    return Ok((bytes, found));
                }
                Ok(Ok((_, found))) => {
                    tracing::debug!(%upstream, code = found.code, "a nameserver did not answer the question");
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidInput => {
                    return Err(ResolveError::Name(name.to_owned()));
                }
                Ok(Err(error)) => {
                    tracing::debug!(%upstream, error = %api::error_chain(&error), "a nameserver gave no answer");
                }
                Err(_) => tracing::debug!(%upstream, "a nameserver did not answer in time"),
            }
        }
        Err(no_answer())
    }
}

async fn ask_one(name: &str, kind: u16, upstream: SocketAddr) -> io::Result<(Vec<u8>, Found)> {
    let id: u16 = rand::random();
    let question = message::write_query(id, name, kind)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no name of DNS"))?;
    let any: IpAddr = match upstream {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // A port of its own for each question is what makes answers hard to forge (RFC 5452).
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(upstream).await?;
    socket.send(&question).await?;
    let mut buffer = vec![0_u8; MESSAGE_BYTES];
    loop {
        let length = socket.recv(&mut buffer).await?;
        // Anything else is not the answer, whoever sent it.
        if let Some(found) = message::read_answer(&buffer[..length], id, name, kind) {
            if found.is_truncated {
                break;
            }
            buffer.truncate(length);
            return Ok((buffer, found));
        }
    }
    let mut stream = TcpStream::connect(upstream).await?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(&question).await?;
    let length = usize::from(stream.read_u16().await?);
    buffer.resize(length, 0);
    stream.read_exact(&mut buffer).await?;
    let found = message::read_answer(&buffer, id, name, kind)
        .ok_or_else(|| io::Error::other("the answer over TCP is to another question"))?;
    Ok((buffer, found))
}
