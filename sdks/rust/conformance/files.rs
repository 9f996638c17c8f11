//! The calls on files, and the archives and made-up bytes that they need.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use opensandbox::{ByteStream, Contents, Files, Sandbox, WriteFile};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::arguments::With;
use crate::calls::unknown;
use crate::{Failure, Made, silent, told};

/// What is made up is sent in pieces of this size.
const PIECE_BYTES: u64 = 64 * 1024;

pub(crate) async fn make(call: &str, on: &Sandbox, with: &With) -> Made {
    let files = match with.optional::<(u32, u32)>("as_user")? {
        Some((uid, gid)) => on.files().as_user(uid, gid),
        None => on.files(),
    };
    match call {
        "files.read"
        | "files.read_text"
        | "files.read_range"
        | "files.read_lines"
        | "files.download"
        | "files.download_archive" => read(call, &files, with).await,
        "files.info" | "files.exists" | "files.list" | "files.search" => {
            look(call, &files, with).await
        }
        _ => change(call, &files, with).await,
    }
}

fn base64(bytes: &[u8]) -> Value {
    json!({"base64": base64::engine::general_purpose::STANDARD.encode(bytes)})
}

async fn read(call: &str, files: &Files, with: &With) -> Made {
    let path = with.string("path");
    match call {
        "files.read" => told(base64(&files.read(path).await?)),
        "files.read_text" => told(json!({"text": files.read_text(path).await?})),
        "files.read_range" => {
            let range = with.need("start")?..with.need("end")?;
            told(base64(&files.read_range(path, range).await?))
        }
        "files.read_lines" => {
            let (first, count) = (with.need("first")?, with.need("count")?);
            told(json!({"text": files.read_lines(path, first, count).await?}))
        }
        "files.download" => digest(files.download(path).await?).await,
        "files.download_archive" => {
            let archive = files.download_archive(path).await?.bytes().await?;
            entries(&archive, true)
        }
        _ => unknown(call),
    }
}

async fn look(call: &str, files: &Files, with: &With) -> Made {
    let path = with.string("path");
    match call {
        "files.info" => told(files.info(&with.need::<Vec<String>>("paths")?).await?),
        "files.exists" => told(json!({"exists": files.exists(path).await?})),
        "files.list" => {
            let depth = with.optional("depth")?.unwrap_or(1);
            told(files.list(path, depth).await?)
        }
        "files.search" => told(files.search(path, with.string("pattern")).await?),
        _ => unknown(call),
    }
}

async fn change(call: &str, files: &Files, with: &With) -> Made {
    let path = with.string("path");
    let paths = || with.need::<Vec<String>>("paths");
    match call {
        "files.write" => silent(files.write_all(vec![with.file()?]).await?),
        "files.write_all" => {
            let given: Vec<_> = with.need("files")?;
            let all: Result<Vec<_>, _> = given.into_iter().map(|one| With(one).file()).collect();
            silent(files.write_all(all?).await?)
        }
        "files.upload" => {
            let length = with.need("bytes")?;
            let pieces = futures_util::stream::iter(made_up(length)).map(Ok);
            let contents = Contents::from_stream(pieces, None);
            files
                .write_all(vec![WriteFile::new(path, contents)])
                .await?;
            let mut hash = Sha256::new();
            made_up(length).for_each(|piece| hash.update(piece));
            told(json!({"sha256": hex::encode(hash.finalize())}))
        }
        "files.rename" => silent(files.rename(with.string("from"), with.string("to")).await?),
        "files.delete" => silent(files.delete(&paths()?).await?),
        "files.create_directories" => silent(files.create_directories(&paths()?).await?),
        "files.delete_directories" => silent(files.delete_directories(&paths()?).await?),
        "files.set_permissions" => {
            let permissions = [(path.to_owned(), with.permission()?)].into();
            silent(files.set_permissions(&permissions).await?)
        }
        "files.replace" => {
            let (old, new) = (with.string("old"), with.string("new"));
            told(json!({"count": files.replace(path, old, new).await?}))
        }
        "files.upload_archive" => {
            let archive = packed(&with.need("files")?)?;
            told(files.upload_archive(path, archive).await?)
        }
        _ => unknown(call),
    }
}

/// How many bytes, and which, read as they come.
async fn digest(mut stream: ByteStream) -> Made {
    let (mut bytes, mut hash) = (0, Sha256::new());
    while let Some(piece) = stream.try_next().await? {
        bytes += piece.len();
        hash.update(piece);
    }
    told(json!({"bytes": bytes, "sha256": hex::encode(hash.finalize())}))
}

/// Bytes that anyone can make again: each is its place modulo 251.
fn made_up(length: u64) -> impl Iterator<Item = Bytes> + Send {
    let starts = (0..length).step_by(usize::try_from(PIECE_BYTES).unwrap_or(usize::MAX));
    starts.map(move |start| {
        let end = length.min(start + PIECE_BYTES);
        (start..end)
            .map(|at| u8::try_from(at % 251).unwrap_or_default())
            .collect()
    })
}

/// Files as tar, with the directories on the way.
pub(crate) fn packed(files: &BTreeMap<String, String>) -> Result<Bytes, Failure> {
    let broken = |error: std::io::Error| Failure::Runner(error.to_string());
    let mut archive = tar::Builder::new(Vec::new());
    let mut add = |kind, mode, name: &str, content: &str| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(content.len() as u64);
        archive
            .append_data(&mut header, name, content.as_bytes())
            .map_err(broken)
    };
    let mut seen = BTreeSet::new();
    for (name, content) in files {
        let name = name.trim_start_matches('/');
        for (end, _) in name.match_indices('/') {
            let directory = &name[..=end];
            if seen.insert(directory) {
                add(tar::EntryType::Directory, 0o755, directory, "")?;
            }
        }
        add(tar::EntryType::Regular, 0o644, name, content)?;
    }
    archive.into_inner().map(Bytes::from).map_err(broken)
}

/// How long an archive is, and the names in it, of files alone if so said.
pub(crate) fn entries(archive: &[u8], is_of_files: bool) -> Made {
    let broken = |error: std::io::Error| Failure::Runner(error.to_string());
    let mut names = BTreeSet::new();
    for entry in tar::Archive::new(archive).entries().map_err(broken)? {
        let entry = entry.map_err(broken)?;
        if !is_of_files || entry.header().entry_type().is_file() {
            let name = entry.path().map_err(broken)?;
            let name = name.to_string_lossy().into_owned();
            names.insert(name.trim_start_matches("./").to_owned());
        }
    }
    told(json!({"bytes": archive.len(), "entries": names}))
}
