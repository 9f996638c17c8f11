//! The image store against a real registry, a real disk and the real kernel.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../deadline/mod.rs"]
mod deadline;

mod collect;
mod failure;
mod host;
mod import;
mod mount;
mod pull;
mod registry;

use std::path::{Path, PathBuf};
use std::process::Command;

use deadline::Deadline;
use lifecycle::backend::{Platform, RegistryAuth, Source};
use runtime::image::{Config, Store};

/// A store in a directory of its own.
struct Place {
    store: Store,
    directory: tempfile::TempDir,
    _deadline: Deadline,
}

impl Place {
    fn new() -> Self {
        Self::with(config())
    }

    /// In memory, where no disk slows a race down.
    fn in_memory() -> Self {
        Self::at(tempfile::tempdir_in("/dev/shm").unwrap(), config())
    }

    fn with(config: Config) -> Self {
        Self::at(tempfile::tempdir().unwrap(), config)
    }

    fn at(directory: tempfile::TempDir, config: Config) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "the image store keeps the owners of files: run these tests as root"
        );
        let store = Store::open(directory.path(), config).unwrap();
        Self {
            store,
            directory,
            _deadline: Deadline::of_this_test(),
        }
    }

    /// The same directory, opened by what would be the next process.
    fn reopen(self) -> Self {
        let Self {
            store,
            directory,
            _deadline,
        } = self;
        drop(store);
        Self {
            store: Store::open(directory.path(), config()).unwrap(),
            directory,
            _deadline,
        }
    }

    fn count(&self, name: &str) -> usize {
        std::fs::read_dir(self.directory.path().join(name))
            .unwrap()
            .count()
    }

    /// Nothing half made is lying about.
    fn assert_tidy(&self) {
        assert_eq!(self.count("work"), 0, "the work directory is not empty");
    }

    fn assert_empty(&self) {
        self.assert_tidy();
        assert_eq!((self.count("layers"), self.count("images")), (0, 0));
        assert!(self.store.list().is_empty());
    }
}

/// The registries of these tests are on this machine, which an operator has to allow.
fn config() -> Config {
    Config {
        insecure_registries: vec!["127.0.0.1".to_owned()],
        ..Config::default()
    }
}

fn image(reference: impl Into<String>) -> Source {
    Source::Image {
        reference: reference.into(),
        auth: None,
    }
}

fn platform(arch: &str) -> Platform {
    Platform {
        os: "linux".to_owned(),
        arch: arch.to_owned(),
    }
}

fn auth(username: &str, password: &str) -> RegistryAuth {
    RegistryAuth {
        username: username.to_owned(),
        password: password.to_owned().into(),
    }
}

fn read(layer: &Path, path: &str) -> String {
    std::fs::read_to_string(layer.join(path)).unwrap()
}

/// Runs the test of this name again in a mount namespace of its own, where it may mount what it
/// likes and leaves nothing behind. Answers whether this is that run.
fn in_own_mounts(test: &str) -> bool {
    const MARK: &str = "OSB_TEST_OWN_MOUNTS";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let _deadline = Deadline::of_this_test();
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(MARK, "1")
        .output()
        .expect("these tests need unshare: apt-get install util-linux");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        text.contains("1 passed"),
        "the test {test} was not found: {text}"
    );
    false
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn join(layers: &[PathBuf]) -> String {
    layers
        .iter()
        .map(|layer| layer.to_str().unwrap())
        .collect::<Vec<_>>()
        .join(":")
}
