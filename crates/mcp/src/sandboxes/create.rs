//! Tools that make sandboxes, from an image or a snapshot, within the limits of this server.

use std::collections::BTreeMap;
use std::time::Duration;

use opensandbox::wire::network_policy::{NetworkPolicy, NetworkRule, PolicyAction};
use opensandbox::{CreateSandbox, volume};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{interval, ready, shown};
use crate::answer::SandboxAnswer;
use crate::arguments::seconds;
use crate::tool::{Call, Effect, Entry, Outcome, ToolError, tool};

pub(super) fn tools() -> Vec<Entry> {
    use Effect::Changes;
    vec![
        tool::<Create, SandboxAnswer, _, _>(
            "sandbox_create",
            Changes,
            "Makes a new sandbox from a container image and waits until it can be used. Answers \
             the sandbox_id that all other tools take. Do this once, then run many commands in it.",
            create,
        ),
        tool::<Restore, SandboxAnswer, _, _>(
            "sandbox_restore",
            Changes,
            "Makes a new sandbox whose files are those of a snapshot (see snapshot_create). \
             Processes are not brought back.",
            restore,
        ),
    ]
}

/// What a new sandbox should have.
#[derive(Debug, Deserialize, JsonSchema)]
struct Create {
    /// Container image, for example "python:3.12". On an OSB server "host" is the server
    /// machine's own programs and needs no download.
    image: String,
    /// User name for a private registry; needs auth_password.
    auth_username: Option<String>,
    /// Password or token for a private registry; needs auth_username.
    auth_password: Option<String>,
    #[serde(flatten)]
    settings: Settings,
}

/// What a sandbox from a snapshot should have.
#[derive(Debug, Deserialize, JsonSchema)]
struct Restore {
    /// The snapshot's id, as snapshot_create answered it.
    snapshot_id: String,
    #[serde(flatten)]
    settings: Settings,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Settings {
    /// Seconds after which the sandbox is deleted by itself; sandbox_renew extends it.
    #[serde(default)]
    #[schemars(with = "f64", default = "lifetime")]
    timeout_seconds: Option<f64>,
    /// Seconds it may take to be ready, downloading the image included.
    #[serde(default = "ready")]
    ready_timeout_seconds: f64,
    /// Milliseconds between two questions whether it is ready.
    #[serde(default = "interval")]
    health_check_polling_interval_ms: u64,
    /// Do not wait until it is ready.
    #[serde(default)]
    skip_health_check: bool,
    /// Environment variables of everything that runs in it.
    env: Option<BTreeMap<String, String>>,
    /// Labels to find it by with sandbox_list.
    metadata: Option<BTreeMap<String, String>>,
    /// Limits, for example {"cpu": "2", "memory": "4Gi"}; 1 processor and 2Gi if left out.
    resource: Option<BTreeMap<String, String>>,
    /// What it may reach outside; everything if left out.
    network_policy: Option<Policy>,
    /// Further settings of the server.
    extensions: Option<BTreeMap<String, String>>,
    /// The program it runs, as a list; it idles if left out. Use command_run for everything else.
    entrypoint: Option<Vec<String>>,
    /// What is mounted into it.
    volumes: Option<Vec<Volume>>,
}

fn lifetime() -> f64 {
    600.0
}

/// What a sandbox may reach outside.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Policy {
    /// What happens where no rule matches.
    #[serde(default = "deny", alias = "default_action")]
    default_action: Option<Action>,
    /// Rules in order; the first that matches decides.
    egress: Option<Vec<Rule>>,
}

fn deny() -> Option<Action> {
    Some(Action::Deny)
}

#[derive(Debug, Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Action {
    Allow,
    Deny,
}

impl From<Action> for PolicyAction {
    fn from(action: Action) -> Self {
        match action {
            Action::Allow => Self::Allow,
            Action::Deny => Self::Deny,
        }
    }
}

/// One rule.
#[derive(Debug, Deserialize, JsonSchema)]
struct Rule {
    /// Whether the target may be reached.
    action: Action,
    /// A name such as "example.com", or "*.example.com".
    target: String,
}

impl From<Policy> for NetworkPolicy {
    fn from(policy: Policy) -> Self {
        let rules = policy.egress.unwrap_or_default().into_iter();
        Self {
            default_action: policy.default_action.map(Into::into),
            egress: rules
                .map(|rule| NetworkRule::new(rule.action.into(), rule.target))
                .collect(),
            presets: Vec::new(),
        }
    }
}

/// One mount: a named volume that outlives the sandbox, or a directory of the server's machine.
#[derive(Debug, Deserialize, JsonSchema)]
struct Volume {
    /// A name for the mount: lower case letters, digits and dashes.
    name: String,
    /// Where it is mounted, as an absolute path.
    mount_path: String,
    /// The named volume; made if it does not exist. Exactly one of claim_name and host_path.
    claim_name: Option<String>,
    /// A directory of the server's machine, where the server allows it.
    host_path: Option<String>,
    /// No writes.
    #[serde(default)]
    read_only: bool,
}

impl Volume {
    fn into_wire(self) -> Result<volume::Volume, ToolError> {
        let made = match (self.claim_name, self.host_path) {
            (Some(claim), None) => volume::named(self.name, claim, self.mount_path),
            (None, Some(path)) => volume::host(self.name, path, self.mount_path),
            _ => {
                return Err(ToolError::new(format!(
                    "volume {}: give exactly one of claim_name and host_path",
                    self.name
                )));
            }
        };
        Ok(if self.read_only {
            volume::read_only(made)
        } else {
            made
        })
    }
}

async fn create(call: Call, arguments: Create) -> Outcome {
    let mut create = CreateSandbox::from_image(arguments.image);
    match (arguments.auth_username, arguments.auth_password) {
        (Some(user), Some(password)) => create = create.image_auth(user, password),
        (None, None) => {}
        _ => {
            return Err(ToolError::new(
                "auth_username and auth_password must be provided together",
            ));
        }
    }
    make(call, create, arguments.settings).await
}

async fn restore(call: Call, arguments: Restore) -> Outcome {
    call.registry.check_snapshot(&arguments.snapshot_id)?;
    let create = CreateSandbox::from_snapshot(arguments.snapshot_id);
    make(call, create, arguments.settings).await
}

async fn make(call: Call, create: CreateSandbox, mut settings: Settings) -> Outcome {
    let mut create = settings.apply(create)?;
    if let Some(policy) = settings.network_policy.take() {
        create = create.network_policy(policy.into());
    }
    for volume in settings.volumes.take().unwrap_or_default() {
        create = create.volume(volume.into_wire()?);
    }
    let mut request = create.request().clone();
    let limits = &call.registry.limits;
    limits.lower_resources(&mut request, settings.resource.as_ref())?;
    if settings.timeout_seconds.is_none() {
        limits.lower_lifetime(&mut request);
    }
    limits.hold(&mut request)?;
    let create = settings_of(request, &settings)?.client(&call.registry.client);
    call.registry.reserve()?;
    call.progress.say("making the sandbox").await;
    // In a task of its own: what is being made when the client leaves must not be left behind.
    let registry = call.registry.clone();
    let mut making = tokio::spawn(async move {
        let made = create.await;
        match &made {
            Ok(sandbox) => registry.made(sandbox),
            Err(_) => registry.not_made(),
        }
        made
    });
    let sandbox = tokio::select! {
        made = &mut making => made.map_err(|error| ToolError::new(error.to_string()))??,
        () = call.cancelled.cancelled() => {
            let registry = call.registry.clone();
            tokio::spawn(async move {
                if let Ok(Ok(sandbox)) = making.await {
                    // It ends by itself when this does not work.
                    let _ = sandbox.kill().await;
                    registry.forget(sandbox.id());
                }
            });
            return Err(ToolError::new("the call was cancelled; no sandbox is kept"));
        }
    };
    call.progress.say("the sandbox is ready").await;
    shown(&sandbox).await
}

impl Settings {
    fn apply(&self, mut create: CreateSandbox) -> Result<CreateSandbox, ToolError> {
        let lifetime = self.timeout_seconds.unwrap_or_else(lifetime);
        create = create.timeout(seconds("timeout_seconds", lifetime)?);
        for (name, value) in self.env.iter().flatten() {
            create = create.env(name, value);
        }
        for (name, value) in self.metadata.iter().flatten() {
            create = create.metadata(name, value);
        }
        for (name, value) in self.resource.iter().flatten() {
            create = create.resource(name, value);
        }
        for (name, value) in self.extensions.iter().flatten() {
            create = create.extension(name, value);
        }
        if let Some(argv) = &self.entrypoint {
            create = create.entrypoint(argv.iter().cloned());
        }
        Ok(create)
    }
}

/// The request after the limits were held, with how to wait for it.
fn settings_of(
    request: opensandbox::wire::sandbox::CreateSandboxRequest,
    settings: &Settings,
) -> Result<CreateSandbox, ToolError> {
    let mut create = CreateSandbox::from_request(request)
        .ready_timeout(seconds(
            "ready_timeout_seconds",
            settings.ready_timeout_seconds,
        )?)
        .health_check_interval(Duration::from_millis(
            settings.health_check_polling_interval_ms,
        ));
    if settings.skip_health_check {
        create = create.skip_health_check();
    }
    Ok(create)
}
