//! The command line of execd.
//!
//! Parsed by hand: the daemon starts once per sandbox inside a budget of three
//! milliseconds, and these few options do not need a parser's tables. Every option may be
//! written `--name value` or `--name=value`. The environment fills what the command line
//! leaves open; no other module reads configuration from the environment.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::process::ExitCode;

/// The variable that holds the access token for people who start execd by hand.
pub const TOKEN_VARIABLE: &str = "EXECD_ACCESS_TOKEN";

/// The variable that names the file with extra variables for commands, and its default.
pub const ENVS_VARIABLE: &str = "EXECD_ENVS";
const DEFAULT_ENVS: &str = "/opt/opensandbox/.env";

/// The exit code of a shell for a wrong command line.
const EXIT_USAGE: u8 = 2;

const USAGE: &str = "\
usage: execd [OPTIONS] [-- ENTRYPOINT...]

  --init               be PID 1: reap, forward signals, run ENTRYPOINT, exit with its code
  --listen-fd N        serve on this inherited listening unix socket
  --port N             serve on TCP 0.0.0.0:N as well (44772; 0 = no TCP)
  --listen-path PATH   bind and serve on a unix socket at PATH
  --token-fd N         read the access token from this descriptor
  --access-token TOKEN the access token (also EXECD_ACCESS_TOKEN)
  --handoff PATH       ask for token, environment and listening socket at this unix socket,
                       or for token and environment on standard input (-), or take those
                       from this file, which is removed
  --install DIR        copy this program to DIR/bin/execd and the file of --handoff to
                       DIR/handoff/handoff, for a sandbox that starts after this, and end
  --log-fd N           where ENTRYPOINT's output goes
  --help               this text
";

/// Everything the daemon needs to know to start.
#[derive(Debug, Default)]
pub struct Options {
    pub init: bool,
    pub listen_fd: Option<RawFd>,
    pub listen_path: Option<PathBuf>,
    /// `None` = no TCP.
    pub port: Option<u16>,
    pub token_fd: Option<RawFd>,
    /// Where a backend that cannot pass descriptors hands over what must not be seen.
    pub handoff: Option<PathBuf>,
    /// Where to put the program instead of being it.
    pub install: Option<PathBuf>,
    /// Given on the command line or in the environment, where other processes can read it;
    /// `start` moves it into a descriptor and starts over without it.
    pub exposed_token: Option<OsString>,
    pub log_fd: Option<RawFd>,
    pub envs_file: PathBuf,
    pub sandbox_id: Option<String>,
    pub entrypoint: Vec<OsString>,
}

/// Why the command line was not understood.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("help was asked for")]
    Help,
    #[error("unknown option {0}; execd --help lists the options")]
    Unknown(String),
    #[error("option {0} needs a value")]
    MissingValue(&'static str),
    #[error("option {option} wants {wanted}, not {given:?}")]
    BadValue {
        option: &'static str,
        wanted: &'static str,
        given: OsString,
    },
    #[error("an entrypoint needs --init: without it execd does not run one")]
    EntrypointWithoutInit,
}

/// Reads the arguments (without the program's name) and the environment.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Options, Error> {
    let mut options = Options {
        port: Some(api::exec::PORT),
        exposed_token: std::env::var_os(TOKEN_VARIABLE).filter(|token| !token.is_empty()),
        envs_file: std::env::var_os(ENVS_VARIABLE)
            .filter(|path| !path.is_empty())
            .map_or_else(|| PathBuf::from(DEFAULT_ENVS), PathBuf::from),
        sandbox_id: std::env::var("OPENSANDBOX_ID")
            .ok()
            .filter(|id| !id.is_empty()),
        ..Options::default()
    };
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            options.entrypoint = arguments.collect();
            break;
        }
        let (name, inline) = split(&argument);
        let mut value = |option| {
            inline
                .clone()
                .or_else(|| arguments.next())
                .ok_or(Error::MissingValue(option))
        };
        match name.to_str() {
            Some("--init") if inline.is_none() => options.init = true,
            Some("--help" | "-h") => return Err(Error::Help),
            Some("--listen-fd") => {
                options.listen_fd = Some(descriptor("--listen-fd", value("--listen-fd")?)?);
            }
            Some("--token-fd") => {
                options.token_fd = Some(descriptor("--token-fd", value("--token-fd")?)?);
            }
            Some("--log-fd") => options.log_fd = Some(descriptor("--log-fd", value("--log-fd")?)?),
            Some("--listen-path") => options.listen_path = Some(value("--listen-path")?.into()),
            Some("--handoff") => options.handoff = Some(value("--handoff")?.into()),
            Some("--install") => options.install = Some(value("--install")?.into()),
            Some("--access-token") => options.exposed_token = Some(value("--access-token")?),
            Some("--port") => {
                let port = number::<u16>("--port", "a port number", value("--port")?)?;
                options.port = (port != 0).then_some(port);
            }
            _ => return Err(Error::Unknown(argument.to_string_lossy().into_owned())),
        }
    }
    if !options.entrypoint.is_empty() && !options.init {
        return Err(Error::EntrypointWithoutInit);
    }
    Ok(options)
}

/// The arguments without the access token.
pub(crate) fn without_token(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        if argument == "--access-token" {
            arguments.next();
        } else if argument == "--" {
            kept.push(argument);
            kept.extend(arguments.by_ref());
        } else if !argument.as_bytes().starts_with(b"--access-token=") {
            kept.push(argument);
        }
    }
    kept
}

/// Says what is wrong with the command line and gives the exit code for it.
pub fn refuse(error: &Error) -> ExitCode {
    if matches!(error, Error::Help) {
        // Nothing is left to tell if standard output is gone.
        let _ = std::io::stdout().write_all(USAGE.as_bytes());
        return ExitCode::SUCCESS;
    }
    let _ = writeln!(std::io::stderr(), "execd: {error}");
    ExitCode::from(EXIT_USAGE)
}

fn split(argument: &OsStr) -> (&OsStr, Option<OsString>) {
    let bytes = argument.as_bytes();
    match bytes.iter().position(|&byte| byte == b'=') {
        Some(at) => (
            OsStr::from_bytes(&bytes[..at]),
            Some(OsString::from_vec(bytes[at + 1..].to_vec())),
        ),
        None => (argument, None),
    }
}

fn descriptor(option: &'static str, value: OsString) -> Result<RawFd, Error> {
    let fd = number::<RawFd>(option, "the number of an open descriptor", value.clone())?;
    if fd < 0 {
        return Err(Error::BadValue {
            option,
            wanted: "the number of an open descriptor",
            given: value,
        });
    }
    Ok(fd)
}

fn number<T: std::str::FromStr>(
    option: &'static str,
    wanted: &'static str,
    value: OsString,
) -> Result<T, Error> {
    value
        .to_str()
        .and_then(|text| text.parse().ok())
        .ok_or(Error::BadValue {
            option,
            wanted,
            given: value,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Options, String> {
        parse(arguments.iter().map(OsString::from)).map_err(|error| error.to_string())
    }

    #[test]
    fn reads_the_launch_contract() {
        let options = parsed(&[
            "--init",
            "--listen-fd",
            "3",
            "--token-fd=4",
            "--log-fd",
            "5",
            "--port",
            "0",
            "--",
            "tail",
            "-f",
            "--init",
        ])
        .unwrap();
        assert!(options.init);
        assert_eq!(options.listen_fd, Some(3));
        assert_eq!(options.token_fd, Some(4));
        assert_eq!(options.log_fd, Some(5));
        assert_eq!(options.port, None);
        assert_eq!(options.entrypoint, ["tail", "-f", "--init"]);
    }

    #[test]
    fn takes_the_token_out_but_not_of_the_entrypoint() {
        let arguments = [
            "--access-token",
            "a",
            "--init",
            "--access-token=b",
            "--",
            "x",
            "--access-token",
            "c",
        ];
        assert_eq!(
            without_token(arguments.map(OsString::from)),
            ["--init", "--", "x", "--access-token", "c"]
        );
    }

    #[test]
    fn names_what_is_wrong() {
        assert!(
            parsed(&["--frobnicate"])
                .unwrap_err()
                .contains("--frobnicate")
        );
        assert!(
            parsed(&["--port", "70000"])
                .unwrap_err()
                .contains("port number")
        );
        assert!(
            parsed(&["--listen-fd", "-1"])
                .unwrap_err()
                .contains("descriptor")
        );
        assert!(
            parsed(&["--listen-fd"])
                .unwrap_err()
                .contains("needs a value")
        );
        assert!(parsed(&["--init=yes"]).unwrap_err().contains("--init"));
        assert!(parsed(&["--", "true"]).unwrap_err().contains("--init"));
    }
}
