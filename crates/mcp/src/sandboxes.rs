//! Tools that find, change, observe and end sandboxes; `create` has those that make them.

mod create;

use std::collections::BTreeMap;
use std::time::Duration;

use opensandbox::wire::query::Page;
use opensandbox::wire::sandbox::SandboxState;
use opensandbox::{Sandbox, SandboxFilter};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::answer::{SandboxAnswer, SandboxInfo, SandboxPage, Status, status};
use crate::arguments::{InSandbox, OfSandbox, seconds};
use crate::tool::{Answer, Call, Effect, Entry, Outcome, ToolError, tool};

fn ready() -> f64 {
    30.0
}

fn interval() -> u64 {
    200
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

/// A link for a browser.
#[derive(Debug, Serialize, JsonSchema)]
struct Link {
    link: String,
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
    let mut tools = create::tools();
    tools.extend(lifetime());
    tools.extend(observation());
    tools
}

/// Finding, changing and ending.
fn lifetime() -> Vec<Entry> {
    use Effect::{Changes, Destroys, Reads};
    vec![
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
    ]
}

/// Looking at one and reaching it.
fn observation() -> Vec<Entry> {
    use Effect::Reads;
    vec![
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
        tool::<Port, Link, _, _>(
            "sandbox_get_link",
            Reads,
            "Makes a link by which a person opens a port of a sandbox in a browser. It is good for \
             once and for ten minutes; give it to the user. Needs a server with an ingress gateway.",
            link,
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
    let info = sandbox.info().await?;
    let until = match info.expires_at {
        Some(at) => format!("until {at}, unless sandbox_renew extends it"),
        None => "until it is killed".to_owned(),
    };
    let text = format!("sandbox_id {}: {}, {until}", info.id, info.status.state);
    Ok(Answer::new(&SandboxAnswer {
        sandbox_id: sandbox.id().to_owned(),
        info: info.into(),
    })
    .with_text(text))
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
            ToolError::new(format!(
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

async fn link(call: Call, arguments: Port) -> Outcome {
    let sandbox = call
        .registry
        .get(&arguments.sandbox_id, arguments.connect_if_missing)
        .await?;
    Ok(Answer::new(&Link {
        link: sandbox.link(arguments.port, None).await?,
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
            return Err(ToolError::new(format!(
                "kind is \"logs\" or \"events\", not {other:?}"
            )));
        }
    };
    Ok(Answer::new(&Diagnostics {
        content: content.content.unwrap_or_default(),
        truncated: content.truncated,
    }))
}
