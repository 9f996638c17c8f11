//! A blob into a file: hashed while it is written, resumed where an attempt broke off.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use reqwest::StatusCode;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::super::digest::Digest;
use super::super::manifest::{Descriptor, corrupt};
use super::endpoint::Endpoint;
use super::{Error, RequestError, Session};

/// Pieces between the network and the disk: a few hundred KiB, so that neither waits for the
/// other's next read or write.
const PIECES_WAITING_MAX: usize = 16;

/// Told how many bytes of the blob are here, whenever that changes.
pub(crate) type OnBytes<'a> = &'a (dyn Fn(u64) + Sync);

/// Whatever must not be let go before the file is no longer written to.
pub(crate) type WriteGuard = Arc<dyn std::any::Any + Send + Sync>;

impl Session<'_> {
    /// Brings a blob to `path`, beginning with what an earlier attempt left there. On success
    /// the file's bytes fit the digest; on a broken connection they stay for the next attempt.
    pub(crate) async fn download(
        &self,
        blob: &Descriptor,
        path: &Path,
        hold: &WriteGuard,
        on_bytes: OnBytes<'_>,
    ) -> Result<(), Error> {
        let url = format!("{}/blobs/{}", self.reference.repository(), blob.digest);
        let mut last = None;
        for endpoint in &self.endpoints {
            let attempt = || self.attempt(endpoint, &url, blob, path, hold, on_bytes);
            match self.with_retries(attempt, usize::MAX).await {
                Ok(()) => return Ok(()),
                Err(RequestError::Permanent(error)) => return Err(error),
                Err(failure) => last = Some(self.explain_passing(endpoint, &url, failure)),
            }
        }
        Err(last.expect("there is always the registry itself"))
    }

    async fn attempt(
        &self,
        endpoint: &Endpoint,
        url: &str,
        blob: &Descriptor,
        path: &Path,
        hold: &WriteGuard,
        on_bytes: OnBytes<'_>,
    ) -> Result<(), RequestError> {
        let mut have = std::fs::metadata(path).map_or(0, |file| file.len());
        if have > blob.size {
            have = 0;
        }
        let mut body = None;
        if have < blob.size {
            let from = (have > 0).then_some(have);
            let response = match self.get(endpoint, url, None, from).await {
                Err(RequestError::Status(StatusCode::RANGE_NOT_SATISFIABLE, _)) => {
                    self.get(endpoint, url, None, None).await?
                }
                other => other?,
            };
            if response.status() != StatusCode::PARTIAL_CONTENT {
                have = 0;
            }
            body = Some(response);
        }
        let is_resumed = have > 0;
        on_bytes(have);
        let (pieces, writer) = start_writing(path.to_owned(), have, Arc::clone(hold));
        let mut broken = None;
        if let Some(mut response) = body {
            broken = receive(&mut response, blob, have, &pieces, on_bytes)
                .await
                .err();
        }
        drop(pieces);
        let written = writer.await.expect("writing does not panic");
        let (digest, length) =
            written.map_err(|e| RequestError::Permanent(Error::io("writing", path, e)))?;
        match broken {
            Some(failure @ RequestError::Permanent(_)) => {
                let _ = std::fs::remove_file(path);
                return Err(failure);
            }
            Some(failure) => return Err(failure),
            None if length < blob.size => {
                return Err(RequestError::Broken(format!(
                    "it sent {length} of {} bytes of {}",
                    blob.size, blob.digest
                )));
            }
            None => {}
        }
        if digest == blob.digest {
            return Ok(());
        }
        let _ = std::fs::remove_file(path);
        if is_resumed {
            // What was kept may be the part that is wrong: once more, from the beginning.
            return Err(RequestError::Broken(format!(
                "resumed {} is corrupt",
                blob.digest
            )));
        }
        Err(RequestError::Permanent(corrupt(
            &format!("the layer {}", blob.digest),
            &format!(
                "{} sent other data, whose digest is {digest}",
                endpoint.host
            ),
        )))
    }
}

async fn receive(
    response: &mut reqwest::Response,
    blob: &Descriptor,
    mut have: u64,
    pieces: &mpsc::Sender<Bytes>,
    on_bytes: OnBytes<'_>,
) -> Result<(), RequestError> {
    while let Some(piece) = response
        .chunk()
        .await
        .map_err(|e| RequestError::from_reqwest(&e))?
    {
        have += piece.len() as u64;
        if have > blob.size {
            return Err(RequestError::Permanent(corrupt(
                &format!("the layer {}", blob.digest),
                &format!(
                    "it is longer than the {} bytes its manifest promises",
                    blob.size
                ),
            )));
        }
        on_bytes(have);
        if pieces.send(piece).await.is_err() {
            // The writer has failed and its own error says why.
            return Ok(());
        }
    }
    Ok(())
}

type Written = tokio::task::JoinHandle<io::Result<(Digest, u64)>>;

/// Writes pieces behind the first `have` bytes of the file, on a thread of its own, until the
/// sender is dropped; returns the digest and length of the whole file.
fn start_writing(path: PathBuf, have: u64, hold: WriteGuard) -> (mpsc::Sender<Bytes>, Written) {
    let (sender, mut pieces) = mpsc::channel::<Bytes>(PIECES_WAITING_MAX);
    let writer = tokio::task::spawn_blocking(move || {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        file.set_len(have)?;
        let mut hasher = hash_of(&mut file)?;
        let mut length = have;
        file.seek(io::SeekFrom::Start(have))?;
        while let Some(piece) = pieces.blocking_recv() {
            hasher.update(&piece);
            file.write_all(&piece)?;
            length += piece.len() as u64;
        }
        drop(hold);
        Ok((Digest::from(hasher), length))
    });
    (sender, writer)
}

fn hash_of(file: &mut File) -> io::Result<Sha256> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher),
            count => hasher.update(&buffer[..count]),
        }
    }
}
