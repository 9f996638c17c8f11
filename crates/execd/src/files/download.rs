//! `GET /files/download`: a file's bytes, one range of them, or some of its lines.
//!
//! Symbolic links are followed; only regular files are served. A file whose size the kernel gives as
//! zero may still have content (everything in /proc): it is read first and then served like any
//! other. How a file is read is in `pieces`.

use std::{fs::File, os::unix::fs::FileExt, path::Path, sync::Arc};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat};
use tokio::task::spawn_blocking;

use super::{
    conditional::{self, Verdict, Version},
    credentials::FileUser,
    error::{Error, Result},
    lines::Lines,
    pieces::{PIECE, Pieces},
    query::Query,
    range::{ByteRange, wanted},
};

/// The most that is read of a file whose size is unknown beforehand. Kernel files are far smaller.
const UNSIZED_MAX: usize = 16 * 1024 * 1024;

pub(super) async fn download(
    user: FileUser,
    uri: http::Uri,
    headers: HeaderMap,
) -> Result<Response> {
    let query = Query::of(&uri);
    let path = query.path()?;
    let (offset, limit) = (query.number("offset", 1)?, query.number("limit", 1)?);
    let by_lines = offset.is_some() || limit.is_some();
    if by_lines && headers.contains_key(header::RANGE) {
        let why = "it cannot be combined with a Range header; use one or the other".into();
        return Err(Error::BadQuery {
            name: if offset.is_some() { "offset" } else { "limit" },
            why,
        });
    }
    user.run(move |access| {
        let path = access.resolve(&path)?;
        let (file, stat) = open(&path)?;
        if by_lines {
            return Ok(lines(file, Lines::new(offset.unwrap_or(1), limit)));
        }
        whole_or_part(file, &stat, &path, &headers)
    })
    .await
}

fn open(path: &Path) -> Result<(File, Stat)> {
    // Not to wait for a writer when the path is a named pipe.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file =
        openat(CWD, path, flags, Mode::empty()).map_err(|e| Error::io("reading", path, e))?;
    let stat = fstat(&file).map_err(|e| Error::io("reading", path, e))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok((file.into(), stat)),
        FileType::Directory => Err(Error::WrongKind {
            path: path.into(),
            what: "is a directory",
        }),
        _ => Err(Error::WrongKind {
            path: path.into(),
            what: "is not a regular file",
        }),
    }
}

fn whole_or_part(file: File, stat: &Stat, path: &Path, headers: &HeaderMap) -> Result<Response> {
    let unsized_content = if stat.st_size == 0 {
        read_unsized(&file, path)?
    } else {
        Vec::new()
    };
    let size = u64::try_from(stat.st_size)
        .unwrap_or(0)
        .max(unsized_content.len() as u64);
    let version = Version::of(stat);
    let mut answer = Response::new(Body::empty());
    version.describe(answer.headers_mut());
    let verdict = conditional::judge(headers, &version);
    let without_content = match verdict {
        Verdict::NotModified => Some(StatusCode::NOT_MODIFIED),
        Verdict::PreconditionFailed => Some(crate::http::PRECONDITION_FAILED),
        Verdict::Serve | Verdict::ServeWhole => None,
    };
    if let Some(status) = without_content {
        *answer.status_mut() = status;
        return Ok(answer);
    }
    let asked = headers
        .get(header::RANGE)
        .filter(|_| verdict == Verdict::Serve)
        .map(|value| value.to_str().unwrap_or("?"));
    let (start, length) = match wanted(asked, size) {
        ByteRange::All => (0, size),
        ByteRange::Part { start, length } => {
            *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
            let range = format!("bytes {start}-{}/{size}", start + length - 1);
            answer
                .headers_mut()
                .insert(header::CONTENT_RANGE, ascii(&range));
            (start, length)
        }
        ByteRange::Unsatisfiable => {
            return Err(Error::Range {
                range: asked.unwrap_or("").into(),
                size,
            });
        }
    };
    let fields = answer.headers_mut();
    fields.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    fields.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    fields.insert(header::CONTENT_LENGTH, length.into());
    fields.insert(header::CONTENT_DISPOSITION, disposition(path));
    *answer.body_mut() = if unsized_content.is_empty() {
        content(file, path, start, length)?
    } else {
        let all = Bytes::from(unsized_content);
        Body::from(all.slice(index(start)..index(start + length)))
    };
    Ok(answer)
}

/// An offset into something that is in memory.
fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("what is in memory is addressable")
}

fn read_unsized(file: &File, path: &Path) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    // Always the same size: some kernel files give whole records only.
    let mut piece = vec![0; PIECE];
    while content.len() <= UNSIZED_MAX {
        let read = file
            .read_at(&mut piece, content.len() as u64)
            .map_err(|e| Error::io("reading", path, e))?;
        if read == 0 {
            return Ok(content);
        }
        content.extend_from_slice(&piece[..read]);
    }
    Err(Error::Limit {
        name: "UNSIZED_MAX",
        limit: UNSIZED_MAX as u64,
        what: "bytes in a file that has no size of its own",
        advice: "read it with a command instead",
    })
}

/// What fits one piece is read now, on the thread that is here anyway.
fn content(file: File, path: &Path, start: u64, length: u64) -> Result<Body> {
    if length > PIECE as u64 {
        return Ok(Body::from_stream(
            Pieces::new(file, start, length).into_stream(),
        ));
    }
    let mut small = vec![0; index(length)];
    file.read_exact_at(&mut small, start)
        .map_err(|e| Error::io("reading", path, e))?;
    Ok(Body::from(small))
}

fn lines(file: File, wanted: Lines) -> Response {
    let file = Arc::new(file);
    let pieces = stream::try_unfold((0u64, wanted), move |(at, wanted)| {
        let file = file.clone();
        async move {
            spawn_blocking(move || next_lines(&file, at, wanted))
                .await
                .unwrap_or_else(|lost| Err(std::io::Error::other(lost)))
        }
    });
    let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    (kind, Body::from_stream(pieces)).into_response()
}

/// Reads on from `at` until there is something to give.
fn next_lines(
    file: &File,
    mut at: u64,
    mut wanted: Lines,
) -> std::io::Result<Option<(Bytes, (u64, Lines))>> {
    let mut piece = vec![0; PIECE];
    let mut out = Vec::new();
    while out.is_empty() && !wanted.done() {
        let read = file.read_at(&mut piece, at)?;
        if read == 0 {
            return Ok(None);
        }
        at += read as u64;
        wanted.feed(&piece[..read], &mut out);
    }
    Ok((!out.is_empty()).then(|| (out.into(), (at, wanted))))
}

/// The name a browser would save the file under.
fn disposition(path: &Path) -> HeaderValue {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy())
        .unwrap_or_default();
    let plain: String = name
        .chars()
        .map(|c| {
            if c.is_ascii() && !c.is_ascii_control() {
                c
            } else {
                '_'
            }
        })
        .collect();
    let mut value = format!(
        "attachment; filename=\"{}\"",
        plain.replace('\\', "\\\\").replace('"', "\\\"")
    );
    if plain != name {
        value.push_str("; filename*=UTF-8''");
        for byte in name.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                value.push(char::from(byte));
            } else {
                value.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    ascii(&value)
}

fn ascii(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("made of visible ASCII only")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_for_browsers() {
        let of = |name: &str| disposition(Path::new(name)).to_str().unwrap().to_string();
        assert_eq!(of("/a/b.txt"), "attachment; filename=\"b.txt\"");
        assert_eq!(of("/a/q\"\\.txt"), "attachment; filename=\"q\\\"\\\\.txt\"");
        assert_eq!(
            of("/a/ü\n.txt"),
            "attachment; filename=\"__.txt\"; filename*=UTF-8''%C3%BC%0A.txt"
        );
    }
}
