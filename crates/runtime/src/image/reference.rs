//! Image references: what a user writes, and the registry, repository and tag or digest it means.
//!
//! Follows the convention of `docker pull`: a first component with a dot, a colon, or the name
//! `localhost` is a registry; without one the default registry is meant; a single-component
//! name on `docker.io` lies in `library/`; a missing tag is `latest`.

use std::fmt;

use super::Error;
use super::digest::Digest;

/// The registry whose names may be short, and the host on which it answers its API.
const DOCKER_HUB: &str = "docker.io";
const DOCKER_HUB_API: &str = "index.docker.io";

/// A repository name is at most this long, by the distribution specification's recommendation.
const NAME_BYTES_MAX: usize = 255;
/// A tag is at most this long, by the distribution specification.
const TAG_BYTES_MAX: usize = 128;

/// A reference in full.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Reference {
    /// `host` or `host:port`.
    pub(super) registry: String,
    /// `library/python`.
    pub(super) repository: String,
    pub(super) tag: Option<String>,
    pub(super) digest: Option<Digest>,
}

impl Reference {
    pub(super) fn parse(text: &str, default_registry: &str) -> Result<Self, Error> {
        parse(text, default_registry).map_err(|message| Error::InvalidReference {
            reference: text.to_owned(),
            message: message.to_owned(),
        })
    }

    /// What stands after `/manifests/` in a request: the digest where there is one.
    pub(super) fn selector(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => "latest".to_owned(),
        }
    }

    /// The host that answers for this reference's registry.
    pub(super) fn api_host(&self) -> &str {
        if self.registry == DOCKER_HUB {
            DOCKER_HUB_API
        } else {
            &self.registry
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

fn parse(text: &str, default_registry: &str) -> Result<Reference, &'static str> {
    let (name, digest) = match text.split_once('@') {
        Some((name, digest)) => {
            let digest = digest
                .parse()
                .map_err(|_| "what follows '@' must be sha256: and 64 hex digits in lower case")?;
            (name, Some(digest))
        }
        None => (text, None),
    };
    let (registry, rest) = match name.split_once('/') {
        Some((first, rest)) if is_registry(first) => (first, rest),
        _ => (default_registry, name),
    };
    // A colon after the last slash begins the tag; one before it belongs to the registry's port.
    let (path, tag) = match rest.rsplit_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (rest, None),
    };
    if path.is_empty() {
        return Err("the name is empty; write it like python:3.11 or host:5000/team/app:1");
    }
    if let Some(tag) = tag {
        check_tag(tag)?;
    }
    check_registry(registry)?;
    for component in path.split('/') {
        check_component(component)?;
    }
    let repository = if registry == DOCKER_HUB && !path.contains('/') {
        format!("library/{path}")
    } else {
        path.to_owned()
    };
    if registry.len() + repository.len() > NAME_BYTES_MAX {
        return Err("the name is longer than 255 characters");
    }
    let tag = match (tag, digest) {
        (None, None) => Some("latest".to_owned()),
        (tag, _) => tag.map(str::to_owned),
    };
    let registry = if registry == DOCKER_HUB_API {
        DOCKER_HUB
    } else {
        registry
    };
    Ok(Reference {
        registry: registry.to_owned(),
        repository,
        tag,
        digest,
    })
}

fn is_registry(first: &str) -> bool {
    first == "localhost"
        || first.contains(['.', ':'])
        || first.bytes().any(|b| b.is_ascii_uppercase())
}

fn check_registry(registry: &str) -> Result<(), &'static str> {
    let (host, port) = match registry.rsplit_once(':') {
        Some((host, port)) if !registry.ends_with(']') => (host, Some(port)),
        _ => (registry, None),
    };
    let is_port = |port: &str| !port.starts_with('+') && port.parse::<u16>().is_ok_and(|p| p != 0);
    if port.is_some_and(|port| !is_port(port)) {
        return Err("the registry's port is not a number from 1 to 65535");
    }
    let is_ipv6 = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .is_some_and(|host| host.parse::<std::net::Ipv6Addr>().is_ok());
    let is_name = !host.is_empty()
        && host.split('.').all(|label| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-')
        });
    if is_ipv6 || is_name {
        Ok(())
    } else {
        Err("the registry is not a host name")
    }
}

fn check_component(component: &str) -> Result<(), &'static str> {
    const RULE: &str = "each part of the name has lower-case letters and digits, joined by single \
                        '.', '_', '__' or dashes";
    let alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = component.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return Err("the name has an empty part; look for a doubled or trailing '/'");
    };
    if !alphanumeric(first) || !alphanumeric(last) {
        return Err(RULE);
    }
    let separators = component.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    let legal = |s: &str| matches!(s, "" | "." | "_" | "__") || s.bytes().all(|b| b == b'-');
    if separators.into_iter().all(legal) {
        Ok(())
    } else {
        Err(RULE)
    }
}

fn check_tag(tag: &str) -> Result<(), &'static str> {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let begins_well = tag.bytes().next().is_some_and(word);
    let legal = tag.bytes().all(|b| word(b) || matches!(b, b'.' | b'-'));
    if begins_well && legal && tag.len() <= TAG_BYTES_MAX {
        Ok(())
    } else {
        Err(
            "a tag has 1 to 128 letters, digits, '_', '.' and '-', and begins with none of the last two",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(text: &str) -> String {
        Reference::parse(text, "docker.io").map_or_else(|e| e.to_string(), |r| r.to_string())
    }

    #[test]
    fn short_names_mean_the_default_registry() {
        assert_eq!(full("python"), "docker.io/library/python:latest");
        assert_eq!(full("python:3.11"), "docker.io/library/python:3.11");
        assert_eq!(full("team/app"), "docker.io/team/app:latest");
        assert_eq!(full("index.docker.io/library/a:1"), "docker.io/library/a:1");
        let own = Reference::parse("app:1", "registry.example:5000").unwrap();
        assert_eq!(own.to_string(), "registry.example:5000/app:1");
    }

    #[test]
    fn a_registry_is_known_by_its_first_component() {
        assert_eq!(full("localhost/app"), "localhost/app:latest");
        assert_eq!(full("127.0.0.1:5000/a/b:c"), "127.0.0.1:5000/a/b:c");
        assert_eq!(full("[::1]:5000/a"), "[::1]:5000/a:latest");
        assert_eq!(
            full("ghcr.example/a__b/c-d:v_1.2"),
            "ghcr.example/a__b/c-d:v_1.2"
        );
    }

    #[test]
    fn a_digest_replaces_the_latest_tag() {
        let digest = Digest::of(b"x");
        assert_eq!(
            full(&format!("a@{digest}")),
            format!("docker.io/library/a@{digest}")
        );
        assert_eq!(
            full(&format!("a:1@{digest}")),
            format!("docker.io/library/a:1@{digest}")
        );
        let both = Reference::parse(&format!("a:1@{digest}"), "docker.io").unwrap();
        assert_eq!(both.selector(), digest.to_string());
    }

    #[test]
    fn what_is_not_a_reference_is_refused() {
        for bad in [
            "",
            ":",
            "/",
            "a/",
            "/a",
            "a//b",
            "A",
            "a:",
            "a:/b",
            "a b",
            "../etc",
            "a/../b",
            "a:-x",
            "a@sha256:12",
            "a@md5:00",
            "http://a/b",
            "host.x:0/a",
            "host.x:99999/a",
            "-a.x/b",
            "a_-b",
            "a/b\0",
            "a?x=1",
            "a#b",
            "é",
            "x.y:+5/a",
            "[::g]:5/a",
        ] {
            let result = Reference::parse(bad, "docker.io");
            assert!(
                matches!(result, Err(Error::InvalidReference { .. })),
                "{bad:?}: {result:?}"
            );
        }
    }
}
