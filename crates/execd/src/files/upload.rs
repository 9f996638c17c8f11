//! `POST /files/upload`: a form of `metadata` and `file` parts, the n-th of one with the n-th of the
//! other.
//!
//! Each file is written once, as it arrives, and appears whole (see `staged`); none appears before
//! the form has proved complete and well-paired. A file that comes before its metadata has no place
//! to go yet and is kept aside, which is the one case of a second copy. Parts with other names are
//! ignored, and whether a part carries a file name does not matter.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, IoSlice, Seek, Write},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use serde::Deserialize;
use tokio::task::{JoinHandle, spawn_blocking};

use super::{
    credentials::{FileAccess, FileUser},
    error::{Error, Result},
    multipart::{Event, Multipart},
    permission::Permission,
    staged::{Staged, aside},
};

/// One metadata part: a path of at most 4 KiB, which JSON may escape sixfold, and two names.
const METADATA_MAX: usize = 64 * 1024;

/// Files in one form; what is remembered of each is some 200 bytes.
const FILES_MAX: usize = 100_000;

/// Finished files that stay open until the form is complete; the others wait under a hidden name,
/// so that a form of thousands does not use up the descriptors.
const OPEN_MAX: usize = 64;

/// Files that may come before their metadata; each holds a descriptor.
const ASIDE_MAX: usize = 64;

/// Bytes handed to a writing thread at once. One such batch is being written while the next is
/// filled. A quarter of it costs a fifth more processor time in hand-overs.
const BATCH: usize = 1024 * 1024;

/// How much of a refused form is still read, and for how long, so that a client which sends first
/// and listens later gets to see the answer.
const DRAIN_MAX: usize = 16 * 1024 * 1024;
const DRAIN_TIME: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
struct Metadata {
    path: String,
    #[serde(flatten)]
    permission: Permission,
}

pub(super) async fn upload(user: FileUser, headers: HeaderMap, mut body: Body) -> Result<()> {
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("");
    let mut form = Form {
        user,
        waiting: VecDeque::new(),
        aside: VecDeque::new(),
        finished: Vec::new(),
        seen: [0; 2],
    };
    let result = match Multipart::new(content_type) {
        Ok(parser) => form.receive(parser, &mut body).await,
        Err(e) => Err(Error::BadForm(e.to_string())),
    };
    match result {
        Ok(()) => form.publish().await,
        Err(error) => {
            drain(&mut body).await;
            Err(error)
        }
    }
}

/// Reads on what is left of a body that is refused, within limits.
pub(super) async fn drain(body: &mut Body) {
    let rest = async {
        let mut left = DRAIN_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            let size = frame.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(size) else {
                return;
            };
            left = rest;
        }
    };
    // Whether the rest came or not changes nothing for the answer.
    let _ = tokio::time::timeout(DRAIN_TIME, rest).await;
}

struct Form {
    user: FileUser,
    /// Metadata whose file has not begun.
    waiting: VecDeque<Metadata>,
    /// Files whose metadata has not come.
    aside: VecDeque<File>,
    finished: Vec<Staged>,
    /// How many metadata and file parts there were.
    seen: [usize; 2],
}

/// What the content of the current part is for.
enum Part {
    Metadata(BytesMut),
    File(Box<Incoming>),
    Ignored,
}

impl Form {
    async fn receive(&mut self, mut parser: Multipart, body: &mut Body) -> Result<()> {
        let mut part = Part::Ignored;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| Error::Interrupted(e.to_string()))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            parser.feed(data);
            while let Some(event) = parser.next().map_err(|e| Error::BadForm(e.to_string()))? {
                match event {
                    Event::Part { name } => part = self.begin(&name)?,
                    Event::Data(data) => part.take(&self.user, data).await?,
                    Event::EndOfPart => {
                        let ended = std::mem::replace(&mut part, Part::Ignored);
                        self.end(ended).await?;
                    }
                    Event::EndOfForm => {}
                }
            }
        }
        parser.end().map_err(|e| Error::BadForm(e.to_string()))?;
        self.check_pairs()
    }

    fn begin(&mut self, name: &str) -> Result<Part> {
        let kind = match name {
            "metadata" => 0,
            "file" => 1,
            _ => return Ok(Part::Ignored),
        };
        self.seen[kind] += 1;
        if self.seen[kind] > FILES_MAX {
            return Err(limit(
                "FILES_MAX",
                FILES_MAX,
                "files in one form",
                "send them in several requests",
            ));
        }
        if kind == 0 {
            return Ok(Part::Metadata(BytesMut::new()));
        }
        Ok(Part::File(Box::new(Incoming::new(
            self.waiting.pop_front(),
        ))))
    }

    async fn end(&mut self, part: Part) -> Result<()> {
        match part {
            Part::Ignored => Ok(()),
            Part::Metadata(json) => {
                let metadata = parse(&json)?;
                match self.aside.pop_front() {
                    Some(file) => self.place(metadata, file).await,
                    None => {
                        self.waiting.push_back(metadata);
                        Ok(())
                    }
                }
            }
            Part::File(incoming) => {
                let stay_open = self.finished.len() < OPEN_MAX;
                match incoming.finish(&self.user, stay_open).await? {
                    Finished::Staged(staged) => self.finished.push(staged),
                    Finished::Aside(_) if self.aside.len() == ASIDE_MAX => {
                        let advice = "send each metadata part before its file part";
                        return Err(limit(
                            "ASIDE_MAX",
                            ASIDE_MAX,
                            "files before their metadata",
                            advice,
                        ));
                    }
                    Finished::Aside(file) => self.aside.push_back(file),
                }
                Ok(())
            }
        }
    }

    /// Copies a file that was kept aside to where its metadata says.
    async fn place(&mut self, metadata: Metadata, mut file: File) -> Result<()> {
        let stay_open = self.finished.len() < OPEN_MAX;
        let staged = self.user.run(move |access| {
            let mut staged = stage(access, &metadata)?;
            file.rewind()
                .and_then(|()| io::copy(&mut file, &mut &*staged.file()))
                .map_err(|e| Error::io("writing", staged.path(), e))?;
            staged.finish(stay_open)?;
            Ok(staged)
        });
        self.finished.push(staged.await?);
        Ok(())
    }

    fn check_pairs(&self) -> Result<()> {
        match self.seen {
            [0, 0] => Err(Error::BadForm("multipart form is empty".into())),
            [0, _] => Err(Error::BadMetadata("the form has no 'metadata' part".into())),
            [_, 0] => Err(Error::BadContent("the form has no 'file' part".into())),
            [metadata, files] if metadata != files => Err(Error::BadForm(format!(
                "the form has {metadata} 'metadata' parts and {files} 'file' parts; each file needs one of both"
            ))),
            _ => Ok(()),
        }
    }

    async fn publish(self) -> Result<()> {
        let finished = self.finished;
        self.user
            .run(move |_| finished.into_iter().try_for_each(Staged::publish))
            .await
    }
}

impl Part {
    async fn take(&mut self, user: &FileUser, data: Bytes) -> Result<()> {
        match self {
            Self::Ignored => Ok(()),
            Self::Metadata(json) if json.len() + data.len() > METADATA_MAX => {
                Err(Error::BadMetadata(format!(
                    "a metadata part is longer than METADATA_MAX = {METADATA_MAX} bytes"
                )))
            }
            Self::Metadata(json) => {
                json.extend_from_slice(&data);
                Ok(())
            }
            Self::File(incoming) => incoming.take(user, data).await,
        }
    }
}

/// A file part on its way to the disk. Its place is made when the first batch is full, so that a
/// small file costs a single visit to another thread.
struct Incoming {
    metadata: Option<Metadata>,
    batch: Vec<Bytes>,
    batch_size: usize,
    writing: Option<Writing>,
}

/// A place on the disk, and the batch being written to it.
struct Writing {
    file: Arc<File>,
    path: PathBuf,
    staged: Option<Staged>,
    in_flight: JoinHandle<io::Result<()>>,
}

enum Finished {
    Staged(Staged),
    Aside(File),
}

impl Incoming {
    fn new(metadata: Option<Metadata>) -> Self {
        Self {
            metadata,
            batch: Vec::new(),
            batch_size: 0,
            writing: None,
        }
    }

    async fn take(&mut self, user: &FileUser, data: Bytes) -> Result<()> {
        self.batch_size += data.len();
        self.batch.push(data);
        if self.batch_size < BATCH {
            return Ok(());
        }
        self.batch_size = 0;
        let batch = std::mem::take(&mut self.batch);
        let (file, path, staged) = match self.writing.take() {
            Some(writing) => writing.settle().await?,
            None => self.open(user).await?,
        };
        let target = file.clone();
        let in_flight = spawn_blocking(move || write(&target, &batch));
        self.writing = Some(Writing {
            file,
            path,
            staged,
            in_flight,
        });
        Ok(())
    }

    async fn open(&mut self, user: &FileUser) -> Result<(Arc<File>, PathBuf, Option<Staged>)> {
        let metadata = self.metadata.take();
        user.run(move |access| match metadata {
            Some(metadata) => {
                let staged = stage(access, &metadata)?;
                Ok((staged.file(), staged.path().to_path_buf(), Some(staged)))
            }
            None => {
                let (file, path) = aside()?;
                Ok((Arc::new(file), path, None))
            }
        })
        .await
    }

    async fn finish(mut self, user: &FileUser, stay_open: bool) -> Result<Finished> {
        let (file, path, staged) = match self.writing.take() {
            Some(writing) => writing.settle().await?,
            None if self.metadata.is_none() => self.open(user).await?,
            None => {
                let (metadata, batch) = (self.metadata.take(), self.batch);
                let small = move |access: &FileAccess| {
                    let metadata = metadata.expect("the arm above took the other case");
                    let staged = stage(access, &metadata)?;
                    finish(staged, &batch, stay_open)
                };
                return user.run(small).await.map(Finished::Staged);
            }
        };
        let batch = self.batch;
        user.run(move |_| match staged {
            Some(staged) => finish(staged, &batch, stay_open).map(Finished::Staged),
            None => {
                write(&file, &batch).map_err(|e| Error::io("writing", path, e))?;
                let file = file
                    .try_clone()
                    .map_err(|e| Error::Internal(e.to_string()))?;
                Ok(Finished::Aside(file))
            }
        })
        .await
    }
}

impl Writing {
    /// Waits for the batch in flight.
    async fn settle(self) -> Result<(Arc<File>, PathBuf, Option<Staged>)> {
        let written = self
            .in_flight
            .await
            .unwrap_or_else(|lost| Err(io::Error::other(lost)));
        written.map_err(|e| Error::io("writing", &self.path, e))?;
        Ok((self.file, self.path, self.staged))
    }
}

fn write(mut file: &File, batch: &[Bytes]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = batch.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut left = slices.as_mut_slice();
    while !left.is_empty() {
        match file.write_vectored(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut left, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn finish(mut staged: Staged, batch: &[Bytes], stay_open: bool) -> Result<Staged> {
    write(&staged.file(), batch).map_err(|e| Error::io("writing", staged.path(), e))?;
    staged.finish(stay_open)?;
    Ok(staged)
}

fn stage(access: &FileAccess, metadata: &Metadata) -> Result<Staged> {
    let attributes = metadata.permission.look_up(&access.accounts)?;
    let path = access
        .resolve(&metadata.path)
        .map_err(|error| match error {
            Error::BadPath { .. } => Error::BadMetadata(error.to_string()),
            other => other,
        })?;
    Staged::create(&path, attributes)
}

fn parse(json: &[u8]) -> Result<Metadata> {
    let metadata: Metadata = serde_json::from_slice(json).map_err(|e| {
        Error::BadMetadata(format!(
            "a metadata part is not the JSON object expected: {e}"
        ))
    })?;
    if metadata.path.is_empty() {
        return Err(Error::BadMetadata(
            "a metadata part has an empty path".into(),
        ));
    }
    Ok(metadata)
}

fn limit(name: &'static str, limit: usize, what: &'static str, advice: &'static str) -> Error {
    Error::Limit {
        name,
        limit: limit as u64,
        what,
        advice,
    }
}
