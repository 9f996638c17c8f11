//! The process that is the egress gate: stands in two network namespaces at once.
//!
//! Its first thread is in the gate's namespace, where it has set up everything before it says that it is
//! ready; by it the next server finds that namespace. All other threads are in the host's, from where they
//! ask nameservers and dial.

use std::ffi::OsString;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::unix::AsyncFd;
use tokio::net::UnixListener;
use tokio::sync::watch;

use super::{READY, SOCKET, Start};
use crate::net::gate::{self, Links, Routes, Sets};
use crate::net::{self, dns_upstreams};
use crate::sys;

/// Threads that carry connections. The bytes are moved by the kernel, so few are enough.
const THREADS: usize = 2;

/// What `osb egress-gate` runs, until no server and no sandbox needs it any more.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let start = arguments.into_iter().next();
    let start = start.and_then(|text| serde_json::from_str(text.to_str()?).ok());
    let outcome = match start {
        Some(start) => run(&start),
        None => Err("it is started by a server, and by nobody else".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            let _ = writeln!(io::stdout(), "{reason}");
            ExitCode::FAILURE
        }
    }
}

fn run(start: &Start) -> Result<(), String> {
    let text = |action: &'static str| move |error: io::Error| format!("{action}: {error}");
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
    let mut config = net::Config::new(&start.data_dir);
    config.prefix.clone_from(&start.prefix);
    config.addresses = start.addresses;
    let control = listen(&start.data_dir).map_err(text("making its socket"))?;
    let routes = Routes::open().map_err(text("opening a netlink socket"))?;
    // Before this thread leaves the host's namespace: its threads stay there.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .map_err(text("starting threads"))?;
    let namespace: OwnedFd = match &start.namespace {
        Some(path) => std::fs::File::open(path).map(OwnedFd::from),
        None => gate::make_namespace(),
    }
    .map_err(text("opening its network namespace"))?;
    gate::enter(namespace.as_fd()).map_err(text("entering its network namespace"))?;
    let inside = gate::set_up(&config).map_err(|error| api::error_chain(&error).to_string())?;
    let upstreams = dns_upstreams(start.nameservers.clone());
    let host = Machine {
        routes: Mutex::new(routes),
        sets: Mutex::new(inside.sets),
    };
    let (links, sockets) = (inside.links, inside.sockets);
    let (counted, sandboxes) = watch::channel(links.count());
    let served = runtime.spawn(async move {
        tokio::spawn(count(links, counted));
        let control = UnixListener::from_std(control)?;
        let _ = writeln!(io::stdout(), "{READY}");
        egress::serve(sockets, control, Box::new(host), upstreams, sandboxes).await
    });
    let (ended, wait) = std::sync::mpsc::channel();
    runtime.spawn(async move {
        let _ = ended.send(served.await);
    });
    match wait.recv() {
        Ok(Ok(outcome)) => outcome.map_err(text("serving")),
        Ok(Err(error)) => Err(format!("serving panicked: {error}")),
        Err(error) => Err(error.to_string()),
    }
}

/// A socket's path has at most 107 bytes and a data directory may be deep, so it is named through the
/// directory's descriptor. One of an earlier gate that nobody listens on is in the way.
fn listen(data_dir: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(data_dir, flags, Mode::empty())?;
    match rustix::fs::unlinkat(&directory, SOCKET, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    // The directory is root's alone, and so is what is in it.
    let path = format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd());
    let listener = std::os::unix::net::UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Counts the sandboxes that lead here, whenever one comes or goes.
async fn count(links: Links, counted: watch::Sender<usize>) {
    let Ok(events) = links.events.try_clone().and_then(|events| {
        rustix::io::ioctl_fionbio(&events, true)?;
        sys::watch(events)
    }) else {
        return;
    };
    loop {
        counted.send_replace(links.count());
        if drain(&events).await.is_err() {
            return;
        }
    }
}

/// Waits for events and takes all there are; lost ones are as good as any.
async fn drain(events: &AsyncFd<OwnedFd>) -> io::Result<()> {
    use rustix::io::Errno;
    let mut guard = events.readable().await?;
    let mut buffer = [0_u8; 8 * 1024];
    loop {
        match rustix::io::read(events.get_ref(), &mut buffer) {
            Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                guard.clear_ready();
                return Ok(());
            }
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The host as the gate asks it, one question at a time.
struct Machine {
    routes: Mutex<Routes>,
    sets: Mutex<Sets>,
}

impl egress::Host for Machine {
    fn is_local(&self, address: IpAddr) -> bool {
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        routes.is_local(address)
    }

    fn tell(&self, sandbox: IpAddr, addresses: &[IpAddr], is_known: bool) -> io::Result<()> {
        let IpAddr::V4(sandbox) = sandbox else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let v4 = |address: &IpAddr| match address {
            IpAddr::V4(v4) => Some(*v4),
            IpAddr::V6(_) => None,
        };
        let addresses: Vec<_> = addresses.iter().filter_map(v4).collect();
        let sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        let told = sets.tell(sandbox, &addresses, is_known);
        told.map_err(io::Error::other)
    }

    fn open(&self, sandbox: IpAddr, is_open: bool) -> io::Result<()> {
        let IpAddr::V4(sandbox) = sandbox else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        sets.open(sandbox, is_open).map_err(io::Error::other)
    }
}
