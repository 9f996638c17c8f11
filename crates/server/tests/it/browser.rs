//! Pages of sandboxes in a real browser, Chromium: what a page of one can do to another, and to the API.
//!
//! A page tells what it found by a request to a listener of the test, which every origin may send.

use std::process::Stdio;

use api::id::SandboxId;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::net::{TcpListener, UnixStream};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use server::config::IngressMode;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::raw::Raw;
use crate::support::{DEADLINE, Server, request_for, start_with};

const PORT: u16 = 3000;

/// What the page of a hostile sandbox tries, under the names that the test knows.
const ATTACK: &str = r#"
    const found = {};
    const attempt = async (name, action) => {
        try { found[name] = String(await action()); } catch (error) { found[name] = "failed"; }
    };
    await attempt("neighbour", async () => (await fetch(NEIGHBOUR + "secret.txt")).text());
    await attempt("list", async () => (await fetch("/v1/sandboxes")).status);
    await attempt("create", async () => (await fetch("/v1/sandboxes", {
        method: "POST", headers: { "content-type": "application/json" }, body: "{}",
    })).status);
    await attempt("worker", async () => {
        await navigator.serviceWorker.register(location.pathname + "worker.js", { scope: "/" });
        return "registered";
    });
    await attempt("narrow worker", async () => {
        await navigator.serviceWorker.register(location.pathname + "worker.js");
        return "registered";
    });
    await attempt("cookie", async () => { document.cookie = "planted=1; path=/"; return document.cookie; });
    await attempt("storage", async () => { localStorage.planted = "1"; return "kept"; });
    await attempt("frame", () => new Promise((resolve, reject) => {
        const frame = document.createElement("iframe");
        frame.onload = () => {
            try { resolve(frame.contentDocument.body.textContent); } catch (error) { reject(error); }
        };
        frame.src = NEIGHBOUR + "page.html";
        document.body.append(frame);
    }));
"#;

/// A listener that a page reports to, and the reports.
async fn reporter() -> (String, mpsc::Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (send, receive) = mpsc::channel(8);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let send = send.clone();
            tokio::spawn(async move {
                let mut page = Raw::new(stream);
                let report = page.message().await;
                page.say("HTTP/1.1 204 No\r\nConnection: close\r\n\r\n")
                    .await;
                if let Ok(report) = serde_json::from_slice(&report.body) {
                    let _ = send.send(report).await;
                }
            });
        }
    });
    (address, receive)
}

/// Answers requests to a port of a sandbox with what `answer` makes of their path.
fn service(server: &Server, id: &SandboxId, answer: impl Fn(&str) -> String + Send + 'static) {
    let mut connections = server.backend.play(id, PORT);
    tokio::spawn(async move {
        while let Some(stream) = connections.recv().await {
            let mut service = Raw::new(UnixStream::from_std(stream).unwrap());
            let request = service.message().await;
            let path = request.first.split(' ').nth(1).unwrap_or_default();
            let answer = answer(path);
            let (kind, body) = answer.split_once('\n').unwrap();
            let length = body.len();
            service
                .say(format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nService-Worker-Allowed: /\r\n\
                     Set-Cookie: opensandbox-token=evil; Path=/\r\nConnection: close\r\n\
                     Content-Length: {length}\r\n\r\n{body}"
                ))
                .await;
        }
    });
}

/// A sandbox whose pages have the origin that was asked for.
async fn sandbox(server: &Server, origin: &str) -> SandboxId {
    let mut body = request_for("local");
    body["extensions"] = json!({"opensandbox.extensions.page-origin": origin});
    let made = server.post("/v1/sandboxes", body).await.expect(202).json();
    made["id"].as_str().unwrap().parse().unwrap()
}

/// The path of the service in a sandbox, and a link to it for a browser.
fn link(server: &Server, id: &SandboxId) -> (String, String) {
    let path = format!("/v1/sandboxes/{id}/proxy/{PORT}/");
    let sandbox = server.running.service.get(id).unwrap();
    let token = sandbox.access_token.expose_secret();
    let link = server.url(&format!("{path}?opensandbox_token={token}"));
    (path, link)
}

fn open(link: &str, profile: &tempfile::TempDir) -> Child {
    Command::new("chromium")
        .args(["--headless=new", "--no-sandbox", "--disable-gpu"])
        .args(["--disable-dev-shm-usage", "--no-first-run"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(link)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("chromium, which tools/setup test installs")
}

/// What a page of one sandbox finds in a browser that has opened another one before.
async fn attack(server: &Server, origin: &str) -> Value {
    let (reports, mut reported) = reporter().await;
    let (hostile, neighbour) = (sandbox(server, origin).await, sandbox(server, origin).await);
    let (path, to_neighbour) = link(server, &neighbour);
    let (_, to_hostile) = link(server, &hostile);
    // The neighbour's page, once it was seen, goes on to the hostile one.
    service(server, &neighbour, move |path| match path {
        "/secret.txt" => "text/plain\nthe neighbour's secret".to_owned(),
        "/page.html" => "text/html\na neighbour".to_owned(),
        _ => format!("text/html\n<meta http-equiv=refresh content='0;url={to_hostile}'>"),
    });
    service(server, &hostile, move |asked| match asked {
        "/worker.js" => "text/javascript\n".to_owned(),
        _ => format!(
            "text/html\n<body><script>const NEIGHBOUR = {path:?};\n(async () => {{{ATTACK}\n\
             await fetch({reports:?}, {{ method: 'POST', mode: 'no-cors', body: JSON.stringify(found) }});\
             }})();</script>"
        ),
    });
    let profile = tempfile::tempdir().unwrap();
    let mut browser = open(&to_neighbour, &profile);
    let report = tokio::time::timeout(DEADLINE, reported.recv()).await;
    browser.kill().await.unwrap();
    report.expect("a report in time").unwrap()
}

#[tokio::test]
async fn a_page_of_one_sandbox_reaches_neither_another_nor_the_api() {
    for key in [None, Some("key")] {
        let mut server = start_with(|config| {
            config.server.api_key = key.map(|key| key.to_owned().into());
        })
        .await;
        server.key = key.map(str::to_owned);
        let found = attack(&server, "isolated").await;
        // Any page may ask an API that wants a key, and learns that it does.
        let api = if key.is_some() { "401" } else { "failed" };
        let nothing = json!({
            "neighbour": "failed", "list": api, "create": api, "worker": "failed",
            "narrow worker": "failed", "cookie": "failed", "storage": "failed", "frame": "failed",
        });
        assert_eq!(found, nothing, "with the key {key:?}");
    }
}

#[tokio::test]
async fn a_sandbox_that_shares_the_origin_still_gets_no_worker_and_no_api() {
    let server = start_with(|_| {}).await;
    let found = attack(&server, "shared").await;
    // What sharing the origin means, and so what the test above would see if pages were not isolated.
    assert_eq!(found["neighbour"], "the neighbour's secret");
    assert_eq!(found["frame"], "a neighbour");
    assert_eq!(found["storage"], "kept");
    assert_eq!(found["list"], "403");
    assert_eq!(found["create"], "403");
    assert_eq!(found["worker"], "failed");
    assert_eq!(found["narrow worker"], "failed");
}

/// What a page tries that has an origin of its own: first what applications need, then what is another's.
const OWN_ORIGIN: &str = r#"
    const found = {};
    const attempt = async (name, action) => {
        try { found[name] = String(await action()); } catch (error) { found[name] = "failed"; }
    };
    const connected = (url) => new Promise((resolve, reject) => {
        const socket = new WebSocket(url);
        socket.onmessage = (event) => resolve(event.data);
        socket.onerror = reject;
    });
    await attempt("own file", async () => (await fetch("/own.txt")).text());
    await attempt("own socket", () => connected(`ws://${location.host}/socket`));
    await attempt("own storage", async () => { localStorage.kept = "1"; return localStorage.kept; });
    await attempt("own cookie", async () => { document.cookie = "mine=1"; return document.cookie; });
    await attempt("own worker", async () => {
        await navigator.serviceWorker.register("/worker.js");
        return "registered";
    });
    await attempt("neighbour", async () =>
        (await fetch(NEIGHBOUR + "/own.txt", { credentials: "include" })).text());
    await attempt("neighbour without a look", async () => {
        await fetch(NEIGHBOUR + "/touched", { credentials: "include", mode: "no-cors" });
        return "sent";
    });
    await attempt("neighbour by header", async () => (await fetch("/own.txt", {
        headers: { "OpenSandbox-Ingress-To": new URL(NEIGHBOUR).hostname.split(".")[0] },
    })).status);
    await attempt("neighbour socket", () => connected(NEIGHBOUR.replace("http", "ws") + "/socket"));
    await attempt("neighbour frame", () => new Promise((resolve, reject) => {
        const frame = document.createElement("iframe");
        frame.onload = () => {
            try { resolve(frame.contentDocument.body.textContent); } catch (error) { reject(error); }
        };
        frame.src = NEIGHBOUR + "/own.txt";
        document.body.append(frame);
    }));
    await attempt("list", async () => (await fetch(API + "/v1/sandboxes")).status);
    await attempt("create", async () => (await fetch(API + "/v1/sandboxes", {
        method: "POST", headers: { "content-type": "application/json" }, body: "{}",
    })).status);
"#;

/// A service with a page, a file and a socket that says something. Notes what it is asked for.
fn application(
    server: &Server,
    id: &SandboxId,
    page: String,
    file: &'static str,
) -> mpsc::Receiver<String> {
    let mut connections = server.backend.play(id, PORT);
    // More than a page and its icon is already too much.
    let (note, noted) = mpsc::channel(16);
    tokio::spawn(async move {
        while let Some(stream) = connections.recv().await {
            let mut service = Raw::new(UnixStream::from_std(stream).unwrap());
            let request = service.message().await;
            let path = request.first.split(' ').nth(1).unwrap_or_default();
            let _ = note.try_send(path.to_owned());
            let (kind, body) = match path {
                "/socket" => {
                    let key = request.header("sec-websocket-key").unwrap();
                    let accept = derive_accept_key(key.as_bytes());
                    // A frame of text, whole and unmasked (RFC 6455 5.2).
                    let greeting = format!(
                        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                         Upgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
                    );
                    service.say(greeting).await;
                    service
                        .say([b"\x81\x06" as &[u8], b"reload"].concat())
                        .await;
                    tokio::spawn(async move { service.rest().await });
                    continue;
                }
                "/worker.js" => ("text/javascript", ""),
                "/own.txt" => ("text/plain", file),
                _ => ("text/html", page.as_str()),
            };
            let length = body.len();
            service
                .say(format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\
                     Set-Cookie: shared=1; Domain=localhost\r\nContent-Length: {length}\r\n\r\n{body}"
                ))
                .await;
        }
    });
    noted
}

#[tokio::test]
async fn at_the_gateway_pages_work_and_reach_neither_another_sandbox_nor_the_api() {
    let data = tempfile::tempdir().unwrap();
    let server = start_with(|config| {
        config.ingress.mode = IngressMode::Gateway;
        config.ingress.gateway.port = 0;
        config.embedded.data_dir = data.path().to_owned();
    })
    .await;
    let (reports, mut reported) = reporter().await;
    let (hostile, neighbour) = (server.sandbox().await, server.sandbox().await);
    let link = async |id: &SandboxId| {
        let path = format!("/v1/sandboxes/{id}/endpoints/{PORT}?link=true");
        let told = server.get(&path).await.expect(200).json();
        told["link"].as_str().unwrap().to_owned()
    };
    let (to_hostile, to_neighbour) = (link(&hostile).await, link(&neighbour).await);
    let origin = to_neighbour.split("/?").next().unwrap();
    let api = server.url("");
    // The neighbour's page, once it was seen, goes on to the hostile one.
    let next = format!("<meta http-equiv=refresh content='0;url={to_hostile}'>");
    let mut noted = application(&server, &neighbour, next, "the neighbour's secret");
    let page = format!(
        "<body><script>const NEIGHBOUR = {origin:?}, API = {api:?};\n(async () => {{{OWN_ORIGIN}\n\
         await fetch({reports:?}, {{ method: 'POST', mode: 'no-cors', body: JSON.stringify(found) }});\
         }})();</script>"
    );
    let _hostile = application(&server, &hostile, page, "a file of its own");
    let profile = tempfile::tempdir().unwrap();
    let mut browser = open(&to_neighbour, &profile);
    let report = tokio::time::timeout(DEADLINE, reported.recv()).await;
    browser.kill().await.unwrap();
    let mut found = report.expect("a report in time").unwrap();
    let cookies = found["own cookie"].take();
    assert!(cookies.as_str().unwrap().contains("mine=1"), "{cookies}");
    assert!(
        !cookies.as_str().unwrap().contains("opensandbox"),
        "{cookies}"
    );
    let expected = json!({
        "own file": "a file of its own", "own socket": "reload", "own storage": "1",
        "own cookie": null, "own worker": "registered",
        "neighbour": "failed", "neighbour without a look": "sent", "neighbour by header": "400",
        "neighbour socket": "failed", "neighbour frame": "failed", "list": "failed",
        "create": "failed",
    });
    assert_eq!(found, expected);
    let mut asked = Vec::new();
    while let Ok(path) = noted.try_recv() {
        asked.push(path);
    }
    let is_of_its_page = |path: &String| matches!(path.as_str(), "/" | "/favicon.ico");
    assert!(
        asked.iter().all(is_of_its_page),
        "nothing else came there: {asked:?}"
    );
}
