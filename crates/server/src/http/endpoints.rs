//! Endpoints: where a port of a sandbox is reached from outside, and with which headers. Through the
//! gateway where there is one, else through this server's own proxy.

use std::collections::BTreeMap;

use api::endpoint::{EGRESS_AUTH_HEADER, EGRESS_PORT, Endpoint, SECURE_ACCESS_HEADER};
use api::error::ErrorCode;
use api::exec::ACCESS_TOKEN_HEADER;
use api::problem::{Problem, Problems};
use api::query::Query;
use axum::Json;
use axum::extract::{OriginalUri, Path, State};
use http::uri::Authority;
use http::{HeaderMap, header};
use lifecycle::{Right, Sandbox, Service};
use secrecy::ExposeSecret as _;

use super::audit::CallerService;
use super::error::readable::Refusal;
use super::extract::{OfSandbox, RawQuery};
use super::{App, Error};
use crate::gateway::Asked;
use crate::ingress;

/// What a client asks besides the port.
#[derive(Debug, Default)]
struct Wishes {
    use_server_proxy: bool,
    expires: Option<u64>,
    is_for_all_ports: Option<bool>,
    link: bool,
}

/// `GET /sandboxes/{id}/endpoints/{port}`
pub(super) async fn get(
    State(app): State<App>,
    CallerService(service): CallerService,
    OfSandbox(id): OfSandbox,
    Path((_, port)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
) -> Result<Json<Endpoint>, Refusal> {
    let wishes = wishes(&query)?;
    let port = parse_port(&port)?;
    let gateway = app.gateway().filter(|_| wishes.by_gateway(port));
    wishes.check(gateway.is_some())?;
    // The published clients take whatever fails here as the end, and show it; what they are told by the proxy
    // instead they try again until their time is over. So a sandbox that cannot be used says so here, and one
    // that needs longer than clients wait has an endpoint all the same: requests sent there go on waiting.
    let sandbox = service.wait_connectable(&id, ingress::READY_WAIT).await;
    let sandbox = sandbox.map_err(|error| Refusal::readable(error.into(), &headers))?;
    let host = host(app.0.rules.eip.as_deref(), &headers)?;
    if let Some(gateway) = gateway {
        let told = gateway.endpoint(&Asked {
            sandbox: &sandbox,
            port,
            host: &host,
            expires: wishes.expires,
            is_for_all_ports: wishes.is_for_all_ports,
            link: wishes.link,
        });
        return Ok(Json(told?));
    }
    let is_versioned = uri.path().starts_with("/v1/");
    let mount = if is_versioned { "/v1" } else { "" };
    Ok(Json(Endpoint {
        endpoint: format!("{host}{mount}/sandboxes/{id}/proxy/{port}"),
        headers: Some(headers_for(&service, &sandbox, port)),
        link: None,
    }))
}

/// What lets a client of the server's own paths in.
fn headers_for(service: &Service, sandbox: &Sandbox, port: u16) -> BTreeMap<String, String> {
    if port == EGRESS_PORT {
        // The token lets its holder change the policy; who may only read it shows its key.
        let may_change = service.require(Right::Change).is_ok();
        let token = sandbox.egress_token.expose_secret().to_owned();
        let header = may_change.then(|| (EGRESS_AUTH_HEADER.to_owned(), token));
        return header.into_iter().collect();
    }
    let token = sandbox.access_token.expose_secret().to_owned();
    let mut headers = BTreeMap::from([(ACCESS_TOKEN_HEADER.to_owned(), token.clone())]);
    if sandbox.secure_access {
        headers.insert(SECURE_ACCESS_HEADER.to_owned(), token);
    }
    headers
}

fn wishes(query: &str) -> Result<Wishes, Error> {
    let query = Query::parse(query).map_err(|problem| Error::query(vec![problem]))?;
    let mut problems = Problems::new();
    let wishes = Wishes {
        use_server_proxy: query.flag("use_server_proxy", &mut problems) == Some(true),
        expires: query.number("expires", 0..=u64::MAX, &mut problems),
        link: query.flag("link", &mut problems) == Some(true),
        is_for_all_ports: match query.first("scope") {
            None => None,
            Some("port") => Some(false),
            Some("sandbox") => Some(true),
            Some(_) => {
                problems.add("scope", "is neither port nor sandbox");
                None
            }
        },
    };
    if wishes.is_for_all_ports.is_some() && wishes.expires.is_none() {
        problems.add("scope", "is for a signed route, which needs expires");
    }
    if wishes.is_for_all_ports.is_some() && wishes.link {
        problems.add(
            "scope",
            "cannot be chosen for a link, which is for one port",
        );
    }
    problems.into_result(wishes).map_err(Error::query)
}

impl Wishes {
    /// Whether the gateway is asked for, if there is one. The egress API is this server's own, and nowhere else.
    fn by_gateway(&self, port: u16) -> bool {
        !self.use_server_proxy && port != EGRESS_PORT
    }

    /// The server's own paths know no signatures and no host names.
    fn check(&self, has_gateway: bool) -> Result<(), Error> {
        let refuse = |code, message: &str| {
            let message = message.to_owned();
            Err(Error::BadRequest { code, message })
        };
        match self {
            Self {
                expires: Some(_),
                use_server_proxy: true,
                ..
            } => refuse(
                ErrorCode::SandboxInvalidParameter,
                "expires: routes through the server's own proxy are not signed; leave out \
                 use_server_proxy",
            ),
            Self {
                expires: Some(_), ..
            } if !has_gateway => refuse(
                ErrorCode::SandboxApiNotSupported,
                "expires: signed endpoints need an ingress gateway; set ingress.mode = \"gateway\"",
            ),
            Self { link: true, .. } if !has_gateway => refuse(
                ErrorCode::SandboxApiNotSupported,
                "link: pages get host names of their own from the ingress gateway; set \
                 ingress.mode = \"gateway\"",
            ),
            _ => Ok(()),
        }
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
