//! The user whose rights a request reads and writes files with, and the thread it does so on.
//!
//! Without an identity the work runs on the runtime's blocking pool with the daemon's own rights.
//! Under `/v1/filesystem/{uid}/{gid}` it runs on a thread of its own whose *filesystem* ids,
//! groups and capabilities are changed for good, and which ends with the work: credentials are
//! per thread in the kernel, so nobody else sees the change, and there is no way to forget to
//! change back. Only the filesystem ids are changed, never the real ones: a thread whose real uid
//! is the user's could be killed by that user, and SIGKILL to one thread ends the daemon.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use tokio::sync::oneshot;

use super::{
    accounts,
    error::{Error, Result},
    path,
};
use crate::{identity::Accounts, state::Shared, sys::fscred};

/// The user that a request reads and writes files as.
#[derive(Clone)]
pub(super) struct FileUser {
    shared: Arc<Shared>,
    identity: Option<(u32, u32)>,
}

/// What work on files knows about its user while it runs.
pub(super) struct FileAccess {
    shared: Arc<Shared>,
    home: Option<PathBuf>,
    pub(super) accounts: Arc<Accounts>,
    /// Whether files may be given to other users: the daemon's own rights and root's.
    pub(super) may_give_away: bool,
}

impl FileAccess {
    /// The absolute path the client means.
    pub(super) fn resolve(&self, raw: impl AsRef<OsStr>) -> Result<PathBuf> {
        path::resolve(raw.as_ref(), &self.shared.environment, self.home.as_deref())
    }
}

impl FileUser {
    pub(super) fn new(shared: Arc<Shared>, identity: Option<(u32, u32)>) -> Self {
        Self { shared, identity }
    }

    fn access(&self) -> FileAccess {
        let accounts = accounts::current();
        let user = self.identity.and_then(|(uid, _)| accounts.user(uid));
        FileAccess {
            shared: self.shared.clone(),
            home: user
                .map(|user| user.home.clone())
                .filter(|home| home.starts_with("/")),
            may_give_away: self.identity.is_none_or(|(uid, _)| uid == 0)
                && rustix::process::geteuid().is_root(),
            accounts,
        }
    }

    /// Runs `work` with the user's rights.
    pub(super) async fn run<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&FileAccess) -> Result<T> + Send + 'static,
    {
        if self.identity.is_some() {
            return self.run_apart(work)?.await.unwrap_or_else(|_| Err(lost()));
        }
        let access = self.access();
        tokio::task::spawn_blocking(move || work(&access))
            .await
            .unwrap_or_else(|_| Err(lost()))
    }

    /// Runs `work` with the user's rights on a thread of its own, for work that may wait long
    /// for the other end of the connection and so must not hold a place in the blocking pool.
    pub(super) fn run_apart<T, F>(&self, work: F) -> Result<oneshot::Receiver<Result<T>>>
    where
        T: Send + 'static,
        F: FnOnce(&FileAccess) -> Result<T> + Send + 'static,
    {
        let (answer, receiver) = oneshot::channel();
        let access = self.access();
        let identity = self.identity;
        std::thread::Builder::new()
            .name("files".into())
            .spawn(move || {
                let result = identity
                    .map_or(Ok(()), |who| assume(&access.accounts, who))
                    .and_then(|()| work(&access));
                // The client may have gone; the work is done all the same.
                let _ = answer.send(result);
            })
            .map_err(|e| Error::Internal(format!("no thread for the request: {e}")))?;
        Ok(receiver)
    }
}

fn lost() -> Error {
    Error::Internal("the thread that served the request died; see the daemon's log".into())
}

/// Takes on the rights of `uid` and `gid` with the groups the sandbox's group file gives the user.
fn assume(accounts: &Accounts, (uid, gid): (u32, u32)) -> Result<()> {
    fscred::assume(uid, gid, &accounts.groups_of(uid, gid)).map_err(|_| Error::Identity {
        own: rustix::process::geteuid().as_raw(),
        uid,
        gid,
    })
}

impl FromRequestParts<Arc<Shared>> for FileUser {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self> {
        let params = RawPathParams::from_request_parts(parts, shared)
            .await
            .map_err(|e| Error::Internal(e.to_string()))?;
        let mut ids = [None, None];
        for (name, value) in &params {
            let slot = match name {
                "uid" => 0,
                "gid" => 1,
                _ => continue,
            };
            ids[slot] = Some(id(if slot == 0 { "uid" } else { "gid" }, value)?);
        }
        let identity = match ids {
            [Some(uid), Some(gid)] => Some((uid, gid)),
            _ => None,
        };
        Ok(Self::new(shared.clone(), identity))
    }
}

/// The kernel's last number means "no change" and names nobody.
fn id(name: &'static str, text: &str) -> Result<u32> {
    text.parse()
        .ok()
        .filter(|id| *id != u32::MAX && text.bytes().all(|b| b.is_ascii_digit()))
        .ok_or_else(|| Error::BadQuery {
            name,
            why: format!("'{text}' is not a number from 0 to {}", u32::MAX - 1),
        })
}

/// The directory that holds `path`; `/` is its own.
pub(super) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_plain_numbers_below_the_kernels_no_change() {
        assert_eq!(id("uid", "0").unwrap(), 0);
        assert_eq!(id("uid", "4294967294").unwrap(), u32::MAX - 1);
        for wrong in ["4294967295", "4294967296", "-1", "+1", "", "root", "1.0"] {
            assert!(id("gid", wrong).is_err(), "{wrong}");
        }
    }
}
