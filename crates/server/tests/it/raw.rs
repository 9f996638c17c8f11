//! Both ends of the proxy, said byte by byte: a client, and a service inside a sandbox.

use api::id::SandboxId;
use secrecy::ExposeSecret as _;
use server::config::Config;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;

use crate::support::{DEADLINE, Server, start_with};

/// Where the service is that a test plays.
pub(crate) const PLAYED: u16 = 8000;

/// Where a service is that answers with the body it was sent, when it has all of it,
pub(crate) const ECHO: u16 = 8001;

/// and one that does so while it reads.
pub(crate) const STREAMED: u16 = 8002;

/// A server with one sandbox.
pub(crate) struct Stage {
    pub(crate) server: Server,
    pub(crate) id: SandboxId,
    token: String,
    connections: mpsc::Receiver<std::os::unix::net::UnixStream>,
}

pub(crate) async fn stage() -> Stage {
    stage_with(|_| {}).await
}

/// A server with changed settings and one sandbox.
pub(crate) async fn stage_with(change: impl FnOnce(&mut Config)) -> Stage {
    let mut server = start_with(change).await;
    server.key = Some("plain/key".to_owned());
    let id = server.sandbox().await;
    server.backend.listen(&id, STREAMED);
    tokio::spawn(echo(server.backend.play(&id, ECHO)));
    let connections = server.backend.play(&id, PLAYED);
    let sandbox = server.running.service.get(&id).unwrap();
    let token = sandbox.access_token.expose_secret().to_owned();
    Stage {
        server,
        id,
        token,
        connections,
    }
}

async fn echo(mut connections: mpsc::Receiver<std::os::unix::net::UnixStream>) {
    while let Some(stream) = connections.recv().await {
        let mut service = Raw::new(UnixStream::from_std(stream).unwrap());
        tokio::spawn(async move {
            loop {
                let request = service.message().await;
                if !request.is_whole {
                    return;
                }
                let length = request.body.len();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                service.say([head.as_bytes(), &request.body].concat()).await;
            }
        });
    }
}

impl Stage {
    pub(crate) async fn client(&self) -> Raw<TcpStream> {
        let stream = TcpStream::connect(self.server.address()).await;
        let stream = stream.unwrap();
        stream.set_nodelay(true).unwrap();
        Raw::new(stream)
    }

    /// The next connection to the service that the test plays.
    pub(crate) async fn service(&mut self) -> Raw<UnixStream> {
        let next = tokio::time::timeout(DEADLINE, self.connections.recv()).await;
        let stream = next.expect("a connection in time").unwrap();
        Raw::new(UnixStream::from_std(stream).unwrap())
    }

    /// A connection to that service that waits.
    pub(crate) fn try_service(&mut self) -> Option<Raw<UnixStream>> {
        let stream = self.connections.try_recv().ok()?;
        Some(Raw::new(UnixStream::from_std(stream).unwrap()))
    }

    /// All connections to that service from now on, for where the stage itself is needed meanwhile.
    pub(crate) fn take_connections(&mut self) -> mpsc::Receiver<std::os::unix::net::UnixStream> {
        let (_, none) = mpsc::channel(1);
        std::mem::replace(&mut self.connections, none)
    }

    /// Whether no connection to that service waits.
    pub(crate) fn is_left_alone(&mut self) -> bool {
        self.connections.try_recv().is_err()
    }

    /// The sandbox's token.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// What a target in the sandbox is for a client.
    pub(crate) fn target(&self, port: u16, path: &str) -> String {
        format!("/v1/sandboxes/{}/proxy/{port}{path}", self.id)
    }

    /// The headers that let a client in.
    pub(crate) fn pass(&self) -> String {
        format!("Host: a\r\nX-Execd-Access-Token: {}\r\n", self.token)
    }

    /// A request into the sandbox.
    pub(crate) fn request(&self, method: &str, port: u16, headers: &str, body: &str) -> String {
        let (target, pass) = (self.target(port, "/x"), self.pass());
        format!("{method} {target} HTTP/1.1\r\n{pass}{headers}\r\n{body}")
    }
}

/// A message as it was read.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) first: String,
    pub(crate) headers: Vec<(String, String)>,
    /// Without its chunks.
    pub(crate) body: Vec<u8>,
    /// Whether it ended as its head had said.
    pub(crate) is_whole: bool,
}

impl Heard {
    pub(crate) fn status(&self) -> u16 {
        let status = self.first.split(' ').nth(1);
        status.and_then(|it| it.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(own, _)| own == name);
        let (first, second) = (found.next(), found.next());
        assert!(second.is_none(), "{name} twice: {self:?}");
        first.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.body).unwrap()
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status(), status, "{self:?}");
        assert!(self.is_whole, "{self:?}");
        self
    }
}

/// A connection of which a test says every byte.
pub(crate) struct Raw<S> {
    pub(crate) stream: S,
    read: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Raw<S> {
    pub(crate) fn new(stream: S) -> Self {
        let read = Vec::new();
        Self { stream, read }
    }

    pub(crate) async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        let said = self.stream.write_all(bytes.as_ref());
        let said = tokio::time::timeout(DEADLINE, said).await;
        said.expect("somebody who listens").unwrap();
    }

    /// Reads more; `false` at the end.
    async fn more(&mut self) -> bool {
        let read = self.stream.read_buf(&mut self.read);
        let read = tokio::time::timeout(DEADLINE, read).await;
        read.expect("something in time").unwrap_or(0) > 0
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.read.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.read.drain(..end + 2).take(end).collect();
                return Some(String::from_utf8_lossy(&line).into_owned());
            }
            if !self.more().await {
                return None;
            }
        }
    }

    /// Reads so many bytes, or fewer if it ends before.
    pub(crate) async fn bytes(&mut self, count: usize) -> Vec<u8> {
        while self.read.len() < count && self.more().await {}
        let count = count.min(self.read.len());
        self.read.drain(..count).collect()
    }

    /// Reads to the end.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        while self.more().await {}
        std::mem::take(&mut self.read)
    }

    /// Reads a message without its body.
    pub(crate) async fn head(&mut self) -> Heard {
        let Some(first) = self.line().await else {
            return Heard::default();
        };
        let mut headers = Vec::new();
        while let Some(line) = self.line().await {
            if line.is_empty() {
                return Heard {
                    first,
                    headers,
                    is_whole: true,
                    ..Heard::default()
                };
            }
            let (name, value) = line.split_once(": ").expect("a header");
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        Heard {
            first,
            headers,
            ..Heard::default()
        }
    }

    /// Reads a message.
    pub(crate) async fn message(&mut self) -> Heard {
        let mut heard = self.head().await;
        if !heard.is_whole {
            return heard;
        }
        let is_answer = heard.first.starts_with("HTTP/");
        if is_answer && matches!(heard.status(), 100..=199 | 204 | 304) {
            return heard;
        }
        if heard.header("transfer-encoding").is_some() {
            assert_eq!(heard.header("content-length"), None, "{heard:?}");
            heard.is_whole = self.chunks(&mut heard.body).await;
        } else if let Some(length) = heard.header("content-length") {
            let length = length.parse().unwrap();
            heard.body = self.bytes(length).await;
            heard.is_whole = heard.body.len() == length;
        } else if is_answer {
            heard.body = self.rest().await;
        }
        heard
    }

    async fn chunks(&mut self, body: &mut Vec<u8>) -> bool {
        loop {
            let Some(size) = self.line().await else {
                return false;
            };
            let size = usize::from_str_radix(&size, 16).expect("a chunk's size");
            let data = self.bytes(size + 2).await;
            body.extend(&data[..size.min(data.len())]);
            if data.len() < size + 2 {
                return false;
            }
            assert!(data.ends_with(b"\r\n"));
            if size == 0 {
                return true;
            }
        }
    }
}
