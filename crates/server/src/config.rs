//! The server's settings: which there are, what they default to, and which do not go together.
//!
//! Names and meanings follow the published server wherever it has the setting; `upstream` lists
//! its settings that mean nothing here. Everything is checked before a socket is opened.

mod check;
pub(crate) mod egress;
mod exposure;
pub(crate) mod ingress;
pub(crate) mod kubernetes;
mod otel;
mod tls_files;
mod upstream;
mod values;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use daemon::config::{Loaded, Problems, Sources, Verdict, load as load_settings};
use daemon::section;
use secrecy::SecretString;

use crate::backends;

pub(crate) use check::optional_quantity;
pub use egress::Egress;
pub(crate) use exposure::{Exposure, exposure};
pub use ingress::{Ingress, IngressMode, RouteKey, RouteKeys, RouteMode};
pub use kubernetes::Kubernetes;
pub use tls_files::TlsFiles;
pub use upstream::WITHOUT_MEANING;
pub(crate) use values::DEFAULT_KEY_NAME;
pub use values::{ApiKey, ApiKeys, RuntimeKind, StoreKind};

/// A key `server.port` is overridden by `OPENSANDBOX_SERVER_PORT`.
pub const VARIABLE_PREFIX: &str = "OPENSANDBOX_";

/// The published server's variable for `tenants.path`.
const TENANTS_PATH_VARIABLE: &str = "SANDBOX_TENANTS_CONFIG_PATH";

/// The contract's lower bound for a lifetime, and so for a limit on it.
const TIMEOUT_SECONDS_MIN: u64 = 60;

section! {
    /// Everything that can be set.
    pub struct Config {
        /// Where the server listens and who may use it.
        server: Server = Server::default(),
        /// Several teams on one server, each of which sees its own sandboxes alone.
        tenants: Tenants = Tenants::default(),
        /// Where sandboxes are made.
        runtime: Runtime = Runtime::default(),
        /// The built-in runtime.
        embedded: Embedded = Embedded::default(),
        /// A Docker engine as the runtime.
        docker: Docker = Docker::default(),
        /// A Kubernetes cluster as the runtime. Sandboxes are pods; the server must be able to reach
        /// them by their addresses, and limits no network of theirs.
        kubernetes: Kubernetes = Kubernetes::default(),
        /// A kernel of its own for every sandbox, with Docker and Kubernetes.
        secure_runtime: SecureRuntime = SecureRuntime::default(),
        /// Where acknowledged facts are kept.
        store: Store = Store::default(),
        /// What sandboxes may mount.
        storage: Storage = Storage::default(),
        /// Sandboxes that live on while they are used.
        renew_intent: RenewIntent = RenewIntent::default(),
        /// How services in sandboxes are reached from outside.
        ingress: Ingress = Ingress::default(),
        /// What sandboxes reach outside.
        egress: Egress = Egress::default(),
        /// What is logged, and how.
        log: Log = Log::default(),
        /// Metrics to an OpenTelemetry collector, besides `/metrics` for Prometheus.
        otel: Otel = Otel::default(),
    }

    /// Where the server listens and who may use it.
    pub struct Server {
        /// Address to listen on. Any other than a loopback address needs an API key; `none` listens at
        /// `socket` alone.
        host: String = "127.0.0.1".to_owned(),
        /// Port to listen on; 0 takes any free one.
        port: u16 = 8080,
        /// A unix socket to listen at as well. Only the owner of its file may open it, and root: they
        /// need no key and may do everything.
        socket: Option<PathBuf> = None,
        /// A key that clients send as OPEN-SANDBOX-API-KEY, called `default` in the audit trail.
        api_key: Option<SecretString> = None,
        /// More keys, with names and kept as hashes only. `osb server new-key NAME` makes one:
        /// [{ name = "ci", sha256 = "…64 hexadecimal digits…" }]
        api_keys: ApiKeys = ApiKeys::default(),
        /// The host (and port) that endpoints are told to clients with. Default: what the client
        /// used to reach the server.
        eip: Option<String> = None,
        /// Longest lifetime a sandbox may be created with, in seconds. Default: no limit.
        max_sandbox_timeout_seconds: Option<u64> = None,
        /// Seconds after which a connection without a request is closed.
        timeout_keep_alive: u64 = 75,
        /// Seconds from the first byte of a request to the end of its headers.
        timeout_request_head: u64 = 10,
        /// Connections at once; 0 is as many as there are descriptors for, less a quarter for
        /// everything else. Clients that have shown no key or token yet get half of them, and when
        /// there are more, the one that has waited longest is closed.
        max_connections: u32 = 0,
        /// Proxies in front of this server whose X-Forwarded-For and X-Forwarded-Proto are believed,
        /// as addresses or networks: ["127.0.0.1", "10.0.0.0/8"]
        trusted_proxies: Vec<String> = Vec::new(),
        /// Requests in flight at once, beyond which 503 is answered; 0 is no limit. Proxied
        /// requests do not count.
        limit_concurrency: u32 = 0,
        /// Seconds for requests in flight to end when the server is stopped. Sandboxes run on.
        timeout_graceful_shutdown: u64 = 5,
        /// Connections that the kernel holds for us before we accept them.
        backlog: u32 = 2048,
        /// Origins whose web pages may call the API, for CORS. `*` is any page that knows an API
        /// key; on a server without keys it counts for nothing, and pages must be named.
        cors_origins: Vec<String> = vec!["*".to_owned()],
        /// TLS. Without a certificate it is not spoken, with one nothing else is.
        tls: TlsFiles = TlsFiles::default(),
    }

    /// Several teams on one server, each of which sees its own sandboxes alone.
    pub struct Tenants {
        /// file, to read tenants and their keys from a file, or empty. Tenants can also be made by API,
        /// with `osb tenant` and `osb key`.
        provider: String = String::new(),
        /// The file, as [[tenants]] with name and api_keys; SIGHUP has it read again.
        /// SANDBOX_TENANTS_CONFIG_PATH sets it, too.
        path: Option<PathBuf> = None,
    }

    /// Where sandboxes are made.
    pub struct Runtime {
        /// embedded (built in, needs nothing), docker, or kubernetes.
        kind as "type": RuntimeKind = RuntimeKind::Embedded,
        /// The execd program that goes into every sandbox. Default: the one beside this program.
        execd_path: Option<PathBuf> = None,
        /// With Kubernetes, an image whose entrypoint is the execd of this version: an init container
        /// of every sandbox.
        execd_image: Option<String> = None,
    }

    /// The built-in runtime.
    pub struct Embedded {
        /// Where images, sandboxes and, by default, the database are kept.
        data_dir: PathBuf = PathBuf::from("/var/lib/opensandbox"),
        /// The registry of images whose names have none, such as python:3.11.
        default_registry: String = "docker.io".to_owned(),
        /// For a registry, hosts to ask before it: { "docker.io" = ["mirror.example:5000"] }
        registry_mirrors: BTreeMap<String, Vec<String>> = BTreeMap::new(),
        /// Registries spoken to without TLS, as host or host:port. One on this machine or its link
        /// (loopback, link-local) is pulled from only if it is listed here, is a mirror or is the
        /// default registry.
        insecure_registries: Vec<String> = Vec::new(),
        /// Names of images that mean another that was built or imported here, each exactly:
        /// { "opensandbox/code-interpreter:v1.1.0" = "opensandbox/code:latest" }. No registry is
        /// asked for them; the answer to a creation has the digest used.
        image_aliases: BTreeMap<String, String> = BTreeMap::new(),
        /// Directories of this machine, besides /usr, that the image named host shows.
        host_directories: Vec<PathBuf> = Vec::new(),
        /// Bytes that one layer of an image may have once unpacked.
        layer_bytes_max: u64 = 64 << 30,
        /// Files, directories and links that one layer of an image may have.
        layer_entries_max: u64 = 4_000_000,
        /// Nameservers for sandboxes, as IPv4 addresses. Default: this machine's own.
        nameservers: Vec<String> = Vec::new(),
        /// Processor time of a sandbox that asks for none, as in 1 or 500m; empty is no limit. What
        /// was left unused in the last tenth of a second may be used on top in the next.
        default_cpu: String = "1".to_owned(),
        /// Memory of a sandbox that asks for none, as in 2Gi; empty is no limit.
        default_memory: String = "2Gi".to_owned(),
        /// Processes and threads of a sandbox; 0 is no limit.
        default_pids: u64 = 4096,
        /// Open files of each process of a sandbox; 0 is as many as the server itself may have.
        default_open_files: u64 = 65_536,
        /// Sandboxes that this machine is to hold at once, for `osb doctor` to examine its
        /// settings by.
        planned_sandboxes: u32 = 100,
        /// Networks and control groups kept ready, so that a burst of creates finds them made.
        ready_sandboxes: u32 = 32,
    }

    /// A Docker engine as the runtime.
    pub struct Docker {
        /// The engine's address, as unix:///path. Default: DOCKER_HOST, else
        /// unix:///var/run/docker.sock.
        host: Option<String> = None,
        /// Where control sockets, tokens, execd and, by default, the database are kept. The engine
        /// must see it under the same name.
        data_dir: PathBuf = PathBuf::from("/var/lib/opensandbox/docker"),
        /// host, bridge, none, or the name of a network.
        network_mode: String = "bridge".to_owned(),
        /// Seconds to wait for one call of the engine.
        api_timeout: u64 = 180,
        /// Capabilities that sandboxes do not get.
        drop_capabilities: Vec<String> = [
            "AUDIT_WRITE", "MKNOD", "NET_ADMIN", "NET_RAW", "SYS_ADMIN", "SYS_MODULE",
            "SYS_PTRACE", "SYS_TIME", "SYS_TTY_CONFIG",
        ].map(str::to_owned).to_vec(),
        /// An AppArmor profile for sandboxes.
        apparmor_profile: Option<String> = None,
        /// A seccomp profile for sandboxes, as a path.
        seccomp_profile: Option<String> = None,
        /// Programs in a sandbox cannot gain privileges.
        no_new_privileges: bool = true,
        /// Processes in one sandbox.
        pids_limit: u64 = 4096,
        /// Environment of every sandbox.
        sandbox_env: BTreeMap<String, String> = BTreeMap::new(),
        /// Bind mounts of every sandbox, as host:inside[:ro].
        sandbox_binds: Vec<String> = Vec::new(),
    }

    /// A kernel of its own for every sandbox, with Docker and Kubernetes.
    pub struct SecureRuntime {
        /// gvisor, kata, with Kubernetes firecracker, or empty for none. Any other name needs
        /// docker_runtime or k8s_runtime_class.
        kind as "type": String = String::new(),
        /// The engine's name of it. Default: runsc for gvisor, kata-runtime for kata.
        docker_runtime: Option<String> = None,
        /// The RuntimeClass. Default: gvisor for gvisor, kata-qemu for kata, kata-fc for firecracker.
        k8s_runtime_class: Option<String> = None,
    }

    /// Where acknowledged facts are kept.
    pub struct Store {
        /// sqlite or postgresql.
        kind as "type": StoreKind = StoreKind::Sqlite,
        /// The database file. Default: opensandbox.db in embedded.data_dir, with the Docker
        /// runtime in docker.data_dir.
        path: Option<PathBuf> = None,
        /// A PostgreSQL server.
        postgresql: Postgresql = Postgresql::default(),
    }

    /// A PostgreSQL server.
    pub struct Postgresql {
        /// postgresql://user:password@host/database
        dsn: Option<SecretString> = None,
    }

    /// What sandboxes may mount.
    pub struct Storage {
        /// Directories of the host that sandboxes may mount from. Empty: none. Needs an API key:
        /// without one every local account could write there.
        allowed_host_paths: Vec<PathBuf> = Vec::new(),
        /// With the embedded runtime, root in a sandbox is the owner and group of the directory
        /// that is mounted, and where those are root's, this id. Default: an id that no account
        /// has, 2147287040. The sandbox's other users are ids from there on.
        host_path_id: Option<u32> = None,
        /// With the embedded runtime, root in a sandbox is the host's root in mounted directories:
        /// set-user-id programs that it leaves there are root's.
        host_paths_as_root: bool = false,
        /// Size of a named volume made for a sandbox, where the backend can enforce one.
        volume_default_size: String = "1Gi".to_owned(),
    }

    /// Sandboxes that live on while they are used.
    pub struct RenewIntent {
        /// Honour the extension access.renew.extend.seconds. When false, a request with it is
        /// refused.
        enabled: bool = true,
        /// At least this long between two renewals of one sandbox, in seconds.
        min_interval_seconds: u64 = 60,
    }

    /// What is logged, and how.
    pub struct Log {
        /// off, error, warn, info, debug, trace; parts of the program as in info,server=debug.
        level: String = "info".to_owned(),
        /// text, json, or auto: text at a terminal, JSON elsewhere. Goes to standard error.
        format: String = "auto".to_owned(),
    }

    /// Metrics to an OpenTelemetry collector, besides `/metrics` for Prometheus.
    pub struct Otel {
        /// Export metrics and traces with OTLP over HTTP.
        enabled: bool = false,
        /// Whether traces are exported: the steps of each request to the API, down to those of the
        /// backend. A request with the header traceparent goes on with that trace.
        traces: bool = true,
        /// The collector, as in http://127.0.0.1:4318.
        endpoint: Option<String> = None,
        /// What this server is called there.
        service_name: String = "opensandbox-server".to_owned(),
        /// Time from one export to the next; at least 1000.
        export_interval_millis: u64 = 60_000,
    }
}

/// Where settings come from, given `--config` and other flags.
pub fn sources(
    flag: Option<PathBuf>,
    flags: Vec<(String, String, String)>,
    environment: BTreeMap<String, String>,
) -> Sources {
    Sources {
        flag,
        path_variable: "SANDBOX_CONFIG_PATH",
        home_file: ".sandbox.toml",
        variable_prefix: VARIABLE_PREFIX,
        // OPENSANDBOX_EGRESS_… and the like are part of other contracts.
        foreign: &[],
        without_meaning: WITHOUT_MEANING,
        environment,
        flags,
    }
}

/// Reads and checks all settings.
pub fn load(sources: &Sources) -> Result<Loaded<Config>, Problems> {
    let home = sources.environment.get("HOME").map(PathBuf::from);
    let mut sources = sources.clone();
    if let Some(path) = sources.environment.get(TENANTS_PATH_VARIABLE) {
        let name = format!("{VARIABLE_PREFIX}TENANTS_PATH");
        let path = path.clone();
        sources.environment.entry(name).or_insert(path);
    }
    let mut loaded = load_settings(&sources, |config: &Config, problems| {
        check_server(&config.server, problems);
        check::tenants(&config.tenants, problems);
        check::runtime(config, problems);
        check::storage(config, problems);
        ingress::check(&config.ingress, problems);
        check::log(&config.log, problems);
        egress::check(config, problems);
        otel::check(&config.otel, problems);
    })?;
    expand_home(&mut loaded.settings, home.as_deref());
    Ok(loaded)
}

/// The page of documentation about every setting, in Markdown.
pub fn reference_page() -> String {
    let mut page = String::from(REFERENCE_INTRODUCTION);
    page += &daemon::config::reference::<Config>(VARIABLE_PREFIX);
    page += "\n## Settings of the published server that mean nothing here\n\n";
    page += "| key | what becomes of it | why |\n|---|---|---|\n";
    for key in WITHOUT_MEANING {
        let verdict = match key.verdict {
            Verdict::Unused => "noted and left alone".to_owned(),
            Verdict::RefusedUnless(value) => format!("refused unless it is `{value:?}`"),
            Verdict::Refused => "refused".to_owned(),
        };
        page += &format!("| `{}` | {verdict} | {} |\n", key.path, key.why);
    }
    page
}

const REFERENCE_INTRODUCTION: &str = "\
# Configuration of the server

Made by `osb server config-reference`; do not edit it by hand.

A TOML file, then the environment, then flags: each overrides the one before. The file is the one
that `--config` names, else the one that `SANDBOX_CONFIG_PATH` names, else `~/.sandbox.toml` where
it exists; without any the defaults hold. `--set KEY=VALUE` sets any key. `osb server --check` tells
everything that is wrong at once, and `osb server init-config` writes a commented file.
";

impl Server {
    /// The address to listen on, if any.
    ///
    /// # Panics
    /// Before the settings were checked.
    pub fn address(&self) -> Option<SocketAddr> {
        if self.host == check::NO_HOST {
            return None;
        }
        let host = parse_host(&self.host).expect("checked when the settings were read");
        Some(SocketAddr::new(host, self.port))
    }

    /// Whether it takes requests with an API key only.
    pub(crate) fn has_key(&self) -> bool {
        self.api_key.is_some() || !self.api_keys.0.is_empty()
    }
}

impl Server {
    /// The proxies whose word about their clients is taken.
    ///
    /// # Panics
    /// Before the settings were checked.
    pub(crate) fn trusted_proxies(&self) -> proxy::TrustedProxies {
        let networks = self.trusted_proxies.iter().map(|network| network.parse());
        let networks: Result<_, _> = networks.collect();
        proxy::TrustedProxies(networks.expect("checked when the settings were read"))
    }
}

fn parse_host(host: &str) -> Option<IpAddr> {
    match host {
        "localhost" => Some(IpAddr::from([127, 0, 0, 1])),
        _ => host.trim_matches(['[', ']']).parse().ok(),
    }
}

/// The rule of safe defaults: who can reach us from outside the machine must show a key.
fn check_server(server: &Server, problems: &mut Problems) {
    check::socket(server, problems);
    match parse_host(&server.host) {
        None if server.host == check::NO_HOST => {}
        None => problems.add(format!(
            "server.host must be an IP address, localhost or none, not {:?}",
            server.host
        )),
        Some(host) if !host.is_loopback() && !server.has_key() => problems.add(format!(
            "server.host is {host}, which other machines may reach, and there is no API key: \
             anyone could run programs here. Set server.api_key (or \
             OPENSANDBOX_SERVER_API_KEY), add a named key with `osb server new-key NAME`, or \
             listen on 127.0.0.1",
        )),
        Some(_) => {}
    }
    if let Some(max) = server.max_sandbox_timeout_seconds
        && max < TIMEOUT_SECONDS_MIN
    {
        problems.add(format!(
            "server.max_sandbox_timeout_seconds must be at least {TIMEOUT_SECONDS_MIN}, not {max}"
        ));
    }
    if server.timeout_keep_alive == 0 {
        problems.add("server.timeout_keep_alive must be at least 1 second");
    }
    if server.timeout_request_head == 0 {
        problems.add("server.timeout_request_head must be at least 1 second");
    }
    for proxy in &server.trusted_proxies {
        if let Err(error) = proxy.parse::<proxy::Network>() {
            problems.add(format!("server.trusted_proxies: {proxy:?}: {error}"));
        }
    }
    if server.backlog == 0 {
        problems.add("server.backlog must be at least 1");
    }
    if server
        .api_key
        .as_ref()
        .is_some_and(|key| secrecy::ExposeSecret::expose_secret(key).trim().is_empty())
    {
        problems.add("server.api_key is blank; leave it out, or set a real key");
    }
    server.api_keys.check(problems);
    server.tls.check("server.tls", problems);
}

impl Tenants {
    /// The file with tenants, if they come from one.
    pub(crate) fn file(&self) -> Option<&Path> {
        let path = self.path.as_deref();
        path.filter(|_| self.provider == check::PROVIDER_FILE)
    }
}

impl SecureRuntime {
    /// The engine's runtime that sandboxes run in.
    pub fn runtime(&self) -> Option<String> {
        if self.kind.is_empty() {
            return None;
        }
        let usual = match self.kind.as_str() {
            "gvisor" => Some("runsc"),
            "kata" => Some("kata-runtime"),
            _ => None,
        };
        self.docker_runtime.clone().or(usual.map(str::to_owned))
    }
}

fn expand_home(config: &mut Config, home: Option<&Path>) {
    let Some(home) = home else { return };
    let expand = |path: &mut PathBuf| {
        if let Ok(rest) = path.strip_prefix("~") {
            *path = home.join(rest);
        }
    };
    for backend in &backends::ALL {
        expand(backend.data_dir_mut(config));
    }
    config.store.path.as_mut().map(expand);
}

#[cfg(test)]
mod tests;
