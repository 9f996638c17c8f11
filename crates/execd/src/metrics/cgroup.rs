//! The cgroup this process is in: where its files are, and what they say. Versions 2 and 1, and
//! machines that run both.
//!
//! A sandbox often sees its own cgroup as the root of the mount, or a mount that shows the whole
//! tree, or nothing. The paths in /proc/self/cgroup are therefore tried below each mount's root and,
//! failing that, at the mount itself.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// Version 1 writes "no limit" as the largest page-aligned number; anything of that size is none.
const UNLIMITED: u64 = 1 << 60;

pub(super) struct Cgroup {
    cpu: Option<Place>,
    memory: Option<Place>,
}

/// The directory of one controller, and the mount above which nothing is visible.
#[derive(Debug, PartialEq, Eq, Clone)]
struct Place {
    version: Version,
    directory: PathBuf,
    mount: PathBuf,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Version {
    One,
    Two,
}

#[derive(Default, Debug, PartialEq)]
pub(super) struct Limits {
    pub(super) cpus: Option<f64>,
    pub(super) memory: Option<u64>,
}

impl Cgroup {
    /// The cgroup of this process, if it can be seen.
    pub(super) fn own() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        Self::find(&mounts, &groups)
    }

    fn find(mounts: &str, groups: &str) -> Option<Self> {
        // CPU usage is in cpuacct in version 1, which is always mounted together with cpu.
        let cpu = place(mounts, groups, "cpuacct", &["cpuacct.usage", "cpu.stat"]);
        let memory = place(
            mounts,
            groups,
            "memory",
            &["memory.usage_in_bytes", "memory.current"],
        );
        (cpu.is_some() || memory.is_some()).then_some(Self { cpu, memory })
    }

    /// CPU time used by everything in the cgroup.
    pub(super) fn cpu_used(&self) -> Option<Duration> {
        let place = self.cpu.as_ref()?;
        match place.version {
            Version::One => {
                number(&place.directory.join("cpuacct.usage")).map(Duration::from_nanos)
            }
            Version::Two => {
                field(&place.directory.join("cpu.stat"), "usage_usec").map(Duration::from_micros)
            }
        }
    }

    /// Memory in use, without the file cache that has not been touched lately.
    pub(super) fn memory_used(&self) -> Option<u64> {
        let place = self.memory.as_ref()?;
        let (usage, cache) = match place.version {
            Version::One => ("memory.usage_in_bytes", "total_inactive_file"),
            Version::Two => ("memory.current", "inactive_file"),
        };
        let usage = number(&place.directory.join(usage))?;
        let cache = field(&place.directory.join("memory.stat"), cache).unwrap_or(0);
        Some(usage.saturating_sub(cache))
    }

    pub(super) fn limits(&self) -> Limits {
        let cpus = self
            .cpu
            .iter()
            .flat_map(Place::upwards)
            .filter_map(|(version, path)| cpu_limit(version, &path));
        let memory = self
            .memory
            .iter()
            .flat_map(Place::upwards)
            .filter_map(|(version, path)| memory_limit(version, &path));
        Limits {
            cpus: cpus.reduce(f64::min),
            memory: memory.min(),
        }
    }
}

impl Place {
    /// The directory and every one above it that the mount shows: any of them may set a limit.
    fn upwards(&self) -> impl Iterator<Item = (Version, PathBuf)> + '_ {
        self.directory
            .ancestors()
            .take_while(|path| path.starts_with(&self.mount))
            .map(|path| (self.version, path.to_path_buf()))
    }
}

fn cpu_limit(version: Version, directory: &Path) -> Option<f64> {
    let (quota, period) = match version {
        Version::Two => {
            let text = fs::read_to_string(directory.join("cpu.max")).ok()?;
            let mut fields = text.split_whitespace();
            (
                fields.next()?.parse::<u64>().ok()?,
                fields.next()?.parse::<u64>().ok()?,
            )
        }
        // -1 is no limit and no u64.
        Version::One => (
            number(&directory.join("cpu.cfs_quota_us"))?,
            number(&directory.join("cpu.cfs_period_us"))?,
        ),
    };
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

fn memory_limit(version: Version, directory: &Path) -> Option<u64> {
    let file = match version {
        Version::One => "memory.limit_in_bytes",
        Version::Two => "memory.max",
    };
    number(&directory.join(file)).filter(|limit| *limit < UNLIMITED)
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn field(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        .map(str::trim);
    value?.parse().ok()
}

/// Where a controller's files of this process are. `probes` are the files that prove it, of version
/// 1 and of version 2.
fn place(mounts: &str, groups: &str, controller: &str, probes: &[&str; 2]) -> Option<Place> {
    // The unified hierarchy has the number 0 and names no controllers. Where both exist, the
    // controllers live in one of the two, and the probe tells which.
    for (version, probe) in [(Version::One, probes[0]), (Version::Two, probes[1])] {
        let Some(group) = own_group(groups, version, controller) else {
            continue;
        };
        for (root, mount) in hierarchies(mounts, version, controller) {
            let below = Path::new(&group)
                .strip_prefix(&root)
                .ok()
                .map(|below| mount.join(below));
            let found = below
                .into_iter()
                .chain([mount.clone()])
                .find(|directory| directory.join(probe).exists());
            if let Some(directory) = found {
                return Some(Place {
                    version,
                    directory,
                    mount,
                });
            }
        }
    }
    None
}

/// The path of this process's cgroup in one hierarchy, from /proc/self/cgroup.
fn own_group(groups: &str, version: Version, controller: &str) -> Option<String> {
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let hit = match version {
            Version::Two => number == "0" && controllers.is_empty(),
            Version::One => controllers.split(',').any(|name| name == controller),
        };
        hit.then(|| path.to_string())
    })
}

/// The mounts of one hierarchy: the cgroup each shows as its root, and where it is.
fn hierarchies(mounts: &str, version: Version, controller: &str) -> Vec<(String, PathBuf)> {
    let parsed = mounts.lines().filter_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (mount.next()?, mount.next()?);
        let mut filesystem = filesystem.split(' ');
        let (kind, options) = (filesystem.next()?, filesystem.nth(1)?);
        let hit = match version {
            Version::Two => kind == "cgroup2",
            Version::One => kind == "cgroup" && options.split(',').any(|name| name == controller),
        };
        hit.then(|| (root.to_string(), PathBuf::from(point)))
    });
    parsed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with `files`, and mounts that show it.
    struct Fixture {
        dir: tempfile::TempDir,
    }

    impl Fixture {
        fn new(files: &[(&str, &str)]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            for (path, content) in files {
                let path = dir.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            }
            Self { dir }
        }

        /// `mounts` with @ for the directory.
        fn find(&self, mounts: &str, groups: &str) -> Option<Cgroup> {
            Cgroup::find(
                &mounts.replace('@', self.dir.path().to_str().unwrap()),
                groups,
            )
        }
    }

    const V2_FILES: &[(&str, &str)] = &[
        ("box/cpu.stat", "usage_usec 1500000\nuser_usec 1\n"),
        ("box/cpu.max", "max 100000\n"),
        ("cpu.max", "50000 100000\n"),
        ("box/memory.current", "1000\n"),
        (
            "box/memory.stat",
            "anon 5\ninactive_file 300\nactive_file 1\n",
        ),
        ("box/memory.max", "max\n"),
        ("memory.max", "4096\n"),
    ];

    #[test]
    fn version_two_with_limits_from_above() {
        let fixture = Fixture::new(V2_FILES);
        let cgroup = fixture
            .find("30 23 0:26 / @ rw - cgroup2 cgroup rw\n", "0::/box\n")
            .unwrap();
        assert_eq!(cgroup.cpu_used(), Some(Duration::from_millis(1500)));
        assert_eq!(cgroup.memory_used(), Some(700));
        assert_eq!(
            cgroup.limits(),
            Limits {
                cpus: Some(0.5),
                memory: Some(4096)
            }
        );
    }

    #[test]
    fn version_two_in_a_namespace_of_its_own() {
        // The mount's root and the group are both named "/": the files are at the mount.
        let fixture = Fixture::new(&[("cpu.stat", "usage_usec 7\n"), ("memory.current", "9\n")]);
        let cgroup = fixture
            .find("30 23 0:26 / @ ro shared:9 - cgroup2 cgroup rw\n", "0::/\n")
            .unwrap();
        assert_eq!(cgroup.cpu_used(), Some(Duration::from_micros(7)));
        assert_eq!(cgroup.memory_used(), Some(9));
        assert_eq!(cgroup.limits(), Limits::default());
    }

    #[test]
    fn a_bind_mount_that_shows_only_the_own_group() {
        let fixture = Fixture::new(&[("cpu.stat", "usage_usec 7\n"), ("memory.current", "9\n")]);
        let cgroup = fixture
            .find(
                "30 23 0:26 /docker/abc @ ro - cgroup2 cgroup rw\n",
                "0::/docker/abc\n",
            )
            .unwrap();
        assert_eq!(cgroup.memory_used(), Some(9));
        // A path from outside the namespace still finds the mount itself.
        let cgroup = fixture
            .find(
                "30 23 0:26 /../../x @ ro - cgroup2 cgroup rw\n",
                "0::/other\n",
            )
            .unwrap();
        assert_eq!(cgroup.memory_used(), Some(9));
    }

    #[test]
    fn version_one_beside_an_empty_version_two() {
        let fixture = Fixture::new(&[
            ("unified/box/cgroup.procs", ""),
            ("cpu/box/cpuacct.usage", "2000000000\n"),
            ("cpu/box/cpu.cfs_quota_us", "-1\n"),
            ("cpu/box/cpu.cfs_period_us", "100000\n"),
            ("cpu/cpu.cfs_quota_us", "150000\n"),
            ("cpu/cpu.cfs_period_us", "100000\n"),
            ("memory/box/memory.usage_in_bytes", "1000\n"),
            (
                "memory/box/memory.stat",
                "inactive_file 1\ntotal_inactive_file 400\n",
            ),
            ("memory/box/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/memory.limit_in_bytes", "2000\n"),
        ]);
        let mounts = "31 23 0:27 / @/unified rw - cgroup2 cgroup2 rw\n\
                      32 23 0:28 / @/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                      33 23 0:29 / @/memory rw - cgroup cgroup rw,memory\n";
        let cgroup = fixture
            .find(mounts, "3:cpu,cpuacct:/box\n2:memory:/box\n0::/box\n")
            .unwrap();
        assert_eq!(cgroup.cpu_used(), Some(Duration::from_secs(2)));
        assert_eq!(cgroup.memory_used(), Some(600));
        assert_eq!(
            cgroup.limits(),
            Limits {
                cpus: Some(1.5),
                memory: Some(2000)
            }
        );
    }

    #[test]
    fn nothing_visible_is_no_cgroup() {
        let fixture = Fixture::new(&[("other", "")]);
        assert!(fixture.find("", "0::/\n").is_none());
        assert!(
            fixture
                .find("30 23 0:26 / @ rw - cgroup2 cgroup rw\n", "0::/\n")
                .is_none()
        );
        assert!(
            fixture
                .find("30 23 0:26 / @ rw - tmpfs tmpfs rw\n", "")
                .is_none()
        );
    }
}
