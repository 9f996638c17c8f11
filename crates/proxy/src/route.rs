//! Which sandbox, port and path a proxied request is for, by the path of its target.

use api::id::SandboxId;

/// Where a proxied request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The sandbox.
    pub id: SandboxId,
    /// The port in the sandbox.
    pub port: u16,
    /// The part of the path that belongs to the proxy, without a slash at its end.
    pub prefix: String,
    /// The rest with the query, percent-encoded as the client sent it; empty or beginning with a
    /// slash or a question mark.
    pub path: String,
}

impl Route {
    /// Whether a request's target is in a sandbox, well-formed or not.
    pub fn is_for(target: &str) -> bool {
        let path = path_of(target);
        let inner = path.strip_prefix("/v1").unwrap_or(path);
        let Some(rest) = inner.strip_prefix("/sandboxes/") else {
            return false;
        };
        rest.split_once('/')
            .and_then(|(_, rest)| rest.strip_prefix("proxy/"))
            .is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
    }

    /// Whether a request's target is this port of a sandbox.
    pub fn is_for_port(target: &str, port: u16) -> bool {
        let Some((_, rest)) = path_of(target).split_once("/proxy/") else {
            return false;
        };
        Self::is_for(target) && parse_port(rest.split('/').next().unwrap_or(rest)) == Some(port)
    }

    /// Reads `[/v1]/sandboxes/{id}/proxy/{port}[/…][?…]`.
    pub fn parse(target: &str) -> Result<Self, &'static str> {
        const FORM: &str = "a proxied path is /sandboxes/{id}/proxy/{port}/…";
        // A fragment is not part of a target (RFC 9112 3.2); some clients send one.
        let target = target.split('#').next().unwrap_or(target);
        let path = without_origin(target);
        if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("the path has characters that must be percent-encoded");
        }
        let inner = path.strip_prefix("/v1").unwrap_or(path);
        let rest = inner.strip_prefix("/sandboxes/").ok_or(FORM)?;
        let (id, rest) = rest.split_once("/proxy/").ok_or(FORM)?;
        let id = id
            .parse()
            .map_err(|_| "the sandbox id in the path is not an id")?;
        let digits = rest.split(['/', '?']).next().unwrap_or(rest);
        let port = parse_port(digits).ok_or("the port in the path must be from 1 to 65535")?;
        let (prefix, path) = path.split_at(path.len() - rest.len() + digits.len());
        Ok(Self {
            id,
            port,
            prefix: prefix.to_owned(),
            path: path.to_owned(),
        })
    }

    /// Whether it goes to the sandbox's daemon, which has this port number and no TCP port.
    pub fn is_control(&self) -> bool {
        self.port == api::exec::PORT
    }
}

/// A target may be in absolute form, as a client sends it to its proxy (RFC 9112 3.2.2).
fn without_origin(target: &str) -> &str {
    let rest = ["http://", "https://"].iter().find_map(|scheme| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    });
    rest.map_or(target, |rest| rest.find('/').map_or("/", |at| &rest[at..]))
}

fn path_of(target: &str) -> &str {
    let path = without_origin(target);
    path.split(['?', '#']).next().unwrap_or(path)
}

fn parse_port(digits: &str) -> Option<u16> {
    let is_plain = digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|port| is_plain && *port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_paths_and_keeps_their_encoding() {
        for (path, prefix, rest) in [
            (
                "/v1/sandboxes/a-1/proxy/8000",
                "/v1/sandboxes/a-1/proxy/8000",
                "",
            ),
            (
                "/sandboxes/a-1/proxy/8000/",
                "/sandboxes/a-1/proxy/8000",
                "/",
            ),
            (
                "/sandboxes/a-1/proxy/8000/x%2Fy//z",
                "/sandboxes/a-1/proxy/8000",
                "/x%2Fy//z",
            ),
            (
                "/sandboxes/a-1/proxy/8000?q=/x/proxy/1",
                "/sandboxes/a-1/proxy/8000",
                "?q=/x/proxy/1",
            ),
            (
                "http://host:1/v1/sandboxes/a-1/proxy/8000/x?y#z",
                "/v1/sandboxes/a-1/proxy/8000",
                "/x?y",
            ),
            (
                "/sandboxes/a-1/proxy/8000/proxy/9/",
                "/sandboxes/a-1/proxy/8000",
                "/proxy/9/",
            ),
        ] {
            assert!(Route::is_for(path), "{path}");
            assert!(
                Route::is_for_port(path, 8000) && !Route::is_for_port(path, 9),
                "{path}"
            );
            let route = Route::parse(path).unwrap();
            assert_eq!((route.id.as_str(), route.port), ("a-1", 8000), "{path}");
            assert_eq!((&*route.prefix, &*route.path), (prefix, rest), "{path}");
        }
    }

    #[test]
    fn refuses_what_names_no_port() {
        for path in [
            "/sandboxes/a/proxy/0",
            "/sandboxes/a/proxy/80/é",
            "/sandboxes/a?/proxy/80/",
            "/sandboxes/a/proxy/65536",
            "/sandboxes/a/proxy/+80",
            "/sandboxes/a/proxy/",
            "/sandboxes/a/proxy/x/80",
            "/sandboxes/a%2fb/proxy/80",
            "/sandboxes//proxy/80",
            "/boxes/a/proxy/80",
        ] {
            assert!(Route::parse(path).is_err(), "{path}");
        }
    }
}
