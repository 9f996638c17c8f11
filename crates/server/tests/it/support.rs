//! A server for one test, and a small client for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::id::SandboxId;
use axum::body::Body;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use lifecycle::fake;
use serde_json::{Value, json};
use server::config::Config;
use server::run::{Running, listen};

/// Nothing here takes this long; it only keeps a broken test from hanging.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);

pub(crate) struct Server {
    pub(crate) backend: fake::Backend,
    pub(crate) store: fake::Store,
    pub(crate) running: Running,
    /// The key that requests show; a server without keys does not look at it.
    pub(crate) key: Option<String>,
    client: Client<HttpConnector, Body>,
}

/// An answer that was read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"]
            .as_str()
            .unwrap_or_else(|| panic!("no code: {self:?}"))
            .to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self
            .headers
            .get(name)
            .unwrap_or_else(|| panic!("no {name}: {self:?}"));
        value.to_str().unwrap()
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        self
    }

    /// Asserts the status and the error code.
    #[track_caller]
    pub(crate) fn refused(self, status: u16, code: &str) -> Self {
        let answer = self.expect(status);
        assert_eq!(answer.code(), code, "{answer:?}");
        assert!(!answer.json()["message"].as_str().unwrap().is_empty());
        answer
    }
}

/// A server with the defaults, without keys.
pub(crate) async fn start() -> Server {
    start_with(|_| {}).await
}

/// A server with changed settings.
pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> Server {
    start_on(fake::Backend::new(), fake::Store::new(), change).await
}

pub(crate) async fn start_on(
    backend: fake::Backend,
    store: fake::Store,
    change: impl FnOnce(&mut Config),
) -> Server {
    let mut config = Config::default();
    config.server.port = 0;
    change(&mut config);
    let listener = listen(&config).unwrap();
    let running = Running::start(
        &config,
        listener,
        Arc::new(backend.clone()),
        Arc::new(store.clone()),
    )
    .await
    .unwrap();
    let client = Client::builder(TokioExecutor::new()).build_http();
    Server {
        backend,
        store,
        running,
        key: None,
        client,
    }
}

impl Server {
    /// The address it listens on.
    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.running.address.expect("tests listen on one")
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Response<Incoming> {
        let sent = self.client.request(request);
        tokio::time::timeout(DEADLINE, sent)
            .await
            .expect("an answer in time")
            .unwrap()
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> http::request::Builder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        Request::builder().method(method).uri(self.url(path))
    }

    pub(crate) async fn call(&self, request: Request<Body>) -> Answer {
        read(self.send(request).await).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(self.request("GET", path).body(Body::empty()).unwrap())
            .await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.call(self.request("DELETE", path).body(Body::empty()).unwrap())
            .await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.body("POST", path, body).await
    }

    pub(crate) async fn body(&self, method: &str, path: &str, body: Value) -> Answer {
        let request = self
            .request(method, path)
            .header("content-type", "application/json");
        let key = self.key.iter();
        let request = key.fold(request, |it, key| it.header("open-sandbox-api-key", key));
        self.call(request.body(Body::from(body.to_string())).unwrap())
            .await
    }

    /// A running sandbox of the image that is local.
    pub(crate) async fn sandbox(&self) -> SandboxId {
        let answer = self
            .post("/v1/sandboxes", request_for("local"))
            .await
            .expect(202);
        assert_eq!(answer.json()["status"]["state"], "Running", "{answer:?}");
        answer.json()["id"].as_str().unwrap().parse().unwrap()
    }

    /// The endpoint of a port: its path, and the headers to send along.
    pub(crate) async fn endpoint(
        &self,
        id: &SandboxId,
        port: u16,
    ) -> (String, BTreeMap<String, String>) {
        let answer = self
            .get(&format!("/v1/sandboxes/{id}/endpoints/{port}"))
            .await
            .expect(200);
        let answer = answer.json();
        let endpoint = answer["endpoint"].as_str().unwrap();
        let host = self.address().to_string();
        let path = endpoint
            .strip_prefix(&host)
            .expect("the host the client used")
            .to_owned();
        (
            path,
            serde_json::from_value(answer["headers"].clone()).unwrap(),
        )
    }

    /// A request to a port of a sandbox, with the endpoint's headers.
    pub(crate) async fn inside(
        &self,
        method: &str,
        id: &SandboxId,
        port: u16,
        path: &str,
    ) -> http::request::Builder {
        let (endpoint, headers) = self.endpoint(id, port).await;
        let request = self.request(method, &format!("{endpoint}{path}"));
        headers.iter().fold(request, |request, (name, value)| {
            request.header(name, value)
        })
    }
}

pub(crate) async fn read(response: Response<Incoming>) -> Answer {
    let (parts, body) = response.into_parts();
    let bytes = tokio::time::timeout(DEADLINE, body.collect())
        .await
        .expect("an end in time");
    let text = String::from_utf8_lossy(&bytes.unwrap().to_bytes()).into_owned();
    Answer {
        status: parts.status,
        headers: parts.headers,
        text,
    }
}

/// What the published clients send to make a sandbox.
pub(crate) fn request_for(image: &str) -> Value {
    json!({
        "image": {"uri": image},
        "entrypoint": ["tail", "-f", "/dev/null"],
        "timeout": 600,
        "resourceLimits": {"cpu": "1", "memory": "2Gi"},
    })
}
