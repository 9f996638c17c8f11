//! Endpoints: where a port of a sandbox is reached from outside. Always through this server's
//! own proxy, with the sandbox's token as a header to send along.

use std::collections::BTreeMap;

use api::endpoint::{Endpoint, SECURE_ACCESS_HEADER};
use api::error::ErrorCode;
use api::exec::ACCESS_TOKEN_HEADER;
use api::problem::{Problem, Problems};
use api::query::Query;
use axum::Json;
use axum::extract::{OriginalUri, Path, State};
use http::uri::Authority;
use http::{HeaderMap, header};
use secrecy::ExposeSecret as _;

use super::audit::CallerService;
use super::extract::{OfSandbox, RawQuery};
use super::{App, Error};
use crate::ingress;

/// `GET /sandboxes/{id}/endpoints/{port}`
pub(super) async fn get(
    State(app): State<App>,
    CallerService(service): CallerService,
    OfSandbox(id): OfSandbox,
    Path((_, port)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
) -> Result<Json<Endpoint>, Error> {
    check_query(&query)?;
    let port = parse_port(&port)?;
    // The published clients take whatever fails here as the end, and show it; what they are told by the proxy
    // instead they try again until their time is over. So a sandbox that cannot be used says so here, and one
    // that needs longer than clients wait has an endpoint all the same: requests sent there go on waiting.
    let sandbox = service.wait_connectable(&id, ingress::READY_WAIT).await?;
    let token = sandbox.access_token.expose_secret().to_owned();
    let host = host(app.0.rules.eip.as_deref(), &headers)?;
    let mount = if uri.path().starts_with("/v1/") {
        "/v1"
    } else {
        ""
    };
    let mut headers = BTreeMap::from([(ACCESS_TOKEN_HEADER.to_owned(), token.clone())]);
    if sandbox.secure_access {
        headers.insert(SECURE_ACCESS_HEADER.to_owned(), token);
    }
    Ok(Json(Endpoint {
        endpoint: format!("{host}{mount}/sandboxes/{id}/proxy/{port}"),
        headers: Some(headers),
    }))
}

/// `use_server_proxy` asks for what is always done. Signed routes need a gateway.
fn check_query(query: &str) -> Result<(), Error> {
    let query = Query::parse(query).map_err(|problem| Error::query(vec![problem]))?;
    let mut problems = Problems::new();
    query.flag("use_server_proxy", &mut problems);
    let expires = query.number("expires", 0..=u64::MAX, &mut problems);
    problems.into_result(()).map_err(Error::query)?;
    match expires {
        None => Ok(()),
        Some(_) => Err(Error::BadRequest {
            code: ErrorCode::SandboxApiNotSupported,
            message: "expires: signed endpoints need an ingress gateway, and there is none"
                .to_owned(),
        }),
    }
}

fn parse_port(text: &str) -> Result<u16, Error> {
    let Ok(number) = text.parse::<i64>() else {
        let problem = Problem::new("port", "must be a whole number from 1 to 65535");
        return Err(Error::Invalid {
            part: "path",
            problems: vec![problem],
        });
    };
    u16::try_from(number)
        .ok()
        .filter(|port| *port != 0)
        .ok_or_else(|| Error::BadRequest {
            code: ErrorCode::DockerInvalidPort,
            message: format!("port must be from 1 to 65535, not {number}"),
        })
}

/// What the operator set, without a scheme, or else the host that this client reached us by.
fn host(eip: Option<&str>, headers: &HeaderMap) -> Result<String, Error> {
    if let Some(eip) = eip {
        let host = eip.split_once("://").map_or(eip, |(_, host)| host);
        return Ok(host.trim_end_matches('/').to_owned());
    }
    let sent = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let sent = sent.and_then(|host| host.parse::<Authority>().ok());
    match sent {
        Some(host) if !host.as_str().contains('@') => Ok(host.to_string()),
        _ => {
            let problem = Problem::new("host", "is missing or is not a host with a port");
            Err(Error::Invalid {
                part: "header",
                problems: vec![problem],
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_the_operators_or_the_clients_own() {
        let mut headers = HeaderMap::new();
        assert!(host(None, &headers).is_err());
        headers.insert(header::HOST, "example.com:8080".parse().unwrap());
        assert_eq!(host(None, &headers).unwrap(), "example.com:8080");
        assert_eq!(
            host(Some("https://sandbox.example/"), &headers).unwrap(),
            "sandbox.example"
        );
        for bad in ["a b", "user@host", ""] {
            headers.insert(header::HOST, bad.parse().unwrap());
            assert!(host(None, &headers).is_err(), "{bad}");
        }
    }

    #[test]
    fn ports_are_checked_as_the_contract_says() {
        assert_eq!(parse_port("80").unwrap(), 80);
        for bad in ["0", "65536", "-1"] {
            assert!(
                matches!(parse_port(bad), Err(Error::BadRequest { .. })),
                "{bad}"
            );
        }
        assert!(matches!(parse_port("http"), Err(Error::Invalid { .. })));
    }
}
