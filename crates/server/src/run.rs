//! A server from start to stop: opens what it needs, serves, and leaves in order. Sandboxes run
//! on when it is gone, and the next start takes them back.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::quantity::Quantity;
use daemon::signal::{Hangup, Termination};
use daemon::telemetry::{self, Level};
use daemon::{Tasks, notify};
use lifecycle::backend::{self, Backend};
use lifecycle::clock::SystemClock;
use lifecycle::store::Store;
use lifecycle::{Caller, ControlPlane, Rules, Service};
use proxy::{Limits, Listener, TlsError};
use tokio::net::{TcpListener, TcpSocket, UnixListener};

use crate::access::{Given, LastKeyRemoved, tenants_file};
use crate::backends;
use crate::config::{Config, StoreKind};
use crate::gateway::{self, Gateway, NoApi};
use crate::http::App;
use crate::metrics::Metrics;
use crate::socket::{self, SocketFile};
use crate::store::{Postgres, Sqlite};
use crate::traces::Traces;

/// How long what is under way may take to reach the store once no request is in flight any more.
const SERVICE_STOP: Duration = Duration::from_secs(10);

/// Why the server did not start or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused something basic.
    #[error("{action} failed")]
    Io {
        /// What was being done.
        action: String,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The address is taken or not ours.
    #[error("cannot listen on {address}; is another server running?")]
    Listen {
        /// The address from the configuration.
        address: SocketAddr,
        /// What `bind(2)` or `listen(2)` answered.
        #[source]
        source: io::Error,
    },
    /// A certificate cannot be used.
    #[error("TLS cannot be spoken")]
    Tls(#[from] TlsError),
    /// The unix socket cannot be had.
    #[error("cannot listen on {}; is another server running?", path.display())]
    Socket {
        /// The path from the configuration.
        path: PathBuf,
        /// What the operating system answered.
        #[source]
        source: io::Error,
    },
    /// The backend cannot be used.
    #[error("the backend cannot be opened")]
    Backend(#[source] backend::Error),
    /// The store cannot be used.
    #[error("the store cannot be opened")]
    Store(#[source] lifecycle::store::Error),
    /// The tenants cannot be known.
    #[error("the tenants cannot be read")]
    Tenants(#[source] tenants_file::Error),
    /// The control plane could not begin.
    #[error("the control plane cannot start")]
    Lifecycle(#[source] lifecycle::Error),
}

/// Why another configuration was not taken over.
#[derive(Debug, thiserror::Error)]
pub enum NotReloaded {
    /// It would open the server.
    #[error(transparent)]
    LastKeyRemoved(#[from] LastKeyRemoved),
    /// Its tenants cannot be known.
    #[error(transparent)]
    Tenants(#[from] tenants_file::Error),
}

pub(crate) fn io_error(action: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let action = action.into();
    move |source| Error::Io { action, source }
}

/// Reads the configuration again, or says what is wrong with it.
pub type Reread = Box<dyn Fn() -> Result<Config, String> + Send + Sync>;

/// Serves until a signal asks to stop. SIGHUP has the configuration read again.
pub fn until_stopped(
    config: Config,
    reread: &Reread,
    level: &Level,
    traces: Traces,
) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("osb-server")
        .build()
        .map_err(io_error("starting the async runtime"))?;
    let outcome = runtime.block_on(serve(config, reread, level, traces));
    // A blocking call that hangs must not keep a server that has ended from ending.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

async fn serve(
    config: Config,
    reread: &Reread,
    level: &Level,
    traces: Traces,
) -> Result<(), Error> {
    // What a sandbox uses up must not cost the one that looks after the others.
    runtime::spawner::protect_from_oom();
    let mut termination = Termination::catch().map_err(io_error("catching signals"))?;
    let mut hangup = Hangup::catch().map_err(io_error("catching signals"))?;
    // Taken before the rest is opened, so that clients wait in the queue instead of being refused.
    let listeners = listen(&config)?;
    let backend = backends::open(&config).await?;
    let store = open_store(&config).await?;
    let server = Running::start(&config, listeners, backend, store).await?;
    traces.export(&server.tasks);
    let address = server.address.map(|address| address.to_string());
    tracing::info!(address, backend = server.control.backend_name(), "ready");
    notify::ready();
    let signal = loop {
        tokio::select! {
            signal = termination.wait() => break signal,
            () = hangup.wait() => reload(&server, reread, level),
        }
    };
    tracing::info!(signal, "stopping; sandboxes run on");
    notify::stopping();
    tokio::select! {
        () = server.stop(Duration::from_secs(config.server.timeout_graceful_shutdown)) => {}
        signal = termination.wait() => tracing::warn!(signal, "stopping at once"),
    }
    Ok(())
}

/// Takes over what may change while the server runs. A configuration that cannot be used changes nothing.
fn reload(server: &Running, reread: &Reread, level: &Level) {
    let taken = reread().and_then(|config| {
        server
            .reload(&config)
            .map_err(|error| api::error_chain(&error).to_string())?;
        let filter = config.log.level.parse();
        let filter = filter.map_err(|error: telemetry::Error| error.to_string())?;
        level.set(filter).map_err(|error| error.to_string())
    });
    match taken {
        Ok(()) => {
            tracing::info!(
                "configuration read again: API keys, tenants, rules, certificates and log level are taken over"
            );
        }
        Err(reason) => tracing::error!(
            reason,
            "the configuration was not taken over; the old one holds"
        ),
    }
}

/// A server that serves.
pub struct Running {
    /// The address it listens on.
    pub address: Option<SocketAddr>,
    /// Where its gateway listens, if it has one.
    pub gateway: Option<SocketAddr>,
    /// The control plane it serves, as the server itself uses it.
    pub service: Service,
    control: ControlPlane,
    app: App,
    certificates: crate::tls::Certificates,
    tasks: Tasks,
    /// Removed when the server ends.
    _socket: Option<SocketFile>,
}

/// What a server listens on.
#[derive(Debug)]
pub struct Listeners {
    tcp: Option<TcpListener>,
    socket: Option<(UnixListener, SocketFile)>,
}

impl Running {
    /// Starts serving a backend and a store.
    pub async fn start(
        config: &Config,
        listeners: Listeners,
        backend: Arc<dyn Backend>,
        store: Arc<dyn Store>,
    ) -> Result<Self, Error> {
        let Listeners { tcp, socket } = listeners;
        let address = tcp.as_ref().map(TcpListener::local_addr).transpose();
        let address = address.map_err(io_error("asking for the own address"))?;
        let given = Given::read(config).map_err(Error::Tenants)?;
        let tasks = Tasks::new("server");
        let certificates = crate::tls::Certificates::open(config, &tasks)?;
        let clock = SystemClock::new().map_err(io_error("making a timer"))?;
        let metrics = Arc::new(Metrics::default());
        let settings = lifecycle::Config {
            observer: Some(Arc::clone(&metrics) as _),
            renew_on_access_interval: Duration::from_secs(config.renew_intent.min_interval_seconds),
            rules: rules(config),
            ..lifecycle::Config::default()
        };
        let control = ControlPlane::start(settings, backend, store, Arc::new(clock))
            .await
            .map_err(Error::Lifecycle)?;
        let gateway = open_gateway(config)?;
        let told = gateway.as_ref().map(|(_, shared)| Arc::clone(shared));
        let app = App::new(
            config,
            control.clone(),
            metrics,
            told,
            tasks.spawner(),
            given,
        );
        #[cfg(feature = "otlp")]
        if let Some(settings) = config.otel.settings() {
            let (app, stopping) = (app.clone(), tasks.stopping());
            tasks.spawn("otlp", async move {
                let page = move || app.metrics().text();
                if let Err(error) = daemon::otlp::export(settings, page, stopping).await {
                    let error: &dyn std::error::Error = &error;
                    tracing::error!(error, "metrics are not exported");
                }
            });
        }
        let own = gateway.as_ref().map(|(listener, _)| listener.local_addr());
        let (unix, socket_file) = socket.unzip();
        let sockets = (tcp, unix, gateway);
        serve_listeners(config, &app, &certificates, &tasks, sockets)?;
        Ok(Self {
            address,
            gateway: own.and_then(Result::ok),
            service: control.for_caller(Caller::server()),
            control,
            app,
            certificates,
            tasks,
            _socket: socket_file,
        })
    }

    /// Takes over the API keys and the rules of another configuration, from the next request on.
    pub fn reload(&self, config: &Config) -> Result<(), NotReloaded> {
        self.app.replace_keys(Given::read(config)?)?;
        self.control.set_rules(rules(config));
        self.certificates.reload();
        Ok(())
    }

    /// Stops: no new connection, requests in flight within `grace`, then the store. Sandboxes run on.
    pub async fn stop(&self, grace: Duration) {
        for task in self.tasks.shutdown(grace).await {
            tracing::debug!(task, "did not end in time");
        }
        self.control.shutdown(SERVICE_STOP).await;
    }
}

/// What connections may use at each of so many listeners.
fn limits(config: &Config, listeners: usize) -> Limits {
    Limits {
        idle: Some(Duration::from_secs(config.server.timeout_keep_alive)),
        head: Some(Duration::from_secs(config.server.timeout_request_head)),
        connections: connections_max(config.server.max_connections, listeners),
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        ..Limits::default()
    }
}

/// Descriptors that connections leave to everything else, as a part of all and at least.
const RESERVED_PART: u64 = 4;
const RESERVED_MIN: u64 = 64;

/// Connections are worth serving from here on, however few descriptors there are.
const CONNECTIONS_MIN: u64 = 16;

/// How many connections are served at once: as many as the operator set, or as this process has descriptors
/// for. A connection takes two, its own and one into a sandbox, and a part stays for the backend and the
/// store: whoever opens connections without end must not stop these. What is left is shared by the listeners.
fn connections_max(chosen: u32, listeners: usize) -> usize {
    if chosen > 0 {
        return chosen as usize;
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    derived_connections(limit.unwrap_or(u64::MAX)) / listeners.max(1)
}

fn derived_connections(descriptors: u64) -> usize {
    let reserved = (descriptors / RESERVED_PART).max(RESERVED_MIN);
    let connections = descriptors.saturating_sub(reserved) / 2;
    usize::try_from(connections.max(CONNECTIONS_MIN)).unwrap_or(usize::MAX)
}

/// What the operator allows in requests.
fn rules(config: &Config) -> Rules {
    let size = config.storage.volume_default_size.parse::<Quantity>();
    Rules {
        host_paths: config.storage.allowed_host_paths.clone(),
        lifetime_max: config
            .server
            .max_sandbox_timeout_seconds
            .map(Duration::from_secs),
        renew_on_access: config.renew_intent.enabled,
        volume_size_default: size.ok().map(Quantity::whole),
    }
}

/// Listens where the configuration says.
pub fn listen(config: &Config) -> Result<Listeners, Error> {
    let backlog = config.server.backlog;
    let tcp = config.server.address();
    let socket = config.server.socket.as_ref().map(|path| {
        socket::listen(path, backlog).map_err(|source| Error::Socket {
            path: path.clone(),
            source,
        })
    });
    Ok(Listeners {
        tcp: tcp.map(|at| listen_at(at, backlog)).transpose()?,
        socket: socket.transpose()?,
    })
}

/// The gateway's listener and what it shares, if the configuration wants one.
fn open_gateway(config: &Config) -> Result<Option<GatewayListener>, Error> {
    let Some(address) = gateway::address(config) else {
        return Ok(None);
    };
    let listener = listen_at(address, config.server.backlog)?;
    let own = listener
        .local_addr()
        .map_err(io_error("asking for the gateway's address"))?;
    let shared = gateway::Shared::open(config, own)?;
    Ok(Some((listener, shared)))
}

/// The gateway's listener and what it shares.
type GatewayListener = (TcpListener, Arc<gateway::Shared>);

/// Serves the API, over TCP and a unix socket as there are, and, where there is one, the gateway.
fn serve_listeners(
    config: &Config,
    app: &App,
    certificates: &crate::tls::Certificates,
    tasks: &Tasks,
    (tcp, unix, gateway): (
        Option<TcpListener>,
        Option<UnixListener>,
        Option<GatewayListener>,
    ),
) -> Result<(), Error> {
    let served = [tcp.is_some(), unix.is_some(), gateway.is_some()];
    let served = served.into_iter().filter(|is_served| *is_served).count();
    let limits = limits(config, served);
    let trusted = config.server.trusted_proxies();
    if let Some((listener, shared)) = gateway {
        let (sandboxes, trusted) = (Gateway::new(app.ingress(), shared), trusted.clone());
        let listener = Listener {
            tls: certificates.gateway.clone(),
            has_http2: true,
            ..listener.into()
        };
        proxy::serve(tasks, listener, NoApi, sandboxes, trusted, limits)
            .map_err(io_error("starting threads for the gateway"))?;
    }
    let tcp = tcp.map(|socket| Listener {
        tls: certificates.server.clone(),
        ..socket.into()
    });
    for listener in [tcp, unix.map(Listener::from)].into_iter().flatten() {
        let front = app.clone().front(&config.server.cors_origins);
        let (ingress, trusted) = (app.ingress(), trusted.clone());
        proxy::serve(tasks, listener, front, ingress, trusted, limits)
            .map_err(io_error("starting threads for connections"))?;
    }
    Ok(())
}

fn listen_at(address: SocketAddr, backlog: u32) -> Result<TcpListener, Error> {
    let listen = || {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        // A restart must not wait for connections of the last run to be forgotten.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(backlog)
    };
    listen().map_err(|source| Error::Listen { address, source })
}

async fn open_store(config: &Config) -> Result<Arc<dyn Store>, Error> {
    let opened: Result<Arc<dyn Store>, _> = match (config.store.kind, &config.store.postgresql.dsn)
    {
        (StoreKind::Postgresql, Some(dsn)) => Postgres::open(dsn).await.map(|it| Arc::new(it) as _),
        _ => Sqlite::open(&database_path(config))
            .await
            .map(|it| Arc::new(it) as _),
    };
    opened.map_err(Error::Store)
}

/// Beside the sandboxes it describes, unless the operator wants it elsewhere.
fn database_path(config: &Config) -> PathBuf {
    const NAME: &str = "opensandbox.db";
    config.store.path.clone().unwrap_or_else(|| {
        backends::of(config.runtime.kind)
            .data_dir(config)
            .join(NAME)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_to_the_backend() {
        for (descriptors, connections) in [(261, 98), (1024, 384), (20_000, 7500), (10, 16)] {
            assert_eq!(derived_connections(descriptors), connections);
        }
        assert_eq!(connections_max(7, 2), 7);
        assert_eq!(connections_max(0, 2), connections_max(0, 1) / 2);
    }
}
