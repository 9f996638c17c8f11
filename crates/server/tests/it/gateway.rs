//! The gateway: a port of its own at which hosts, headers and paths name sandboxes.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use api::id::SandboxId;
use axum::body::Body;
use http::Request;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use server::config::{Config, IngressMode, RouteKey, RouteKeys, RouteMode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Answer, DEADLINE, Server, request_for, start_with};

const BASE: &str = "sandboxes.example";

/// A server with a gateway and a key for signed routes.
async fn start(mode: RouteMode, change: impl FnOnce(&mut Config)) -> Server {
    start_with(|config| {
        config.ingress.mode = IngressMode::Gateway;
        let gateway = &mut config.ingress.gateway;
        gateway.port = 0;
        gateway.route.mode = mode;
        if mode == RouteMode::Wildcard {
            gateway.address = Some(format!("*.{BASE}"));
        }
        config.ingress.secure_access.keys = RouteKeys(vec![RouteKey {
            key_id: "z".to_owned(),
            key: "dGVzdC1zZWNyZXQtYnl0ZXM=".to_owned().into(),
        }]);
        change(config);
    })
    .await
}

/// Where a port is told to be, and with which headers.
struct Told {
    endpoint: String,
    headers: BTreeMap<String, String>,
    answer: Value,
}

async fn ask(server: &Server, id: &SandboxId, port: u16, query: &str) -> Answer {
    server
        .get(&format!("/v1/sandboxes/{id}/endpoints/{port}{query}"))
        .await
}

async fn told(server: &Server, id: &SandboxId, port: u16, query: &str) -> Told {
    let answer = ask(server, id, port, query).await.expect(200).json();
    Told {
        endpoint: answer["endpoint"].as_str().unwrap().to_owned(),
        headers: serde_json::from_value(answer["headers"].clone()).unwrap_or_default(),
        answer,
    }
}

/// A request to the gateway, whatever name the host has.
fn request(server: &Server, host: &str, path: &str) -> http::request::Builder {
    let gateway = server.running.gateway.expect("it has one");
    Request::builder()
        .uri(format!("http://{gateway}{path}"))
        .header("host", host)
}

async fn get(server: &Server, host: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let request = headers
        .iter()
        .fold(request(server, host, path), |it, (k, v)| it.header(*k, *v));
    server.call(request.body(Body::empty()).unwrap()).await
}

/// Asks an endpoint as a client does that puts a path behind it, with the headers or without.
async fn reach(server: &Server, told: &Told, path: &str, with_headers: bool) -> Answer {
    let (host, prefix) = match told.endpoint.split_once('/') {
        Some((host, prefix)) => (host, format!("/{prefix}")),
        None => (told.endpoint.as_str(), String::new()),
    };
    let headers = told.headers.iter();
    let headers = headers.filter(|(name, _)| with_headers || *name == "OpenSandbox-Ingress-To");
    let headers: Vec<_> = headers.map(|(k, v)| (k.as_str(), v.as_str())).collect();
    get(server, host, &format!("{prefix}{path}"), &headers).await
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap().as_secs()
}

#[track_caller]
fn refused(answer: Answer, status: u16) -> Answer {
    let answer = answer.expect(status);
    assert!(
        answer.text.starts_with("OpenSandbox Ingress: "),
        "{answer:?}"
    );
    assert!(!answer.header("x-request-id").is_empty());
    let by = answer.header("reverse-proxy-server-powerby");
    assert_eq!(by, "OpenSandbox-ingress");
    answer
}

const MODES: [RouteMode; 3] = [RouteMode::Header, RouteMode::Uri, RouteMode::Wildcard];

#[tokio::test]
async fn every_mode_tells_an_endpoint_that_leads_to_the_port() {
    for mode in MODES {
        let server = start(mode, |_| {}).await;
        let id = server.sandbox().await;
        server.backend.listen(&id, 8000);
        let port = server.running.gateway.unwrap().port();
        let told = told(&server, &id, 8000, "").await;
        let expected = match mode {
            RouteMode::Header => format!("127.0.0.1:{port}"),
            RouteMode::Uri => format!("127.0.0.1:{port}/{id}/8000"),
            RouteMode::Wildcard => format!("{id}-8000.{BASE}"),
        };
        assert_eq!(told.endpoint, expected);
        let header = told.headers.get("OpenSandbox-Ingress-To").cloned();
        let is_header = mode == RouteMode::Header;
        assert_eq!(header, is_header.then(|| format!("{id}-8000")));
        let answer = reach(&server, &told, "/a%2Fb//c?x=%20&y", true)
            .await
            .expect(200);
        assert_eq!(answer.header("x-fake-path"), "/a%2Fb//c?x=%20&y");
        assert_eq!(answer.header("x-fake-target"), "8000");
        let by = answer.header("reverse-proxy-server-powerby");
        assert_eq!(by, "OpenSandbox-ingress");
        let isolated = answer.headers.contains_key("content-security-policy");
        assert_eq!(
            isolated,
            mode != RouteMode::Wildcard,
            "an own host is an own origin"
        );
        refused(reach(&server, &told, "/", false).await, 401);
        // The daemon gets its token, and the service sees none of ours.
        let daemon = self::told(&server, &id, 44772, "").await;
        assert_eq!(
            reach(&server, &daemon, "/ping", true)
                .await
                .expect(200)
                .text,
            "pong"
        );
        let seen = reach(&server, &told, "/headers", true)
            .await
            .expect(200)
            .json();
        for name in [
            "opensandbox-ingress-to",
            "opensandbox-secure-access",
            "x-execd-access-token",
        ] {
            assert!(seen.get(name).is_none(), "{seen}");
        }
        // The server's own paths are there all the same.
        let own = self::told(&server, &id, 8000, "?use_server_proxy=true").await;
        assert!(
            own.endpoint
                .ends_with(&format!("/v1/sandboxes/{id}/proxy/8000")),
            "{}",
            own.endpoint
        );
    }
}

#[tokio::test]
async fn signed_routes_need_no_header_until_they_expire() {
    for mode in MODES {
        let server = start(mode, |_| {}).await;
        let id = server.sandbox().await;
        server.backend.listen(&id, 8000);
        let query = format!("?expires={}", now() + 600);
        let told = told(&server, &id, 8000, &query).await;
        let token = told.headers.get("OpenSandbox-Secure-Access");
        assert_eq!(token, None, "whoever holds the address needs nothing else");
        let answer = reach(&server, &told, "/x", false).await.expect(200);
        assert_eq!(answer.header("x-fake-path"), "/x");
        // Of the ends that can be asked for, one is not later, one is too far, one is not signed.
        for (query, expected) in [
            (format!("?expires={}", now()), "later than now"),
            ("?expires=18446744073709551615".to_owned(), "86400 seconds"),
            (
                format!("?expires={}&use_server_proxy=true", now() + 60),
                "use_server_proxy",
            ),
        ] {
            let answer = ask(&server, &id, 8000, &query).await.expect(400);
            assert!(answer.text.contains(expected), "{query} {answer:?}");
        }
    }
}

#[tokio::test]
async fn a_signed_route_of_the_published_server_is_read_byte_for_byte() {
    let server = start(RouteMode::Header, |_| {}).await;
    let id = server.sandbox().await;
    server.backend.listen(&id, 8000);
    let told = told(&server, &id, 8000, &format!("?expires={}", now() + 60)).await;
    let label = &told.headers["OpenSandbox-Ingress-To"];
    let mut parts = label.rsplitn(3, '-');
    let (signature, expires) = (parts.next().unwrap(), parts.next().unwrap());
    assert_eq!(
        (signature.len(), signature.ends_with('z')),
        (9, true),
        "{label}"
    );
    // The same route in the two other forms.
    let path = format!("/{id}/8000/{expires}/{signature}/x");
    let answer = get(&server, "localhost", &path, &[]).await.expect(200);
    assert_eq!(answer.header("x-fake-path"), "/x");
    get(&server, &format!("{label}.localhost"), "/x", &[])
        .await
        .expect(200);
    let other = format!("/{id}/8001/{expires}/{signature}/x");
    refused(get(&server, "localhost", &other, &[]).await, 401);
    // A wrong token is not made good by a right signature.
    let wrong = [("OpenSandbox-Secure-Access", "wrong")];
    refused(get(&server, "localhost", &path, &wrong).await, 401);
}

#[tokio::test]
async fn a_route_of_version_2_is_for_one_port_or_for_the_sandbox() {
    let data = tempfile::tempdir().unwrap();
    let server = start(RouteMode::Uri, |config| {
        config.ingress.secure_access.keys = RouteKeys::default();
        config.embedded.data_dir = data.path().to_owned();
    })
    .await;
    let id = server.sandbox().await;
    server.backend.listen(&id, 8000);
    server.backend.listen(&id, 8001);
    for (scope, other) in [("", 401), ("&scope=port", 401), ("&scope=sandbox", 200)] {
        let query = format!("?expires={}{scope}", now() + 600);
        let mut told = told(&server, &id, 8000, &query).await;
        reach(&server, &told, "/", false).await.expect(200);
        told.endpoint = told.endpoint.replace("/8000/", "/8001/");
        reach(&server, &told, "/", false).await.expect(other);
    }
    for query in ["?scope=sandbox", "?scope=all&expires=9999999999"] {
        ask(&server, &id, 8000, query).await.expect(422);
    }
    let mode = std::fs::metadata(data.path().join("gateway.key")).unwrap();
    assert_eq!(mode.len(), 32);
}

#[tokio::test]
async fn what_is_refused_is_told_as_by_the_published_gateway() {
    let server = start(RouteMode::Uri, |_| {}).await;
    let id = server.sandbox().await;
    server.backend.listen(&id, 8000);
    let told = told(&server, &id, 8000, "").await;
    let token = [(
        "OpenSandbox-Secure-Access",
        &*told.headers["OpenSandbox-Secure-Access"],
    )];
    for (host, path, status) in [
        ("localhost", "/".to_owned(), 400),
        ("localhost", format!("/{id}/x/"), 400),
        ("nobody.localhost", "/".to_owned(), 400),
        ("localhost", "/nobody/8000/".to_owned(), 404),
        ("nobody-8000.localhost", "/".to_owned(), 404),
        ("localhost", format!("/{id}/9999/"), 502),
    ] {
        refused(get(&server, host, &path, &token).await, status);
    }
    assert_eq!(
        get(&server, "localhost", "/status.ok", &[])
            .await
            .expect(200)
            .text,
        "OK"
    );
    let own = get(
        &server,
        &format!("{id}-8000.localhost"),
        "/status.ok",
        &token,
    )
    .await;
    assert_eq!(own.expect(200).header("x-fake-path"), "/status.ok");
    // There is no API at this port.
    refused(
        get(&server, "localhost", "/v1/sandboxes", &token).await,
        400,
    );
    server
        .post(&format!("/v1/sandboxes/{id}/pause"), json!({}))
        .await
        .expect(202);
    refused(
        get(&server, "localhost", &format!("/{id}/8000/"), &token).await,
        503,
    );
}

#[tokio::test]
async fn guessing_a_signature_is_held_up() {
    let server = start(RouteMode::Uri, |_| {}).await;
    let id = server.sandbox().await;
    server.backend.listen(&id, 8000);
    let signed = told(&server, &id, 8000, &format!("?expires={}", now() + 60)).await;
    let mut tries = 0;
    loop {
        let guess = format!("/{id}/8000/zzzzzz/{tries:08x}z/");
        let answer = get(&server, "localhost", &guess, &[]).await;
        if answer.status == 429 {
            assert!(answer.header("retry-after").parse::<u64>().unwrap() >= 1);
            break;
        }
        refused(answer, 401);
        tries += 1;
        assert!(tries < 100, "guessing has no end");
    }
    reach(&server, &signed, "/", false).await.expect(429);
    let told = told(&server, &id, 8000, "").await;
    reach(&server, &told, "/", true).await.expect(200);
}

#[tokio::test]
async fn without_required_tokens_only_secured_sandboxes_ask_for_one() {
    let server = start(RouteMode::Uri, |config| {
        config.ingress.gateway.require_token = false;
    })
    .await;
    let open = server.sandbox().await;
    let mut secured = request_for("local");
    secured["secureAccess"] = json!(true);
    let secured = server.post("/v1/sandboxes", secured).await.expect(202);
    let secured: SandboxId = secured.json()["id"].as_str().unwrap().parse().unwrap();
    for id in [&open, &secured] {
        server.backend.listen(id, 8000);
    }
    let path = |id: &SandboxId, port: u16| format!("/{id}/{port}/0/8ccd73a1a");
    let answer = get(&server, "localhost", &path(&open, 8000), &[])
        .await
        .expect(200);
    assert_eq!(
        answer.header("x-fake-path"),
        "/0/8ccd73a1a",
        "it only looks signed"
    );
    refused(
        get(&server, "localhost", &path(&secured, 8000), &[]).await,
        401,
    );
    refused(
        get(&server, "localhost", &path(&open, 44772), &[]).await,
        401,
    );
    // A page that had its own name point to this machine.
    refused(
        get(&server, "rebound.example", &path(&open, 8000), &[]).await,
        421,
    );
}

#[tokio::test]
async fn a_link_lets_one_browser_in_once_and_for_one_port() {
    let server = start(RouteMode::Header, |_| {}).await;
    let id = server.sandbox().await;
    for port in [8000, 8001] {
        server.backend.listen(&id, port);
    }
    let told = told(&server, &id, 8000, "?link=true").await;
    let link = told.answer["link"].as_str().unwrap();
    let port = server.running.gateway.unwrap().port();
    let host = format!("{id}-8000.localhost:{port}");
    let path = link.strip_prefix(&format!("http://{host}")).expect(link);
    let opened = get(&server, &host, path, &[]).await.expect(303);
    assert_eq!(opened.header("location"), "/");
    assert_eq!(opened.header("cache-control"), "no-store");
    let cookie = opened.header("set-cookie");
    assert!(cookie.starts_with("__Host-opensandbox="), "{cookie}");
    assert!(
        cookie.ends_with("; Secure; HttpOnly; SameSite=Lax"),
        "{cookie}"
    );
    let cookie = [("cookie", cookie.split(';').next().unwrap())];
    let answer = get(&server, &host, "/headers", &cookie).await.expect(200);
    assert_eq!(
        answer.json().get("cookie"),
        None,
        "the service does not see it"
    );
    refused(get(&server, &host, path, &[]).await, 403);
    refused(get(&server, &host, "/", &[]).await, 401);
    let neighbour = format!("{id}-8001.localhost:{port}");
    refused(get(&server, &neighbour, "/", &cookie).await, 401);
    let strange = [cookie[0], ("origin", "http://neighbour-80.localhost")];
    refused(get(&server, &host, "/", &strange).await, 401);
    // A link has an end, which can be chosen.
    let query = format!("?link=true&expires={}", now() + 100);
    let told = self::told(&server, &id, 8000, &query).await;
    let link = told.answer["link"].as_str().unwrap();
    let path = link.strip_prefix(&format!("http://{host}")).unwrap();
    let opened = get(&server, &host, path, &[]).await.expect(303);
    let age = opened
        .header("set-cookie")
        .split("Max-Age=")
        .nth(1)
        .unwrap();
    let age: u64 = age.split(';').next().unwrap().parse().unwrap();
    assert!((1..=100).contains(&age), "{age}");
}

#[tokio::test]
async fn links_need_a_host_name_that_keeps_pages_apart() {
    let domain = |address: &'static str| {
        move |config: &mut Config| {
            config.ingress.gateway.address = Some(address.to_owned());
        }
    };
    let server = start(RouteMode::Wildcard, domain("https://*.sandboxes.example")).await;
    let id = server.sandbox().await;
    let told = told(&server, &id, 8000, "?link=true").await;
    let link = told.answer["link"].as_str().unwrap();
    let origin = format!("https://{id}-8000.sandboxes.example/?opensandbox_code=");
    assert!(link.starts_with(&origin), "{link}");
    // Without TLS no browser takes a cookie that neighbours cannot write.
    let server = start(RouteMode::Wildcard, domain("*.sandboxes.example")).await;
    let id = server.sandbox().await;
    let answer = ask(&server, &id, 8000, "?link=true").await.expect(400);
    assert!(answer.text.contains("host name of their own"), "{answer:?}");
    let server = crate::support::start().await;
    let id = server.sandbox().await;
    let answer = ask(&server, &id, 8000, "?link=true").await.expect(400);
    assert!(answer.text.contains("ingress.mode"), "{answer:?}");
}

#[tokio::test]
async fn a_tunnel_ends_when_the_right_to_it_ends() {
    let server = start(RouteMode::Uri, |_| {}).await;
    let id = server.sandbox().await;
    server.backend.listen(&id, 6080);
    // Long enough for a machine that is busy with other tests to open the tunnel.
    let told = told(&server, &id, 6080, &format!("?expires={}", now() + 12)).await;
    let (_, path) = told.endpoint.split_once('/').unwrap();
    let request = request(&server, "localhost", &format!("/{path}/socket"))
        .header("connection", "Upgrade")
        .header("upgrade", "websocket");
    let mut response = server.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(response.status(), 101);
    let mut stream = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    stream.write_all(b"ping").await.unwrap();
    let mut echoed = [0; 4];
    stream.read_exact(&mut echoed).await.unwrap();
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut rest)).await;
    // Reset or closed: nothing more comes, and nobody has closed it but the gateway.
    let _ = ended.expect("the tunnel ends by itself");
    assert!(rest.is_empty());
    let again = get(&server, "localhost", &format!("/{path}/"), &[]).await;
    assert!(refused(again, 401).text.contains("expired"));
}

/// The egress API is the server's own: at the gateway its port leads nowhere, whoever asks.
#[tokio::test]
async fn the_port_of_the_egress_api_leads_nowhere() {
    for mode in [RouteMode::Wildcard, RouteMode::Uri, RouteMode::Header] {
        let server = start(mode, |config| config.ingress.gateway.require_token = false).await;
        let id = server.sandbox().await;
        server.backend.listen(&id, 18080);
        let token = told(&server, &id, 8000, "").await.headers["X-EXECD-ACCESS-TOKEN"].clone();
        let label = format!("{id}-18080");
        let host = format!("{label}.{BASE}");
        let asked = match mode {
            RouteMode::Wildcard => (host.as_str(), "/policy".to_owned(), ("x-nothing", "x")),
            RouteMode::Uri => ("x", format!("/{id}/18080/policy"), ("x-nothing", "x")),
            RouteMode::Header => (
                "x",
                "/policy".to_owned(),
                ("OpenSandbox-Ingress-To", &*label),
            ),
        };
        for shown in ["", token.as_str()] {
            let headers = [asked.2, ("X-EXECD-ACCESS-TOKEN", shown)];
            let refused = get(&server, asked.0, &asked.1, &headers).await.expect(404);
            assert!(refused.text.contains("egress API"), "{refused:?}");
        }
        let own = told(&server, &id, 18080, "").await;
        assert_eq!(
            own.endpoint,
            format!("{}/v1/sandboxes/{id}/proxy/18080", server.address())
        );
        ask(&server, &id, 18080, "?expires=99999999999")
            .await
            .refused(400, "SANDBOX::API_NOT_SUPPORTED");
    }
}
