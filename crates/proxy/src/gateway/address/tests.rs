//! What requests name, row by row.

use super::*;
use crate::message::HeadParser;

fn read(target: &str, headers: &str) -> Result<Address, AddressError> {
    let text = format!("GET {target} HTTP/1.1\r\n{headers}\r\n");
    let mut parser = HeadParser::default();
    assert_eq!(parser.parse_request(text.as_bytes()), Ok(true), "{text}");
    let names = HostNames {
        base: Some("sandboxes.example".to_owned()),
        own: vec!["gateway.example".to_owned()],
    };
    names.address(parser.head(text.as_bytes()))
}

/// Target, headers, how the sandbox is named, which it is, what belongs to the gateway of the path, and the
/// rest.
const NAMED: &str = r"
/x?y | Host: a-80.sandboxes.example | Host | a-80 | | /x?y
/x | Host: A-80.Sandboxes.Example:28888 | Host | a-80 | | /x
/x | Host: a-80.localhost:1 | Host | a-80 | | /x
/x | Host: a-80.localhost.:1 | Host | a-80 | | /x
/ | Host: a-b-c-80.localhost | Host | a-b-c-80 | | /
/b/81/ | Host: a-80.localhost | Host | a-80 | | /b/81/
/ | Host: a-80-0-8ccd73a1a.localhost | Host | a-80-0-8ccd73a1a | | /
http://a-80.localhost/x | Host: b-81.localhost | Host | a-80 | | /x
http://a-80.localhost?q | Host: x | Host | a-80 | | ?q
/ | Host: a-80.localhost; OpenSandbox-Ingress-To: a-80 | Host | a-80 | | /
/x | Host: g; OpenSandbox-Ingress-To: a-80 | Header | a-80 | | /x
/x | Host: g; OPEN-SANDBOX-INGRESS: a-80 | Header | a-80 | | /x
/b/81 | Host: g; OpenSandbox-Ingress-To: a-80 | Header | a-80 | | /b/81
/ | Host: g; OPEN-SANDBOX-INGRESS: b-81; OpenSandbox-Ingress-To: a-80 | Header | a-80 | | /
/ | Host: g; OPEN-SANDBOX-INGRESS: b-81; OpenSandbox-Ingress-To: | Header | b-81 | | /
/ | Host: g; OpenSandbox-Ingress-To: https://a-80.x.y | Header | a-80 | | /
/a/80 | Host: 127.0.0.1:1 | Path | a-80 | /a/80 |
/a/80/ | Host: [::1]:1 | Path | a-80 | /a/80 | /
/a/80?q=/x | Host: localhost | Path | a-80 | /a/80 | ?q=/x
/a/80/x%2Fy//z?q | Host: gateway.example | Path | a-80 | /a/80 | /x%2Fy//z?q
/a/80/x#y | X: y | Path | a-80 | /a/80 | /x
/a/80/0/8ccd73a1a | Host: g | Path | a-80-0-8ccd73a1a | /a/80/0/8ccd73a1a |
/a/80/0/8ccd73a1a/x?y | Host: g | Path | a-80-0-8ccd73a1a | /a/80/0/8ccd73a1a | /x?y
";

#[test]
fn a_request_names_its_sandbox_in_one_of_three_ways() {
    for row in NAMED.lines().filter(|row| !row.is_empty()) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [target, headers, addressing, named, prefix, path] = cells[..] else {
            panic!("six cells: {row}");
        };
        let headers: String = headers
            .split("; ")
            .map(|line| format!("{line}\r\n"))
            .collect();
        let address = read(target, &headers).unwrap_or_else(|error| panic!("{row}: {error}"));
        let label = signed_route::Route {
            sandbox_id: address.route.id.to_string(),
            port: address.route.port,
            signature: address.signature,
        };
        assert_eq!(format!("{:?}", address.addressing), addressing, "{row}");
        assert_eq!(label.host_label(), named, "{row}");
        let route = &address.route;
        assert_eq!((&*route.prefix, &*route.path), (prefix, path), "{row}");
    }
}

#[test]
fn what_could_mean_two_things_is_refused() {
    for (target, headers) in [
        (
            "/",
            "Host: a-80.localhost\r\nOpenSandbox-Ingress-To: b-80\r\n",
        ),
        (
            "/",
            "Host: a-80.localhost\r\nOpenSandbox-Ingress-To: a-81\r\n",
        ),
        (
            "/",
            "Host: a-80.sandboxes.example\r\nOPEN-SANDBOX-INGRESS: b-80\r\n",
        ),
        ("/", "Host: a-80.localhost\r\nHost: b-80.localhost\r\n"),
        (
            "/",
            "Host: g\r\nOpenSandbox-Ingress-To: a-80\r\nOpenSandbox-Ingress-To: b-80\r\n",
        ),
    ] {
        let refused = read(target, headers);
        assert!(
            matches!(refused, Err(AddressError::Ambiguous(_))),
            "{headers:?} {refused:?}"
        );
    }
    for (target, headers) in [
        ("/", "Host: localhost\r\n"),
        ("/a", "Host: 127.0.0.1\r\n"),
        ("/a/x", "Host: 127.0.0.1\r\n"),
        ("/a/65536/", "Host: 127.0.0.1\r\n"),
        ("/a%2fb/80/", "Host: 127.0.0.1\r\n"),
        ("/a/80/", "Host: a.localhost\r\n"),
        ("/a/80/", "Host: a-0.localhost\r\n"),
        // Two labels are nobody's, and the path is not asked instead.
        ("/", "Host: x.a-80.localhost\r\n"),
        ("/", "Host: a-80.localhost.example\r\n"),
        ("/", "Host: a-80\r\n"),
        ("/", "OpenSandbox-Ingress-To: a\r\nHost: a-80.localhost\r\n"),
        ("/", "OpenSandbox-Ingress-To: ../b-80\r\n"),
        ("*", "Host: a-80.localhost\r\n"),
        ("a/80/", "Host: 127.0.0.1\r\n"),
    ] {
        assert!(read(target, headers).is_err(), "{target} {headers:?}");
    }
}

#[test]
fn a_name_that_is_not_ours_is_known_as_such() {
    for (host, is_known) in [
        ("127.0.0.1:1", true),
        ("[::1]:1", true),
        ("localhost", true),
        ("gateway.example:443", true),
        ("sandboxes.example", true),
        ("a-80.localhost", true),
        ("rebound.example", false),
        ("localhost.example", false),
        ("xsandboxes.example", false),
        ("127.0.0.1.example", false),
    ] {
        let address = read("/a/80/", &format!("Host: {host}\r\n"));
        let is_seen = address.map(|address| address.is_known_host);
        assert_eq!(is_seen, Ok(is_known), "{host}");
    }
}

#[test]
fn what_looks_signed_can_be_a_path_of_the_service() {
    let address = read("/a/80/0/8ccd73a1a/x?y", "Host: g\r\n").unwrap();
    let plain = address.without_signature();
    let route = &plain.route;
    assert_eq!(plain.signature, None);
    assert_eq!(
        (&*route.prefix, &*route.path),
        ("/a/80", "/0/8ccd73a1a/x?y")
    );
    let address = read("/a/80/x", "Host: g\r\n").unwrap();
    assert_eq!(address.clone().without_signature(), address);
}
