//! The front of Chromium's debugging port: one address for every browser that runs in this sandbox's life.
//!
//! Chromium picks a port and writes it, with the path of its WebSocket, to `DevToolsActivePort` in its
//! profile. A request for a browser that is starting waits for that file. `/cdp` is the browser that runs
//! now; `/json*` are Chromium's answers with addresses that work where they are read.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, ORIGIN, UPGRADE};
use http::request::Parts;
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{Error, Result};
use crate::guard::Outside;
use crate::limits::{BROWSER_ANSWER_BYTES_MAX, BROWSER_REQUESTS_MAX, BROWSER_START_MAX};

const PORT_FILE: &str = "DevToolsActivePort";
/// What the kernel tells of one file fits many times.
const NOTICE_BYTES: usize = 4096;

/// Where the browser of now listens.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    port: u16,
    /// The path of the browser's own WebSocket.
    path: String,
}

/// The way to the browser.
pub(crate) struct Browser {
    profile: PathBuf,
    requests: Arc<Semaphore>,
}

impl Browser {
    pub(crate) fn new(profile: PathBuf) -> Self {
        Self {
            profile,
            requests: Arc::new(Semaphore::new(BROWSER_REQUESTS_MAX)),
        }
    }

    /// Whether a browser answers now.
    pub(crate) async fn is_running(&self) -> bool {
        match read_target(&self.profile) {
            Some(target) => TcpStream::connect(("127.0.0.1", target.port)).await.is_ok(),
            None => false,
        }
    }

    fn permit(&self) -> Result<OwnedSemaphorePermit> {
        Arc::clone(&self.requests).try_acquire_owned().map_err(|_| {
            Error::Limit(format!(
                "{BROWSER_REQUESTS_MAX} requests to the browser are open already; close one"
            ))
        })
    }

    /// A connection to the browser, once there is one; not to the one that just went away.
    async fn connect(&self, gone: Option<&Target>) -> Result<(TcpStream, Target)> {
        let deadline = Instant::now() + BROWSER_START_MAX;
        let mut notices = None;
        loop {
            // From the second look on, the watch was there before the look: no notice is missed.
            if let Some(target) = read_target(&self.profile)
                && Some(&target) != gone
                && let Ok(stream) = TcpStream::connect(("127.0.0.1", target.port)).await
            {
                return Ok((stream, target));
            }
            notices = Some(match notices.take() {
                None => watch(&self.profile)?,
                Some(watched) => changed(watched, deadline).await?,
            });
            if Instant::now() >= deadline {
                return Err(Error::Unavailable(format!(
                    "no browser with the profile {} began to listen within {} s. It may be starting; ask again",
                    self.profile.display(),
                    BROWSER_START_MAX.as_secs()
                )));
            }
        }
    }

    /// The browser's answer to a request without a body; a browser that ends meanwhile is waited out.
    async fn ask(&self, request: &Parts, path: Option<&str>) -> Result<Response<Incoming>> {
        let (stream, target) = self.connect(None).await?;
        match exchange(stream, &target, request, path).await {
            Err(Error::Unavailable(_)) => {
                let (stream, target) = self.connect(Some(&target)).await?;
                exchange(stream, &target, request, path).await
            }
            answered => answered,
        }
    }

    /// `/json*`: asks the browser and puts addresses of outside into its answer.
    pub(crate) async fn json(&self, request: Request<Body>) -> Result<Response> {
        let _permit = self.permit()?;
        let (asked, _) = request.into_parts();
        let is_version = asked.uri.path().trim_end_matches('/') == "/json/version";
        let path = asked.uri.path_and_query().map(|path| path.as_str());
        let (mut parts, body) = self.ask(&asked, path).await?.into_parts();
        let bytes = Limited::new(body, BROWSER_ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(|e| Error::Failed(format!("reading the browser's answer: {e}")))?
            .to_bytes();
        let Ok(mut value) = serde_json::from_slice::<Value>(&bytes) else {
            return Ok(Response::from_parts(parts, Body::from(bytes)));
        };
        rewrite(&mut value, &Outside::of(&asked.headers), is_version);
        parts.headers.remove(CONTENT_LENGTH);
        parts.headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/json; charset=UTF-8"),
        );
        Ok(Response::from_parts(parts, Body::from(value.to_string())))
    }

    /// `/devtools/*`: the same path of the browser, a page of its tools or a WebSocket.
    pub(crate) async fn pass(&self, request: Request<Body>) -> Result<Response> {
        let path = request
            .uri()
            .path_and_query()
            .map(|path| path.as_str().to_owned());
        self.forward(request, path.as_deref()).await
    }

    /// `/cdp`: the browser that runs now.
    pub(crate) async fn cdp(&self, request: Request<Body>) -> Result<Response> {
        if !request.headers().contains_key(UPGRADE) {
            return Err(Error::Invalid(
                "/cdp is a WebSocket; programs that want an http address get it from /json/version"
                    .to_owned(),
            ));
        }
        self.forward(request, None).await
    }

    /// Passes a request on, and after a switch of protocols everything that either side says.
    async fn forward(&self, mut request: Request<Body>, path: Option<&str>) -> Result<Response> {
        let permit = self.permit()?;
        let ours = hyper::upgrade::on(&mut request);
        let (asked, _) = request.into_parts();
        let mut answer = self.ask(&asked, path).await?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(answer
                .map(|body| Body::new(body.map_err(axum::Error::new)))
                .into_response());
        }
        let theirs = hyper::upgrade::on(&mut answer);
        tokio::spawn(async move {
            let _permit = permit;
            if let (Ok(ours), Ok(theirs)) = tokio::join!(ours, theirs) {
                // Ends when either side does; what is on its way then has no reader.
                let (mut ours, mut theirs) = (TokioIo::new(ours), TokioIo::new(theirs));
                let _ = tokio::io::copy_bidirectional(&mut ours, &mut theirs).await;
            }
        });
        let mut response = Response::new(Body::from(Bytes::new()));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        for (name, value) in answer.headers() {
            response.headers_mut().append(name, value.clone());
        }
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("upgrade"));
        Ok(response)
    }
}

fn read_target(profile: &Path) -> Option<Target> {
    let text = std::fs::read_to_string(profile.join(PORT_FILE)).ok()?;
    let (port, path) = text.split_once('\n')?;
    let path = path.trim();
    (!path.is_empty()).then_some(Target {
        port: port.trim().parse().ok()?,
        path: path.to_owned(),
    })
}

fn watch(profile: &Path) -> Result<rustix::fd::OwnedFd> {
    let watched = || -> rustix::io::Result<rustix::fd::OwnedFd> {
        let notices =
            inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        use inotify::WatchFlags as On;
        inotify::add_watch(
            &notices,
            profile,
            On::CREATE | On::CLOSE_WRITE | On::MOVED_TO,
        )?;
        Ok(notices)
    };
    watched().map_err(|e| {
        Error::Unavailable(format!(
            "there is no browser's profile at {} ({e}); was a browser started?",
            profile.display()
        ))
    })
}

/// Waits until something in the profile changed, or the deadline.
async fn changed(notices: rustix::fd::OwnedFd, deadline: Instant) -> Result<rustix::fd::OwnedFd> {
    let wait = move || {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left.min(Duration::from_secs(3600)));
        let left = left.map_err(|e| Error::Failed(format!("no such wait: {e}")))?;
        let _ = poll(&mut [PollFd::new(&notices, PollFlags::IN)], Some(&left));
        let mut buffer = [0; NOTICE_BYTES];
        while matches!(rustix::io::read(&notices, &mut buffer), Ok(1..)) {}
        Ok(notices)
    };
    tokio::task::spawn_blocking(wait)
        .await
        .map_err(|e| Error::Failed(format!("waiting for a browser: {e}")))?
}

/// Sends a request to the browser as if it came from its own machine; without a path of its own, to the
/// browser's WebSocket.
async fn exchange(
    stream: TcpStream,
    target: &Target,
    asked: &Parts,
    path: Option<&str>,
) -> Result<Response<Incoming>> {
    let failed =
        |why: String| Error::Unavailable(format!("the browser did not answer ({why}). Ask again"));
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|e| failed(e.to_string()))?;
    tokio::spawn(connection.with_upgrades());
    let mut request = Request::new(Body::empty());
    *request.method_mut() = asked.method.clone();
    *request.headers_mut() = asked.headers.clone();
    let path = path.unwrap_or(&target.path);
    *request.uri_mut() = path
        .parse()
        .map_err(|e| Error::Invalid(format!("the path {path:?}: {e}")))?;
    // The browser refuses names (DNS rebinding) and foreign origins; both were checked before.
    let host = format!("localhost:{}", target.port);
    let host = HeaderValue::from_str(&host).map_err(|e| failed(e.to_string()))?;
    request.headers_mut().insert(HOST, host);
    request.headers_mut().remove(ORIGIN);
    request.headers_mut().remove(CONTENT_LENGTH);
    let answer = tokio::time::timeout(BROWSER_START_MAX, sender.send_request(request)).await;
    answer
        .map_err(|_| failed(format!("after {} s", BROWSER_START_MAX.as_secs())))?
        .map_err(|e| failed(e.to_string()))
}

/// Puts addresses of outside into an answer of `/json*`.
fn rewrite(value: &mut Value, outside: &Outside, is_version: bool) {
    match value {
        Value::Array(all) => all
            .iter_mut()
            .for_each(|one| rewrite(one, outside, is_version)),
        Value::Object(fields) => {
            let Some(inside) = fields.get("webSocketDebuggerUrl").and_then(Value::as_str) else {
                return;
            };
            let path = inside
                .find("/devtools/")
                .map_or("", |at| &inside[at..])
                .to_owned();
            let address = outside.websocket(if is_version { "/cdp" } else { &path });
            if fields.contains_key("devtoolsFrontendUrl") {
                // The tools' page takes the address without its scheme, under a name that is the scheme.
                let frontend = address.replacen("://", "=", 1);
                let page = format!("{}/devtools/inspector.html?{frontend}", outside.prefix);
                fields.insert("devtoolsFrontendUrl".to_owned(), Value::String(page));
            }
            fields.insert("webSocketDebuggerUrl".to_owned(), Value::String(address));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_in_answers_work_from_outside() {
        let outside = Outside {
            is_secure: true,
            host: "osb.example".to_owned(),
            prefix: "/p/6080".to_owned(),
        };
        let mut tabs = json!([{
            "devtoolsFrontendUrl": "https://somewhere/inspector.html?ws=localhost:4/devtools/page/A",
            "webSocketDebuggerUrl": "ws://localhost:4/devtools/page/A",
        }]);
        rewrite(&mut tabs, &outside, false);
        assert_eq!(
            tabs[0]["webSocketDebuggerUrl"],
            "wss://osb.example/p/6080/devtools/page/A"
        );
        assert_eq!(
            tabs[0]["devtoolsFrontendUrl"],
            "/p/6080/devtools/inspector.html?wss=osb.example/p/6080/devtools/page/A"
        );
        let mut version =
            json!({"Browser": "x", "webSocketDebuggerUrl": "ws://localhost:4/devtools/browser/B"});
        rewrite(&mut version, &outside, true);
        assert_eq!(
            version["webSocketDebuggerUrl"],
            "wss://osb.example/p/6080/cdp"
        );
    }

    #[test]
    fn half_a_port_file_is_none() {
        let directory = tempfile::tempdir().unwrap();
        for text in ["", "123", "123\n", "x\n/devtools"] {
            std::fs::write(directory.path().join(PORT_FILE), text).unwrap();
            assert_eq!(read_target(directory.path()), None, "{text:?}");
        }
        std::fs::write(directory.path().join(PORT_FILE), "123\n/devtools/browser/B").unwrap();
        let expected = Target {
            port: 123,
            path: "/devtools/browser/B".to_owned(),
        };
        assert_eq!(read_target(directory.path()), Some(expected));
    }
}
