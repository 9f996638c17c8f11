//! The little of execd's HTTP that these tests speak.

use lifecycle::backend::{Backend, Target};
use runtime::Embedded;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::stage::{TOKEN, id, soon};

/// Whether execd answers.
pub(crate) async fn ping(backend: &Embedded, sandbox: &str) -> bool {
    let answer = ask(backend, sandbox, "GET /ping HTTP/1.1", "").await;
    answer.is_ok_and(|text| text.starts_with("HTTP/1.1 200"))
}

/// Runs a shell command and returns all it printed.
pub(crate) async fn run(backend: &Embedded, sandbox: &str, command: &str) -> String {
    let body = serde_json::json!({ "command": command }).to_string();
    let answer = ask(backend, sandbox, "POST /command HTTP/1.1", &body).await;
    let answer = answer.expect("execd answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let mut output = String::new();
    for line in answer.lines() {
        let line = line.trim_start_matches("data: ");
        let Ok(event) = serde_json::from_str::<serde_json::Value>(line) else {
            continue;
        };
        if matches!(event["type"].as_str(), Some("stdout" | "stderr")) {
            output.push_str(event["text"].as_str().unwrap_or_default());
        }
    }
    output
}

async fn ask(
    backend: &Embedded,
    sandbox: &str,
    request: &str,
    body: &str,
) -> Result<String, String> {
    let what = format!("sandbox {sandbox} to answer {request} {body}");
    soon(what, exchange(backend, sandbox, request, body)).await
}

async fn exchange(
    backend: &Embedded,
    sandbox: &str,
    request: &str,
    body: &str,
) -> Result<String, String> {
    let mut stream = backend
        .connect(&id(sandbox), Target::Control)
        .await
        .map_err(|error| error.to_string())?;
    let head = format!(
        "{request}\r\nHost: sandbox\r\nX-EXECD-ACCESS-TOKEN: {TOKEN}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream
        .write_all(head.as_bytes())
        .await
        .map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    stream
        .read_to_end(&mut answer)
        .await
        .map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
