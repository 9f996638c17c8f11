//! What makes and commands sandboxes: execd's interface, its token, its sockets.

use super::{REACHES_INSIDE, READS_THE_HOST, TAKES_PID_1};
use crate::case::{Case, plain};
use crate::protection::Protection::{
    ConnectionLimit, Firewall, MountNamespace, NetworkNamespace, Token, Undumpable,
};
use crate::scenes::{control, hostile_images};

pub(super) const CASES: [Case; 7] = [
    plain(
        "token_hidden",
        "looks for the owner's token in what it sees of processes",
        &[Undumpable, Token],
        TAKES_PID_1,
    )
    .staged(|w| Box::pin(control::token_hidden(w))),
    plain(
        "execd_without_token",
        "commands execd without the owner's token, or with something like it",
        &[Token],
        TAKES_PID_1,
    )
    .staged(|w| Box::pin(control::without_token(w))),
    plain(
        "neighbour_execd",
        "connects to the execd of a neighbour",
        &[Firewall],
        REACHES_INSIDE,
    )
    .staged(|w| Box::pin(control::neighbour_execd(w))),
    plain(
        "control_socket_hidden",
        "looks for the socket by which the server commands it",
        &[NetworkNamespace, MountNamespace],
        "the sandbox learns names of the host's files",
    )
    .staged(|w| Box::pin(control::socket_hidden(w))),
    plain(
        "connection_flood",
        "holds more connections to execd than it serves",
        &[ConnectionLimit],
        "the owner cannot reach the sandbox to stop it",
    )
    .staged(|w| Box::pin(control::connection_flood(w))),
    plain(
        "file_api_traversal",
        "asks execd's file interface for files of the host",
        &[MountNamespace],
        READS_THE_HOST,
    )
    .staged(|w| Box::pin(hostile_images::file_api_traversal(w))),
    plain(
        "file_api_links",
        "has the file interface follow a link that leads out",
        &[MountNamespace],
        READS_THE_HOST,
    )
    .staged(|w| Box::pin(control::file_api_links(w))),
];
