//! Reaching what listens inside.

use futures_util::future::join_all;
use serde_json::json;
use tokio::io::AsyncReadExt;

use super::world::{Failure, Made, World, ensure};
use super::{Case, case};
use crate::backend::{ConnectError, Target};

/// A port no image listens on.
const PORT: u16 = 34_567;

/// Streams opened at the same time.
const STREAMS: usize = 64;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(a_port_on_loopback_is_reached, [Listen]),
        case!(a_port_nobody_listens_on_is_told_apart, [Shell]),
        case!(two_sandboxes_listen_on_the_same_port, [Listen]),
        case!(an_unknown_sandbox_is_told_apart, []),
        case!(an_ended_sandbox_is_told_apart, [Shell]),
        case!(many_streams_at_once, [Shell]),
        case!(a_stream_that_is_dropped_disturbs_nobody, [Shell]),
    ]
}

/// Starts the listener inside and connects to it.
pub(super) async fn reach(world: &World, made: &Made, port: u16) -> Result<(), Failure> {
    let command = world.facts.listen.clone().unwrap_or_default();
    let command = command.replace("{port}", &port.to_string());
    let mut daemon = world.daemon(made).await?;
    let mut listener = daemon.start(json!({ "command": command })).await?;
    listener.until_printed("listening").await?;
    let mut stream = world
        .backend()
        .connect(&made.id, Target::Port(port))
        .await?;
    let mut said = [0; 5];
    stream.read_exact(&mut said).await?;
    ensure!(&said == b"hello", "it said {said:?}");
    drop(stream);
    listener.finish().await?;
    Ok(())
}

async fn a_port_on_loopback_is_reached(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    reach(world, &made, PORT).await
}

async fn a_port_nobody_listens_on_is_told_apart(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    let opened = world.backend().connect(&made.id, Target::Port(PORT)).await;
    match opened {
        Err(ConnectError::NotListening(PORT)) => Ok(()),
        Err(other) => Err(Failure(format!("told as {other:?}"))),
        Ok(_) => Err(Failure("it was opened".to_owned())),
    }
}

async fn two_sandboxes_listen_on_the_same_port(world: &World) -> Result<(), Failure> {
    let (one, two) = (world.plain().await?, world.plain().await?);
    let both = tokio::join!(reach(world, &one, PORT), reach(world, &two, PORT));
    both.0.and(both.1)
}

async fn an_unknown_sandbox_is_told_apart(world: &World) -> Result<(), Failure> {
    for target in [Target::Control, Target::Port(PORT)] {
        match world.backend().connect(&world.spec().id, target).await {
            Err(ConnectError::NotFound(_)) => {}
            Err(other) => return Err(Failure(format!("{target:?} told as {other:?}"))),
            Ok(_) => return Err(Failure("it was opened".to_owned())),
        }
    }
    Ok(())
}

async fn an_ended_sandbox_is_told_apart(world: &World) -> Result<(), Failure> {
    let events = world.backend().events();
    let made = world.create(world.script("exit 0")).await?;
    world.until_exited(&made.id, events).await?;
    for target in [Target::Control, Target::Port(PORT)] {
        match world.backend().connect(&made.id, target).await {
            Err(ConnectError::Ended) => {}
            Err(other) => return Err(Failure(format!("{target:?} told as {other:?}"))),
            Ok(_) => return Err(Failure("it was opened".to_owned())),
        }
    }
    Ok(())
}

async fn many_streams_at_once(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    let pings = join_all((0..STREAMS).map(|_| async {
        let status = world.daemon(&made).await?.ping().await?;
        ensure!(status == 200, "ping answered {status}");
        Ok::<_, Failure>(())
    }));
    pings
        .await
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .map(drop)
}

async fn a_stream_that_is_dropped_disturbs_nobody(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    for _ in 0..STREAMS {
        drop(world.backend().connect(&made.id, Target::Control).await?);
    }
    let status = world.daemon(&made).await?.ping().await?;
    ensure!(status == 200, "ping answered {status}");
    Ok(())
}
