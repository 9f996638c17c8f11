//! Attacks on what commands a sandbox: execd's interface, its token and its sockets.

use std::os::fd::AsFd;

use lifecycle::backend::{Backend, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::case::Verdict;
use crate::scenes::neighbours::{address_in, while_attacked};
use crate::world::{DEADLINE, LINK_OUT, Setup, TOKEN, World};

async fn run(world: &World, words: &[&str]) -> Verdict {
    world.attack(&Setup::default(), words).await.verdict()
}

pub(crate) async fn token_hidden(world: &World) -> Verdict {
    let (front, back) = TOKEN.split_at(TOKEN.len() / 2);
    run(world, &["token_hidden", front, back]).await
}

pub(crate) async fn without_token(world: &World) -> Verdict {
    run(world, &["execd_without_token", &TOKEN[..6]]).await
}

/// That it listens where nobody else's packets come is looked at from inside.
pub(crate) async fn neighbour_execd(world: &World) -> Verdict {
    let victim = world.victim().await;
    let namespace = world.namespace_of(&victim);
    let address = address_in(world, &namespace);
    let port = api::exec::PORT;
    // A sandbox is there before its execd has begun; one that answers listens at its port, too.
    get(world, &victim, "/ping").await;
    let listens = world.inside(namespace.as_fd(), || {
        std::net::TcpStream::connect((address, port)).is_ok()
    });
    let words = ["tcp_unreachable", &address.to_string(), &port.to_string()];
    let verdict = run(world, &words).await;
    world.delete(&victim).await;
    if !listens {
        return verdict.and(Verdict::Unclear(
            "the neighbour's execd does not listen".to_owned(),
        ));
    }
    verdict
}

pub(crate) async fn socket_hidden(world: &World) -> Verdict {
    let data = world.data_dir().display().to_string();
    let victim = world.victim().await;
    let paths = [
        "/control.sock",
        "/run/control.sock",
        "/proc/1/root/control.sock",
        &data,
    ];
    let words: Vec<&str> = ["hidden_paths"].into_iter().chain(paths).collect();
    let hidden = run(world, &words).await;
    let listed = run(world, &["unix_sockets", &data]).await;
    world.delete(&victim).await;
    hidden.and(listed)
}

/// While somebody in the sandbox holds every connection it gets, its owner is answered.
pub(crate) async fn connection_flood(world: &World) -> Verdict {
    let id = world.new_id();
    let setup = Setup {
        id: Some(id.clone()),
        ..Setup::default()
    };
    while_attacked(world, &setup, &["connection_flood"], async || {
        let answer = get(world, &id, "/ping").await;
        Verdict::of(answer.starts_with("HTTP/1.1 200"), || {
            format!("the owner is answered {answer:?}")
        })
    })
    .await
}

/// A link of the image that leads out leads, for the file interface too, to the sandbox's own files.
pub(crate) async fn file_api_links(world: &World) -> Verdict {
    let victim = world.victim().await;
    let answer = get(world, &victim, &format!("/files/download?path=/{LINK_OUT}")).await;
    world.delete(&victim).await;
    if answer.is_empty() {
        return Verdict::Unclear("the file interface does not answer".to_owned());
    }
    let held = !answer.contains("of the host") && !answer.starts_with("HTTP/1.1 200");
    Verdict::of(held, || answer)
}

/// What execd answers its owner; empty where it does not.
pub(crate) async fn get(world: &World, id: &api::id::SandboxId, target: &str) -> String {
    let exchange = async {
        let mut stream = world.backend.connect(id, Target::Control).await.ok()?;
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: sandbox\r\nX-EXECD-ACCESS-TOKEN: {TOKEN}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok()?;
        Some(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = tokio::time::timeout(DEADLINE, exchange).await;
    answer.ok().flatten().unwrap_or_default()
}
