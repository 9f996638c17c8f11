//! Ports of a sandbox on this machine, for `osb port-forward` and `osb run -p`. Each connection
//! here becomes a tunnel of its own, so that anything that speaks TCP works.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;

use opensandbox::Sandbox;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::{DONE, Outcome};
use crate::app::App;
use crate::args::docker::Publish;
use crate::args::transfer::PortForward;
use crate::error::Error;
use crate::interrupts::Interrupts;
use crate::output::{Message, Printer, Record};

/// Ports here that lead into a sandbox.
pub(super) struct Forward {
    ports: Vec<(TcpListener, SocketAddr, Publish)>,
}

impl Forward {
    /// Takes the ports here. Nobody is served yet.
    pub(super) async fn bind(wanted: &[Publish]) -> Result<Self, Error> {
        let mut ports = Vec::with_capacity(wanted.len());
        for publish in wanted {
            let listener = TcpListener::bind((publish.address, publish.local))
                .await
                .map_err(|error| refused(publish, &error))?;
            let address = listener.local_addr()?;
            ports.push((listener, address, *publish));
        }
        Ok(Self { ports })
    }

    /// A line for each port here that nobody named.
    pub(super) fn chosen(&self) -> String {
        let chosen = self.ports.iter().filter(|(_, _, wanted)| wanted.local == 0);
        chosen.fold(String::new(), |mut text, (_, address, wanted)| {
            let _ = writeln!(text, "{address} → {}", wanted.remote);
            text
        })
    }

    /// Carries connections until the listeners fail; never ends where there are none.
    pub(super) async fn serve(self, sandbox: &Sandbox, printer: Printer) -> Result<(), Error> {
        let mut listeners = JoinSet::new();
        for (listener, _, publish) in self.ports {
            listeners.spawn(serve(listener, sandbox.clone(), publish.remote, printer));
        }
        match listeners.join_next().await {
            Some(ended) => Ok(ended.map_err(|error| io::Error::other(error.to_string()))??),
            None => std::future::pending().await,
        }
    }
}

pub(super) async fn run(app: &App, args: &PortForward) -> Outcome {
    let printer = app.printer();
    let sandbox = app.sandbox(&args.sandbox_id).await?;
    // Before anyone connects: a sandbox that is not there is told now.
    sandbox.ping().await?;
    let mut interrupts = Interrupts::listen()?;
    let wanted = args.ports.iter().map(|ports| Publish {
        address: args.address,
        local: ports.local,
        remote: ports.remote,
    });
    let forward = Forward::bind(&wanted.collect::<Vec<_>>()).await?;
    for (_, address, wanted) in &forward.ports {
        let record = Record::new()
            .with("address", address.to_string())
            .with("sandbox_id", sandbox.id())
            .with("port", i64::from(wanted.remote));
        let text = format!("{address} → {}:{}", sandbox.id(), wanted.remote);
        printer.streamed(&record, &text)?;
    }
    tokio::select! {
        _ = interrupts.next() => Ok(DONE),
        served = forward.serve(&sandbox, printer) => served.map(|()| DONE),
    }
}

fn refused(publish: &Publish, error: &io::Error) -> Error {
    let address = SocketAddr::new(publish.address, publish.local);
    Error::Failed {
        message: format!("cannot listen on {address}: {error}"),
        next: Some(format!(
            "any free port: osb port-forward SANDBOX :{0}, osb run -p {0}",
            publish.remote
        )),
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
