//! What the host looks like, before and after.
//!
//! The machine may be busy with other things, so only what nobody else touches is compared:
//! mounts of this suite's own mount namespace, processes and files that have its ids, and
//! settings and files of the host that an escape would go for.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::world::FIRST_ID;

/// Each thing by name.
pub(crate) type Snapshot = BTreeMap<String, String>;

const FILES: [&str; 9] = [
    "/etc/hostname",
    "/etc/hosts",
    "/etc/passwd",
    "/etc/resolv.conf",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/panic",
    "/proc/sys/vm/overcommit_memory",
];

pub(crate) fn of_the_host() -> Snapshot {
    let mut found = Snapshot::new();
    for path in FILES {
        found.insert(
            path.to_owned(),
            fs::read_to_string(path).unwrap_or_default(),
        );
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for line in mounts.lines() {
        found.insert(format!("mount {line}"), String::new());
    }
    for pid in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if let Some(owner) = fs::metadata(pid.path())
            .ok()
            .map(|m| m.uid())
            .filter(is_ours)
        {
            let name = fs::read_to_string(pid.path().join("comm")).unwrap_or_default();
            found.insert(format!("process {:?} of {owner}", pid.file_name()), name);
        }
    }
    for dir in ["/tmp", "/dev/shm", "/var/tmp", "/run"] {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.metadata().is_ok_and(|found| is_ours(&found.uid())) {
                found.insert(format!("file {}", entry.path().display()), String::new());
            }
        }
    }
    for root in fs::read_dir("/sys/fs/cgroup")
        .into_iter()
        .flatten()
        .flatten()
    {
        for group in fs::read_dir(root.path()).into_iter().flatten().flatten() {
            let name = group.file_name().to_string_lossy().into_owned();
            if OUR_CGROUP.get().is_some_and(|ours| *ours == name) {
                found.insert(format!("cgroup {}", group.path().display()), String::new());
            }
        }
    }
    found
}

/// The name of this suite's cgroups, once known.
pub(crate) static OUR_CGROUP: std::sync::OnceLock<String> = std::sync::OnceLock::new();

fn is_ours(uid: &u32) -> bool {
    (FIRST_ID..FIRST_ID + (512 << 16)).contains(uid)
}

/// What differs now.
pub(crate) fn changes(before: &Snapshot) -> Vec<String> {
    let after = of_the_host();
    let mut found = Vec::new();
    for (name, value) in &after {
        match before.get(name) {
            None => found.push(format!("new: {name} {}", value.trim())),
            Some(old) if old != value => found.push(format!("{name}: was {old:?}, is {value:?}")),
            Some(_) => {}
        }
    }
    found.extend(
        before
            .keys()
            .filter(|name| !after.contains_key(*name))
            .map(|n| format!("gone: {n}")),
    );
    found
}
