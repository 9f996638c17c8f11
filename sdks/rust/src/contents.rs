//! What is written to files and read from them: bytes, or streams of bytes that are never whole in
//! memory.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use api::exec::file::FileMetadata;
use api::file_mode::FileMode;
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use http::HeaderValue;
use http::header::CONTENT_LENGTH;
use tokio::io::AsyncRead;
use tokio_util::io::{ReaderStream, StreamReader};

use crate::error::{Error, Result};
use crate::transport;

/// Forms up to this size are put together in memory and can be sent again; larger ones are sent
/// as they are read.
const WHOLE_BYTES_MAX: u64 = 1024 * 1024;

/// Files are read in pieces of this size: what a socket takes at once.
const PIECE_BYTES: usize = 256 * 1024;

type Pieces = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// What a file is to contain.
pub struct Contents {
    source: Source,
    length: Option<u64>,
}

enum Source {
    Bytes(Bytes),
    Stream(Pieces),
}

impl std::fmt::Debug for Contents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contents")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl Contents {
    /// What a stream gives; its length in bytes, where it is known, must be right.
    pub fn from_stream(
        stream: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        length: Option<u64>,
    ) -> Self {
        Self {
            source: Source::Stream(Box::pin(stream)),
            length,
        }
    }

    /// What a reader gives; its length in bytes, where it is known, must be right.
    pub fn from_reader(reader: impl AsyncRead + Send + 'static, length: Option<u64>) -> Self {
        Self::from_stream(ReaderStream::with_capacity(reader, PIECE_BYTES), length)
    }

    /// What a file of this machine contains.
    pub async fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let file = tokio::fs::File::open(path).await.map_err(Error::Source)?;
        let metadata = file.metadata().await.map_err(Error::Source)?;
        // What is not a regular file has a length only when it was read.
        let length = metadata.is_file().then_some(metadata.len());
        Ok(Self::from_reader(file, length))
    }

    /// How many bytes, if that is known.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    fn into_pieces(self) -> Pieces {
        match self.source {
            Source::Bytes(bytes) => one(bytes),
            Source::Stream(pieces) => pieces,
        }
    }

    pub(crate) fn into_body(self) -> reqwest::Body {
        match self.source {
            Source::Bytes(bytes) => bytes.into(),
            Source::Stream(pieces) => reqwest::Body::wrap_stream(pieces),
        }
    }
}

fn one(bytes: impl Into<Bytes>) -> Pieces {
    let bytes = bytes.into();
    Box::pin(futures_util::stream::once(async { Ok(bytes) }))
}

impl From<Bytes> for Contents {
    fn from(bytes: Bytes) -> Self {
        Self {
            length: Some(bytes.len() as u64),
            source: Source::Bytes(bytes),
        }
    }
}

impl From<Vec<u8>> for Contents {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<String> for Contents {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl From<&str> for Contents {
    fn from(text: &str) -> Self {
        Bytes::copy_from_slice(text.as_bytes()).into()
    }
}

impl From<&[u8]> for Contents {
    fn from(bytes: &[u8]) -> Self {
        Bytes::copy_from_slice(bytes).into()
    }
}

/// A file to write.
#[derive(Debug)]
#[must_use = "it is written when it is given to `Files::write_all`"]
pub struct WriteFile {
    metadata: FileMetadata,
    contents: Contents,
}

impl WriteFile {
    /// A file at this path with these contents.
    pub fn new(path: impl Into<String>, contents: impl Into<Contents>) -> Self {
        Self {
            metadata: FileMetadata {
                path: path.into(),
                ..FileMetadata::default()
            },
            contents: contents.into(),
        }
    }

    /// Its mode: `0o644`.
    pub fn mode(mut self, mode: u32) -> Self {
        self.metadata.mode = Some(FileMode::from_bits(mode));
        self
    }

    /// Its owner, by name or number.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.metadata.owner = Some(owner.into());
        self
    }

    /// Its group, by name or number.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.metadata.group = Some(group.into());
        self
    }
}

/// An upload as it goes over the wire.
pub(crate) struct Form {
    pub(crate) content_type: HeaderValue,
    pub(crate) length: Option<u64>,
    pub(crate) body: FormBody,
}

pub(crate) enum FormBody {
    Whole(Bytes),
    Stream(reqwest::Body),
}

/// A `metadata` and a `file` part for each file.
pub(crate) fn form(files: Vec<WriteFile>) -> Form {
    let boundary = format!("osb-{:032x}", rand::random::<u128>());
    let mut length = Some(0_u64);
    let mut is_whole = true;
    let mut parts: Vec<Pieces> = Vec::new();
    let mut add = |part: Pieces, bytes: Option<u64>| {
        length = length.zip(bytes).map(|(sum, more)| sum + more);
        parts.push(part);
    };
    for file in files {
        let head = part_heads(&boundary, &file.metadata);
        is_whole &= matches!(file.contents.source, Source::Bytes(_));
        let bytes = Some(head.len() as u64);
        add(one(head), bytes);
        let bytes = file.contents.length;
        add(file.contents.into_pieces(), bytes);
        add(one("\r\n"), Some(2));
    }
    let end = format!("--{boundary}--\r\n");
    let bytes = Some(end.len() as u64);
    add(one(end), bytes);
    let content_type = HeaderValue::try_from(format!("multipart/form-data; boundary={boundary}"));
    let stream = futures_util::stream::iter(parts).flatten();
    let body = match length {
        Some(length) if is_whole && length <= WHOLE_BYTES_MAX => FormBody::Whole(gather(stream)),
        _ => FormBody::Stream(reqwest::Body::wrap_stream(stream)),
    };
    Form {
        content_type: content_type.expect("a boundary is letters and digits"),
        length,
        body,
    }
}

fn part_heads(boundary: &str, metadata: &FileMetadata) -> String {
    let json = serde_json::to_string(metadata).expect("a path and three settings");
    // The published daemon wants every part to have a file name; which does not matter.
    format!(
        "--{boundary}\r\n\
         Content-Disposition: form-data; name=\"metadata\"; filename=\"metadata\"\r\n\
         Content-Type: application/json\r\n\r\n\
         {json}\r\n\
         --{boundary}\r\n\
         Content-Disposition: form-data; name=\"file\"; filename=\"file\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    )
}

/// The pieces of a stream that is in memory already.
fn gather(stream: impl Stream<Item = io::Result<Bytes>>) -> Bytes {
    use futures_util::FutureExt as _;
    let whole = stream.try_fold(BytesMut::new(), |mut whole, piece| async move {
        whole.extend_from_slice(&piece);
        Ok(whole)
    });
    let whole = whole.now_or_never().expect("bytes in memory do not wait");
    whole.expect("bytes in memory do not fail").freeze()
}

/// Bytes as they arrive: a [`Stream`], or a reader by [`into_reader`](Self::into_reader).
pub struct ByteStream {
    length: Option<u64>,
    pieces: Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>,
}

impl std::fmt::Debug for ByteStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ByteStream")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl ByteStream {
    pub(crate) fn new(answer: reqwest::Response) -> Self {
        let length = answer.headers().get(CONTENT_LENGTH);
        let length = length.and_then(|value| value.to_str().ok()?.parse().ok());
        let url = answer.url().path().to_owned();
        let pieces = answer.bytes_stream();
        Self {
            length,
            pieces: Box::pin(
                pieces.map_err(move |error| transport::unreachable(url.clone(), error)),
            ),
        }
    }

    /// How many bytes there are in all, if that is known.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// Reads to the end.
    pub async fn bytes(mut self) -> Result<Vec<u8>> {
        let mut whole = Vec::new();
        while let Some(piece) = self.pieces.next().await {
            whole.extend_from_slice(&piece?);
        }
        Ok(whole)
    }

    /// The same as a reader.
    pub fn into_reader(self) -> impl AsyncRead + Send + Unpin {
        StreamReader::new(self.pieces.map_err(io::Error::other))
    }
}

impl Stream for ByteStream {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.pieces.as_mut().poll_next(cx)
    }
}
