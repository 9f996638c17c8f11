//! `osb sandbox create`, and making a sandbox for the commands that need one for themselves.

use std::path::Path;
use std::time::Duration;

use api::sandbox::{NAME_METADATA_KEY, SandboxState};
use opensandbox::{CreateSandbox, Sandbox};
use serde::de::DeserializeOwned;

use super::make::{self, Patience};
use super::{DONE, Outcome, request_file};
use crate::app::App;
use crate::args::Pair;
use crate::args::sandbox::Create;
use crate::duration;
use crate::error::Error;
use crate::output::Record;

pub(super) async fn run(app: &App, args: &Create) -> Outcome {
    let printer = app.printer();
    let order = order(app, args)?;
    let patience = make::patience(args.skip_health_check, args.ready_timeout);
    let sandbox = make::make(app, order.call, patience).await?;
    let mut record = Record::new()
        .with("id", sandbox.id())
        .with("status", "created")
        .with("timeout", order.lifetime);
    if let Some(path) = &args.file {
        record.set("request_file", path.display().to_string());
    }
    let (kind, from) = order.source;
    record.set(kind, from);
    printer.done("Sandbox created", &record)?;
    Ok(DONE)
}

/// Makes a sandbox for one use.
pub(super) async fn make(app: &App, args: &Create) -> Result<Sandbox, Error> {
    make::make(app, order(app, args)?.call, Patience::WhileItMoves).await
}

/// A sandbox that was started.
pub(super) struct Started {
    pub(super) sandbox: Sandbox,
    /// Whatever became of it so far: its main program may have ended by now.
    pub(super) state: SandboxState,
}

/// Makes a sandbox that is left to itself.
pub(super) async fn start(app: &App, args: &Create) -> Result<Started, Error> {
    let sandbox = make::make(app, order(app, args)?.call, Patience::UntilStarted).await?;
    let state = sandbox.info().await?.status.state;
    Ok(Started { sandbox, state })
}

/// A sandbox about to be made, and what is said about it afterwards.
struct Order {
    call: CreateSandbox,
    lifetime: String,
    source: (&'static str, String),
}

/// How long a sandbox shall live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lifetime {
    /// Nobody said.
    Default,
    /// Until it is killed.
    Forever,
    /// This long.
    For(Duration),
}

fn order(app: &App, args: &Create) -> Result<Order, Error> {
    let order = match &args.file {
        Some(path) => from_file(app, args, path)?,
        None => from_flags(app, args)?,
    };
    let call = order.call.client(app.client()?);
    Ok(Order { call, ..order })
}

fn from_flags(app: &App, args: &Create) -> Result<Order, Error> {
    check_flags(args)?;
    let lifetime = lifetime(app, args.timeout.as_deref())?;
    let (mut call, source) = match (&args.template, &args.snapshot_id) {
        (Some(template), _) => (
            CreateSandbox::from_template(template),
            ("template", template.clone()),
        ),
        (None, Some(snapshot)) => (
            CreateSandbox::from_snapshot(snapshot),
            ("snapshot_id", snapshot.clone()),
        ),
        (None, None) => {
            let image = args
                .image
                .clone()
                .or_else(|| app.config().ok()?.default_image.clone())
                .filter(|image| !image.is_empty())
                .ok_or_else(|| {
                    Error::Usage(
                        "which image? Name one with --image, or set a default: \
                         osb config set defaults.image python:3.11"
                            .to_owned(),
                    )
                })?;
            (CreateSandbox::from_image(&image), ("image", image))
        }
    };
    match lifetime {
        Lifetime::Default if args.template.is_some() => {
            return Err(usage(
                "a sandbox from a template needs --timeout, such as --timeout 30m",
            ));
        }
        Lifetime::Forever if args.template.is_some() => {
            return Err(usage(
                "a sandbox from a template cannot live for ever: --timeout 30m",
            ));
        }
        Lifetime::Default => {}
        Lifetime::Forever => call = call.forever(),
        Lifetime::For(time) => call = call.timeout(time),
    }
    if let (Some(user), Some(password)) = (&args.image_auth_username, &args.image_auth_password) {
        call = call.image_auth(user, password);
    }
    call = with_pairs(call, args);
    call = with_files(call, args)?;
    if let Some(policy) = &args.network_policy {
        call = call.network_policy(policy.clone());
    }
    if let Some((os, arch)) = &args.platform {
        call = call.platform(os, arch);
    }
    call = args
        .mounts
        .iter()
        .cloned()
        .fold(call, CreateSandbox::volume);
    Ok(Order {
        call,
        lifetime: described(lifetime),
        source,
    })
}

fn with_files(mut call: CreateSandbox, args: &Create) -> Result<CreateSandbox, Error> {
    if let Some(path) = &args.network_policy_file {
        call = call.network_policy(json(path)?);
    }
    if args.credential_proxy {
        call = call.credential_proxy(true);
    }
    if let Some(path) = &args.volumes_file {
        let volumes: Vec<api::volume::Volume> = json(path)?;
        call = volumes.into_iter().fold(call, CreateSandbox::volume);
    }
    Ok(call)
}

fn with_pairs(mut call: CreateSandbox, args: &Create) -> CreateSandbox {
    for Pair { key, value } in &args.env {
        call = call.env(key, value);
    }
    for Pair { key, value } in &args.metadata {
        call = call.metadata(key, value);
    }
    if let Some(name) = &args.name {
        call = call.metadata(NAME_METADATA_KEY, name);
    }
    for Pair { key, value } in &args.extension {
        call = call.extension(key, value);
    }
    if let Some(limits) = Pair::map(&args.resource) {
        call = call.resources(limits);
    }
    if !args.entrypoint.is_empty() {
        call = call.entrypoint(args.entrypoint.clone());
    }
    call
}

/// Flags that do not go together, in the words of the published command line.
fn check_flags(args: &Create) -> Result<(), Error> {
    let has_auth = args.image_auth_username.is_some() || args.image_auth_password.is_some();
    let given = |pairs: &[(bool, &'static str)]| -> Vec<&'static str> {
        let set = pairs.iter().filter(|(is_given, _)| *is_given);
        set.map(|(_, name)| *name).collect()
    };
    let source = [
        (args.image.is_some(), "--image"),
        (has_auth, "--image-auth-username/--image-auth-password"),
    ];
    let shape = [
        (!args.env.is_empty(), "--env"),
        (!args.resource.is_empty(), "--resource"),
        (!args.entrypoint.is_empty(), "--entrypoint"),
        (args.volumes_file.is_some(), "--volumes-file"),
        (args.credential_proxy, "--credential-proxy"),
    ];
    if args.template.is_some() && args.snapshot_id.is_some() {
        return Err(usage("--template and --snapshot-id exclude each other"));
    }
    if args.template.is_some() {
        let mut wrong = given(&source);
        wrong.extend(given(&shape));
        if !wrong.is_empty() {
            return Err(Error::Usage(format!(
                "a template says by itself what its sandboxes are like; {} cannot be given with \
                 --template",
                wrong.join(", ")
            )));
        }
    }
    if args.snapshot_id.is_some() && !given(&source).is_empty() {
        return Err(usage(
            "--snapshot-id cannot be given with --image or its credentials",
        ));
    }
    if args.image_auth_username.is_some() != args.image_auth_password.is_some() {
        return Err(usage(
            "--image-auth-username and --image-auth-password must be given together",
        ));
    }
    if args.credential_proxy && args.network_policy_file.is_none() {
        return Err(usage(
            "--credential-proxy needs --network-policy-file: credentials are put in where the \
             policy is enforced",
        ));
    }
    Ok(())
}

fn from_file(app: &App, args: &Create, path: &Path) -> Result<Order, Error> {
    let flags = [
        (args.image.is_some(), "--image"),
        (
            args.image_auth_username.is_some() || args.image_auth_password.is_some(),
            "--image-auth-username/--image-auth-password",
        ),
        (args.template.is_some(), "--template"),
        (args.snapshot_id.is_some(), "--snapshot-id"),
        (args.timeout.is_some(), "--timeout"),
        (!args.env.is_empty(), "--env"),
        (!args.metadata.is_empty(), "--metadata"),
        (args.name.is_some(), "--name"),
        (!args.extension.is_empty(), "--extension"),
        (!args.resource.is_empty(), "--resource"),
        (!args.entrypoint.is_empty(), "--entrypoint"),
        (args.network_policy_file.is_some(), "--network-policy-file"),
        (args.credential_proxy, "--credential-proxy"),
        (args.volumes_file.is_some(), "--volumes-file"),
    ];
    request_file::check_alone(&flags)?;
    let (mut request, is_timed) = request_file::sandbox(path)?;
    let mut time = Lifetime::Default;
    if is_timed {
        time = match request.timeout {
            Some(seconds) => Lifetime::For(Duration::from_secs(seconds.unsigned_abs())),
            None => Lifetime::Forever,
        };
    } else if request.template_id.is_some() {
        return Err(Error::Content {
            path: path.display().to_string(),
            message: "a template needs a 'timeout', in seconds".to_owned(),
        });
    } else if let found @ (Lifetime::For(_) | Lifetime::Forever) = lifetime(app, None)? {
        time = found;
    }
    if time == Lifetime::Forever && request.template_id.is_some() {
        return Err(Error::Content {
            path: path.display().to_string(),
            message: "a sandbox from a template cannot live for ever".to_owned(),
        });
    }
    let source = if let Some(image) = &request.image {
        ("image", image.uri.clone())
    } else if let Some(template) = &request.template_id {
        ("template", template.clone())
    } else {
        (
            "snapshot_id",
            request.snapshot_id.clone().unwrap_or_default(),
        )
    };
    // What the file leaves out is what the SDK would have said.
    let defaults = CreateSandbox::from_image("").request().clone();
    if request.template_id.is_none() {
        request.resource_limits = request.resource_limits.or(defaults.resource_limits);
        request.entrypoint = request.entrypoint.or(defaults.entrypoint);
    }
    request.timeout = match time {
        Lifetime::Default => defaults.timeout,
        Lifetime::Forever => None,
        Lifetime::For(time) => Some(i64::try_from(time.as_secs()).unwrap_or(i64::MAX)),
    };
    Ok(Order {
        call: CreateSandbox::from_request(request),
        lifetime: described(time),
        source,
    })
}

/// The lifetime named, or the configured default.
fn lifetime(app: &App, named: Option<&str>) -> Result<Lifetime, Error> {
    let configured = app.config()?.default_timeout.clone();
    let Some(text) = named.map(str::to_owned).or(configured) else {
        return Ok(Lifetime::Default);
    };
    match duration::parse_or_none(&text) {
        Ok(Some(time)) => Ok(Lifetime::For(time)),
        Ok(None) => Ok(Lifetime::Forever),
        Err(error) => Err(Error::Usage(error.to_string())),
    }
}

fn described(lifetime: Lifetime) -> String {
    match lifetime {
        Lifetime::Default => "sdk-default".to_owned(),
        Lifetime::Forever => "manual-cleanup".to_owned(),
        Lifetime::For(time) => duration::clock(time),
    }
}

fn usage(text: &str) -> Error {
    Error::Usage(text.to_owned())
}

/// A file with JSON of a known shape.
pub(super) fn json<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::file("read", path, e))?;
    serde_json::from_str(&text).map_err(|error| Error::Content {
        path: path.display().to_string(),
        message: error.to_string(),
    })
}
