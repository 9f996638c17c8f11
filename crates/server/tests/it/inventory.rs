//! Images and volumes: what operators look after, by API.

use axum::body::Body;
use http_body_util::BodyExt as _;
use lifecycle::backend;
use lifecycle::fake::{Call, Fault, Gate};
use serde_json::{Value, json};

use crate::support::{Answer, DEADLINE, Server, read, request_for, start, start_with};

/// The events of a pull, by their data.
fn events(answer: &Answer) -> Vec<Value> {
    answer
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

async fn pull(server: &Server, image: &str) -> Answer {
    let body = json!({"image": {"uri": image}});
    server.post("/v1/images/pull", body).await
}

/// The newest entries of the trail: what was done to what, and how it ended.
async fn trail(server: &Server) -> Vec<(String, Option<String>, String)> {
    let page = server.get("/v1/audit-events").await.expect(200).json();
    let entry = |item: &Value| {
        let text = |name: &str| item[name].as_str().map(str::to_owned);
        let outcome = text("code").or(text("outcome")).unwrap();
        (text("action").unwrap(), text("resource"), outcome)
    };
    page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(entry)
        .collect()
}

fn line(action: &str, target: &str, outcome: &str) -> (String, Option<String>, String) {
    (
        action.to_owned(),
        Some(target.to_owned()),
        outcome.to_owned(),
    )
}

#[tokio::test]
async fn a_pull_tells_how_it_goes_and_is_recorded_when_it_ends() {
    let server = start().await;
    let answer = pull(&server, "remote").await.expect(200);
    assert_eq!(answer.header("content-type"), "text/event-stream");
    let events = events(&answer);
    assert_eq!(
        events,
        [
            json!({"type": "resolved", "layers": 1, "totalBytes": 100}),
            json!({"type": "downloaded", "bytes": 100}),
            json!({"type": "done", "id": "remote"}),
        ]
    );
    let images = server.get("/images").await.expect(200).json();
    let references: Vec<_> = images["items"].as_array().unwrap().iter().collect();
    assert!(
        references
            .iter()
            .any(|image| image["references"][0] == "remote"),
        "{images}"
    );
    assert_eq!(
        trail(&server).await[0],
        line("image.pull", "remote", "success")
    );
}

#[tokio::test]
async fn a_pull_that_fails_says_so_in_its_last_event_or_its_answer() {
    let server = start().await;
    // Known before anything has come: an answer like any other.
    pull(&server, "nowhere")
        .await
        .refused(404, "IMAGE::NOT_FOUND");
    let lost = backend::Error::ImageNotFound {
        reference: "remote".to_owned(),
        message: "it was removed while it came".to_owned(),
    };
    server.backend.fail_next(Call::Pull, Fault::Fail(lost));
    let answer = pull(&server, "remote").await.expect(200);
    let last = events(&answer).pop().unwrap();
    assert_eq!(last["type"], "error", "{answer:?}");
    assert_eq!(last["error"]["code"], "IMAGE::NOT_FOUND", "{answer:?}");
    assert_eq!(
        trail(&server).await[0],
        line("image.pull", "remote", "IMAGE::NOT_FOUND")
    );
    pull(&server, "NOT A REFERENCE")
        .await
        .refused(400, "SANDBOX::INVALID_PARAMETER");
    server.post("/v1/images/pull", json!({})).await.expect(422);
}

#[tokio::test]
async fn an_image_gets_another_name_and_the_answer_says_which_image_it_is() {
    let server = start().await;
    let tag = |query: &str| {
        let path = format!("/v1/images/tag?{query}");
        let server = &server;
        async move { server.post(&path, json!({})).await }
    };
    let image = tag("reference=local&name=mine").await.expect(200).json();
    assert_eq!(image["references"][0], "mine", "{image}");
    assert!(image["id"].is_string(), "{image}");
    let made = server.post("/v1/sandboxes", request_for("mine")).await;
    made.expect(202);
    tag("reference=nowhere&name=mine")
        .await
        .refused(404, "IMAGE::NOT_FOUND");
    tag("reference=local").await.expect(422);
    let entries = trail(&server).await;
    assert!(
        entries.contains(&line("image.tag", "mine", "success")),
        "{entries:?}"
    );
}

#[tokio::test]
async fn a_pull_ends_with_its_reader() {
    let server = start().await;
    let (gate, arrived, _key) = Gate::new();
    server.backend.fail_next(Call::Pull, Fault::Wait(gate));
    let request = server
        .request("POST", "/v1/images/pull")
        .body(Body::from(json!({"image": {"uri": "remote"}}).to_string()));
    let mut answer = server.send(request.unwrap()).await;
    let first = tokio::time::timeout(DEADLINE, answer.frame())
        .await
        .unwrap();
    assert!(first.is_some());
    tokio::time::timeout(DEADLINE, arrived)
        .await
        .unwrap()
        .unwrap();
    drop(answer);
    // The trail hears of it once the pull has been given up.
    let given_up = async {
        loop {
            if trail(&server)
                .await
                .contains(&line("image.pull", "remote", "CANCELLED"))
            {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, given_up)
        .await
        .expect("the pull was given up");
    let images = server.get("/images").await.expect(200).text;
    assert!(!images.contains("remote"), "{images}");
}

#[tokio::test]
async fn images_are_imported_exported_and_removed() {
    let server = start().await;
    let import = |path: &str, body: &'static str| {
        let request = server.request("POST", path).body(Body::from(body));
        let sent = server.send(request.unwrap());
        async move { read(sent.await).await }
    };
    let ids = import("/v1/images/import", "one two")
        .await
        .expect(200)
        .json();
    assert_eq!(ids, json!({"ids": ["one", "two"]}));
    let ids = import("/v1/images/import?name=my/tool:1", "bytes")
        .await
        .expect(200)
        .json();
    assert_eq!(ids, json!({"ids": ["my/tool:1"]}));
    assert_eq!(
        trail(&server).await[0],
        line("image.import", "my/tool:1", "success")
    );
    import("/v1/images/import", "")
        .await
        .refused(400, "IMAGE::INVALID");

    let archive = server
        .get("/v1/images/export?reference=my%2Ftool:1")
        .await
        .expect(200);
    assert_eq!(
        (archive.text.as_str(), archive.header("content-type")),
        ("my/tool:1", "application/x-tar")
    );
    server
        .get("/v1/images/export?reference=no")
        .await
        .refused(404, "IMAGE::NOT_FOUND");
    server.get("/v1/images/export").await.expect(422);

    // With the slash as it is, and encoded.
    server.delete("/v1/images/my/tool:1").await.expect(204);
    assert_eq!(
        trail(&server).await[0],
        line("image.delete", "my/tool:1", "success")
    );
    server
        .delete("/v1/images/my%2Ftool:1")
        .await
        .refused(404, "IMAGE::NOT_FOUND");
    let gone = server
        .post("/v1/images/prune", json!(null))
        .await
        .expect(200)
        .json();
    assert_eq!(gone, json!({"images": 0, "layers": 0, "bytes": 0}));
}

#[tokio::test]
async fn a_volume_in_use_is_removed_only_by_force() {
    let server = start().await;
    let volume = server
        .post("/v1/volumes", json!({"name": "data"}))
        .await
        .expect(201)
        .json();
    assert_eq!(volume["name"], "data");
    let mut request = request_for("local");
    request["volumes"] = json!([{"name": "v", "mountPath": "/data", "pvc": {"claimName": "data"}}]);
    let id = server
        .post("/v1/sandboxes", request)
        .await
        .expect(202)
        .json()["id"]
        .clone();
    let listed = server.get("/volumes").await.expect(200).json();
    assert_eq!(listed["items"][0]["users"], json!([id]));
    server
        .delete("/v1/volumes/data")
        .await
        .refused(409, "VOLUME::IN_USE");
    server
        .delete("/v1/volumes/data?force=maybe")
        .await
        .expect(422);
    server
        .delete("/v1/volumes/data?force=true")
        .await
        .expect(204);
    server
        .delete("/v1/volumes/data")
        .await
        .refused(404, "VOLUME::NOT_FOUND");
    assert_eq!(
        trail(&server).await[1],
        line("volume.delete", "data", "success")
    );
}

#[tokio::test]
async fn a_backend_that_keeps_its_inventory_to_itself_says_so() {
    let server = start().await;
    server.backend.hide_inventory();
    for path in ["/v1/images", "/v1/volumes"] {
        server
            .get(path)
            .await
            .refused(501, "SANDBOX::API_NOT_SUPPORTED");
    }
    pull(&server, "remote")
        .await
        .refused(501, "SANDBOX::API_NOT_SUPPORTED");
}

#[tokio::test]
async fn the_token_of_a_sandbox_opens_neither_images_nor_volumes() {
    let key = "a-key-of-thirty-two-characters-x";
    let server = start_with(|config| config.server.api_key = Some(key.to_owned().into())).await;
    let with = |method: &str, path: &str, header: &str, value: &str, body: Body| {
        let request = server
            .request(method, path)
            .header(header, value)
            .body(body);
        let sent = server.send(request.unwrap());
        async move { read(sent.await).await }
    };
    let own = "open-sandbox-api-key";
    let body = Body::from(request_for("local").to_string());
    let made = with("POST", "/v1/sandboxes", own, key, body)
        .await
        .expect(202)
        .json();
    let path = format!(
        "/v1/sandboxes/{}/endpoints/44772",
        made["id"].as_str().unwrap()
    );
    let endpoint = with("GET", &path, own, key, Body::empty())
        .await
        .expect(200)
        .json();
    let token = endpoint["headers"]["X-EXECD-ACCESS-TOKEN"]
        .as_str()
        .unwrap()
        .to_owned();
    for (method, path) in [
        ("GET", "/v1/images"),
        ("POST", "/v1/images/pull"),
        ("POST", "/v1/images/import"),
        ("GET", "/v1/images/export?reference=local"),
        ("POST", "/v1/images/prune"),
        ("DELETE", "/v1/images/local"),
        ("GET", "/v1/volumes"),
        ("POST", "/v1/volumes"),
        ("DELETE", "/v1/volumes/data"),
    ] {
        let answer = with(method, path, "x-execd-access-token", &token, Body::empty()).await;
        answer.refused(401, "MISSING_API_KEY");
        // The same as an API key is refused too, but only so often.
    }
    with("GET", "/v1/images", own, &token, Body::empty())
        .await
        .refused(401, "INVALID_API_KEY");
    with("GET", "/v1/images", own, key, Body::empty())
        .await
        .expect(200);
}
