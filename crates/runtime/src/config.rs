//! How the embedded backend is set up.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

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
            execd_port: api::exec::PORT,
            images: image::Config::default(),
            network: net::Config::new(&data_dir),
            default_limits: Limits {
                // A runaway loop of forks meets a limit before it meets the machine's; builds
                // with hundreds of threads still fit.
                pids: Some(4096),
                ..Limits::default()
            },
            ready_cgroups: cgroup::Config::new(&data_dir).ready,
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
