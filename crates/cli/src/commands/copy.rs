//! `osb cp`: files and directories between this machine and a sandbox.
//!
//! A file that comes out of a sandbox replaces one here only when all of it has arrived.
//! Directories travel as archives (`archive`).

mod archive;
mod between;

use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use opensandbox::{ByteStream, Contents, Sandbox, WriteFile};
use tokio::sync::mpsc;

use self::archive::{ChannelWriter, download_directory, pack, upload_directory};
use super::{DONE, Outcome};
use crate::app::App;
use crate::args::transfer::Cp;
use crate::error::Error;
use crate::output::Message;
use crate::progress::{Progress, bytes};
use crate::terminal;

/// Pieces between the network and the disk: enough that neither waits for the other's pause.
const PIECES: usize = 16;

/// Files are read in pieces of this size.
const PIECE_BYTES: usize = 256 * 1024;

/// One side of a copy.
#[derive(Debug, PartialEq, Eq)]
enum Side {
    Here(PathBuf),
    There { sandbox: String, path: String },
    Stream,
}

impl Side {
    /// `ID:PATH` is in a sandbox; a path here that has a colon is written with a slash before it.
    fn parse(text: &str) -> Self {
        match text.split_once(':') {
            _ if text == "-" => Self::Stream,
            Some((id, path)) if !id.is_empty() && !id.contains('/') && !id.starts_with('.') => {
                Self::There {
                    sandbox: id.to_owned(),
                    path: if path.is_empty() { "." } else { path }.to_owned(),
                }
            }
            _ => Self::Here(text.into()),
        }
    }
}

pub(super) async fn run(app: &App, args: &Cp) -> Outcome {
    let is_shown = !args.quiet;
    let summary = match (Side::parse(&args.source), Side::parse(&args.destination)) {
        (Side::Here(from), Side::There { sandbox, path }) => {
            let sandbox = app.sandbox(&sandbox).await?;
            upload(&sandbox, &from, &path, args.recursive, is_shown).await?
        }
        (Side::There { sandbox, path }, Side::Here(to)) => {
            let sandbox = app.sandbox(&sandbox).await?;
            download(&sandbox, &path, &to, args.recursive, is_shown).await?
        }
        (Side::Stream, Side::There { sandbox, path }) => {
            let sandbox = app.sandbox(&sandbox).await?;
            from_stdin(&sandbox, &path, args.recursive).await?
        }
        (Side::There { sandbox, path }, Side::Stream) => {
            let files = app.sandbox(&sandbox).await?.files();
            let stream = if args.recursive {
                files.download_archive(&path).await?
            } else {
                files.download(&path).await?
            };
            to_writer(stream, io::stdout(), &mut Progress::new("", None, false)).await?;
            return Ok(DONE);
        }
        (
            Side::There { sandbox, path },
            Side::There {
                sandbox: other,
                path: to,
            },
        ) => {
            let (source, target) = (app.sandbox(&sandbox).await?, app.sandbox(&other).await?);
            between::between((&source, &path), (&target, &to), args.recursive).await?
        }
        _ => {
            return Err(Error::Usage(
                "one side must be in a sandbox: osb cp PATH SANDBOX:PATH, or the other way"
                    .to_owned(),
            ));
        }
    };
    if is_shown {
        app.printer().note(Message::Ok, &summary)?;
    }
    Ok(DONE)
}

async fn upload(
    sandbox: &Sandbox,
    from: &Path,
    to: &str,
    recursive: bool,
    is_shown: bool,
) -> Result<String, Error> {
    let metadata = std::fs::metadata(from).map_err(|e| Error::file("read", from, e))?;
    let name = from
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let is_directory_there = to.ends_with('/') || is_directory(sandbox, to).await?;
    if metadata.is_dir() {
        if !recursive {
            return Err(needs_recursive(&from.display().to_string()));
        }
        let only_contents = from.as_os_str().to_string_lossy().ends_with("/.");
        let target = match name.filter(|_| is_directory_there && !only_contents) {
            Some(name) => format!("{}/{name}", to.trim_end_matches('/')),
            None => to.to_owned(),
        };
        return upload_directory(sandbox, from, &target, is_shown).await;
    }
    let target = match name.filter(|_| is_directory_there) {
        Some(name) => format!("{}/{name}", to.trim_end_matches('/')),
        None => to.to_owned(),
    };
    let size = upload_file(sandbox, from, &target, is_shown).await?;
    Ok(format!(
        "{} to {}:{target}, {}",
        from.display(),
        sandbox.id(),
        bytes(size)
    ))
}

async fn download(
    sandbox: &Sandbox,
    from: &str,
    to: &Path,
    recursive: bool,
    is_shown: bool,
) -> Result<String, Error> {
    let plain = from.trim_end_matches("/.").trim_end_matches('/');
    let name = plain.rsplit('/').next().unwrap_or(plain).to_owned();
    let plain = if plain.is_empty() { "/" } else { plain };
    if is_directory(sandbox, plain).await? {
        if !recursive {
            return Err(needs_recursive(from));
        }
        let into = if to.is_dir() && !from.ends_with("/.") && !name.is_empty() {
            to.join(&name)
        } else {
            to.to_owned()
        };
        return download_directory(sandbox, plain, &into, is_shown).await;
    }
    let target = if to.is_dir() {
        to.join(&name)
    } else {
        to.to_owned()
    };
    download_file(sandbox, from, &target, is_shown).await?;
    let size = std::fs::metadata(&target).map_or(0, |metadata| metadata.len());
    Ok(format!(
        "{}:{from} to {}, {}",
        sandbox.id(),
        target.display(),
        bytes(size)
    ))
}

fn needs_recursive(what: &str) -> Error {
    Error::Failed {
        message: format!("{what} is a directory"),
        next: Some("copy all it holds: osb cp -r …".to_owned()),
    }
}

async fn is_directory(sandbox: &Sandbox, path: &str) -> Result<bool, Error> {
    match sandbox.files().info(&[path]).await {
        Ok(found) => Ok(found
            .values()
            .any(|info| info.kind == Some(api::exec::file::FileKind::Directory))),
        // Whether the sandbox or the path is missing is found out by whoever uses it.
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Copies one file into the sandbox, with its mode; returns its size.
pub(super) async fn upload_file(
    sandbox: &Sandbox,
    from: &Path,
    to: &str,
    is_shown: bool,
) -> Result<u64, Error> {
    let unread = |error| Error::file("read", from, error);
    let file = std::fs::File::open(from).map_err(unread)?;
    let metadata = file.metadata().map_err(unread)?;
    if metadata.is_dir() {
        return Err(needs_recursive(&from.display().to_string()));
    }
    // What is not a regular file has a length only when it was read.
    let length = metadata.is_file().then_some(metadata.len());
    let mut progress = Progress::new(from.display().to_string(), length, is_shown);
    let (send, receive) = mpsc::channel(PIECES);
    tokio::task::spawn_blocking(move || send_pieces(file, &send));
    let mut size = 0;
    let (pieces, mut counted) = counting(receive);
    let contents = Contents::from_stream(pieces, length);
    let mode = metadata.permissions().mode() & 0o777;
    let files = sandbox.files();
    let writing = files.write_all(vec![WriteFile::new(to, contents).mode(mode)]);
    let mut writing = std::pin::pin!(writing);
    loop {
        tokio::select! {
            Some(more) = counted.recv() => {
                size += more;
                progress.add(more);
            }
            done = &mut writing => {
                done?;
                return Ok(length.unwrap_or(size));
            }
        }
    }
}

/// Pieces as a stream, and the size of each as it is taken.
pub(super) fn counting(
    pieces: mpsc::Receiver<io::Result<Bytes>>,
) -> (
    impl Stream<Item = io::Result<Bytes>> + Send,
    mpsc::Receiver<u64>,
) {
    let (count, counted) = mpsc::channel(PIECES);
    let stream = futures_util::stream::unfold((pieces, count), |(mut pieces, count)| async {
        let piece: io::Result<Bytes> = pieces.recv().await?;
        if let Ok(piece) = &piece {
            // Whoever counts may have gone; the bytes go on.
            let _ = count.send(piece.len() as u64).await;
        }
        Some((piece, (pieces, count)))
    });
    (stream, counted)
}

/// What a file or a directory of this machine holds, in pieces; a directory as a tar.
pub(super) fn pieces_of(
    path: &Path,
) -> io::Result<(mpsc::Receiver<io::Result<Bytes>>, Option<u64>)> {
    let metadata = std::fs::metadata(path)?;
    let (send, receive) = mpsc::channel(PIECES);
    if metadata.is_dir() {
        let directory = path.to_owned();
        // What cannot be read breaks the stream off with the reason.
        tokio::task::spawn_blocking(move || pack(&directory, ChannelWriter { send }));
        return Ok((receive, None));
    }
    let file = std::fs::File::open(path)?;
    tokio::task::spawn_blocking(move || send_pieces(file, &send));
    Ok((receive, metadata.is_file().then_some(metadata.len())))
}

fn send_pieces(mut file: impl Read, send: &mpsc::Sender<io::Result<Bytes>>) {
    loop {
        let mut piece = vec![0; PIECE_BYTES];
        let piece = match file.read(&mut piece) {
            Ok(0) => return,
            Ok(count) => {
                piece.truncate(count);
                Ok(piece.into())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let is_last = piece.is_err();
        if send.blocking_send(piece).is_err() || is_last {
            return;
        }
    }
}

/// Copies one file out of the sandbox. What was there before stays until all is here; devices,
/// pipes and standard output are written straight. Returns whether a message may follow.
pub(super) async fn download_file(
    sandbox: &Sandbox,
    from: &str,
    to: &Path,
    is_shown: bool,
) -> Result<bool, Error> {
    let stream = sandbox.files().download(from).await?;
    save(stream, from, to, is_shown).await
}

/// Writes what comes to a file, as above.
pub(super) async fn save(
    stream: ByteStream,
    from: &str,
    to: &Path,
    is_shown: bool,
) -> Result<bool, Error> {
    let unwritten = |error| Error::file("written", to, error);
    let mut progress = Progress::new(from, stream.length(), is_shown);
    let existing = std::fs::metadata(to).ok();
    if existing.as_ref().is_some_and(|it| it.is_dir()) {
        return Err(Error::file(
            "written",
            to,
            io::ErrorKind::IsADirectory.into(),
        ));
    }
    let is_special = existing.as_ref().is_some_and(|it| {
        let kind = it.file_type();
        kind.is_char_device() || kind.is_fifo() || kind.is_block_device() || kind.is_socket()
    });
    if is_special {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(to)
            .map_err(unwritten)?;
        to_writer(stream, file, &mut progress).await?;
        // A device may be our own output, where a message would be part of the file.
        return Ok(false);
    }
    // A link stays a link: what it leads to is replaced.
    let to = &to.canonicalize().unwrap_or_else(|_| to.to_owned());
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).map_err(unwritten)?;
    let mut staged = tempfile::Builder::new()
        .prefix(".osb-download-")
        .tempfile_in(parent)
        .map_err(unwritten)?;
    to_writer(stream, staged.as_file_mut(), &mut progress).await?;
    let mode = existing.map_or(0o644, |it| it.permissions().mode() & 0o777);
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(staged.path(), permissions).map_err(unwritten)?;
    staged.persist(to).map_err(|error| unwritten(error.error))?;
    Ok(true)
}

async fn to_writer(
    mut stream: ByteStream,
    mut writer: impl Write,
    progress: &mut Progress,
) -> Result<(), Error> {
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        writer.write_all(&piece)?;
        progress.add(piece.len() as u64);
    }
    writer.flush()?;
    Ok(())
}

async fn from_stdin(sandbox: &Sandbox, to: &str, recursive: bool) -> Result<String, Error> {
    let pieces = futures_util::stream::unfold(terminal::input(), |mut input| async {
        let piece = input.recv().await?;
        Some((Ok(Bytes::from(piece)), input))
    });
    let contents = Contents::from_stream(pieces, None);
    if recursive {
        let answer = sandbox.files().upload_archive(to, contents).await?;
        return Ok(format!(
            "{} entries, {}",
            answer.entries,
            bytes(answer.bytes)
        ));
    }
    sandbox.files().write(to, contents).await?;
    Ok(format!("standard input to {}:{to}", sandbox.id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_told_apart() {
        let there = |id: &str, path: &str| Side::There {
            sandbox: id.to_owned(),
            path: path.to_owned(),
        };
        assert_eq!(Side::parse("abc:/x"), there("abc", "/x"));
        assert_eq!(Side::parse("abc:"), there("abc", "."));
        assert_eq!(Side::parse("./a:b"), Side::Here("./a:b".into()));
        assert_eq!(Side::parse("/tmp/a:b"), Side::Here("/tmp/a:b".into()));
        assert_eq!(Side::parse("file"), Side::Here("file".into()));
        assert_eq!(Side::parse("-"), Side::Stream);
    }
}
