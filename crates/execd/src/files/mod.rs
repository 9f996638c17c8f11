//! The files API: everything under `/files` and `/directories`, and the same again under
//! `/v1/filesystem/{uid}/{gid}` with the rights of that user.
//!
//! Symbolic links, in one place: a path's inner components are followed as the kernel does. At its
//! end, `info`, `mv`, both deletions, listings and searches mean the link itself; `download`,
//! `upload`, `replace` and `permissions` mean what it points to; a link as the root of a listing is
//! refused, as the root of a search or an archive it is followed.
//!
//! A request that names several files stops at the first that fails and says which; what was done
//! before stays done, except where a module says otherwise.

mod accounts;
mod archive;
mod conditional;
mod credentials;
mod download;
mod error;
mod extract;
mod glob;
mod info;
mod lines;
mod multipart;
mod path;
mod permission;
mod pieces;
mod query;
mod range;
mod remove;
mod replace;
mod staged;
mod transfer;
mod upload;
mod walk;

use std::{fmt, marker::PhantomData, sync::Arc};

use axum::{
    Router,
    body::Body,
    response::{IntoResponse, Response},
    routing::{delete, get, post},
};
use http::{HeaderValue, Uri, header};
use rustix::fs::{AtFlags, CWD, statat};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor},
    ser::SerializeMap,
};

pub(crate) use self::error::Error;
use self::{
    credentials::FileUser, error::Result, glob::Glob, info::FileInfo, permission::Permission,
    query::Query,
};
use crate::{http::Json, state::Shared};

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let routes = || {
        Router::new()
            .route("/files", delete(delete_files))
            .route("/files/info", get(info))
            .route("/files/permissions", post(permissions))
            .route("/files/mv", post(mv))
            .route("/files/search", get(search))
            .route("/files/replace", post(replace_text))
            .route("/files/upload", post(upload::upload))
            .route("/files/download", get(download::download))
            .route(
                "/directories",
                post(make_directories).delete(delete_directories),
            )
            .route("/directories/list", get(list))
            .route("/directories/archive", get(archive::get).put(extract::put))
    };
    routes()
        .nest("/v1/filesystem/{uid}/{gid}", routes())
        .with_state(shared)
}

async fn info(user: FileUser, uri: Uri) -> Result<Response> {
    let paths = Query::of(&uri).paths();
    let json = user.run(move |access| {
        let mut described = Vec::with_capacity(paths.len());
        for raw in paths {
            let path = access.resolve(&raw)?;
            let stat = statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|e| Error::io("looking at", &path, e))?;
            described.push((raw, path, stat));
        }
        let pairs = described.iter().map(|(raw, path, stat)| {
            (
                raw.to_string_lossy(),
                FileInfo::new(path.as_os_str().as_encoded_bytes(), stat, &access.accounts),
            )
        });
        to_json(&Pairs(pairs.collect()))
    });
    Ok(json_answer(Body::from(json.await?)))
}

async fn delete_files(user: FileUser, uri: Uri) -> Result<()> {
    let paths = Query::of(&uri).paths();
    user.run(move |access| {
        paths
            .iter()
            .try_for_each(|raw| remove::file(&access.resolve(raw)?))
    })
    .await
}

async fn permissions(user: FileUser, Json(wanted): Json<Pairs<String, Permission>>) -> Result<()> {
    user.run(move |access| {
        wanted.0.iter().try_for_each(|(raw, permission)| {
            permission
                .look_up(&access.accounts)?
                .apply_to(&access.resolve(raw)?)
        })
    })
    .await
}

#[derive(Deserialize)]
struct Move {
    src: String,
    dest: String,
}

async fn mv(user: FileUser, Json(moves): Json<Vec<Move>>) -> Result<()> {
    user.run(move |access| {
        moves.iter().try_for_each(|item| {
            transfer::rename(&access.resolve(&item.src)?, &access.resolve(&item.dest)?)
        })
    })
    .await
}

async fn search(user: FileUser, uri: Uri) -> Result<Response> {
    let query = Query::of(&uri);
    let root = query.path()?;
    let pattern = query.text("pattern")?.filter(|pattern| !pattern.is_empty());
    let glob = Glob::new(pattern.as_deref().unwrap_or("**"))?;
    let found =
        user.run(move |access| walk::search(&access.resolve(&root)?, &glob, &access.accounts));
    Ok(many(found.await?))
}

async fn list(user: FileUser, uri: Uri) -> Result<Response> {
    let query = Query::of(&uri);
    let root = query.path()?;
    let depth = query.number("depth", 0)?.unwrap_or(1);
    let listed =
        user.run(move |access| walk::list(&access.resolve(&root)?, depth, &access.accounts));
    Ok(many(listed.await?))
}

#[derive(Deserialize)]
struct Replacement {
    old: String,
    new: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Replaced {
    replaced_count: u64,
}

async fn replace_text(
    user: FileUser,
    uri: Uri,
    Json(wanted): Json<Pairs<String, Replacement>>,
) -> Result<Response> {
    let verbose = Query::of(&uri).flag("verbose")?;
    let json = user.run(move |access| {
        let mut counts = Vec::new();
        let mut changed = Vec::new();
        for (raw, Replacement { old, new }) in wanted.0 {
            let (replaced_count, staged) = replace::prepare(&access.resolve(&raw)?, &old, &new)?;
            counts.push((raw, Replaced { replaced_count }));
            changed.extend(staged);
        }
        changed.into_iter().try_for_each(staged::Staged::publish)?;
        to_json(&Pairs(counts))
    });
    let json = json.await?;
    Ok(if verbose {
        json_answer(Body::from(json))
    } else {
        ().into_response()
    })
}

async fn make_directories(
    user: FileUser,
    Json(wanted): Json<Pairs<String, Permission>>,
) -> Result<()> {
    user.run(move |access| {
        wanted.0.iter().try_for_each(|(raw, permission)| {
            let attributes = permission.look_up(&access.accounts)?;
            let path = access.resolve(raw)?;
            let was_there = path.is_dir();
            std::fs::create_dir_all(&path).map_err(|e| match e.kind() {
                std::io::ErrorKind::AlreadyExists => Error::WrongKind {
                    path: path.clone(),
                    what: "exists and is not a directory",
                },
                _ => Error::io("making the directory", &path, e),
            })?;
            // A directory somebody else set up keeps what they gave it.
            if was_there {
                Ok(())
            } else {
                attributes.apply_to(&path)
            }
        })
    })
    .await
}

async fn delete_directories(user: FileUser, uri: Uri) -> Result<()> {
    let paths = Query::of(&uri).paths();
    user.run(move |access| {
        paths
            .iter()
            .try_for_each(|raw| remove::tree(&access.resolve(raw)?))
    })
    .await
}

fn to_json(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|e| Error::Internal(e.to_string()))
}

fn json_answer(body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

/// An answer of this size is worth a look at the heap when it is gone.
const LARGE_ANSWER: usize = 1024 * 1024;

fn many(answer: walk::Answer) -> Response {
    struct GiveBack;

    impl Drop for GiveBack {
        fn drop(&mut self) {
            crate::sys::heap::give_back();
        }
    }

    let pieces = answer.finish();
    let length: usize = pieces.iter().map(bytes::Bytes::len).sum();
    let large = (length >= LARGE_ANSWER).then_some(GiveBack);
    // Dropped with the stream, after the pieces.
    let stream = futures_util::stream::unfold((pieces.into_iter(), large), async |mut rest| {
        let piece = rest.0.next()?;
        Some((Ok::<_, std::convert::Infallible>(piece), rest))
    });
    let mut response = json_answer(Body::from_stream(stream));
    response
        .headers_mut()
        .insert(header::CONTENT_LENGTH, length.into());
    response
}

/// A JSON object in the order it was written, since the order of the work follows it.
struct Pairs<K, V>(Vec<(K, V)>);

impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for Pairs<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder<K, V>(PhantomData<(K, V)>);

        impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Visitor<'de> for InOrder<K, V> {
            type Value = Vec<(K, V)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a path as each key")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(pairs)
            }
        }

        deserializer
            .deserialize_map(InOrder(PhantomData))
            .map(Pairs)
    }
}

impl<K: Serialize, V: Serialize> Serialize for Pairs<K, V> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}
