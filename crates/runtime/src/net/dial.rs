//! Opens TCP connections inside a sandbox's network from outside it.
//!
//! A socket belongs for life to the network namespace it was made in, wherever it is used. So a
//! few threads enter namespaces and make sockets there, and the connecting is done by the
//! caller's own event loop. Entering is kept off the runtime's worker threads: one that could
//! not return would carry the server's traffic into a sandbox.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;

/// Making a socket takes some ten microseconds, so two threads keep up with 100,000 connections
/// a second; the second is there for the moment the first one is descheduled.
const THREADS: usize = 2;
/// Requests that wait for a thread. More than this at once is a fault upstream.
const QUEUE: usize = 4_096;

/// Why no connection was made.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Nothing listens on that port on either loopback address.
    #[error("nothing listens on port {0} inside the sandbox")]
    NotListening(u16),
    /// The kernel refused a step.
    #[error("connecting to port {port} inside the sandbox failed")]
    Failed {
        port: u16,
        #[source]
        source: io::Error,
    },
}

/// Opens connections; cheap to clone.
#[derive(Debug, Clone)]
pub struct Dialer {
    requests: SyncSender<Request>,
}

#[derive(Debug)]
struct Request {
    namespace: OwnedFd,
    family: AddressFamily,
    answer: oneshot::Sender<io::Result<OwnedFd>>,
}

impl Dialer {
    /// Starts the threads. They end when the last clone is dropped.
    pub fn open() -> io::Result<Self> {
        let (requests, queue) = sync_channel(QUEUE);
        let queue = Arc::new(Mutex::new(queue));
        for number in 0..THREADS {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new()
                .name(format!("net-dial-{number}"))
                .spawn(move || serve(&queue))?;
        }
        Ok(Self { requests })
    }

    /// Connects to `port` on 127.0.0.1 inside `namespace`, and where that is refused on ::1.
    pub async fn connect(
        &self,
        namespace: BorrowedFd<'_>,
        port: u16,
    ) -> Result<TcpStream, DialError> {
        let failed = |source| DialError::Failed { port, source };
        let ipv4 = self
            .connect_to(namespace, IpAddr::V4(Ipv4Addr::LOCALHOST), port)
            .await;
        match ipv4 {
            Ok(stream) => return Ok(stream),
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(e) => return Err(failed(e)),
        }
        match self
            .connect_to(namespace, IpAddr::V6(Ipv6Addr::LOCALHOST), port)
            .await
        {
            Ok(stream) => Ok(stream),
            // A kernel or a sandbox without IPv6 has nothing listening there either.
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::ConnectionRefused
                        | io::ErrorKind::AddrNotAvailable
                        | io::ErrorKind::NetworkUnreachable
                        | io::ErrorKind::Unsupported
                ) =>
            {
                Err(DialError::NotListening(port))
            }
            Err(e) => Err(failed(e)),
        }
    }

    async fn connect_to(
        &self,
        namespace: BorrowedFd<'_>,
        address: IpAddr,
        port: u16,
    ) -> io::Result<TcpStream> {
        let family = match address {
            IpAddr::V4(_) => AddressFamily::INET,
            IpAddr::V6(_) => AddressFamily::INET6,
        };
        let socket = self.socket(namespace, family).await?;
        // The socket is not connected yet; tokio's type for that takes any stream socket.
        let socket = TcpSocket::from_std_stream(std::net::TcpStream::from(socket));
        let stream = socket.connect(SocketAddr::new(address, port)).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    async fn socket(
        &self,
        namespace: BorrowedFd<'_>,
        family: AddressFamily,
    ) -> io::Result<OwnedFd> {
        // The request may outlive a cancelled caller, so it holds a descriptor of its own.
        let namespace = namespace.try_clone_to_owned()?;
        let (answer, answered) = oneshot::channel();
        match self.requests.try_send(Request {
            namespace,
            family,
            answer,
        }) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                return Err(io::Error::new(
                    io::ErrorKind::WouldBlock,
                    "too many connections are being opened at once",
                ));
            }
            Err(TrySendError::Disconnected(_)) => {
                return Err(io::Error::other(
                    "the threads that open connections have ended",
                ));
            }
        }
        answered
            .await
            .map_err(|_| io::Error::other("a thread that opens connections has ended"))?
    }
}

/// A thread's life: it stays in whichever namespace it entered last, since nothing else runs on
/// it, but holds no reference to that namespace beyond the next request's needs.
fn serve(queue: &Mutex<Receiver<Request>>) {
    let Ok(home) = std::fs::File::open("/proc/thread-self/ns/net") else {
        return;
    };
    loop {
        let request = {
            let queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.recv()
        };
        let Ok(request) = request else { return };
        let result = make_socket(request.namespace.as_fd(), request.family);
        // Back home before answering: an idle thread must not keep a dead sandbox's network.
        let returned = move_into_link_name_space(home.as_fd(), Some(LinkNameSpaceType::Network));
        let _ = request.answer.send(result);
        if returned.is_err() {
            tracing::error!("a dialing thread could not leave a sandbox's network; it ends");
            return;
        }
    }
}

fn make_socket(namespace: BorrowedFd<'_>, family: AddressFamily) -> io::Result<OwnedFd> {
    move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(family, SocketType::STREAM, flags, None)?)
}
