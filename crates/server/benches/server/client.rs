//! A client for the bench: sandboxes over the API, and commands in them by either way.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::client::legacy::Client as Pooled;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::thread::LinkNameSpaceType;
use serde_json::{Value, json};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Mutex;
use tokio::time::Instant;

type Body = Full<Bytes>;

#[derive(Clone)]
pub(crate) struct Client {
    address: String,
    http: Pooled<HttpConnector, Body>,
}

impl Client {
    pub(crate) fn new(address: &str) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let http = Pooled::builder(TokioExecutor::new()).build(connector);
        Self {
            address: address.to_owned(),
            http,
        }
    }

    async fn send(&self, method: Method, path: &str, body: &str) -> Response<Incoming> {
        let uri = format!("http://{}{path}", self.address);
        let body = Full::new(Bytes::copy_from_slice(body.as_bytes()));
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .body(body)
            .unwrap();
        self.http.request(request).await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let response = self.send(Method::GET, path, "").await;
        assert_eq!(response.status(), 200, "{path}");
        serde_json::from_slice(&response.collect().await.unwrap().to_bytes()).unwrap()
    }

    pub(crate) async fn create(&self) -> Sandbox {
        self.try_create().await.expect("a sandbox")
    }

    pub(crate) async fn try_create(&self) -> Option<Sandbox> {
        self.create_with("1").await
    }

    /// One that may use as much as a daemon outside may.
    pub(crate) async fn create_unlimited(&self) -> Sandbox {
        let cores = std::thread::available_parallelism().unwrap();
        self.create_with(&cores.to_string())
            .await
            .expect("a sandbox")
    }

    async fn create_with(&self, cores: &str) -> Option<Sandbox> {
        let body = json!({
            "image": {"uri": "host"},
            "entrypoint": ["tail", "-f", "/dev/null"],
            "timeout": 3600,
            "resourceLimits": {"cpu": cores, "memory": "512Mi"},
        });
        let response = self
            .send(Method::POST, "/v1/sandboxes", &body.to_string())
            .await;
        if response.status() != 202 {
            return None;
        }
        let bytes = response.collect().await.unwrap().to_bytes();
        let made: Value = serde_json::from_slice(&bytes).unwrap();
        if made["status"]["state"] != "Running" {
            return None;
        }
        let id = made["id"].as_str().unwrap().to_owned();
        let endpoint = self
            .get(&format!("/v1/sandboxes/{id}/endpoints/44772"))
            .await;
        let token = endpoint["headers"]["X-EXECD-ACCESS-TOKEN"]
            .as_str()
            .unwrap()
            .to_owned();
        Some(Sandbox {
            id,
            token,
            client: self.clone(),
        })
    }
}

pub(crate) struct Sandbox {
    pub(crate) id: String,
    token: String,
    client: Client,
}

impl Sandbox {
    fn prefix(&self) -> String {
        format!("/v1/sandboxes/{}/proxy/44772", self.id)
    }

    /// Runs a command and waits for the first byte it wrote.
    pub(crate) async fn first_output(&self) {
        let uri = format!("http://{}{}/command", self.client.address, self.prefix());
        let request = command(&self.token, &uri, "echo ready");
        let mut response = self.client.http.request(request).await.unwrap();
        let mut seen = Vec::new();
        while let Some(frame) = response.body_mut().frame().await {
            seen.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default());
            if String::from_utf8_lossy(&seen).contains("ready") {
                break;
            }
        }
        assert!(
            String::from_utf8_lossy(&seen).contains("ready"),
            "no output"
        );
        // Read on, so that the connection can be used again.
        response.collect().await.unwrap();
    }

    pub(crate) async fn delete(self) {
        let path = format!("/v1/sandboxes/{}", self.id);
        let response = self.client.send(Method::DELETE, &path, "").await;
        assert_eq!(response.status(), 204);
        response.collect().await.unwrap();
    }

    /// To its daemon through the server.
    pub(crate) fn proxied(&self) -> Way {
        Way::new(
            Target::Tcp(self.client.address.clone()),
            self.prefix(),
            &self.token,
        )
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// To its daemon over TCP from within the sandbox's own network.
    pub(crate) fn inside(&self, data_dir: &Path) -> Way {
        let home = data_dir.join("sandboxes").join(&self.id);
        let process = std::fs::read(home.join("process.json")).unwrap();
        let process: Value = serde_json::from_slice(&process).unwrap();
        let network = format!("/proc/{}/ns/net", process["pid"]);
        Way::new(Target::Inside(network.into()), String::new(), &self.token)
    }

    /// To its daemon by the socket that the server uses too.
    pub(crate) fn control(&self, data_dir: &Path) -> Way {
        let home = data_dir.join("sandboxes").join(&self.id);
        let socket = home.join("control.sock");
        Way::new(Target::Unix(socket), String::new(), &self.token)
    }
}

fn command(token: &str, uri: &str, text: &str) -> Request<Body> {
    let body = json!({"command": text}).to_string();
    Request::post(uri)
        .header("host", "bench")
        .header("x-execd-access-token", token)
        .body(Full::new(Bytes::from(body)))
        .unwrap()
}

/// What is asked for, again and again.
#[derive(Clone, Copy)]
pub(crate) enum Load {
    Ping,
    /// A file.
    Read(&'static str),
    /// The shortest one there is.
    Command,
}

#[derive(Clone)]
pub(crate) enum Target {
    Tcp(String),
    /// The daemon's own port in the network namespace at this path.
    Inside(PathBuf),
    Unix(PathBuf),
}

/// Connects to the daemon from within a network namespace: a socket stays in the one it was made
/// in, so a thread enters it for as long as that takes.
fn connect_inside(network: &Path) -> std::net::TcpStream {
    let network = std::fs::File::open(network).unwrap();
    let connect = move || {
        let kind = Some(LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(network.as_fd(), kind).unwrap();
        std::net::TcpStream::connect(("127.0.0.1", 44772)).unwrap()
    };
    let stream = std::thread::spawn(connect).join().unwrap();
    stream.set_nonblocking(true).unwrap();
    stream
}

/// A way to the daemon of a sandbox, with one connection kept open.
pub(crate) struct Way {
    target: Target,
    prefix: String,
    token: String,
    kept: Mutex<Option<SendRequest<Body>>>,
}

impl Way {
    pub(crate) fn new(target: Target, prefix: String, token: &str) -> Self {
        Self {
            target,
            prefix,
            token: token.to_owned(),
            kept: Mutex::default(),
        }
    }

    async fn connect(&self) -> SendRequest<Body> {
        match &self.target {
            Target::Tcp(address) => {
                let stream = TcpStream::connect(address).await.unwrap();
                stream.set_nodelay(true).unwrap();
                serve(TokioIo::new(stream)).await
            }
            Target::Inside(network) => {
                let stream = TcpStream::from_std(connect_inside(network)).unwrap();
                stream.set_nodelay(true).unwrap();
                serve(TokioIo::new(stream)).await
            }
            Target::Unix(path) => {
                serve(TokioIo::new(UnixStream::connect(path).await.unwrap())).await
            }
        }
    }

    fn get(&self, path: &str) -> Request<Body> {
        Request::get(format!("{}{path}", self.prefix))
            .header("host", "bench")
            .header("x-execd-access-token", &self.token)
            .body(Full::default())
            .unwrap()
    }

    fn command_request(&self, text: &str) -> Request<Body> {
        command(&self.token, &format!("{}/command", self.prefix), text)
    }

    /// Runs a command to its end, on the connection that is kept.
    pub(crate) async fn command(&self) {
        self.run("true").await;
    }

    pub(crate) async fn make_file(&self, path: &str, bytes: usize) {
        self.run(&format!("head -c {bytes} /dev/zero > {path}"))
            .await;
    }

    pub(crate) async fn remove_files(&self, paths: &[&str]) {
        self.run(&format!("rm {}", paths.join(" "))).await;
    }

    async fn run(&self, text: &str) {
        let mut kept = self.kept.lock().await;
        if kept.is_none() {
            *kept = Some(self.connect().await);
        }
        exchange(kept.as_mut().unwrap(), self.command_request(text)).await;
    }

    pub(crate) async fn requests_per_second(
        &self,
        load: Load,
        connections: usize,
        window: Duration,
    ) -> f64 {
        let until = Instant::now() + window;
        let workers = (0..connections).map(|_| async {
            let mut sender = self.connect().await;
            let mut count = 0u64;
            while Instant::now() < until {
                let request = match load {
                    Load::Ping => self.get("/ping"),
                    Load::Read(path) => self.get(&format!("/files/download?path={path}")),
                    Load::Command => self.command_request("true"),
                };
                exchange(&mut sender, request).await;
                count += 1;
            }
            count
        });
        let counts = futures_util::future::join_all(workers).await;
        counts.iter().sum::<u64>() as f64 / window.as_secs_f64()
    }

    pub(crate) async fn download(&self, path: &str) -> usize {
        let mut sender = self.connect().await;
        let request = self.get(&format!("/files/download?path={path}"));
        let mut response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        let mut bytes = 0;
        while let Some(frame) = response.body_mut().frame().await {
            bytes += frame.unwrap().into_data().map_or(0, |data| data.len());
        }
        bytes
    }
}

/// A request and all of its answer.
async fn exchange(sender: &mut SendRequest<Body>, request: Request<Body>) {
    sender.ready().await.unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    response.collect().await.unwrap();
}

async fn serve<I>(io: I) -> SendRequest<Body>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(io).await.unwrap();
    tokio::spawn(connection);
    sender
}
