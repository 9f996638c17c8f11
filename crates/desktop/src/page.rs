//! noVNC's page, from the directory that the image has it in. Plain files, read whole; nothing else of
//! the disk can be reached.

use std::path::{Component, Path};

use axum::body::Body;
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use crate::error::{Error, Result};
use crate::limits::PAGE_BYTES_MAX;

const TYPES: &[(&str, &str)] = &[
    ("html", "text/html; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("json", "application/json"),
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("ico", "image/x-icon"),
    ("oga", "audio/ogg"),
    ("mp3", "audio/mpeg"),
    ("ttf", "font/ttf"),
    ("woff", "font/woff"),
];

/// One file of the page.
pub(crate) async fn file(directory: &Path, path: &str) -> Result<Response> {
    let missing = || {
        Error::NotFound(format!(
            "there is no /{path} here; the live view is /vnc.html"
        ))
    };
    let relative = Path::new(path);
    if !relative
        .components()
        .all(|part| matches!(part, Component::Normal(_)))
    {
        return Err(missing());
    }
    let extension = relative
        .extension()
        .and_then(|extension| extension.to_str())
        .unwrap_or_default();
    let (_, kind) = TYPES
        .iter()
        .find(|(known, _)| *known == extension)
        .ok_or_else(missing)?;
    let whole = directory.join(relative);
    let metadata = tokio::fs::metadata(&whole).await.map_err(|_| missing())?;
    if !metadata.is_file() || metadata.len() > PAGE_BYTES_MAX {
        return Err(missing());
    }
    let bytes = tokio::fs::read(&whole).await.map_err(|_| missing())?;
    Response::builder()
        .header(CONTENT_TYPE, *kind)
        .header(CACHE_CONTROL, "no-cache")
        .body(Body::from(bytes))
        .map_err(|e| Error::Failed(format!("answering a file: {e}")))
}
