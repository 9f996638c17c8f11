//! Image references: `python`, `python:3.11`, `ghcr.io/org/tool@sha256:…`.
//!
//! The grammar and the short names are those of `docker pull`: a first part with a dot, a colon or
//! an upper-case letter, or the name `localhost`, is a registry; without one the default registry
//! is meant; a name of one part on `docker.io` lies in `library/`. Whether the image exists is not
//! known here, nor which digest algorithms a backend can check.

use std::fmt;
use std::str::FromStr;

use crate::problem::Excerpt;

/// Docker Hub: the registry of short names, unless the operator chose another.
pub const DEFAULT_REGISTRY: &str = "docker.io";

/// The host on which Docker Hub serves its API, and its other name in references.
const DEFAULT_REGISTRY_HOST: &str = "index.docker.io";

/// The tag of a reference that has neither tag nor digest.
pub const DEFAULT_TAG: &str = "latest";

/// Registry and repository together are at most this long, as in Docker.
const NAME_BYTES_MAX: usize = 255;

/// A tag is at most this long, as the distribution specification says.
const TAG_BYTES_MAX: usize = 128;

/// Longer than any name, tag and digest together.
const REFERENCE_BYTES_MAX: usize = 1024;

/// Where an image is, in full.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ImageReference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<String>,
}

/// Why a text is not an image reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{written} is not an image reference: {reason}; write one such as python:3.11, \
     ghcr.io/org/tool:1.2 or alpine@sha256:<64 hex digits>"
)]
pub struct ParseImageReferenceError {
    written: String,
    reason: &'static str,
}

impl ParseImageReferenceError {
    /// What is wrong, without the text itself.
    pub fn reason(&self) -> &'static str {
        self.reason
    }
}

impl ImageReference {
    /// Reads a reference whose registry, where it names none, is `default_registry`.
    pub fn parse_with_registry(
        text: &str,
        default_registry: &str,
    ) -> Result<Self, ParseImageReferenceError> {
        parse(text, default_registry).map_err(|reason| ParseImageReferenceError {
            written: Excerpt(text).to_string(),
            reason,
        })
    }

    /// The same reference, with the tag `latest` if it has neither tag nor digest.
    #[must_use]
    pub fn with_default_tag(mut self) -> Self {
        if self.tag.is_none() && self.digest.is_none() {
            self.tag = Some(DEFAULT_TAG.to_owned());
        }
        self
    }

    /// The registry's host, with its port: `docker.io`, `localhost:5000`.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The host, with its port, that serves the registry's API.
    pub fn api_host(&self) -> &str {
        match self.registry.as_str() {
            DEFAULT_REGISTRY => DEFAULT_REGISTRY_HOST,
            registry => registry,
        }
    }

    /// The repository in that registry: `library/python`.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag, as it was written.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest, as `sha256:…`.
    pub fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }

    /// What to ask the registry for: the digest, else the tag, else `latest`.
    pub fn version(&self) -> &str {
        self.digest().or(self.tag()).unwrap_or(DEFAULT_TAG)
    }

    /// As users write it: without the default registry and its `library/`, unless what is left would
    /// be read as another registry's.
    pub fn familiar(&self) -> String {
        let short = match self.repository.strip_prefix("library/") {
            Some(rest) if !rest.contains('/') => rest,
            _ => &self.repository,
        };
        let is_misread = short
            .split_once('/')
            .is_some_and(|(first, _)| names_registry(first));
        if self.registry != DEFAULT_REGISTRY || is_misread {
            return self.to_string();
        }
        format!("{short}{}", Suffix(self))
    }
}

impl FromStr for ImageReference {
    type Err = ParseImageReferenceError;

    fn from_str(text: &str) -> Result<Self, ParseImageReferenceError> {
        Self::parse_with_registry(text, DEFAULT_REGISTRY)
    }
}

fn parse(text: &str, default_registry: &str) -> Result<ImageReference, &'static str> {
    if text.is_empty() {
        return Err("it is empty");
    }
    if text.len() > REFERENCE_BYTES_MAX {
        return Err("it is too long");
    }
    if text.contains("://") {
        return Err("it has a scheme");
    }
    let (name_and_tag, digest) = match text.split_once('@') {
        Some((rest, digest)) => (rest, Some(check_digest(digest)?)),
        None => (text, None),
    };
    let (name, tag) = split_tag(name_and_tag)?;
    let (registry, repository) = split_registry(name, default_registry)?;
    if registry.len() + 1 + repository.len() > NAME_BYTES_MAX {
        return Err("registry and repository have more than 255 characters");
    }
    if !repository.split('/').all(is_component) {
        return Err("the repository has other characters than a-z, 0-9, '.', '_', '-' and '/'");
    }
    Ok(ImageReference {
        registry: registry.to_owned(),
        repository,
        tag: tag.map(str::to_owned),
        digest: digest.map(str::to_owned),
    })
}

/// A colon before the last slash belongs to a port.
fn split_tag(text: &str) -> Result<(&str, Option<&str>), &'static str> {
    let name_start = text.rfind('/').map_or(0, |slash| slash + 1);
    let Some(colon) = text[name_start..].find(':') else {
        return Ok((text, None));
    };
    let (name, tag) = text.split_at(name_start + colon);
    let tag = &tag[1..];
    let begins_well = tag.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    if !begins_well || tag.len() > TAG_BYTES_MAX || !tag.bytes().all(legal) {
        return Err("the tag is not 1 to 128 characters of A-Z, a-z, 0-9, '_', '.' and '-'");
    }
    Ok((name, Some(tag)))
}

/// Whether the first part of a name is a registry: when it looks like a host and not like a part of
/// a repository.
fn names_registry(first: &str) -> bool {
    let has_upper_case = first.bytes().any(|b| b.is_ascii_uppercase());
    first.contains(['.', ':']) || first == "localhost" || has_upper_case
}

fn split_registry<'a>(
    name: &'a str,
    default_registry: &'a str,
) -> Result<(&'a str, String), &'static str> {
    let first_and_rest = name
        .split_once('/')
        .filter(|(first, _)| names_registry(first));
    let (registry, repository) = match first_and_rest {
        Some((registry, rest)) => (registry, rest),
        None => (default_registry, name),
    };
    if !is_registry(registry) {
        return Err("the registry is not a host name with an optional port");
    }
    let registry = if registry == DEFAULT_REGISTRY_HOST {
        DEFAULT_REGISTRY
    } else {
        registry
    };
    if registry == DEFAULT_REGISTRY && !repository.contains('/') {
        return Ok((registry, format!("library/{repository}")));
    }
    Ok((registry, repository.to_owned()))
}

fn is_registry(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[') {
        // An address of IPv6 stands in brackets.
        Some(rest) => match rest.split_once(']') {
            Some((address, "")) => return address.parse::<std::net::Ipv6Addr>().is_ok(),
            Some((address, port)) => {
                let is_address = address.parse::<std::net::Ipv6Addr>().is_ok();
                return is_address && port.strip_prefix(':').is_some_and(is_port);
            }
            None => return false,
        },
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let is_label = |label: &str| {
        let legal = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(legal)
    };
    host.split('.').all(is_label) && port.is_none_or(is_port)
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Letters and digits, with `.`, `_`, `__` or dashes between them.
fn is_component(text: &str) -> bool {
    let is_plain = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9');
    let bytes = text.as_bytes();
    let ends_well = |byte: Option<&u8>| byte.is_some_and(is_plain);
    let separators = bytes.split(is_plain).filter(|run| !run.is_empty());
    let is_separator =
        |run: &[u8]| matches!(run, b"." | b"_" | b"__") || run.iter().all(|byte| *byte == b'-');
    ends_well(bytes.first()) && ends_well(bytes.last()) && separators.into_iter().all(is_separator)
}

fn check_digest(text: &str) -> Result<&str, &'static str> {
    const WRONG: &str = "the digest is not an algorithm, a colon and its hex digits";
    let (algorithm, hex) = text.split_once(':').ok_or(WRONG)?;
    let is_hex = hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let is_right = match algorithm {
        "sha256" => is_hex && hex.len() == 64,
        "sha384" => is_hex && hex.len() == 96,
        "sha512" => is_hex && hex.len() == 128,
        _ => false,
    };
    if is_right { Ok(text) } else { Err(WRONG) }
}

/// Tag and digest, as written.
struct Suffix<'a>(&'a ImageReference);

impl fmt::Display for Suffix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(tag) = self.0.tag() {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = self.0.digest() {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}{}", self.registry, self.repository, Suffix(self))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[track_caller]
    fn check(text: &str, full: &str, familiar: &str) {
        let reference: ImageReference = text.parse().unwrap();
        assert_eq!(
            (reference.to_string(), reference.familiar()),
            (full.into(), familiar.into())
        );
    }

    #[test]
    fn short_names_are_docker_hub() {
        check(
            "docker.io/er.io/o",
            "docker.io/er.io/o",
            "docker.io/er.io/o",
        );
        check("python", "docker.io/library/python", "python");
        check(
            "python:3.11",
            "docker.io/library/python:3.11",
            "python:3.11",
        );
        check("org/tool", "docker.io/org/tool", "org/tool");
        check("docker.io/python", "docker.io/library/python", "python");
        check("index.docker.io/a/b:c", "docker.io/a/b:c", "a/b:c");
        check("localhost/a", "localhost/a", "localhost/a");
        check("a/b/c", "docker.io/a/b/c", "a/b/c");
    }

    #[test]
    fn registries_ports_tags_and_digests_are_told_apart() {
        check(
            "localhost:5000/a:b",
            "localhost:5000/a:b",
            "localhost:5000/a:b",
        );
        check("ghcr.io/o/t", "ghcr.io/o/t", "ghcr.io/o/t");
        check("[::1]:5000/a", "[::1]:5000/a", "[::1]:5000/a");
        let both = format!("alpine:3@sha256:{HEX}");
        check(&both, &format!("docker.io/library/{both}"), &both);
        let reference: ImageReference = both.parse().unwrap();
        assert_eq!(reference.version(), format!("sha256:{HEX}"));
        assert_eq!(
            "alpine".parse::<ImageReference>().unwrap().version(),
            "latest"
        );
        check("o/a--b__c.d", "docker.io/o/a--b__c.d", "o/a--b__c.d");
    }

    #[test]
    fn digests_of_every_registered_algorithm_are_read() {
        for (algorithm, digits) in [("sha256", 64), ("sha384", 96), ("sha512", 128)] {
            let digest = format!("{algorithm}:{}", "0a".repeat(digits / 2));
            let reference: ImageReference = format!("a@{digest}").parse().unwrap();
            assert_eq!(reference.digest(), Some(digest.as_str()));
            for wrong in [&digest[..digest.len() - 1], &digest.to_uppercase()] {
                assert!(
                    format!("a@{wrong}").parse::<ImageReference>().is_err(),
                    "{wrong}"
                );
            }
        }
    }

    /// As with Docker, no part of a repository has upper case, so a first part that has is a host.
    #[test]
    fn a_host_may_have_upper_case_and_a_repository_may_not() {
        check("Registry/app:1", "Registry/app:1", "Registry/app:1");
        check("GHCR.io/o/t", "GHCR.io/o/t", "GHCR.io/o/t");
        for text in ["App", "o/App", "ghcr.io/O/t"] {
            assert!(text.parse::<ImageReference>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_operator_chooses_the_registry_of_short_names() {
        let full = |text: &str, registry: &str| {
            let reference = ImageReference::parse_with_registry(text, registry).unwrap();
            reference.with_default_tag().to_string()
        };
        assert_eq!(
            full("app:1", "registry.example:5000"),
            "registry.example:5000/app:1"
        );
        assert_eq!(
            full("o/app", "registry.example:5000"),
            "registry.example:5000/o/app:latest"
        );
        assert_eq!(
            full("ghcr.io/o/t", "registry.example:5000"),
            "ghcr.io/o/t:latest"
        );
        assert_eq!(
            full("python", "index.docker.io"),
            "docker.io/library/python:latest"
        );
        let both = format!("a@sha256:{HEX}");
        assert_eq!(full(&both, "localhost"), format!("localhost/{both}"));
        assert!(ImageReference::parse_with_registry("a", "https://registry.example").is_err());
    }

    #[test]
    fn docker_hub_serves_its_api_on_another_host() {
        let host = |text: &str| {
            text.parse::<ImageReference>()
                .unwrap()
                .api_host()
                .to_owned()
        };
        assert_eq!(host("python"), "index.docker.io");
        assert_eq!(host("localhost:5000/python"), "localhost:5000");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "../etc",
            "a/../b",
            "a:/b",
            "a:-x",
            "a?x=1",
            "a#b",
            "a/b\0",
            "a_-b",
            "host.x:0/a",
            "x.y:+5/a",
            "",
            ":",
            "/",
            "a:",
            "a@",
            "A",
            "a b",
            "a//b",
            "a/",
            "/a",
            "-a",
            "a-",
            "a___b",
            "a._b",
            "https://ghcr.io/a",
            "a@sha256:12",
            "a:b:c",
            "ghcr.io:/a",
            "ghcr.io:99999/a",
            ".a",
            "[::1/a",
            "[x]:1/a",
            "-x.io/a",
            "a\n",
            "é",
            "a@md5:0123",
            "x..io/a",
        ] {
            assert!(text.parse::<ImageReference>().is_err(), "{text:?}");
        }
        assert!("a".repeat(300).parse::<ImageReference>().is_err());
        let long = "a/".repeat(100_000);
        assert!(
            long.parse::<ImageReference>()
                .unwrap_err()
                .to_string()
                .len()
                < 400
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            let _ = text.parse::<ImageReference>();
        }

        #[test]
        fn what_is_read_reads_back_in_both_forms(
            text in r"([a-z]{1,4}(\.[a-z]{1,3})?(:[0-9]{1,4})?/)?[a-z0-9._/-]{1,12}(:[A-Za-z0-9._-]{1,8})?",
        ) {
            if let Ok(reference) = text.parse::<ImageReference>() {
                prop_assert_eq!(&reference.to_string().parse::<ImageReference>().unwrap(), &reference);
                prop_assert_eq!(&reference.familiar().parse::<ImageReference>().unwrap(), &reference);
            }
        }
    }
}
