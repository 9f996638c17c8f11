//! The complete matrix of who is let in: hosts, headers and signatures, as the published gateway decides,
//! and what is ours besides.

use api::signed_route;
use secrecy::SecretSlice;

use super::*;
use crate::gateway::{HostNames, link};
use crate::message::HeadParser;

const NOW: u64 = 2_000_000_000;
const TOKEN: &str = "right-token";
const KEY: &[u8] = b"test-secret-bytes";

/// Who asks, and how the sandbox is kept.
#[derive(Clone, Copy)]
struct Case {
    is_open: bool,
    has_keys: bool,
    shows_key: bool,
    epoch: u64,
    is_https: bool,
}

const SECURED: Case = Case {
    is_open: false,
    has_keys: true,
    shows_key: false,
    epoch: 0,
    is_https: false,
};

fn ring(secret: &[u8]) -> KeyRing {
    let keys = vec![
        ('z', secret.to_vec().into()),
        ('y', SecretSlice::from(b"old".to_vec())),
    ];
    KeyRing::new('z', keys).unwrap()
}

fn access(has_keys: bool) -> Access {
    Access {
        keys: has_keys.then(|| ring(KEY)),
        longest: Duration::from_secs(86_400),
        attempts: Attempts::default(),
    }
}

fn decide_with(
    access: &Access,
    case: Case,
    target: &str,
    headers: &str,
) -> Result<Allowed, Denied> {
    let text = format!("GET {target} HTTP/1.1\r\n{headers}\r\n");
    let mut parser = HeadParser::default();
    assert_eq!(parser.parse_request(text.as_bytes()), Ok(true), "{text}");
    let request = parser.head(text.as_bytes());
    let names = HostNames {
        base: Some("sandboxes.example".to_owned()),
        own: vec!["gateway.example".to_owned()],
    };
    let address = names.address(request).unwrap();
    let sandbox = Protected {
        id: &address.route.id.clone(),
        token: TOKEN,
        is_open: case.is_open,
        epoch: case.epoch,
    };
    let peer = Peer {
        ip: "192.0.2.1".parse().unwrap(),
        is_https: case.is_https,
        user: None,
    };
    access.decide(request, &address, &sandbox, peer, || case.shows_key, NOW)
}

fn decide(case: Case, target: &str, headers: &str) -> Result<Allowed, Denied> {
    decide_with(&access(case.has_keys), case, target, headers)
}

fn v1(secret: &[u8], key_id: char, id: &str, port: u16, expires: u64) -> Signature {
    Signature::V1(signed_route::v1::Signature::sign(secret, key_id, id, port, expires).unwrap())
}

fn v2(port: Option<u16>, expires: u64, epoch: u64) -> Signature {
    let claim = Claim {
        purpose: Purpose::Route,
        sandbox_id: "sb",
        port,
        expires,
        epoch,
    };
    Signature::V2(ring(KEY).sign(&claim))
}

/// A route to a port of the sandbox `sb`.
fn route(port: u16, signature: Option<Signature>) -> signed_route::Route {
    signed_route::Route {
        sandbox_id: "sb".to_owned(),
        port,
        signature,
    }
}

/// The same request in each of the ways to name a port: its target and its headers.
fn forms(port: u16, signature: Option<Signature>) -> Vec<(String, String)> {
    let route = route(port, signature);
    let label = route.host_label();
    let mut forms = vec![
        (
            "/x".to_owned(),
            format!("Host: g\r\nOpenSandbox-Ingress-To: {label}\r\n"),
        ),
        (
            "/x".to_owned(),
            format!("Host: g\r\nOPEN-SANDBOX-INGRESS: {label}\r\n"),
        ),
        (
            format!("{}/x", route.path()),
            "Host: 127.0.0.1:28888\r\n".to_owned(),
        ),
    ];
    for host in ["sandboxes.example", "localhost:28888"] {
        forms.push(("/x".to_owned(), format!("Host: {label}.{host}\r\n")));
    }
    forms
}

fn allowed(right: Right, until: Option<u64>) -> Result<Allowed, Denied> {
    Ok(Allowed { right, until })
}

const TOKEN_LINE: &str = "OpenSandbox-Secure-Access: right-token\r\n";
const WRONG_LINE: &str = "OpenSandbox-Secure-Access: wrong\r\n";
const EMPTY_LINE: &str = "OpenSandbox-Secure-Access:\r\n";
const DAEMON_LINE: &str = "X-EXECD-ACCESS-TOKEN: right-token\r\n";
const OPEN: Case = Case {
    is_open: true,
    ..SECURED
};
const KEYLESS: Case = Case {
    has_keys: false,
    ..SECURED
};
const WITH_API_KEY: Case = Case {
    shows_key: true,
    ..SECURED
};

/// One row of the matrix, in every form.
#[track_caller]
fn check(
    case: Case,
    signature: Option<Signature>,
    header: &str,
    expected: &Result<Allowed, Denied>,
) {
    for (target, headers) in forms(80, signature) {
        // A name that is not ours, as `g` is not, is looked at where nothing else is asked for.
        let is_strange = case.is_open && headers.starts_with("Host: g\r\n");
        let strange = Err(Denied::StrangeHost);
        let expected = if is_strange { &strange } else { expected };
        let decided = decide(case, &target, &format!("{headers}{header}"));
        assert_eq!(&decided, expected, "{target} {headers:?} {header:?}");
    }
}

#[tokio::test]
async fn the_matrix_of_tokens_in_every_form() {
    let good = Some(v1(KEY, 'z', "sb", 80, NOW + 60));
    let bad = Some(v1(b"?", 'z', "sb", 80, NOW));
    let two = format!("{TOKEN_LINE}{WRONG_LINE}");
    let open = allowed(Right::Open, None);
    let by_token = allowed(Right::Token, None);
    let by_key = allowed(Right::ApiKey, None);
    let (wrong, missing) = (Err(Denied::Token), Err(Denied::Missing));
    for (case, signature, header, expected) in [
        // A sandbox that asks for nothing: whatever is shown.
        (OPEN, None, "", &open),
        (OPEN, None, WRONG_LINE, &open),
        (OPEN, bad, "", &open),
        // The header is right, or nothing else counts.
        (SECURED, None, TOKEN_LINE, &by_token),
        (SECURED, None, WRONG_LINE, &wrong),
        (SECURED, None, EMPTY_LINE, &wrong),
        (SECURED, None, &two, &wrong),
        (SECURED, good, TOKEN_LINE, &by_token),
        (SECURED, good, WRONG_LINE, &wrong),
        (SECURED, good, EMPTY_LINE, &wrong),
        (SECURED, bad, TOKEN_LINE, &by_token),
        (KEYLESS, good, TOKEN_LINE, &by_token),
        (SECURED, None, "", &missing),
        (KEYLESS, None, "", &missing),
        // Ours besides.
        (SECURED, None, DAEMON_LINE, &by_token),
        (SECURED, bad, DAEMON_LINE, &by_token),
        (WITH_API_KEY, None, "", &by_key),
        (WITH_API_KEY, None, WRONG_LINE, &wrong),
    ] {
        check(case, signature, header, expected);
    }
}

#[tokio::test]
async fn the_matrix_of_signatures_in_every_form() {
    let wrong = Err(Denied::Signature(VerifyError::Wrong));
    let expired = Err(Denied::Signature(VerifyError::Expired));
    let good = |until| allowed(Right::Signature, Some(until));
    for (secret, key_id, id, port, expires, expected) in [
        (KEY, 'z', "sb", 80, NOW + 60, good(NOW + 60)),
        (KEY, 'z', "sb", 80, NOW, good(NOW)),
        (KEY, 'z', "sb", 80, NOW + 86_400, good(NOW + 86_400)),
        (KEY, 'z', "sb", 80, NOW + 86_401, Err(Denied::TooLong)),
        (KEY, 'z', "sb", 80, NOW - 1, expired.clone()),
        (KEY, 'z', "sb", 80, 0, expired),
        // The key before, which does not sign any more.
        (b"old", 'y', "sb", 80, NOW + 1, good(NOW + 1)),
        (KEY, 'z', "sb", 81, NOW + 60, wrong.clone()),
        (KEY, 'z', "sc", 80, NOW + 60, wrong.clone()),
        (KEY, 'y', "sb", 80, NOW + 60, wrong.clone()),
        (KEY, 'x', "sb", 80, NOW + 60, wrong.clone()),
        (b"?", 'z', "sb", 80, NOW + 60, wrong),
    ] {
        let signature = Some(v1(secret, key_id, id, port, expires));
        check(SECURED, signature, "", &expected);
        check(KEYLESS, signature, "", &Err(Denied::NoKeys));
    }
}

#[tokio::test]
async fn signatures_of_version_2_are_for_one_port_or_one_sandbox_and_can_be_revoked() {
    let until = NOW + 60;
    let not_right = Err(Denied::Signature(VerifyError::Wrong));
    let passes = allowed(Right::Signature, Some(until));
    let far = NOW + 10_000_000;
    let later = Case {
        epoch: 1,
        ..SECURED
    };
    for (case, port, signature, expected) in [
        (SECURED, 80, v2(Some(80), until, 0), &passes),
        (SECURED, 81, v2(Some(80), until, 0), &not_right),
        (SECURED, 80, v2(None, until, 0), &passes),
        (SECURED, 81, v2(None, until, 0), &passes),
        (later, 80, v2(Some(80), until, 0), &not_right),
        (later, 80, v2(None, until, 0), &not_right),
        (later, 80, v2(None, until, 1), &passes),
        (
            SECURED,
            80,
            v2(None, NOW - 1, 0),
            &Err(Denied::Signature(VerifyError::Expired)),
        ),
        // No guess has a chance, so how long it holds is for who makes it to decide.
        (
            SECURED,
            80,
            v2(None, far, 0),
            &allowed(Right::Signature, Some(far)),
        ),
    ] {
        let route = route(port, Some(signature));
        let header = format!(
            "Host: g\r\nOpenSandbox-Ingress-To: {}\r\n",
            route.host_label()
        );
        assert_eq!(&decide(case, "/", &header), expected, "{route:?}");
        let path = format!("{}/x", route.path());
        assert_eq!(&decide(case, &path, "Host: g\r\n"), expected, "{route:?}");
    }
}

#[tokio::test]
async fn the_daemon_of_an_open_sandbox_asks_for_the_token() {
    let open = Case {
        is_open: true,
        ..SECURED
    };
    for (target, headers) in forms(44772, None) {
        assert_eq!(decide(open, &target, &headers), Err(Denied::Missing));
        let shown = format!("{headers}OpenSandbox-Secure-Access: {TOKEN}\r\n");
        assert_eq!(decide(open, &target, &shown), allowed(Right::Token, None));
    }
}

#[tokio::test]
async fn wrong_signatures_are_held_up_before_a_right_one_is_looked_at() {
    let access = access(true);
    let label = |signature| {
        let label = route(80, Some(signature)).host_label();
        format!("Host: g\r\nOpenSandbox-Ingress-To: {label}\r\n")
    };
    let (wrong, right) = (
        label(v1(b"?", 'z', "sb", 80, NOW)),
        label(v1(KEY, 'z', "sb", 80, NOW)),
    );
    let mut refused = 0;
    while decide_with(&access, SECURED, "/", &wrong) == Err(Denied::Signature(VerifyError::Wrong)) {
        refused += 1;
        assert!(refused < 1000, "guessing has no end");
    }
    let held_up = decide_with(&access, SECURED, "/", &right);
    assert!(matches!(held_up, Err(Denied::Throttled(_))), "{held_up:?}");
    let token = format!("{right}OpenSandbox-Secure-Access: {TOKEN}\r\n");
    assert_eq!(
        decide_with(&access, SECURED, "/", &token),
        allowed(Right::Token, None)
    );
    let v2 = label(v2(None, NOW, 0));
    assert_eq!(
        decide_with(&access, SECURED, "/", &v2),
        allowed(Right::Signature, Some(NOW))
    );
}

#[tokio::test]
async fn a_cookie_counts_for_pages_of_its_own_host() {
    let claim = Claim {
        purpose: Purpose::Cookie,
        sandbox_id: "sb",
        port: Some(80),
        expires: NOW + 60,
        epoch: 0,
    };
    let (expires, signed) = (
        signed_route::to_base36(claim.expires),
        ring(KEY).sign(&claim),
    );
    let own = format!("Cookie: a=1; {}={expires}-{signed}\r\n", link::COOKIE);
    let host = "Host: sb-80.sandboxes.example:8\r\n";
    let passes = || allowed(Right::Cookie, Some(NOW + 60));
    let missing = || Err(Denied::Missing);
    for (headers, expected) in [
        ("", passes()),
        ("Origin: http://sb-80.sandboxes.example:8\r\n", passes()),
        ("Origin: https://sb-80.sandboxes.example:8\r\n", missing()),
        ("Origin: http://sc-80.sandboxes.example:8\r\n", missing()),
        ("Origin: null\r\n", missing()),
        ("Sec-Fetch-Site: same-origin\r\n", passes()),
        ("Sec-Fetch-Site: none\r\n", passes()),
        ("Sec-Fetch-Site: same-site\r\n", missing()),
        (
            "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n",
            missing(),
        ),
        (
            "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n",
            passes(),
        ),
    ] {
        let decided = decide(SECURED, "/", &format!("{host}{own}{headers}"));
        assert_eq!(decided, expected, "{headers}");
    }
    for (case, target, headers) in [
        (SECURED, "/", "Host: sb-81.sandboxes.example\r\n"),
        (SECURED, "/", "Host: sc-80.sandboxes.example\r\n"),
        (SECURED, "/", "Host: g\r\nOpenSandbox-Ingress-To: sb-80\r\n"),
        (SECURED, "/sb/80/", "Host: localhost\r\n"),
        (
            Case {
                epoch: 1,
                ..SECURED
            },
            "/",
            host,
        ),
    ] {
        let decided = decide(case, target, &format!("{headers}{own}"));
        assert_eq!(decided, missing(), "{headers}");
    }
    let https = Case {
        is_https: true,
        ..SECURED
    };
    let usual = "Host: sb-80.sandboxes.example:443\r\nOrigin: https://sb-80.sandboxes.example\r\n";
    assert_eq!(decide(https, "/", &format!("{usual}{own}")), passes());
}
