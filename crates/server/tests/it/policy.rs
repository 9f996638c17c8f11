//! What a sandbox may reach, at the lifecycle API and at the sandbox's own egress API.

use std::collections::BTreeMap;

use api::id::SandboxId;
use axum::body::Body;
use serde_json::{Value, json};

use crate::support::{Answer, Server, request_for, start, start_with};

/// A sandbox that may reach these.
async fn allowed(server: &Server, targets: &[&str]) -> SandboxId {
    let rules = targets
        .iter()
        .map(|it| json!({"action": "allow", "target": it}));
    let mut request = request_for("local");
    request["networkPolicy"] = json!({"egress": rules.collect::<Vec<_>>()});
    let made = server.post("/v1/sandboxes", request).await.expect(202);
    made.json()["id"].as_str().unwrap().parse().unwrap()
}

/// The egress API of a sandbox, as a client finds it.
struct Egress<'a> {
    server: &'a Server,
    path: String,
    headers: BTreeMap<String, String>,
}

impl<'a> Egress<'a> {
    async fn of(server: &'a Server, id: &SandboxId) -> Self {
        let (path, headers) = server.endpoint(id, 18080).await;
        Self {
            server,
            path,
            headers,
        }
    }

    async fn ask(&self, method: &str, path: &str, body: impl Into<Body>) -> Answer {
        let request = self.server.request(method, &format!("{}{path}", self.path));
        let headers = self.headers.iter();
        let request = headers.fold(request, |it, (name, value)| it.header(name, value));
        self.server.call(request.body(body.into()).unwrap()).await
    }

    async fn policy(&self) -> Value {
        self.ask("GET", "/policy", Body::empty())
            .await
            .expect(200)
            .json()
    }
}

fn rules(policy: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rules = policy["egress"].as_array().unwrap().iter();
    rules
        .map(|rule| (text(&rule["action"]), text(&rule["target"])))
        .collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    let pair = |(a, t): &(&str, &str)| ((*a).to_owned(), (*t).to_owned());
    expected.iter().map(pair).collect()
}

#[tokio::test]
async fn a_policy_is_read_and_changed_as_the_published_sidecar_does() {
    let server = start().await;
    let id = allowed(&server, &["a.example", "b.example"]).await;
    let egress = Egress::of(&server, &id).await;
    let status = egress.policy().await;
    assert_eq!(status["status"], "ok");
    assert_eq!(status["mode"], "enforcing");
    assert_eq!(status["enforcementMode"], "dns+nft");
    assert_eq!(status["policy"]["defaultAction"], "deny");

    let patch = r#"[{"action":"deny","target":"B.Example"},{"action":"allow","target":"b.example"},
                    {"action":"allow","target":"10.0.0.0/8","ports":[443],"protocol":"tcp"}]"#;
    let patched = egress
        .ask("PATCH", "/policy", patch)
        .await
        .expect(200)
        .json();
    assert_eq!(patched["mode"], "enforcing");
    assert!(patched.get("policy").is_none() && patched.get("reason").is_none());
    let policy = egress.policy().await["policy"].clone();
    let expected = [
        ("deny", "b.example"),
        ("allow", "10.0.0.0/8"),
        ("allow", "a.example"),
    ];
    assert_eq!(rules(&policy), pairs(&expected));
    assert_eq!(policy["egress"][1]["ports"], json!(["443"]));

    let gone = r#"["A.example", "nowhere.example"]"#;
    let deleted = egress
        .ask("DELETE", "/policy", gone)
        .await
        .expect(200)
        .json();
    assert!(deleted.get("reason").is_none());
    assert_eq!(
        rules(&egress.policy().await["policy"]),
        pairs(&expected[..2])
    );
    let none = egress
        .ask("DELETE", "/policy", gone)
        .await
        .expect(200)
        .json();
    assert_eq!(none["reason"], "no matching targets found");

    for method in ["POST", "PUT"] {
        let open = egress
            .ask(method, "/policy", r#"{"defaultAction":"allow"}"#)
            .await;
        assert_eq!(open.expect(200).json()["mode"], "allow_all");
        let reset = egress
            .ask(method, "/policy", Body::empty())
            .await
            .expect(200)
            .json();
        assert_eq!(reset["mode"], "deny_all");
        assert_eq!(reset["reason"], "policy reset to default deny-all");
        assert!(reset.get("enforcementMode").is_none());
    }
    // A published client fails on null.
    assert_eq!(egress.policy().await["policy"]["egress"], json!([]));
    for nothing in ["{}", "null"] {
        let status = egress
            .ask("PUT", "/policy", nothing)
            .await
            .expect(200)
            .json();
        assert_eq!(status["mode"], "deny_all");
    }
}

#[tokio::test]
async fn the_lifecycle_api_has_the_same() {
    let server = start().await;
    let id = allowed(&server, &["a.example"]).await;
    let path = format!("/v1/sandboxes/{id}/networkpolicy");
    let status = server.get(&path).await.expect(200).json();
    assert_eq!(rules(&status["policy"]), pairs(&[("allow", "a.example")]));
    let patch = json!([{"action": "deny", "target": "c.example"}]);
    server.body("PATCH", &path, patch).await.expect(200);
    server
        .body("DELETE", &path, json!(["a.example"]))
        .await
        .expect(200);
    let egress = Egress::of(&server, &id).await;
    assert_eq!(
        rules(&egress.policy().await["policy"]),
        pairs(&[("deny", "c.example")])
    );
    let open = server
        .body("PUT", &path, json!({"defaultAction": "allow"}))
        .await;
    assert_eq!(open.expect(200).json()["mode"], "allow_all");
    server
        .body(
            "PATCH",
            &path,
            json!([{"action": "allow", "target": "https://x"}]),
        )
        .await
        .refused(400, "SANDBOX::INVALID_PARAMETER");
    server
        .body("PUT", &path, json!({"egres": []}))
        .await
        .refused(422, "VALIDATION_FAILED");
    let rule = |i: usize| json!({"action": "allow", "target": format!("h{i}.example")});
    let many: Vec<Value> = (0..4097).map(rule).collect();
    server
        .body("PUT", &path, json!({"egress": many}))
        .await
        .refused(413, "BODY_TOO_LARGE");
    let mut request = request_for("local");
    request["networkPolicy"] = json!({"egress": many});
    server
        .post("/v1/sandboxes", request)
        .await
        .refused(413, "BODY_TOO_LARGE");
}

#[tokio::test]
async fn what_is_no_policy_changes_nothing() {
    let server = start().await;
    let id = allowed(&server, &["a.example"]).await;
    let egress = Egress::of(&server, &id).await;
    let before = egress.policy().await;
    let rule = |target: &str| json!([{"action": "allow", "target": target}]).to_string();
    let mut bad: Vec<(&str, String)> = [
        "",
        "*",
        "a..example",
        "example.com.",
        "https://example.com",
        "example.com:443",
        "münchen.example",
        "10.0.0.0/33",
        "fe80::1%eth0",
        "1.2.3",
        "a example",
    ]
    .map(|target| ("PATCH", rule(target)))
    .into();
    for body in [
        "",
        "[]",
        "{}",
        "null",
        "[",
        "[1]",
        r#"[{"target":1}]"#,
        r#"[{"action":"alow","target":"x.example"}]"#,
        r#"[{"action":"allow","target":"x.example","ports":[0]}]"#,
        r#"[{"action":"allow","target":"x.example","protocol":"udp"}]"#,
        r#"[{"action":"allow","target":"x.example","prots":[1]}]"#,
    ] {
        bad.push(("PATCH", body.to_owned()));
    }
    for body in ["", "[]", "{}", r#"["https://x"]"#, "[null]"] {
        bad.push(("DELETE", body.to_owned()));
    }
    for body in [
        "[]",
        "1",
        r#"{"defaultAction":"permit"}"#,
        r#"{"egress":[{}]}"#,
        r#"{"rules":[]}"#,
    ] {
        bad.push(("PUT", body.to_owned()));
        bad.push(("POST", body.to_owned()));
    }
    for (method, body) in bad {
        let answer = egress.ask(method, "/policy", body.clone()).await;
        assert_eq!(answer.status, 400, "{method} {body}: {answer:?}");
        assert!(
            answer.header("content-type").starts_with("text/plain"),
            "{answer:?}"
        );
        assert!(
            answer.text.ends_with('\n') && answer.text.len() > 10,
            "{answer:?}"
        );
    }
    let many: Vec<Value> = (0..4096)
        .map(|i| json!({"action": "allow", "target": format!("h{i}.example")}))
        .collect();
    let too_many = json!(many).to_string();
    egress.ask("PATCH", "/policy", too_many).await.expect(413);
    egress
        .ask("PATCH", "/policy", "x".repeat(1 << 21))
        .await
        .expect(413);
    let wrong = egress
        .ask("PROPFIND", "/policy", Body::empty())
        .await
        .expect(405);
    assert!(wrong.header("allow").contains("PATCH"), "{wrong:?}");
    egress
        .ask("GET", "/policies", Body::empty())
        .await
        .expect(404);
    egress
        .ask("GET", "/credential-vault", Body::empty())
        .await
        .expect(501);
    assert_eq!(
        egress
            .ask("GET", "/healthz", Body::empty())
            .await
            .expect(200)
            .text,
        "ok"
    );
    assert_eq!(egress.policy().await, before);
}

#[tokio::test]
async fn only_the_token_of_the_sandbox_or_a_key_lets_in() {
    let server =
        start_with(|config| config.server.api_key = Some("the-key".to_owned().into())).await;
    let with_key = |method: &str, path: &str| {
        server
            .request(method, path)
            .header("open-sandbox-api-key", "the-key")
    };
    let make = async || {
        let request = with_key("POST", "/v1/sandboxes").header("content-type", "application/json");
        let body = Body::from(request_for("local").to_string());
        let made = server.call(request.body(body).unwrap()).await.expect(202);
        made.json()["id"].as_str().unwrap().to_owned()
    };
    let (id, other) = (make().await, make().await);
    let token_of = async |id: &str, port: u16, name: &str| {
        let request = with_key("GET", &format!("/v1/sandboxes/{id}/endpoints/{port}"));
        let told = server
            .call(request.body(Body::empty()).unwrap())
            .await
            .expect(200);
        let headers = told.json()["headers"].clone();
        assert!(
            port != 18080 || headers.as_object().unwrap().len() == 1,
            "{headers}"
        );
        headers[name].as_str().unwrap().to_owned()
    };
    const OWN: &str = "OPENSANDBOX-EGRESS-AUTH";
    let token = token_of(&id, 18080, OWN).await;
    let stranger = token_of(&other, 18080, OWN).await;
    let daemon = token_of(&id, 44772, "X-EXECD-ACCESS-TOKEN").await;
    let path = format!("/v1/sandboxes/{id}/proxy/18080/policy");
    let get = async |name: &str, value: &str| {
        let request = server.request("GET", &path).header(name, value);
        server.call(request.body(Body::empty()).unwrap()).await
    };
    get(OWN, &token).await.expect(200);
    get("open-sandbox-api-key", "the-key").await.expect(200);
    for (name, value) in [
        ("x-nothing", "x"),
        (OWN, ""),
        (OWN, stranger.as_str()),
        (OWN, daemon.as_str()),
        ("X-EXECD-ACCESS-TOKEN", daemon.as_str()),
        ("X-EXECD-ACCESS-TOKEN", token.as_str()),
        ("open-sandbox-api-key", "a-wrong-key"),
    ] {
        let refused = get(name, value).await;
        assert_eq!(refused.status, 401, "{name}: {refused:?}");
        assert!(
            refused.header("content-type").starts_with("text/plain"),
            "{refused:?}"
        );
    }
    // The token is of no use elsewhere, and the port is reached in no other spelling.
    for path in [
        format!("/v1/sandboxes/{id}"),
        format!("/v1/sandboxes/{id}/proxy/44772/ping"),
        format!("/v1/sandboxes/{id}/proxy/8000/"),
    ] {
        let request = server.request("GET", &path).header(OWN, &token);
        server
            .call(request.body(Body::empty()).unwrap())
            .await
            .expect(401);
    }
    let odd = server
        .request("GET", &format!("/v1/sandboxes/{id}/proxy/018080/policy"))
        .header("X-EXECD-ACCESS-TOKEN", &daemon);
    server
        .call(odd.body(Body::empty()).unwrap())
        .await
        .expect(404);
}

#[tokio::test]
async fn a_change_is_in_the_audit_trail_with_who_asked_for_it() {
    let server = start().await;
    let id = allowed(&server, &["a.example"]).await;
    let egress = Egress::of(&server, &id).await;
    egress
        .ask("DELETE", "/policy", r#"["a.example"]"#)
        .await
        .expect(200);
    let path = format!("/v1/sandboxes/{id}/networkpolicy");
    server.body("PUT", &path, json!({})).await.expect(200);
    let page = server.get("/v1/audit-events").await.expect(200).json();
    let entries = page["items"].as_array().unwrap().iter();
    let changes: Vec<_> = entries
        .filter(|entry| entry["action"] == "sandbox.policy")
        .map(|entry| {
            (
                entry["actor"].clone(),
                entry["resource"].clone(),
                entry["outcome"].clone(),
            )
        })
        .collect();
    let entry = |actor: &str| (json!(actor), json!(id.as_str()), json!("success"));
    assert_eq!(changes, [entry("anonymous"), entry("egress-token")]);
}

#[tokio::test]
async fn a_policy_can_change_while_its_sandbox_is_paused_and_not_when_it_has_ended() {
    let server = start().await;
    let id = allowed(&server, &["a.example"]).await;
    let egress = Egress::of(&server, &id).await;
    server
        .post(&format!("/v1/sandboxes/{id}/pause"), json!({}))
        .await
        .expect(202);
    egress
        .ask("DELETE", "/policy", r#"["a.example"]"#)
        .await
        .expect(200);
    assert_eq!(egress.policy().await["mode"], "deny_all");
    server
        .delete(&format!("/v1/sandboxes/{id}"))
        .await
        .expect(204);
    let gone = egress.ask("GET", "/policy", Body::empty()).await;
    assert!(matches!(gone.status.as_u16(), 401 | 404), "{gone:?}");
}

#[tokio::test]
async fn a_backend_without_rules_shows_the_policy_and_does_not_change_it() {
    let server = start().await;
    let id = server.sandbox().await;
    let mut capabilities = lifecycle::backend::Backend::capabilities(&server.backend);
    capabilities.network_rules = false;
    server.backend.set_capabilities(capabilities);
    let egress = Egress::of(&server, &id).await;
    assert_eq!(egress.policy().await["mode"], "allow_all");
    let patch = r#"[{"action":"deny","target":"a.example"}]"#;
    let refused = egress.ask("PATCH", "/policy", patch).await.expect(501);
    assert!(
        refused.text.contains("does not enforce rules"),
        "{refused:?}"
    );
}
