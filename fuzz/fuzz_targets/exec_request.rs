//! Everything the daemon in a sandbox is asked as JSON.

#![no_main]

use api::exec::code::{CreateContextRequest, RunCodeRequest};
use api::exec::command::RunCommandRequest;
use api::exec::file::{FileMetadata, PermissionMap, Rename, Replace, ReplaceMap};
use api::exec::isolated::{CreateIsolatedSessionRequest, IsolatedRunRequest};
use api::exec::pty::CreatePtyRequest;
use api::exec::session::{CreateSessionRequest, RunInSessionRequest};
use api::json::{from_slice, from_slice_or_default, list_from_slice};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let _ = from_slice::<RunCommandRequest>(body).map(|it| it.validate());
    let _ = from_slice::<RunInSessionRequest>(body).map(|it| it.validate());
    let _ = from_slice::<RunCodeRequest>(body).map(|it| it.validate());
    let _ = from_slice::<CreateContextRequest>(body);
    let _ = from_slice::<FileMetadata>(body).map(|it| it.validate());
    let _ = from_slice::<PermissionMap>(body);
    let _ = from_slice::<ReplaceMap>(body).map(|it| Replace::validate_map(&it));
    let _ = list_from_slice::<Rename>(body);
    let _ = from_slice::<CreateIsolatedSessionRequest>(body).map(|it| it.validate());
    let _ = from_slice::<IsolatedRunRequest>(body).map(|it| it.validate());
    let _ = from_slice_or_default::<CreatePtyRequest>(body).map(|it| it.validate());
    let _ = from_slice_or_default::<CreateSessionRequest>(body).map(|it| it.validate());
});
