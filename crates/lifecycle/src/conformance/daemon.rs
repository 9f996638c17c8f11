//! A small client for the daemon in a sandbox: as much of its HTTP API as the cases need.

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

use super::world::{Failure, ensure};
use crate::backend::Stream;

/// One connection to a daemon.
pub(super) struct Daemon {
    sender: SendRequest<Full<Bytes>>,
    token: Option<String>,
}

/// How a command went.
#[derive(Debug, Clone, Default)]
pub(super) struct Output {
    pub(super) stdout: String,
    pub(super) stderr: String,
    /// `None` when it could not be started; -1 when a signal ended it.
    pub(super) code: Option<i32>,
}

/// A command whose output is still coming.
pub(super) struct Running {
    body: Incoming,
    buffer: Vec<u8>,
}

impl Daemon {
    pub(super) async fn open(
        stream: Box<dyn Stream>,
        token: Option<String>,
    ) -> Result<Daemon, Failure> {
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Daemon { sender, token })
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        kind: &str,
        body: impl Into<Bytes>,
    ) -> Result<http::Response<Incoming>, Failure> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "sandbox")
            .header(header::CONTENT_TYPE, kind);
        if let Some(token) = &self.token {
            request = request.header(api::exec::ACCESS_TOKEN_HEADER, token);
        }
        // The end of the last answer and the connection's being free are two events; a request
        // between them would be cancelled.
        self.sender.ready().await?;
        Ok(self
            .sender
            .send_request(request.body(Full::new(body.into()))?)
            .await?)
    }

    /// The status of `GET /ping`.
    pub(super) async fn ping(&mut self) -> Result<StatusCode, Failure> {
        let response = self.send(Method::GET, "/ping", "text/plain", "").await?;
        let status = response.status();
        response.into_body().collect().await?;
        Ok(status)
    }

    /// Starts a shell command.
    pub(super) async fn start(&mut self, request: Value) -> Result<Running, Failure> {
        let body = request.to_string();
        let response = self
            .send(Method::POST, "/command", "application/json", body)
            .await?;
        let status = response.status();
        if status != StatusCode::OK {
            let text = response.into_body().collect().await?.to_bytes();
            let text = String::from_utf8_lossy(&text).into_owned();
            return Err(Failure(format!("POST /command answered {status}: {text}")));
        }
        Ok(Running {
            body: response.into_body(),
            buffer: Vec::new(),
        })
    }

    /// Runs a shell command to its end.
    pub(super) async fn run(&mut self, command: &str) -> Result<Output, Failure> {
        self.start(json!({ "command": command }))
            .await?
            .finish()
            .await
    }

    /// Writes a file.
    pub(super) async fn upload(&mut self, path: &str, content: &[u8]) -> Result<(), Failure> {
        let boundary = "conformance-boundary";
        let metadata = json!({ "path": path, "mode": 644 });
        let mut body = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"metadata\"; \
             filename=\"metadata\"\r\nContent-Type: application/json\r\n\r\n{metadata}\r\n\
             --{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"file\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        )
        .into_bytes();
        body.extend_from_slice(content);
        body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        let kind = format!("multipart/form-data; boundary={boundary}");
        let response = self
            .send(Method::POST, "/files/upload", &kind, body)
            .await?;
        let status = response.status();
        let text = response.into_body().collect().await?.to_bytes();
        ensure!(
            status == StatusCode::OK,
            "upload answered {status}: {text:?}"
        );
        Ok(())
    }

    /// Reads a file.
    pub(super) async fn download(&mut self, path: &str) -> Result<Bytes, Failure> {
        let path = format!("/files/download?path={path}");
        let response = self.send(Method::GET, &path, "text/plain", "").await?;
        let status = response.status();
        let bytes = response.into_body().collect().await?.to_bytes();
        ensure!(
            status == StatusCode::OK,
            "download answered {status}: {bytes:?}"
        );
        Ok(bytes)
    }
}

impl Running {
    /// The next event; `None` at the end of the stream. Both framings of the contract are read:
    /// bare JSON and `data:` lines, one event a line either way.
    pub(super) async fn next(&mut self) -> Result<Option<Value>, Failure> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let line = line.strip_prefix(b"data:").unwrap_or(&line).trim_ascii();
                if line.first() == Some(&b'{') {
                    return Ok(Some(serde_json::from_slice(line)?));
                }
                continue;
            }
            match self.body.frame().await {
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                None => return Ok(None),
            }
        }
    }

    /// Waits for a line on standard output that contains `text`.
    pub(super) async fn until_printed(&mut self, text: &str) -> Result<(), Failure> {
        while let Some(event) = self.next().await? {
            let is_output = event["type"] == "stdout";
            if is_output
                && event["text"]
                    .as_str()
                    .is_some_and(|line| line.contains(text))
            {
                return Ok(());
            }
            ensure!(
                event["type"] != "error",
                "ended before it printed {text:?}: {event}"
            );
        }
        Err(Failure(format!("ended before it printed {text:?}")))
    }

    /// Everything up to the end.
    pub(super) async fn finish(mut self) -> Result<Output, Failure> {
        let mut output = Output::default();
        let mut is_ended = false;
        while let Some(event) = self.next().await? {
            let text = event["text"].as_str().unwrap_or_default();
            match event["type"].as_str() {
                Some("stdout") => output.stdout.push_str(text),
                Some("stderr") => output.stderr.push_str(text),
                Some("execution_complete") => {
                    output.code = Some(0);
                    is_ended = true;
                }
                Some("error") => {
                    let value = event["error"]["evalue"].as_str().unwrap_or_default();
                    output.code = value.parse().ok();
                    is_ended = true;
                }
                _ => {}
            }
        }
        ensure!(is_ended, "the stream broke off after {output:?}");
        Ok(output)
    }
}
