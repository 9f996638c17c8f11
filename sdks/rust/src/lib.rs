//! Sandboxes for AI agents, from Rust.
//!
//! A [`Sandbox`] is a place of its own in which code that nobody has read runs commands, edits
//! files, executes code that remembers and serves ports, and which is then thrown away.
//!
//! ```no_run
//! use opensandbox::Sandbox;
//!
//! # async fn example() -> opensandbox::Result<()> {
//! let sandbox = Sandbox::create("python:3.12").await?;
//!
//! let output = sandbox.commands().run("echo hello; exit 3").await?;
//! assert_eq!((output.stdout.as_str(), output.exit_code()), ("hello\n", Some(3)));
//!
//! sandbox.files().write("/tmp/data.csv", "a,b\n1,2\n").await?;
//! let value = sandbox.code().run("sum([1, 2, 3])").await?;
//! assert_eq!(value.text(), Some("6"));
//!
//! sandbox.kill().await?;
//! # Ok(()) }
//! ```
//!
//! The server is found by `OPEN_SANDBOX_DOMAIN` and `OPEN_SANDBOX_API_KEY`, by the command line's
//! file, or by a [`ConnectionConfig`]. It speaks to every OpenSandbox server; what only ours can
//! do is marked as an extension.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod access;
mod client;
mod code;
mod commands;
mod config;
mod connect;
mod contents;
mod create;
mod egress;
mod error;
mod event_stream;
mod execution;
mod files;
mod inventory;
mod local;
mod operator;
mod pool;
mod pty;
mod refusal;
mod results;
mod sandbox;
mod sessions;
mod tls;
mod transport;
pub mod volume;
mod wait;

pub use access::{Keys, Tenants};
pub use client::Client;
pub use code::{Code, RunCode};
pub use commands::{Commands, Logs, RunCommand};
pub use config::{
    ConnectionConfig, DEFAULT_DOMAIN, DEFAULT_REQUEST_TIMEOUT, ENV_API_KEY, ENV_DOMAIN,
    ENV_PROTOCOL, ENV_REQUEST_TIMEOUT, ENV_TLS_FINGERPRINT, ENV_USE_SERVER_PROXY, Protocol,
    RetryPolicy,
};
pub use connect::{Connect, READY_TIMEOUT};
pub use contents::{ByteStream, Contents, WriteFile};
pub use create::{CreateSandbox, DEFAULT_LIFETIME};
pub use egress::{CredentialVault, Egress};
pub use error::{ApiError, Error, ErrorKind, Result};
pub use execution::{Ending, Event, Execution, Output};
pub use files::Files;
pub use inventory::{Images, Volumes};
pub use local::ENV_UP_DIR;
pub use pool::{AcquirePolicy, Pool, PoolConfig, PoolStatus};
pub use pty::{
    Terminal, TerminalConnection, TerminalEvent, TerminalInput, TerminalOptions, TerminalOutput,
    Terminals,
};
pub use results::{Figure, ResultKind, RichResult};
pub use sandbox::Sandbox;
pub use sessions::{RunInSession, Session, Sessions};
pub use tls::TlsFingerprint;

pub use api::error_chain;
pub use api::query::{
    ListSandboxesQuery as SandboxFilter, ListSnapshotsQuery as SnapshotFilter, Page,
};

/// The words of the protocol, as they go over the wire.
pub mod wire {
    pub use api::{
        access, diagnostics, egress, endpoint, event, exec, file_mode, id, inventory,
        metrics_event, network_policy, pool, problem, quantity, query, resource, sandbox, secret,
        snapshot, template, version, volume,
    };
}
