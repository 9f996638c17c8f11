//! From one sandbox into another, through this machine but not onto its disk.

use std::io;

use api::exec::file::FileKind;
use futures_util::StreamExt as _;
use opensandbox::{ByteStream, Contents, Sandbox, WriteFile};

use super::{is_directory, needs_recursive};
use crate::error::Error;
use crate::progress::bytes;

/// Copies a file or a directory, by the rules of every copy.
pub(super) async fn between(
    from: (&Sandbox, &str),
    to: (&Sandbox, &str),
    recursive: bool,
) -> Result<String, Error> {
    let ((source, from), (target, to)) = (from, to);
    let plain = from.trim_end_matches("/.").trim_end_matches('/');
    let plain = if plain.is_empty() { "/" } else { plain };
    let name = plain.rsplit('/').next().filter(|name| !name.is_empty());
    let is_into = to.ends_with('/') || is_directory(target, to).await?;
    let name = name.filter(|_| is_into && !from.ends_with("/."));
    let path = match name {
        Some(name) => format!("{}/{name}", to.trim_end_matches('/')),
        None => to.to_owned(),
    };
    let summary = |size: u64| {
        let (source, target) = (source.id(), target.id());
        format!("{source}:{from} to {target}:{path}, {}", bytes(size))
    };
    if is_directory(source, plain).await? {
        if !recursive {
            return Err(needs_recursive(from));
        }
        let stream = source.files().download_archive(plain).await?;
        let answer = target
            .files()
            .upload_archive(&path, contents(stream))
            .await?;
        return Ok(summary(answer.bytes));
    }
    let found = source.files().info(&[plain]).await?;
    let info = found.values().next();
    let stream = source.files().download(plain).await?;
    let size = stream.length().unwrap_or_default();
    let mut file = WriteFile::new(&path, contents(stream));
    if let Some(info) = info.filter(|info| info.kind == Some(FileKind::File)) {
        file = file.mode(info.mode.bits() & 0o777);
    }
    target.files().write_all(vec![file]).await?;
    Ok(summary(size))
}

fn contents(stream: ByteStream) -> Contents {
    let length = stream.length();
    let pieces = stream.map(|piece| piece.map_err(io::Error::other));
    Contents::from_stream(pieces, length)
}
