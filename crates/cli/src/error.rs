//! Why a command failed, what to do next, and the exit code that says so.
//!
//! Errors are printed here and nowhere else: what happened on the first line, why below it, the
//! next thing to try at the end. With `-o json` the same goes to standard error as JSON.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use crate::config::{self, Config};
use crate::output::paint::{Paint, Style};
use crate::output::{Format, Record, UnsupportedFormat};

/// A command line that makes no sense, as clap has it.
const EXIT_USAGE: u8 = 2;
/// `osb` itself failed, where another code would be taken for the command's own.
const EXIT_OWN: u8 = 125;
/// Ended by Ctrl-C, as shells have it.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;
/// Nobody reads the output any more, as shells have it.
const EXIT_BROKEN_PIPE: u8 = 141;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The server or a sandbox.
    #[error(transparent)]
    Remote(#[from] opensandbox::Error),
    /// The settings.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The format asked for.
    #[error(transparent)]
    Format(#[from] UnsupportedFormat),
    /// What was written on the command line.
    #[error("{0}")]
    Usage(String),
    /// A file of this machine.
    #[error("{} cannot be {action}", path.display())]
    File {
        /// Read, written.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A file does not say what it should.
    #[error("{path}: {message}")]
    Content {
        /// The file's name, or that of a stream such as standard input.
        path: String,
        /// What is wrong.
        message: String,
    },
    /// Standard output or input.
    #[error("the output could not be written")]
    Output(#[from] io::Error),
    /// There is no terminal, and one is needed.
    #[error("{what} needs a terminal on both standard input and output")]
    NoTerminal {
        /// Which command.
        what: &'static str,
        /// What works without.
        instead: String,
    },
    /// Something was found to be not as it should be, and all has been said.
    #[error("{message}")]
    Failed {
        /// What was found.
        message: String,
        /// What to do.
        next: Option<String>,
    },
    /// A command did not start, so that it has no exit code of its own.
    #[error("the command did not start: {message}")]
    NotStarted {
        /// What the daemon said: not found, or not executable.
        message: String,
        /// What shells give it.
        code: u8,
    },
    /// The image store or the volumes of this machine.
    #[error("{message}")]
    Local {
        /// What happened.
        message: String,
        /// What to do.
        next: Option<String>,
        /// The error of the store.
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The person at the keyboard, or whoever else asked this program to stop; with the exit code
    /// that shells give that.
    #[error("interrupted")]
    Interrupted(u8),
}

impl Error {
    pub(crate) fn file(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File {
            action,
            path: path.to_owned(),
            source,
        }
    }

    /// The exit code; `is_foreign` where the codes of a sandboxed command share the room.
    pub(crate) fn exit_code(&self, is_foreign: bool) -> u8 {
        match self {
            Self::Usage(_) | Self::Format(_) => EXIT_USAGE,
            Self::Interrupted(code) => *code,
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => EXIT_BROKEN_PIPE,
            Self::NotStarted { code, .. } if is_foreign => *code,
            _ if is_foreign => EXIT_OWN,
            _ => 1,
        }
    }

    /// Whether there is anything to say.
    fn is_silent(&self) -> bool {
        match self {
            Self::Interrupted(_) => true,
            Self::Output(error) => error.kind() == io::ErrorKind::BrokenPipe,
            _ => false,
        }
    }

    /// What to do next.
    fn next(&self, config: Option<&Config>) -> Option<String> {
        match self {
            Self::Remote(error) => next_of_remote(error, config),
            Self::Config(config::Error::Missing { .. }) => Some("osb config init".to_owned()),
            Self::Config(config::Error::NoHome) => {
                Some("name a file with --config, or set HOME".to_owned())
            }
            Self::NoTerminal { instead, .. } => Some(instead.clone()),
            Self::Failed { next, .. } | Self::Local { next, .. } => next.clone(),
            _ => None,
        }
    }
}

/// The next command to try after the server or a sandbox refused or did not answer.
fn next_of_remote(error: &opensandbox::Error, config: Option<&Config>) -> Option<String> {
    use opensandbox::Error as Remote;
    let domain = config.map_or("localhost:8080", Config::domain);
    match error {
        Remote::Connection { .. } if config.is_some_and(Config::is_of_up) => {
            Some("the server of `osb up` has ended: sudo osb up starts another".to_owned())
        }
        Remote::Connection { .. } => Some(format!(
            "start a server with `sudo osb up`, or name yours with --domain (now {domain})"
        )),
        _ if error.is_unauthorized() => Some(match config.is_some_and(Config::has_key) {
            true => "check the key: osb config show".to_owned(),
            false => "give a key: osb --api-key KEY …, or osb config set connection.api_key KEY"
                .to_owned(),
        }),
        _ if is_unknown_request(error) => Some(format!(
            "the server at {domain} does not have this; it may be an older one"
        )),
        _ => match error.code()? {
            code if code.ends_with("SANDBOX_NOT_FOUND") => {
                Some("list the sandboxes there are: osb ls".to_owned())
            }
            code if code.ends_with("SNAPSHOT_NOT_FOUND") => {
                Some("list the snapshots there are: osb snapshot list".to_owned())
            }
            code if code.contains("PAUSED") => Some("osb sandbox resume SANDBOX_ID".to_owned()),
            _ => None,
        },
    }
}

/// An answer as servers give it to what they have never heard of: without a code of its own.
fn is_unknown_request(error: &opensandbox::Error) -> bool {
    let status = error.status().map(|status| status.as_u16());
    error.code().is_none() && matches!(status, Some(404 | 405 | 501))
}

/// Prints an error for people, or for programs that asked for JSON or YAML.
pub(crate) fn report(
    error: &Error,
    config: Option<&Config>,
    output: Option<Format>,
    verbose: bool,
) {
    if error.is_silent() {
        return;
    }
    let next = error.next(config);
    let mut why = api::error_chain(error).causes();
    if let Error::Remote(opensandbox::Error::Connection { .. }) = error
        && !verbose
    {
        // The layers between the request and the kernel say no more than the kernel's own words.
        why.drain(..why.len().saturating_sub(1));
    }
    let mut stderr = io::stderr().lock();
    // Where standard error is gone there is nobody left to tell.
    let _ = match output {
        Some(Format::Json | Format::Yaml) => {
            let (code, request_id) = match error {
                Error::Remote(remote) => (remote.code(), remote.request_id()),
                _ => (None, None),
            };
            let record = Record::new()
                .with("status", "error")
                .with("message", error.to_string())
                .with("code", code)
                .with("request_id", request_id)
                .with("causes", why)
                .with("next", next);
            let text = serde_json::to_string_pretty(&record).expect("plain data");
            writeln!(stderr, "{text}")
        }
        _ => {
            let paint = Paint::new(io::stderr().is_terminal() && config.is_none_or(|c| c.color));
            let mut text = format!("{}: {error}\n", paint.apply(Style::Bad, "error"));
            for cause in why {
                text += &format!("  why: {cause}\n");
            }
            if let Error::Remote(opensandbox::Error::Api(api)) = error {
                for detail in &api.details {
                    text += &format!("  why: {detail}\n");
                }
            }
            if let Some(next) = next {
                text += &format!("  {}: {next}\n", paint.apply(Style::Id, "try"));
            }
            if verbose {
                text += &format!("  debug: {error:?}\n");
            }
            stderr.write_all(text.as_bytes())
        }
    };
}
