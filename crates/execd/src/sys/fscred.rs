//! A thread's filesystem credentials: what rustix does not offer.

use rustix::{
    process::Gid,
    thread::{CapabilitySet, CapabilitySets, set_capabilities, set_thread_groups},
};
use std::io;

/// Makes the calling thread, and only it, touch files as `uid`, `gid` and `groups`, for good:
/// every capability is given up unless the user is root. The real ids stay, so that the user
/// gains no right to signal the thread.
pub(crate) fn assume(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    if !already(uid, gid) {
        let groups: Vec<Gid> = groups.iter().map(|&id| Gid::from_raw(id)).collect();
        set_thread_groups(&groups)?;
    }
    set_fs_id(libc::SYS_setfsgid, gid)?;
    set_fs_id(libc::SYS_setfsuid, uid)?;
    if uid != 0 {
        // The kernel takes away only the capabilities over files; CAP_SYS_PTRACE among the rest
        // opens other users' /proc entries.
        let none = CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, none)?;
    }
    Ok(())
}

/// A daemon without root may still act as itself, but may not set groups.
fn already(uid: u32, gid: u32) -> bool {
    !rustix::process::geteuid().is_root()
        && rustix::process::geteuid().as_raw() == uid
        && rustix::process::getegid().as_raw() == gid
}

/// setfsuid(2) and setfsgid(2) report no error: they return the id from before. Asking for the
/// impossible id changes nothing and tells what is in force.
fn set_fs_id(call: libc::c_long, id: u32) -> io::Result<()> {
    // SAFETY: the call takes one integer and touches no memory.
    unsafe { libc::syscall(call, id) };
    // SAFETY: as above.
    let now = unsafe { libc::syscall(call, u32::MAX) };
    if u32::try_from(now) == Ok(id) {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}
