//! Who may do what: every operation of the contract's table, every way into a sandbox and every stream, as
//! its owner, as another tenant, as each role, with each scope, with keys that are no good.
//!
//! The rows are made from the table of operations: one without a row fails here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::id::SandboxId;
use api::spec::{Contract, Mount, Operation};
use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use lifecycle::store::{Batch, Store as _, Write};
use lifecycle::{ApiKey, Right, Role, Scope, fake};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use server::config::{IngressMode, RouteMode};

use crate::support::{DEADLINE, Server, request_for, start_on};

/// What an operation needs, and of what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// Nothing, not even a key.
    Nothing,
    /// Any key that is good.
    Key,
    /// A key that is no token.
    LongKey,
    /// A right, and nothing that somebody may not see.
    Right(Right),
    /// A right, and the sandbox that is named.
    Sandbox(Right),
    /// A right, and the snapshot that is named.
    Snapshot(Right),
    /// A right, and the whole tenant: named volumes.
    Whole(Right),
    /// The same, of a volume that is named.
    Volume(Right),
    /// A right in the built-in tenant: what is the machine's.
    Machine(Right),
    /// A right, and the key that is named.
    ApiKey,
    /// To look after tenants.
    Tenants,
}

/// What every operation needs.
fn needs(id: &str) -> Needs {
    use Needs::{
        ApiKey, Key, LongKey, Machine, Nothing, Sandbox, Snapshot, Tenants, Volume, Whole,
    };
    use Right::{Audit, Change, Connect, Create, Images, Keys, Metrics, Read};
    match id {
        "createSandbox" => Needs::Right(Create),
        "listSandboxes" | "listSnapshots" | "watchEvents" => Needs::Right(Read),
        "getSandbox"
        | "followSandboxLogs"
        | "getSandboxLogs"
        | "getSandboxEvents"
        | "getSandboxInspect"
        | "getSandboxDiagnosticsSummary"
        | "getNetworkPolicy" => Sandbox(Read),
        "deleteSandbox"
        | "patchSandboxMetadata"
        | "pauseSandbox"
        | "resumeSandbox"
        | "renewSandboxExpiration"
        | "createSnapshot"
        | "replaceNetworkPolicy"
        | "patchNetworkPolicy"
        | "deleteNetworkPolicy" => Sandbox(Change),
        "getSandboxEndpoint" => Sandbox(Connect),
        "getSnapshot" => Snapshot(Read),
        "deleteSnapshot" => Snapshot(Change),
        // There are none yet, for nobody.
        "listPools" | "createPool" | "getPool" | "updatePool" | "deletePool" | "listTemplates"
        | "createTemplate" | "getTemplate" | "deleteTemplate" => Key,
        "listImages" => Machine(Read),
        "pullImage" | "importImages" | "exportImage" | "pruneImages" | "tagImage"
        | "deleteImage" => Machine(Images),
        "listVolumes" => Whole(Read),
        "createVolume" => Whole(Change),
        "deleteVolume" => Volume(Change),
        "listAuditEvents" => Needs::Right(Audit),
        "listKeys" | "createKey" => Needs::Right(Keys),
        "deleteKey" | "rotateKey" => ApiKey,
        "createToken" => LongKey,
        "listTenants" | "createTenant" | "getTenant" | "deleteTenant" => Tenants,
        "getServerMetrics" => Machine(Metrics),
        "reportMetricsEvent" => Key,
        "getHealth" | "getVersion" | "getOpenApi" => Nothing,
        _ if id.starts_with("proxy") => Sandbox(Connect),
        _ => panic!("operation {id} has no row in this matrix: say what it needs"),
    }
}

/// Somebody who asks.
struct Who {
    name: &'static str,
    /// What they send as the API key; `None` for one who is not let in by any.
    key: Option<String>,
    is_good: bool,
    is_of_other_tenant: bool,
    is_token: bool,
    role: Role,
    scope: Scope,
    /// Whether the sandbox of each row exists for them.
    sees: bool,
    /// Whether they send the token of the row's sandbox.
    has_sandbox_token: bool,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Allowed,
    Unauthorized,
    Forbidden,
    NotFound,
    /// Both would be right: what is named does not exist, and the right is missing.
    Refused,
}

impl Who {
    fn has(&self, right: Right) -> bool {
        let is_part = !self.scope.labels.is_empty() || self.scope.sandbox.is_some();
        let is_of_tenant = [Right::Images, Right::Audit, Right::Metrics, Right::Keys];
        self.role.has(right)
            && self
                .scope
                .actions
                .as_ref()
                .is_none_or(|it| it.contains(&right))
            && !(is_part && is_of_tenant.contains(&right))
            && !(self.scope.sandbox.is_some() && right == Right::Create)
    }

    fn sees_part(&self) -> bool {
        !self.scope.labels.is_empty() || self.scope.sandbox.is_some()
    }

    fn fate(&self, needs: Needs, operation: &Operation) -> Fate {
        let is_proxied = operation.mount == Mount::Proxied;
        if needs == Needs::Nothing || (self.has_sandbox_token && is_proxied) {
            return Fate::Allowed;
        }
        if !self.is_good {
            return Fate::Unauthorized;
        }
        let of = |exists: bool, has: bool| match (exists, has) {
            (true, true) => Fate::Allowed,
            (true, false) => Fate::Forbidden,
            (false, true) => Fate::NotFound,
            (false, false) => Fate::Refused,
        };
        match needs {
            Needs::Nothing | Needs::Key => Fate::Allowed,
            Needs::LongKey => of(true, !self.is_token),
            Needs::Right(Right::Create) => of(
                true,
                self.has(Right::Create) && self.scope.images.is_empty(),
            ),
            Needs::Right(right) => of(true, self.has(right)),
            Needs::Sandbox(right) => of(self.sees, self.has(right)),
            Needs::Snapshot(right) => of(self.sees, self.has(right)),
            Needs::Whole(right) => of(true, self.has(right) && !self.sees_part()),
            Needs::Volume(right) => of(
                !self.is_of_other_tenant,
                self.has(right) && !self.sees_part(),
            ),
            Needs::Machine(right) => of(true, self.has(right) && !self.is_of_other_tenant),
            Needs::ApiKey => of(!self.is_of_other_tenant, self.has(Right::Keys)),
            Needs::Tenants => of(true, self.has(Right::Keys) && !self.is_of_other_tenant),
        }
    }
}

const ROOT: &str = "the-key-of-the-configuration";
const EXPIRED: &str = "a-key-that-is-over";

/// A server with a gateway, and everybody who may ask.
struct Stage {
    server: Server,
    made: std::cell::Cell<u32>,
}

/// What a row is about, made for it alone.
struct Things {
    sandbox: SandboxId,
    snapshot: String,
    volume: String,
    key: String,
    tenant: String,
    secret: String,
}

impl Stage {
    async fn start(mode: RouteMode) -> Stage {
        let store = fake::Store::new();
        let expired = ApiKey {
            id: "expired".into(),
            name: "expired".into(),
            tenant: lifecycle::Tenant::default(),
            role: Role::Admin,
            scope: Arc::default(),
            hash: lifecycle::hash(EXPIRED.as_bytes()),
            previous: None,
            created_at: Timestamp::UNIX_EPOCH,
            expires_at: Some(Timestamp::UNIX_EPOCH),
            parent: None,
            last_used_at: None,
        };
        let writes = vec![Write::PutApiKey(Arc::new(expired))];
        store.apply(&[Batch { writes }]).await.unwrap();
        let server = start_on(fake::Backend::new(), store, |config| {
            config.server.api_key = Some(ROOT.to_owned().into());
            config.ingress.mode = IngressMode::Gateway;
            config.ingress.gateway.port = 0;
            config.ingress.gateway.route.mode = mode;
            config.ingress.gateway.require_token = true;
            if mode == RouteMode::Wildcard {
                config.ingress.gateway.address = Some("*.sandboxes.example".to_owned());
            }
        })
        .await;
        let stage = Stage {
            server,
            made: std::cell::Cell::new(0),
        };
        stage
            .post(ROOT, "/v1/tenants", json!({"name": "acme"}))
            .await;
        stage
    }

    fn number(&self) -> u32 {
        self.made.set(self.made.get() + 1);
        self.made.get()
    }

    async fn call(
        &self,
        key: &str,
        method: &str,
        path: &str,
        body: Value,
    ) -> crate::support::Answer {
        let request = self
            .server
            .request(method, path)
            .header("open-sandbox-api-key", key);
        let body = Body::from(body.to_string());
        self.server.call(request.body(body).unwrap()).await
    }

    async fn post(&self, key: &str, path: &str, body: Value) -> Value {
        let answer = self.call(key, "POST", path, body).await;
        assert!(answer.status.is_success(), "{path}: {answer:?}");
        answer.json()
    }

    async fn key(&self, body: Value) -> String {
        let mut body = body;
        body["name"] = json!(format!("key-{}", self.number()));
        let made = self.post(ROOT, "/v1/keys", body).await;
        made["value"].as_str().unwrap().to_owned()
    }

    async fn sandbox(&self, team: &str) -> SandboxId {
        let mut body = request_for("local");
        body["metadata"] = json!({"team": team});
        let made = self.post(ROOT, "/v1/sandboxes", body).await;
        let id: SandboxId = made["id"].as_str().unwrap().parse().unwrap();
        self.server.backend.listen(&id, 8000);
        id
    }

    /// What a row needs; it may change a sandbox only where it is about one.
    async fn things(&self, needs: Needs, shared: Option<&SandboxId>) -> Things {
        let n = self.number();
        let is_its = matches!(needs, Needs::Sandbox(_) | Needs::Snapshot(_));
        let sandbox = match shared.filter(|_| !is_its) {
            Some(shared) => shared.clone(),
            None => self.sandbox("blue").await,
        };
        let found = self.server.running.service.get(&sandbox).unwrap();
        let mut things = Things {
            sandbox: sandbox.clone(),
            snapshot: "none".to_owned(),
            volume: format!("volume-{n}"),
            key: "none".to_owned(),
            tenant: format!("tenant-{n}"),
            secret: found.access_token.expose_secret().to_owned(),
        };
        match needs {
            Needs::Snapshot(_) => {
                let path = format!("/v1/sandboxes/{sandbox}/snapshots");
                let made = self.post(ROOT, &path, json!({})).await;
                things.snapshot = made["id"].as_str().unwrap().to_owned();
                let service = &self.server.running.service;
                let mut events = service.subscribe(Some(0)).await.unwrap();
                let id = things.snapshot.parse().unwrap();
                while service.get_snapshot(&id).unwrap().state == lifecycle::SnapshotState::Creating
                {
                    let next = tokio::time::timeout(DEADLINE, events.next()).await;
                    next.expect("the snapshot is made").unwrap().unwrap();
                }
            }
            Needs::Volume(_) => {
                self.post(ROOT, "/v1/volumes", json!({"name": things.volume}))
                    .await;
            }
            Needs::ApiKey => {
                let body = json!({"name": format!("row-{n}"), "role": "viewer"});
                let made = self.post(ROOT, "/v1/keys", body).await;
                things.key = made["key"]["id"].as_str().unwrap().to_owned();
            }
            Needs::Machine(_) => {
                let path = "/v1/images/import?name=of-the-row";
                let made = self.call(ROOT, "POST", path, json!("archive")).await;
                made.expect(200);
            }
            Needs::Tenants => {
                self.post(ROOT, "/v1/tenants", json!({"name": things.tenant}))
                    .await;
            }
            _ => {}
        }
        things
    }

    /// Everybody; the tokens are for one sandbox, the row's or another.
    async fn everybody(&self, things: &Things) -> Vec<Who> {
        let good = |name, key: String, role| Who {
            name,
            key: Some(key),
            is_good: true,
            is_of_other_tenant: false,
            is_token: false,
            role,
            scope: Scope::default(),
            sees: true,
            has_sandbox_token: false,
        };
        let bad = |name, key: Option<&str>| Who {
            is_good: false,
            key: key.map(str::to_owned),
            ..good(name, String::new(), Role::Viewer)
        };
        let labels = |team: &str| Scope {
            labels: BTreeMap::from([("team".to_owned(), team.to_owned())]),
            ..Scope::default()
        };
        let actions = |right: Right| Scope {
            actions: Some(BTreeSet::from([right])),
            ..Scope::default()
        };
        let mut all = vec![
            bad("nobody", None),
            bad("wrong key", Some("no-key-at-all")),
            bad("expired key", Some(EXPIRED)),
            good("configured admin", ROOT.to_owned(), Role::Admin),
        ];
        let revoked = self.key(json!({"role": "admin"})).await;
        let listed = self.call(ROOT, "GET", "/v1/keys", json!(null)).await.json();
        let newest = format!("key-{}", self.made.get());
        let of = |it: &&Value| it["name"] == newest.as_str();
        let id = listed["items"].as_array().unwrap().iter().find(of).unwrap()["id"].clone();
        let path = format!("/v1/keys/{}", id.as_str().unwrap());
        self.call(ROOT, "DELETE", &path, json!(null))
            .await
            .expect(204);
        all.push(bad("revoked key", Some(&revoked)));
        all.push(Who {
            has_sandbox_token: true,
            ..bad("token of the sandbox", None)
        });
        let roles = [
            ("admin", Role::Admin),
            ("operator", Role::Operator),
            ("user", Role::User),
            ("viewer", Role::Viewer),
        ];
        for (name, role) in roles {
            all.push(good(name, self.key(json!({"role": name})).await, role));
        }
        for (name, role) in roles {
            let key = self.key(json!({"role": name, "tenant": "acme"})).await;
            let name = match role {
                Role::Admin => "admin of another tenant",
                Role::Operator => "operator of another tenant",
                Role::User => "user of another tenant",
                _ => "viewer of another tenant",
            };
            all.push(Who {
                is_of_other_tenant: true,
                sees: false,
                ..good(name, key, role)
            });
        }
        for (name, right) in [
            ("admin who only reads", Right::Read),
            ("admin who only connects", Right::Connect),
            ("admin who only creates", Right::Create),
            ("admin who only changes", Right::Change),
            ("admin who only audits", Right::Audit),
        ] {
            let key = self
                .key(json!({"role": "admin", "actions": [right.as_str()]}))
                .await;
            all.push(Who {
                scope: actions(right),
                ..good(name, key, Role::Admin)
            });
        }
        let own = self
            .key(json!({"role": "admin", "labels": {"team": "blue"}}))
            .await;
        all.push(Who {
            scope: labels("blue"),
            ..good("admin of the sandbox's labels", own, Role::Admin)
        });
        let other = self
            .key(json!({"role": "admin", "labels": {"team": "red"}}))
            .await;
        all.push(Who {
            scope: labels("red"),
            sees: false,
            ..good("admin of other labels", other, Role::Admin)
        });
        let images = self
            .key(json!({"role": "user", "images": ["other*"]}))
            .await;
        all.push(Who {
            scope: Scope {
                images: vec!["other*".to_owned()],
                ..Scope::default()
            },
            ..good("user of other images", images, Role::User)
        });
        let elsewhere = self.sandbox("blue").await;
        for (name, id, sees) in [
            ("token for the sandbox", &things.sandbox, true),
            ("token for another sandbox", &elsewhere, false),
        ] {
            let made = self
                .post(ROOT, "/v1/tokens", json!({"sandboxId": id}))
                .await;
            let scope = Scope {
                sandbox: Some(id.clone()),
                ..Scope::default()
            };
            all.push(Who {
                is_token: true,
                scope,
                sees,
                ..good(
                    name,
                    made["value"].as_str().unwrap().to_owned(),
                    Role::Admin,
                )
            });
        }
        all
    }

    fn path(&self, operation: &Operation, things: &Things) -> String {
        let prefix = match operation.mount {
            Mount::AsWritten => "",
            _ => "/v1",
        };
        let path = operation
            .path
            .replace("{sandboxId}", things.sandbox.as_str())
            .replace("{snapshotId}", &things.snapshot)
            .replace("{port}", "8000")
            .replace("{path}", "a/b")
            .replace("{reference}", "of-the-row")
            .replace("{name}", &things.volume)
            .replace("{keyId}", &things.key)
            .replace("{tenantName}", &things.tenant)
            .replace("{poolName}", "pool")
            .replace("{templateId}", "template");
        assert!(
            !path.contains('{'),
            "{path} has a parameter that nothing stands for"
        );
        let query = match &*operation.id {
            "exportImage" => "?reference=local",
            "tagImage" => "?reference=local&name=again",
            "importImages" => "?name=local",
            _ => "",
        };
        format!("{prefix}{path}{query}")
    }

    fn body(&self, operation: &Operation) -> Body {
        let n = self.number();
        let body = match &*operation.id {
            "createSandbox" => request_for("local"),
            "patchSandboxMetadata" => json!({"note": "x"}),
            "renewSandboxExpiration" => json!({"expiresAt": "2100-01-01T00:00:00Z"}),
            "createVolume" => json!({"name": format!("new-volume-{n}")}),
            "createKey" => json!({"name": format!("new-key-{n}"), "role": "viewer"}),
            "createTenant" => json!({"name": format!("new-tenant-{n}")}),
            "pullImage" => json!({"image": {"uri": "local"}}),
            "replaceNetworkPolicy" => json!({"defaultAction": "deny"}),
            "patchNetworkPolicy" => json!([{"action": "allow", "target": "a.example"}]),
            "deleteNetworkPolicy" => json!(["a.example"]),
            "reportMetricsEvent" => json!({"event": "x", "createDurationMs": 1, "success": true}),
            "importImages" => return Body::from("local"),
            _ => return Body::empty(),
        };
        Body::from(body.to_string())
    }

    fn request(&self, who: &Who, operation: &Operation, things: &Things) -> Request<Body> {
        let path = self.path(operation, things);
        let request = self.server.request(operation.method, &path);
        let request = who.headers(request, things);
        request.body(self.body(operation)).unwrap()
    }
}

impl Who {
    fn headers(&self, request: http::request::Builder, things: &Things) -> http::request::Builder {
        let request = self
            .key
            .iter()
            .fold(request, |it, key| it.header("open-sandbox-api-key", key));
        match self.has_sandbox_token {
            true => request.header("x-execd-access-token", &things.secret),
            false => request,
        }
    }
}

/// What became of a request, as far as rights go.
fn fate_of(status: StatusCode) -> Fate {
    match status.as_u16() {
        401 | 429 => Fate::Unauthorized,
        403 => Fate::Forbidden,
        404 => Fate::NotFound,
        _ => Fate::Allowed,
    }
}

#[track_caller]
fn judge(who: &Who, what: &str, expected: Fate, status: StatusCode, failures: &mut Vec<String>) {
    let found = fate_of(status);
    let is_right = match expected {
        Fate::Refused => matches!(found, Fate::Forbidden | Fate::NotFound),
        expected => found == expected,
    };
    if !is_right {
        failures.push(format!("{} {what}: {status}, not {expected:?}", who.name));
    }
}

#[tokio::test]
async fn every_operation_lets_in_those_who_may_and_nobody_else() {
    let stage = Stage::start(RouteMode::Uri).await;
    let shared = stage.things(Needs::Nothing, None).await;
    let everybody = stage.everybody(&shared).await;
    let mut failures = Vec::new();
    let operations = Contract::Lifecycle.operations();
    for operation in operations {
        let needs = needs(&operation.id);
        for who in &everybody {
            // Tokens are for one sandbox, and no row may take it away from the next.
            let things = match who.scope.sandbox {
                Some(_) if operation.id != "deleteSandbox" => {
                    let own = stage.things(needs, Some(&shared.sandbox)).await;
                    Things {
                        sandbox: shared.sandbox.clone(),
                        secret: shared.secret.clone(),
                        ..own
                    }
                }
                Some(_) => continue,
                None => stage.things(needs, Some(&shared.sandbox)).await,
            };
            // A snapshot is of the sandbox that was made with it.
            if who.scope.sandbox.is_some() && matches!(needs, Needs::Snapshot(_)) {
                continue;
            }
            let request = stage.request(who, &operation, &things);
            let response = stage.server.send(request).await;
            let status = response.status();
            let what = format!("{} {}", operation.method, operation.path);
            judge(
                who,
                &what,
                who.fate(needs, &operation),
                status,
                &mut failures,
            );
            let is_stream = ["watchEvents", "followSandboxLogs"].contains(&&*operation.id);
            if status.is_success() && !is_stream && !who.sees && who.key.is_some() {
                let body = tokio::time::timeout(DEADLINE, response.into_body().collect());
                let body = body.await.unwrap().unwrap().to_bytes();
                let text = String::from_utf8_lossy(&body);
                for hidden in [
                    things.sandbox.as_str(),
                    shared.sandbox.as_str(),
                    &things.secret,
                ] {
                    if text.contains(hidden) {
                        failures.push(format!("{} {what}: tells of {hidden}", who.name));
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[tokio::test]
async fn every_address_of_a_sandbox_lets_in_those_who_may_and_nobody_else() {
    let mut failures = Vec::new();
    for mode in [RouteMode::Uri, RouteMode::Header, RouteMode::Wildcard] {
        let stage = Stage::start(mode).await;
        let things = stage.things(Needs::Nothing, None).await;
        let id = &things.sandbox;
        let gateway = stage.server.running.gateway.expect("there is one");
        let at_gateway = |host: &str, path: &str| {
            Request::builder()
                .uri(format!("http://{gateway}{path}"))
                .header("host", host)
        };
        for who in stage.everybody(&things).await {
            let operations = Contract::Lifecycle.operations();
            let proxied = operations.iter().find(|it| it.id == "proxyGet").unwrap();
            let expected = who.fate(Needs::Sandbox(Right::Connect), proxied);
            for (port, upgrade) in [
                (8000, None),
                (8000, Some("websocket")),
                (8000, Some("tcp")),
                (44772, None),
            ] {
                let mut requests = vec![(
                    "the server's path",
                    stage
                        .server
                        .request("GET", &format!("/sandboxes/{id}/proxy/{port}/ping")),
                )];
                requests.push(match mode {
                    RouteMode::Uri => (
                        "path",
                        at_gateway("localhost", &format!("/{id}/{port}/ping")),
                    ),
                    RouteMode::Header => (
                        "header",
                        at_gateway("localhost", "/ping")
                            .header("OpenSandbox-Ingress-To", format!("{id}-{port}")),
                    ),
                    RouteMode::Wildcard => (
                        "host",
                        at_gateway(&format!("{id}-{port}.sandboxes.example"), "/ping"),
                    ),
                });
                for (address, request) in requests {
                    let request = who.headers(request, &things);
                    let request = match upgrade {
                        Some(protocol) => request
                            .header("connection", "Upgrade")
                            .header("upgrade", protocol),
                        None => request,
                    };
                    let sent = request.body(Body::empty()).unwrap();
                    let status = stage.server.send(sent).await.status();
                    let what = format!("{address} {port} {upgrade:?}");
                    judge(&who, &what, expected, status, &mut failures);
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
