//! Errors that a server answered, in the forms of our servers, of the published ones and of proxies between.

use std::time::Duration;

use api::sandbox::REQUEST_ID_HEADER;
use http::header::RETRY_AFTER;
use serde_json::Value;

use crate::error::{ApiError, Error};
use crate::transport::read;

/// As much of an error's body is read as any real one has.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// Reads an error.
pub(crate) async fn refusal(what: String, answer: reqwest::Response) -> Error {
    let status = answer.status();
    let text = |name: &str| Some(answer.headers().get(name)?.to_str().ok()?.to_owned());
    let request_id = text(REQUEST_ID_HEADER);
    let retry_after = text(RETRY_AFTER.as_str())
        .and_then(|seconds| seconds.parse().ok())
        .map(Duration::from_secs);
    // Half an error is still an error; the deadline of the request is long over.
    const ERROR_TIME: Duration = Duration::from_secs(5);
    let body = read(answer, ERROR_BYTES_MAX, Some(ERROR_TIME), &what)
        .await
        .unwrap_or_default();
    let value: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let field = |name: &str| Some(value.get(name)?.as_str()?.to_owned());
    let reason = status.canonical_reason().unwrap_or("an error");
    let plain = || {
        let text = String::from_utf8_lossy(&body);
        let line = text.lines().next().unwrap_or("").trim();
        // A page of HTML says less than the status.
        (!line.is_empty() && !line.starts_with('<') && value.is_null()).then(|| line.to_owned())
    };
    let details = value.get("detail").and_then(Value::as_array);
    let details: Vec<String> =
        details.map_or_else(Vec::new, |list| list.iter().map(detail).collect());
    // The published server lists what is wrong with a request and says nothing else.
    let listed = || (!details.is_empty()).then(|| details.join("; "));
    let message = field("message").or_else(|| field("detail"));
    let message = message
        .or_else(listed)
        .or_else(plain)
        .unwrap_or_else(|| format!("the server answered {reason}"));
    ApiError {
        what,
        status,
        code: field("code").unwrap_or_default(),
        message,
        request_id: request_id.or_else(|| field("request_id")),
        retry_after,
        details,
    }
    .into()
}

fn detail(problem: &Value) -> String {
    let place = problem.get("loc").and_then(Value::as_array);
    let place: Vec<String> = place.map_or_else(Vec::new, |steps| {
        let text = |step: &Value| {
            step.as_str()
                .map_or_else(|| step.to_string(), str::to_owned)
        };
        steps.iter().map(text).collect()
    });
    let message = problem.get("msg").and_then(Value::as_str).unwrap_or("");
    format!("{}: {message}", place.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn message(status: u16, body: &'static str) -> String {
        let answer = http::Response::builder().status(status).body(body).unwrap();
        let error = refusal("POST /sandboxes".to_owned(), answer.into()).await;
        error.api().unwrap().message.clone()
    }

    #[tokio::test]
    async fn every_form_of_an_error_has_a_message() {
        let ours = r#"{"code":"A","message":"no room","detail":[{"loc":["body"],"msg":"x"}]}"#;
        assert_eq!(message(400, ours).await, "no room");
        let list = r#"{"detail":[{"loc":["body","timeout"],"msg":"too short"},{"loc":["body",1],"msg":"no"}]}"#;
        assert_eq!(
            message(422, list).await,
            "body.timeout: too short; body.1: no"
        );
        let route = r#"{"detail":"Not Found"}"#;
        assert_eq!(message(404, route).await, "Not Found");
        assert_eq!(message(503, "Service busy\nx").await, "Service busy");
        let page = "<html>busy</html>";
        assert_eq!(message(502, page).await, "the server answered Bad Gateway");
    }
}
