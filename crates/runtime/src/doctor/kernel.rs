//! Privileges, kernel features and cgroups, each by using it.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use lifecycle::backend::Limits;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{FsOpenFlags, OpenTreeFlags};

use super::{Check, Section, Settings};
use crate::cgroup;
use crate::sys::userns::Holder;
use crate::sys::{MountChange, change_mount};

/// Capabilities without which sandboxes cannot be made, with their numbers.
const NEEDED: [(u32, &str); 9] = [
    (0, "CAP_CHOWN"),
    (1, "CAP_DAC_OVERRIDE"),
    (3, "CAP_FOWNER"),
    (5, "CAP_KILL"),
    (6, "CAP_SETGID"),
    (7, "CAP_SETUID"),
    (12, "CAP_NET_ADMIN"),
    (18, "CAP_SYS_CHROOT"),
    (21, "CAP_SYS_ADMIN"),
];
const SYS_RESOURCE: u32 = 24;

/// An id that nobody has, as the owner of a namespace that is made to see that it can be.
const PROBE_ID: u32 = 0x6fff_0000;

/// Each sandbox has one user and one network namespace.
const NAMESPACES_FOR_MANY: u64 = 2_000;

pub(super) fn privileges() -> Section {
    let mut checks = vec![if rustix::process::geteuid().is_root() {
        Check::ok("user", "root")
    } else {
        let uid = rustix::process::geteuid().as_raw();
        Check::failed(
            "user",
            format!("uid {uid}; namespaces, mounts and cgroups need root"),
        )
        .mended_by("sudo osb doctor, and run the server as root")
    }];
    let held = effective_capabilities();
    let missing: Vec<&str> = NEEDED
        .iter()
        .filter(|(bit, _)| held >> bit & 1 == 0)
        .map(|(_, name)| *name)
        .collect();
    checks.push(if missing.is_empty() {
        Check::ok("capabilities", "all that are needed")
    } else {
        Check::failed("capabilities", format!("missing: {}", missing.join(", ")))
            .mended_by("run the server as root on the host, or in a container with --privileged")
    });
    if held >> SYS_RESOURCE & 1 == 0 {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let files = limit
            .maximum
            .map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
        checks.push(Check::note(
            "resource limits",
            format!("no CAP_SYS_RESOURCE: a sandbox can have at most {files} open files"),
        ));
    }
    Section {
        name: "privileges",
        checks,
    }
}

fn effective_capabilities() -> u64 {
    fs::read_to_string("/proc/thread-self/status")
        .ok()
        .and_then(|status| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("CapEff:"))?;
            u64::from_str_radix(line.trim(), 16).ok()
        })
        .unwrap_or(0)
}

pub(super) fn features(settings: &Settings) -> Section {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let mut checks = vec![Check::note("version", format!("Linux {release}"))];
    checks[0].status = super::Status::Ok;
    checks.push(namespaces());
    checks.push(namespace_count());
    checks.push(call("openat2", "5.6", || {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        rustix::fs::openat2(CWD, "/", flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).map(drop)
    }));
    checks.push(call("pidfd", "5.3", || {
        let own = rustix::process::getpid();
        rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty()).map(drop)
    }));
    checks.push(overlay());
    checks.push(idmapped_mounts(settings));
    checks.push(
        match fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail") {
            Ok(actions) => Check::ok("seccomp", actions.trim().to_owned()),
            Err(_) => Check::failed("seccomp", "the kernel has no system call filters")
                .mended_by("use a kernel with CONFIG_SECCOMP_FILTER=y"),
        },
    );
    Section {
        name: "kernel",
        checks,
    }
}

fn call(name: &'static str, since: &str, attempt: impl FnOnce() -> Result<(), Errno>) -> Check {
    match attempt() {
        Ok(()) => Check::ok(name, "works"),
        Err(Errno::NOSYS) => Check::failed(name, format!("needs Linux {since}"))
            .mended_by(format!("boot a kernel of version {since} or later")),
        Err(errno) => Check::failed(name, format!("does not work: {errno}")),
    }
}

fn namespaces() -> Check {
    match Holder::spawn(PROBE_ID) {
        Ok(_) => Check::ok("namespaces", "user and network namespaces can be made"),
        Err(error) => Check::failed(
            "namespaces",
            format!("user namespaces cannot be made: {error}"),
        )
        .mended_by("sysctl user.max_user_namespaces=100000 user.max_net_namespaces=100000"),
    }
}

fn namespace_count() -> Check {
    let limit = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/user/{name}")).unwrap_or_default();
        text.trim().parse::<u64>().unwrap_or(0)
    };
    let least = limit("max_user_namespaces").min(limit("max_net_namespaces"));
    if least >= NAMESPACES_FOR_MANY {
        return Check::ok("how many", format!("up to {least} of each"));
    }
    Check::degraded(
        "how many",
        format!("only {least} namespaces, so that many sandboxes at most"),
    )
    .mended_by("sysctl user.max_user_namespaces=100000 user.max_net_namespaces=100000")
}

fn overlay() -> Check {
    match rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC) {
        Ok(_) => Check::ok("overlay", "works"),
        Err(Errno::NODEV) => Check::failed("overlay", "the kernel has no overlay filesystem")
            .mended_by("modprobe overlay"),
        Err(errno) => Check::failed("overlay", format!("cannot be opened: {errno}")),
    }
}

/// Image layers are shared between sandboxes with different ids through mounts that translate
/// owners; the filesystem of the data directory must be able to.
fn idmapped_mounts(settings: &Settings) -> Check {
    const NAME: &str = "idmapped mounts";
    let dir = super::host::nearest_existing(&settings.data_dir);
    match map_detached(dir) {
        Ok(()) => Check::ok(NAME, format!("work on {}", dir.display())),
        Err(Errno::NOSYS) => Check::failed(NAME, "need Linux 5.19")
            .mended_by("boot a kernel of version 5.19 or later"),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Check::failed(
            NAME,
            format!("the filesystem of {} has none", dir.display()),
        )
        .mended_by("put the data directory on ext4, xfs or btrfs"),
        Err(errno) => Check::failed(NAME, format!("do not work on {}: {errno}", dir.display())),
    }
}

fn map_detached(dir: &Path) -> Result<(), Errno> {
    let holder =
        Holder::spawn(PROBE_ID).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::PERM))?;
    let proc = format!("/proc/{}", holder.pid().as_raw_nonzero());
    for file in ["uid_map", "gid_map"] {
        let write = fs::write(format!("{proc}/{file}"), "0 100000 65536");
        write.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::PERM))?;
    }
    let user = fs::File::open(format!("{proc}/ns/user"))
        .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::PERM))?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = rustix::mount::open_tree(CWD, dir, flags)?;
    let idmap: Option<BorrowedFd<'_>> = Some(user.as_fd());
    change_mount(
        tree.as_fd(),
        c"",
        MountChange {
            idmap,
            ..MountChange::default()
        },
    )
}

pub(super) fn cgroups() -> Section {
    let config = cgroup::Config {
        parent: "opensandbox-doctor".into(),
        ready: 0,
        limits: Limits::default(),
    };
    let checks = match cgroup::Tree::open(config) {
        Ok(tree) => limits(tree.capabilities()),
        Err(error @ cgroup::Error::NotMounted) => vec![
            Check::failed("hierarchy", error.to_string())
                .mended_by("mount -t cgroup2 none /sys/fs/cgroup"),
        ],
        Err(error) => vec![Check::failed("hierarchy", error.to_string())],
    };
    Section {
        name: "cgroups",
        checks,
    }
}

fn limits(can: cgroup::Capabilities) -> Vec<Check> {
    let mut checks = vec![Check::ok(
        "hierarchy",
        format!("version {}, writable", can.version),
    )];
    let mend = match can.version {
        1 => {
            "boot with cgroup_no_v1=all systemd.unified_cgroup_hierarchy=1, or mount the controller"
        }
        _ => "echo '+cpu +memory +pids' > /sys/fs/cgroup/cgroup.subtree_control",
    };
    for (name, is_enforced) in [
        ("cpu", can.cpu),
        ("memory", can.memory),
        ("processes", can.pids),
    ] {
        checks.push(if is_enforced {
            Check::ok(name, "limits are enforced")
        } else {
            Check::degraded(
                name,
                "limits are not enforced; requests that set one are refused",
            )
            .mended_by(mend)
        });
    }
    if can.memory && !can.swap {
        checks.push(
            Check::degraded(
                "swap",
                "is not counted, so a sandbox can use it beyond its limit",
            )
            .mended_by("boot with swapaccount=1, or turn swap off: swapoff -a"),
        );
    }
    checks.push(if can.freezer {
        Check::ok("freezer", "pause and resume work")
    } else {
        Check::degraded("freezer", "missing, so sandboxes cannot be paused").mended_by(mend)
    });
    checks
}
