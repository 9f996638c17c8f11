//! Answers the published clients' probe for a code interpreter: they connect to the port where a
//! Jupyter server would listen and take a connection for readiness.
//!
//! An image that says it runs its own Jupyter (`JUPYTER_HOST`) keeps the port for itself.

use std::net::Ipv4Addr;

use tokio::net::TcpListener;

use crate::state::Shared;

/// Where the published image's Jupyter listens.
const JUPYTER_PORT: u16 = 44771;

/// Accepts and closes connections until the process ends. Returns at once when the port is
/// somebody else's.
pub(crate) async fn answer_probe(shared: &Shared) {
    if shared.environment.get("JUPYTER_HOST").is_some() {
        return;
    }
    let port = shared
        .environment
        .get("JUPYTER_PORT")
        .and_then(|port| port.to_str()?.parse().ok())
        .unwrap_or(JUPYTER_PORT);
    let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await else {
        tracing::info!(port, "another process answers the interpreter's probe");
        return;
    };
    loop {
        match listener.accept().await {
            Ok((connection, _)) => drop(connection),
            // As in the accept loops of the API: only a shortage of descriptors comes here.
            Err(_) => tokio::task::yield_now().await,
        }
    }
}
