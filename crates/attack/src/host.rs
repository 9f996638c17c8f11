//! What the host looks like, before and after: its mounts, links, packet filters, control groups, processes and
//! settings.
//!
//! The machine may be busy with other things. So what the cases can have done is told from the rest: by the ids of
//! their sandboxes, by the name of their links and tables, by their directory. Settings count whoever changed them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::tables::Tables;
use crate::world::{FIRST_ID, IDS, PREFIX};

/// Each thing by name.
type Snapshot = BTreeMap<String, String>;

/// What an escape would go for. Nothing else has a reason to change them meanwhile.
const SETTINGS: [&str; 14] = [
    "/etc/hostname",
    "/etc/hosts",
    "/etc/passwd",
    "/etc/resolv.conf",
    "/etc/shadow",
    "/proc/sys/fs/binfmt_misc/status",
    "/proc/sys/fs/suid_dumpable",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/panic",
    "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/kernel/yama/ptrace_scope",
    "/proc/sys/vm/overcommit_memory",
];

/// Where a sandbox that came out could leave files.
const DIRECTORIES: [&str; 5] = ["/tmp", "/dev/shm", "/var/tmp", "/run", "/etc"];

/// The host as it was, and the way to look at it again from other namespaces.
pub(crate) struct Watch {
    // Both tell of the namespaces that they were opened in.
    mounts: File,
    links: File,
    tables: Option<Tables>,
    /// Held, so that two runs do not take each other's sandboxes for their own: ids and names are the same.
    _turn: File,
    settings: Snapshot,
    of_our_ids: Snapshot,
    rest: Snapshot,
}

impl Watch {
    /// Looks at the host. Call it before leaving its namespaces.
    pub(crate) fn begin() -> io::Result<Self> {
        // A lock on the directory leaves nothing behind.
        let turn = File::open("/run")?;
        rustix::fs::flock(&turn, rustix::fs::FlockOperation::LockExclusive)?;
        let mut watch = Self {
            mounts: File::open("/proc/self/mountinfo")?,
            links: File::open("/proc/self/net/dev")?,
            // A kernel without nftables has no tables to look at.
            tables: Tables::of_this_namespace().ok(),
            _turn: turn,
            settings: settings(),
            of_our_ids: of_our_ids(),
            rest: Snapshot::new(),
        };
        watch.rest = watch.rest();
        Ok(watch)
    }

    /// What is there that the cases made, or changed: nothing, if all ended as it must.
    pub(crate) fn left(&self, directory: &Path) -> Vec<String> {
        let directory = directory.display().to_string();
        let mut found = differences(&self.settings, &settings());
        let made = of_our_ids().into_iter();
        let made = made.filter(|(name, _)| !self.of_our_ids.contains_key(name));
        found.extend(made.map(|(name, value)| format!("new: {name} {}", value.trim())));
        let of_ours = |line: &String| line.contains(PREFIX) || line.contains(&directory);
        found.extend(self.differences().into_iter().filter(of_ours));
        found
    }

    /// What else is different now.
    pub(crate) fn changed_meanwhile(&self) -> Vec<String> {
        let others = |line: &String| !line.contains(PREFIX);
        self.differences().into_iter().filter(others).collect()
    }

    fn differences(&self) -> Vec<String> {
        differences(&self.rest, &self.rest())
    }

    /// Mounts, links and tables of packet filters.
    fn rest(&self) -> Snapshot {
        let mut found = Snapshot::new();
        for line in again(&self.mounts).lines() {
            // The id and the parent of a mount, and numbers of its propagation, mean nothing by themselves.
            let fields: Vec<&str> = line.split(' ').collect();
            let what = fields
                .get(3..6)
                .map(|fields| fields.join(" "))
                .unwrap_or_default();
            found.insert(format!("mount {what}"), String::new());
        }
        for line in again(&self.links).lines().skip(2) {
            let name = line.split(':').next().unwrap_or_default().trim();
            found.insert(format!("link {name}"), String::new());
        }
        for table in self
            .tables
            .iter()
            .flat_map(|tables| tables.list().unwrap_or_default())
        {
            found.insert(format!("table {table}"), String::new());
        }
        found
    }
}

/// Reads a file of /proc again from its start.
fn again(mut file: &File) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
    read.map(|_| text).unwrap_or_default()
}

fn settings() -> Snapshot {
    let read = |path: &&str| fs::read_to_string(path).unwrap_or_default();
    SETTINGS
        .iter()
        .map(|path| ((*path).to_owned(), read(path)))
        .collect()
}

/// Processes and files that have the ids of the cases' sandboxes.
fn of_our_ids() -> Snapshot {
    let mut found = Snapshot::new();
    let owner = |entry: &fs::DirEntry| {
        entry
            .metadata()
            .ok()
            .map(|found| found.uid())
            .filter(is_ours)
    };
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if let Some(owner) = owner(&process) {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            found.insert(
                format!("process {:?} of {owner}", process.file_name()),
                name,
            );
        }
    }
    for directory in DIRECTORIES {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if owner(&entry).is_some() {
                found.insert(format!("file {}", entry.path().display()), String::new());
            }
        }
    }
    found
}

/// Control groups below the one that the cases' backend makes.
pub(crate) fn control_groups(parent: &str) -> Vec<String> {
    let mut found = Vec::new();
    for root in fs::read_dir("/sys/fs/cgroup")
        .into_iter()
        .flatten()
        .flatten()
    {
        for place in [
            root.path().join(parent),
            Path::new("/sys/fs/cgroup").join(parent),
        ] {
            if place.exists() && !found.contains(&place) {
                found.push(place);
            }
        }
    }
    found
        .into_iter()
        .map(|place| format!("control group {}", place.display()))
        .collect()
}

fn is_ours(uid: &u32) -> bool {
    (FIRST_ID..FIRST_ID + IDS).contains(uid)
}

fn differences(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let mut found = Vec::new();
    for (name, value) in after {
        match before.get(name) {
            None => found.push(
                format!("new: {name} {}", value.trim())
                    .trim_end()
                    .to_owned(),
            ),
            // What is in /etc/shadow is nobody's business.
            Some(old) if old != value => found.push(format!("changed: {name}")),
            Some(_) => {}
        }
    }
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    found.extend(gone.map(|name| format!("gone: {name}")));
    found
}
