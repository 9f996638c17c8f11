//! Names used by the profile, as numbers of this processor's system call table.
//!
//! libc has no constant for calls it considers gone or too new, and the profile names both, so
//! the numbers stand here. From 424 on all processors share one numbering.

/// A call's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    /// It has one.
    Is(u32),
    /// This processor never had the call.
    Absent,
}

/// The number of a call, or `None` for a name that is in no table: a mistake in the profile.
pub(super) fn call(name: &str) -> Option<Number> {
    let at = |table: &[(&str, u32)]| table.iter().find(|(n, _)| *n == name).map(|(_, n)| *n);
    if let Some(number) = at(SHARED).or_else(|| at(NATIVE)) {
        return Some(Number::Is(number));
    }
    at(FOREIGN).map(|_| Number::Absent)
}

/// The value of a constant that the profile compares an argument with.
pub(super) fn constant(name: &str) -> Option<u32> {
    let value = match name {
        "CLONE_NEWTIME" => 0x80,
        "CLONE_NEWNS" => 0x0002_0000,
        "CLONE_NEWCGROUP" => 0x0200_0000,
        "CLONE_NEWUTS" => 0x0400_0000,
        "CLONE_NEWIPC" => 0x0800_0000,
        "CLONE_NEWUSER" => 0x1000_0000,
        "CLONE_NEWPID" => 0x2000_0000,
        "CLONE_NEWNET" => 0x4000_0000,
        "AF_UNIX" => 1,
        "AF_INET" => 2,
        "AF_INET6" => 10,
        "AF_NETLINK" => 16,
        "NETLINK_ROUTE" => 0,
        "NETLINK_SOCK_DIAG" => 4,
        "NETLINK_KOBJECT_UEVENT" => 15,
        "IPPROTO_ICMP" => 1,
        "IPPROTO_ICMPV6" => 58,
        "SOL_SOCKET" => 1,
        "SO_ATTACH_FILTER" => 26,
        "SO_ATTACH_BPF" => 50,
        "SO_ATTACH_REUSEPORT_CBPF" => 51,
        "SO_ATTACH_REUSEPORT_EBPF" => 52,
        "OWN_PROCESS" => 0,
        "RLIMIT_CORE" => 4,
        "TIOCSTI" => 0x5412,
        "TIOCLINUX" => 0x541C,
        "TIOCSETD" => 0x5423,
        "PER_LINUX" => 0,
        "PER_LINUX32" => 8,
        "UNAME26" => 0x0002_0000,
        "UNAME26_PER_LINUX32" => 0x0002_0008,
        "PERSONALITY_QUERY" => u32::MAX,
        _ => return None,
    };
    Some(value)
}

/// The value of an error name in the profile.
pub(super) fn errno(name: &str) -> Option<u16> {
    let value = match name {
        "SUCCESS" => 0,
        "EPERM" => 1,
        "ENOSYS" => 38,
        "EPROTONOSUPPORT" => 93,
        "EAFNOSUPPORT" => 97,
        _ => return None,
    };
    Some(value)
}

/// `AUDIT_ARCH_*` of this processor, as seccomp reports it.
#[cfg(target_arch = "x86_64")]
pub(super) const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
pub(super) const ARCHITECTURE: u32 = 0xC000_00B7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the seccomp profile has been reviewed for x86_64 and aarch64 only");

#[cfg(target_arch = "x86_64")]
use {AARCH64 as FOREIGN, X86_64 as NATIVE};
#[cfg(target_arch = "aarch64")]
use {AARCH64 as NATIVE, X86_64 as FOREIGN};

const SHARED: &[(&str, u32)] = &[
    ("io_uring_setup", 425),
    ("io_uring_enter", 426),
    ("io_uring_register", 427),
    ("open_tree", 428),
    ("move_mount", 429),
    ("fsopen", 430),
    ("fsconfig", 431),
    ("fsmount", 432),
    ("fspick", 433),
    ("clone3", 435),
    ("epoll_pwait2", 441),
    ("mount_setattr", 442),
    ("quotactl_fd", 443),
    ("landlock_create_ruleset", 444),
    ("landlock_add_rule", 445),
    ("landlock_restrict_self", 446),
    ("memfd_secret", 447),
    ("process_mrelease", 448),
    ("futex_waitv", 449),
    ("set_mempolicy_home_node", 450),
    ("cachestat", 451),
    ("fchmodat2", 452),
    ("map_shadow_stack", 453),
    ("futex_wake", 454),
    ("futex_wait", 455),
    ("futex_requeue", 456),
    ("statmount", 457),
    ("listmount", 458),
    ("lsm_get_self_attr", 459),
    ("lsm_set_self_attr", 460),
    ("lsm_list_modules", 461),
    ("mseal", 462),
    ("setxattrat", 463),
    ("getxattrat", 464),
    ("listxattrat", 465),
    ("removexattrat", 466),
];

const X86_64: &[(&str, u32)] = &[
    ("ioctl", 16),
    ("socket", 41),
    ("socketpair", 53),
    ("setsockopt", 54),
    ("clone", 56),
    ("syslog", 103),
    ("uselib", 134),
    ("personality", 135),
    ("ustat", 136),
    ("sysfs", 139),
    ("vhangup", 153),
    ("modify_ldt", 154),
    ("pivot_root", 155),
    ("_sysctl", 156),
    ("adjtimex", 159),
    ("setrlimit", 160),
    ("acct", 163),
    ("settimeofday", 164),
    ("mount", 165),
    ("umount2", 166),
    ("swapon", 167),
    ("swapoff", 168),
    ("reboot", 169),
    ("sethostname", 170),
    ("setdomainname", 171),
    ("iopl", 172),
    ("ioperm", 173),
    ("create_module", 174),
    ("init_module", 175),
    ("delete_module", 176),
    ("get_kernel_syms", 177),
    ("query_module", 178),
    ("quotactl", 179),
    ("nfsservctl", 180),
    ("getpmsg", 181),
    ("putpmsg", 182),
    ("afs_syscall", 183),
    ("tuxcall", 184),
    ("security", 185),
    ("io_setup", 206),
    ("io_destroy", 207),
    ("io_getevents", 208),
    ("io_submit", 209),
    ("io_cancel", 210),
    ("lookup_dcookie", 212),
    ("epoll_ctl_old", 214),
    ("epoll_wait_old", 215),
    ("remap_file_pages", 216),
    ("clock_settime", 227),
    ("vserver", 236),
    ("mbind", 237),
    ("set_mempolicy", 238),
    ("kexec_load", 246),
    ("add_key", 248),
    ("request_key", 249),
    ("keyctl", 250),
    ("migrate_pages", 256),
    ("unshare", 272),
    ("move_pages", 279),
    ("perf_event_open", 298),
    ("fanotify_init", 300),
    ("fanotify_mark", 301),
    ("prlimit64", 302),
    ("open_by_handle_at", 304),
    ("clock_adjtime", 305),
    ("setns", 308),
    ("finit_module", 313),
    ("kexec_file_load", 320),
    ("bpf", 321),
    ("userfaultfd", 323),
    ("io_pgetevents", 333),
];

const AARCH64: &[(&str, u32)] = &[
    ("io_setup", 0),
    ("io_destroy", 1),
    ("io_submit", 2),
    ("io_cancel", 3),
    ("io_getevents", 4),
    ("lookup_dcookie", 18),
    ("ioctl", 29),
    ("umount2", 39),
    ("mount", 40),
    ("pivot_root", 41),
    ("nfsservctl", 42),
    ("vhangup", 58),
    ("quotactl", 60),
    ("acct", 89),
    ("personality", 92),
    ("unshare", 97),
    ("kexec_load", 104),
    ("init_module", 105),
    ("delete_module", 106),
    ("clock_settime", 112),
    ("syslog", 116),
    ("reboot", 142),
    ("sethostname", 161),
    ("setdomainname", 162),
    ("setrlimit", 164),
    ("settimeofday", 170),
    ("adjtimex", 171),
    ("socket", 198),
    ("socketpair", 199),
    ("setsockopt", 208),
    ("add_key", 217),
    ("request_key", 218),
    ("keyctl", 219),
    ("clone", 220),
    ("swapon", 224),
    ("swapoff", 225),
    ("remap_file_pages", 234),
    ("mbind", 235),
    ("set_mempolicy", 237),
    ("migrate_pages", 238),
    ("move_pages", 239),
    ("perf_event_open", 241),
    ("fanotify_init", 262),
    ("prlimit64", 261),
    ("fanotify_mark", 263),
    ("open_by_handle_at", 265),
    ("clock_adjtime", 266),
    ("setns", 268),
    ("finit_module", 273),
    ("bpf", 280),
    ("userfaultfd", 282),
    ("io_pgetevents", 292),
    ("kexec_file_load", 294),
];
