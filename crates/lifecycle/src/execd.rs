//! What backends share that reach execd by a byte stream and cannot pass descriptors to it: the text of a handoff,
//! execd's sign that it serves, and a stream to a port through execd's tunnel.
//!
//! Opens no connection itself.

use std::collections::BTreeMap;
use std::io;

use api::exec::ACCESS_TOKEN_HEADER;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use crate::backend::{ConnectError, Stream};

/// What execd says when it serves, to whom it had the handoff from or on standard error.
pub const SERVING: &str = "execd: serving\n";

/// The answer to a tunnel is a status line and a few headers.
const HEAD_BYTES_MAX: u64 = 8 * 1024;

/// What execd is given as text. `open_files` limits its commands, where the backend cannot.
pub fn handoff(
    token: &SecretString,
    env: &BTreeMap<String, String>,
    open_files: Option<u64>,
) -> Vec<u8> {
    let mut message = json!({ "token": token.expose_secret(), "env": env });
    if let Some(limit) = open_files {
        message["open_files"] = limit.into();
    }
    message.to_string().into_bytes()
}

/// Turns a connection to execd into one to a port inside.
pub async fn tunnel<S: Stream + 'static>(
    mut stream: S,
    port: u16,
    token: &str,
) -> Result<Box<dyn Stream>, ConnectError> {
    let failed = |error: io::Error| ConnectError::Failed(error.to_string());
    let request = format!(
        "GET /tunnel/{port} HTTP/1.1\r\nHost: execd\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\
         {ACCESS_TOKEN_HEADER}: {token}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    // What follows the head belongs to whoever asked, so the buffer goes with the stream.
    let mut stream = BufReader::new(stream);
    let mut status = String::new();
    let mut head = (&mut stream).take(HEAD_BYTES_MAX);
    head.read_line(&mut status).await.map_err(failed)?;
    let mut line = String::new();
    loop {
        line.clear();
        let read = head.read_line(&mut line).await.map_err(failed)?;
        if read == 0 || line == "\r\n" {
            break;
        }
    }
    match status.split(' ').nth(1) {
        Some("101") => Ok(Box::new(stream)),
        Some("502") => Err(ConnectError::NotListening(port)),
        _ => Err(ConnectError::Failed(format!(
            "execd refused a tunnel to port {port}: {}",
            status.trim_end()
        ))),
    }
}
