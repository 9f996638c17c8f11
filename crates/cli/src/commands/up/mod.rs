//! `osb up` and `osb down`: a server of the user's own in the background, by a unix socket.
//!
//! Needs root, as every server with the embedded runtime. Called by sudo, the socket is given to the user who
//! called, whose `osb run` then needs neither root nor settings. Does not install anything: a server that is
//! to start with the machine is the service manager's (deploy/).

mod place;
mod server;

use std::pin::pin;

use api::query::ListSandboxesQuery;
use api::sandbox::SandboxState;
use futures_util::StreamExt as _;
use opensandbox::{Client, ConnectionConfig};

use super::{DONE, Outcome};
use crate::app::App;
use crate::args::up::{Down, Up};
use crate::error::Error;
use crate::output::{Message, Record};
use place::Place;
use server::Server;

pub(super) async fn up(app: &App, args: &Up) -> Outcome {
    needs_root("up")?;
    let place = Place::make()?;
    let _alone = place.lock().await?;
    let printer = app.printer();
    let title = match Server::find(&place.socket()).await? {
        Some(_) => {
            if args.port.is_some() || args.server_config.is_some() || !args.set.is_empty() {
                let text =
                    "it keeps the settings that it started with; for others, `osb down` first";
                printer.note(Message::Warning, text)?;
            }
            "A server runs already"
        }
        None => {
            server::start(&place, args).await?;
            "Server started"
        }
    };
    let server = Server::find(&place.socket()).await?;
    let server = server.ok_or_else(|| Error::Failed {
        message: "the server has ended again".to_owned(),
        next: Some(format!("read its log, {}", place.log().display())),
    })?;
    if let Err(error) = hand_over(&place) {
        server.end().await?;
        return Err(Error::file("given to its user", &place.socket(), error));
    }
    client(&place)?.health().await?;
    let mut record = Record::new()
        .with("socket", place.socket().display().to_string())
        .with("user", user_name(place.user))
        .with("process", i64::from(server.pid.as_raw_nonzero().get()))
        .with("log", place.log().display().to_string());
    if let Some(port) = args.port.filter(|_| title == "Server started") {
        record.set("address", format!("127.0.0.1:{port}"));
    }
    printer.done(title, &record)?;
    let who = match place.user {
        0 => "root".to_owned(),
        user => format!("{} and root", user_name(user)),
    };
    let text = format!("who may open the socket ({who}) is an administrator of this server");
    printer.note(Message::Info, &text)?;
    if let Some(domain) = app.config()?.chosen_domain() {
        let text = format!("`osb` goes to {domain} all the same, as your settings say");
        printer.note(Message::Warning, &text)?;
    }
    Ok(DONE)
}

pub(super) async fn down(app: &App, args: &Down) -> Outcome {
    needs_root("down")?;
    let place = Place::make()?;
    let _alone = place.lock().await?;
    let printer = app.printer();
    let Some(server) = Server::find(&place.socket()).await? else {
        // What a killed server left.
        let _ = std::fs::remove_file(place.socket());
        printer.message(Message::Ok, "No server of `osb up` runs")?;
        return Ok(DONE);
    };
    let living = match living(&place).await {
        Ok(living) => living,
        Err(error) if args.all => return Err(error.into()),
        Err(error) => {
            let text = format!("its sandboxes could not be counted: {error}");
            printer.note(Message::Warning, &text)?;
            Vec::new()
        }
    };
    if args.all {
        let client = client(&place)?;
        for id in &living {
            client.sandbox(id).kill().await?;
        }
    }
    server.end().await?;
    let _ = std::fs::remove_file(place.socket());
    printer.message(Message::Ok, "The server has ended")?;
    if let (count @ 1.., false) = (living.len(), args.all) {
        let text = format!(
            "{count} sandboxes run on, and their time is not watched: `osb up` takes them back, \
             `osb down --all` ends them"
        );
        printer.note(Message::Info, &text)?;
    }
    Ok(DONE)
}

fn needs_root(command: &str) -> Result<(), Error> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Error::Failed {
        message: format!("`osb {command}` needs root, as every server that makes sandboxes itself"),
        next: Some(format!(
            "sudo osb {command}; the server is then yours to use without sudo"
        )),
    })
}

/// Gives the socket to the user whose server it is; its mode lets nobody else in but root.
fn hand_over(place: &Place) -> std::io::Result<()> {
    std::os::unix::fs::chown(place.socket(), Some(place.user), None)
}

/// A name where one is known without asking anybody.
fn user_name(user: u32) -> String {
    let caller = std::env::var("SUDO_USER").ok();
    match caller.filter(|name| !name.is_empty()) {
        _ if user == 0 => "root".to_owned(),
        Some(name) => name,
        None => user.to_string(),
    }
}

fn client(place: &Place) -> Result<Client, opensandbox::Error> {
    let domain = format!("unix://{}", place.socket().display());
    Client::new(ConnectionConfig::new().domain(domain))
}

/// The ids of the sandboxes that have not ended.
async fn living(place: &Place) -> Result<Vec<String>, opensandbox::Error> {
    let client = client(place)?;
    let mut all = pin!(client.list_all(ListSandboxesQuery::default()));
    let mut ids = Vec::new();
    while let Some(info) = all.next().await {
        let info = info?;
        let state = &info.status.state;
        if !matches!(state, SandboxState::Terminated | SandboxState::Failed) {
            ids.push(info.id.to_string());
        }
    }
    Ok(ids)
}
