//! The MCP server: sandboxes as tools of an agent, over stdio or HTTP, within limits that whoever
//! starts it sets.
//!
//! It holds no rules of sandboxes itself: every tool is a call of the SDK.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod answer;
mod arguments;
mod code;
mod commands;
mod files;
mod handler;
mod http;
mod limits;
mod offered;
mod options;
mod progress;
mod registry;
mod resources;
mod sandboxes;
mod snapshots;
mod tool;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser as _;
use opensandbox::{Client, error_chain};
use rmcp::ServiceExt as _;

use options::{Options, Transport};
use registry::Registry;

/// Why the server does not start, or stopped.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Connection(#[from] opensandbox::Error),
    #[error(transparent)]
    Limits(#[from] limits::LimitsError),
    #[error(transparent)]
    Http(#[from] http::Error),
    #[error("the runtime did not start")]
    Runtime(#[source] std::io::Error),
    #[error("the client on stdio did not speak MCP; is this started by an MCP client?")]
    Handshake(#[source] Box<rmcp::service::ServerInitializeError>),
    #[error("the server stopped")]
    Stopped(#[source] tokio::task::JoinError),
}

/// Runs the server with these arguments, of which the first is the program's name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let options = match Options::try_parse_from(arguments) {
        Ok(options) => options,
        Err(error) => {
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
            // Nowhere is left to say that saying it failed.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // stdout belongs to the protocol; stderr may be closed.
            let error = error_chain(&error);
            let _ = writeln!(std::io::stderr(), "opensandbox-mcp: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Error> {
    let limits = options.limits.load()?;
    let client = Client::new(options.connection()?)?;
    let registry = Arc::new(Registry::new(client, limits));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Error::Runtime)?;
    runtime.block_on(async {
        match options.transport {
            Transport::Stdio => serve_stdio(registry).await,
            Transport::StreamableHttp => Ok(http::serve(registry, options).await?),
        }
    })
}

async fn serve_stdio(registry: Arc<Registry>) -> Result<(), Error> {
    let handler = handler::Handler::new(registry);
    let service = match handler.serve(rmcp::transport::io::stdio()).await {
        Ok(service) => service,
        // A client that leaves before it has said anything is no fault.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(Error::Handshake(Box::new(error))),
    };
    service.waiting().await.map_err(Error::Stopped)?;
    Ok(())
}
