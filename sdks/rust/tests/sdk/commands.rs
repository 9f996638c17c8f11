//! Commands and sessions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use opensandbox::wire::exec::command::RunCommandRequest;
use opensandbox::{Ending, Event};

use crate::sandbox;
use crate::server::Server;

/// No command of these tests has so many events.
const LATER_THAN_ANY: u64 = 1_000_000;

pub(crate) async fn output_codes_and_signals(server: Arc<Server>) {
    let sandbox = sandbox(&server.client()).await;
    let commands = sandbox.commands();

    let output = commands
        .run("echo one; printf two; echo three >&2; pwd; exit 3")
        .cwd("/tmp")
        .await
        .unwrap();
    assert_eq!(output.stdout, "one\ntwo/tmp\n");
    assert_eq!(output.stderr, "three\n");
    assert_eq!(output.exit_code(), Some(3));
    assert_eq!(output.ending(), Ending::Code(3));
    assert!(!output.is_success());

    let output = commands
        .exec(["sh", "-c", "echo \"$1 $A $B\"", "_", "a  b"])
        .env("A", "1")
        .envs([("B".to_owned(), "2".to_owned())])
        .await
        .unwrap();
    assert_eq!(output.stdout, "a  b 1 2\n");
    assert!(output.is_success() && output.took.is_some());

    let killed = commands.run("kill -TERM $$").await.unwrap();
    assert_eq!(killed.ending(), Ending::Signal("terminated".to_owned()));
    let late = commands.run("sleep 600").timeout(Duration::from_millis(50));
    assert_eq!(
        late.await.unwrap().ending(),
        Ending::Signal("killed".to_owned())
    );
    let absent = commands.exec(["/no/such/program"]).await.unwrap();
    assert_eq!(
        (absent.ending(), absent.exit_code()),
        (Ending::Failed, None)
    );

    let user = commands.run("id -u; id -g").uid(65534).gid(65534);
    assert_eq!(user.await.unwrap().stdout, "65534\n65534\n");
    let cat = commands.run("cat").stdin("given").await.unwrap();
    assert_eq!(cat.stdout, "given");

    let order = RunCommandRequest {
        command: Some("echo ordered".to_owned()),
        ..RunCommandRequest::default()
    };
    let mut events = commands.order(order).stream().await.unwrap();
    let first = events.next().await.unwrap().unwrap();
    assert!(matches!(first, Event::Started { .. }), "{first:?}");
    let rest: Vec<_> = StreamExt::map(events, Result::unwrap).collect().await;
    assert_eq!(rest[0], Event::Stdout("ordered\n".to_owned()));
    assert!(matches!(rest[1], Event::Completed { took: Some(_) }));
    assert_eq!(rest.len(), 2);
    sandbox.kill().await.unwrap();
}

pub(crate) async fn background_logs_and_interrupt(server: Arc<Server>) {
    let sandbox = sandbox(&server.client()).await;
    let commands = sandbox.commands();
    let id = commands
        .run("echo begun; sleep 600")
        .background()
        .await
        .unwrap();
    assert!(commands.status(&id).await.unwrap().running);
    let listed = commands.list().await.unwrap();
    assert!(listed.iter().any(|command| command.id.as_str() == id));

    // Following waits for the output; asking for the logs would have to be repeated.
    let mut followed = commands.follow(&id, 0).await.unwrap();
    loop {
        let event = followed.next().await.unwrap().unwrap();
        if event == Event::Stdout("begun\n".to_owned()) {
            break;
        }
    }
    let logs = commands.logs(&id, None).await.unwrap();
    assert_eq!((logs.text.as_str(), logs.cursor), ("begun\n", Some(6)));
    assert_eq!(commands.logs(&id, logs.cursor).await.unwrap().text, "");

    commands.interrupt(&id).await.unwrap();
    let output = followed.output().await.unwrap();
    assert!(!output.is_success());
    assert!(!commands.status(&id).await.unwrap().running);
    // Behind the last event there is nothing, and nothing is waited for: giving up took 13 s.
    let nothing = async { commands.follow(&id, LATER_THAN_ANY).await?.output().await };
    let nothing = tokio::time::timeout(Duration::from_secs(5), nothing).await;
    let nothing = nothing.expect("the stream ends").unwrap();
    assert_eq!((nothing.stdout.as_str(), nothing.error), ("", None));

    let again = commands.interrupt(&id).await.unwrap_err();
    assert_eq!(again.status().unwrap().as_u16(), 409, "{again}");

    let absent = commands.exec(["/no/such/program"]).background().await;
    assert!(absent.unwrap_err().to_string().contains("not started"));
    sandbox.kill().await.unwrap();
}

pub(crate) async fn stdin_stays_open(server: Arc<Server>) {
    let sandbox = sandbox(&server.client()).await;
    let commands = sandbox.commands();
    let mut events = commands.run("cat").stdin_open().stream().await.unwrap();
    let Event::Started { id } = events.next().await.unwrap().unwrap() else {
        panic!("the first event says that it has started");
    };
    assert_eq!(commands.write_stdin(&id, "one\n", false).await.unwrap(), 4);
    let echoed = events.next().await.unwrap().unwrap();
    assert_eq!(echoed, Event::Stdout("one\n".to_owned()));
    commands.write_stdin(&id, "two", true).await.unwrap();
    assert_eq!(events.output().await.unwrap().stdout, "two");
    let closed = commands.write_stdin(&id, "three", false).await.unwrap_err();
    assert_eq!(closed.status().unwrap().as_u16(), 409, "{closed}");
    sandbox.kill().await.unwrap();
}

pub(crate) async fn sessions_keep_their_state(server: Arc<Server>) {
    let sandbox = sandbox(&server.client()).await;
    let session = sandbox.sessions().create(Some("/tmp")).await.unwrap();
    session.run("x=1; f() { echo f $x; }").await.unwrap();
    let output = session.run("f; pwd").await.unwrap();
    assert_eq!(output.stdout, "f 1\n/tmp\n");
    let moved = session.run("pwd").cwd("/").await.unwrap();
    assert_eq!(moved.stdout, "/\n");

    let same = sandbox.sessions().get(session.id());
    let late = same.run("sleep 600").timeout(Duration::from_millis(50));
    assert!(!late.await.unwrap().is_success());
    let mut events = same.run("echo on; sleep 600").stream().await.unwrap();
    while events.next().await.unwrap().unwrap() != Event::Stdout("on\n".to_owned()) {}
    session.interrupt().await.unwrap();
    assert!(!events.output().await.unwrap().is_success());
    assert_eq!(same.run("echo $x").await.unwrap().stdout, "1\n");
    session.delete().await.unwrap();
    assert!(session.run("echo").await.unwrap_err().is_not_found());
    sandbox.kill().await.unwrap();
}

pub(crate) async fn variables_are_kept(server: Arc<Server>) {
    let sandbox = sandbox(&server.client()).await;
    let commands = sandbox.commands();
    let variables = BTreeMap::from([
        ("KEPT".to_owned(), "it's kept".to_owned()),
        ("OTHER".to_owned(), "2".to_owned()),
    ]);
    commands.set_env(&variables).await.unwrap();
    let output = commands.run("echo \"$KEPT $OTHER\"").await.unwrap();
    assert_eq!(output.stdout, "it's kept 2\n");
    let wrong = BTreeMap::from([("not a name".to_owned(), String::new())]);
    assert!(commands.set_env(&wrong).await.is_err());
    sandbox.kill().await.unwrap();
}

pub(crate) async fn plain_bytes_reach_a_port(server: Arc<Server>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let sandbox = sandbox(&server.client()).await;
    let program = "import socket; s = socket.create_server(('0.0.0.0', 7000)); \
                   print('up', flush=True); c, _ = s.accept(); c.sendall(c.recv(64).upper())";
    let command = sandbox.commands().exec(["python3", "-c", program]);
    let mut events = command.stream().await.unwrap();
    while events.next().await.unwrap().unwrap() != Event::Stdout("up\n".to_owned()) {}
    let mut tunnel = sandbox.tunnel(7000).await.unwrap();
    tunnel.write_all(b"bytes").await.unwrap();
    let mut answer = Vec::new();
    tunnel.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, b"BYTES");
    sandbox.kill().await.unwrap();
}
