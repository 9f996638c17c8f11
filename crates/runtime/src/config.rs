//! How the embedded backend is set up.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use api::egress::policy::Target;
use lifecycle::backend::Limits;

use crate::{cgroup, image, net};

/// How the embedded backend is set up. [`Config::new`] gives the defaults for a data directory.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where images, writable layers, named volumes and records live. One server at a time.
    pub data_dir: PathBuf,
    /// The program that becomes PID 1 of every sandbox: a static executable.
    pub execd: PathBuf,
    /// The program that is the spawner, and its arguments.
    pub spawner: (PathBuf, Vec<OsString>),
    /// The program that is the egress gate, and its arguments.
    pub gate: (PathBuf, Vec<OsString>),
    /// What an operator says about what sandboxes reach; set by [`Config::with_egress`].
    pub egress: Egress,
    /// The port execd also listens on inside the sandbox's own network; 0 is none.
    pub execd_port: u16,
    /// Registries, mirrors and what a pull may cost.
    pub images: image::Config,
    /// Addresses, id ranges and how many slots are kept ready.
    pub network: net::Config,
    /// What a sandbox may use where its request says nothing.
    pub default_limits: Limits,
    /// Cgroup directories kept ready.
    pub ready_cgroups: usize,
    /// Sandboxes that the machine is to hold at once; the doctor examines its settings by it.
    pub planned_sandboxes: u32,
    /// Who root in a sandbox is in directories of the host.
    pub host_path_root: HostPathRoot,
}

/// What a sandbox has that asks for nothing, so that none can take the machine from the others.
pub const DEFAULT_LIMITS: Limits = Limits {
    // What published clients ask for by themselves.
    cpu_millis: Some(1_000),
    memory_bytes: Some(2 << 30),
    // A runaway loop of forks meets a limit before it meets the machine's; builds with hundreds of
    // threads still fit.
    pids: Some(4_096),
    // Databases ask for this many; the machine has one number for all (fs.file-max).
    open_files: Some(65_536),
    disk_bytes: None,
    gpus: None,
};

/// An operator's word on what sandboxes reach.
#[derive(Debug, Clone, Default)]
pub struct Egress {
    /// Rules that stand before those of every policy.
    pub always: egress::judge::Always,
    /// Private networks that sandboxes may reach; ranges only.
    pub private: Vec<Target>,
}

/// Who root in a sandbox is in a directory of the host that it mounts. The other users of the
/// sandbox are ids there that no account of the host has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostPathRoot {
    /// The directory's owner and group; where those are root's, ids that no account has.
    #[default]
    Owner,
    /// The directory's owner and group; where those are root's, this id.
    OwnerOr(u32),
    /// The host's root: what a sandbox leaves there acts for root, set-user-id programs included.
    Root,
}

impl Config {
    /// The defaults for a server whose state is in `data_dir`: execd beside the running program,
    /// and the running program as its own spawner (`osb spawner`).
    pub fn new(data_dir: impl Into<PathBuf>) -> std::io::Result<Self> {
        let data_dir = data_dir.into();
        let program = std::env::current_exe()?;
        Ok(Self {
            execd: program.with_file_name("execd"),
            // Not by its path: that may be another version by the time a spawner is needed.
            spawner: (
                PathBuf::from("/proc/self/exe"),
                vec![OsString::from("spawner")],
            ),
            gate: (
                PathBuf::from("/proc/self/exe"),
                vec![OsString::from("egress-gate")],
            ),
            egress: Egress::default(),
            execd_port: api::exec::PORT,
            images: image::Config::default(),
            network: net::Config::new(&data_dir),
            default_limits: DEFAULT_LIMITS,
            ready_cgroups: cgroup::Config::new(&data_dir).ready,
            planned_sandboxes: 100,
            host_path_root: HostPathRoot::default(),
            data_dir,
        })
    }

    /// The images of a server that does not run now; a running one holds them. Blocks on the
    /// disk.
    pub fn open_images(&self) -> Result<image::Store, image::Error> {
        image::Store::open(&Layout::new(&self.data_dir).images(), self.images.clone())
    }

    /// Nameservers for the sandboxes in place of the host's own.
    pub fn with_nameservers(mut self, nameservers: Vec<Ipv4Addr>) -> Self {
        self.network.nameservers = Some(nameservers);
        self
    }

    /// What an operator says about what sandboxes reach. Ranges hold for every sandbox, names for those that have
    /// a network policy.
    pub fn with_egress(mut self, egress: Egress) -> Self {
        let v4 = |target: &Target| match target {
            Target::Range {
                address: IpAddr::V4(address),
                length,
            } => Some((*address, *length)),
            _ => None,
        };
        self.network.private = egress.private.iter().filter_map(v4).collect();
        self.network.denied = egress.always.deny.iter().filter_map(v4).collect();
        self.egress = egress;
        self
    }

    /// Where the image store is.
    pub fn images_directory(&self) -> PathBuf {
        Layout::new(&self.data_dir).images()
    }

    /// Where each sandbox has its directory.
    pub fn sandboxes_directory(&self) -> PathBuf {
        Layout::new(&self.data_dir).sandboxes()
    }

    /// Where each named volume has its directory.
    pub fn volumes_directory(&self) -> PathBuf {
        Layout::new(&self.data_dir).volumes()
    }
}

/// Where things are under the data directory.
///
/// ```text
/// egress.sock        where the egress gate is told of sandboxes
/// lock               held by the one server that uses the directory
/// images/            see `image`
/// sandboxes/<id>/    one sandbox: record.json, process.json, control.sock, log, exit, rw/
/// trash/<name>/      what is being removed, with its record until all of it is gone
/// volumes/<claim>/   named volumes
/// staging/           copies of writable layers on their way to becoming snapshots
/// ```
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    pub(crate) fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    pub(crate) fn sandboxes(&self) -> PathBuf {
        self.root.join("sandboxes")
    }

    pub(crate) fn trash(&self) -> PathBuf {
        self.root.join("trash")
    }

    pub(crate) fn volumes(&self) -> PathBuf {
        self.root.join("volumes")
    }

    pub(crate) fn staging(&self) -> PathBuf {
        self.root.join("staging")
    }
}
