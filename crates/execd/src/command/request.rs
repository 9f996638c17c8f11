//! From a request to something that can be launched: what is wrong with a request is said
//! here, before anything runs.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::exec::command::RunCommandRequest;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::identity::Accounts;
use crate::path::{self, Environment};
use crate::process::{self, Launch, LaunchError};
use crate::state::Shared;
use crate::sys::spawn::Identity;

/// A request that makes sense.
pub(super) struct CommandSpec {
    pub(super) content: String,
    pub(super) program: Program,
    pub(super) cwd: Option<String>,
    pub(super) is_background: bool,
    pub(super) timeout: Option<Duration>,
    pub(super) user: Option<(u32, Option<u32>)>,
    pub(super) envs: Vec<(String, String)>,
    pub(super) stdin: Option<Stdin>,
}

pub(super) enum Program {
    Shell(String),
    Argv(Vec<String>),
}

/// Input for the command.
pub(super) struct Stdin {
    pub(super) text: String,
    pub(super) stays_open: bool,
}

/// What is wrong with a request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    #[error("give exactly one of command (shell text) and argv (a program and its arguments)")]
    CommandOrArgv,
    #[error("command is empty")]
    Empty,
    #[error("timeout is in milliseconds and cannot be negative, but is {0}")]
    Timeout(i64),
    #[error("gid needs uid as well")]
    GidWithoutUid,
    #[error("{0:?} cannot be the name of a variable: it is empty or has = or NUL in it")]
    Variable(String),
    #[error("{0} contains a NUL byte, which the kernel does not take")]
    Nul(&'static str),
    #[error("cwd is not usable: {0}")]
    Cwd(path::Error),
    #[error("cwd {path} is not usable: {reason}")]
    Directory { path: String, reason: String },
}

impl TryFrom<RunCommandRequest> for CommandSpec {
    type Error = Error;

    fn try_from(request: RunCommandRequest) -> Result<Self, Error> {
        let (content, program) = program(request.command, request.argv)?;
        let timeout = match request.timeout.unwrap_or(0) {
            0 => None,
            milliseconds => Some(Duration::from_millis(
                u64::try_from(milliseconds).map_err(|_| Error::Timeout(milliseconds))?,
            )),
        };
        let user = match (request.uid, request.gid) {
            (None, Some(_)) => return Err(Error::GidWithoutUid),
            (uid, gid) => uid.map(|uid| (uid, gid)),
        };
        for (name, value) in &request.envs {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(Error::Variable(name.clone()));
            }
            if value.contains('\0') {
                return Err(Error::Nul("a variable"));
            }
        }
        let wants_stdin = request.stdin.is_some() || request.stdin_open;
        Ok(Self {
            content,
            program,
            cwd: request.cwd.filter(|cwd| !cwd.is_empty()),
            is_background: request.background,
            timeout,
            user,
            envs: request.envs.into_iter().collect(),
            stdin: wants_stdin.then(|| Stdin {
                text: request.stdin.unwrap_or_default(),
                stays_open: request.stdin_open,
            }),
        })
    }
}

fn program(command: Option<String>, argv: Option<Vec<String>>) -> Result<(String, Program), Error> {
    match (command, argv) {
        (Some(text), None) if text.is_empty() => Err(Error::Empty),
        (Some(text), None) if text.contains('\0') => Err(Error::Nul("command")),
        (Some(text), None) => Ok((text.clone(), Program::Shell(text))),
        (None, Some(argv)) if argv.first().is_none_or(String::is_empty) => Err(Error::Empty),
        (None, Some(argv)) if argv.iter().any(|argument| argument.contains('\0')) => {
            Err(Error::Nul("argv"))
        }
        (None, Some(argv)) => Ok((argv.join(" "), Program::Argv(argv))),
        (Some(_), Some(_)) | (None, None) => Err(Error::CommandOrArgv),
    }
}

/// The environment of commands: the daemon's, under the file's, under the request's.
pub(crate) fn environment(shared: &Shared, envs: &[(String, String)]) -> Environment {
    let mut environment = shared.environment.clone();
    process::overlay_file(&shared.envs_file, &mut environment);
    for (name, value) in envs {
        environment.set(name, value);
    }
    environment
}

/// A working directory as the client wrote it. Blocks.
pub(crate) fn directory(text: &str, environment: &Environment) -> Result<PathBuf, DirectoryError> {
    let path = path::expand(text, environment).map_err(DirectoryError::Path)?;
    let unusable = |reason: String| DirectoryError::Unusable {
        path: text.to_owned(),
        reason,
    };
    match std::fs::metadata(&path) {
        Ok(metadata) if metadata.is_dir() => Ok(path),
        Ok(_) => Err(unusable("it is not a directory".to_owned())),
        Err(error) => Err(unusable(error.to_string())),
    }
}

/// Why a working directory cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DirectoryError {
    #[error("cwd is not usable: {0}")]
    Path(path::Error),
    #[error("cwd {path} is not usable: {reason}")]
    Unusable { path: String, reason: String },
}

impl From<DirectoryError> for Error {
    fn from(error: DirectoryError) -> Self {
        match error {
            DirectoryError::Path(error) => Self::Cwd(error),
            DirectoryError::Unusable { path, reason } => Self::Directory { path, reason },
        }
    }
}

/// The daemon's ends of a launched command's pipes.
pub(super) struct PipeEnds {
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// Everything that is needed to start, short of starting. Blocks.
pub(super) fn prepare(
    shared: &Arc<Shared>,
    spec: &CommandSpec,
) -> Result<Result<(Launch, PipeEnds), LaunchError>, Error> {
    let mut environment = environment(shared, &[]);
    let identity = spec.user.and_then(|(uid, gid)| {
        let accounts = Accounts::load();
        set_home(&mut environment, &accounts, uid);
        identity(&accounts, uid, gid)
    });
    for (name, value) in &spec.envs {
        environment.set(name, value);
    }
    let directory = spec
        .cwd
        .as_deref()
        .map(|cwd| directory(cwd, &environment))
        .transpose()?;
    Ok(assemble(shared, spec, environment, directory, identity))
}

fn assemble(
    shared: &Arc<Shared>,
    spec: &CommandSpec,
    environment: Environment,
    directory: Option<PathBuf>,
    identity: Option<Identity>,
) -> Result<(Launch, PipeEnds), LaunchError> {
    let argv = match &spec.program {
        Program::Argv(argv) => argv.iter().map(OsString::from).collect(),
        Program::Shell(text) => {
            let shell = process::find_shell(&environment)?;
            vec![shell.into_os_string(), "-c".into(), text.into()]
        }
    };
    let failed = LaunchError::Descriptors;
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()));
    let (input, stdin) = match spec.stdin {
        Some(_) => pipe().map(|(read, write)| (read, Some(write)))?,
        None => (shared.processes.null().map_err(failed)?, None),
    };
    let (stdout, output) = pipe()?;
    let (stderr, errors) = pipe()?;
    let launch = Launch {
        argv,
        environment,
        directory,
        identity,
        stdio: [input, output, errors],
        descriptors: Vec::new(),
        takes_terminal: false,
    };
    Ok((
        launch,
        PipeEnds {
            stdin,
            stdout,
            stderr,
        },
    ))
}

/// The user to become; none when the daemon is that user already. A user that /etc/passwd
/// does not know gets a group of its own number, not root's.
fn identity(accounts: &Accounts, uid: u32, gid: Option<u32>) -> Option<Identity> {
    let gid = gid.unwrap_or_else(|| accounts.user(uid).map_or(uid, |user| user.gid));
    let own_uid = rustix::process::geteuid();
    let is_own = own_uid.as_raw() == uid && rustix::process::getegid().as_raw() == gid;
    if is_own && !own_uid.is_root() {
        return None;
    }
    Some(Identity {
        uid,
        gid,
        groups: accounts.groups_of(uid, gid),
    })
}

/// Another user's command must not write into the daemon's home.
fn set_home(environment: &mut Environment, accounts: &Accounts, uid: u32) {
    if rustix::process::geteuid().as_raw() == uid {
        return;
    }
    let (name, home) = match accounts.user(uid) {
        Some(user) => (user.name.clone(), user.home.clone()),
        None => (uid.to_string(), Path::new("/").to_owned()),
    };
    environment.set("HOME", home);
    environment.set("USER", name.clone());
    environment.set("LOGNAME", name);
}
