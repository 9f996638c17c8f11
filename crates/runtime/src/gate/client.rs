//! The server's end of the gate: finds it or starts it, tells it of sandboxes, and starts another when it
//! has died.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use api::error_chain;
use api::id::SandboxId;
use egress::control::{self, Connection, Entry, Request, Settings};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::{READY, SOCKET, Start};
use crate::config::Config;

/// A gate is ready within milliseconds and answers in less; one that takes this long is stuck.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// Requests that wait for the gate; each is a creation, a deletion or a change.
const REQUESTS_MAX: usize = 256;
/// A gate that dies is replaced this often for one request; the request itself may be what kills it.
const TRIES_MAX: usize = 3;

/// Why a policy is not in force.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum GateError {
    /// There is none.
    #[error("the egress gate does not start: {0}")]
    Start(String),
    /// It did not do what it was asked.
    #[error("{0}")]
    Failed(String),
}

/// The gate of a server. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Gate(mpsc::Sender<Call>);

#[derive(Debug)]
struct Call {
    change: Change,
    done: oneshot::Sender<Result<(), GateError>>,
}

#[derive(Debug, Clone)]
enum Change {
    Set(Entry),
    Forget(IpAddr),
}

impl Gate {
    /// Finds the gate of an earlier server or starts one, tells it of the sandboxes there are, and gives its
    /// namespace. `entries` are all that lead to it.
    pub(crate) async fn open(
        config: &Config,
        entries: Vec<Entry>,
    ) -> Result<(Self, OwnedFd), GateError> {
        let entries = entries.into_iter().map(|entry| (entry.address, entry));
        let mut keeper = Keeper {
            program: config.gate.clone(),
            start: Start {
                data_dir: config.data_dir.clone(),
                prefix: config.network.prefix.clone(),
                addresses: config.network.addresses,
                nameservers: config.network.nameservers.clone(),
                namespace: None,
            },
            settings: settings(config),
            entries: entries.collect(),
            namespace: None,
        };
        let connection = keeper.connect().await?;
        let namespace = keeper.namespace.as_ref().map(|held| held.try_clone());
        let namespace = namespace.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()));
        let namespace = namespace.map_err(|error| GateError::Start(error.to_string()))?;
        let (send, calls) = mpsc::channel(REQUESTS_MAX);
        tokio::spawn(keeper.serve(connection, calls));
        Ok((Self(send), namespace))
    }

    /// Puts a policy in force.
    pub(crate) async fn set(
        &self,
        address: Ipv4Addr,
        id: &SandboxId,
        policy: &api::egress::policy::EgressPolicy,
    ) -> Result<(), GateError> {
        let entry = Entry {
            address: address.into(),
            id: id.to_string(),
            policy: policy.clone(),
        };
        self.call(Change::Set(entry)).await
    }

    /// A sandbox is gone.
    pub(crate) async fn forget(&self, address: Ipv4Addr) -> Result<(), GateError> {
        self.call(Change::Forget(address.into())).await
    }

    async fn call(&self, change: Change) -> Result<(), GateError> {
        let gone = || GateError::Failed("the server is stopping".to_owned());
        let (done, answer) = oneshot::channel();
        let call = Call { change, done };
        self.0.send(call).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

fn settings(config: &Config) -> Settings {
    let network = &config.network;
    let own = format!("{}", network.addresses);
    Settings {
        always: config.egress.always.clone(),
        private: config.egress.private.clone(),
        own: own.parse().into_iter().collect(),
    }
}

/// Holds the connection, and what has to be told anew when it breaks.
struct Keeper {
    program: (PathBuf, Vec<OsString>),
    start: Start,
    settings: Settings,
    entries: HashMap<IpAddr, Entry>,
    /// Held so that it outlives a gate that dies.
    namespace: Option<Arc<OwnedFd>>,
}

impl Keeper {
    /// Carries out calls, one at a time, until nobody can make one any more.
    async fn serve(mut self, connection: Connection, mut calls: mpsc::Receiver<Call>) {
        let mut current = Some(connection);
        loop {
            let closed = async {
                match &current {
                    Some(connection) => connection.closed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                call = calls.recv() => {
                    let Some(call) = call else { return };
                    let outcome = self.carry_out(&mut current, call.change).await;
                    let _ = call.done.send(outcome);
                    if current.is_none() {
                        // It may have done what it did not answer: it is told what holds.
                        current = self.reconnect().await;
                    }
                }
                () = closed => {
                    tracing::warn!("the egress gate died; starting another");
                    current = self.reconnect().await;
                }
            }
        }
    }

    async fn reconnect(&mut self) -> Option<Connection> {
        match self.connect().await {
            Ok(connection) => Some(connection),
            Err(error) => {
                tracing::error!(error = %error_chain(&error), "sandboxes with a network policy reach nothing");
                None
            }
        }
    }

    async fn carry_out(
        &mut self,
        current: &mut Option<Connection>,
        change: Change,
    ) -> Result<(), GateError> {
        let request = match &change {
            Change::Set(entry) => Request::Set(entry.clone()),
            Change::Forget(address) => Request::Forget { address: *address },
        };
        let mut last = GateError::Failed("the egress gate died again and again".to_owned());
        for _ in 0..TRIES_MAX {
            let connection = match current {
                Some(connection) => connection,
                None => current.insert(self.connect().await?),
            };
            match timeout(ANSWER_WAIT, connection.ask(&request)).await {
                Ok(Ok(())) => {
                    self.note(change);
                    return Ok(());
                }
                Ok(Err(control::Error::Refused(why))) => {
                    return Err(GateError::Failed(why));
                }
                Ok(Err(error)) => last = GateError::Failed(error_chain(&error).to_string()),
                Err(_) => last = GateError::Failed("the egress gate does not answer".to_owned()),
            }
            *current = None;
        }
        Err(last)
    }

    fn note(&mut self, change: Change) {
        match change {
            Change::Set(entry) => drop(self.entries.insert(entry.address, entry)),
            Change::Forget(address) => drop(self.entries.remove(&address)),
        }
    }

    /// A connection to a gate that knows everything.
    async fn connect(&mut self) -> Result<Connection, GateError> {
        let failed = |error: control::Error| GateError::Start(error_chain(&error).to_string());
        let connection = match self.greet().await {
            Ok(connection) => connection,
            // There is none, or the one that was connected to is on its way out.
            Err(control::Error::Io(error)) if error.kind() != io::ErrorKind::TimedOut => {
                self.launch().await?;
                self.greet().await.map_err(failed)?
            }
            Err(error) => return Err(failed(error)),
        };
        if self.namespace.is_none() {
            let found = namespace_of(&connection);
            let found = found.map_err(|error| GateError::Start(error.to_string()))?;
            self.namespace = Some(Arc::new(found));
        }
        Ok(connection)
    }

    /// Connects to the gate that there is, and tells it everything.
    async fn greet(&self) -> Result<Connection, control::Error> {
        let stream = self.dial().await?;
        let whole = async {
            let mut connection = Connection::greet(stream, self.settings.clone()).await?;
            for entry in self.entries.values() {
                connection.ask(&Request::Set(entry.clone())).await?;
            }
            let addresses = self.entries.keys().copied().collect();
            connection.ask(&Request::Keep { addresses }).await?;
            Ok(connection)
        };
        let greeted = timeout(ANSWER_WAIT, whole).await;
        greeted.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    /// A data directory may be deep, and a socket's path has at most 107 bytes.
    async fn dial(&self) -> io::Result<UnixStream> {
        let directory = std::fs::File::open(&self.start.data_dir)?;
        let path = format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd());
        UnixStream::connect(path).await
    }

    /// Starts a gate and waits until it can be connected to.
    async fn launch(&mut self) -> Result<(), GateError> {
        let failed = |error: io::Error| GateError::Start(error.to_string());
        self.start.namespace = self.namespace.as_ref().map(|held| {
            PathBuf::from(format!(
                "/proc/{}/fd/{}",
                std::process::id(),
                held.as_raw_fd()
            ))
        });
        let start = serde_json::to_string(&self.start).expect("plain data");
        let (program, arguments) = &self.program;
        let mut child = tokio::process::Command::new(program)
            .arg0("osb")
            .args(arguments)
            .arg(start)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .env_clear()
            .process_group(0)
            .kill_on_drop(false)
            .spawn()
            .map_err(failed)?;
        let output = child.stdout.take().expect("it is piped");
        // The handle is dropped: the runtime reaps it when it ends, and its end is noticed on the socket.
        let mut line = String::new();
        let mut output = BufReader::new(output);
        let reading = timeout(ANSWER_WAIT, output.read_line(&mut line)).await;
        let stuck = |_| GateError::Start("it does not get ready".to_owned());
        reading.map_err(stuck)?.map_err(failed)?;
        match line.trim() {
            READY => Ok(()),
            "" => Err(GateError::Start("it ended without a word".to_owned())),
            reason => Err(GateError::Start(reason.to_owned())),
        }
    }
}

/// The namespace that the first thread of the gate is in.
fn namespace_of(connection: &Connection) -> io::Result<OwnedFd> {
    let pid = connection.peer()?.ok_or(io::ErrorKind::NotFound)?;
    Ok(std::fs::File::open(format!("/proc/{pid}/ns/net"))?.into())
}
