//! Images that the backend keeps: list, pull, import, export, remove.

use std::convert::Infallible;

use api::error::ErrorCode;
use api::image_reference::ImageReference;
use api::inventory::{
    ImageUsage, ImportImagesResponse, ListImagesResponse, PruneImagesResponse, PullEvent,
    PullImageRequest,
};
use api::json;
use api::problem::{Problem, Problems};
use api::query::Query;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::sse::{Event as Frame, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::{StatusCode, header};
use lifecycle::Service;
use lifecycle::backend::{Image, Platform, PullProgress, RegistryAuth};
use lifecycle::event::AuditEntry;
use tokio::sync::mpsc;
use tokio_util::io::{ReaderStream, StreamReader};

use super::audit::CallerService;
use super::events::HEARTBEAT;
use super::extract::{BODY_PATIENCE, RawQuery, Whole};
use super::{App, Error, audit};

/// Reports that wait for a slow reader; the backend drops what does not fit, and each later
/// report says all that the earlier ones did.
const REPORTS: usize = 64;

/// Of an archive at once; about what a disk reads ahead.
const ARCHIVE_BYTES: usize = 256 * 1024;

/// `GET /images`
pub(super) async fn list(
    CallerService(service): CallerService,
) -> Result<Json<ListImagesResponse>, Error> {
    let (images, usage) = service.images().await.map_err(Error::Image)?;
    let usage = usage.map(|usage| ImageUsage {
        layers_bytes: usage.layers_bytes,
        snapshots_bytes: usage.snapshots_bytes,
        other_bytes: usage.other_bytes,
        reclaimable_bytes: usage.reclaimable_bytes,
    });
    let items = images.into_iter().map(wire).collect();
    Ok(Json(ListImagesResponse { items, usage }))
}

fn wire(image: Image) -> api::inventory::Image {
    api::inventory::Image {
        id: image.id,
        references: image.references,
        platform: image.platform,
        size_bytes: image.size_bytes,
        created_at: super::wire::micros(image.created_at),
        users: image.users,
        entrypoint: image.entrypoint,
        cmd: image.cmd,
    }
}

/// `POST /images/pull`
pub(super) async fn pull(
    State(app): State<App>,
    CallerService(service): CallerService,
    Extension(pending): Extension<audit::PendingAudit>,
    Whole(body): Whole,
) -> Result<Response, Error> {
    let request: PullImageRequest =
        json::from_slice(&body).map_err(|problem| Error::body(vec![problem]))?;
    let mut problems = Problems::new();
    problems.check(
        ErrorCode::SandboxInvalidParameter,
        "image.uri",
        request.image.uri.parse::<ImageReference>(),
    );
    problems.into_result(()).map_err(Error::body)?;
    let (events, mut stream) = mpsc::channel(REPORTS);
    let uri = request.image.uri.clone();
    app.0
        .spawner
        .clone()
        .spawn("pull", run_pull(app, service, request, pending, events));
    // What fails before anything has come is an answer like any other.
    let first = match stream.recv().await {
        Some(Ok(event)) => event,
        Some(Err(error)) => return Err(error),
        None => return Err(Error::from(lifecycle::Error::ShuttingDown)),
    };
    let frames = Sse::new(frames(first, stream)).keep_alive(KeepAlive::new().interval(HEARTBEAT));
    let told = (
        Extension(audit::Target(uri)),
        Extension(audit::RecordsItself),
    );
    Ok((told, frames).into_response())
}

type Report = Result<PullEvent, Error>;

/// Pulls for as long as somebody reads, and records how it ended.
async fn run_pull(
    app: App,
    service: Service,
    request: PullImageRequest,
    pending: audit::PendingAudit,
    events: mpsc::Sender<Report>,
) {
    let (progress, mut reports) = mpsc::channel(REPORTS);
    let uri = request.image.uri.clone();
    let work = async {
        let auth = request.image.auth.map(|auth| RegistryAuth {
            username: auth.username,
            password: auth.password.expose().into(),
        });
        let platform = request.platform.map(|platform| {
            let platform = platform.normalized();
            Platform {
                os: platform.os,
                arch: platform.arch,
            }
        });
        let pulled = service.pull_image(&uri, auth.as_ref(), platform.as_ref(), progress);
        pulled.await.map_err(Error::Image)
    };
    let stopping = app.0.spawner.stopping();
    let mut is_answered = false;
    let mut work = std::pin::pin!(work);
    let outcome = loop {
        tokio::select! {
            biased;
            Some(report) = reports.recv() => {
                // A reader that is slow misses some; one that is gone is seen below.
                is_answered |= events.try_send(Ok(event(report))).is_ok();
            }
            outcome = &mut work => break Some(outcome),
            () = events.closed() => break None,
            () = stopping.cancelled() => break Some(Err(lifecycle::Error::ShuttingDown.into())),
        }
    };
    while let Ok(report) = reports.try_recv() {
        is_answered |= events.try_send(Ok(event(report))).is_ok();
    }
    let (told, last) = match outcome {
        Some(Ok(id)) => (AuditEntry::OK, Some(PullEvent::Done { id })),
        Some(Err(error)) if is_answered => {
            let (code, error) = (error.code().as_str(), error.envelope());
            (code, Some(PullEvent::Error { error }))
        }
        // The handler answers it, and it is recorded as any other answer.
        Some(Err(error)) => return drop(events.send(Err(error)).await),
        None => (audit::CANCELLED, None),
    };
    audit::end(&app, pending, uri.clone(), told).await;
    if let Some(last) = last {
        let _ = events.send(Ok(last)).await;
    }
}

fn event(report: PullProgress) -> PullEvent {
    match report {
        PullProgress::Resolved {
            layers,
            total_bytes,
        } => PullEvent::Resolved {
            layers: layers as u64,
            total_bytes,
        },
        PullProgress::Downloaded { bytes } => PullEvent::Downloaded { bytes },
        PullProgress::Unpacked { digest } => PullEvent::Unpacked { digest },
    }
}

fn frames(
    first: PullEvent,
    stream: mpsc::Receiver<Report>,
) -> impl Stream<Item = Result<Frame, Infallible>> {
    let rest = futures_util::stream::unfold(stream, |mut stream| async move {
        // Once the first event has come, errors are events too.
        let event = stream.recv().await?.ok()?;
        Some((event, stream))
    });
    futures_util::stream::once(std::future::ready(first))
        .chain(rest)
        .map(|event| {
            let data = serde_json::to_string(&event).expect("an event is plain data");
            Ok(Frame::default().event(event.as_str()).data(data))
        })
}

/// `POST /images/import`
pub(super) async fn import(
    CallerService(service): CallerService,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Response, Error> {
    let query = Query::parse(&query).map_err(|problem| Error::query(vec![problem]))?;
    let name = query.first("name").map(str::to_owned);
    let archive = Box::new(StreamReader::new(Box::pin(pieces(body))));
    let import = service.import_images(archive, name.as_deref());
    let ids = import.await.map_err(Error::Image)?;
    let target = Extension(audit::Target(name.unwrap_or_else(|| ids.join(" "))));
    Ok((target, Json(ImportImagesResponse { ids })).into_response())
}

/// An upload as it comes. It may take as long as it takes, but must not stand still.
fn pieces(body: Body) -> impl Stream<Item = std::io::Result<Bytes>> {
    futures_util::stream::unfold(body.into_data_stream(), |mut stream| async move {
        let piece = match tokio::time::timeout(BODY_PATIENCE, stream.next()).await {
            Ok(piece) => piece?.map_err(std::io::Error::other),
            Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
        };
        Some((piece, stream))
    })
}

/// `GET /images/export`
pub(super) async fn export(
    CallerService(service): CallerService,
    RawQuery(query): RawQuery,
) -> Result<Response, Error> {
    let query = Query::parse(&query).map_err(|problem| Error::query(vec![problem]))?;
    let Some(reference) = query.first("reference") else {
        let problem = Problem::new("reference", "is missing: which image?");
        return Err(Error::query(vec![problem]));
    };
    let archive = service.export_image(reference);
    let archive = archive.await.map_err(Error::Image)?;
    let body = Body::from_stream(ReaderStream::with_capacity(archive, ARCHIVE_BYTES));
    Ok(([(header::CONTENT_TYPE, "application/x-tar")], body).into_response())
}

/// `POST /images/tag`
pub(super) async fn tag(
    CallerService(service): CallerService,
    RawQuery(query): RawQuery,
) -> Result<Response, Error> {
    let query = Query::parse(&query).map_err(|problem| Error::query(vec![problem]))?;
    let mut problems = Problems::new();
    let mut required = |field: &'static str| {
        let given = query.first(field).unwrap_or_default();
        if given.is_empty() {
            problems.add(field, "is missing");
        }
        given
    };
    let (reference, name) = (required("reference"), required("name"));
    problems.into_result(()).map_err(Error::query)?;
    let tagging = service.tag_image(reference, name);
    let image = tagging.await.map_err(Error::Image)?;
    let target = Extension(audit::Target(name.to_owned()));
    Ok((target, Json(wire(image))).into_response())
}

/// `DELETE /images/{reference}`
pub(super) async fn remove(
    CallerService(service): CallerService,
    Path(reference): Path<String>,
) -> Result<StatusCode, Error> {
    let removal = service.remove_image(&reference);
    removal.await.map_err(Error::Image)?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /images/prune`
pub(super) async fn prune(
    CallerService(service): CallerService,
) -> Result<Json<PruneImagesResponse>, Error> {
    let gone = service.prune_images().await.map_err(Error::Image)?;
    Ok(Json(PruneImagesResponse {
        images: gone.images,
        layers: gone.layers,
        bytes: gone.bytes,
    }))
}
