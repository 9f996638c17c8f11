//! The rules for making a sandbox, and for changing one.

use std::ops::RangeInclusive;

use super::network::check_rules;
use super::process::{check_arguments, check_environment, check_text};
use super::volume::check_volumes;
use crate::error::ErrorCode;
use crate::image_reference::ImageReference;
use crate::label::{LABELS_MAX, check_metadata};
use crate::pool::{CreatePoolRequest, PoolCapacitySpec};
use crate::problem::{Excerpt, Problem, Problems};
use crate::resource::Resources;
use crate::sandbox::{
    CreateSandboxRequest, EXTENSION_PAGE_ORIGIN, EXTENSION_POOL_REF, EXTENSION_RENEW_SECONDS,
    PAGE_ORIGIN_ISOLATED, PAGE_ORIGIN_SHARED, PlatformSpec, SandboxLifecycle,
};
use crate::snapshot::CreateSnapshotRequest;

/// A sandbox lives at least this long, as in the published server.
pub const TIMEOUT_SECONDS_MIN: i64 = 60;

/// A sandbox lives at most this long: a hundred years, so that its end is still a date.
pub const TIMEOUT_SECONDS_MAX: i64 = 100 * 365 * 24 * 3600;

/// How far one access may push a sandbox's end.
pub const RENEW_SECONDS: RangeInclusive<u64> = 300..=86_400;

/// The environment variable in which lifecycle hooks travel; nobody else may set it.
pub const RESERVED_ENV_KEY: &str = "OPENSANDBOX_LIFECYCLE";

/// A hook before the start may take this many seconds.
const PRE_START_SECONDS: RangeInclusive<i64> = 1..=10_800;

/// A hook on a schedule may take this many seconds.
const PERIODIC_SECONDS: RangeInclusive<i64> = 1..=300;

/// A sandbox has at most this many hooks on a schedule.
const PERIODIC_HOOKS_MAX: usize = 64;

/// A name of a user's choice is at most this long.
const NAME_BYTES_MAX: usize = 253;

/// An extension's value is at most this long.
const EXTENSION_BYTES_MAX: usize = 16 * 1024;

const INVALID: ErrorCode = ErrorCode::SandboxInvalidParameter;

impl CreateSandboxRequest {
    /// Every problem of the request, in the order of its fields.
    pub fn validate(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Problems::new();
        if self.template_id.is_some() {
            self.check_template_excludes(&mut problems);
        } else {
            self.check_source(&mut problems);
        }
        if let Some(platform) = &self.platform {
            check_platform(platform, &mut problems);
        }
        self.check_timeout(&mut problems);
        let resources = [
            ("resourceLimits", &self.resource_limits),
            ("resourceRequests", &self.resource_requests),
        ];
        for (field, map) in resources {
            if let Some(map) = map {
                Resources::collect(field, map, &mut problems);
            }
        }
        self.check_env(&mut problems);
        if let Some(metadata) = &self.metadata {
            check_metadata(metadata, &mut problems);
        }
        if let Some(lifecycle) = &self.lifecycle {
            check_lifecycle(lifecycle, &mut problems);
        }
        if let Some(entrypoint) = &self.entrypoint {
            let code = ErrorCode::DockerInvalidEntrypoint;
            check_arguments(code, "entrypoint", entrypoint, &mut problems);
            let words = self.entrypoint_words();
            let has_program =
                words.is_some_and(|words| words.first().is_some_and(|it| !it.is_empty()));
            if let [line] = entrypoint.as_slice()
                && !line.trim().is_empty()
                && !has_program
            {
                problems.add_code(
                    code,
                    "entrypoint[0]",
                    "is a command line that names no program, or in which a quotation does not end",
                );
            }
        }
        if let Some(policy) = &self.network_policy {
            check_rules("networkPolicy.egress", &policy.egress, &mut problems);
        }
        if let Some(volumes) = &self.volumes {
            check_volumes(volumes, &mut problems);
        }
        self.check_extensions(&mut problems);
        problems.into_result(())
    }

    /// The image's reference, when there is an image and its reference is one.
    pub fn image_reference(&self) -> Option<ImageReference> {
        self.image.as_ref()?.uri.parse().ok()
    }

    /// The name of the pool to take the sandbox from.
    pub fn pool_ref(&self) -> Option<&str> {
        self.extension(EXTENSION_POOL_REF)
            .filter(|name| !name.trim().is_empty())
    }

    /// The snapshot to start from. A blank id is as good as none.
    pub fn snapshot_id_given(&self) -> Option<&str> {
        self.snapshot_id
            .as_deref()
            .filter(|id| !id.trim().is_empty())
    }

    fn check_source(&self, problems: &mut Problems) {
        let image = self
            .image
            .as_ref()
            .filter(|image| !image.uri.trim().is_empty());
        let has_snapshot = self.snapshot_id_given().is_some();
        if self.pool_ref().is_some() {
            if self.lifecycle.is_some() {
                problems.add(
                    "lifecycle",
                    "cannot be given together with extensions.poolRef",
                );
            }
            if has_snapshot {
                problems.add(
                    "snapshotId",
                    "cannot be given together with extensions.poolRef",
                );
            }
        } else if image.is_none() && !has_snapshot {
            problems.add(
                "image",
                "is missing; give an image with a uri, or a snapshotId",
            );
        } else if image.is_some() && has_snapshot {
            problems.add("snapshotId", "cannot be given together with image");
        }
        if let Some(image) = image {
            problems.check(INVALID, "image.uri", image.uri.parse::<ImageReference>());
        }
        let is_proxied = self.credential_proxy.is_some_and(|proxy| proxy.enabled);
        if is_proxied && self.network_policy.is_none() {
            problems.add("credentialProxy", "needs a networkPolicy");
        }
    }

    fn check_template_excludes(&self, problems: &mut Problems) {
        let excluded = [
            ("image", self.image.is_some()),
            ("snapshotId", self.snapshot_id_given().is_some()),
            ("entrypoint", self.entrypoint.is_some()),
            ("env", self.env.is_some()),
            ("resourceLimits", self.resource_limits.is_some()),
            ("resourceRequests", self.resource_requests.is_some()),
            ("volumes", self.volumes.is_some()),
            ("platform", self.platform.is_some()),
            ("credentialProxy", self.credential_proxy.is_some()),
            ("secureAccess", self.secure_access),
            ("lifecycle", self.lifecycle.is_some()),
        ];
        for (field, _) in excluded.iter().filter(|(_, is_given)| *is_given) {
            problems.add(*field, "cannot be given together with templateId");
        }
        if self
            .template_id
            .as_deref()
            .is_some_and(|id| id.trim().is_empty())
        {
            problems.add("templateId", "is blank; name a template or leave it out");
        }
        if self.timeout.is_none() {
            problems.add(
                "timeout",
                "is missing; a sandbox made from a template needs one",
            );
        }
    }

    fn check_timeout(&self, problems: &mut Problems) {
        let Some(timeout) = self.timeout else { return };
        if timeout < TIMEOUT_SECONDS_MIN {
            let message =
                format!("is {timeout} seconds; at least {TIMEOUT_SECONDS_MIN} are needed");
            problems.add("timeout", message);
        } else if timeout > TIMEOUT_SECONDS_MAX {
            let message =
                format!("is {timeout} seconds; at most {TIMEOUT_SECONDS_MAX} are possible");
            problems.add_code(INVALID, "timeout", message);
        }
    }

    fn check_env(&self, problems: &mut Problems) {
        let Some(env) = &self.env else { return };
        if env.contains_key(RESERVED_ENV_KEY) {
            problems.add(
                "env",
                format!("{RESERVED_ENV_KEY} is reserved for the server"),
            );
        }
        let given = env
            .iter()
            .filter_map(|(key, value)| Some((key, value.as_deref()?)));
        check_environment(INVALID, "env", given, problems);
    }

    fn check_extensions(&self, problems: &mut Problems) {
        let Some(extensions) = &self.extensions else {
            return;
        };
        if extensions.len() > LABELS_MAX {
            let count = extensions.len();
            let message = format!("has {count} entries; at most {LABELS_MAX} are allowed");
            problems.add_code(INVALID, "extensions", message);
        }
        for (key, value) in extensions {
            if key.is_empty() || key.len() > NAME_BYTES_MAX || value.len() > EXTENSION_BYTES_MAX {
                let quoted = Excerpt(key);
                let message = format!(
                    "{quoted} is not a name of 1 to {NAME_BYTES_MAX} bytes with a value of at \
                     most {EXTENSION_BYTES_MAX}"
                );
                problems.add_code(INVALID, "extensions", message);
            }
        }
        if let Some(Err(problem)) = self.extension(EXTENSION_RENEW_SECONDS).map(renew_seconds) {
            problems.push(problem);
        }
        let origin = self.extension(EXTENSION_PAGE_ORIGIN);
        let is_known = |origin| [PAGE_ORIGIN_SHARED, PAGE_ORIGIN_ISOLATED].contains(&origin);
        if let Some(origin) = origin.filter(|origin| !is_known(origin)) {
            let field = format!("extensions.{EXTENSION_PAGE_ORIGIN}");
            let message = format!(
                "{} is neither {PAGE_ORIGIN_SHARED} nor {PAGE_ORIGIN_ISOLATED}",
                Excerpt(origin)
            );
            problems.add_code(INVALID, field, message);
        }
    }
}

/// Reads the extension that renews a sandbox on each access.
pub fn renew_seconds(text: &str) -> Result<u64, Problem> {
    let is_plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let seconds = text
        .parse()
        .ok()
        .filter(|it| is_plain && RENEW_SECONDS.contains(it));
    seconds.ok_or_else(|| {
        let (low, high) = RENEW_SECONDS.into_inner();
        let message = format!(
            "{} is not a whole number from {low} to {high}",
            Excerpt(text)
        );
        let field = format!("extensions.{EXTENSION_RENEW_SECONDS}");
        Problem::with_code(INVALID, field, message)
    })
}

impl PlatformSpec {
    /// Operating system and processor in lower case, as backends want them.
    pub fn normalized(&self) -> Self {
        Self {
            os: self.os.to_ascii_lowercase(),
            arch: self.arch.to_ascii_lowercase(),
        }
    }
}

fn check_platform(platform: &PlatformSpec, problems: &mut Problems) {
    let PlatformSpec { os, arch } = platform.normalized();
    if !matches!(os.as_str(), "linux" | "windows") {
        let message = format!("{} is not linux or windows", Excerpt(&platform.os));
        problems.add_code(INVALID, "platform.os", message);
    }
    if !matches!(arch.as_str(), "amd64" | "arm64") {
        let message = format!("{} is not amd64 or arm64", Excerpt(&platform.arch));
        problems.add_code(INVALID, "platform.arch", message);
    }
}

fn check_lifecycle(lifecycle: &SandboxLifecycle, problems: &mut Problems) {
    if let Some(hook) = &lifecycle.pre_start {
        let field = "lifecycle.preStart";
        check_hook(
            field,
            &hook.command,
            hook.timeout_seconds,
            PRE_START_SECONDS,
            problems,
        );
    }
    let periodic = lifecycle.periodic.as_deref().unwrap_or_default();
    if periodic.len() > PERIODIC_HOOKS_MAX {
        let message = format!(
            "has {} entries; at most {PERIODIC_HOOKS_MAX} fit",
            periodic.len()
        );
        problems.add("lifecycle.periodic", message);
    }
    for (index, hook) in periodic.iter().take(PERIODIC_HOOKS_MAX).enumerate() {
        let field = format!("lifecycle.periodic[{index}]");
        for (name, text) in [("name", &hook.name), ("schedule", &hook.schedule)] {
            if text.trim().is_empty() || text.len() > NAME_BYTES_MAX {
                let message = format!("is not 1 to {NAME_BYTES_MAX} characters");
                problems.add(format!("{field}.{name}"), message);
            }
        }
        check_hook(
            &field,
            &hook.command,
            hook.timeout_seconds,
            PERIODIC_SECONDS,
            problems,
        );
    }
}

fn check_hook(
    field: &str,
    command: &[String],
    timeout: Option<i64>,
    allowed: RangeInclusive<i64>,
    problems: &mut Problems,
) {
    let code = ErrorCode::ValidationFailed;
    check_arguments(code, &format!("{field}.command"), command, problems);
    if timeout.is_some_and(|timeout| !allowed.contains(&timeout)) {
        let (low, high) = allowed.into_inner();
        let message = format!("is not from {low} to {high} seconds");
        problems.add(format!("{field}.timeoutSeconds"), message);
    }
}

impl CreateSnapshotRequest {
    /// Every problem of the request.
    pub fn validate(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Problems::new();
        if let Some(name) = &self.name {
            if name.is_empty() || name.len() > NAME_BYTES_MAX {
                problems.add("name", format!("is not 1 to {NAME_BYTES_MAX} bytes"));
            }
            check_text(
                ErrorCode::ValidationFailed,
                || "name".to_owned(),
                name,
                &mut problems,
            );
        }
        problems.into_result(())
    }
}

impl CreatePoolRequest {
    /// Every problem of the request.
    pub fn validate(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Problems::new();
        if self.name.len() > NAME_BYTES_MAX || !crate::label::is_domain_label(&self.name) {
            let message = format!(
                "{} is not 1 to {NAME_BYTES_MAX} characters of a-z, 0-9 and '-' that begin and \
                 end with a letter or digit",
                Excerpt(&self.name)
            );
            problems.add("name", message);
        }
        self.capacity_spec.check(&mut problems);
        problems.into_result(())
    }
}

impl PoolCapacitySpec {
    /// Every problem of the capacity.
    pub fn validate(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Problems::new();
        self.check(&mut problems);
        problems.into_result(())
    }

    fn check(&self, problems: &mut Problems) {
        if self.buffer_min > self.buffer_max {
            problems.add("capacitySpec.bufferMin", "is larger than bufferMax");
        }
        if self.pool_min > self.pool_max {
            problems.add("capacitySpec.poolMin", "is larger than poolMax");
        }
    }
}
