//! The command line of the server: `osb server …`.

mod doctor;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use daemon::config::{Change, Loaded, example};
use daemon::{notify, telemetry};

pub use doctor::doctor;

use crate::access;
use crate::backends;
use crate::config::{self, Config, Exposure};
use crate::{run, traces};

/// The lifecycle server: makes, keeps and ends sandboxes.
#[derive(Debug, Parser)]
#[command(
    name = "osb server",
    bin_name = "osb server",
    version,
    args_conflicts_with_subcommands = true,
    after_help = "Without --config, SANDBOX_CONFIG_PATH names the file, else ~/.sandbox.toml is \
                  read where it exists, else built-in defaults hold: the embedded runtime on \
                  127.0.0.1:8080. Every key can be overridden by a variable: server.port by \
                  OPENSANDBOX_SERVER_PORT."
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The configuration file.
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,
    /// Check the configuration and do nothing else.
    #[arg(long)]
    check: bool,
    /// Address to listen on.
    #[arg(long, value_name = "ADDRESS")]
    host: Option<String>,
    /// Port to listen on; 0 takes any free one.
    #[arg(long, value_name = "PORT")]
    port: Option<String>,
    /// What is logged, as in info,server=debug.
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Set any key, as in store.type=sqlite. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a commented configuration file.
    InitConfig {
        /// Where to.
        #[arg(value_name = "PATH", default_value = "~/.sandbox.toml")]
        path: PathBuf,
        /// What it is for.
        #[arg(long, value_enum, default_value_t = Example::Embedded)]
        example: Example,
        /// Replace a file that is there.
        #[arg(long)]
        force: bool,
    },
    /// Make an API key: prints it once, with the line of configuration that knows its hash.
    NewKey {
        /// Whose it is, for the audit trail.
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Bring an image to the embedded runtime from a file or directory, while no server runs: an
    /// archive of `docker save` or of an OCI layout, or a root filesystem as a tar or directory.
    ImportImage {
        /// Where it is.
        #[arg(value_name = "PATH")]
        path: PathBuf,
        /// Its name; needed for a root filesystem, else the archive's own names are used.
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// The configuration file of the server.
        #[arg(long, value_name = "PATH")]
        config: Option<PathBuf>,
    },
    /// Certificates for TLS.
    #[command(subcommand)]
    Tls(TlsCommand),
    /// Print every key of the configuration, as a page in Markdown.
    ConfigReference,
}

#[derive(Debug, Subcommand)]
enum TlsCommand {
    /// Make a certificate authority of this server's own and a certificate that it signs, and print the
    /// fingerprint by which clients know it.
    Init {
        /// Where to.
        #[arg(value_name = "DIRECTORY", default_value = "/etc/opensandbox/tls")]
        directory: PathBuf,
        /// A name or address that the server is reached by, besides localhost; *.DOMAIN for the gateway's. May
        /// be repeated.
        #[arg(long, value_name = "NAME")]
        name: Vec<String>,
        /// Make a new certificate with the authority that is there. A server that runs takes it over.
        #[arg(long)]
        renew: bool,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Example {
    /// The built-in runtime.
    Embedded,
    /// A Docker engine.
    Docker,
    /// A Kubernetes cluster.
    K8s,
}

/// Exit code for a command line or configuration that cannot be used, as clap has it.
const UNUSABLE: u8 = 2;

/// Runs `osb server` with these arguments, of which the first is the program.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => error.exit(),
    };
    let outcome = match &arguments.command {
        Some(Command::InitConfig {
            path,
            example,
            force,
        }) => init_config(path, *example, *force),
        Some(Command::NewKey { name }) => new_key(name),
        Some(Command::ImportImage { path, name, config }) => {
            import_image(path, name.as_deref(), config.clone())
        }
        Some(Command::Tls(TlsCommand::Init {
            directory,
            name,
            renew,
        })) => init_tls(directory, name, *renew),
        Some(Command::ConfigReference) => print(&config::reference_page()),
        None => serve(&arguments).inspect_err(|failure| notify::failed(&failure.message)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "osb server: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    fn unusable(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: UNUSABLE,
        }
    }
}

fn print(text: &str) -> Result<(), Failure> {
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| Failure {
            message: format!("cannot write: {error}"),
            code: 1,
        })
}

fn import_image(path: &Path, name: Option<&str>, config: Option<PathBuf>) -> Result<(), Failure> {
    let sources = config::sources(config, Vec::new(), environment());
    let loaded =
        config::load(&sources).map_err(|problems| Failure::unusable(problems.to_string()))?;
    let failed = |error: &dyn std::error::Error| Failure {
        message: format!(
            "cannot import {}: {}",
            path.display(),
            api::error_chain(error)
        ),
        code: 1,
    };
    let settings = backends::embedded_settings(&loaded.settings).map_err(|error| failed(&error))?;
    std::fs::create_dir_all(&settings.data_dir).map_err(|error| failed(&error))?;
    let store = settings.open_images().map_err(|error| failed(&error))?;
    let tasks = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(&error))?;
    let import = runtime::image::Import::Detect(path.to_owned());
    let images = tasks
        .block_on(store.import(&import, name))
        .map_err(|error| failed(&error))?;
    let lines: Vec<String> = images.iter().map(|id| format!("{id}\n")).collect();
    print(&lines.concat())
}

fn serve(arguments: &Arguments) -> Result<(), Failure> {
    let sources = config::sources(arguments.config.clone(), flags(arguments)?, environment());
    let loaded =
        config::load(&sources).map_err(|problems| Failure::unusable(problems.to_string()))?;
    if arguments.check {
        return print(&summary(&loaded));
    }
    let log = &loaded.settings.log;
    let filter = log
        .level
        .parse()
        .expect("checked when the settings were read");
    let format = log
        .format
        .parse()
        .expect("checked when the settings were read");
    let (steps, traces) = traces::open(&loaded.settings);
    let level = telemetry::start(filter, format, steps).map_err(|error| Failure {
        message: error.to_string(),
        code: 1,
    })?;
    tell(&loaded);
    let before = loaded.changed;
    let reread: run::Reread = Box::new(move || {
        let loaded = config::load(&sources).map_err(|problems| problems.to_string())?;
        tell_of_restart(&before, &loaded.changed);
        Ok(loaded.settings)
    });
    run::until_stopped(loaded.settings, &reread, &level, traces).map_err(|error| Failure {
        message: api::error_chain(&error).to_string(),
        code: 1,
    })
}

fn flags(arguments: &Arguments) -> Result<Vec<(String, String, String)>, Failure> {
    let named = [
        ("server.host", &arguments.host, "--host"),
        ("server.port", &arguments.port, "--port"),
        ("log.level", &arguments.log, "--log"),
    ];
    let mut flags: Vec<_> = named
        .into_iter()
        .filter_map(|(key, value, flag)| Some((key.to_owned(), value.clone()?, flag.to_owned())))
        .collect();
    for pair in &arguments.set {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(Failure::unusable(format!("--set {pair}: write KEY=VALUE")));
        };
        flags.push((key.to_owned(), value.to_owned(), "--set".to_owned()));
    }
    Ok(flags)
}

/// The environment as text; what is not UTF-8 sets no key of ours.
fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

fn summary(loaded: &Loaded<Config>) -> String {
    let file = loaded
        .file
        .as_ref()
        .map_or("none".to_owned(), |path| path.display().to_string());
    let mut text = format!("The configuration is valid. File: {file}\n");
    for change in &loaded.changed {
        text += &format!("  {} = {} ({})\n", change.key, change.value, change.origin);
    }
    for line in &loaded.unused {
        text += &format!("  note: {line}\n");
    }
    text
}

fn tell(loaded: &Loaded<Config>) {
    let file = loaded.file.as_ref().map(|path| path.display().to_string());
    tracing::info!(file, "configuration read");
    for change in &loaded.changed {
        tracing::info!(
            key = change.key,
            value = change.value,
            origin = change.origin,
            "setting"
        );
    }
    for line in &loaded.unused {
        tracing::warn!(reason = line, "a setting has no effect");
    }
    let server = &loaded.settings.server;
    if let Some(socket) = &server.socket {
        let socket = socket.display();
        tracing::info!(%socket, "whoever may open this socket may do everything here, without a key");
    }
    if let Some(address) = server.address().filter(|_| !server.has_key()) {
        tracing::warn!(
            %address,
            "this server has no API key: whoever reaches its address may do everything. osb server new-key NAME makes one"
        );
    }
    if let Some(exposure) = config::exposure(loaded) {
        let Exposure { problem, fix } = exposure;
        tracing::warn!(problem, fix, "a secret can be read by others");
    }
}

/// What SIGHUP takes over; everything else holds from the next start on.
const RELOADED: &[&str] = &[
    "server.api_key",
    "server.max_sandbox_timeout_seconds",
    "storage.allowed_host_paths",
    "storage.volume_default_size",
    "renew_intent.enabled",
    "log.level",
];

/// Says which settings were changed that only a restart takes over.
fn tell_of_restart(before: &[Change], after: &[Change]) {
    let differs = |one: &Change, others: &[Change]| {
        let is_same = |other: &Change| other.key == one.key && other.value == one.value;
        !others.iter().any(is_same)
    };
    let changed = after.iter().filter(|it| differs(it, before));
    let taken_back = before.iter().filter(|it| differs(it, after));
    let mut keys: Vec<&str> = changed
        .chain(taken_back)
        .map(|it| it.key.as_str())
        .collect();
    keys.retain(|key| !RELOADED.iter().any(|known| key.starts_with(known)));
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        tracing::warn!(
            key,
            "this setting was changed and holds from the next start on"
        );
    }
}

fn init_config(path: &Path, which: Example, force: bool) -> Result<(), Failure> {
    let chosen: &[(&str, &str)] = match which {
        Example::Embedded => &[
            ("server.host", "\"127.0.0.1\""),
            ("server.port", "8080"),
            ("runtime.type", "\"embedded\""),
            ("embedded.data_dir", "\"/var/lib/opensandbox\""),
        ],
        Example::Docker => &[
            ("server.host", "\"127.0.0.1\""),
            ("server.port", "8080"),
            ("runtime.type", "\"docker\""),
            ("docker.network_mode", "\"bridge\""),
        ],
        Example::K8s => &[
            ("server.host", "\"127.0.0.1\""),
            ("server.port", "8080"),
            ("runtime.type", "\"kubernetes\""),
            ("runtime.execd_image", "\"registry.example/execd:1\""),
            ("kubernetes.security", "\"baseline\""),
        ],
    };
    let title = "Configuration of the OpenSandbox lifecycle server (osb server).\n\
                 Keys behind a # have the value shown unless set. Check it with:\n\
                 osb server --config THIS-FILE --check";
    let path = expand_home(path);
    write_new(&path, &example::<Config>(title, chosen), force)?;
    print(&format!(
        "Wrote {}. Start with: osb server --config {0}\n",
        path.display()
    ))
}

fn expand_home(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), environment().get("HOME")) {
        (Ok(rest), Some(home)) => Path::new(home).join(rest),
        _ => path.to_owned(),
    }
}

/// Only the owner may read it: it will hold a key.
fn write_new(path: &Path, text: &str, force: bool) -> Result<(), Failure> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).mode(0o600);
    if force {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    let written = options
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AlreadyExists => "; --force replaces it",
            std::io::ErrorKind::NotFound => "; make its directory first",
            _ => "",
        };
        Failure {
            message: format!("cannot write {}: {error}{hint}", path.display()),
            code: 1,
        }
    })
}

fn init_tls(directory: &Path, names: &[String], renew: bool) -> Result<(), Failure> {
    let made = crate::tls_init::init(directory, names, renew).map_err(|error| Failure {
        message: api::error_chain(&error).to_string(),
        code: 1,
    })?;
    print(&format!(
        "Made {} and its key.\n\nFor the server's configuration:\n\n  [server.tls]\n  certificate = {:?}\n  \
         key = {:?}\n\nFor its clients:\n\n  export OPEN_SANDBOX_PROTOCOL=https\n  export \
         OPEN_SANDBOX_TLS_FINGERPRINT={}\n\nThat is the SHA-256 of {}, which browsers and other programs \
         can be told to trust.\n",
        made.certificate.display(),
        made.certificate,
        made.key,
        made.fingerprint,
        made.authority.display()
    ))
}

fn new_key(name: &str) -> Result<(), Failure> {
    let (key, sha256) = access::new_key();
    print(&format!(
        "The key, which is shown this once (clients send it as OPEN-SANDBOX-API-KEY):\n\n  \
         {key}\n\nIts hash, for the server's configuration:\n\n  [[server.api_keys]]\n  \
         name = {name:?}\n  sha256 = \"{sha256}\"\n"
    ))
}
