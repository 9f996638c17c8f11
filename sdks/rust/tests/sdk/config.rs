//! How a server is named other than by its address: by a socket, and by the fingerprint of its certificate.

use std::path::Path;
use std::sync::Arc;

use opensandbox::{Client, ConnectionConfig, SandboxFilter, TlsFingerprint};

use crate::server::Server;

pub(crate) async fn servers_are_named_by_sockets_and_fingerprints(server: Arc<Server>) {
    assert!(server.config().socket().is_none());
    let config = server.config().domain("unix:///run/nobody/api.sock");
    assert_eq!(config.socket(), Some(Path::new("/run/nobody/api.sock")));
    assert!(config.uses_server_proxy());
    let client = Client::new(config).unwrap();
    assert!(client.list(&SandboxFilter::default()).await.is_err());
    let socket = ConnectionConfig::up_directory().join("api.sock");
    let domain = ConnectionConfig::local_domain();
    assert_eq!(domain.is_some(), socket.exists());

    let fingerprint: TlsFingerprint = "00".repeat(32).parse().unwrap();
    let address = server.config().root_url().unwrap();
    let secure = address.replacen("http://", "https://", 1);
    let config = server.config().domain(secure).tls_fingerprint(fingerprint);
    let client = Client::new(config).unwrap();
    assert!(client.list(&SandboxFilter::default()).await.is_err());
}
