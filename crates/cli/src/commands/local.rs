//! `osb image …` and `osb volume …` with `--server-config`: what the embedded runtime keeps on this
//! machine, while no server runs.
//!
//! The image store belongs to one process at a time: while a server has it open these commands
//! say so and change nothing.

use std::path::{Path, PathBuf};

use lifecycle::backend::{Platform, PullProgress, RegistryAuth};
use runtime::image::{Error as ImageError, Import, Store};
use tokio::sync::mpsc;

use super::inventory::{IMAGE_COLUMNS, credentials, parse_platform};
use super::{DONE, Outcome};
use crate::app::App;
use crate::args::local::{ImageCommand, VolumeCommand};
use crate::error::Error;
use crate::interrupts::Interrupts;
use crate::output::{Message, Record};
use crate::progress::{Progress, bytes};

/// Reports that wait to be drawn; more are dropped by the store.
const REPORTS: usize = 64;

/// Where the server keeps what these commands look at.
fn settings(config: &Path) -> Result<runtime::Config, Error> {
    let environment = std::env::vars().collect();
    let sources = server::config::sources(Some(config.to_owned()), Vec::new(), environment);
    let loaded = server::config::load(&sources).map_err(|problems| Error::Local {
        message: format!("the server's configuration cannot be used: {problems}"),
        next: Some("osb server --check".to_owned()),
        source: None,
    })?;
    if loaded.settings.runtime.kind != server::config::RuntimeKind::Embedded {
        return Err(Error::Local {
            message: "the server's runtime is not the embedded one".to_owned(),
            next: Some("use the engine's own commands, such as docker image ls".to_owned()),
            source: None,
        });
    }
    server::embedded_settings(&loaded.settings).map_err(Error::Output)
}

fn open(settings: &runtime::Config) -> Result<Store, Error> {
    let directory = settings.images_directory();
    if rustix::process::geteuid().is_root() {
        return Store::open(&directory, settings.images.clone())
            .map_err(|error| failed(error, &directory));
    }
    Err(Error::Local {
        message: format!("the image store {} belongs to root", directory.display()),
        next: Some("sudo osb image …".to_owned()),
        source: None,
    })
}

fn failed(error: ImageError, directory: &Path) -> Error {
    match error {
        ImageError::InUse { .. } => Error::Local {
            message: format!("a server has the image store {} open", directory.display()),
            next: Some("ask the server: leave --server-config out".to_owned()),
            source: None,
        },
        error => Error::Local {
            message: error.to_string(),
            next: None,
            source: std::error::Error::source(&error).map(|source| source.to_string().into()),
        },
    }
}

pub(super) async fn image(app: &App, config: &Path, command: ImageCommand) -> Outcome {
    let settings = settings(config)?;
    let directory = settings.images_directory();
    let failed = |error| failed(error, &directory);
    let store = open(&settings)?;
    let printer = app.printer();
    match command {
        ImageCommand::Ls => {
            let rows: Vec<Record> = store.list().iter().flat_map(rows).collect();
            printer.rows("Images", &IMAGE_COLUMNS, &rows)?;
        }
        ImageCommand::Pull {
            reference,
            platform,
            username,
            password_stdin,
        } => {
            let platform = platform.as_deref().map(parse_platform).transpose()?;
            let platform = platform.map(|(os, arch)| Platform { os, arch });
            let auth = credentials(username, password_stdin)?;
            let auth = auth.map(|(username, password)| RegistryAuth {
                username,
                password: password.into(),
            });
            let id = pull(&store, &reference, platform, auth)
                .await?
                .map_err(failed)?;
            printer.message(Message::Ok, &format!("Pulled: {reference} ({id})"))?;
        }
        ImageCommand::Import { path, reference } => {
            let imported = store
                .import(&Import::Detect(path), reference.as_deref())
                .await;
            for id in imported.map_err(failed)? {
                printer.message(Message::Ok, &format!("Imported: {id}"))?;
            }
        }
        ImageCommand::Export { reference, path } => {
            store.export(&reference, &path).await.map_err(failed)?;
            printer.message(
                Message::Ok,
                &format!("Exported: {reference} to {}", path.display()),
            )?;
        }
        ImageCommand::Tag { reference, name } => {
            let id = store.tag(&reference, &name).await.map_err(failed)?;
            let text = format!("Tagged: {name} is {reference} ({id})");
            printer.message(Message::Ok, &text)?;
        }
        ImageCommand::Rm { references } => {
            for reference in references {
                store.remove(&reference).await.map_err(failed)?;
                printer.message(Message::Ok, &format!("Removed: {reference}"))?;
            }
        }
        ImageCommand::Prune => {
            check_no_sandboxes(&settings)?;
            let gone = store.gc().await.map_err(failed)?;
            let record = Record::new()
                .with("images", gone.images as u64)
                .with("layers", gone.layers as u64)
                .with("bytes", gone.bytes);
            printer.done("Pruned", &record)?;
        }
    }
    Ok(DONE)
}

/// A sandbox outlives its server, and only a server knows which images its sandboxes stand on.
fn check_no_sandboxes(settings: &runtime::Config) -> Result<(), Error> {
    let directory = settings.sandboxes_directory();
    let is_empty = std::fs::read_dir(&directory).map_or(true, |mut all| all.next().is_none());
    if is_empty {
        return Ok(());
    }
    Err(Error::Local {
        message: format!(
            "there are sandboxes in {} that may need what would go",
            directory.display()
        ),
        next: Some("kill them through a server first: osb ls, osb rm".to_owned()),
        source: None,
    })
}

/// One row for each name of an image, or one without a name.
fn rows(image: &runtime::image::Image) -> Vec<Record> {
    let row = |reference: Option<&String>| {
        Record::new()
            .with("reference", reference)
            .with("id", image.id.as_str())
            .with("platform", image.platform.to_string())
            .with("size", bytes(image.size_bytes))
            .with("size_bytes", image.size_bytes)
            .with("created_at", image.created_at)
            .with("users", image.users as u64)
    };
    if image.references.is_empty() {
        return vec![row(None)];
    }
    image
        .references
        .iter()
        .map(|name| row(Some(name)))
        .collect()
}

async fn pull(
    store: &Store,
    reference: &str,
    platform: Option<Platform>,
    auth: Option<RegistryAuth>,
) -> Result<Result<runtime::image::ImageId, ImageError>, Error> {
    let mut interrupts = Interrupts::listen()?;
    let mut progress = Progress::new(reference, None, true);
    let (send, mut reports) = mpsc::channel(REPORTS);
    let pulling = store.pull(reference, auth.as_ref(), platform.as_ref(), Some(send));
    let mut pulling = std::pin::pin!(pulling);
    loop {
        tokio::select! {
            done = &mut pulling => return Ok(done),
            Some(report) = reports.recv() => match report {
                PullProgress::Resolved { total_bytes, .. } => progress.set_total(total_bytes),
                PullProgress::Downloaded { bytes } => progress.set(bytes),
                PullProgress::Unpacked { .. } => {}
            },
            // What has come stays, and the next pull goes on from there.
            code = interrupts.next() => return Err(Error::Interrupted(code)),
        }
    }
}

pub(super) fn volume(app: &App, config: &Path, command: VolumeCommand) -> Outcome {
    let settings = settings(config)?;
    let directory = settings.volumes_directory();
    let printer = app.printer();
    match command {
        VolumeCommand::Ls => {
            let mut rows = Vec::new();
            for path in children(&directory)? {
                let metadata =
                    std::fs::metadata(&path).map_err(|e| Error::file("read", &path, e))?;
                let made = metadata.created().or_else(|_| metadata.modified()).ok();
                let made = made.and_then(|at| jiff::Timestamp::try_from(at).ok());
                let name = path
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                rows.push(
                    Record::new()
                        .with("name", name)
                        .with("path", path.display().to_string())
                        .with("created_at", made),
                );
            }
            printer.rows("Volumes", &["name", "created_at", "path"], &rows)?;
        }
        VolumeCommand::Create { names } => {
            for name in names {
                let path = directory.join(volume_name(&name)?);
                std::fs::create_dir_all(&path).map_err(|e| Error::file("made", &path, e))?;
                printer.message(Message::Ok, &format!("Created: {name}"))?;
            }
        }
        VolumeCommand::Rm { names, force } => {
            if !force {
                check_no_sandboxes(&settings).map_err(|_| Error::Local {
                    message: "there are sandboxes that may use these volumes".to_owned(),
                    next: Some("end them first, or remove anyway with --force".to_owned()),
                    source: None,
                })?;
            }
            for name in names {
                let path = directory.join(volume_name(&name)?);
                std::fs::remove_dir_all(&path).map_err(|e| Error::file("removed", &path, e))?;
                printer.message(Message::Ok, &format!("Removed: {name}"))?;
            }
        }
    }
    Ok(DONE)
}

/// A name that leads nowhere else.
fn volume_name(name: &str) -> Result<&str, Error> {
    if name.contains('/') || name.starts_with('.') || name.is_empty() {
        return Err(Error::Usage(format!(
            "'{name}' is not the name of a volume"
        )));
    }
    Ok(name)
}

fn children(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::file("read", directory, error)),
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    Ok(paths)
}
