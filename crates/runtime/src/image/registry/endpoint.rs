//! One host that answers the registry protocol: a mirror, or the registry itself.
//!
//! Decides whether it is spoken to with TLS. Makes no request.

use std::net::IpAddr;

use reqwest::Url;

use super::auth::Authorization;
use crate::image::{Config, Error};

pub(super) struct Endpoint {
    /// `host[:port]`, for messages.
    pub(super) host: String,
    /// Ends in `/v2/`.
    pub(super) api: Url,
    pub(super) is_origin: bool,
    pub(super) is_loopback: bool,
    pub(super) authorization: Authorization,
}

impl Endpoint {
    pub(super) fn new(address: &str, is_origin: bool, config: &Config) -> Result<Self, Error> {
        let invalid = |message: &str| Error::InvalidReference {
            reference: address.to_owned(),
            message: message.to_owned(),
        };
        let parse = |text: &str| {
            Url::parse(text).map_err(|e| invalid(&format!("it is not a registry's address: {e}")))
        };
        let mut api = if address.contains("://") {
            parse(address)?
        } else {
            let probe = parse(&format!("https://{address}"))?;
            let is_insecure = |entry: &String| entry == address || probe.host_str() == Some(entry);
            // On loopback nobody listens in; whether it is reached at all is `reach`'s to say.
            let is_plain =
                is_loopback(&probe) || config.insecure_registries.iter().any(is_insecure);
            parse(&format!(
                "{}://{address}",
                if is_plain { "http" } else { "https" }
            ))?
        };
        if !matches!(api.scheme(), "http" | "https") || api.cannot_be_a_base() {
            return Err(invalid("a registry is reached by http or https"));
        }
        let prefix = api.path().trim_end_matches('/').to_owned();
        api.set_path(&format!("{prefix}/v2/"));
        let mut host = api.host_str().unwrap_or_default().to_owned();
        if let Some(port) = api.port() {
            host = format!("{host}:{port}");
        }
        let is_loopback = is_loopback(&api);
        Ok(Self {
            host,
            api,
            is_origin,
            is_loopback,
            authorization: Authorization::default(),
        })
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_and_what_the_operator_names_goes_without_tls() {
        let config = Config {
            insecure_registries: vec!["plain.example".to_owned(), "10.0.0.1:5000".to_owned()],
            ..Config::default()
        };
        let api = |address: &str| Endpoint::new(address, true, &config).map(|e| e.api.to_string());
        for (address, expected) in [
            ("registry.example", "https://registry.example/v2/"),
            ("registry.example:5000", "https://registry.example:5000/v2/"),
            ("localhost:5000", "http://localhost:5000/v2/"),
            ("127.0.0.2:5000", "http://127.0.0.2:5000/v2/"),
            ("[::1]:5000", "http://[::1]:5000/v2/"),
            ("plain.example:80", "http://plain.example/v2/"),
            ("10.0.0.1:5000", "http://10.0.0.1:5000/v2/"),
            ("10.0.0.1:5001", "https://10.0.0.1:5001/v2/"),
            ("127.0.0.1.example", "https://127.0.0.1.example/v2/"),
            (
                "https://127.0.0.1:5000/mirror/",
                "https://127.0.0.1:5000/mirror/v2/",
            ),
        ] {
            assert_eq!(api(address).unwrap(), expected, "{address}");
        }
        for bad in ["ftp://x", "", "http://"] {
            assert!(api(bad).is_err(), "{bad}");
        }
    }
}
