//! `osb image …` and `osb volume …`: what the server keeps for sandboxes to come.
//!
//! With `--server-config` they look at the store of this machine instead, while no server has it
//! open.

use std::io::Read as _;
use std::path::Path;
use std::pin::pin;

use api::inventory::{Image as ImageInfo, PullEvent, PullImageRequest};
use api::sandbox::{ImageAuth, ImageSpec, PlatformSpec};
use futures_util::StreamExt as _;
use opensandbox::{Contents, Images};

use super::copy::{counting, pieces_of, save};
use super::{DONE, Outcome, local};
use crate::app::App;
use crate::args::local::{Image, ImageCommand, Volume, VolumeCommand};
use crate::error::Error;
use crate::output::{Message, Record};
use crate::progress::{Progress, bytes};

pub(super) const IMAGE_COLUMNS: [&str; 6] =
    ["reference", "id", "platform", "size", "created_at", "users"];

pub(super) async fn image(app: &App, args: Image) -> Outcome {
    if let Some(config) = &args.server_config {
        return local::image(app, config, args.command).await;
    }
    let images = app.client()?.images();
    let printer = app.printer();
    match args.command {
        ImageCommand::Ls => {
            let found = images.list().await?.items;
            let rows: Vec<Record> = found.iter().flat_map(rows).collect();
            printer.rows("Images", &IMAGE_COLUMNS, &rows)?;
        }
        ImageCommand::Pull {
            reference,
            platform,
            username,
            password_stdin,
        } => {
            let auth = credentials(username, password_stdin)?;
            let auth = auth.map(|(username, password)| ImageAuth {
                username,
                password: password.into(),
            });
            let uri = reference.clone();
            let image = ImageSpec { uri, auth };
            let platform = platform.as_deref().map(parse_platform).transpose()?;
            let platform = platform.map(|(os, arch)| PlatformSpec { os, arch });
            let id = pull(&images, &PullImageRequest { image, platform }).await?;
            printer.message(Message::Ok, &format!("Pulled: {reference} ({id})"))?;
        }
        ImageCommand::Import { path, reference } => {
            for id in import(&images, &path, reference.as_deref()).await? {
                printer.message(Message::Ok, &format!("Imported: {id}"))?;
            }
        }
        ImageCommand::Export { reference, path } => {
            let archive = images.export(&reference).await?;
            if save(archive, &reference, &path, true).await? {
                let text = format!("Exported: {reference} to {}", path.display());
                printer.message(Message::Ok, &text)?;
            }
        }
        ImageCommand::Tag { reference, name } => {
            let image = images.tag(&reference, &name).await?;
            let text = format!("Tagged: {name} is {reference} ({})", image.id);
            printer.message(Message::Ok, &text)?;
        }
        ImageCommand::Rm { references } => {
            for reference in references {
                images.remove(&reference).await?;
                printer.message(Message::Ok, &format!("Removed: {reference}"))?;
            }
        }
        ImageCommand::Prune => {
            let gone = images.prune().await?;
            let record = Record::new()
                .with("images", gone.images)
                .with("layers", gone.layers)
                .with("bytes", gone.bytes);
            printer.done("Pruned", &record)?;
        }
    }
    Ok(DONE)
}

/// One row for each name of an image, or one without a name.
fn rows(image: &ImageInfo) -> Vec<Record> {
    let row = |reference: Option<&String>| {
        Record::new()
            .with("reference", reference)
            .with("id", image.id.as_str())
            .with("platform", image.platform.as_str())
            .with("size", bytes(image.size_bytes))
            .with("size_bytes", image.size_bytes)
            .with("created_at", image.created_at)
            .with("users", image.users)
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

/// Lets the server bring an image to itself; returns its id.
pub(super) async fn pull(images: &Images, request: &PullImageRequest) -> Result<String, Error> {
    let mut progress = Progress::new(request.image.uri.clone(), None, true);
    // A registry may think about its first answer for long; that it was asked is to be seen.
    progress.set(0);
    let mut events = pin!(images.pull(request).await?);
    loop {
        let event = tokio::select! {
            event = events.next() => event.transpose()?,
            () = progress.catch_up() => continue,
        };
        match event {
            Some(PullEvent::Resolved { total_bytes, .. }) => progress.set_total(total_bytes),
            Some(PullEvent::Downloaded { bytes }) => progress.set(bytes),
            Some(PullEvent::Unpacked { .. }) => {}
            Some(PullEvent::Done { id }) => return Ok(id),
            Some(PullEvent::Error { error }) => {
                return Err(Error::Failed {
                    message: format!("{} ({})", error.message, error.code),
                    next: None,
                });
            }
            None => {
                return Err(Error::Failed {
                    message: "the server ended the download before it was complete".to_owned(),
                    next: Some("pull again; it goes on where it ended".to_owned()),
                });
            }
        }
    }
}

/// Sends an archive or a directory to the server; returns the ids of what was in it.
async fn import(images: &Images, path: &Path, name: Option<&str>) -> Result<Vec<String>, Error> {
    let (pieces, length) = pieces_of(path).map_err(|error| Error::file("read", path, error))?;
    let mut progress = Progress::new(path.display().to_string(), length, true);
    let (stream, mut counted) = counting(pieces);
    let mut importing = pin!(images.import(Contents::from_stream(stream, length), name));
    loop {
        tokio::select! {
            Some(more) = counted.recv() => progress.add(more),
            done = &mut importing => return Ok(done?.ids),
        }
    }
}

/// Operating system and processor, as `linux/arm64` says them.
pub(super) fn parse_platform(text: &str) -> Result<(String, String), Error> {
    match text.split_once('/') {
        Some((os, arch)) if !os.is_empty() && !arch.is_empty() => {
            Ok((os.to_owned(), arch.to_owned()))
        }
        _ => Err(Error::Usage(format!(
            "'{text}' is not a platform; write it like linux/arm64"
        ))),
    }
}

/// User name and password for a registry; the password comes from standard input alone.
pub(super) fn credentials(
    username: Option<String>,
    password_stdin: bool,
) -> Result<Option<(String, String)>, Error> {
    let Some(username) = username else {
        return Ok(None);
    };
    if !password_stdin {
        return Err(Error::Usage("--username needs --password-stdin".to_owned()));
    }
    let mut password = String::new();
    std::io::stdin()
        .read_to_string(&mut password)
        .map_err(|error| Error::file("read", Path::new("standard input"), error))?;
    let password = password.trim_end_matches(['\r', '\n']).to_owned();
    Ok(Some((username, password)))
}

pub(super) async fn volume(app: &App, args: Volume) -> Outcome {
    if let Some(config) = &args.server_config {
        return local::volume(app, config, args.command);
    }
    let volumes = app.client()?.volumes();
    let printer = app.printer();
    match args.command {
        VolumeCommand::Ls => {
            let found = volumes.list().await?.items;
            let row = |volume: &api::inventory::VolumeSummary| {
                Record::new()
                    .with("name", volume.name.as_str())
                    .with("created_at", volume.created_at)
                    .with("users", volume.users.join(" "))
            };
            let rows: Vec<Record> = found.iter().map(row).collect();
            printer.rows("Volumes", &["name", "created_at", "users"], &rows)?;
        }
        VolumeCommand::Create { names } => {
            for name in names {
                let made = volumes.create(&name).await?;
                printer.message(Message::Ok, &format!("Created: {}", made.name))?;
            }
        }
        VolumeCommand::Rm { names, force } => {
            for name in names {
                volumes.remove(&name, force).await?;
                printer.message(Message::Ok, &format!("Removed: {name}"))?;
            }
        }
    }
    Ok(DONE)
}
