//! Terminals.

use std::sync::Arc;

use opensandbox::wire::exec::pty::Signal;
use opensandbox::{TerminalConnection, TerminalEvent, TerminalOptions};

use crate::sandbox;
use crate::server::Server;

/// Reads until the output has this text; answers all of it.
async fn until(connection: &mut TerminalConnection, wanted: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(wanted) {
        match connection.next().await.expect("more output").unwrap() {
            TerminalEvent::Output(bytes) | TerminalEvent::Replay { bytes, .. } => {
                seen.push_str(&String::from_utf8_lossy(&bytes));
            }
            TerminalEvent::Connected => {}
            other => panic!("{other:?} instead of {wanted}; so far: {seen}"),
        }
    }
    seen
}

pub(crate) async fn a_signal_that_ends_a_terminal_is_named(server: Arc<Server>) {
    let sandbox = sandbox(&server.client()).await;
    let terminal = sandbox.terminals().create(None, Some("kill -9 $$")).await;
    let connection = terminal.unwrap().connect(TerminalOptions::default()).await;
    let mut connection = connection.unwrap();
    let end = loop {
        if let TerminalEvent::Exit { code, signal } =
            connection.next().await.expect("an end").unwrap()
        {
            break (code, signal);
        }
    };
    assert_eq!(end, (-1, Some(9)));
}

pub(crate) async fn a_terminal_is_left_and_come_back_to(server: Arc<Server>) {
    let sandbox = sandbox(&server.client()).await;
    let terminals = sandbox.terminals();
    let terminal = terminals.create(Some("/tmp"), None).await.unwrap();
    let mut first = terminal.connect(TerminalOptions::default()).await.unwrap();
    first.input().resize(101, 31).await.unwrap();
    first
        .input()
        .write(b"stty size; pwd; echo begun$((40+2))\n")
        .await
        .unwrap();
    let seen = until(&mut first, "begun42").await;
    assert!(seen.contains("31 101") && seen.contains("/tmp"), "{seen}");
    first.input().ping().await.unwrap();
    // Only a program that has spoken is in the foreground: before that the shell would take the
    // signal and then run the program all the same.
    first
        .input()
        .write(b"sh -c 'echo rea''dy; exec sleep 600'\n")
        .await
        .unwrap();
    until(&mut first, "ready").await;
    first.input().signal(Signal::SigInt).await.unwrap();
    // A shell may throw away what is typed before it asks again.
    until(&mut first, "# ").await;
    first.input().write(b"echo after$((1+1))\n").await.unwrap();
    until(&mut first, "after2").await;

    // Another client may not have it, except by taking it.
    let same = terminals.get(terminal.id());
    let refused = same.connect(TerminalOptions::default());
    let refused = refused.await.err().expect("it is held");
    assert_eq!(refused.status().unwrap().as_u16(), 409, "{refused}");
    let taking = TerminalOptions {
        take_over: true,
        since: Some(0),
        ..TerminalOptions::default()
    };
    let mut second = terminal.connect(taking).await.unwrap();
    until(&mut second, "begun42").await;
    loop {
        match first.next().await.expect("it is told").unwrap() {
            TerminalEvent::Closed { code, .. } => break assert_eq!(code, Some(4001)),
            _ => continue,
        }
    }
    second.input().close().await.unwrap();
    drop(second);

    // What was printed while nobody looked is not lost.
    let status = terminal.status().await.unwrap();
    assert!(status.running && status.output_offset > 0);
    let back = TerminalOptions {
        take_over: true,
        since: Some(status.output_offset),
        ..TerminalOptions::default()
    };
    let (mut input, mut output) = terminal.connect(back).await.unwrap().split();
    input.write(b"exit 7\n").await.unwrap();
    loop {
        if let TerminalEvent::Exit { code, .. } = output.next().await.expect("an end").unwrap() {
            break assert_eq!(code, 7);
        }
    }
    terminal.delete().await.unwrap();
    assert!(terminal.status().await.unwrap_err().is_not_found());

    let piped = terminals
        .create(None, Some("echo out; echo err >&2"))
        .await
        .unwrap();
    let pipes = TerminalOptions {
        pipes: true,
        ..TerminalOptions::default()
    };
    let mut connection = piped.connect(pipes).await.unwrap();
    let mut errors = Vec::new();
    loop {
        match connection.next().await.expect("an end").unwrap() {
            TerminalEvent::ErrorOutput(bytes) => errors.extend_from_slice(&bytes),
            TerminalEvent::Exit { code, .. } => break assert_eq!(code, 0),
            _ => {}
        }
    }
    assert_eq!(errors, b"err\n");
    sandbox.kill().await.unwrap();
}
