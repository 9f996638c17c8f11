//! Routes to a port of a sandbox, in a host name, a header or a path, with or without a
//! signature that lets whoever holds the address in until it expires.
//!
//! Signatures have two versions: [`v1`] is the published protocol's, kept bit for bit, and [`v2`] ours.

pub mod v1;
pub mod v2;

use std::fmt;

/// The longest expiry, 2^64 - 1, in base 36.
const EXPIRY_DIGITS_MAX: usize = 13;

/// A route is at most this long: longer ones are not looked at.
const ROUTE_BYTES_MAX: usize = 512;

/// A port of a sandbox, and perhaps a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The sandbox's id, as it was written. Whether there is one is not known here.
    pub sandbox_id: String,
    /// The port.
    pub port: u16,
    /// The signature, where there is one.
    pub signature: Option<Signature>,
}

/// A signature of either version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signature {
    /// The published protocol's.
    V1(v1::Signature),
    /// Ours, which is longer than a label of a host name may be.
    V2(v2::Signature),
}

/// Why a text is not a route.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// It is too long to be one.
    #[error("the route is longer than {ROUTE_BYTES_MAX} characters")]
    TooLong,
    /// It has no port.
    #[error("the route has no port; it must be <sandbox id>-<port> or /<sandbox id>/<port>")]
    NoPort,
    /// Its port is not one.
    #[error("the route's port is not a number from 1 to 65535")]
    BadPort,
    /// It has a slash, which no host name has.
    #[error("the route has a slash; in a host name it must be <sandbox id>-<port>")]
    NotAHost,
    /// It has no id.
    #[error("the route names no sandbox; it must be <sandbox id>-<port> or /<sandbox id>/<port>")]
    NoSandbox,
}

/// Why a signature does not let anyone in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// It is not what the key makes of the route.
    #[error("the route's signature is wrong")]
    Wrong,
    /// It was right once.
    #[error("the route's signature has expired; ask for a new endpoint")]
    Expired,
}

impl Signature {
    /// Until when it holds, in Unix seconds.
    pub fn expires(&self) -> u64 {
        match self {
            Self::V1(signature) => signature.expires,
            Self::V2(signature) => signature.expires,
        }
    }

    /// Reads the last two parts of a signed route.
    fn parse(expires: &str, text: &str) -> Option<Self> {
        let v1 = || v1::Signature::parse(expires, text).map(Self::V1);
        v1().or_else(|| v2::Signature::parse(expires, text).map(Self::V2))
    }
}

impl fmt::Display for Signature {
    /// Without the expiry.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V1(signature) => signature.fmt(f),
            Self::V2(signature) => signature.fmt(f),
        }
    }
}

/// Whether a byte may name a key.
fn is_key_id(byte: u8) -> bool {
    byte.is_ascii_digit() || byte.is_ascii_lowercase()
}

impl Route {
    /// Reads a route from a host name or from the header that stands for one: up to the first
    /// dot, `<id>-<port>` or `<id>-<port>-<expiry>-<signature>`. The id may hold dashes.
    pub fn parse_host(text: &str) -> Result<Self, RouteError> {
        check_length(text)?;
        let without_scheme = text
            .strip_prefix("https://")
            .or_else(|| text.strip_prefix("http://"))
            .unwrap_or(text);
        let label = without_scheme.split('.').next().unwrap_or_default();
        // No host name holds a slash; an id with one would not read back from a path either.
        if label.contains('/') {
            return Err(RouteError::NotAHost);
        }
        if let Some(signed) = parse_signed_label(label) {
            return Ok(signed);
        }
        let (sandbox_id, port) = label.rsplit_once('-').ok_or(RouteError::NoPort)?;
        Self::unsigned(sandbox_id, port)
    }

    /// Reads a route from a path: `/<id>/<port>` or `/<id>/<port>/<expiry>/<signature>`, and
    /// whatever follows, which is answered too and begins with `/`.
    ///
    /// A path that only looks signed may belong to a sandbox that needs no signature. Then read
    /// it again with [`Route::parse_path_unsigned`].
    pub fn parse_path(path: &str) -> Result<(Self, &str), RouteError> {
        let (route, rest) = Self::parse_path_unsigned(path)?;
        let mut parts = rest[1..].splitn(3, '/');
        let signature = match (parts.next(), parts.next()) {
            (Some(expires), Some(hash)) => Signature::parse(expires, hash),
            _ => None,
        };
        if signature.is_none() {
            return Ok((route, rest));
        }
        let rest = parts
            .next()
            .map_or("/", |after| &path[path.len() - after.len() - 1..]);
        Ok((Self { signature, ..route }, rest))
    }

    /// Reads `/<id>/<port>` and takes all that follows as the path behind it.
    pub fn parse_path_unsigned(path: &str) -> Result<(Self, &str), RouteError> {
        let without_slash = path.strip_prefix('/').unwrap_or(path);
        let (sandbox_id, after) = without_slash.split_once('/').ok_or(RouteError::NoPort)?;
        let (port, rest) = match after.find('/') {
            Some(slash) => after.split_at(slash),
            None => (after, "/"),
        };
        check_length(sandbox_id)?;
        Ok((Self::unsigned(sandbox_id, port)?, rest))
    }

    fn unsigned(sandbox_id: &str, port: &str) -> Result<Self, RouteError> {
        let port = parse_port(port).ok_or(RouteError::BadPort)?;
        if sandbox_id.is_empty() {
            return Err(RouteError::NoSandbox);
        }
        Ok(Self {
            sandbox_id: sandbox_id.to_owned(),
            port,
            signature: None,
        })
    }

    /// As a host name's first label or as the header that stands for it.
    pub fn host_label(&self) -> String {
        let Self {
            sandbox_id,
            port,
            signature,
        } = self;
        match signature {
            Some(signature) => {
                format!(
                    "{sandbox_id}-{port}-{}-{signature}",
                    to_base36(signature.expires())
                )
            }
            None => format!("{sandbox_id}-{port}"),
        }
    }

    /// As the beginning of a path.
    pub fn path(&self) -> String {
        let Self {
            sandbox_id,
            port,
            signature,
        } = self;
        match signature {
            Some(signature) => {
                format!(
                    "/{sandbox_id}/{port}/{}/{signature}",
                    to_base36(signature.expires())
                )
            }
            None => format!("/{sandbox_id}/{port}"),
        }
    }
}

fn check_length(text: &str) -> Result<(), RouteError> {
    if text.len() > ROUTE_BYTES_MAX {
        Err(RouteError::TooLong)
    } else {
        Ok(())
    }
}

fn parse_signed_label(label: &str) -> Option<Route> {
    let mut parts = label.rsplitn(4, '-');
    let (hash, expires, port, sandbox_id) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let signature = Some(Signature::parse(expires, hash)?);
    let port = parse_port(port)?;
    let is_named = !sandbox_id.is_empty();
    is_named.then(|| Route {
        sandbox_id: sandbox_id.to_owned(),
        port,
        signature,
    })
}

/// A port has no sign and no zeros in front, so that each has one spelling.
fn parse_port(text: &str) -> Option<u16> {
    let is_canonical = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_canonical)
}

/// A number in lower case base 36, without zeros in front.
pub fn to_base36(mut number: u64) -> String {
    let mut digits = Vec::with_capacity(EXPIRY_DIGITS_MAX);
    loop {
        let digit = (number % 36) as u8;
        digits.push(if digit < 10 {
            b'0' + digit
        } else {
            b'a' + digit - 10
        });
        number /= 36;
        if number == 0 {
            break;
        }
    }
    digits.iter().rev().map(|byte| char::from(*byte)).collect()
}

/// Reads what [`to_base36`] writes, and nothing else.
pub fn from_base36(text: &str) -> Option<u64> {
    let has_needless_zero = text.len() > 1 && text.starts_with('0');
    if text.is_empty() || text.len() > EXPIRY_DIGITS_MAX || has_needless_zero {
        return None;
    }
    text.bytes().try_fold(0_u64, |number, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'z' => byte - b'a' + 10,
            _ => return None,
        };
        number.checked_mul(36)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn signed(secret: &[u8], id: &str, port: u16, expires: u64, key_id: char) -> Route {
        let signature = v1::Signature::sign(secret, key_id, id, port, expires).map(Signature::V1);
        Route {
            sandbox_id: id.to_owned(),
            port,
            signature,
        }
    }

    #[test]
    fn signatures_are_those_of_the_published_server() {
        let route = signed(b"test-secret-bytes", "my-sandbox", 9000, 2_000_000_000, 'z');
        assert_eq!(route.host_label(), "my-sandbox-9000-x2qxvk-8e1e06e3z");
        let route = signed(&[1, 2, 3], "sb", 42, 0, 'a');
        assert_eq!(route.path(), "/sb/42/0/8ccd73a1a");
        assert_eq!(to_base36(u64::MAX), "3w5e11264sgsf");
        assert_eq!(v1::Signature::sign(b"x", 'A', "a", 1, 0), None);
    }

    #[test]
    fn a_signature_holds_for_one_route_until_it_expires() {
        let signature = v1::Signature::sign(b"secret", 'k', "a", 80, 100).unwrap();
        assert_eq!(signature.verify(b"secret", "a", 80, 100), Ok(()));
        assert_eq!(
            signature.verify(b"secret", "a", 80, 101),
            Err(VerifyError::Expired)
        );
        assert_eq!(
            signature.verify(b"other", "a", 80, 1),
            Err(VerifyError::Wrong)
        );
        assert_eq!(
            signature.verify(b"secret", "b", 80, 1),
            Err(VerifyError::Wrong)
        );
        assert_eq!(
            signature.verify(b"secret", "a", 81, 1),
            Err(VerifyError::Wrong)
        );
        let mut later = signature;
        later.expires = 101;
        assert_eq!(later.verify(b"secret", "a", 80, 1), Err(VerifyError::Wrong));
    }

    #[test]
    fn hosts_are_read_with_or_without_a_signature() {
        let plain = Route {
            sandbox_id: "a-b".into(),
            port: 8080,
            signature: None,
        };
        for text in ["a-b-8080", "a-b-8080.example.com", "https://a-b-8080.x.y"] {
            assert_eq!(Route::parse_host(text).as_ref(), Ok(&plain), "{text}");
        }
        // Four parts that are not signed are an id with dashes.
        let four = Route::parse_host("a-b-c-80").unwrap();
        assert_eq!((four.sandbox_id.as_str(), four.port), ("a-b-c", 80));
        assert_eq!(Route::parse_host("abc"), Err(RouteError::NoPort));
        assert_eq!(Route::parse_host("-80"), Err(RouteError::NoSandbox));
        for text in ["a-0", "a-65536", "a-+80", "a-080", "a-", "a-x"] {
            assert_eq!(Route::parse_host(text), Err(RouteError::BadPort), "{text}");
        }
        for text in ["http://https://-3", "a/b-80", "a/b-80-0-8ccd73a1a"] {
            assert_eq!(Route::parse_host(text), Err(RouteError::NotAHost), "{text}");
        }
        assert_eq!(
            Route::parse_host(&"a".repeat(600)),
            Err(RouteError::TooLong)
        );
    }

    #[test]
    fn paths_keep_what_follows_the_route() {
        let read = |path| Route::parse_path(path).map(|(route, rest)| (route.host_label(), rest));
        assert_eq!(read("/a/80"), Ok(("a-80".into(), "/")));
        assert_eq!(read("/a/80/x/y"), Ok(("a-80".into(), "/x/y")));
        assert_eq!(
            read("/a/80/0/8ccd73a1a"),
            Ok(("a-80-0-8ccd73a1a".into(), "/"))
        );
        assert_eq!(
            read("/a/80/0/8ccd73a1a/x//y"),
            Ok(("a-80-0-8ccd73a1a".into(), "/x//y"))
        );
        let (route, rest) = Route::parse_path_unsigned("/a/80/0/8ccd73a1a/x").unwrap();
        assert_eq!((route.signature, rest), (None, "/0/8ccd73a1a/x"));
        assert_eq!(read("/a"), Err(RouteError::NoPort));
        assert_eq!(read("//80"), Err(RouteError::NoSandbox));
    }

    proptest! {
        #[test]
        fn routes_read_back(
            id in "[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?",
            port in 1_u16..,
            expires in any::<u64>(),
            is_signed in any::<bool>(),
            rest in "(/[a-z/]{0,10})?",
        ) {
            let mut route = signed(b"key", &id, port, expires, '7');
            if !is_signed {
                route.signature = None;
            }
            let path = route.path();
            prop_assert_eq!(Route::parse_path(&path), Ok((route.clone(), "/")));
            let path = format!("{path}{rest}");
            let (read, behind) = Route::parse_path(&path).unwrap();
            prop_assert_eq!(&read.sandbox_id, &id);
            if is_signed {
                prop_assert_eq!(Route::parse_host(&route.host_label()), Ok(route));
                prop_assert_eq!(behind, if rest.is_empty() { "/" } else { &rest });
            }
        }

        #[test]
        fn base_36_reads_back(number in any::<u64>(), text in any::<String>()) {
            prop_assert_eq!(from_base36(&to_base36(number)), Some(number));
            if let Some(number) = from_base36(&text) {
                prop_assert_eq!(to_base36(number), text);
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            let _ = (Route::parse_host(&text), Route::parse_path(&text));
        }
    }
}
