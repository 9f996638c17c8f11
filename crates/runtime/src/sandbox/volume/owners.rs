//! Whose files a sandbox's are in a directory of the host.
//!
//! A set-user-id program or a file capability that a sandbox makes in a host path can be executed
//! by anybody on the host who reaches the directory. So root in the sandbox is not root there: it
//! is the directory's owner, and every other user of the sandbox is an id that no account has.
//! Everybody else's files are there as anybody else's.
//! The kernel writes the owner into a file capability as its `rootid` (capabilities(7)), which
//! makes it count in user namespaces of that owner only.

use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::fs::Stat;

use crate::config::HostPathRoot;
use crate::net;

/// Who root in the sandbox is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owners {
    pub(super) user: u32,
    pub(super) group: u32,
}

impl Owners {
    /// For a directory that looks like `found`; `None` where root is to be the host's root.
    pub(super) fn of(found: &Stat, root: HostPathRoot, spare: &Range<u32>) -> Option<Self> {
        let instead_of_root = match root {
            HostPathRoot::Root => return None,
            HostPathRoot::Owner => spare.start,
            HostPathRoot::OwnerOr(id) => id,
        };
        let not_root = |id: u32| if id == 0 { instead_of_root } else { id };
        Some(Self {
            user: not_root(found.st_uid),
            group: not_root(found.st_gid),
        })
    }

    /// Whether root in the sandbox may write to what looks like `found`.
    pub(super) fn may_write(self, found: &Stat) -> bool {
        const GROUP: u32 = 0o020;
        const OTHERS: u32 = 0o002;
        found.st_uid == self.user
            || (found.st_gid == self.group && found.st_mode & GROUP != 0)
            || found.st_mode & OTHERS != 0
    }

    /// A user namespace that maps the ids on disk to those of the sandbox whose root is
    /// `first_id`.
    pub(super) fn mapping(self, first_id: u32, spare: &Range<u32>) -> Result<OwnedFd, net::Error> {
        let users = id_map(self.user, first_id, spare);
        net::make_mapping(first_id, &users, &id_map(self.group, first_id, spare))
    }
}

/// The text of an id map: lines of ids on disk, ids of the host's kernel, and how many.
///
/// Every other id on disk stands for itself. No process of the sandbox can be one of those, and its
/// capabilities do not reach their files. Without a place in the map they would have no owner at
/// all, and the kernel refuses every write to such files, what everybody may write to included.
fn id_map(root: u32, first_id: u32, spare: &Range<u32>) -> String {
    /// All bits set is no id.
    const END: u32 = u32::MAX;
    let count = spare.end - spare.start;
    let sandbox = first_id..first_id + count;
    let (mut lines, mut taken) = if spare.contains(&root) {
        // Made by a user of a sandbox, who is the same in this one.
        let lines = vec![(spare.start, first_id, count)];
        (lines, vec![spare.clone(), sandbox])
    } else {
        let others = (spare.start + 1, first_id + 1, count - 1);
        let lines = vec![(root, first_id, 1), others];
        (
            lines,
            vec![root..root + 1, spare.start + 1..spare.end, sandbox],
        )
    };
    taken.sort_unstable_by_key(|range| range.start);
    let mut next = 0;
    for range in taken.into_iter().chain(std::iter::once(END..END)) {
        if range.start > next {
            lines.push((next, next, range.start - next));
        }
        next = next.max(range.end);
    }
    let line = |(disk, kernel, count): &(u32, u32, u32)| format!("{disk} {kernel} {count}\n");
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPARE: Range<u32> = 1_000_000..1_065_536;

    fn stat(uid: u32, gid: u32, mode: u32) -> Stat {
        let directory = tempfile::tempdir().unwrap();
        let mut found = rustix::fs::stat(directory.path()).unwrap();
        (found.st_uid, found.st_gid, found.st_mode) = (uid, gid, mode);
        found
    }

    #[test]
    fn root_is_the_owner_unless_that_is_root() {
        let of = |uid, gid, root| {
            Owners::of(&stat(uid, gid, 0o755), root, &SPARE).map(|it| (it.user, it.group))
        };
        assert_eq!(of(1000, 1001, HostPathRoot::Owner), Some((1000, 1001)));
        assert_eq!(of(0, 1001, HostPathRoot::Owner), Some((SPARE.start, 1001)));
        assert_eq!(of(1000, 0, HostPathRoot::OwnerOr(70)), Some((1000, 70)));
        assert_eq!(of(1000, 1000, HostPathRoot::Root), None);
    }

    #[test]
    fn only_the_owner_and_the_spare_ids_are_the_sandboxs() {
        const FIRST: u32 = 5_000_000;
        assert_eq!(
            id_map(1000, FIRST, &SPARE),
            "1000 5000000 1\n1000001 5000001 65535\n0 0 1000\n1001 1001 999000\n\
             1065536 1065536 3934464\n5065536 5065536 4289901759\n"
        );
        assert_eq!(
            id_map(1_000_007, FIRST, &SPARE),
            "1000000 5000000 65536\n0 0 1000000\n1065536 1065536 3934464\n\
             5065536 5065536 4289901759\n"
        );
    }

    #[test]
    fn writing_needs_the_owners_the_groups_or_everybodys_leave() {
        let root = Owners {
            user: 1000,
            group: 1001,
        };
        for (uid, gid, mode, expected) in [
            (1000, 0, 0o700, true),
            (0, 1001, 0o775, true),
            (0, 1001, 0o755, false),
            (0, 0, 0o755, false),
            (0, 0, 0o777, true),
        ] {
            assert_eq!(root.may_write(&stat(uid, gid, mode)), expected, "{mode:o}");
        }
    }
}
