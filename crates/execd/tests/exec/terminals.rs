//! `/pty`: terminals over WebSocket.

use futures_util::{SinkExt as _, StreamExt as _};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::daemon::Daemon;
use crate::events::PATIENCE;

async fn create(daemon: &Daemon, body: &Value) -> String {
    let answer = daemon.call(Method::POST, "/pty", body.to_string()).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
    answer.json()["session_id"].as_str().unwrap().to_owned()
}

struct Client {
    socket: WebSocketStream<UnixStream>,
    /// Text of both channels, and of the second.
    output: String,
    errors: String,
    replayed: Vec<(u64, String)>,
    messages: Vec<Value>,
    close: Option<(u16, String)>,
}

impl Client {
    async fn connect(daemon: &Daemon, id: &str, query: &str) -> Self {
        let uri = format!("ws://execd/pty/{id}/ws?{query}");
        let (socket, _) = tokio_tungstenite::client_async(uri, daemon.connect().await)
            .await
            .unwrap();
        Self {
            socket,
            output: String::new(),
            errors: String::new(),
            replayed: Vec::new(),
            messages: Vec::new(),
            close: None,
        }
    }

    async fn step(&mut self) {
        let message = tokio::time::timeout(PATIENCE, self.socket.next())
            .await
            .expect("in time");
        match message {
            Some(Ok(Message::Binary(frame))) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                match frame[0] {
                    1 => self.output.push_str(&text(&frame[1..])),
                    2 => self.errors.push_str(&text(&frame[1..])),
                    3 => {
                        let start = u64::from_be_bytes(frame[1..9].try_into().unwrap());
                        self.replayed.push((start, text(&frame[9..])));
                    }
                    kind => panic!("frame of kind {kind}"),
                }
            }
            Some(Ok(Message::Text(text))) => {
                self.messages.push(serde_json::from_str(&text).unwrap());
            }
            Some(Ok(Message::Close(frame))) => {
                self.close = frame.map(|f| (f.code.into(), f.reason.to_string()));
                self.close.get_or_insert((1005, String::new()));
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => {
                self.close.get_or_insert((1006, String::new()));
            }
        }
    }

    async fn until(&mut self, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            assert!(
                self.close.is_none(),
                "closed: {:?} {:?} {}",
                self.close,
                self.messages,
                self.output
            );
            self.step().await;
        }
    }

    async fn until_output(&mut self, text: &str) {
        self.until(|client| client.output.contains(text)).await;
    }

    async fn until_closed(&mut self) -> (u16, String) {
        while self.close.is_none() {
            self.step().await;
        }
        self.close.clone().unwrap()
    }

    async fn type_in(&mut self, text: &str) {
        let mut frame = vec![0];
        frame.extend_from_slice(text.as_bytes());
        self.socket
            .send(Message::Binary(frame.into()))
            .await
            .unwrap();
    }

    async fn say(&mut self, message: &Value) {
        self.socket
            .send(Message::Text(message.to_string().into()))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_terminal_is_one() {
    let daemon = Daemon::start();
    let id = create(&daemon, &json!({"cwd": daemon.path("made/on/demand")})).await;
    assert_eq!(
        daemon.get(&format!("/pty/{id}")).await.json()["running"],
        false
    );
    let mut client = Client::connect(&daemon, &id, "").await;
    client.until(|c| !c.messages.is_empty()).await;
    assert_eq!(
        client.messages[0],
        json!({"type": "connected", "session_id": id, "mode": "pty"})
    );
    client
        .type_in("tty >/dev/null && echo \"is:$TERM:$(stty size):$PWD\"\n")
        .await;
    let expected = format!(
        "is:xterm-256color:24 80:{}",
        daemon.path("made/on/demand").display()
    );
    client.until_output(&expected).await;
    client
        .say(&json!({"type": "resize", "cols": 100, "rows": 40}))
        .await;
    client
        .say(&json!({"type": "stdin", "data": "echo \"size:$(stty size)\"\n"}))
        .await;
    client.until_output("size:40 100").await;
    client.say(&json!({"type": "ping"})).await;
    client
        .until(|c| c.messages.contains(&json!({"type": "pong"})))
        .await;
    client.say(&json!({"type": "dance"})).await;
    client
        .until(|c| c.messages.iter().any(|m| m["code"] == "INVALID_FRAME"))
        .await;
    client
        .type_in("sh -c 'echo rea''dy; exec sleep 1000'\n")
        .await;
    client.until_output("ready").await;
    client.type_in("\u{3}").await;
    // A shell may throw away what is typed before it asks again.
    client
        .until(|c| {
            let after = c.output.split_once("^C");
            after.is_some_and(|(_, after)| after.contains(['#', '$']))
        })
        .await;
    client.type_in("echo interrupted:$?\n").await;
    client.until_output("interrupted:130").await;
    let status = daemon.get(&format!("/pty/{id}")).await.json();
    assert_eq!(status["running"], true);
    assert!(status["output_offset"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn a_signal_reaches_the_foreground_program() {
    let daemon = Daemon::start();
    let id = create(&daemon, &json!({})).await;
    let mut client = Client::connect(&daemon, &id, "").await;
    client
        .type_in("sh -c 'echo rea''dy; exec sleep 1000'; echo status:$?\n")
        .await;
    client.until_output("ready").await;
    client
        .say(&json!({"type": "signal", "signal": "SIGTERM"}))
        .await;
    client.until_output("status:143").await;
}

#[tokio::test]
async fn the_exit_comes_after_all_output_and_a_new_connection_starts_anew() {
    let daemon = Daemon::start();
    let id = create(&daemon, &json!({"command": "seq 30000; exit 3"})).await;
    let mut client = Client::connect(&daemon, &id, "").await;
    assert_eq!(
        client.until_closed().await,
        (1000, "process exited".to_owned())
    );
    let expected: String = (1..=30_000).map(|n| format!("{n}\r\n")).collect();
    let seen: String = client
        .replayed
        .iter()
        .map(|(_, text)| text.as_str())
        .chain([client.output.as_str()])
        .collect();
    assert!(
        seen == expected,
        "{} of {} bytes",
        seen.len(),
        expected.len()
    );
    assert_eq!(
        client.messages.last().unwrap(),
        &json!({"type": "exit", "exit_code": 3})
    );
    let status = daemon.get(&format!("/pty/{id}")).await.json();
    assert_eq!(
        (&status["running"], &status["output_offset"]),
        (&json!(false), &json!(expected.len()))
    );

    let mut again = Client::connect(&daemon, &id, &format!("since={}", expected.len())).await;
    again.until_closed().await;
    let seen: String = again
        .replayed
        .iter()
        .map(|(_, text)| text.as_str())
        .chain([again.output.as_str()])
        .collect();
    assert!(seen == expected, "a new shell ran");
}

#[tokio::test]
async fn what_was_missed_is_replayed() {
    let daemon = Daemon::start();
    let id = create(&daemon, &json!({})).await;
    let mut client = Client::connect(&daemon, &id, "").await;
    client.type_in("x=kept; echo mark''er\n").await;
    client.until_output("marker").await;
    drop(client);
    // The daemon notices the end of the connection on its own time.
    let mut again = Client::connect(&daemon, &id, "takeover=1").await;
    again.until(|c| !c.messages.is_empty()).await;
    assert_eq!(again.replayed[0].0, 0);
    assert!(again.replayed[0].1.contains("marker"));
    again.type_in("echo var:$x\n").await;
    again.until_output("var:kept").await;
    let offset = daemon.get(&format!("/pty/{id}")).await.json()["output_offset"]
        .as_u64()
        .unwrap();
    drop(again);
    let mut late = Client::connect(&daemon, &id, &format!("takeover=1&since={}", offset - 3)).await;
    late.until(|c| !c.replayed.is_empty()).await;
    assert_eq!(late.replayed[0].0, offset - 3);
}

#[tokio::test]
async fn one_client_holds_a_terminal_and_another_may_take_it() {
    let daemon = Daemon::start();
    let id = create(&daemon, &json!({})).await;
    let mut first = Client::connect(&daemon, &id, "").await;
    first.until(|c| !c.messages.is_empty()).await;
    let refused =
        tokio_tungstenite::client_async(format!("ws://execd/pty/{id}/ws"), daemon.connect().await)
            .await
            .unwrap_err();
    let tokio_tungstenite::tungstenite::Error::Http(answer) = refused else {
        panic!("{refused}")
    };
    assert_eq!(answer.status(), StatusCode::CONFLICT);
    assert!(String::from_utf8_lossy(answer.body().as_ref().unwrap()).contains("ALREADY_CONNECTED"));
    let mut second = Client::connect(&daemon, &id, "takeover=1").await;
    assert_eq!(first.until_closed().await, (4001, "TAKEN_OVER".to_owned()));
    second.type_in("echo mine''\n").await;
    second.until_output("mine").await;
}

#[tokio::test]
async fn pipes_keep_the_two_outputs_apart() {
    let daemon = Daemon::start();
    let id = create(
        &daemon,
        &json!({"command": "read x; echo out:$x; echo err >&2; exit 4"}),
    )
    .await;
    let mut client = Client::connect(&daemon, &id, "pty=0").await;
    client.until(|c| !c.messages.is_empty()).await;
    assert_eq!(client.messages[0]["mode"], "pipe");
    client.type_in("in\n").await;
    client.until_closed().await;
    assert_eq!(
        (client.output.as_str(), client.errors.as_str()),
        ("out:in\n", "err\n")
    );
    assert_eq!(client.messages.last().unwrap()["exit_code"], 4);
}

#[tokio::test]
async fn a_client_that_does_not_read_does_not_block_the_shell() {
    let daemon = Daemon::start();
    let done = daemon.path("done");
    // Several times what the daemon keeps and the socket holds, and yet soon printed: a client that
    // takes nothing for ten seconds is given up.
    let command = format!("seq 400000; echo finished > {}", done.display());
    let id = create(&daemon, &json!({"command": command})).await;
    let mut client = Client::connect(&daemon, &id, "").await;
    // Without reading anything: the shell ends, which its status tells.
    loop {
        let status = daemon.get(&format!("/pty/{id}")).await.json();
        if status["output_offset"].as_u64().unwrap() > 0 && status["running"] == false {
            break;
        }
    }
    assert_eq!(std::fs::read_to_string(&done).unwrap(), "finished\n");
    client.until_closed().await;
    let last = client
        .replayed
        .last()
        .map_or(String::new(), |(_, text)| text.clone())
        + &client.output;
    assert!(last.ends_with("400000\r\n"), "the newest is what is kept");
    assert_eq!(client.messages.last().unwrap()["exit_code"], 0);
}

#[tokio::test]
async fn a_deleted_terminal_ends_its_shell() {
    let daemon = Daemon::start();
    let id = create(&daemon, &json!({})).await;
    let mut client = Client::connect(&daemon, &id, "").await;
    client.until(|c| !c.messages.is_empty()).await;
    assert_eq!(
        daemon
            .call(Method::DELETE, &format!("/pty/{id}"), "")
            .await
            .status,
        StatusCode::OK
    );
    client.until_closed().await;
    let last = client.messages.last().unwrap();
    assert_eq!(
        (&last["type"], &last["exit_code"]),
        (&json!("exit"), &json!(-1))
    );
    // It is hung up on and killed; either may come first.
    assert!(last["signal"] == 1 || last["signal"] == 9, "{last}");
    for (method, uri) in [
        (Method::GET, format!("/pty/{id}")),
        (Method::DELETE, format!("/pty/{id}")),
    ] {
        assert_eq!(
            daemon.call(method, &uri, "").await.status,
            StatusCode::NOT_FOUND
        );
    }
}

#[tokio::test]
async fn a_shell_starts_with_the_size_that_was_asked_for() {
    let daemon = Daemon::start();
    // Said by the first thing that runs, so that no later resize can have done it.
    let asks = json!({"command": "stty size", "cols": 100, "rows": 40});
    let id = create(&daemon, &asks).await;
    let mut client = Client::connect(&daemon, &id, "").await;
    client.until_output("40 100").await;
    let id = create(&daemon, &json!({"command": "stty size; read x; stty size"})).await;
    let mut client = Client::connect(&daemon, &id, "cols=101&rows=41").await;
    client.until_output("41 101").await;
    // Whoever comes next has another size.
    let mut next = Client::connect(&daemon, &id, "takeover=1&cols=90&rows=30").await;
    next.type_in("\n").await;
    next.until_output("30 90").await;
}
