//! From a request to what the spawner needs: directories, sockets, mounts and text, all made by
//! the server before the sandbox has a process.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use lifecycle::backend::{Error, Spec};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use secrecy::ExposeSecret;

use super::host_layers::HostLayers;
use super::skeleton::{EtcFiles, Skeletons};
use super::{disk_image, volume};
use crate::image::Prepared;
use crate::init::{LISTEN_FD, LOG_FD, TOKEN_FD};
use crate::net::Slot;
use crate::spawner::protocol::{CgroupEntry, Descriptors, MountTarget, Request};

/// Connections that may wait for execd's accept: all that a busy proxy opens before execd is up.
const BACKLOG: i32 = 1024;

/// The control socket in a sandbox's directory.
pub(crate) const CONTROL_SOCKET: &str = "control.sock";

/// The log in a sandbox's directory.
pub(crate) const LOG_FILE: &str = "log";

/// Holds `upper` and `work` in a sandbox's directory.
pub(crate) const WRITABLE_DIR: &str = "rw";

/// Where programs are looked for when neither image nor request says.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a sandbox is built from besides its [`Spec`].
pub(crate) struct BuildInputs<'a> {
    pub(crate) image: &'a Prepared,
    /// Where the image store is.
    pub(crate) images: &'a Path,
    /// The directories of the host that images show.
    pub(crate) host_layers: &'a HostLayers,
    pub(crate) slot: &'a Slot,
    pub(crate) resolv_conf: String,
    pub(crate) cgroup: crate::cgroup::Entry,
    pub(crate) program: BorrowedFd<'a>,
    pub(crate) execd_port: u16,
    pub(crate) open_files: Option<u64>,
    /// The size of the writable layer, where it is bounded, and what makes such a layer.
    pub(crate) disk: Option<(u64, &'a disk_image::DiskImages)>,
}

/// A sandbox ready to be spawned.
pub(crate) struct Built {
    pub(crate) request: Request,
    pub(crate) descriptors: Descriptors,
    /// An `O_PATH` descriptor of the control socket, to connect to.
    pub(crate) control: OwnedFd,
}

/// Makes everything in `directory`, which is new and empty but for its record.
pub(crate) fn build(
    spec: &Spec,
    entrypoint: &[String],
    inputs: BuildInputs<'_>,
    directory: &Path,
    skeletons: &Skeletons,
    mut mounts: Vec<volume::PreparedMount>,
) -> Result<Built, Error> {
    let io = |action: &str| {
        let action = format!("{action} for sandbox {}", spec.id);
        move |source: io::Error| failed(action, source)
    };
    let hostname = hostname(spec.id.as_str());
    let writable = directory.join(WRITABLE_DIR);
    let texts = texts(&hostname, &inputs);
    let skeleton = skeletons
        .of(&inputs.image.id, &inputs.image.layers)
        .map_err(io("looking at the image's layers"))?;
    make_writable(&writable, inputs.disk)
        .and_then(|upper| skeleton.fill(&upper, &texts))
        .map_err(io("making the writable layer"))?;
    let state = open_directory(directory).map_err(io("opening the state directory"))?;
    let (listen, control) = listen(&state).map_err(io("making the control socket"))?;
    let shown = inputs.host_layers.shown(&inputs.image.binds, inputs.images);
    let mut targets = shown.map_err(io("binding the image's directories"))?;
    targets.append(&mut mounts);
    let (mounts, targets) = targets.into_iter().map(|m| (m.mount, m.target)).unzip();
    let user = inputs.slot.user.as_fd();
    let descriptors = Descriptors {
        listen,
        token: token(spec.access_token.expose_secret()).map_err(io("passing the token"))?,
        log: log(&state).map_err(io("making the log"))?,
        writable: mapped(&writable, user).map_err(io("mounting the writable layer"))?,
        layers: layers(&inputs.image.layers, user).map_err(io("mounting the layers"))?,
        program: duplicate(inputs.program).map_err(io("passing execd"))?,
        user: duplicate(user).map_err(io("passing the user namespace"))?,
        net: duplicate(inputs.slot.net.as_fd()).map_err(io("passing the network"))?,
        state,
        cgroup: Vec::new(),
        mounts,
    };
    let request = request(spec, entrypoint, &inputs, hostname, targets);
    Ok(with_cgroup(request, descriptors, control, inputs.cgroup))
}

fn with_cgroup(
    mut request: Request,
    mut descriptors: Descriptors,
    control: OwnedFd,
    entry: crate::cgroup::Entry,
) -> Built {
    (request.cgroup, descriptors.cgroup) = match entry {
        crate::cgroup::Entry::CloneInto(directory) => (CgroupEntry::BornInto, vec![directory]),
        crate::cgroup::Entry::WriteZero(files) => (CgroupEntry::Write(files.len()), files),
    };
    Built {
        request,
        descriptors,
        control,
    }
}

fn request(
    spec: &Spec,
    entrypoint: &[String],
    inputs: &BuildInputs<'_>,
    hostname: String,
    mounts: Vec<MountTarget>,
) -> Request {
    let config = &inputs.image.config;
    Request {
        arguments: arguments(entrypoint, inputs.execd_port),
        entrypoint: entrypoint.first().cloned().unwrap_or_default(),
        environment: environment(spec, &inputs.image.config, &hostname),
        hostname,
        workdir: config.workdir.clone(),
        user: config.user.clone(),
        first_id: inputs.slot.first_id,
        open_files: inputs.open_files,
        cgroup: CgroupEntry::Write(0),
        layers: inputs.image.layers.len(),
        mounts,
    }
}

/// execd's command line; see the launch contract in ARCHITECTURE.md.
fn arguments(entrypoint: &[String], port: u16) -> Vec<String> {
    let mut arguments: Vec<String> = ["execd", "--init", "--listen-fd"].map(String::from).into();
    arguments.push(LISTEN_FD.to_string());
    arguments.extend(["--token-fd".to_owned(), TOKEN_FD.to_string()]);
    arguments.extend(["--log-fd".to_owned(), LOG_FD.to_string()]);
    arguments.extend(["--port".to_owned(), port.to_string(), "--".to_owned()]);
    arguments.extend_from_slice(entrypoint);
    arguments
}

fn environment(spec: &Spec, image: &crate::image::ImageConfig, hostname: &str) -> Vec<String> {
    let mut environment: BTreeMap<&str, &str> = BTreeMap::new();
    environment.insert("PATH", DEFAULT_PATH);
    environment.insert("HOSTNAME", hostname);
    if matches!(image.user.split(':').next(), Some("" | "root" | "0")) {
        environment.insert("HOME", "/root");
    }
    environment.extend(
        image
            .env
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
    );
    environment.extend(
        spec.env
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
    );
    environment.insert("OPENSANDBOX_ID", spec.id.as_str());
    environment
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

/// A host name has letters, digits and hyphens; an id may also have underscores.
fn hostname(id: &str) -> String {
    id.replace('_', "-")
}

fn texts(hostname: &str, inputs: &BuildInputs<'_>) -> EtcFiles {
    let own = match inputs.slot.address {
        Some(address) => format!("{address}\t{hostname}\n"),
        None => format!("127.0.0.1\t{hostname}\n"),
    };
    EtcFiles {
        hostname: format!("{hostname}\n"),
        hosts: format!("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n{own}"),
        resolv_conf: inputs.resolv_conf.clone(),
    }
}

fn make_writable(
    writable: &Path,
    disk: Option<(u64, &disk_image::DiskImages)>,
) -> io::Result<PathBuf> {
    rustix::fs::mkdir(writable, Mode::from_raw_mode(0o700))?;
    if let Some((bytes, maker)) = disk {
        let directory = writable.parent().expect("it is in the sandbox's directory");
        maker.mount(directory, bytes)?;
    }
    let upper = writable.join("upper");
    rustix::fs::mkdir(&upper, Mode::from_raw_mode(0o755))?;
    rustix::fs::mkdir(writable.join("work"), Mode::from_raw_mode(0o700))?;
    Ok(upper)
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// The listening socket and a descriptor of its file. A socket's path has at most 107 bytes and
/// a data directory may be deep, so it is named through the directory's descriptor.
fn listen(directory: &OwnedFd) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let path = format!("/proc/self/fd/{}/{CONTROL_SOCKET}", raw(directory));
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok((socket, control(directory)?))
}

/// A descriptor of the control socket's file, to connect to.
pub(crate) fn control(directory: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(
        directory,
        CONTROL_SOCKET,
        flags,
        Mode::empty(),
    )?)
}

fn raw(descriptor: &OwnedFd) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(descriptor)
}

/// A pipe that holds the token and nothing more: it is gone once read.
fn token(token: &str) -> io::Result<OwnedFd> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::io::write(&write, token.as_bytes())?;
    Ok(read)
}

fn log(directory: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::APPEND | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(
        directory,
        LOG_FILE,
        flags,
        Mode::from_raw_mode(0o600),
    )?)
}

fn mapped(path: &Path, user: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let source = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    volume::detached_mount(source.as_fd(), 0, Some(user)).map_err(|errno| match errno {
        // The plain text of EINVAL would not help anybody.
        Errno::INVAL => io::Error::new(
            io::ErrorKind::Unsupported,
            "the filesystem of the data directory cannot map owners (idmapped mounts); put it \
             on ext4, xfs or btrfs",
        ),
        errno => errno.into(),
    })
}

fn layers(paths: &[PathBuf], user: BorrowedFd<'_>) -> io::Result<Vec<OwnedFd>> {
    paths.iter().map(|path| mapped(path, user)).collect()
}

fn duplicate(descriptor: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    descriptor.try_clone_to_owned()
}

/// An I/O failure as the backend's error: running out of something is told apart.
pub(crate) fn failed(action: String, source: io::Error) -> Error {
    match Errno::from_io_error(&source) {
        Some(Errno::NOSPC | Errno::DQUOT) => Error::Exhausted {
            what: "disk",
            message: format!("{action}: {source}; free space in the data directory"),
        },
        Some(Errno::MFILE | Errno::NFILE) => Error::Exhausted {
            what: "open files",
            message: format!("{action}: {source}; raise the server's limit on open files"),
        },
        Some(Errno::NOMEM) => Error::Exhausted {
            what: "memory",
            message: format!("{action}: {source}"),
        },
        _ => Error::Io { action, source },
    }
}
