//! A file that is written before it has a name, and then appears whole.
//!
//! The content goes once into an unnamed file in the target's own directory; mode and owner are put
//! on it; then it gets its name. A reader sees the old content or the new, never a part, and a
//! daemon that dies leaves nothing behind. Where the filesystem has no unnamed files, a hidden
//! temporary name stands in.
//!
//! A symbolic link at the target is followed: its target is replaced and the link stays. A replaced
//! file keeps its mode and owner unless others are asked for; its hard links and extended
//! attributes stay with the old content. A file that cannot be replaced but can be written (in a
//! directory the caller may not write to, or mounted on its own) is written in place, which is not
//! atomic but what was asked for. Nothing is flushed to the disk here: a sandbox's disk does not
//! outlive a crash of its host.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Seek},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::{
    fs::{
        AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Uid, accessat, fchown, fstat, linkat,
        openat, renameat, statat, unlinkat,
    },
    io::Errno,
};

use super::{
    credentials::parent,
    error::{Error, Result},
    permission::Attributes,
};

/// How many links in a row are followed, as many as the kernel does.
const LINKS_MAX: usize = 40;

/// Linking an unnamed file goes through its entry here, which an image without /proc lacks.
static HAS_PROC_FD: LazyLock<bool> = LazyLock::new(|| {
    accessat(
        CWD,
        "/proc/self/fd",
        rustix::fs::Access::EXISTS,
        AtFlags::empty(),
    )
    .is_ok()
});

pub(super) struct Staged {
    path: PathBuf,
    directory: OwnedFd,
    name: OsString,
    attributes: Attributes,
    /// Closed once the content is complete and only the name is missing.
    file: Option<Arc<File>>,
    at: StagedAt,
}

enum StagedAt {
    Unnamed,
    Hidden(OsString),
    /// The target itself is being written.
    Direct,
    Published,
}

impl Staged {
    /// Begins a file at `path`, making the directories above it.
    pub(super) fn create(path: &Path, attributes: Attributes) -> Result<Self> {
        let path = through_links(path)?;
        let name = path
            .file_name()
            .ok_or_else(|| Error::WrongKind {
                path: path.clone(),
                what: "is a directory",
            })?
            .to_os_string();
        let above = parent(&path);
        std::fs::create_dir_all(above).map_err(|e| Error::io("making the directory", above, e))?;
        let directory = openat(
            CWD,
            above,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|e| Error::io("opening", above, e))?;
        Self::create_in(directory, name, path, attributes)
    }

    /// Begins the file `name` in an open directory; `path` is what to call it in errors.
    pub(super) fn create_in(
        directory: OwnedFd,
        name: OsString,
        path: PathBuf,
        attributes: Attributes,
    ) -> Result<Self> {
        let old = existing(&directory, &name, &path)?;
        let wish = Attributes {
            mode: attributes.mode.or(old.map(|old| old.st_mode & 0o7777)),
            ..attributes
        };
        let (file, at) = match begin_like(&directory, old.as_ref(), wish.mode.is_some()) {
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) if old.is_some() => {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                let file = openat(&directory, &name, flags, Mode::empty());
                (
                    file.map_err(|e| Error::io("writing", &path, e))?,
                    StagedAt::Direct,
                )
            }
            other => other.map_err(|e| Error::io("creating", &path, e))?,
        };
        let attributes = if matches!(at, StagedAt::Direct) {
            attributes
        } else {
            wish
        };
        Ok(Self {
            path,
            directory,
            name,
            attributes,
            file: Some(Arc::new(file.into())),
            at,
        })
    }

    /// The file to write the content to.
    pub(super) fn file(&self) -> Arc<File> {
        self.file
            .clone()
            .expect("the content is written before the file is finished")
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the old content is being overwritten, so that it cannot be read any more.
    pub(super) fn is_direct(&self) -> bool {
        matches!(self.at, StagedAt::Direct)
    }

    /// Ends the content: mode and owner are put on the file. Unless it shall `stay_open`, its
    /// descriptor is given back and a hidden name keeps the file until it is published.
    pub(super) fn finish(&mut self, stay_open: bool) -> Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        if self.is_direct() {
            let cut = (&**file)
                .stream_position()
                .and_then(|end| file.set_len(end));
            cut.map_err(|e| Error::io("writing", &self.path, e))?;
        }
        self.attributes.apply_to_fd(file.as_fd(), &self.path)?;
        if stay_open {
            return Ok(());
        }
        if let StagedAt::Unnamed = self.at {
            self.at = StagedAt::Hidden(self.link_hidden()?);
        }
        self.file = None;
        Ok(())
    }

    /// Makes the file appear under its name.
    pub(super) fn publish(mut self) -> Result<()> {
        let hidden = match std::mem::replace(&mut self.at, StagedAt::Published) {
            StagedAt::Direct | StagedAt::Published => return Ok(()),
            StagedAt::Hidden(hidden) => hidden,
            StagedAt::Unnamed => {
                let file = self
                    .file
                    .as_ref()
                    .expect("an unnamed file is open until it has a name");
                match link(file, &self.directory, &self.name) {
                    Ok(()) => return Ok(()),
                    Err(Errno::EXIST) => self.link_hidden()?,
                    Err(e) => return Err(Error::io("creating", &self.path, e)),
                }
            }
        };
        match renameat(&self.directory, &hidden, &self.directory, &self.name) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.at = StagedAt::Hidden(hidden);
                // A file that is a mount point of its own, like a bind-mounted /etc/hosts.
                if error == Errno::BUSY {
                    self.copy_over()
                } else {
                    Err(Error::io("replacing", &self.path, error))
                }
            }
        }
    }

    fn link_hidden(&self) -> Result<OsString> {
        let file = self
            .file
            .as_ref()
            .expect("an unnamed file is open until it has a name");
        loop {
            let hidden = hidden_name();
            match link(file, &self.directory, &hidden) {
                Ok(()) => return Ok(hidden),
                Err(Errno::EXIST) => {}
                Err(e) => return Err(Error::io("creating a temporary name beside", &self.path, e)),
            }
        }
    }

    fn copy_over(&self) -> Result<()> {
        let StagedAt::Hidden(hidden) = &self.at else {
            return Ok(());
        };
        let copy = || -> io::Result<()> {
            let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let mut from: File = openat(
                &self.directory,
                hidden,
                flags | OFlags::RDONLY,
                Mode::empty(),
            )?
            .into();
            let to = openat(
                &self.directory,
                &self.name,
                flags | OFlags::WRONLY | OFlags::TRUNC,
                Mode::empty(),
            )?;
            let mut to: File = to.into();
            io::copy(&mut from, &mut to)?;
            self.attributes
                .apply_to_fd(to.as_fd(), &self.path)
                .map_err(io::Error::other)
        };
        copy().map_err(|e| Error::io("writing", &self.path, e))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let StagedAt::Hidden(hidden) = &self.at {
            // Nothing can be told to anyone here; a left-over hidden name is the worst outcome.
            let _ = unlinkat(&self.directory, hidden, AtFlags::empty());
        }
    }
}

/// The file already at the target: absent, or a regular file the caller may write to.
fn existing(directory: &OwnedFd, name: &OsStr, path: &Path) -> Result<Option<Stat>> {
    let old = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        other => other.map_err(|e| Error::io("looking at", path, e))?,
    };
    match FileType::from_raw_mode(old.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => {
            return Err(Error::WrongKind {
                path: path.into(),
                what: "is a directory",
            });
        }
        _ => {
            return Err(Error::WrongKind {
                path: path.into(),
                what: "is not a regular file",
            });
        }
    }
    // Replacing needs rights on the directory only; writing means rights on the file.
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(directory, name, flags, Mode::empty()) {
        // A program that is running cannot be written to, but it can be replaced.
        Ok(_) | Err(Errno::TXTBSY) => Ok(Some(old)),
        Err(e) => Err(Error::io("writing", path, e)),
    }
}

/// A new file that belongs to whom the old one does. Fails with EPERM where the caller may not give
/// files away.
fn begin_like(
    directory: &OwnedFd,
    old: Option<&Stat>,
    private: bool,
) -> Result<(OwnedFd, StagedAt), Errno> {
    let (file, at) = begin(directory, private)?;
    let Some(old) = old else {
        return Ok((file, at));
    };
    let new = fstat(&file)?;
    let kept = |had: u32, has: u32| (had != has).then_some(had);
    let (uid, gid) = (kept(old.st_uid, new.st_uid), kept(old.st_gid, new.st_gid));
    if uid.is_some() || gid.is_some() {
        let given = fchown(&file, uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        if let (Err(e), StagedAt::Hidden(hidden)) = (given, &at) {
            let _ = unlinkat(directory, hidden, AtFlags::empty());
            return Err(e);
        }
        given?;
    }
    Ok((file, at))
}

/// An unnamed file, or a hidden one where there are none. With `private`, nobody else may open the
/// hidden one before its mode is set.
fn begin(directory: &OwnedFd, private: bool) -> Result<(OwnedFd, StagedAt), Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let open = Mode::from_raw_mode(0o666);
    if *HAS_PROC_FD {
        match openat(directory, ".", flags | OFlags::TMPFILE, open) {
            Ok(file) => return Ok((file, StagedAt::Unnamed)),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL | Errno::NOSYS) => {}
            Err(e) => return Err(e),
        }
    }
    begin_hidden(
        directory,
        if private {
            Mode::from_raw_mode(0o600)
        } else {
            open
        },
    )
}

fn begin_hidden(directory: &OwnedFd, mode: Mode) -> Result<(OwnedFd, StagedAt), Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    loop {
        let hidden = hidden_name();
        match openat(directory, &hidden, flags, mode) {
            Ok(file) => return Ok((file, StagedAt::Hidden(hidden))),
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
    }
}

fn link(file: &File, directory: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    linkat(
        CWD,
        format!("/proc/self/fd/{}", file.as_raw_fd()),
        directory,
        name,
        AtFlags::SYMLINK_FOLLOW,
    )
}

/// A file without a name in the directory for temporary files, and that directory.
pub(super) fn aside() -> Result<(File, PathBuf)> {
    let directory = std::env::temp_dir();
    let failed = |e| Error::io("creating a temporary file in", &directory, e);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    let file = match openat(CWD, &directory, flags | OFlags::TMPFILE, mode) {
        Ok(file) => file,
        Err(_) => {
            let path = directory.join(hidden_name());
            let file =
                openat(CWD, &path, flags | OFlags::CREATE | OFlags::EXCL, mode).map_err(failed)?;
            unlinkat(CWD, &path, AtFlags::empty()).map_err(failed)?;
            file
        }
    };
    Ok((file.into(), directory))
}

/// A name nobody else uses: the daemon's pid, its clock at first use and a counter.
pub(super) fn hidden_name() -> OsString {
    static COUNTER: LazyLock<AtomicU64> = LazyLock::new(|| {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        AtomicU64::new(now.tv_nsec.unsigned_abs() << 20)
    });
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!(".execd-{}-{count:x}.part", std::process::id()).into()
}

/// The path a write to `path` lands on: links at its end are followed, also those that lead to
/// nothing yet.
fn through_links(path: &Path) -> Result<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        match std::fs::read_link(&path) {
            Ok(target) => path = parent(&path).join(target),
            // Not a link, or nothing there.
            Err(_) => return Ok(path),
        }
    }
    Err(Error::BadPath {
        path: path.to_string_lossy().into_owned(),
        why: "too many symbolic links".into(),
    })
}

#[cfg(test)]
mod tests;
