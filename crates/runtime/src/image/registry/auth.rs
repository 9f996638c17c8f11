//! How a registry lets us in: HTTP basic, or a bearer token from the service it names.

use std::sync::Mutex;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lifecycle::backend::RegistryAuth;
use reqwest::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Response, Url};
use secrecy::ExposeSecret as _;

use super::reach::Reach;
use super::{RequestError, bounded_body, innermost};

/// A token is a few kilobytes at most.
const TOKEN_BYTES_MAX: u64 = 256 << 10;

/// The `Authorization` header that worked last.
#[derive(Default)]
pub(super) struct Authorization {
    header: Mutex<Option<HeaderValue>>,
}

impl Authorization {
    pub(super) fn header(&self) -> Option<HeaderValue> {
        self.header.lock().expect("no panic while held").clone()
    }

    fn set(&self, text: &str) -> Result<(), RequestError> {
        let mut value = HeaderValue::from_str(text)
            .map_err(|_| RequestError::Broken("the token cannot be a header's value".to_owned()))?;
        value.set_sensitive(true);
        *self.header.lock().expect("no panic while held") = Some(value);
        Ok(())
    }

    /// Does what a refusal asks for, so that the next request may pass.
    pub(super) async fn answer(
        &self,
        http: &reqwest::Client,
        refusal: &Response,
        (api, reach): (&Url, &Reach),
        repository: &str,
        auth: Option<&RegistryAuth>,
    ) -> Result<(), RequestError> {
        let refused = || RequestError::Status(refusal.status(), "it wants credentials".to_owned());
        let challenges: Vec<Challenge> = refusal
            .headers()
            .get_all(WWW_AUTHENTICATE)
            .iter()
            .filter_map(|value| Challenge::parse(value.to_str().ok()?))
            .collect();
        if let Some(bearer) = challenges.iter().find(|c| c.scheme == "bearer") {
            let token = token(http, bearer, (api, reach), repository, auth).await?;
            return self.set(&format!("Bearer {token}"));
        }
        match auth {
            Some(auth) if challenges.iter().any(|c| c.scheme == "basic") => self.set(&basic(auth)),
            _ => Err(refused()),
        }
    }
}

fn basic(auth: &RegistryAuth) -> String {
    let pair = format!("{}:{}", auth.username, auth.password.expose_secret());
    format!("Basic {}", STANDARD.encode(pair))
}

/// Fetches a token that allows pulling this repository.
async fn token(
    http: &reqwest::Client,
    challenge: &Challenge,
    (api, reach): (&Url, &Reach),
    repository: &str,
    auth: Option<&RegistryAuth>,
) -> Result<String, RequestError> {
    #[derive(serde::Deserialize)]
    struct Answer {
        token: Option<String>,
        access_token: Option<String>,
    }
    let realm = challenge.get("realm").unwrap_or_default();
    let mut url = Url::parse(realm).map_err(|e| {
        RequestError::Broken(format!("its token service {realm:?} is no address: {e}"))
    })?;
    // Credentials that would have travelled by TLS must not be sent in the clear.
    if api.scheme() == "https" && url.scheme() != "https" {
        return Err(RequestError::Broken(format!(
            "its token service {realm:?} is not reached by TLS"
        )));
    }
    if !reach.may_ask(&url) {
        return Err(RequestError::Broken(format!(
            "its token service {realm:?} {}",
            super::reach::REFUSAL
        )));
    }
    if let Some(service) = challenge.get("service") {
        url.query_pairs_mut().append_pair("service", service);
    }
    url.query_pairs_mut()
        .append_pair("scope", &format!("repository:{repository}:pull"));
    let mut request = http.get(url);
    if let Some(auth) = auth {
        request = request.header(AUTHORIZATION, basic(auth));
    }
    let response = request.send().await.map_err(|e| {
        RequestError::Broken(format!("its token service failed: {}", innermost(&e)))
    })?;
    let status = response.status();
    if !status.is_success() {
        return Err(RequestError::Status(
            status,
            "its token service refused".to_owned(),
        ));
    }
    let bytes = bounded_body(response, TOKEN_BYTES_MAX).await?;
    serde_json::from_slice::<Answer>(&bytes)
        .ok()
        .and_then(|answer| answer.token.or(answer.access_token))
        .ok_or_else(|| RequestError::Broken("its token service gave no token".to_owned()))
}

/// One way to authenticate, from a `WWW-Authenticate` header.
#[derive(Debug, PartialEq, Eq)]
struct Challenge {
    /// In lower case.
    scheme: String,
    parameters: Vec<(String, String)>,
}

impl Challenge {
    /// Reads `Scheme key="value", key=value`. Registries send one challenge per header.
    fn parse(text: &str) -> Option<Self> {
        let (scheme, mut rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        let mut parameters = Vec::new();
        while let Some((key, after)) = rest.split_once('=') {
            let key = key.trim_matches([' ', ',']).to_ascii_lowercase();
            let (value, left) = match after.strip_prefix('"') {
                Some(quoted) => quoted_value(quoted)?,
                None => match after.split_once(',') {
                    Some((value, left)) => (value.trim().to_owned(), left),
                    None => (after.trim().to_owned(), ""),
                },
            };
            parameters.push((key, value));
            rest = left;
        }
        (!scheme.is_empty()).then(|| Self {
            scheme: scheme.to_ascii_lowercase(),
            parameters,
        })
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.parameters
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }
}

/// The value up to the closing quote, and what follows it.
fn quoted_value(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => {
                value.push(c);
                is_escaped = false;
            }
            '\\' => is_escaped = true,
            '"' => return Some((value, &text[at + 1..])),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read_as_registries_write_them() {
        let bearer = Challenge::parse(
            r#"Bearer realm="https://auth.example/token",service="registry, \"x\"",scope=a:b , error=x"#,
        )
        .unwrap();
        assert_eq!(bearer.scheme, "bearer");
        assert_eq!(bearer.get("realm"), Some("https://auth.example/token"));
        assert_eq!(bearer.get("service"), Some("registry, \"x\""));
        assert_eq!(bearer.get("scope"), Some("a:b"));
        assert_eq!(bearer.get("error"), Some("x"));
        assert_eq!(
            Challenge::parse("Basic realm=\"r\"").unwrap().scheme,
            "basic"
        );
        assert_eq!(Challenge::parse("Negotiate").unwrap().parameters, []);
        assert_eq!(Challenge::parse("Bearer realm=\"open"), None);
        assert_eq!(Challenge::parse(""), None);
    }

    #[tokio::test]
    async fn a_token_service_in_the_clear_gets_nothing_from_a_registry_with_tls() {
        let challenge = Challenge::parse("Bearer realm=\"http://127.0.0.1:1/token\"").unwrap();
        let api = Url::parse("https://registry.example/v2/").unwrap();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let reach = Reach::new(&crate::image::Config::default());
        let Err(RequestError::Broken(message)) =
            token(&http, &challenge, (&api, &reach), "a", None).await
        else {
            panic!("it was asked");
        };
        assert!(message.contains("not reached by TLS"), "{message}");
    }
}
