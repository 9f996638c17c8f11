//! TLS at the API's port and the gateway's.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::Body;
use http::Request;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use server::config::{Config, IngressMode, TlsFiles};
use server::run::{Running, listen};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::{Answer, DEADLINE, Server, read, request_for, start_with};

struct Files {
    directory: TempDir,
}

impl Files {
    fn new() -> Self {
        let files = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        files.make();
        files
    }

    fn certificate(&self) -> PathBuf {
        self.directory.path().join("server.pem")
    }

    fn key(&self) -> PathBuf {
        self.directory.path().join("server.key")
    }

    /// Makes a certificate, in place of the one that is there.
    fn make(&self) {
        let names = ["localhost", "*.localhost"].map(str::to_owned);
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        std::fs::write(self.key(), made.signing_key.serialize_pem()).unwrap();
        std::fs::write(self.certificate(), made.cert.pem()).unwrap();
    }

    fn set(&self, config: &mut Config) {
        config.server.tls = TlsFiles {
            certificate: Some(self.certificate()),
            key: Some(self.key()),
        };
        config.ingress.mode = IngressMode::Gateway;
        config.ingress.gateway.port = 0;
    }
}

fn shown(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).unwrap()
}

/// A connection whose client trusts the certificate in this file alone.
async fn connect(
    address: std::net::SocketAddr,
    trusted: &Path,
    alpn: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(shown(trusted)).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|it| it.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream);
    tokio::time::timeout(DEADLINE, connected)
        .await
        .expect("in time")
}

async fn call(stream: TlsStream<TcpStream>, request: Request<Body>) -> Answer {
    let (mut client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection.with_upgrades());
    let response = tokio::time::timeout(DEADLINE, client.send_request(request)).await;
    read(response.expect("in time").unwrap()).await
}

async fn start(files: &Files) -> Server {
    start_with(|config| files.set(config)).await
}

/// A sandbox, and what lets in to it.
async fn sandbox(server: &Server, files: &Files) -> (String, String) {
    let stream = connect(server.address(), &files.certificate(), &[]).await;
    let request = Request::post("/v1/sandboxes")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Body::from(request_for("local").to_string()))
        .unwrap();
    let made = call(stream.unwrap(), request).await.expect(202).json();
    let id = made["id"].as_str().unwrap().to_owned();
    server.backend.listen(&id.parse().unwrap(), 8000);
    let stream = connect(server.address(), &files.certificate(), &[]).await;
    let request = Request::get(format!("/v1/sandboxes/{id}/endpoints/8000?link=true"))
        .header("host", "localhost")
        .body(Body::empty())
        .unwrap();
    let told = call(stream.unwrap(), request).await.expect(200).json();
    let gateway = server.running.gateway.unwrap();
    let link = told["link"].as_str().unwrap();
    let expected = format!("https://{id}-8000.localhost:{}/?", gateway.port());
    assert!(link.starts_with(&expected), "{link}");
    let token = &told["headers"]["OpenSandbox-Secure-Access"];
    (id, token.as_str().unwrap().to_owned())
}

#[tokio::test]
async fn the_api_and_the_gateway_speak_tls() {
    let files = Files::new();
    let server = start(&files).await;
    let (id, token) = sandbox(&server, &files).await;
    let gateway = server.running.gateway.unwrap();
    let headers = |path: &str| {
        Request::get(path.to_owned())
            .header("host", "localhost")
            .header("opensandbox-ingress-to", format!("{id}-8000"))
            .header("opensandbox-secure-access", &token)
            .header("x-forwarded-proto", "http")
    };
    let stream = connect(gateway, &files.certificate(), &["http/1.1"])
        .await
        .unwrap();
    let request = headers("/headers").body(Body::empty()).unwrap();
    let seen = call(stream, request).await.expect(200).json();
    assert_eq!(seen["x-forwarded-proto"], "https");
    // Several megabytes, of which the socket takes a part at a time.
    let large = "x".repeat(4 << 20);
    let stream = connect(gateway, &files.certificate(), &[]).await.unwrap();
    let request = headers("/echo").body(Body::from(large.clone())).unwrap();
    assert!(call(stream, request).await.expect(200).text == large);
    // HTTP/2 where the client chooses it.
    let stream = connect(gateway, &files.certificate(), &["h2", "http/1.1"])
        .await
        .unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = headers("https://localhost/ping").body(()).unwrap();
    let (response, _) = client.send_request(request, true).unwrap();
    assert_eq!(response.await.unwrap().status(), 200);
    // The API's port has HTTP/1.1 alone.
    let stream = connect(server.address(), &files.certificate(), &["h2", "http/1.1"]).await;
    assert_eq!(
        stream.unwrap().get_ref().1.alpn_protocol(),
        Some(&b"http/1.1"[..])
    );
}

#[tokio::test]
async fn a_tunnel_passes_both_ways_through_tls() {
    let files = Files::new();
    let server = start(&files).await;
    let (id, token) = sandbox(&server, &files).await;
    let gateway = server.running.gateway.unwrap();
    let mut stream = connect(gateway, &files.certificate(), &[]).await.unwrap();
    let request = format!(
        "GET / HTTP/1.1\r\nhost: localhost\r\nopensandbox-ingress-to: {id}-8000\r\n\
         opensandbox-secure-access: {token}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    while !heard.ends_with(b"\r\n\r\n") {
        assert!(stream.read_buf(&mut heard).await.unwrap() > 0);
    }
    assert!(heard.starts_with(b"HTTP/1.1 101 "));
    let sent = vec![7; 1 << 20];
    let (mut from, mut to) = tokio::io::split(stream);
    let mut echoed = vec![0; sent.len()];
    let both = async { tokio::join!(to.write_all(&sent), from.read_exact(&mut echoed)) };
    let (written, received) = tokio::time::timeout(DEADLINE, both).await.expect("in time");
    written.unwrap();
    received.unwrap();
    assert!(echoed == sent);
}

#[tokio::test]
async fn a_client_without_tls_is_told_so() {
    let files = Files::new();
    let server = start(&files).await;
    for address in [server.address(), server.running.gateway.unwrap()] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut heard = String::new();
        let read = stream.read_to_string(&mut heard);
        tokio::time::timeout(DEADLINE, read)
            .await
            .expect("it closes")
            .unwrap();
        assert!(heard.starts_with("HTTP/1.1 400 "), "{heard}");
        assert!(
            heard.contains("this port speaks TLS: use https://"),
            "{heard}"
        );
        assert!(heard.contains("x-request-id: "), "{heard}");
    }
}

#[tokio::test]
async fn a_certificate_that_is_replaced_is_shown_from_then_on() {
    let files = Files::new();
    let server = start(&files).await;
    let address = server.running.gateway.unwrap();
    let old = files.directory.path().join("old.pem");
    std::fs::copy(files.certificate(), &old).unwrap();
    let mut before = connect(address, &old, &[]).await.unwrap();
    files.make();
    // The server is told by the kernel, and nobody tells us: each attempt is a handshake with it.
    let replaced = async {
        while connect(address, &files.certificate(), &[]).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, replaced)
        .await
        .expect("it is shown");
    assert!(connect(address, &old, &[]).await.is_err());
    // Connections that are open go on.
    before
        .write_all(b"GET /status.ok HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut heard = [0; 15];
    before.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"HTTP/1.1 200 OK");
    // What cannot be used changes nothing.
    let new = files.directory.path().join("new.pem");
    std::fs::copy(files.certificate(), &new).unwrap();
    std::fs::write(files.certificate(), "no certificate").unwrap();
    let mut config = Config::default();
    files.set(&mut config);
    server.running.reload(&config).unwrap();
    connect(address, &new, &[]).await.unwrap();
}

#[tokio::test]
async fn a_key_of_another_certificate_is_an_error_at_the_start() {
    let (files, others) = (Files::new(), Files::new());
    let mut config = Config::default();
    config.server.port = 0;
    files.set(&mut config);
    config.server.tls.key = Some(others.key());
    let listener = listen(&config).unwrap();
    let backend = Arc::new(lifecycle::fake::Backend::new());
    let store = Arc::new(lifecycle::fake::Store::new());
    let started = Running::start(&config, listener, backend, store).await;
    let Err(error) = started else {
        panic!("it started");
    };
    let text = api::error_chain(&error).to_string();
    assert!(
        text.contains("does not belong to the first certificate"),
        "{text}"
    );
}
