//! What happens in the new process between its clone and the moment it becomes execd.
//!
//! The order of the steps is the security argument:
//!
//! 1. `join_cgroup`: before anything is allocated, so that all of it counts against the sandbox.
//! 2. `start_session`: no controlling terminal and no signal state of the spawner.
//! 3. `join_network`, `unshare_cgroup_namespace`, `set_hostname`, `limit_resources`: the remaining namespaces. The
//!    process was cloned into new pid, mount, ipc and uts namespaces.
//! 4. [`filesystem`]: the root is assembled from descriptors alone. The mount namespace was copied
//!    from the spawner's, which holds one empty tmpfs, so no file of the host has a name here.
//!    Volumes come before `/proc`, `/sys` and `/dev`, so a volume can never cover or redirect those.
//!    No process of the sandbox exists yet, so nothing in the image can change while it is looked
//!    at; other sandboxes can change shared volumes, which is why every path is resolved with
//!    `RESOLVE_IN_ROOT` and the result used as a descriptor.
//! 5. [`Scaffold::leave_for`]: the root is entered and the spawner's tmpfs is covered for good, or
//!    dropped. From here the host is unreachable by name.
//!    `set_oom_score` while the process may set the lowest score that it can ever have.
//! 6. [`identity`]: only now the user namespace is joined. Every namespace but user and network
//!    was made before and so belongs to the host's root: root in the sandbox has no capability
//!    over its mounts, hostname, cgroup view or process table, seccomp or no seccomp.
//! 7. `arrange_descriptors`: exactly six stay open, everything else is closed by number.
//! 8. `no_new_privs`, Landlock, seccomp, `execveat` of a descriptor: the filter is last because it forbids
//!    what the steps above do, and the program needs no path inside the image. The descriptor on
//!    which the filter's notifications arrive goes to the spawner.
//!
//! This is ordinary code, not signal-safe code, because the spawner has one thread. It opens no
//! path of the host. It usually runs in memory that it borrows from the spawner (see `sys::clone`),
//! so nothing allocated here may be alive when the program is executed.

mod filesystem;
mod identity;
mod kernel_filesystems;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libc::sock_filter;
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::protection::Protection;
use crate::spawner::packet;
use crate::spawner::protocol::{CgroupEntry, Descriptors, InitFailure, Report, Request, Step};
use crate::sys::{self, Keep, Landlock, ProgramText};

pub(crate) use filesystem::{Scaffold, prepare_scaffold};
pub(crate) use identity::bound_capabilities;
pub(crate) use kernel_filesystems::process_filesystem;

/// The numbers that execd is told in its arguments.
pub(crate) const LISTEN_FD: i32 = 3;
/// See [`LISTEN_FD`].
pub(crate) const TOKEN_FD: i32 = 4;
/// See [`LISTEN_FD`].
pub(crate) const LOG_FD: i32 = 5;

/// What the spawner prepared once for all sandboxes.
pub(crate) struct InitContext {
    /// The seccomp program.
    pub(crate) filter: Vec<sock_filter>,
    /// The tmpfs that the mount namespace starts as.
    pub(crate) scaffold: Scaffold,
    /// `/dev/null`.
    pub(crate) null: OwnedFd,
    /// What the kernel has of Landlock.
    pub(crate) landlock: Option<Landlock>,
    /// Where the descriptor goes on which the filter's notifications arrive.
    pub(crate) listeners: OwnedFd,
}

type Outcome<T = ()> = Result<T, InitFailure>;

/// Turns this process, which the spawner knows by `key`, into PID 1 of the sandbox. Returns only on
/// failure, after reporting it.
pub(crate) fn become_sandbox(
    context: &InitContext,
    request: &Request,
    descriptors: &Descriptors,
    text: &ProgramText,
    (key, report): (u64, BorrowedFd<'_>),
) {
    if let Err(failure) = build(context, request, descriptors) {
        return report_failure(report, failure);
    }
    match arrange_descriptors(context, descriptors, report) {
        Ok(kept) => report_failure(kept.report.as_fd(), execute(context, &kept, text, key)),
        Err(failure) => report_failure(report, failure),
    }
}

/// Everything but the last two steps.
fn build(context: &InitContext, request: &Request, descriptors: &Descriptors) -> Outcome {
    join_cgroup(request, descriptors)?;
    start_session()?;
    join_network(descriptors)?;
    unshare_cgroup_namespace()?;
    set_hostname(request)?;
    limit_resources(request)?;
    let root = filesystem::assemble(&context.scaffold, request, descriptors)?;
    context
        .scaffold
        .leave_for(&root)
        .map_err(at_step(Step::Pivot))?;
    drop(root);
    set_oom_score()?;
    identity::assume(request, descriptors)?;
    find_entrypoint(request)
}

/// The last steps; returns why they failed.
fn execute(
    context: &InitContext,
    kept: &OpenDescriptors,
    text: &ProgramText,
    key: u64,
) -> InitFailure {
    let locked_in = match Protection::NoNewPrivileges.is_on() {
        true => rustix::thread::set_no_new_privs(true),
        false => Ok(()),
    };
    let confined = locked_in.and_then(|()| confine_files(context));
    if let Err(errno) = confined {
        return InitFailure::new(Step::Landlock, errno, "");
    }
    let filtered = sys::notify::install_filter(&context.filter).and_then(|listener| {
        packet::send(
            kept.listeners.as_fd(),
            &key.to_ne_bytes(),
            &[listener.as_fd()],
        )
    });
    if let Err(errno) = filtered {
        return InitFailure::new(Step::Seccomp, errno, "");
    }
    let errno = sys::execute(kept.program.as_fd(), text);
    InitFailure::new(Step::Execute, errno, "")
}

/// A second wall behind the mounts: only what lies below this root can be opened, also by a process
/// that came by a descriptor of the host or by a view of its mounts.
fn confine_files(context: &InitContext) -> rustix::io::Result<()> {
    let Some(landlock) = context.landlock.filter(|_| Protection::Landlock.is_on()) else {
        return Ok(());
    };
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    let root = rustix::fs::open("/", flags, rustix::fs::Mode::empty())?;
    landlock.restrict_to(root.as_fd())
}

/// Best effort: a server that is gone does not need to know.
fn report_failure(report: BorrowedFd<'_>, failure: InitFailure) {
    if let Ok(text) = serde_json::to_vec(&Report::Failed(failure)) {
        let _ = packet::send(report, &text, &[]);
    }
}

fn at_step(step: Step) -> impl Fn(Errno) -> InitFailure {
    move |errno| InitFailure::new(step, errno, "")
}

/// On cgroup v2 the process was born into its group. On v1 it writes itself: a thread that moves
/// only itself does not take the kernel's global threadgroup lock, whose first writer after a
/// quiet spell waits 5 to 17 ms.
fn join_cgroup(request: &Request, descriptors: &Descriptors) -> Outcome {
    if matches!(request.cgroup, CgroupEntry::Write(_)) {
        for tasks in &descriptors.cgroup {
            rustix::io::write(tasks, b"0").map_err(at_step(Step::Cgroup))?;
        }
    }
    Ok(())
}

fn start_session() -> Outcome {
    rustix::process::setsid().map_err(at_step(Step::Session))?;
    sys::reset_signals().map_err(at_step(Step::Session))?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    Ok(())
}

fn join_network(descriptors: &Descriptors) -> Outcome {
    let kind = Some(LinkNameSpaceType::Network);
    rustix::thread::move_into_link_name_space(descriptors.net.as_fd(), kind)
        .map_err(at_step(Step::Network))
}

/// After joining the cgroup: the root of a cgroup namespace is the cgroup that its creator is in, see
/// cgroup_namespaces(7).
fn unshare_cgroup_namespace() -> Outcome {
    sys::unshare_namespaces(UnshareFlags::NEWCGROUP).map_err(at_step(Step::CgroupNamespace))
}

fn set_hostname(request: &Request) -> Outcome {
    rustix::system::sethostname(request.hostname.as_bytes()).map_err(at_step(Step::Hostname))
}

/// Before the user namespace is joined: inside it no limit could be raised.
fn limit_resources(request: &Request) -> Outcome {
    // A core dump goes where the host's core_pattern says: into the image, or to a program of
    // the host, run as root, that would parse memory an attacker wrote. Zero does not keep the
    // kernel from starting the program, one byte does (core(5)); the filter keeps it there.
    let one_byte = Rlimit {
        current: Some(1),
        maximum: Some(1),
    };
    if Protection::CoreLimit.is_on() {
        rustix::process::setrlimit(Resource::Core, one_byte).map_err(at_step(Step::Rlimits))?;
    }
    let files = match request.open_files {
        Some(wanted) if Protection::OpenFilesLimit.is_on() => Some(wanted),
        _ => rustix::process::getrlimit(Resource::Nofile).maximum,
    };
    let limit = Rlimit {
        current: files,
        maximum: files,
    };
    rustix::process::setrlimit(Resource::Nofile, limit)
        .map_err(|errno| InitFailure::new(Step::Rlimits, errno, "open files"))
}

/// Every process of a sandbox goes before those of the host when the machine runs out of memory;
/// execd starts the others with a higher score still, so that PID 1 goes last of all.
const OOM_SCORE: &[u8] = b"500";

/// With the privilege to lower it, which makes this the lowest score that the sandbox can have.
fn set_oom_score() -> Outcome {
    if !Protection::OomScore.is_on() {
        return Ok(());
    }
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open("/proc/self/oom_score_adj", flags, rustix::fs::Mode::empty())
        .and_then(|file| rustix::io::write(&file, OOM_SCORE))
        .map(drop)
        .map_err(at_step(Step::OomScore))
}

/// Says now, rather than in a log later, that the image lacks the program execd is to start.
/// Looks where execd will look, as the user who will run it.
fn find_entrypoint(request: &Request) -> Outcome {
    let name = request.entrypoint.as_str();
    let can_run = |path: &str| {
        let kind = FileType::from_raw_mode(rustix::fs::stat(path)?.st_mode);
        if kind.is_file() {
            rustix::fs::access(path, rustix::fs::Access::EXEC_OK)
        } else {
            Err(Errno::ACCESS)
        }
    };
    let outcome = if name.is_empty() {
        Ok(())
    } else if name.contains('/') {
        can_run(name)
    } else {
        let path = request
            .environment
            .iter()
            .find_map(|pair| pair.strip_prefix("PATH="));
        let places = path
            .unwrap_or_default()
            .split(':')
            .map(|place| format!("{place}/{name}"));
        if places.into_iter().any(|path| can_run(&path).is_ok()) {
            Ok(())
        } else {
            Err(Errno::NOENT)
        }
    };
    outcome.map_err(|errno| InitFailure::new(Step::Entrypoint, errno, name))
}

/// What is open when the program starts, besides the standard three and execd's three.
struct OpenDescriptors {
    program: OwnedFd,
    report: OwnedFd,
    listeners: OwnedFd,
}

/// Numbers of the three descriptors that close by themselves when execd starts.
const PROGRAM_FD: i32 = 6;
const REPORT_FD: i32 = 7;
const LISTENERS_FD: i32 = 8;
/// The first number that must not be open.
const FIRST_CLOSED: u32 = 9;

/// Leaves open: 0 `/dev/null`, 1 and 2 the log, 3 to 5 execd's own, and until execd starts the
/// program, the report and where the filter's listener goes.
fn arrange_descriptors(
    context: &InitContext,
    descriptors: &Descriptors,
    report: BorrowedFd<'_>,
) -> Outcome<OpenDescriptors> {
    let step = at_step(Step::Descriptors);
    // The sources may stand where a target goes, so all are first copied out of the way.
    let aside = |descriptor: BorrowedFd<'_>| {
        rustix::io::fcntl_dupfd_cloexec(descriptor, FIRST_CLOSED.cast_signed()).map_err(&step)
    };
    let null = aside(context.null.as_fd())?;
    let log = aside(descriptors.log.as_fd())?;
    let listen = aside(descriptors.listen.as_fd())?;
    let token = aside(descriptors.token.as_fd())?;
    let program = aside(descriptors.program.as_fd())?;
    let report = aside(report)?;
    let listeners = aside(context.listeners.as_fd())?;
    let places = [
        (&null, 0, Keep::AcrossExec),
        (&log, 1, Keep::AcrossExec),
        (&log, 2, Keep::AcrossExec),
        (&listen, LISTEN_FD, Keep::AcrossExec),
        (&token, TOKEN_FD, Keep::AcrossExec),
        (&log, LOG_FD, Keep::AcrossExec),
        (&program, PROGRAM_FD, Keep::UntilExec),
        (&report, REPORT_FD, Keep::UntilExec),
        (&listeners, LISTENERS_FD, Keep::UntilExec),
    ];
    for (from, to, keep) in places {
        sys::duplicate_to(from.as_fd(), to, keep).map_err(&step)?;
    }
    drop((null, log, listen, token, program, report, listeners));
    sys::close_from(FIRST_CLOSED).map_err(&step)?;
    Ok(OpenDescriptors {
        program: sys::take_inherited(PROGRAM_FD),
        report: sys::take_inherited(REPORT_FD),
        listeners: sys::take_inherited(LISTENERS_FD),
    })
}
