//! Tools that make, find, change and end sandboxes.

use std::collections::BTreeMap;
use std::time::Duration;

use opensandbox::wire::network_policy::{NetworkPolicy, NetworkRule, PolicyAction};
use opensandbox::wire::query::Page;
use opensandbox::wire::sandbox::SandboxState;
use opensandbox::{CreateSandbox, Sandbox, SandboxFilter, volume};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::answer::{SandboxAnswer, SandboxInfo, SandboxPage, Status, status};
use crate::arguments::{InSandbox, OfSandbox, seconds};
use crate::tool::{Answer, Call, Effect, Entry, Failure, Outcome, tool};

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

fn ready() -> f64 {
    30.0
}

fn interval() -> u64 {
    200
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
                .map(|rule| NetworkRule {
                    action: rule.action.into(),
                    target: rule.target,
                })
                .collect(),
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
    fn into_wire(self) -> Result<volume::Volume, Failure> {
        let made = match (self.claim_name, self.host_path) {
            (Some(claim), None) => volume::named(self.name, claim, self.mount_path),
            (None, Some(path)) => volume::host(self.name, path, self.mount_path),
            _ => {
                return Err(Failure::new(format!(
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

/// How to connect.
#[derive(Debug, Deserialize, JsonSchema)]
struct Connect {
    /// The sandbox's id.
    sandbox_id: String,
    /// Seconds it may take to answer.
    #[serde(default = "ready")]
    connect_timeout_seconds: f64,
    /// Milliseconds between two questions whether it answers.
    #[serde(default = "interval")]
    health_check_polling_interval_ms: u64,
    /// Do not wait until it answers.
    #[serde(default)]
    skip_health_check: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct List {
    /// Which sandboxes; all if left out.
    filter: Option<Filter>,
}

/// Which sandboxes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
struct Filter {
    /// Only in one of these states, such as "Running" or "Paused".
    states: Option<Vec<String>>,
    /// Only with all of these labels.
    metadata: Option<BTreeMap<String, String>>,
    /// Sandboxes per page, at most 200.
    page_size: Option<u64>,
    /// Which page, from 1.
    page: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Renew {
    /// The sandbox's id.
    sandbox_id: String,
    /// Seconds from now after which it is deleted.
    timeout_seconds: f64,
}

/// When a sandbox is deleted.
#[derive(Debug, Serialize, JsonSchema)]
struct Renewed {
    expires_at: String,
}

/// What a sandbox uses.
#[derive(Debug, Serialize, JsonSchema)]
struct Metrics {
    cpu_count: f64,
    /// From 0 to 100.
    cpu_used_percentage: f64,
    memory_total_in_mib: f64,
    memory_used_in_mib: f64,
    /// Unix milliseconds.
    timestamp: i64,
}

/// Whether a sandbox answers.
#[derive(Debug, Serialize, JsonSchema)]
struct Health {
    sandbox_id: String,
    healthy: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Port {
    /// The sandbox's id.
    sandbox_id: String,
    /// The port inside the sandbox.
    port: u16,
    /// Connect first if this server does not know the sandbox yet.
    #[serde(default)]
    connect_if_missing: bool,
}

/// Where a port is reached.
#[derive(Debug, Serialize, JsonSchema)]
struct Endpoint {
    /// host[:port][/path], without a scheme.
    endpoint: String,
    /// The same with a scheme.
    url: String,
    /// Headers that every request to it must carry.
    headers: BTreeMap<String, String>,
    /// Where the sandbox came from, where the server says so.
    origin: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Diagnose {
    /// The sandbox's id.
    sandbox_id: String,
    /// "logs" for the entrypoint's output, "events" for what happened to the sandbox.
    #[serde(default = "logs")]
    kind: String,
}

fn logs() -> String {
    "logs".to_owned()
}

/// Diagnostics as text.
#[derive(Debug, Serialize, JsonSchema)]
struct Diagnostics {
    content: String,
    /// Something was left out.
    truncated: bool,
}

pub(crate) fn tools() -> Vec<Entry> {
    use Effect::{Changes, Destroys, Reads};
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
        tool::<Connect, SandboxAnswer, _, _>(
            "sandbox_connect",
            Changes,
            "Takes up a sandbox that exists already, for example one from sandbox_list, so that \
             the other tools can use it.",
            connect,
        ),
        tool::<OfSandbox, Status, _, _>(
            "sandbox_kill",
            Destroys,
            "Ends a sandbox and deletes everything in it. Do this when you are done.",
            kill,
        ),
        tool::<OfSandbox, SandboxInfo, _, _>(
            "sandbox_get_info",
            Reads,
            "Tells a sandbox's state, image, labels and when it is deleted.",
            info,
        ),
        tool::<List, SandboxPage, _, _>(
            "sandbox_list",
            Reads,
            "Lists sandboxes, newest first, by state or label.",
            list,
        ),
        tool::<Renew, Renewed, _, _>(
            "sandbox_renew",
            Changes,
            "Lets a sandbox live for timeout_seconds from now on.",
            renew,
        ),
        tool::<OfSandbox, SandboxInfo, _, _>(
            "sandbox_pause",
            Changes,
            "Freezes a sandbox: its processes stop where they are, memory and files stay. \
             sandbox_resume lets it run on.",
            pause,
        ),
        tool::<OfSandbox, SandboxInfo, _, _>(
            "sandbox_resume",
            Changes,
            "Lets a paused sandbox run on.",
            resume,
        ),
        tool::<InSandbox, Metrics, _, _>(
            "sandbox_get_metrics",
            Reads,
            "Tells how much processor time and memory a sandbox uses now.",
            metrics,
        ),
        tool::<InSandbox, Health, _, _>(
            "sandbox_healthcheck",
            Reads,
            "Tells whether a sandbox answers.",
            health,
        ),
        tool::<Port, Endpoint, _, _>(
            "sandbox_get_endpoint",
            Reads,
            "Tells where a port of a sandbox is reached from outside, and which headers to send. \
             Start the service first with command_run and background=true, listening on 0.0.0.0.",
            endpoint,
        ),
        tool::<Diagnose, Diagnostics, _, _>(
            "sandbox_get_diagnostics",
            Reads,
            "Answers the output of a sandbox's entrypoint, or what happened to the sandbox, to \
             find out why it does not work.",
            diagnostics,
        ),
    ]
}

async fn create(call: Call, arguments: Create) -> Outcome {
    let mut create = CreateSandbox::from_image(arguments.image);
    match (arguments.auth_username, arguments.auth_password) {
        (Some(user), Some(password)) => create = create.image_auth(user, password),
        (None, None) => {}
        _ => {
            return Err(Failure::new(
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
        made = &mut making => made.map_err(|error| Failure::new(error.to_string()))??,
        () = call.cancelled.cancelled() => {
            let registry = call.registry.clone();
            tokio::spawn(async move {
                if let Ok(Ok(sandbox)) = making.await {
                    // It ends by itself when this does not work.
                    let _ = sandbox.kill().await;
                    registry.forget(sandbox.id());
                }
            });
            return Err(Failure::new("the call was cancelled; no sandbox is kept"));
        }
    };
    call.progress.say("the sandbox is ready").await;
    shown(&sandbox).await
}

impl Settings {
    fn apply(&self, mut create: CreateSandbox) -> Result<CreateSandbox, Failure> {
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
) -> Result<CreateSandbox, Failure> {
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

async fn connect(call: Call, arguments: Connect) -> Outcome {
    call.registry.check_visible(&arguments.sandbox_id)?;
    let timeout = seconds("connect_timeout_seconds", arguments.connect_timeout_seconds)?;
    let interval = Duration::from_millis(arguments.health_check_polling_interval_ms);
    let mut connect = call
        .registry
        .client
        .connect(arguments.sandbox_id)
        .timeout(timeout)
        .health_check_interval(interval);
    if arguments.skip_health_check {
        connect = connect.skip_health_check();
    }
    let sandbox = connect.await?;
    let answer = shown(&sandbox).await?;
    call.registry.add(&sandbox);
    Ok(answer)
}

async fn shown(sandbox: &Sandbox) -> Outcome {
    Ok(Answer::new(&SandboxAnswer {
        sandbox_id: sandbox.id().to_owned(),
        info: sandbox.info().await?.into(),
    }))
}

async fn kill(call: Call, arguments: OfSandbox) -> Outcome {
    call.registry.check_visible(&arguments.sandbox_id)?;
    call.registry.client.kill(&arguments.sandbox_id).await?;
    call.registry.forget(&arguments.sandbox_id);
    Ok(Answer::new(&status("killed")))
}

async fn info(call: Call, arguments: OfSandbox) -> Outcome {
    call.registry.check_visible(&arguments.sandbox_id)?;
    let info = call.registry.client.get(&arguments.sandbox_id).await?;
    Ok(Answer::new(&SandboxInfo::from(info)))
}

async fn list(call: Call, arguments: List) -> Outcome {
    let filter = arguments.filter.unwrap_or_default();
    let mut states = Vec::new();
    for text in filter.states.iter().flatten() {
        let known = SandboxState::KNOWN.iter();
        let known = known
            .copied()
            .find(|state| state.as_str().eq_ignore_ascii_case(text));
        states.push(known.ok_or_else(|| {
            let names: Vec<_> = SandboxState::KNOWN.iter().map(|s| s.as_str()).collect();
            Failure::new(format!(
                "{text:?} is no state; states: {}",
                names.join(", ")
            ))
        })?);
    }
    let page = Page::default();
    let query = SandboxFilter {
        states,
        metadata: filter.metadata.unwrap_or_default(),
        page: Page {
            number: filter.page.unwrap_or(page.number),
            size: filter.page_size.unwrap_or(page.size),
        },
    };
    call.progress.say("listing sandboxes").await;
    let found = call.registry.client.list(&query).await?;
    let visible = found.items.into_iter();
    let visible = visible.filter(|sandbox| call.registry.is_visible(sandbox.id.as_str()));
    Ok(Answer::new(&SandboxPage {
        sandbox_infos: visible.map(Into::into).collect(),
        pagination: found.pagination.into(),
    }))
}

async fn renew(call: Call, arguments: Renew) -> Outcome {
    call.registry.check_visible(&arguments.sandbox_id)?;
    call.registry
        .limits
        .hold_lifetime(arguments.timeout_seconds)?;
    let lifetime = seconds("timeout_seconds", arguments.timeout_seconds)?;
    let client = &call.registry.client;
    let expires_at = client.renew(&arguments.sandbox_id, lifetime).await?;
    Ok(Answer::new(&Renewed {
        expires_at: expires_at.to_string(),
    }))
}

async fn pause(call: Call, arguments: OfSandbox) -> Outcome {
    call.registry.check_visible(&arguments.sandbox_id)?;
    call.progress.say("freezing the sandbox").await;
    call.registry.client.pause(&arguments.sandbox_id).await?;
    info(call, arguments).await
}

async fn resume(call: Call, arguments: OfSandbox) -> Outcome {
    call.registry.check_visible(&arguments.sandbox_id)?;
    call.progress.say("resuming the sandbox").await;
    call.registry.client.resume(&arguments.sandbox_id).await?;
    info(call, arguments).await
}

async fn metrics(call: Call, arguments: InSandbox) -> Outcome {
    let sandbox = call
        .registry
        .get(&arguments.sandbox_id, arguments.connect_if_missing)
        .await?;
    let used = sandbox.metrics().await?;
    Ok(Answer::new(&Metrics {
        cpu_count: used.cpu_count,
        cpu_used_percentage: used.cpu_used_pct,
        memory_total_in_mib: used.mem_total_mib,
        memory_used_in_mib: used.mem_used_mib,
        timestamp: used.timestamp,
    }))
}

async fn health(call: Call, arguments: InSandbox) -> Outcome {
    let sandbox = call
        .registry
        .get(&arguments.sandbox_id, arguments.connect_if_missing)
        .await?;
    Ok(Answer::new(&Health {
        healthy: sandbox.is_healthy().await,
        sandbox_id: arguments.sandbox_id,
    }))
}

async fn endpoint(call: Call, arguments: Port) -> Outcome {
    let sandbox = call
        .registry
        .get(&arguments.sandbox_id, arguments.connect_if_missing)
        .await?;
    let found = sandbox.endpoint(arguments.port).await?;
    let root = call.registry.client.config().root_url()?;
    let scheme = root.split("://").next().unwrap_or("http");
    Ok(Answer::new(&Endpoint {
        url: format!("{scheme}://{}", found.endpoint),
        endpoint: found.endpoint,
        headers: found.headers.unwrap_or_default(),
        origin: None,
    }))
}

async fn diagnostics(call: Call, arguments: Diagnose) -> Outcome {
    call.registry.check_visible(&arguments.sandbox_id)?;
    let client = &call.registry.client;
    let content = match arguments.kind.as_str() {
        "logs" => client.diagnostic_logs(&arguments.sandbox_id, "all").await?,
        "events" => {
            client
                .diagnostic_events(&arguments.sandbox_id, "all")
                .await?
        }
        other => {
            return Err(Failure::new(format!(
                "kind is \"logs\" or \"events\", not {other:?}"
            )));
        }
    };
    Ok(Answer::new(&Diagnostics {
        content: content.content.unwrap_or_default(),
        truncated: content.truncated,
    }))
}
