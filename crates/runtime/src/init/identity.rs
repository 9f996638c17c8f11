//! Who PID 1 is: root of the sandbox's user namespace, or the user its image names, with the
//! capabilities that the default profile leaves.

use std::os::fd::AsFd;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, Gid, LinkNameSpaceType, Uid};

use super::Outcome;
use super::filesystem::open_in_root;
use crate::protection::Protection;
use crate::spawner::protocol::{Descriptors, InitFailure, Request, Step};

/// What root in a sandbox may do, all of it only to what its user namespace owns. Docker's
/// default set without three: `NET_RAW` (forging packets; ping works without), `MKNOD` (refused
/// in a user namespace anyway) and `AUDIT_WRITE` (the host's audit log).
const CAPABILITIES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_CHROOT);

/// Capabilities are numbered up to here at most; the kernel says where they end.
const CAPABILITIES_MAX: u32 = 63;

/// The files that name users and groups are at most this large.
const ACCOUNTS_BYTES_MAX: u64 = 4 << 20;

/// A user by number.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Account {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

/// Joins the user namespace, enters the working directory and gives up every capability that is
/// not in the default set. The root must have been entered: from here on the process is
/// nobody to the host.
pub(super) fn assume(request: &Request, descriptors: &Descriptors) -> Outcome {
    // Read while the image is certainly readable.
    let account = find(&request.user)
        .map_err(|errno| InitFailure::new(Step::User, errno, request.user.as_str()))?;
    let kind = Some(LinkNameSpaceType::User);
    rustix::thread::move_into_link_name_space(descriptors.user.as_fd(), kind)
        .map_err(super::at_step(Step::UserNamespace))?;
    become_account(&Account {
        uid: 0,
        gid: 0,
        groups: Vec::new(),
    })
    .map_err(super::at_step(Step::UserNamespace))?;
    enter_workdir(&request.workdir)
        .map_err(|errno| InitFailure::new(Step::Workdir, errno, request.workdir.as_str()))?;
    bound_capabilities(of_root()).map_err(super::at_step(Step::Capabilities))?;
    if account.uid != 0 || account.gid != 0 {
        become_account(&account).map_err(super::at_step(Step::User))?;
    }
    keep_capabilities(account.uid == 0).map_err(super::at_step(Step::Capabilities))
}

fn become_account(account: &Account) -> rustix::io::Result<()> {
    let gid = Gid::from_raw(account.gid);
    let groups: Vec<Gid> = account.groups.iter().map(|id| Gid::from_raw(*id)).collect();
    rustix::thread::set_thread_groups(&groups)?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    let uid = Uid::from_raw(account.uid);
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

/// Makes what is missing of the directory, as a container engine does, and enters it. A magic
/// link would lead out of the root, so none is followed, and where we ended up is checked.
fn enter_workdir(path: &str) -> rustix::io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let root = rustix::fs::openat(CWD, "/", flags | OFlags::CLOEXEC, Mode::empty())?;
    let mut so_far = String::from("/");
    let mut directory = open_in_root(root.as_fd(), "/", flags)?;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        so_far = format!("{so_far}/{part}");
        directory = match open_in_root(root.as_fd(), &so_far, flags) {
            Err(Errno::NOENT) => {
                rustix::fs::mkdirat(&directory, part, Mode::from_raw_mode(0o755))?;
                open_in_root(root.as_fd(), &so_far, flags)?
            }
            other => other?,
        };
    }
    rustix::process::fchdir(&directory)?;
    // The kernel writes "(unreachable)" before a path outside the root.
    if rustix::process::getcwd(Vec::new())?.as_bytes().first() == Some(&b'/') {
        Ok(())
    } else {
        Err(Errno::XDEV)
    }
}

/// Nothing that this process becomes can have another capability than these.
pub(crate) fn bound_capabilities(kept: CapabilitySet) -> rustix::io::Result<()> {
    for number in 0..CAPABILITIES_MAX {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(capability) {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // One past the last that this kernel knows.
            Err(Errno::INVAL) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// What root in a sandbox has. A build for tests without `no_new_privs` can only install a filter with all.
fn of_root() -> CapabilitySet {
    if Protection::Capabilities.is_on() && Protection::NoNewPrivileges.is_on() {
        CAPABILITIES
    } else {
        CapabilitySet::all()
    }
}

fn keep_capabilities(is_root: bool) -> rustix::io::Result<()> {
    let kept = if is_root {
        of_root()
    } else {
        CapabilitySet::empty()
    };
    rustix::thread::clear_ambient_capability_set()?;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets)
}

/// What an image's `USER` means in this root.
fn find(user: &str) -> rustix::io::Result<Account> {
    if user.is_empty() || user == "root" || user == "0" {
        return Ok(Account {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
        });
    }
    resolve(user, &read("/etc/passwd")?, &read("/etc/group")?).ok_or(Errno::NOENT)
}

fn resolve(user: &str, passwd: &str, group: &str) -> Option<Account> {
    let (user, group_name) = match user.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (user, None),
    };
    let entries = || {
        passwd
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
    };
    let by_name = entries().find(|entry| entry.first() == Some(&user));
    let number = user.parse::<u32>().ok();
    let by_number = || {
        entries()
            .find(|entry| entry.get(2).and_then(|id| id.parse().ok()) == number && number.is_some())
    };
    let entry = by_name.or_else(by_number);
    let uid = match &entry {
        Some(entry) => entry.get(2)?.parse().ok()?,
        None => number?,
    };
    let name = entry.as_ref().map_or("", |entry| entry[0]);
    let gid = match group_name {
        Some(wanted) => group_id(wanted, group)?,
        None => entry
            .as_ref()
            .and_then(|entry| entry.get(3)?.parse().ok())
            .unwrap_or(0),
    };
    let groups = match group_name {
        Some(_) => Vec::new(),
        None => memberships(name, group),
    };
    Some(Account { uid, gid, groups })
}

fn group_id(wanted: &str, group: &str) -> Option<u32> {
    let mut entries = group
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>());
    let named = entries.find(|entry| entry.first() == Some(&wanted));
    match named {
        Some(entry) => entry.get(2)?.parse().ok(),
        None => wanted.parse().ok(),
    }
}

fn memberships(name: &str, group: &str) -> Vec<u32> {
    if name.is_empty() {
        return Vec::new();
    }
    let id = |line: &str| {
        let entry: Vec<&str> = line.split(':').collect();
        let is_member = entry.get(3)?.split(',').any(|member| member == name);
        is_member.then(|| entry.get(2)?.parse().ok()).flatten()
    };
    group.lines().filter_map(id).collect()
}

/// A file of the image, or nothing where it has none. Never waits: what is not a regular file
/// counts as missing.
fn read(path: &str) -> rustix::io::Result<String> {
    let root = rustix::fs::openat(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let file = match open_in_root(root.as_fd(), path, OFlags::RDONLY | OFlags::NONBLOCK) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(String::new()),
        Err(errno) => return Err(errno),
    };
    let found = rustix::fs::fstat(&file)?;
    if !FileType::from_raw_mode(found.st_mode).is_file() {
        return Ok(String::new());
    }
    let mut text = Vec::new();
    let mut file = std::io::Read::take(std::fs::File::from(file), ACCOUNTS_BYTES_MAX);
    std::io::Read::read_to_end(&mut file, &mut text)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1001::/home/node:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nnode:x:1001:\nwheel:x:10:root,node\ndocker:x:999:node\n";

    #[track_caller]
    fn check(user: &str, expected: Option<(u32, u32, &[u32])>) {
        let found = resolve(user, PASSWD, GROUP);
        let found = found.as_ref().map(|a| (a.uid, a.gid, a.groups.as_slice()));
        assert_eq!(found, expected, "{user}");
    }

    #[test]
    fn users_are_resolved_as_a_container_engine_does() {
        check("node", Some((1000, 1001, &[10, 999])));
        check("1000", Some((1000, 1001, &[10, 999])));
        check("node:wheel", Some((1000, 10, &[])));
        check("node:5", Some((1000, 5, &[])));
        check("4242", Some((4242, 0, &[])));
        check("4242:4243", Some((4242, 4243, &[])));
        check("nobody-here", None);
        check("node:no-such-group", None);
    }
}
