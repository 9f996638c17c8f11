//! Images and archives made to be unpacked, and what an image may say of how it is run.

use super::{CHANGES_THE_HOST, TAKES_THE_HOST};
use crate::case::{Case, plain};
use crate::protection::Protection::{MountNamespace, ResolvedPaths, Unpacker, UserNamespace};
use crate::scenes::archives;

pub(super) const CASES: [Case; 8] = [
    plain(
        "archive_climbs",
        "has an archive with names that climb out of it",
        &[Unpacker],
        CHANGES_THE_HOST,
    )
    .staged(|w| Box::pin(archives::climbs(w))),
    plain(
        "archive_absolute",
        "has an archive with names from the root on",
        &[Unpacker],
        CHANGES_THE_HOST,
    )
    .staged(|w| Box::pin(archives::absolute(w))),
    plain(
        "archive_through_link",
        "has an archive with a link out, and a file to be written through it",
        &[Unpacker],
        CHANGES_THE_HOST,
    )
    .staged(|w| Box::pin(archives::through_link(w))),
    plain(
        "archive_hard_link",
        "has an archive with a hard link to a file of the host",
        &[Unpacker],
        CHANGES_THE_HOST,
    )
    .staged(|w| Box::pin(archives::hard_link(w))),
    plain(
        "archive_device",
        "has an archive with the device of the machine's memory",
        &[Unpacker, UserNamespace],
        TAKES_THE_HOST,
    )
    .staged(|w| Box::pin(archives::device(w))),
    plain(
        "archive_swapped",
        "has an archive that makes a directory, then a link in its place, then files in it",
        &[Unpacker],
        CHANGES_THE_HOST,
    )
    .staged(|w| Box::pin(archives::swapped(w))),
    plain(
        "archive_huge",
        "has an archive that says it is larger than any disk",
        &[Unpacker],
        "an image fills the host's disk",
    )
    .staged(|w| Box::pin(archives::huge(w))),
    plain(
        "image_workdir",
        "has an image whose working directory is a descriptor, as in CVE-2024-21626",
        &[ResolvedPaths, MountNamespace],
        TAKES_THE_HOST,
    )
    .staged(|w| Box::pin(archives::workdir(w))),
];
