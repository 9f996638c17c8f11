//! What calls leave behind for later ones, and how it is closed. In Rust a reader is closed by
//! dropping it, so that what one call reads and another closes is kept in a [`Closable`].

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt as _};
use opensandbox::{
    Client, Execution, Pool, Result as SdkResult, Sandbox, Session, Terminal, TerminalInput,
    TerminalOutput,
};
use serde::Serialize;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::Failure;

/// Values of a stream, as they are on the wire.
pub(crate) struct Values(pub(crate) Pin<Box<dyn Stream<Item = Result<Value, Failure>> + Send>>);

/// The half of a byte stream that reads.
pub(crate) struct Reader(pub(crate) Box<dyn AsyncRead + Send + Unpin>);

/// The half of a byte stream that writes.
pub(crate) struct Writer(pub(crate) Box<dyn AsyncWrite + Send + Unpin>);

/// A byte stream, as its two halves.
pub(crate) struct Tunnel {
    pub(crate) reader: Closable<Reader>,
    pub(crate) writer: Closable<Writer>,
}

/// A connection to a terminal, as its two halves.
pub(crate) struct Connection {
    pub(crate) input: Mutex<TerminalInput>,
    pub(crate) output: Closable<TerminalOutput>,
}

/// What is held under a name.
#[derive(Clone)]
pub(crate) enum Held {
    Client(Client),
    Sandbox(Sandbox),
    Stream(Arc<Closable<Values>>),
    Execution(Arc<Closable<Execution>>),
    Session(Session),
    Terminal(Terminal),
    Connection(Arc<Connection>),
    Tunnel(Arc<Tunnel>),
    Pool(Arc<Pool>),
}

macro_rules! as_one {
    ($($name:ident: $kind:ident => $type:ty),* $(,)?) => {
        impl Held {
            $(pub(crate) fn $name(&self) -> Result<&$type, Failure> {
                match self {
                    Self::$kind(held) => Ok(held),
                    _ => Err(Failure::Runner(concat!("this is made on a ", stringify!($kind)).to_owned())),
                }
            })*
        }
    };
}

as_one! {
    client: Client => Client,
    sandbox: Sandbox => Sandbox,
    stream: Stream => Closable<Values>,
    execution: Execution => Closable<Execution>,
    session: Session => Session,
    terminal: Terminal => Terminal,
    connection: Connection => Connection,
    tunnel: Tunnel => Tunnel,
    pool: Pool => Pool,
}

impl Held {
    pub(crate) fn of_stream<T: Serialize + 'static>(
        values: impl Stream<Item = SdkResult<T>> + Send + 'static,
    ) -> Self {
        let values = values.map(|value| {
            serde_json::to_value(value?).map_err(|error| Failure::Runner(error.to_string()))
        });
        Self::Stream(Arc::new(Closable::new(Values(Box::pin(values)))))
    }

    pub(crate) fn of_execution(execution: Execution) -> Self {
        Self::Execution(Arc::new(Closable::new(execution)))
    }

    pub(crate) fn of_tunnel(tunnel: impl AsyncRead + AsyncWrite + Send + 'static) -> Self {
        let (reader, writer) = tokio::io::split(tunnel);
        Self::Tunnel(Arc::new(Tunnel {
            reader: Closable::new(Reader(Box::new(reader))),
            writer: Closable::new(Writer(Box::new(writer))),
        }))
    }

    /// Lets go of it. Sandboxes live on: the harness ends them.
    pub(crate) async fn close(self) {
        match self {
            Self::Stream(stream) => stream.close().await,
            Self::Execution(execution) => execution.close().await,
            Self::Tunnel(tunnel) => tunnel.close().await,
            Self::Connection(connection) => connection.output.close().await,
            Self::Pool(pool) => pool.shutdown().await,
            Self::Client(_) | Self::Sandbox(_) | Self::Session(_) | Self::Terminal(_) => {}
        }
    }
}

impl Tunnel {
    pub(crate) async fn close(&self) {
        self.reader.close().await;
        self.writer.close().await;
    }
}

/// Something that is used by one call at a time and can be closed by another meanwhile.
pub(crate) struct Closable<T> {
    inner: Mutex<Option<T>>,
    closed: CancellationToken,
}

impl<T> Closable<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self {
            inner: Mutex::new(Some(inner)),
            closed: CancellationToken::new(),
        }
    }

    /// Uses it; nothing where it is closed, or becomes so meanwhile.
    pub(crate) async fn using<R>(&self, used: impl AsyncFnOnce(&mut T) -> R) -> Option<R> {
        tokio::select! {
            biased;
            () = self.closed.cancelled() => None,
            result = async { Some(used(self.inner.lock().await.as_mut()?).await) } => result,
        }
    }

    /// Takes it for good.
    pub(crate) async fn take(&self) -> Option<T> {
        self.inner.lock().await.take()
    }

    pub(crate) async fn close(&self) {
        self.closed.cancel();
        self.take().await;
    }
}
