//! The rules for what the daemon in a sandbox is asked.

use std::collections::{BTreeMap, BTreeSet};

use super::process::{check_arguments, check_environment_map, check_text};
use crate::error::ErrorCode;
use crate::exec::code::{CreateContextRequest, RunCodeRequest};
use crate::exec::command::RunCommandRequest;
use crate::exec::file::{FILESYSTEM_ID_MAX, FileMetadata, Replace};
use crate::exec::isolated::{CreateIsolatedSessionRequest, IsolatedRunRequest, OVERLAYS_MAX};
use crate::exec::pty::CreatePtyRequest;
use crate::exec::session::{CreateSessionRequest, RunInSessionRequest};
use crate::problem::{Excerpt, Problem, Problems};

const CODE: ErrorCode = ErrorCode::InvalidRequestBody;

impl RunCommandRequest {
    /// Every problem of the request.
    pub fn validate(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Problems::new();
        let command = self
            .command
            .as_deref()
            .filter(|command| !command.is_empty());
        match (command, &self.argv) {
            (Some(command), None) => {
                check_text(CODE, || "command".to_owned(), command, &mut problems);
            }
            (None, Some(argv)) => check_arguments(CODE, "argv", argv, &mut problems),
            (None, None) => {
                problems.add_code(CODE, "command", "is missing; give a command or an argv");
            }
            (Some(_), Some(_)) => {
                problems.add_code(CODE, "argv", "cannot be given together with command");
            }
        }
        check_timeout(self.timeout, &mut problems);
        check_cwd(self.cwd.as_deref(), &mut problems);
        check_environment_map(CODE, "envs", &self.envs, &mut problems);
        if self.gid.is_some() && self.uid.is_none() {
            problems.add_code(CODE, "uid", "is missing; gid needs it");
        }
        check_id("uid", self.uid, &mut problems);
        check_id("gid", self.gid, &mut problems);
        problems.into_result(())
    }
}

impl CreateSessionRequest {
    /// Every problem of the request.
    pub fn validate(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Problems::new();
        check_cwd(self.cwd.as_deref(), &mut problems);
        problems.into_result(())
    }
}

impl RunInSessionRequest {
    /// Every problem of the request.
    pub fn validate(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Problems::new();
        if self.command.is_empty() {
            problems.add_code(CODE, "command", "is empty; give the shell text to run");
        }
        check_nul("command", &self.command, &mut problems);
        check_timeout(self.timeout, &mut problems);
        check_cwd(self.cwd.as_deref(), &mut problems);
        problems.into_result(())
    }
}

impl CreatePtyRequest {
    /// Every problem of the request.
    pub fn validate(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Problems::new();
        check_cwd(self.cwd.as_deref(), &mut problems);
        if let Some(command) = &self.command {
            check_text(CODE, || "command".to_owned(), command, &mut problems);
        }
        problems.into_result(())
    }
}

impl CreateContextRequest {
    /// Every problem of the request.
    pub fn validate(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Problems::new();
        check_cwd(self.cwd.as_deref(), &mut problems);
        check_environment_map(CODE, "envs", &self.envs, &mut problems);
        problems.into_result(())
    }
}

impl RunCodeRequest {
    /// Every problem of the request.
    pub fn validate(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Problems::new();
        if self.code.is_empty() {
            problems.add_code(CODE, "code", "is empty; give the code to run");
        }
        check_timeout(self.timeout, &mut problems);
        let cwd = self
            .context
            .as_ref()
            .and_then(|context| context.cwd.as_deref());
        check_cwd(cwd, &mut problems);
        problems.into_result(())
    }
}

impl FileMetadata {
    /// Every problem of the request.
    pub fn validate(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Problems::new();
        const CODE: ErrorCode = ErrorCode::InvalidFileMetadata;
        if self.path.is_empty() {
            problems.add_code(CODE, "path", "is empty; say where the file goes");
        }
        if self.path.contains('\0') {
            problems.add_code(CODE, "path", "has a NUL, which no path can hold");
        }
        problems.into_result(())
    }
}

impl Replace {
    /// Every problem of the body of `POST /files/replace`.
    pub fn validate_map(map: &BTreeMap<String, Replace>) -> Result<(), Vec<Problem>> {
        let mut problems = Problems::new();
        for (path, _) in map.iter().filter(|(_, replace)| replace.old.is_empty()) {
            let message = format!("of {} is empty; give the text to look for", Excerpt(path));
            problems.add_code(CODE, "old", message);
        }
        problems.into_result(())
    }
}

impl CreateIsolatedSessionRequest {
    /// Every problem of the request.
    pub fn validate(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Problems::new();
        let overlays = self.overlays.as_deref().unwrap_or_default();
        if self.workspace.is_none() && overlays.is_empty() {
            problems.add_code(CODE, "overlays", "is missing; give overlays or a workspace");
        }
        if overlays.len() > OVERLAYS_MAX {
            let message = format!("has {} entries; at most {OVERLAYS_MAX} fit", overlays.len());
            problems.add_code(CODE, "overlays", message);
        }
        let mut seen = BTreeSet::new();
        let workspace = self
            .workspace
            .iter()
            .map(|it| ("workspace".to_owned(), &it.path));
        let overlays = overlays.iter().take(OVERLAYS_MAX).enumerate();
        let overlays = overlays.map(|(i, it)| (format!("overlays[{i}]"), &it.path));
        for (at, path) in workspace.chain(overlays) {
            check_clean_path(&format!("{at}.path"), path, &mut problems);
            if !seen.insert(path) {
                let message = format!("{} is given twice", Excerpt(path));
                problems.add_code(CODE, format!("{at}.path"), message);
            }
        }
        check_id("uid", self.uid, &mut problems);
        check_id("gid", self.gid, &mut problems);
        problems.into_result(())
    }
}

impl IsolatedRunRequest {
    /// Every problem of the request.
    pub fn validate(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Problems::new();
        if self.code.is_empty() {
            problems.add_code(CODE, "code", "is empty; give the shell text to run");
        }
        check_nul("code", &self.code, &mut problems);
        check_environment_map(CODE, "envs", &self.envs, &mut problems);
        problems.into_result(())
    }
}

fn check_timeout(timeout: Option<i64>, problems: &mut Problems) {
    if timeout.is_some_and(|timeout| timeout < 0) {
        let message = "is negative; give milliseconds, or 0 for no timeout";
        problems.add_code(CODE, "timeout", message);
    }
}

fn check_cwd(cwd: Option<&str>, problems: &mut Problems) {
    check_nul("cwd", cwd.unwrap_or_default(), problems);
}

fn check_nul(field: &str, text: &str, problems: &mut Problems) {
    if text.contains('\0') {
        problems.add_code(CODE, field, "has a NUL, which no argument or path can hold");
    }
}

fn check_id(field: &str, id: Option<u32>, problems: &mut Problems) {
    if id.is_some_and(|id| id > FILESYSTEM_ID_MAX) {
        let message = format!("is not from 0 to {FILESYSTEM_ID_MAX}");
        problems.add_code(CODE, field, message);
    }
}

fn check_clean_path(field: &str, path: &str, problems: &mut Problems) {
    let is_clean = path == "/"
        || path.strip_prefix('/').is_some_and(|rest| {
            rest.split('/').all(|part| !matches!(part, "" | "." | "..")) && !path.contains('\0')
        });
    if !is_clean {
        let message = format!(
            "{} is not an absolute path without '.', '..' or empty parts",
            Excerpt(path)
        );
        problems.add_code(CODE, field, message);
    }
}
