//! Making a sandbox, and leaving nothing behind when that fails.

use std::path::PathBuf;
use std::sync::Arc;

use api::error_chain;
use api::id::SandboxId;
use lifecycle::backend::{Created, Error, Limits, Platform, Source, Spec};
use rustix::io::Errno;
use tracing::Instrument as _;

use super::build::{self, BuildInputs, Built};
use super::record::{Process, RECORD_VERSION, Record, boot_id};
use super::{Alive, Sandbox, State, limits, policy, release_resources, removal, volume};
use crate::backend::Shared;
use crate::cgroup::Group;
use crate::image::{self, Prepared};
use crate::net::{Network, Slot};
use crate::spawner::protocol::{InitFailure, Step};
use crate::spawner::{SpawnError, Spawned};
use crate::sys;

/// Makes and starts a sandbox. On error nothing of it is left.
pub(crate) async fn create(
    shared: &Arc<Shared>,
    spec: Spec,
) -> Result<(Arc<Sandbox>, Created), Error> {
    let network = Network::of_policy(&spec.network, shared.pool.has_gate())?;
    let image = prepare_image(shared, &spec);
    let image = image.instrument(phase!("prepare image")).await?;
    let limits = limits::of(shared, &spec.limits)?;
    let slot = shared.pool.take(network);
    let slot = slot.instrument(phase!("take network")).await;
    let slot = slot.map_err(|error| slot_error(&error))?;
    // Before the sandbox has a process.
    if let Err(error) = policy::enforce(shared, &spec.id, &spec.network, &slot).await {
        give_back(shared, &slot).await;
        return Err(error);
    }
    let group = match shared.tree.take() {
        Ok(group) => group,
        Err(error) => {
            give_back(shared, &slot).await;
            return Err(group_error(&error));
        }
    };
    let mut unfinished = Unfinished {
        slot: (slot.index, slot.network),
        group,
        directory: None,
        own_volumes: Vec::new(),
    };
    let creation = start(
        shared,
        (spec, network),
        limits,
        image,
        slot,
        &mut unfinished,
    );
    let made = creation.await;
    if made.is_err() {
        unfinished.undo(shared).await;
    }
    made
}

/// Gives back a slot that no sandbox was made in.
async fn give_back(shared: &Shared, slot: &Slot) {
    super::release_slot(shared, slot.index, slot.network).await;
}

/// What has been made so far of a sandbox, to be undone if the rest fails.
struct Unfinished {
    slot: (u32, Network),
    group: Group,
    directory: Option<PathBuf>,
    own_volumes: Vec<String>,
}

impl Unfinished {
    async fn undo(self, shared: &Arc<Shared>) {
        release_resources(shared, &self.group, self.slot).await;
        let (directory, volumes) = (self.directory, self.own_volumes);
        let layout = shared.layout.clone();
        let removed = tokio::task::spawn_blocking(move || {
            removal::remove_volumes(&volumes, &layout.volumes());
            directory.map_or(Ok(()), |directory| removal::remove_now(&directory, &layout))
        });
        if let Ok(Err(error)) = removed.await {
            tracing::warn!(error = %api::error_chain(&error), "a half-made sandbox's directory could not be removed");
        }
    }
}

async fn start(
    shared: &Arc<Shared>,
    (spec, network): (Spec, Network),
    limits: Limits,
    image: Prepared,
    slot: Slot,
    unfinished: &mut Unfinished,
) -> Result<(Arc<Sandbox>, Created), Error> {
    unfinished
        .group
        .limit_new(&limits)
        .map_err(|error| limit_error(&error))?;
    let cgroup = unfinished
        .group
        .entry()
        .map_err(|error| group_error(&error))?;
    let entrypoint = match &spec.entrypoint {
        Some(given) => given.clone(),
        None => image.config.command(),
    };
    let wanted = DiskSetup {
        spec,
        network,
        limits,
        entrypoint,
        image,
        slot,
        group: unfinished.group.name().to_owned(),
        cgroup,
    };
    let on_disk = set_up_on_disk(shared, wanted, unfinished);
    let on_disk = on_disk.instrument(phase!("set up on disk")).await?;
    let spawned = spawn(shared, on_disk, unfinished);
    spawned.instrument(phase!("start process")).await
}

/// Has PID 1 cloned and waits until it runs execd.
async fn spawn(
    shared: &Arc<Shared>,
    on_disk: OnDisk,
    unfinished: &Unfinished,
) -> Result<(Arc<Sandbox>, Created), Error> {
    let OnDisk {
        directory,
        record,
        built,
        image,
        slot,
    } = on_disk;
    let spawned = shared
        .spawner
        .spawn(&built.request, &built.descriptors)
        .await
        .map_err(|error| spawn_error(error, &record.id))?;
    let process = record_process(&spawned, &directory);
    spawned
        .executed()
        .await
        .map_err(|error| spawn_error(error, &record.id))?;
    let process = process.map_err(|source| {
        build::failed(
            format!("recording the process of sandbox {}", record.id),
            source,
        )
    })?;
    let watched = sys::watch(spawned.into_pidfd())
        .map_err(|source| build::failed("watching the new process".to_owned(), source))?;
    let Built {
        descriptors,
        control,
        ..
    } = built;
    // The last descriptor of a detached mount takes the mount away, for which the kernel waits up
    // to milliseconds. The sandbox has what it needs of them.
    shared.behind.spawn_blocking(move || drop(descriptors));
    let alive = Alive {
        pidfd: watched,
        group: unfinished.group.clone(),
        control,
        net: slot.net,
    };
    let created = Created {
        started_at: process.started_at,
        entrypoint: record.entrypoint.clone(),
        platform: record.platform.clone(),
        image_digest: image.id.digest(),
    };
    let holds = (Some(image.lease), shared.lock.clone());
    let sandbox = Sandbox::alive(record, &process, directory, alive, State::Running, holds);
    sandbox.watch(shared);
    Ok((sandbox, created))
}

/// Writes down who the process is, while it goes on becoming the sandbox.
fn record_process(spawned: &Spawned, directory: &std::path::Path) -> std::io::Result<Process> {
    let process = Process::observe(spawned.pid.as_raw_nonzero().get())?;
    process.write(directory)?;
    Ok(process)
}

/// What a sandbox's directory is made from.
struct DiskSetup {
    spec: Spec,
    network: Network,
    limits: Limits,
    entrypoint: Vec<String>,
    image: Prepared,
    slot: Slot,
    /// The name of its cgroup.
    group: String,
    cgroup: crate::cgroup::Entry,
}

/// A sandbox whose directory is made and whose process is not.
struct OnDisk {
    directory: PathBuf,
    record: Record,
    built: Built,
    image: Prepared,
    slot: Slot,
}

/// Everything that touches the disk, on a thread that may block.
async fn set_up_on_disk(
    shared: &Arc<Shared>,
    setup: DiskSetup,
    unfinished: &mut Unfinished,
) -> Result<OnDisk, Error> {
    let blocking = {
        let shared = shared.clone();
        tokio::task::spawn_blocking(move || {
            let (mut directory, mut own_volumes) = (None, Vec::new());
            let outcome = setup.make(&shared, &mut directory, &mut own_volumes);
            (directory, own_volumes, outcome)
        })
    };
    let (directory, own_volumes, outcome) = blocking
        .await
        .map_err(|error| Error::Internal(format!("preparing a sandbox panicked: {error}")))?;
    unfinished.directory = directory;
    unfinished.own_volumes = own_volumes;
    outcome
}

impl DiskSetup {
    /// Makes the directory, the volumes, the record and what the spawner needs. The directory and
    /// the volumes are noted as they are made, so that the caller can undo them after an error.
    fn make(
        self,
        shared: &Shared,
        made: &mut Option<PathBuf>,
        own_volumes: &mut Vec<String>,
    ) -> Result<OnDisk, Error> {
        let id = &self.spec.id;
        let directory = shared.layout.sandboxes().join(id.as_str());
        std::fs::create_dir(&directory).map_err(|source| directory_error(id, source))?;
        *made = Some(directory.clone());
        let ids = volume::Ids {
            user: std::os::fd::AsFd::as_fd(&self.slot.user),
            first_id: self.slot.first_id,
            host_path_root: shared.config.host_path_root,
            host_path_ids: shared.config.network.host_path_ids(),
        };
        let volumes = &self.spec.volumes;
        let mounts = volume::prepare(volumes, &shared.layout.volumes(), &ids, own_volumes)?;
        let record = self
            .record(own_volumes)
            .and_then(|record| record.write(&directory).map(|()| record));
        let record = record.map_err(|source| {
            build::failed(format!("writing the record of sandbox {id}"), source)
        })?;
        let images = shared.layout.images();
        let inputs = BuildInputs {
            image: &self.image,
            images: &images,
            host_layers: &shared.host_layers,
            slot: &self.slot,
            resolv_conf: match self.network {
                Network::Outside => shared.pool.resolv_conf().to_owned(),
                Network::Gated => shared.pool.gated_resolv_conf(),
                // It may be given rules later, and this file is not written again.
                Network::None if shared.gate.is_some() => shared.pool.gated_resolv_conf(),
                Network::None => String::new(),
            },
            cgroup: self.cgroup,
            program: std::os::fd::AsFd::as_fd(&shared.program),
            execd_port: shared.config.execd_port,
            open_files: self.limits.open_files,
            disk: self.limits.disk_bytes.zip(shared.disk_images.as_ref().ok()),
        };
        let skeletons = &shared.skeletons;
        let entrypoint = &self.entrypoint;
        let built = build::build(
            &self.spec, entrypoint, inputs, &directory, skeletons, mounts,
        )?;
        Ok(OnDisk {
            directory,
            record,
            built,
            image: self.image,
            slot: self.slot,
        })
    }

    fn record(&self, own_volumes: &[String]) -> std::io::Result<Record> {
        let platform = &self.image.config.platform;
        Ok(Record {
            version: RECORD_VERSION,
            id: self.spec.id.clone(),
            labels: self.spec.labels.clone(),
            image: self.image.id.clone(),
            source: match &self.spec.source {
                Source::Image { reference, .. } => reference.clone(),
                Source::Snapshot(snapshot) => format!("snapshot {snapshot}"),
            },
            entrypoint: self.entrypoint.clone(),
            platform: Platform {
                os: platform.os.clone(),
                arch: platform.arch.clone(),
            },
            limits: self.limits.clone(),
            network: self.network,
            policy: (self.network == Network::Gated).then(|| self.spec.network.clone()),
            slot: self.slot.index,
            group: self.group.clone(),
            own_volumes: own_volumes.to_vec(),
            claims: volume::claims(&self.spec.volumes),
            boot: boot_id()?,
        })
    }
}

async fn prepare_image(shared: &Shared, spec: &Spec) -> Result<Prepared, Error> {
    if let Some(wanted) = &spec.platform
        && *wanted != image::this_platform()
    {
        let here = image::this_platform();
        return Err(Error::Invalid {
            field: "platform",
            message: format!(
                "this machine runs {}/{} only, not {}/{}",
                here.os, here.arch, wanted.os, wanted.arch
            ),
        });
    }
    let prepared = shared
        .images
        .prepare(&spec.source, spec.platform.as_ref())
        .await;
    prepared.map_err(|error| image_error(error, &spec.source))
}

fn directory_error(id: &SandboxId, source: std::io::Error) -> Error {
    if source.kind() == std::io::ErrorKind::AlreadyExists {
        return Error::Invalid {
            field: "id",
            message: format!("sandbox {id} exists already"),
        };
    }
    build::failed(format!("making the directory of sandbox {id}"), source)
}

/// An error of the image store as the backend's.
pub(crate) fn image_error(error: image::Error, source: &Source) -> Error {
    let name = match source {
        Source::Image { reference, .. } => reference.clone(),
        Source::Snapshot(snapshot) => format!("snapshot {snapshot}"),
    };
    let is_transient = error.is_transient();
    match error {
        image::Error::InvalidReference { .. } => Error::Invalid {
            field: "image",
            message: error.to_string(),
        },
        image::Error::NotFound { reference, message } => {
            Error::ImageNotFound { reference, message }
        }
        image::Error::Unauthorized { reference, message } => {
            Error::ImageUnauthorized { reference, message }
        }
        image::Error::WrongPlatform { .. } => Error::Invalid {
            field: "platform",
            message: error.to_string(),
        },
        image::Error::DiskFull { .. } => Error::Exhausted {
            what: "disk",
            message: error.to_string(),
        },
        image::Error::InUse { what, by } => Error::InUse { what, by },
        image::Error::UnknownImage(_) => match source {
            Source::Snapshot(snapshot) => Error::SnapshotNotFound(snapshot.clone()),
            Source::Image { .. } => Error::ImageNotFound {
                reference: name,
                message: error.to_string(),
            },
        },
        image::Error::Io { action, source } => Error::Io {
            action,
            source: std::io::Error::new(source.kind(), source),
        },
        other => Error::ImagePull {
            reference: name,
            message: other.to_string(),
            is_transient,
        },
    }
}

fn slot_error(error: &crate::net::Error) -> Error {
    match error {
        crate::net::Error::Exhausted(_) => Error::Exhausted {
            what: "network slots",
            message: error.to_string(),
        },
        other => Error::Unavailable {
            backend: "embedded",
            message: error_chain(other).to_string(),
        },
    }
}

fn group_error(error: &crate::cgroup::Error) -> Error {
    Error::Unavailable {
        backend: "embedded",
        message: error_chain(error).to_string(),
    }
}

fn limit_error(error: &crate::cgroup::Error) -> Error {
    Error::Invalid {
        field: "resourceLimits",
        message: error_chain(error).to_string(),
    }
}

fn spawn_error(error: SpawnError, id: &SandboxId) -> Error {
    match error {
        SpawnError::Failed(failure) => failure_error(&failure, id),
        SpawnError::TooLarge { .. } => Error::Invalid {
            field: "env",
            message: error.to_string(),
        },
        SpawnError::Stuck => Error::Start {
            message: error.to_string(),
        },
        other => Error::Unavailable {
            backend: "embedded",
            message: error_chain(&other).to_string(),
        },
    }
}

fn failure_error(failure: &InitFailure, id: &SandboxId) -> Error {
    let errno = Errno::from_raw_os_error(failure.errno);
    let about = &failure.about;
    let invalid = |field: &'static str, message: String| Error::Invalid { field, message };
    match (failure.step, errno) {
        (Step::Clone | Step::Cgroup, Errno::AGAIN | Errno::NOMEM | Errno::NOSPC) => {
            Error::Exhausted {
                what: "processes",
                message: format!("{}: {errno}; delete sandboxes", failure.step.doing()),
            }
        }
        (Step::Rlimits, Errno::PERM | Errno::INVAL) => invalid(
            "resourceLimits",
            format!("the server itself may not have that many {about}; ask for fewer"),
        ),
        (Step::Mount, Errno::NOTDIR | Errno::LOOP | Errno::ISDIR | Errno::EXIST) => invalid(
            "volumes.mountPath",
            format!("{about} cannot be mounted on: {errno}; choose a path the image leaves free"),
        ),
        (Step::Proc | Step::Sys | Step::Dev, Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {
            Error::Start {
                message: format!(
                    "{} failed: the image has something there that is not a directory",
                    failure.step.doing()
                ),
            }
        }
        (Step::User, Errno::NOENT) => Error::Start {
            message: format!("the image's user {about} is not in its /etc/passwd or /etc/group"),
        },
        (Step::Entrypoint, _) => Error::Start {
            message: format!(
                "the entrypoint {about} cannot be run in this image: {errno}; give another \
                 entrypoint or an image that has it"
            ),
        },
        (Step::Execute, Errno::TOOBIG) => invalid(
            "env",
            "the command and the environment are larger than the kernel takes".to_owned(),
        ),
        _ => Error::Start {
            message: format!(
                "{} {about} failed: {errno} (sandbox {id})",
                failure.step.doing()
            ),
        },
    }
}
