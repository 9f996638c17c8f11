//! Making a sandbox: two calls of the engine, and everything undone if one of them fails.

use std::path::PathBuf;
use std::sync::Arc;

use api::egress::policy::PolicyMode;
use api::id::SandboxId;
use bollard::container::LogOutput;
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, CreateContainerOptionsBuilder, InspectContainerOptions,
    StartContainerOptions,
};
use futures_util::StreamExt as _;
use jiff::Timestamp;
use lifecycle::backend::{Created, Error, LogQuery, Source, Spec, all_or_nothing};
use lifecycle::execd;
use tokio::io::AsyncWriteExt as _;

use crate::adopt::address;
use crate::backend::Shared;
use crate::container::{self, Wanted};
use crate::directory::{self, failed};
use crate::engine::{EngineError, exhausted, is_full, unavailable};
use crate::handoff::Gate;
use crate::image::{self, Image};
use crate::labels::Labels;
use crate::sandbox::{Known, Reach, Sandbox, State};
use crate::volume::Prepared;
use crate::{logs, removal, volume};

/// Lines of a container that died at once that go into the error.
const LAST_WORDS: LogQuery = LogQuery {
    tail_lines: 5,
    since: None,
    max_bytes: 2048,
};

/// The container's name, as the published server has it.
pub(crate) fn name(id: &SandboxId) -> String {
    format!("sandbox-{id}")
}

pub(crate) async fn create(
    shared: &Arc<Shared>,
    spec: &Spec,
) -> Result<(Arc<Sandbox>, Created), Error> {
    let image = find(shared, spec).await?;
    let mut volumes = Prepared::new(shared.layout.pins(), spec.id.to_string());
    let made = make(shared, spec, image, &mut volumes).await;
    if made.is_err() {
        undo(shared, &spec.id, &volumes.made).await;
    }
    made
}

/// The image, pulled if it is not here.
async fn find(shared: &Shared, spec: &Spec) -> Result<Arc<Image>, Error> {
    let name = image::name(&spec.source);
    let look = || {
        shared
            .images
            .find_for(&shared.engine, &name, spec.platform.as_ref())
    };
    if let Some(image) = look().await.map_err(EngineError::into_error)? {
        return Ok(image);
    }
    match &spec.source {
        Source::Snapshot(id) => Err(Error::SnapshotNotFound(id.clone())),
        Source::Image { reference, auth } => {
            let images = &shared.images;
            let pulled = images.pull(
                &shared.engine,
                reference,
                auth.as_ref(),
                spec.platform.as_ref(),
                None,
            );
            pulled.await?;
            images.changed();
            look()
                .await
                .map_err(EngineError::into_error)?
                .ok_or_else(|| Error::ImageNotFound {
                    reference: reference.clone(),
                    message: "it was pulled and is not there; somebody else removes images"
                        .to_owned(),
                })
        }
    }
}

async fn make(
    shared: &Arc<Shared>,
    spec: &Spec,
    mut image: Arc<Image>,
    volumes: &mut Prepared,
) -> Result<(Arc<Sandbox>, Created), Error> {
    let has_network = all_or_nothing("docker", &spec.network)?;
    if shared.is_secure() && !has_network {
        return Err(Error::Invalid {
            field: "network",
            message: "a sandbox in a secure runtime is reached over its network and must have one"
                .to_owned(),
        });
    }
    for volume in &spec.volumes {
        volumes.add(&shared.engine, volume).await?;
    }
    let place = prepare(shared, spec).await?;
    let command = |image: &Image| match &spec.entrypoint {
        Some(given) if !given.is_empty() => given.clone(),
        _ => image.command.clone(),
    };
    let mut answer = ask(shared, spec, &image, &command(&image), volumes, &place).await;
    if matches!(&answer, Err(failure) if is_missing_image(failure)) {
        // Removed behind our back, after we last heard of it.
        shared.images.changed();
        image = find(shared, spec).await?;
        answer = ask(shared, spec, &image, &command(&image), volumes, &place).await;
    }
    let container = answer.map_err(|failure| sort(failure, &spec.id))?;
    let sandbox = Arc::new(Sandbox::new(Known {
        id: spec.id.clone(),
        container,
        image: image.id.clone(),
        labels: spec.labels.clone(),
        execd: shared
            .program(&image.platform)
            .map_or(String::new(), |(digest, _)| digest.to_owned()),
        volumes: volumes.leaving.clone(),
        token: Some(spec.access_token.clone()),
        is_incomplete: false,
        state: State::Made,
    }));
    shared.sandboxes.attach(&sandbox);
    let started_at = start(shared, spec, &sandbox, place).await?;
    volumes.release();
    let created = Created {
        started_at,
        entrypoint: command(&image),
        platform: image.platform.clone(),
        image_digest: Some(image.id.clone()),
    };
    Ok((sandbox, created))
}

/// What a sandbox has on the host.
struct Place {
    gate: Option<(PathBuf, Gate)>,
    control: Option<std::os::fd::OwnedFd>,
}

async fn prepare(shared: &Arc<Shared>, spec: &Spec) -> Result<Place, Error> {
    let action = format!("preparing the directory of sandbox {}", spec.id);
    let runtime = tokio::runtime::Handle::current();
    let (shared, id, token) = (shared.clone(), spec.id.clone(), spec.access_token.clone());
    let prepared = tokio::task::spawn_blocking(move || {
        let _inside = runtime.enter();
        let path = shared.layout.prepare(&id, &token)?;
        if shared.is_secure() {
            return Ok(Place {
                gate: None,
                control: None,
            });
        }
        let directory = shared.layout.of(&id);
        let listener = directory::control(&directory)?;
        let gate = Gate::open(&path, listener.into())?;
        std::io::Result::Ok(Place {
            gate: Some((path, gate)),
            control: Some(directory::control_of(&directory)?),
        })
    });
    match prepared.await {
        Ok(prepared) => prepared.map_err(|source| failed(action, source)),
        Err(panic) => Err(Error::Internal(format!("{action} panicked: {panic}"))),
    }
}

/// The first call: the engine makes a container.
async fn ask(
    shared: &Shared,
    spec: &Spec,
    image: &Image,
    command: &[String],
    volumes: &Prepared,
    place: &Place,
) -> Result<String, EngineError> {
    let refuse = |message: String| EngineError::Refused {
        action: "asking for a container",
        status: 400,
        message,
    };
    let (digest, program) = shared.program(&image.platform).ok_or_else(|| {
        refuse(format!(
            "there is no execd for {} here",
            image.platform.arch
        ))
    })?;
    let labels = Labels {
        id: spec.id.to_string(),
        given: spec.labels.clone(),
        directory: shared.layout.of(&spec.id).display().to_string(),
        execd: digest.to_owned(),
        volumes: volumes.leaving.clone(),
        platform: (image.platform.os.clone(), image.platform.arch.clone()),
    };
    let gate = place
        .gate
        .as_ref()
        .map(|(path, _)| path.display().to_string());
    let wanted = Wanted {
        image: &image.id,
        command,
        labels: labels.write(),
        limits: &spec.limits,
        has_network: spec.network.mode() == PolicyMode::AllowAll,
        mounts: volumes.mounts.clone(),
        program,
        gate: gate.as_deref(),
        seccomp: shared.seccomp.as_deref(),
    };
    let body =
        container::body(&shared.config, wanted).map_err(|error| refuse(error.to_string()))?;
    let options = CreateContainerOptionsBuilder::default()
        .name(&name(&spec.id))
        .build();
    let api = &shared.engine.api;
    let asked = shared.engine.call(
        "making a container",
        api.create_container(Some(options), body),
    );
    Ok(asked.await?.id)
}

/// The second call: the container starts, and execd is given what it needs.
async fn start(
    shared: &Arc<Shared>,
    spec: &Spec,
    sandbox: &Arc<Sandbox>,
    place: Place,
) -> Result<Timestamp, Error> {
    let mut env = shared.config.env.clone();
    env.extend(spec.env.clone());
    env.insert("OPENSANDBOX_ID".to_owned(), spec.id.to_string());
    let message = execd::handoff(&spec.access_token, &env, None);
    let handed = async {
        match place.gate {
            Some((_, gate)) => run(shared, sandbox, gate.hand_over(&message)).await,
            None => feed(shared, sandbox, &message).await,
        }
    };
    match tokio::time::timeout(shared.engine.timeout, handed).await {
        Ok(handed) => handed?,
        Err(_) => {
            let limit = shared.engine.timeout.as_secs();
            return Err(unavailable(format!(
                "the sandbox did not come up within {limit} s"
            )));
        }
    }
    sandbox.confirmed(State::Running).await;
    let started_at = *sandbox.started_at.get_or_init(Timestamp::now);
    let reach = match place.control {
        Some(control) => Reach::Socket(control),
        None => Reach::Address(inside_address(shared, sandbox).await?),
    };
    let _ = sandbox.reach.set(reach);
    let (held, id, token) = (shared.clone(), spec.id.clone(), spec.access_token.clone());
    let noted = tokio::task::spawn_blocking(move || held.layout.finish(&id, &token, started_at));
    let noted = noted
        .await
        .map_err(|panic| Error::Internal(panic.to_string()))?;
    noted.map_err(|source| failed(format!("noting that sandbox {} is ready", spec.id), source))?;
    Ok(started_at)
}

/// Starts the container and waits for `handed`, or for its early end.
async fn run(
    shared: &Shared,
    sandbox: &Sandbox,
    handed: impl Future<Output = std::io::Result<()>>,
) -> Result<(), Error> {
    let api = &shared.engine.api;
    let started = async {
        let none = None::<StartContainerOptions>;
        let call = api.start_container(&sandbox.container, none);
        let answer = shared.engine.call("starting a container", call).await;
        answer.map_err(|failure| sort(failure, &sandbox.id))
    };
    let served = async {
        let ended = sandbox.until(shared.engine.timeout, |state| {
            matches!(state, State::Exited(_) | State::Gone)
        });
        tokio::select! {
            biased;
            handed = handed => match handed {
                Ok(()) => Ok(()),
                Err(error) => Err(early_end(shared, sandbox, &error.to_string()).await),
            },
            _ = ended => Err(early_end(shared, sandbox, "it ended before it served").await),
        }
    };
    tokio::try_join!(started, served).map(drop)
}

/// Why a container did not come up, in its own words.
async fn early_end(shared: &Shared, sandbox: &Sandbox, why: &str) -> Error {
    let said = logs::read(&shared.engine, sandbox, LAST_WORDS).await;
    let said = said.map(|logs| logs.text).unwrap_or_default();
    Error::Start {
        message: format!("{why}: {}", said.trim())
            .trim_end_matches([':', ' '])
            .to_owned(),
    }
}

/// Hands over on standard input, and waits until execd says on its output that it serves. For
/// runtimes with a kernel of their own, into which no socket of the host leads.
async fn feed(shared: &Shared, sandbox: &Sandbox, message: &[u8]) -> Result<(), Error> {
    let options = AttachContainerOptionsBuilder::default()
        .stdin(true)
        .stdout(true)
        .stderr(true)
        .stream(true)
        .build();
    let api = &shared.engine.api;
    let call = api.attach_container(&sandbox.container, Some(options));
    let attached = shared.engine.call("attaching to a container", call).await;
    let mut attached = attached.map_err(|failure| sort(failure, &sandbox.id))?;
    let handed = async {
        attached.input.write_all(message).await?;
        attached.input.shutdown().await?;
        while let Some(Ok(output)) = attached.output.next().await {
            if let LogOutput::StdErr { message } = &output
                && message.ends_with(execd::SERVING.as_bytes())
            {
                return Ok(());
            }
        }
        Err(std::io::Error::other("execd ended before it served"))
    };
    run(shared, sandbox, handed).await
}

async fn inside_address(shared: &Shared, sandbox: &Sandbox) -> Result<std::net::IpAddr, Error> {
    let none = None::<InspectContainerOptions>;
    let call = shared
        .engine
        .api
        .inspect_container(&sandbox.container, none);
    let found = shared.engine.call("looking at a container", call).await;
    let networks = found
        .map_err(EngineError::into_error)?
        .network_settings
        .and_then(|settings| settings.networks);
    address(networks.as_ref()).ok_or_else(|| Error::Start {
        message:
            "it has no address, and a sandbox in a secure runtime is reached over its network; \
                  set docker.network_mode to bridge or to a network"
                .to_owned(),
    })
}

fn is_missing_image(failure: &EngineError) -> bool {
    failure.status() == Some(404) && failure.message().contains("No such image")
}

/// The engine's refusals, by their words: it has few codes.
fn sort(failure: EngineError, id: &SandboxId) -> Error {
    let (Some(status), said) = (failure.status(), failure.message()) else {
        return failure.into_error();
    };
    let invalid = |field| Error::Invalid {
        field,
        message: said.to_owned(),
    };
    if status == 409 && said.contains("is already in use") {
        return Error::Invalid {
            field: "id",
            message: format!("sandbox {id} exists already"),
        };
    }
    if is_full(said) {
        return exhausted(said);
    }
    let lower = said.to_lowercase();
    if lower.contains("device driver") || lower.contains("gpu") {
        return invalid("resourceLimits.gpu");
    }
    if status == 400 && lower.contains("memory") {
        return invalid("resourceLimits.memory");
    }
    if status == 400 && lower.contains("cpu") {
        return invalid("resourceLimits.cpu");
    }
    if lower.contains("network") && lower.contains("not found") {
        return unavailable(format!("{said}; make it, or set docker.network_mode"));
    }
    if lower.contains("runtime name") || lower.contains("unknown or invalid runtime") {
        return unavailable(format!("{said}; see secure_runtime"));
    }
    if status == 400 && (lower.contains("mount") || lower.contains("volume")) {
        return invalid("volumes");
    }
    if status == 400 {
        return invalid("sandbox");
    }
    Error::Start {
        message: said.to_owned(),
    }
}

/// Removes all that a failed creation left. An engine that does not answer now is asked again when
/// it tells of the container (see `feed`).
async fn undo(shared: &Arc<Shared>, id: &SandboxId, volumes: &[String]) {
    let removed = removal::remove_container(shared, &name(id), Some(id)).await;
    if let Err(failure) = removed {
        tracing::warn!(sandbox_id = %id, error = %api::error_chain(&failure), "a failed creation is not undone yet");
        shared.abandon(id);
        return;
    }
    for claim in volumes {
        if let Err(failure) = volume::remove(&shared.engine, claim).await {
            tracing::warn!(volume = claim, error = %api::error_chain(&failure), "a volume of a failed creation remains");
        }
    }
    removal::forget_directory(shared, id).await;
}
