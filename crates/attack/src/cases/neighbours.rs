//! Other sandboxes, and the host's processes.

use super::{READS_THE_HOST, SEES_NEIGHBOURS, STARVES_THE_HOST};
use crate::case::{Case, plain};
use crate::protection::Protection::{
    IpcNamespace, MountNamespace, NetworkNamespace, OwnInodes, ProcessNamespace, TerminalLimit,
    UserNamespace,
};
use crate::scenes::{neighbours, resources};

pub(super) const CASES: [Case; 12] = [
    plain(
        "host_pid",
        "kills, traces and reads a process of the host by its number",
        &[ProcessNamespace],
        READS_THE_HOST,
    )
    .staged(|w| Box::pin(neighbours::host_pid(w))),
    plain(
        "neighbour_pid",
        "kills, traces and reads a process of a neighbour by its number",
        &[ProcessNamespace],
        SEES_NEIGHBOURS,
    )
    .staged(|w| Box::pin(neighbours::neighbour_pid(w))),
    plain(
        "host_processes",
        "lists processes",
        &[ProcessNamespace],
        SEES_NEIGHBOURS,
    )
    .staged(|w| Box::pin(neighbours::host_processes(w))),
    plain(
        "kill_all",
        "kills everything that it can",
        &[ProcessNamespace],
        SEES_NEIGHBOURS,
    )
    .staged(|w| Box::pin(neighbours::kill_all(w))),
    plain(
        "abstract_of_the_host",
        "connects to a socket of the host that has a name but no file",
        &[NetworkNamespace],
        READS_THE_HOST,
    )
    .staged(|w| Box::pin(neighbours::abstract_host(w))),
    plain(
        "abstract_of_a_neighbour",
        "connects to such a socket of a neighbour",
        &[NetworkNamespace],
        SEES_NEIGHBOURS,
    )
    .staged(|w| Box::pin(neighbours::abstract_neighbour(w))),
    plain(
        "shared_segment",
        "attaches to memory that the host shares by a key",
        &[IpcNamespace],
        READS_THE_HOST,
    )
    .staged(|w| Box::pin(neighbours::shared_segment(w))),
    plain(
        "watch_dev",
        "watches what others do with devices",
        &[MountNamespace],
        SEES_NEIGHBOURS,
    )
    .staged(|w| Box::pin(neighbours::watch_dev(w))),
    plain(
        "watch_programs",
        "watches which programs the host and neighbours run",
        &[OwnInodes],
        SEES_NEIGHBOURS,
    )
    .staged(|w| Box::pin(resources::watch_programs(w))),
    plain(
        "lock_programs",
        "locks programs that others have, too",
        &[OwnInodes],
        SEES_NEIGHBOURS,
    )
    .staged(|w| Box::pin(resources::lock_programs(w))),
    plain(
        "hog_inotify",
        "takes every watch of files that the kernel gives",
        &[UserNamespace],
        STARVES_THE_HOST,
    )
    .staged(|w| Box::pin(neighbours::hog_inotify(w))),
    plain(
        "hog_ptys",
        "takes every terminal that the kernel gives",
        &[TerminalLimit],
        STARVES_THE_HOST,
    )
    .staged(|w| Box::pin(neighbours::hog_ptys(w))),
];
