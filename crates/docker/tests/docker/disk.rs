//! Disks that are full: the engine's, and the one with our data. The kernel says so, on small file
//! systems in memory.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lifecycle::backend::{Backend as _, Error};

use crate::stage::{Stage, ask, engine_home, engine_says, spec};

/// A small file system at a path, until it is dropped.
struct Small(PathBuf);

impl Small {
    fn mount(path: &Path, bytes: u64) -> Self {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(path)
            .status();
        assert!(mounted.expect("mount").success());
        Self(path.to_owned())
    }

    fn fill(&self) {
        let mut file = std::fs::File::create(self.0.join("filling")).unwrap();
        let error = loop {
            if let Err(error) = file.write_all(&[0; 4096]) {
                break error;
            }
        };
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    }

    fn empty(&self) {
        std::fs::remove_file(self.0.join("filling")).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // Lazily: the engine may still look at a file.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn is_told(refused: &Result<impl std::fmt::Debug, Error>) {
    assert!(
        matches!(refused, Err(Error::Exhausted { what: "disk", .. })),
        "{refused:?}"
    );
}

pub(crate) async fn a_full_disk_of_the_engine_is_told_and_nothing_is_left(stage: Stage) {
    let backend = stage.open().await;
    let spec = spec("full");
    let place = stage.config().data_dir.join("sandboxes/full");
    {
        let disk = Small::mount(&engine_home().join("data/containers"), 4096);
        disk.fill();
        is_told(&backend.create(spec.clone()).await);
    }
    assert!(!engine_says("GET", "/containers/json?all=1").contains("sandbox-full"));
    assert!(!place.exists(), "{} is left", place.display());
    backend.create(spec.clone()).await.unwrap();
    assert!(ask(&backend, &spec, "GET /ping").await.contains(" 200 "));
    backend.delete(&spec.id, Duration::ZERO).await.unwrap();
}

pub(crate) async fn a_full_disk_of_ours_is_told_and_nothing_is_left(stage: Stage) {
    let config = stage.config();
    let execd = std::fs::metadata(&config.execd).unwrap().len();
    std::fs::create_dir(&config.data_dir).unwrap();
    let disk = Small::mount(&config.data_dir, execd + (1 << 20));
    let backend = stage.open().await;
    let spec = spec("full-here");
    disk.fill();
    is_told(&backend.create(spec.clone()).await);
    assert!(!engine_says("GET", "/containers/json?all=1").contains("sandbox-full-here"));
    assert!(!config.data_dir.join("sandboxes/full-here").exists());
    disk.empty();
    backend.create(spec.clone()).await.unwrap();
    assert!(ask(&backend, &spec, "GET /ping").await.contains(" 200 "));
    // What must be removed needs no room.
    disk.fill();
    backend.delete(&spec.id, Duration::ZERO).await.unwrap();
    assert!(!engine_says("GET", "/containers/json?all=1").contains("sandbox-full-here"));
}
