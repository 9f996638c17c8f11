//! Which published SDK sends a request, by its `User-Agent`: what one of them cannot read, it is told otherwise.
//!
//! Nothing is allowed or refused by this: anybody can send any name.

use http::HeaderMap;
use http::header::USER_AGENT;

/// The products of a `User-Agent` that are published SDKs, each with its name and version: of
/// `OpenSandbox-Python-SDK/1.1.1` `Python` and `1.1.1`.
fn products(agent: &str) -> impl Iterator<Item = (&str, &str)> {
    agent.split_whitespace().filter_map(|product| {
        let (name, version) = product.split_once('/')?;
        let (maker, rest) = name.split_once('-')?;
        let (language, kind) = rest.rsplit_once('-')?;
        let is_sdk = maker.eq_ignore_ascii_case("opensandbox") && kind.eq_ignore_ascii_case("sdk");
        is_sdk.then_some((language, version))
    })
}

/// Whether this `User-Agent` is one of a published SDK.
pub(crate) fn is_sdk(agent: &str) -> bool {
    products(agent).next().is_some()
}

/// The first two numbers of the version, if the request is of the published SDK of this language.
pub(crate) fn sdk_version(headers: &HeaderMap, language: &str) -> Option<(u32, u32)> {
    let agent = headers.get(USER_AGENT)?.to_str().ok()?;
    let (_, version) = products(agent).find(|(it, _)| it.eq_ignore_ascii_case(language))?;
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_sdks_are_known_by_name_and_version() {
        let version = |agent: &str| {
            let headers = HeaderMap::from_iter([(USER_AGENT, agent.parse().unwrap())]);
            sdk_version(&headers, "python")
        };
        assert_eq!(version("OpenSandbox-Python-SDK/0.1.10"), Some((0, 1)));
        assert_eq!(
            version("x/1 opensandbox-python-sdk/1.1.1-rc.1"),
            Some((1, 1))
        );
        for other in [
            "OpenSandbox-Go-SDK/1.0.1",
            "osb-python/0.1.0",
            "OpenSandbox-Python-SDK/x",
            "curl/8",
        ] {
            assert_eq!(version(other), None, "{other}");
        }
        assert!(is_sdk("OpenSandbox-Go-SDK/1.0.1"));
        assert!(!is_sdk("opensandbox-rust/0.1.0") && !is_sdk("opensandbox-sdk/1"));
    }
}
