//! The system calls that rustix has no safe form for, each behind a function that is safe to
//! call, or says why it is not.
//!
//! The only place of this crate with unsafe code. No policy here: which namespaces, which mounts
//! and which filter is decided by the callers.

#![expect(
    unsafe_code,
    reason = "system calls without a safe wrapper live here and nowhere else"
)]

mod clone;
pub(crate) mod event;
mod landlock;
mod loop_device;
mod mount;
pub(crate) mod notify;
mod process;
pub(crate) mod userns;

pub(crate) use clone::{Memory, ProgramText, Stack, clone_process, execute};
pub(crate) use landlock::Landlock;
pub(crate) use loop_device::attach_loop_device;
pub(crate) use mount::{MountChange, change_mount};
pub(crate) use process::{
    ExitStatus, Keep, close_from, duplicate_to, ended_child, exit_status_of,
    join_anonymous_keyring, reset_signals, set_file_ids, take_inherited, unshare_namespaces, watch,
    watch_children,
};
