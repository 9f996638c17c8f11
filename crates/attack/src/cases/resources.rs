//! What all share: memory, processes, files, and tables of the kernel.

use super::STARVES_THE_HOST;
use crate::case::{Case, plain};
use crate::protection::Protection::{
    DefaultLimits, DiskLimit, KernelRules, LogLimit, MemoryLimit, NoArp, OpenFilesLimit,
    ProcessLimit, ProcessorLimit, Removal, Seccomp, SharedMemoryLimit, SocketCount,
};
use crate::scenes::{bombs, resources};

pub(super) const CASES: [Case; 24] = [
    plain(
        "fork_bomb",
        "makes processes without end",
        &[ProcessLimit],
        STARVES_THE_HOST,
    )
    .staged(|w| Box::pin(bombs::forks(w))),
    plain(
        "thread_bomb",
        "makes threads without end",
        &[ProcessLimit],
        STARVES_THE_HOST,
    )
    .staged(|w| Box::pin(bombs::threads(w))),
    plain(
        "processor_hog",
        "computes on every processor at once",
        &[ProcessorLimit],
        STARVES_THE_HOST,
    )
    .staged(|w| Box::pin(bombs::processor(w))),
    plain(
        "memory_bomb",
        "takes memory without end",
        &[MemoryLimit],
        STARVES_THE_HOST,
    )
    .staged(|w| Box::pin(bombs::memory(w))),
    plain(
        "nameless_memory",
        "fills files that have no name",
        &[MemoryLimit],
        STARVES_THE_HOST,
    )
    .staged(|w| Box::pin(bombs::nameless_memory(w))),
    plain(
        "shm_bomb",
        "fills /dev/shm",
        &[SharedMemoryLimit],
        STARVES_THE_HOST,
    )
    .staged(|w| Box::pin(bombs::shared_memory(w))),
    plain(
        "inode_bomb",
        "makes files in memory without end",
        &[MemoryLimit, SharedMemoryLimit],
        STARVES_THE_HOST,
    )
    .staged(|w| Box::pin(bombs::inodes(w))),
    plain(
        "disk_bomb",
        "fills the disk, in bytes and in files",
        &[DiskLimit],
        STARVES_THE_HOST,
    )
    .staged(|w| Box::pin(bombs::disk(w))),
    plain(
        "deep_tree",
        "leaves a tree of directories so deep that no path reaches its end",
        &[Removal],
        "the host cannot remove what the sandbox leaves",
    )
    .staged(|w| Box::pin(bombs::deep_tree(w))),
    plain(
        "fd_bomb",
        "opens files without end",
        &[OpenFilesLimit],
        STARVES_THE_HOST,
    )
    .staged(|w| Box::pin(bombs::descriptors(w))),
    plain(
        "log_bomb",
        "writes without end to its log, which is on the host's disk",
        &[LogLimit],
        STARVES_THE_HOST,
    )
    .staged(|w| Box::pin(bombs::log(w))),
    plain(
        "log_seek",
        "makes its log as large as a file can be",
        &[LogLimit],
        STARVES_THE_HOST,
    ),
    plain(
        "netlink_hog",
        "holds memory in netlink sockets, which no limit counts",
        &[SocketCount],
        STARVES_THE_HOST,
    )
    .staged(|w| Box::pin(resources::netlink(w))),
    plain(
        "netlink_takeover",
        "answers its own requests for such sockets in the spawner's place",
        &[KernelRules],
        STARVES_THE_HOST,
    ),
    plain(
        "ping_hog",
        "holds memory in sockets for ping, which no limit counts",
        &[SocketCount],
        STARVES_THE_HOST,
    )
    .staged(|w| Box::pin(resources::ping(w))),
    plain(
        "tcp_memory",
        "holds memory in what waits on connections",
        &[MemoryLimit],
        STARVES_THE_HOST,
    )
    .staged(|w| Box::pin(resources::socket_memory(w, "tcp_memory"))),
    plain(
        "udp_memory",
        "holds memory in datagrams that nobody reads",
        &[MemoryLimit],
        STARVES_THE_HOST,
    )
    .staged(|w| Box::pin(resources::socket_memory(w, "udp_memory"))),
    plain(
        "neighbour_table",
        "fills the host's table of hardware addresses",
        &[NoArp],
        "nobody on the host reaches its own network",
    ),
    plain(
        "socket_filter",
        "fills the kernel's memory for compiled filters",
        &[Seccomp],
        "no sandbox can be made any more, for each has a filter",
    ),
    plain(
        "aio",
        "fills the host's table of asynchronous requests",
        &[Seccomp],
        "databases of the host do not start",
    ),
    plain(
        "page_cache_spy",
        "asks what of a file is in memory",
        &[Seccomp],
        "the sandbox sees which files the host uses",
    ),
    plain(
        "secret_memory",
        "takes memory that cannot be moved or swapped",
        &[Seccomp],
        STARVES_THE_HOST,
    ),
    plain(
        "default_limits",
        "asks for its limits where the request named none",
        &[DefaultLimits],
        STARVES_THE_HOST,
    ),
    plain(
        "default_files",
        "asks for its limit of open files where the request named none",
        &[OpenFilesLimit, DefaultLimits],
        STARVES_THE_HOST,
    )
    .staged(|w| Box::pin(resources::default_files(w))),
];
