//! The image `host`: this machine's own programs and libraries, read-only, so that a first
//! sandbox runs with no registry and no internet.
//!
//! It is a small tree made here plus binds of `/usr` (and of `/bin`, `/lib` and their kin where
//! they are directories of their own). The tree's `/etc` is written or copied from a fixed list
//! of what programs need to start: the loader's cache, alternatives, public certificates,
//! settings of language runtimes. Never copied: accounts, homes, `/etc` at large, keys, the
//! machine's id; nor any file that not everyone on this machine may read. A bind shows files
//! with the host's permissions to a sandbox that is nobody there. It is the lower part of an
//! overlay whose upper part, the mask, hides where administrators keep settings below `/usr`, and
//! which gives the sandbox inodes of its own: on shared ones, locks and inotify would tell it what
//! the host and other sandboxes run.
//!
//! The tree is kept by a hash of its contents and of this boot of the machine: sandboxes of an
//! earlier start stand on theirs while new ones get what the machine looks like now, and a tree
//! that a power failure damaged is never used again.

mod python;

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::disk::{self, WorkDirectory};
use super::index::{HostTree, Index};
use super::{Bind, Error, ImageConfig, ImageId};

/// Files and directories under `/etc` that programs read to start and that say nothing about
/// this machine's people. Missing ones are left out. A trailing `*` stands for any ending.
const ETC_COPIED: [&str; 31] = [
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "host.conf",
    "inputrc",
    "java*",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "magic",
    "magic.mime",
    "mime.types",
    "nanorc",
    "os-release",
    "perl",
    "pki/tls/certs",
    "pki/ca-trust/extracted",
    "protocols",
    "python*",
    "redhat-release",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
];

/// Directories of the tree, with their modes, besides the targets of binds.
const DIRECTORIES: [(&str, u32); 20] = [
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("mnt", 0o755),
    ("opt", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("run/lock", 0o1777),
    ("srv", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("var", 0o755),
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("var/log", 0o755),
    ("var/spool", 0o755),
    ("var/tmp", 0o1777),
    ("workspace", 0o777),
    ("usr", 0o755),
];

/// Top-level directories that are links into `/usr` on most machines.
const USR_LINKS: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// A setting larger than this is not a setting. The loader's cache of a full desktop is 500 KiB,
/// a bundle of all public certificates 250 KiB.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// Files copied in all: a certificate directory has some 300, alternatives as many.
const FILES_MAX: usize = 20_000;
/// Nobody nests settings deeper.
const DEPTH_MAX: usize = 12;

/// The user for those who do not want to be root in their sandbox.
const SANDBOX_USER: &str = "sandbox";
const SANDBOX_UID: u32 = 1000;

/// The environment of [`python`] first.
const PATH: &str = "/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Places whose contents belong to people, to the running system or to this store.
const NEVER_SHOWN: [&str; 10] = [
    "/root", "/home", "/etc", "/proc", "/sys", "/dev", "/run", "/var", "/tmp", "/boot",
];

/// Directories of a bind that are shown empty, because administrators and package managers keep
/// settings there, with tokens among them.
const MASKED: [(&str, &str); 2] = [("/usr", "local/etc"), ("/usr", "etc")];

/// The mask of binds without one in [`MASKED`].
const EMPTY_MASK: &str = "empty";

/// Where the masks are in the store.
const MASKS: &str = "host-masks";

/// The directory to lay over a bind of `source`.
pub(crate) fn mask(store: &Path, source: &Path) -> PathBuf {
    let is_masked = MASKED.iter().any(|(bind, _)| source == Path::new(bind));
    let name = match source.file_name() {
        Some(name) if is_masked => Path::new(name),
        _ => Path::new(EMPTY_MASK),
    };
    store.join(MASKS).join(name)
}

/// Makes the masks; they are the same for every sandbox and every tree.
fn install_masks(store: &Path) -> Result<(), Error> {
    let directories = MASKED
        .iter()
        .map(|(bind, hidden)| mask(store, Path::new(bind)).join(hidden));
    let empty = store.join(MASKS).join(EMPTY_MASK);
    for path in directories.clone().chain([empty]) {
        let made = fs::DirBuilder::new().recursive(true).create(&path);
        made.map_err(|e| Error::io("making", &path, e))?;
    }
    for path in directories {
        // An opaque directory shows nothing of what lies below it.
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&path, "trusted.overlay.opaque", b"y", flags)
            .map_err(|e| Error::io("marking", &path, e))?;
    }
    Ok(())
}

pub(super) fn image_id(hash: &str) -> ImageId {
    ImageId(format!("host:{hash}").into())
}

pub(super) fn bind(path: PathBuf) -> Bind {
    Bind {
        source: path.clone(),
        target: path,
    }
}

pub(super) fn config() -> Arc<ImageConfig> {
    // Of the locale only the characters differ from the default, and a shell that is told so opens
    // one file of it instead of a dozen each time it starts.
    let env = [
        ("PATH", PATH),
        ("LC_CTYPE", "C.UTF-8"),
        ("VIRTUAL_ENV", python::VENV),
    ];
    Arc::new(ImageConfig {
        env: env
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
        workdir: "/workspace".to_owned(),
        ..ImageConfig::default()
    })
}

/// Makes the tree of this machine as it is now and puts it among the host trees.
pub(super) fn install(store: &Path, extra: &[PathBuf], index: &mut Index) -> Result<(), Error> {
    install_masks(store)?;
    let work = WorkDirectory::new(store)?;
    let mut builder = Builder {
        root: work.path().join("fs"),
        machine: PathBuf::from("/"),
        hasher: Sha256::new(),
        files: 0,
        binds: Vec::new(),
    };
    builder.build(extra)?;
    let Builder { binds, hasher, .. } = builder;
    let hash = hex::encode(&hasher.finalize()[..12]);
    let id = image_id(&hash);
    if !index.hosts.contains_key(&id) {
        let record = work.path().join("binds.json");
        let bytes = serde_json::to_vec(&binds).expect("the binds are under /, in UTF-8 or refused");
        fs::write(&record, bytes).map_err(|e| Error::io("writing", &record, e))?;
        disk::install_host(store, &work, &id)?;
        let binds = binds.into_iter().map(bind).collect();
        index.hosts.insert(
            id.clone(),
            HostTree {
                binds,
                config: config(),
            },
        );
    }
    index.host = Some(id);
    Ok(())
}

struct Builder {
    root: PathBuf,
    /// `/`, or a stand-in for it in tests.
    machine: PathBuf,
    hasher: Sha256,
    files: usize,
    binds: Vec<PathBuf>,
}

impl Builder {
    fn build(&mut self, extra: &[PathBuf]) -> Result<(), Error> {
        self.directory(Path::new(""), 0o755)?;
        for (name, mode) in DIRECTORIES {
            self.directory(Path::new(name), mode)?;
        }
        self.link(Path::new("var/run"), Path::new("/run"))?;
        self.link(Path::new("var/lock"), Path::new("/run/lock"))?;
        self.binds.push(PathBuf::from("/usr"));
        for name in USR_LINKS {
            let original = self.machine.join(name);
            let Ok(metadata) = fs::symlink_metadata(&original) else {
                continue;
            };
            if metadata.is_symlink() {
                let target =
                    fs::read_link(&original).map_err(|e| Error::io("reading", &original, e))?;
                self.link(Path::new(name), &target)?;
            } else if metadata.is_dir() {
                self.directory(Path::new(name), 0o755)?;
                self.binds.push(Path::new("/").join(name));
            }
        }
        for path in extra {
            self.extra(path)?;
        }
        self.etc()?;
        self.python()?;
        let binds: Vec<u8> = self
            .binds
            .iter()
            .flat_map(|p| p.as_os_str().as_bytes())
            .copied()
            .collect();
        self.hasher.update(binds);
        // Missing where /proc is not mounted; then the contents alone name the tree.
        self.hasher.update(fs::read(BOOT_ID).unwrap_or_default());
        Ok(())
    }

    fn etc(&mut self) -> Result<(), Error> {
        for pattern in ETC_COPIED {
            for relative in self.matches(pattern)? {
                if let Some(parent) = relative.parent() {
                    self.parents(parent)?;
                }
                self.copy(&relative, 0)?;
            }
        }
        let shell = if self.machine.join("usr/bin/bash").exists() {
            "/bin/bash"
        } else {
            "/bin/sh"
        };
        let uid = SANDBOX_UID;
        let passwd = format!(
            "root:x:0:0:root:/root:{shell}\n\
             {SANDBOX_USER}:x:{uid}:{uid}:sandbox:/home/{SANDBOX_USER}:{shell}\n\
             nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
        );
        let group = format!("root:x:0:\ntty:x:5:\n{SANDBOX_USER}:x:{uid}:\nnogroup:x:65534:\n");
        let written: [(&str, &str); 8] = [
            ("etc/passwd", &passwd),
            ("etc/group", &group),
            ("etc/shells", "/bin/sh\n/bin/bash\n"),
            (
                "etc/nsswitch.conf",
                "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
            ),
            (
                "etc/hosts",
                "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n",
            ),
            ("etc/hostname", "sandbox\n"),
            ("etc/resolv.conf", ""),
            ("etc/profile", &format!("PATH={PATH}\nexport PATH\n")),
        ];
        for (path, text) in written {
            self.file(Path::new(path), text.as_bytes(), 0o644)?;
        }
        self.link(Path::new("etc/mtab"), Path::new("/proc/self/mounts"))?;
        let home = Path::new("home").join(SANDBOX_USER);
        self.directory(&home, 0o755)?;
        let path = self.root.join(home);
        std::os::unix::fs::chown(&path, Some(uid), Some(uid))
            .map_err(|e| Error::io("giving away", &path, e))
    }

    /// Paths relative to `/` that a pattern of [`ETC_COPIED`] means on this machine.
    fn matches(&self, pattern: &str) -> Result<Vec<PathBuf>, Error> {
        let etc = Path::new("etc");
        let Some(prefix) = pattern.strip_suffix('*') else {
            return Ok(vec![etc.join(pattern)]);
        };
        let mut names: Vec<PathBuf> = disk::children(&self.machine.join(etc))
            .unwrap_or_default()
            .into_iter()
            .filter_map(|path| path.file_name().map(|name| etc.join(name)))
            .filter(|path| path.as_os_str().as_bytes()[4..].starts_with(prefix.as_bytes()))
            .collect();
        names.sort();
        Ok(names)
    }

    /// Copies what everyone may read; leaves out the rest.
    fn copy(&mut self, relative: &Path, depth: usize) -> Result<(), Error> {
        let original = self.machine.join(relative);
        let Ok(metadata) = fs::symlink_metadata(&original) else {
            return Ok(());
        };
        let mode = metadata.mode();
        if metadata.is_symlink() {
            let target =
                fs::read_link(&original).map_err(|e| Error::io("reading", &original, e))?;
            return self.link(relative, &target);
        }
        if metadata.is_dir() && mode & 0o005 == 0o005 && depth < DEPTH_MAX {
            self.directory(relative, 0o755)?;
            let mut children = disk::children(&original)?;
            children.sort();
            for child in children {
                if let Some(name) = child.file_name() {
                    self.copy(&relative.join(name), depth + 1)?;
                }
            }
            return Ok(());
        }
        let is_public = mode & 0o004 != 0 && metadata.len() <= FILE_BYTES_MAX;
        if !metadata.is_file() || !is_public || self.files >= FILES_MAX {
            return Ok(());
        }
        let Ok(contents) = fs::read(&original) else {
            return Ok(());
        };
        if holds_private_key(&contents) {
            return Ok(());
        }
        self.file(
            relative,
            &contents,
            if mode & 0o111 == 0 { 0o644 } else { 0o755 },
        )
    }

    /// A directory of the machine that the operator asked for.
    fn extra(&mut self, path: &Path) -> Result<(), Error> {
        let refuse = |message: &str| {
            Err(Error::InvalidReference {
                reference: format!("host_directories: {}", path.display()),
                message: message.to_owned(),
            })
        };
        let is_plain = path.is_absolute()
            && path
                .components()
                .skip(1)
                .all(|c| matches!(c, Component::Normal(_)))
            && path != Path::new("/");
        if !is_plain || path.to_str().is_none() {
            return refuse("give an absolute path without '..', in UTF-8");
        }
        if NEVER_SHOWN.iter().any(|place| path.starts_with(place)) {
            return refuse("it lies where secrets, homes or the running system live");
        }
        let relative = path.strip_prefix("/").expect("it is absolute");
        let original = self.machine.join(relative);
        match fs::symlink_metadata(&original) {
            Ok(metadata) if metadata.is_dir() && metadata.mode() & 0o005 == 0o005 => {}
            Ok(_) => return refuse("it is not a directory that everyone may read and enter"),
            Err(error) => return Err(Error::io("looking at", path, error)),
        }
        self.parents(relative)?;
        self.binds.push(path.to_owned());
        Ok(())
    }

    fn parents(&mut self, relative: &Path) -> Result<(), Error> {
        let mut so_far = PathBuf::new();
        for component in relative.components() {
            so_far.push(component);
            if !self.root.join(&so_far).is_dir() {
                self.directory(&so_far, 0o755)?;
            }
        }
        Ok(())
    }

    fn directory(&mut self, relative: &Path, mode: u32) -> Result<(), Error> {
        self.describe(b"d", relative, &mode.to_le_bytes());
        let path = self.root.join(relative);
        let made = match fs::create_dir(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        };
        made.and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)))
            .map_err(|e| Error::io("making", &path, e))
    }

    fn file(&mut self, relative: &Path, contents: &[u8], mode: u32) -> Result<(), Error> {
        self.files += 1;
        self.describe(b"f", relative, contents);
        let path = self.root.join(relative);
        // A link copied before must not lead the write elsewhere.
        let _ = fs::remove_file(&path);
        fs::write(&path, contents)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)))
            .map_err(|e| Error::io("writing", &path, e))
    }

    fn link(&mut self, relative: &Path, target: &Path) -> Result<(), Error> {
        self.describe(b"l", relative, target.as_os_str().as_bytes());
        let path = self.root.join(relative);
        let _ = fs::remove_file(&path);
        std::os::unix::fs::symlink(target, &path).map_err(|e| Error::io("linking", &path, e))
    }

    fn describe(&mut self, kind: &[u8], relative: &Path, contents: &[u8]) {
        for part in [kind, relative.as_os_str().as_bytes(), contents] {
            self.hasher.update((part.len() as u64).to_le_bytes());
            self.hasher.update(part);
        }
    }
}

fn holds_private_key(contents: &[u8]) -> bool {
    const MARK: &[u8] = b"PRIVATE KEY-----";
    contents.windows(MARK.len()).any(|window| window == MARK)
}

#[cfg(test)]
mod tests;
