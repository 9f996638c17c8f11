//! The networks of the cases: one that plays the host's, one that plays the outside.
//!
//! The host's own network is left alone: the process moves into a namespace of its own before anything is made.

use std::fs;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
pub(crate) const HOST_INNER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
pub(crate) const FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
/// In the range of sandboxes' addresses, and nobody's; somebody outside claims to have it.
pub(crate) const UNASSIGNED: Ipv4Addr = Ipv4Addr::new(10, 88, 250, 250);
pub(crate) const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

/// Moves the process into network and mount namespaces of its own, before it has threads, so
/// that the machine's network is not touched and every mount that appears here is ours.
#[expect(
    deprecated,
    reason = "both flags are safe for a process with one thread"
)]
pub(crate) fn leave_the_hosts_network() -> Result<(), String> {
    let private =
        rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
    rustix::thread::unshare(UnshareFlags::NEWNET | UnshareFlags::NEWNS)
        .and_then(|()| rustix::mount::mount_change("/", private))
        .map_err(|errno| format!("moving into namespaces of its own: {errno}"))
}

pub(crate) fn within<T: Send>(namespace: BorrowedFd<'_>, work: impl FnOnce() -> T + Send) -> T {
    // A thread of its own, because a thread of the runtime must not change namespaces.
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))
                .expect("root can enter a namespace");
            work()
        });
        thread.join().expect("the work does not panic")
    })
}

pub(crate) fn namespace() -> OwnedFd {
    fs::File::open("/proc/thread-self/ns/net")
        .expect("every thread has a network")
        .into()
}

#[expect(
    deprecated,
    reason = "a network namespace is safe to change for one thread"
)]
pub(crate) fn make_namespace() -> OwnedFd {
    std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            rustix::thread::unshare(UnshareFlags::NEWNET).expect("root can make namespaces");
            namespace()
        });
        made.join().expect("making a namespace does not panic")
    })
}

pub(crate) fn wire(host: &OwnedFd, outside: &OwnedFd) {
    let path = format!("/proc/{}/fd/{}", std::process::id(), outside.as_raw_fd());
    within(host.as_fd(), || {
        ip("link set lo up");
        ip(&format!("addr add {HOST_INNER}/32 dev lo"));
        ip(&format!(
            "link add up0 type veth peer name wan0 netns {path}"
        ));
        ip(&format!("addr add {HOST}/24 dev up0"));
        ip("link set up0 up");
    });
    within(outside.as_fd(), || {
        ip("link set lo up");
        ip(&format!("addr add {FAR}/32 dev lo"));
        ip(&format!("addr add {METADATA}/32 dev lo"));
        ip(&format!("addr add {UNASSIGNED}/32 dev lo"));
        ip(&format!("addr add {OUTSIDE}/24 dev wan0"));
        ip("link set wan0 up");
    });
    within(host.as_fd(), || {
        ip(&format!("route add default via {OUTSIDE}"));
    });
}

pub(crate) fn ip(arguments: &str) {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .expect("ip runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {text}");
}
