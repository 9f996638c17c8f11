//! How a server tells the gate what sandboxes there are and what they may reach: frames of JSON over a unix
//! socket that only root can reach. A request is answered when what it asks for holds.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::egress::policy::{EgressPolicy, Target};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::judge::Always;
use crate::serve::Shared;

/// What both sides must agree on; a gate outlives the server that started it, and the next may be newer.
pub const PROTOCOL: u32 = 1;

/// The longest frame: a policy has at most 4,096 rules, and a target some 260 bytes.
const FRAME_BYTES_MAX: u32 = 8 * 1024 * 1024;

/// The server that starts a gate connects at once; if it died instead, the gate ends.
const START_WAIT: Duration = Duration::from_secs(60);

/// What holds for all sandboxes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// An operator's rules.
    pub always: Always,
    /// Private ranges that an operator opened.
    pub private: Vec<Target>,
    /// Ranges that are never reached: the sandboxes' own.
    pub own: Vec<Target>,
}

/// A sandbox and what it may reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The address that its connections come from.
    pub address: IpAddr,
    /// Its id, for logs.
    pub id: String,
    /// What it may reach.
    pub policy: EgressPolicy,
}

/// What a server asks for.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// The first of every connection.
    Hello {
        /// [`PROTOCOL`] of the server.
        protocol: u32,
        /// What holds from now on.
        settings: Settings,
    },
    /// Make a sandbox known, or change its policy.
    Set(Entry),
    /// A sandbox is gone.
    Forget {
        /// Its address.
        address: IpAddr,
    },
    /// Only these sandboxes are left.
    Keep {
        /// Their addresses.
        addresses: Vec<IpAddr>,
    },
}

/// What the gate answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// It holds.
    Done,
    /// It cannot be; why.
    Refused(String),
}

/// Why a request was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The gate does not answer.
    #[error("the egress gate does not answer")]
    Io(#[from] io::Error),
    /// It will not.
    #[error("the egress gate refused: {0}")]
    Refused(String),
}

/// Writes a frame: its length, then JSON.
async fn write(stream: &mut UnixStream, value: &impl Serialize) -> io::Result<()> {
    let body = serde_json::to_vec(value)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut frame = Vec::with_capacity(body.len() + 4);
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&body);
    stream.write_all(&frame).await
}

async fn read<T: DeserializeOwned>(stream: &mut UnixStream) -> io::Result<T> {
    let length = stream.read_u32().await?;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::other("a frame of the egress gate is too long"));
    }
    let mut body = vec![0_u8; usize::try_from(length).map_err(io::Error::other)?];
    stream.read_exact(&mut body).await?;
    Ok(serde_json::from_slice(&body)?)
}

/// A server's connection to the gate.
#[derive(Debug)]
pub struct Connection(UnixStream);

impl Connection {
    /// Greets the gate at the other end.
    pub async fn greet(stream: UnixStream, settings: Settings) -> Result<Self, Error> {
        let mut connection = Self(stream);
        let hello = Request::Hello {
            protocol: PROTOCOL,
            settings,
        };
        connection.ask(&hello).await?;
        Ok(connection)
    }

    /// Asks, and returns when it holds. A connection whose call was given up half-way is of no more use.
    pub async fn ask(&mut self, request: &Request) -> Result<(), Error> {
        write(&mut self.0, request).await?;
        match read(&mut self.0).await? {
            Reply::Done => Ok(()),
            Reply::Refused(why) => Err(Error::Refused(why)),
        }
    }

    /// Waits until the gate is gone. It says nothing unless it is asked, so whatever comes is no answer.
    pub async fn closed(&self) {
        loop {
            if self.0.readable().await.is_err() {
                return;
            }
            match self.0.try_read(&mut [0; 1]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return,
            }
        }
    }

    /// The process at the other end.
    pub fn peer(&self) -> io::Result<Option<i32>> {
        Ok(self.0.peer_cred()?.pid())
    }
}

/// Listens to servers until none is connected and no sandbox is left.
pub(crate) async fn serve(
    listener: UnixListener,
    shared: Arc<Shared>,
    mut sandboxes: watch::Receiver<usize>,
) {
    let tasks = TaskTracker::new();
    let (connected, mut connections) = watch::channel(0_usize);
    let start = tokio::time::sleep(START_WAIT);
    tokio::pin!(start);
    let mut has_begun = false;
    loop {
        let is_idle = *connections.borrow_and_update() == 0 && *sandboxes.borrow_and_update() == 0;
        if has_begun && is_idle {
            return;
        }
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                has_begun = true;
                connected.send_modify(|count| *count += 1);
                let (shared, connected) = (shared.clone(), connected.clone());
                tasks.spawn(async move {
                    let _ = listen(stream, &shared).await;
                    connected.send_modify(|count| *count -= 1);
                });
            }
            changed = connections.changed() => if changed.is_err() { return },
            changed = sandboxes.changed() => if changed.is_err() { return },
            () = &mut start, if !has_begun => return,
        }
    }
}

async fn listen(mut stream: UnixStream, shared: &Shared) -> io::Result<()> {
    let hello = timeout(START_WAIT, read(&mut stream));
    let reply = match hello.await.map_err(io::Error::other)?? {
        Request::Hello { protocol, settings } if protocol == PROTOCOL => {
            answer(shared.configure(settings))
        }
        Request::Hello { protocol, .. } => Reply::Refused(format!(
            "it speaks version {PROTOCOL} of its protocol and the server {protocol}; delete the sandboxes \
             that have a network policy, and restart the server"
        )),
        _ => Reply::Refused("the first request must be a greeting".to_owned()),
    };
    write(&mut stream, &reply).await?;
    loop {
        let done = match read(&mut stream).await? {
            Request::Set(entry) => shared.set(entry),
            Request::Forget { address } => shared.forget(address),
            Request::Keep { addresses } => shared.keep(&addresses),
            Request::Hello { settings, .. } => shared.configure(settings),
        };
        write(&mut stream, &answer(done)).await?;
    }
}

fn answer(done: io::Result<()>) -> Reply {
    match done {
        Ok(()) => Reply::Done,
        Err(error) => Reply::Refused(api::error_chain(&error).to_string()),
    }
}
