//! Which hierarchies this machine has mounted, and where.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::Error;

/// The controllers that are used. On v1 `cpuset` and others are left alone: a process need not
/// be moved in a hierarchy to be limited by others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Controller {
    Cpu,
    Cpuacct,
    Memory,
    Pids,
    Freezer,
    Devices,
}

impl Controller {
    const ALL: [Self; 6] = [
        Self::Cpu,
        Self::Cpuacct,
        Self::Memory,
        Self::Pids,
        Self::Freezer,
        Self::Devices,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cpuacct => "cpuacct",
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Freezer => "freezer",
            Self::Devices => "devices",
        }
    }
}

/// Where groups go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Layout {
    /// One hierarchy; the controllers it offers.
    V2 {
        mount: PathBuf,
        controllers: Vec<Controller>,
    },
    /// A hierarchy per mount; each controller's mount. Several may share one.
    V1 { mounts: Vec<(Controller, PathBuf)> },
}

impl Layout {
    /// What is mounted on this machine.
    pub(super) fn detect() -> Result<Self, Error> {
        let text = fs::read_to_string("/proc/self/mountinfo")
            .map_err(|e| Error::kernel("reading /proc/self/mountinfo", e))?;
        Self::from_mountinfo(&text, |mount| {
            fs::read_to_string(mount.join("cgroup.controllers"))
        })
    }

    /// v2 when it offers any limit, else v1: on a mixed machine a controller belongs to one of
    /// the two, and the v2 hierarchy without controllers is somebody's process tracking, which
    /// is left alone.
    fn from_mountinfo(
        text: &str,
        read_controllers: impl Fn(&Path) -> io::Result<String>,
    ) -> Result<Self, Error> {
        let mounts: Vec<Mount<'_>> = text.lines().filter_map(Mount::parse).collect();
        for mount in mounts.iter().filter(|mount| mount.kind == "cgroup2") {
            let offered = read_controllers(&mount.point).unwrap_or_default();
            let words: Vec<&str> = offered.split_whitespace().collect();
            let controllers: Vec<Controller> = Controller::ALL
                .into_iter()
                .filter(|c| words.contains(&c.name()))
                .collect();
            if !controllers.is_empty() {
                return Ok(Self::V2 {
                    mount: mount.point.clone(),
                    controllers,
                });
            }
        }
        let mut found = Vec::new();
        for controller in Controller::ALL {
            let mount = mounts
                .iter()
                .filter(|mount| mount.kind == "cgroup")
                .find(|mount| {
                    mount
                        .options
                        .split(',')
                        .any(|word| word == controller.name())
                });
            found.extend(mount.map(|mount| (controller, mount.point.clone())));
        }
        if found.is_empty() {
            return Err(Error::NotMounted);
        }
        Ok(Self::V1 { mounts: found })
    }

    pub(super) fn has(&self, controller: Controller) -> bool {
        match self {
            Self::V2 { controllers, .. } => controllers.contains(&controller),
            Self::V1 { mounts } => mounts.iter().any(|(c, _)| *c == controller),
        }
    }

    /// The distinct mounts, each once.
    pub(super) fn roots(&self) -> Vec<&Path> {
        match self {
            Self::V2 { mount, .. } => vec![mount],
            Self::V1 { mounts } => {
                let mut roots: Vec<&Path> = mounts.iter().map(|(_, path)| path.as_path()).collect();
                roots.sort_unstable();
                roots.dedup();
                roots
            }
        }
    }

    /// The mount that has a controller's files.
    pub(super) fn root(&self, controller: Controller) -> Option<&Path> {
        match self {
            Self::V2 { mount, controllers } => {
                // Freezing, and the sum of processor time, belong to no controller in v2.
                let is_built_in = matches!(controller, Controller::Freezer | Controller::Cpuacct);
                (is_built_in || controllers.contains(&controller)).then_some(mount.as_path())
            }
            Self::V1 { mounts } => mounts
                .iter()
                .find(|(c, _)| *c == controller)
                .map(|(_, path)| path.as_path()),
        }
    }
}

struct Mount<'a> {
    point: PathBuf,
    kind: &'a str,
    /// Of the superblock, where v1 names its controllers.
    options: &'a str,
}

impl<'a> Mount<'a> {
    /// A line of mountinfo, see proc_pid_mountinfo(5).
    fn parse(line: &'a str) -> Option<Self> {
        let (front, back) = line.split_once(" - ")?;
        let point = front.split(' ').nth(4)?;
        let mut back = back.split(' ');
        let (kind, _source, options) = (back.next()?, back.next()?, back.next()?);
        Some(Self {
            point: PathBuf::from(point),
            kind,
            options,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIXED: &str = "\
30 1 0:25 / /sys/fs/cgroup rw,nosuid - tmpfs tmpfs rw,mode=755
31 30 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
32 30 0:27 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
33 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
34 30 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
";

    #[test]
    fn an_empty_v2_hierarchy_is_left_alone() {
        let layout = Layout::from_mountinfo(MIXED, |_| Ok(String::new())).unwrap();
        let Layout::V1 { .. } = &layout else {
            panic!("{layout:?}")
        };
        assert!(layout.has(Controller::Memory) && !layout.has(Controller::Pids));
        assert_eq!(
            layout.roots(),
            [
                Path::new("/sys/fs/cgroup/cpu,cpuacct"),
                Path::new("/sys/fs/cgroup/memory")
            ]
        );
    }

    #[test]
    fn v2_with_controllers_is_preferred() {
        let layout =
            Layout::from_mountinfo(MIXED, |_| Ok("cpuset cpu io memory pids\n".into())).unwrap();
        let mount = PathBuf::from("/sys/fs/cgroup/unified");
        let controllers = vec![Controller::Cpu, Controller::Memory, Controller::Pids];
        assert_eq!(layout, Layout::V2 { mount, controllers });
    }

    #[test]
    fn nothing_mounted_is_an_error_that_says_what_to_do() {
        let error = Layout::from_mountinfo("", |_| Ok(String::new())).unwrap_err();
        assert!(error.to_string().contains("mount -t cgroup2"), "{error}");
    }
}
