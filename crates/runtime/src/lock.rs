//! One server per data directory, and per image store.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use lifecycle::backend::Error;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

use crate::sandbox::build::failed;

/// A server that is stopping has let go of its data directory by then.
const DEADLINE: Duration = Duration::from_secs(5);

/// How long after inotify's IN_CLOSE_WRITE the lock may still be held: the kernel sends the event just
/// before it releases the lock.
const RELEASE: Duration = Duration::from_millis(20);

/// Takes the lock file of a data directory for as long as the returned file is open.
pub(crate) fn take(path: &Path) -> Result<File, Error> {
    let locked = lock_within(path, DEADLINE)
        .map_err(|source| failed(format!("locking {}", path.display()), source))?;
    locked.ok_or_else(|| {
        let directory = path.parent().unwrap_or(path).display();
        Error::Unavailable {
            backend: "embedded",
            message: format!("another server uses {directory}; stop it first"),
        }
    })
}

/// Locks the file at `path` for as long as the returned file is open; `None` when somebody else has it.
/// Who is just stopping gets a moment to let go, and so does a child of this process, which holds
/// what its parent had open until it has become another program.
pub(crate) fn lock_within(path: &Path, timeout: Duration) -> io::Result<Option<File>> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)?;
    let closings = closings(path)?;
    let deadline = Instant::now() + timeout;
    let mut look_again = timeout;
    loop {
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => {}
            Err(errno) => return Err(errno.into()),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        let is_closed = wait(&closings, left.min(look_again))?;
        look_again = if is_closed { RELEASE } else { timeout };
    }
}

/// Becomes readable when somebody who had the file open closes it.
fn closings(path: &Path) -> io::Result<OwnedFd> {
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    inotify::add_watch(&watch, path, WatchFlags::CLOSE_WRITE)?;
    Ok(watch)
}

/// Whether somebody closed the file within `left`.
fn wait(closings: &OwnedFd, left: Duration) -> io::Result<bool> {
    let left = rustix::time::Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    };
    let mut watched = [PollFd::new(closings, PollFlags::IN)];
    let ready = rustix::event::poll(&mut watched, Some(&left))?;
    let mut drained = [0_u8; 4096];
    while rustix::io::read(closings, &mut drained).is_ok() {}
    Ok(ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_server_waits_for_the_first_to_let_go() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let first = take(&path).unwrap();
        let second = std::thread::spawn(move || take(&path).map(drop));
        drop(first);
        second.join().unwrap().unwrap();
    }
}
