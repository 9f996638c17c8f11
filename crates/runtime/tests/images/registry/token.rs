//! A token service as public registries have one: it checks a user's password and signs a token
//! that a registry accepts. The keys are made for each service by `openssl`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{PASSWORD, USER, openssl};

const ISSUER: &str = "test-issuer";
const AUDIENCE: &str = "test-registry";

pub(crate) struct Service {
    port: u16,
    keys: Arc<tempfile::TempDir>,
    issued: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Service {
    pub(crate) async fn start() -> Self {
        let keys = Arc::new(tempfile::tempdir().expect("a temporary directory"));
        openssl(
            keys.path(),
            &[
                "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=test",
                "-keyout", "key.pem", "-out", "cert.pem",
            ],
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let issued = Arc::new(AtomicUsize::new(0));
        let task = tokio::spawn(serve(listener, Arc::clone(&keys), Arc::clone(&issued)));
        Self {
            port,
            keys,
            issued,
            task,
        }
    }

    /// Tokens given out so far.
    pub(crate) fn issued(&self) -> usize {
        self.issued.load(Ordering::SeqCst)
    }

    /// A token that may do everything with a repository.
    pub(crate) fn token(&self, repository: &str) -> String {
        sign(
            self.keys.path(),
            &format!("repository:{repository}:pull,push"),
        )
    }

    pub(super) fn registry_settings(&self) -> String {
        format!(
            "auth: {{token: {{realm: \"http://127.0.0.1:{}/token\", service: {AUDIENCE}, issuer: {ISSUER}, \
             rootcertbundle: {}}}}}\n",
            self.port,
            self.keys.path().join("cert.pem").display()
        )
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, keys: Arc<tempfile::TempDir>, issued: Arc<AtomicUsize>) {
    while let Ok((stream, _)) = listener.accept().await {
        answer(stream, keys.path(), &issued).await;
    }
}

async fn answer(mut stream: TcpStream, keys: &Path, issued: &AtomicUsize) {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(count @ 1..) => request.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
    let text = String::from_utf8_lossy(&request).into_owned();
    let wanted = format!("basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}"))).to_lowercase();
    let is_known = text.lines().any(|line| {
        line.split_once(':').is_some_and(|(name, value)| {
            name.eq_ignore_ascii_case("authorization") && value.trim().to_lowercase() == wanted
        })
    });
    let (status, body) = if is_known {
        issued.fetch_add(1, Ordering::SeqCst);
        let token = sign(keys, &scope_of(&text));
        ("200 OK", json!({ "token": token }).to_string())
    } else {
        ("401 Unauthorized", json!({ "errors": [] }).to_string())
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(answer.as_bytes()).await;
}

fn scope_of(request: &str) -> String {
    let target = request.split(' ').nth(1).unwrap_or_default();
    let url = reqwest::Url::parse(&format!("http://x{target}")).expect("an address");
    url.query_pairs()
        .find(|(key, _)| key == "scope")
        .expect("a scope")
        .1
        .into_owned()
}

/// A token in JSON Web Token form that allows what a scope like `repository:name:pull` says.
fn sign(keys: &Path, scope: &str) -> String {
    let mut parts = scope.splitn(3, ':');
    let mut part = || parts.next().expect("a scope has three parts").to_owned();
    let (kind, name, actions) = (part(), part(), part());
    let actions: Vec<&str> = actions.split(',').collect();
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        .as_secs();
    let certificate = std::fs::read_to_string(keys.join("cert.pem")).expect("a certificate");
    let der: String = certificate
        .lines()
        .filter(|line| !line.starts_with("-----"))
        .collect();
    let head = json!({ "typ": "JWT", "alg": "RS256", "x5c": [der] });
    let claims = json!({
        "iss": ISSUER, "sub": USER, "aud": AUDIENCE, "jti": "1",
        "iat": now, "nbf": now - 60, "exp": now + 600,
        "access": [{ "type": kind, "name": name, "actions": actions }],
    });
    let encode = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(&head), encode(&claims));
    let scratch = tempfile::tempdir_in(keys).expect("a temporary directory");
    std::fs::write(scratch.path().join("text"), &signed).expect("a file");
    openssl(
        scratch.path(),
        &[
            "dgst",
            "-sha256",
            "-sign",
            "../key.pem",
            "-out",
            "signature",
            "text",
        ],
    );
    let signature = std::fs::read(scratch.path().join("signature")).expect("a signature");
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}
