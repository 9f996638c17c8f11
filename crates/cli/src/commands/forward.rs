//! `osb port-forward`: ports of a sandbox on this machine. Each connection here becomes a tunnel
//! of its own, so that anything that speaks TCP works.

use std::io;

use opensandbox::Sandbox;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::{DONE, Outcome};
use crate::app::App;
use crate::args::transfer::PortForward;
use crate::error::Error;
use crate::interrupts::Interrupts;
use crate::output::{Message, Printer, Record};

pub(super) async fn run(app: &App, args: &PortForward) -> Outcome {
    let printer = app.printer();
    let sandbox = app.sandbox(&args.sandbox_id)?;
    // Before anyone connects: a sandbox that is not there is told now.
    sandbox.ping().await?;
    let mut interrupts = Interrupts::listen()?;
    let mut listeners = JoinSet::new();
    for ports in &args.ports {
        let listener = TcpListener::bind((args.address, ports.local))
            .await
            .map_err(|error| refused(args, ports.local, &error))?;
        let address = listener.local_addr()?;
        let record = Record::new()
            .with("address", address.to_string())
            .with("sandbox_id", &args.sandbox_id)
            .with("port", i64::from(ports.remote));
        let text = format!("{address} → {}:{}", args.sandbox_id, ports.remote);
        printer.streamed(&record, &text)?;
        listeners.spawn(serve(listener, sandbox.clone(), ports.remote, printer));
    }
    tokio::select! {
        _ = interrupts.next() => Ok(DONE),
        Some(ended) = listeners.join_next() => {
            ended.map_err(|error| io::Error::other(error.to_string()))??;
            Ok(DONE)
        }
    }
}

fn refused(args: &PortForward, port: u16, error: &io::Error) -> Error {
    Error::Failed {
        message: format!("cannot listen on {}:{port}: {error}", args.address),
        next: Some("take any free port with :REMOTE".to_owned()),
    }
}

async fn serve(
    listener: TcpListener,
    sandbox: Sandbox,
    port: u16,
    printer: Printer,
) -> io::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                let sandbox = sandbox.clone();
                connections.spawn(async move {
                    if let Err(error) = carry(stream, &sandbox, port).await {
                        // The others go on.
                        let _ = printer.note(Message::Warning, &error.to_string());
                    }
                });
            }
            // Ended ones are let go of as they end.
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn carry(mut here: TcpStream, sandbox: &Sandbox, port: u16) -> Result<(), Error> {
    here.set_nodelay(true)?;
    let mut there = sandbox.tunnel(port).await?;
    match tokio::io::copy_bidirectional(&mut here, &mut there).await {
        // Either side may hang up whenever it likes.
        Ok(_) | Err(_) => Ok(()),
    }
}
