//! The sandbox's init: runs the entrypoint, forwards signals to it, collects orphans, and
//! exits as the entrypoint did, after ending everything else.
//!
//! As PID 1 of a namespace "everything else" is every process in it. Started with `--init`
//! but another pid, it becomes the reaper of its own descendants and ends the groups it
//! started, never a stranger.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions};
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use crate::args::Options;
use crate::process::{Exit, Launch, LaunchError, Process};
use crate::state::Shared;
use crate::sys;

/// What everything else gets between SIGTERM and SIGKILL once the entrypoint has ended.
/// Below the ten seconds that engines give a stop, so that the code still gets out.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// A log in a regular file is cut to its newest half when it has this many bytes (to
/// nothing when the descriptor cannot be read).
const LOG_BYTES: u64 = 8 * 1024 * 1024;

/// Bytes of the entrypoint's output moved at once.
const COPY_BYTES: usize = 32 * 1024;

/// Signals that are passed on to the entrypoint.
const FORWARDED: [Signal; 6] = [
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
];

/// The signals of an init, blocked and readable.
pub(crate) struct Signals(OwnedFd);

impl Signals {
    /// Must be called before any thread is started.
    pub(crate) fn block() -> io::Result<Self> {
        let mut numbers = vec![Signal::CHILD.as_raw()];
        numbers.extend(FORWARDED.map(Signal::as_raw));
        sys::signal::descriptor(&numbers).map(Self)
    }
}

/// Runs until the entrypoint has ended or, without one, until SIGTERM or SIGINT.
pub(crate) async fn run(
    shared: &Arc<Shared>,
    signals: Signals,
    options: Options,
) -> io::Result<ExitCode> {
    let signals = sys::watch(signals.0)?;
    if !is_first() {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    }
    let entrypoint = match start_entrypoint(shared, options).await {
        Ok(entrypoint) => entrypoint,
        Err(error) => {
            tracing::error!(
                error = %api::error_chain(&error),
                "the entrypoint did not start"
            );
            return Ok(ExitCode::from(error.shell_code()));
        }
    };
    let process = entrypoint.as_ref().map(|entrypoint| &entrypoint.process);
    let code = supervise(shared, &signals, process).await?;
    end_everything(shared, &signals).await?;
    if let Some(log) = entrypoint.and_then(|entrypoint| entrypoint.log) {
        // The last words; only a process that survived SIGKILL could keep the pipe open.
        let _ = tokio::time::timeout(SHUTDOWN_GRACE, log).await;
    }
    Ok(code)
}

/// The entrypoint, and what tells that its log is complete.
struct Entrypoint {
    process: Process,
    log: Option<oneshot::Receiver<()>>,
}

fn is_first() -> bool {
    std::process::id() == 1
}

async fn supervise(
    shared: &Shared,
    signals: &AsyncFd<OwnedFd>,
    entrypoint: Option<&Process>,
) -> io::Result<ExitCode> {
    loop {
        tokio::select! {
            exit = ended(entrypoint) => return Ok(ExitCode::from(exit.shell_code())),
            signal = next(signals) => {
                let signal = signal?;
                if signal == Signal::CHILD {
                    shared.processes.reap();
                    continue;
                }
                match entrypoint {
                    // An entrypoint that has just ended is noticed in the next round.
                    Some(entrypoint) => drop(entrypoint.signal(signal)),
                    None if matches!(signal, Signal::TERM | Signal::INT) => {
                        return Ok(ExitCode::SUCCESS);
                    }
                    None => {}
                }
            }
        }
    }
}

async fn ended(entrypoint: Option<&Process>) -> Exit {
    match entrypoint {
        Some(process) => process.wait().await,
        None => std::future::pending().await,
    }
}

async fn next(signals: &AsyncFd<OwnedFd>) -> io::Result<Signal> {
    loop {
        let mut ready = signals.readable().await?;
        if let Ok(number) = ready.try_io(|fd| sys::signal::read(fd.get_ref())) {
            let number = number?;
            return Ok(Signal::from_named_raw(number).unwrap_or(Signal::CHILD));
        }
    }
}

/// SIGTERM to all, then SIGKILL to those that stay, and returns when no child is left.
async fn end_everything(shared: &Shared, signals: &AsyncFd<OwnedFd>) -> io::Result<()> {
    signal_everything(shared, Signal::TERM);
    if tokio::time::timeout(SHUTDOWN_GRACE, childless(shared, signals))
        .await
        .is_ok()
    {
        return Ok(());
    }
    signal_everything(shared, Signal::KILL);
    // What hangs in the kernel now goes with the namespace.
    let _ = tokio::time::timeout(SHUTDOWN_GRACE, childless(shared, signals)).await;
    Ok(())
}

fn signal_everything(shared: &Shared, signal: Signal) {
    if is_first() {
        // Reaches every process of the namespace but this one; ESRCH when there is none.
        let _ = sys::signal::send_to_all(signal.as_raw());
    } else {
        shared.processes.signal_all(signal);
    }
}

async fn childless(shared: &Shared, signals: &AsyncFd<OwnedFd>) -> io::Result<()> {
    loop {
        shared.processes.reap();
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if matches!(
            rustix::process::waitid(WaitId::All, options),
            Err(Errno::CHILD)
        ) {
            return Ok(());
        }
        next(signals).await?;
    }
}

async fn start_entrypoint(
    shared: &Arc<Shared>,
    options: Options,
) -> Result<Option<Entrypoint>, LaunchError> {
    if options.entrypoint.is_empty() {
        return Ok(None);
    }
    let (stdout, stderr, log_complete) =
        log_descriptors(&options).map_err(LaunchError::Descriptors)?;
    let last_words = stderr.try_clone().map_err(LaunchError::Descriptors)?;
    let launch = Launch {
        argv: options.entrypoint,
        environment: shared.environment.clone(),
        directory: None,
        identity: None,
        stdio: [
            shared.processes.null().map_err(LaunchError::Descriptors)?,
            stdout,
            stderr,
        ],
        descriptors: Vec::new(),
        takes_terminal: false,
    };
    match shared.processes.launch(launch).await {
        Ok(process) => Ok(Some(Entrypoint {
            process,
            log: log_complete,
        })),
        Err(error) => {
            // Whoever reads the entrypoint's output must find the reason there; a log that
            // cannot be written leaves the daemon's own.
            let _ = writeln!(
                File::from(last_words),
                "execd: {}",
                api::error_chain(&error)
            );
            if let Some(complete) = log_complete {
                let _ = tokio::time::timeout(SHUTDOWN_GRACE, complete).await;
            }
            Err(error)
        }
    }
}

/// Where the entrypoint writes: the log descriptor, a pipe to whoever writes the log file, or
/// the daemon's own output.
fn log_descriptors(
    options: &Options,
) -> io::Result<(OwnedFd, OwnedFd, Option<oneshot::Receiver<()>>)> {
    let Some(fd) = options.log_fd else {
        return Ok((
            rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?,
            rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3)?,
            None,
        ));
    };
    let log = File::from(sys::inherited(fd)?);
    let (output, complete): (OwnedFd, _) = if log.metadata()?.is_file() {
        let (pipe, complete) = keep_bounded(log)?;
        (pipe, Some(complete))
    } else {
        (log.into(), None)
    };
    Ok((output.try_clone()?, output, complete))
}

/// Copies the entrypoint's output into a file that never grows over the limit. A thread,
/// because writing to a file blocks, and one that lives as long as the entrypoint does.
fn keep_bounded(log: File) -> io::Result<(OwnedFd, oneshot::Receiver<()>)> {
    let (done, complete) = oneshot::channel();
    let (read, write) = io::pipe()?;
    // With O_APPEND the kernel ignores the offsets that cutting the file needs.
    let flags = rustix::fs::fcntl_getfl(&log)?;
    rustix::fs::fcntl_setfl(&log, flags.difference(rustix::fs::OFlags::APPEND))?;
    std::thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || {
            let mut copier = Copier { log, length: 0 };
            if let Err(error) = copier.copy(read) {
                tracing::warn!(error = %api::error_chain(&error), "the entrypoint's output is no longer kept");
            }
            // Whoever waits for the last words waits for this.
            drop(done);
        })?;
    Ok((write.into(), complete))
}

struct Copier {
    log: File,
    length: u64,
}

impl Copier {
    /// Until every writer is gone. A log that cannot be written must not stop the
    /// entrypoint: its output is then read and dropped.
    fn copy(&mut self, mut from: io::PipeReader) -> io::Result<()> {
        self.length = self.log.metadata()?.len();
        let mut buffer = vec![0; COPY_BYTES];
        let mut failed = Ok(());
        loop {
            let read = match from.read(&mut buffer) {
                Ok(0) => return failed,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if failed.is_ok() {
                failed = self.append(&buffer[..read]);
            }
        }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.length + bytes.len() as u64 > LOG_BYTES {
            self.halve()?;
        }
        self.log.write_all_at(bytes, self.length)?;
        self.length += bytes.len() as u64;
        self.log.flush()
    }

    fn halve(&mut self) -> io::Result<()> {
        let keep = (LOG_BYTES / 2).min(self.length);
        let mut newest = vec![0; usize::try_from(keep).expect("half a log fits in memory")];
        if self
            .log
            .read_exact_at(&mut newest, self.length - keep)
            .is_err()
        {
            // A descriptor that was opened for writing only.
            newest.clear();
        }
        // Begin with a whole line where there is one.
        let begin = newest
            .iter()
            .position(|&byte| byte == b'\n')
            .map_or(0, |at| at + 1);
        self.log.write_all_at(&newest[begin..], 0)?;
        self.length = (newest.len() - begin) as u64;
        self.log.set_len(self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_file_keeps_its_newest_half() {
        let log = tempfile::tempfile().unwrap();
        let mut copier = Copier {
            log: log.try_clone().unwrap(),
            length: 0,
        };
        let mut written = 0u64;
        let mut number = 0u64;
        while written < 3 * LOG_BYTES {
            let line = format!("line {number}\n");
            copier.append(line.as_bytes()).unwrap();
            written += line.len() as u64;
            number += 1;
            assert!(copier.length <= LOG_BYTES);
        }
        let mut kept = vec![0; usize::try_from(copier.length).unwrap()];
        log.read_exact_at(&mut kept, 0).unwrap();
        assert_eq!(log.metadata().unwrap().len(), copier.length);
        let kept = String::from_utf8(kept).unwrap();
        assert!(kept.len() as u64 >= LOG_BYTES / 2 - 64);
        assert!(kept.ends_with(&format!("line {}\n", number - 1)));
        let numbers: Vec<u64> = kept
            .lines()
            .map(|line| line.strip_prefix("line ").unwrap().parse().unwrap())
            .collect();
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1));
    }
}
