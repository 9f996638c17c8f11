//! From a request to a running process: finds the program, makes the arguments fit for the
//! kernel and starts it away from the event loop.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::process::Signal;

use super::{Process, Processes};
use crate::path::Environment;
use crate::sys::spawn::{self, Identity, Plan, Step};

/// Where programs are looked for when the environment has no PATH.
pub(crate) const DEFAULT_PATH: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Shells, in order of preference, as the reference daemon chooses.
const SHELLS: [&str; 2] = ["bash", "sh"];

/// Descriptors of a child are numbered below this; what becomes one is moved above first,
/// so that placing one never overwrites the next.
const DESCRIPTOR_FLOOR: RawFd = 16;

/// Stack of the thread that starts a bound process and waits for its end: paths and environments
/// are on the heap, and there is one such thread for each interpreter.
const BOUND_STACK_BYTES: usize = 128 * 1024;

/// A process to start.
pub(crate) struct Launch {
    /// The program's name or path, then its arguments.
    pub(crate) argv: Vec<OsString>,
    pub(crate) environment: Environment,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) identity: Option<Identity>,
    pub(crate) stdio: [OwnedFd; 3],
    /// Further descriptors with the numbers they get, each below [`DESCRIPTOR_FLOOR`].
    pub(crate) descriptors: Vec<(OwnedFd, RawFd)>,
    /// Standard input is a terminal and becomes the controlling one.
    pub(crate) takes_terminal: bool,
}

/// Why a process did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("no program was named")]
    Nothing,
    #[error("{0} contains a NUL byte, which no argument, variable or path can")]
    Nul(&'static str),
    #[error("{0}: not found in PATH")]
    NotFound(String),
    #[error("this sandbox has neither bash nor sh; run a program directly with argv")]
    NoShell,
    #[error("{program} did not start")]
    Refused {
        program: String,
        source: spawn::Error,
    },
    #[error("the process's descriptors could not be made")]
    Descriptors(#[source] io::Error),
}

impl Error {
    /// The exit code a shell gives: 127 for a program that is not there, 126 for one that
    /// cannot be run.
    pub(crate) fn shell_code(&self) -> u8 {
        match self {
            Self::NotFound(_) | Self::NoShell | Self::Nothing => 127,
            Self::Refused { source, .. }
                if source.step == Step::Exec && source.source.kind() == io::ErrorKind::NotFound =>
            {
                127
            }
            _ => 126,
        }
    }
}

impl Processes {
    /// Starts the process on a thread that may block: entering a directory and executing a
    /// file take as long as their file system takes.
    pub(crate) async fn launch(&self, launch: Launch) -> Result<Process, Error> {
        let processes = self.clone();
        tokio::task::spawn_blocking(move || processes.launch_blocking(launch))
            .await
            .expect("starting a process does not panic")
    }

    /// Starts a process that is of no use without the daemon and is killed when the daemon ends,
    /// however it ends.
    ///
    /// The kernel does that when the *thread* ends that started the process, so this one has a
    /// thread of its own, which lasts as long as the process. Threads of the runtime's pool end
    /// when they have been idle.
    pub(crate) async fn launch_bound(&self, launch: Launch) -> Result<Process, Error> {
        let processes = self.clone();
        let runtime = tokio::runtime::Handle::current();
        let (tell, told) = tokio::sync::oneshot::channel();
        let wait_for_its_end = move || {
            let started = {
                let _context = runtime.enter();
                processes.start(launch, true)
            };
            let ended = started.as_ref().ok().and_then(|process| process.ended());
            // Whoever asked may have left.
            let unwanted = tell.send(started).err().and_then(Result::ok);
            if let Some(process) = &unwanted {
                process.signal_group(Signal::KILL);
            }
            if let Some(ended) = ended {
                let mut ended = [PollFd::new(&ended, PollFlags::IN)];
                let _ = retry_on_intr(|| poll(&mut ended, None));
            }
        };
        std::thread::Builder::new()
            .name("interpreter".to_owned())
            .stack_size(BOUND_STACK_BYTES)
            .spawn(wait_for_its_end)
            .map_err(Error::Descriptors)?;
        told.await.expect("starting a process does not panic")
    }

    /// As [`Self::launch`], for callers that are on such a thread already. Needs the event
    /// loop's context.
    pub(crate) fn launch_blocking(&self, launch: Launch) -> Result<Process, Error> {
        self.start(launch, false)
    }

    fn start(&self, launch: Launch, is_bound: bool) -> Result<Process, Error> {
        let program = launch.argv.first().ok_or(Error::Nothing)?;
        let path = find(program, &launch.environment)?;
        let moved = move_up(launch.descriptors).map_err(Error::Descriptors)?;
        let plan = Plan {
            program: c_string(path.into_os_string(), "the program's path")?,
            arguments: c_strings(&launch.argv, "an argument")?,
            environment: variables(&launch.environment)?,
            directory: launch
                .directory
                .map(|path| c_string(path.into_os_string(), "the working directory"))
                .transpose()?,
            stdio: launch.stdio.each_ref().map(OwnedFd::as_fd),
            descriptors: moved
                .iter()
                .map(|(fd, number)| (borrow(fd), *number))
                .collect(),
            identity: launch.identity,
            takes_terminal: launch.takes_terminal,
            is_bound,
            restore: self.restore,
        };
        let started = self.spawn(&plan).map_err(|source| Error::Refused {
            program: program.to_string_lossy().into_owned(),
            source,
        })?;
        started.watch().map_err(Error::Descriptors)
    }
}

/// The first shell that the environment's PATH has.
pub(crate) fn find_shell(environment: &Environment) -> Result<PathBuf, Error> {
    SHELLS
        .iter()
        .find_map(|shell| find(OsStr::new(shell), environment).ok())
        .or_else(|| Some(PathBuf::from("/bin/sh")).filter(|path| is_executable(path)))
        .ok_or(Error::NoShell)
}

/// A name with a slash is a path; any other is looked for in PATH.
fn find(program: &OsStr, environment: &Environment) -> Result<PathBuf, Error> {
    if program.is_empty() {
        return Err(Error::Nothing);
    }
    if program.as_bytes().contains(&b'/') {
        return Ok(program.into());
    }
    let path = environment.get("PATH").unwrap_or(OsStr::new(DEFAULT_PATH));
    path.as_bytes()
        .split(|&byte| byte == b':')
        .map(|directory| match directory {
            [] => Path::new(".").join(program),
            directory => Path::new(OsStr::from_bytes(directory)).join(program),
        })
        .find(|candidate| is_executable(candidate))
        .ok_or_else(|| Error::NotFound(program.to_string_lossy().into_owned()))
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn move_up(descriptors: Vec<(OwnedFd, RawFd)>) -> io::Result<Vec<(OwnedFd, RawFd)>> {
    descriptors
        .into_iter()
        .map(|(fd, number)| {
            Ok((
                rustix::io::fcntl_dupfd_cloexec(&fd, DESCRIPTOR_FLOOR)?,
                number,
            ))
        })
        .collect()
}

fn borrow(fd: &OwnedFd) -> BorrowedFd<'_> {
    fd.as_fd()
}

fn variables(environment: &Environment) -> Result<Vec<CString>, Error> {
    environment
        .iter()
        .map(|(name, value)| {
            let mut entry = name.to_owned();
            entry.push("=");
            entry.push(value);
            c_string(entry, "a variable")
        })
        .collect()
}

fn c_strings(texts: &[OsString], what: &'static str) -> Result<Vec<CString>, Error> {
    texts
        .iter()
        .map(|text| c_string(text.clone(), what))
        .collect()
}

fn c_string(text: OsString, what: &'static str) -> Result<CString, Error> {
    CString::new(text.into_vec()).map_err(|_| Error::Nul(what))
}
