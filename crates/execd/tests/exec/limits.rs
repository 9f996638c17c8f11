//! How many sessions, waiting runs, terminals and connections there can be: one more is refused by
//! name, or waits; and there is room again when one has gone. Commands and contexts have such a
//! test beside their others.

use http::{Method, StatusCode};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::daemon::Daemon;
use crate::events::{PATIENCE, open};

/// Makes things until one is refused; returns the names of those that were made.
async fn fill(daemon: &Daemon, uri: &str, made: StatusCode, limit: &str) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let answer = daemon.call(Method::POST, uri, "{}").await;
        if answer.status == made {
            all.push(answer.json()["session_id"].as_str().unwrap().to_owned());
            assert!(all.len() <= 1000, "{limit} is no limit");
            continue;
        }
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.code(), "LIMIT_REACHED");
        assert!(answer.text().contains(limit), "{}", answer.text());
        return all;
    }
}

/// One goes, one more fits, and after that none.
async fn has_room_for_one(daemon: &Daemon, uri: &str, made: StatusCode, id: &str) {
    let gone = daemon
        .call(Method::DELETE, &format!("{uri}/{id}"), "")
        .await;
    assert_eq!(gone.status, StatusCode::OK, "{}", gone.text());
    assert_eq!(daemon.call(Method::POST, uri, "{}").await.status, made);
    assert_eq!(
        daemon.call(Method::POST, uri, "{}").await.status,
        StatusCode::TOO_MANY_REQUESTS
    );
}

#[tokio::test]
async fn sessions() {
    let daemon = Daemon::start();
    let all = fill(&daemon, "/session", StatusCode::OK, "SESSIONS = 128").await;
    assert_eq!(all.len(), 128);
    has_room_for_one(&daemon, "/session", StatusCode::OK, &all[0]).await;
}

#[tokio::test]
async fn terminals() {
    let daemon = Daemon::start();
    let all = fill(&daemon, "/pty", StatusCode::CREATED, "PTYS = 64").await;
    assert_eq!(all.len(), 64);
    has_room_for_one(&daemon, "/pty", StatusCode::CREATED, &all[0]).await;
}

#[tokio::test]
async fn runs_that_wait_for_a_session() {
    let daemon = Daemon::start();
    let made = daemon.call(Method::POST, "/session", "{}").await.json();
    let uri = format!("/session/{}/run", made["session_id"].as_str().unwrap());
    let blocking = json!({"command": "echo runs; sleep 1000"});
    let mut first = open(&daemon, Method::POST, &uri, &blocking).await;
    // What has printed waits no longer.
    while first.next().await.unwrap()["type"] != "stdout" {}
    let mut waiting = Vec::new();
    for _ in 0..64 {
        waiting.push(open(&daemon, Method::POST, &uri, &json!({"command": "true"})).await);
    }
    let refused = daemon
        .call(Method::POST, &uri, json!({"command": "true"}).to_string())
        .await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(
        refused.text().contains("SESSION_QUEUE = 64"),
        "{}",
        refused.text()
    );
}

const PING: &[u8] = b"GET /ping HTTP/1.1\r\nhost: execd\r\n\r\n";

/// The answer to a ping that was sent.
async fn answered(connection: &mut UnixStream) {
    let mut answer = [0; 4096];
    let read = tokio::time::timeout(PATIENCE, connection.read(&mut answer))
        .await
        .expect("in time")
        .unwrap();
    assert!(answer[..read].starts_with(b"HTTP/1.1 200 "));
}

#[tokio::test]
async fn connections() {
    // Both ends of a thousand connections are more than a shell usually allows a program.
    let mut files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    files.current = files.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, files).unwrap();
    let daemon = Daemon::start();
    let mut open = Vec::new();
    for _ in 0..1024 {
        let mut connection = daemon.connect().await;
        connection.write_all(PING).await.unwrap();
        answered(&mut connection).await;
        open.push(connection);
    }
    let mut one_more = daemon.connect().await;
    one_more.write_all(PING).await.unwrap();
    // The open ones are served, the one over the limit is not.
    for connection in &mut open {
        connection.write_all(PING).await.unwrap();
        answered(connection).await;
    }
    let nothing = one_more.try_read(&mut [0; 1]).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
    drop(open.pop());
    answered(&mut one_more).await;
    drop(open);
    assert_eq!(daemon.get("/ping").await.status, StatusCode::OK);
}
