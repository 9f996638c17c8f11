//! What keeps an attack from succeeding, and which of it a test build can take away.
//!
//! A case names every protection that would stop it by itself. A build with the feature `unprotected`, which no
//! release has, takes away those that have a switch, so that a test can show that a case gets through without
//! them. The others are how a sandbox is made: without them there would be none to attack.

use serde::Serialize;

/// What keeps an attack from succeeding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protection {
    /// A filter of system calls that PID 1 installs last.
    Seccomp,
    /// Capabilities that root in a sandbox does not have.
    Capabilities,
    /// A process can only lose privileges.
    NoNewPrivileges,
    /// Only what lies below the sandbox's root can be opened.
    Landlock,
    /// Parts of /proc that tell of the machine are covered.
    ProcMasks,
    /// /proc/sys is read-only.
    SysctlReadOnly,
    /// /sys has the few parts that programs need.
    SysParts,
    /// /dev is read-only.
    DevReadOnly,
    /// A bound on terminals.
    TerminalLimit,
    /// A bound on /dev/shm.
    SharedMemoryLimit,
    /// The control group's limit of memory, which counts the buffers of sockets, too.
    MemoryLimit,
    /// The control group's limit of processes and threads.
    ProcessLimit,
    /// The control group's limit of processor time.
    ProcessorLimit,
    /// The limit of open files.
    OpenFilesLimit,
    /// A core limit of one byte, which keeps the host's crash handler from running.
    CoreLimit,
    /// Sockets whose memory nobody is charged for are counted.
    SocketCount,
    /// A score by which the kernel kills sandboxes before the host's processes.
    OomScore,
    /// A filesystem of its own, of bounded size, for a sandbox with a disk limit.
    DiskLimit,
    /// The rules of packets on the host's side.
    Firewall,
    /// Links on which no neighbour is ever asked for.
    NoArp,
    /// Inodes of the host's programs are the sandbox's own.
    OwnInodes,
    /// Places that no sandbox sees of the host's programs are covered.
    HostMasks,
    /// A volume that was asked for read-only.
    VolumeReadOnly,
    /// Devices in volumes are files like any other.
    VolumeNoDevices,
    /// What a sandbox leaves in a directory of the host belongs to its owner or to nobody.
    VolumeOwners,
    /// A sub-path of a volume goes through no link.
    VolumePaths,
    /// The gate through which everything passes that a policy governs.
    EgressGate,
    /// Limits that hold where a request names none.
    DefaultLimits,
    /// A user namespace: root of the sandbox is nobody to the host.
    UserNamespace,
    /// A mount namespace that belongs to the host and holds nothing of it.
    MountNamespace,
    /// A process namespace.
    ProcessNamespace,
    /// A namespace of System V objects.
    IpcNamespace,
    /// A network namespace.
    NetworkNamespace,
    /// A view of control groups that ends at the sandbox's own.
    CgroupNamespace,
    /// The writable layer is the sandbox's own.
    OwnLayer,
    /// Paths of images and volumes are resolved below the sandbox's root and used as descriptors.
    ResolvedPaths,
    /// Unpacking writes below the layer's directory only, and follows no link.
    Unpacker,
    /// PID 1 can be neither traced nor looked into.
    Undumpable,
    /// Descriptors that PID 1 keeps are closed for what it starts.
    ClosedDescriptors,
    /// The kernel lets nobody walk up out of what was mounted.
    KernelPaths,
    /// What the kernel forbids everybody, or everybody unless the host's settings say otherwise.
    KernelRules,
    /// The token that every command to execd needs.
    Token,
    /// The log of a sandbox is a pipe that execd reads, of which it keeps so much.
    LogLimit,
    /// execd's bound on connections, beside the owner's own way in.
    ConnectionLimit,
    /// A sandbox's files are removed by descriptors, however deep they are.
    Removal,
}

impl Protection {
    /// Its name in reports, and for the build that can take it away.
    pub fn name(self) -> String {
        serde_json::to_value(self)
            .ok()
            .and_then(|name| name.as_str().map(str::to_owned))
            .unwrap_or_default()
    }

    /// Whether a test build can take it away. The others are how a sandbox is made, are the kernel's, or are
    /// in execd.
    pub fn has_switch(self) -> bool {
        use Protection::{
            Capabilities, CoreLimit, DefaultLimits, DevReadOnly, Firewall, HostMasks, Landlock,
            MemoryLimit, NoArp, NoNewPrivileges, OomScore, OpenFilesLimit, OwnInodes, ProcMasks,
            ProcessLimit, ProcessorLimit, Seccomp, SharedMemoryLimit, SocketCount, SysParts,
            SysctlReadOnly, TerminalLimit, VolumeNoDevices, VolumeOwners, VolumePaths,
            VolumeReadOnly,
        };
        matches!(
            self,
            Seccomp
                | Capabilities
                | NoNewPrivileges
                | Landlock
                | ProcMasks
                | SysctlReadOnly
                | SysParts
                | DevReadOnly
                | TerminalLimit
                | SharedMemoryLimit
                | MemoryLimit
                | ProcessLimit
                | ProcessorLimit
                | OpenFilesLimit
                | CoreLimit
                | SocketCount
                | OomScore
                | Firewall
                | NoArp
                | OwnInodes
                | HostMasks
                | VolumeReadOnly
                | VolumeNoDevices
                | VolumeOwners
                | VolumePaths
                | DefaultLimits
        )
    }
}
