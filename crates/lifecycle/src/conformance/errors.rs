//! Every way to be refused that can be provoked from outside: typed, and nothing left behind.

use tokio::sync::mpsc;

use super::world::{Failure, World, ensure};
use super::{Case, case};
use crate::backend::{Error, LogQuery, ObservedState, Source, Spec};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(an_image_that_does_not_exist_is_told_apart, []),
        case!(an_image_that_is_here_needs_no_download, []),
        case!(an_unknown_sandbox_is_not_found, []),
        case!(an_entrypoint_that_does_not_exist_is_told, [Shell]),
        case!(an_entrypoint_that_is_no_program_is_told, [Shell]),
    ]
}

async fn an_image_that_does_not_exist_is_told_apart(world: &World) -> Result<(), Failure> {
    let source = Source::Image {
        reference: world.facts.missing_image.clone(),
        auth: None,
    };
    ensure!(
        !world.backend().is_local(&source, None).await,
        "it is said to be here"
    );
    let (progress, _reports) = mpsc::channel(4);
    let pulled = world.backend().pull(&source, None, progress).await;
    let is_told = |error: &Error| {
        matches!(
            error,
            Error::ImageNotFound { .. } | Error::ImageUnauthorized { .. } | Error::ImagePull { .. }
        )
    };
    ensure!(
        pulled.as_ref().is_err_and(is_told),
        "pulling says {pulled:?}"
    );
    let spec = Spec {
        source,
        ..world.spec()
    };
    world.note(&spec);
    let created = world.backend().create(spec).await;
    ensure!(
        created.as_ref().is_err_and(is_told),
        "creating says {created:?}"
    );
    Ok(())
}

async fn an_image_that_is_here_needs_no_download(world: &World) -> Result<(), Failure> {
    let source = Source::Image {
        reference: world.facts.image.clone(),
        auth: None,
    };
    ensure!(
        world.backend().is_local(&source, None).await,
        "it is said to need a download"
    );
    let (progress, _reports) = mpsc::channel(4);
    Ok(world.backend().pull(&source, None, progress).await?)
}

async fn an_unknown_sandbox_is_not_found(world: &World) -> Result<(), Failure> {
    let id = world.spec().id;
    let backend = world.backend();
    let inspected = backend.inspect(&id).await.err();
    ensure!(
        matches!(inspected, Some(Error::NotFound(_))),
        "inspect says {inspected:?}"
    );
    let query = LogQuery {
        tail_lines: 1,
        since: None,
        max_bytes: 1024,
    };
    let logs = backend.logs(&id, query).await.err();
    ensure!(
        matches!(logs, Some(Error::NotFound(_))),
        "logs say {logs:?}"
    );
    let described = backend.describe(&id).await.err();
    ensure!(
        matches!(described, Some(Error::NotFound(_))),
        "describe says {described:?}"
    );
    Ok(())
}

/// Refused at once, or ended with the code shells use and a line in the log.
async fn cannot_start(world: &World, program: &str, code: i32) -> Result<(), Failure> {
    let events = world.backend().events();
    let spec = Spec {
        entrypoint: Some(vec![program.to_owned()]),
        ..world.spec()
    };
    let made = world.note(&spec);
    match world.backend().create(spec).await {
        Err(Error::Start { message }) => {
            ensure!(
                message.contains(program),
                "the message does not name it: {message:?}"
            );
            let listed = world.backend().list().await?;
            ensure!(
                listed.iter().all(|o| o.id != made.id),
                "it is listed all the same"
            );
            Ok(())
        }
        Err(other) => Err(Failure(format!("told as {other:?}"))),
        Ok(_) => {
            let exit = world.until_exited(&made.id, events).await?;
            ensure!(
                exit.code == Some(code),
                "it ended with {exit:?}, not {code}"
            );
            let query = LogQuery {
                tail_lines: 100,
                since: None,
                max_bytes: 1 << 16,
            };
            let logs = world.backend().logs(&made.id, query).await?;
            ensure!(
                logs.text.contains(program),
                "the log does not name it: {:?}",
                logs.text
            );
            let state = world.backend().inspect(&made.id).await?.state;
            ensure!(matches!(state, ObservedState::Exited(_)), "it is {state:?}");
            Ok(())
        }
    }
}

async fn an_entrypoint_that_does_not_exist_is_told(world: &World) -> Result<(), Failure> {
    cannot_start(world, "/no/such/program", 127).await
}

async fn an_entrypoint_that_is_no_program_is_told(world: &World) -> Result<(), Failure> {
    cannot_start(world, "/etc", 126).await
}
