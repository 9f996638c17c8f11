//! Directories between this machine and a sandbox, as one tar stream each way, so that ten thousand
//! small files cost one request.
//!
//! What comes out of a sandbox is not trusted: nothing is unpacked outside the destination, and no
//! file gains a set-user-id bit or an owner on the way.

use std::io::{self, Read, Write};
use std::path::Path;

use bytes::Bytes;
use futures_util::StreamExt as _;
use opensandbox::{Contents, Sandbox};
use tokio::sync::mpsc;

use super::{PIECE_BYTES, PIECES, counting};
use crate::error::Error;
use crate::progress::{Progress, bytes};

pub(super) async fn upload_directory(
    sandbox: &Sandbox,
    from: &Path,
    to: &str,
    is_shown: bool,
) -> Result<String, Error> {
    let (send, receive) = mpsc::channel(PIECES);
    let directory = from.to_owned();
    let packing = tokio::task::spawn_blocking(move || pack(&directory, ChannelWriter { send }));
    let mut progress = Progress::new(from.display().to_string(), None, is_shown);
    let (pieces, mut counted) = counting(receive);
    let files = sandbox.files();
    let writing = files.upload_archive(to, Contents::from_stream(pieces, None));
    let mut writing = std::pin::pin!(writing);
    let answer = loop {
        tokio::select! {
            Some(more) = counted.recv() => progress.add(more),
            done = &mut writing => break done,
        }
    };
    // A file that cannot be read is the better reason for a request that broke off.
    let packed = packing
        .await
        .map_err(|error| io::Error::other(error.to_string()))?;
    let answer = match (packed, answer) {
        (Err(error), Err(_)) if error.kind() != io::ErrorKind::BrokenPipe => {
            return Err(Error::file("read", from, error));
        }
        (_, answer) => answer?,
    };
    Ok(format!(
        "{} to {}:{to}, {} entries, {}",
        from.display(),
        sandbox.id(),
        answer.entries,
        bytes(answer.bytes)
    ))
}

/// Packs what a directory holds. Links stay links; what is not a file, directory or link is left.
pub(super) fn pack(directory: &Path, sender: ChannelWriter) -> io::Result<()> {
    let broken = sender.send.clone();
    let packed = || {
        let mut archive = tar::Builder::new(io::BufWriter::with_capacity(PIECE_BYTES, sender));
        archive.follow_symlinks(false);
        archive.append_dir_all(".", directory)?;
        archive.into_inner()?.flush()
    };
    let outcome = packed();
    if let Err(error) = &outcome {
        // The request must break off: half an archive looks like a whole one.
        let _ = broken.blocking_send(Err(io::Error::new(error.kind(), error.to_string())));
    }
    outcome
}

/// Writes into a channel.
pub(super) struct ChannelWriter {
    pub(super) send: mpsc::Sender<io::Result<Bytes>>,
}

impl Write for ChannelWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = Bytes::copy_from_slice(bytes);
        match self.send.blocking_send(Ok(piece)) {
            Ok(()) => Ok(bytes.len()),
            Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) async fn download_directory(
    sandbox: &Sandbox,
    from: &str,
    to: &Path,
    is_shown: bool,
) -> Result<String, Error> {
    let mut stream = sandbox.files().download_archive(from).await?;
    std::fs::create_dir_all(to).map_err(|error| Error::file("made", to, error))?;
    let (send, receive) = mpsc::channel::<Bytes>(PIECES);
    let target = to.to_owned();
    let unpacking = tokio::task::spawn_blocking(move || unpack(receive, &target));
    let mut progress = Progress::new(from, stream.length(), is_shown);
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        progress.add(piece.len() as u64);
        if send.send(piece).await.is_err() {
            break;
        }
    }
    drop(send);
    let unpacked = unpacking
        .await
        .map_err(|error| io::Error::other(error.to_string()))?;
    let entries = unpacked.map_err(|error| Error::file("written", to, error))?;
    Ok(format!(
        "{}:{from} to {}, {entries} entries",
        sandbox.id(),
        to.display()
    ))
}

/// Bits that a file from a sandbox does not keep: set-user-id, set-group-id, sticky.
const LOST_BITS: u32 = 0o7000;

fn unpack(pieces: mpsc::Receiver<Bytes>, to: &Path) -> io::Result<u64> {
    let mut archive = tar::Archive::new(ChannelReader {
        pieces,
        rest: Bytes::new(),
    });
    archive.set_mask(LOST_BITS);
    archive.set_preserve_permissions(true);
    archive.set_overwrite(true);
    let mut count = 0;
    for entry in archive.entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        if kind.is_character_special() || kind.is_block_special() || kind.is_fifo() {
            continue;
        }
        // False for a name that would lead outside.
        if entry.unpack_in(to)? {
            count += 1;
        }
    }
    Ok(count)
}

/// Reads from a channel.
struct ChannelReader {
    pieces: mpsc::Receiver<Bytes>,
    rest: Bytes,
}

impl Read for ChannelReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.rest = piece,
                None => return Ok(0),
            }
        }
        let count = self.rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.rest.split_to(count));
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// An archive with one file, its header written by hand: builders refuse such names.
    fn archive(name: &str, link: Option<&str>) -> Vec<u8> {
        let mut header = tar::Header::new_gnu();
        let field = &mut header.as_old_mut().name;
        field[..name.len()].copy_from_slice(name.as_bytes());
        header.set_mode(0o4755);
        header.set_size(0);
        if let Some(link) = link {
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_link_name(link).unwrap();
        }
        header.set_cksum();
        header.as_bytes().to_vec()
    }

    fn unpacked(bytes: Vec<u8>, to: &Path) -> io::Result<u64> {
        let (send, receive) = mpsc::channel(1);
        let to = to.to_owned();
        let thread = std::thread::spawn(move || unpack(receive, &to));
        send.blocking_send(bytes.into()).unwrap();
        drop(send);
        thread.join().unwrap()
    }

    #[test]
    fn nothing_is_unpacked_outside() {
        let place = tempfile::tempdir().unwrap();
        let to = place.path().join("to");
        std::fs::create_dir(&to).unwrap();
        let mut bytes = archive("../outside", None);
        bytes.extend(archive("way", Some("..")));
        bytes.extend(archive("way/outside", None));
        // Refused or an error: either way the file is not there.
        let _ = unpacked(bytes, &to);
        assert!(!place.path().join("outside").exists());
    }

    #[test]
    fn no_file_gains_a_set_user_id_bit() {
        let to = tempfile::tempdir().unwrap();
        assert_eq!(unpacked(archive("x", None), to.path()).unwrap(), 1);
        let mode = std::fs::metadata(to.path().join("x"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o755);
    }
}
