//! The client side of the registry protocol: manifests and blobs, with authentication, mirrors,
//! bounded retries and resumed downloads.
//!
//! Nothing that arrives here is believed before its digest is checked; what a manifest's tag
//! means is the one thing a registry is trusted with. Credentials go to the registry named in
//! the reference and to the token service it names, never to a mirror and never across a
//! redirect to another host. It knows nothing of layers or the store.

mod auth;
mod download;
mod endpoint;
mod failure;
mod reach;

pub(super) use download::WriteGuard;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::error_chain;
use api::image_reference::ImageReference;
use backon::{ExponentialBuilder, Retryable as _};
use lifecycle::backend::RegistryAuth;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Response, StatusCode, Url};

use super::digest::Digest;
use super::manifest;
use super::{Config, Error};
use endpoint::Endpoint;
use failure::{RequestError, innermost};
use reach::Reach;

/// A connection that is not there after this long will not come.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A registry that sends nothing for this long has hung; a slow one still sends.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Redirects of a blob to its storage: one is usual, a few are possible.
const REDIRECTS_MAX: usize = 5;
/// Attempts at one request or blob, the first included. With the waits between them a registry
/// has about three seconds to come back.
const ATTEMPTS_MAX: usize = 4;
const RETRY_WAIT_FIRST: Duration = Duration::from_millis(200);
const RETRY_WAIT_LONGEST: Duration = Duration::from_secs(3);

/// Attempts at a manifest where nobody answers at all. Whoever asked for the image gets the reason while the answer
/// to the creation is still held back: two attempts where nothing listens take 0.4 s at most, a mirror and the
/// registry together 0.8.
const UNREACHABLE_ATTEMPTS_MAX: usize = 2;
/// Registries accept manifests of at most 4 MiB.
const MANIFEST_BYTES_MAX: u64 = 4 << 20;
/// Of an error answer this much is read for its message.
const ERROR_BYTES_MAX: u64 = 16 << 10;

/// What all pulls share: connections.
#[derive(Debug)]
pub(super) struct Client {
    /// Goes through the proxy that the environment names.
    outside: OnceLock<reqwest::Client>,
    /// Never does: a proxy's loopback is not ours.
    loopback: OnceLock<reqwest::Client>,
    reach: Reach,
}

/// One pull's conversation with a registry and its mirrors.
pub(super) struct Session<'a> {
    client: &'a Client,
    reference: &'a ImageReference,
    auth: Option<&'a RegistryAuth>,
    /// Mirrors first, the registry itself last.
    endpoints: Vec<Endpoint>,
}

/// A manifest whose bytes fit its digest.
pub(super) struct Fetched {
    pub(super) bytes: Vec<u8>,
    pub(super) digest: Digest,
}

impl Client {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            outside: OnceLock::new(),
            loopback: OnceLock::new(),
            reach: Reach::new(config),
        }
    }

    pub(super) fn session<'a>(
        &'a self,
        config: &Config,
        reference: &'a ImageReference,
        auth: Option<&'a RegistryAuth>,
    ) -> Result<Session<'a>, Error> {
        let mirrors = config
            .mirrors
            .get(reference.registry())
            .into_iter()
            .flatten();
        let mut endpoints = Vec::new();
        for mirror in mirrors {
            endpoints.push(Endpoint::new(mirror, false, config)?);
        }
        let origin = Endpoint::new(reference.api_host(), true, config)?;
        if !self.reach.may_ask(&origin.api) {
            return Err(Error::Registry {
                registry: origin.host,
                message: format!("it {}", reach::REFUSAL),
                is_transient: false,
            });
        }
        endpoints.push(origin);
        Ok(Session {
            client: self,
            reference,
            auth,
            endpoints,
        })
    }

    /// Made at first use: reading the machine's certificates takes time, and a machine without
    /// any can still use a loopback registry.
    fn http(&self, endpoint: &Endpoint) -> Result<&reqwest::Client, RequestError> {
        let cell = if endpoint.is_loopback {
            &self.loopback
        } else {
            &self.outside
        };
        if let Some(client) = cell.get() {
            return Ok(client);
        }
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("osb/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .dns_resolver(Arc::new(self.reach.clone()))
            .redirect(self.redirects());
        if endpoint.is_loopback {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|e| {
            RequestError::Permanent(Error::Registry {
                registry: endpoint.host.clone(),
                message: format!(
                    "TLS could not be set up ({}); install the package ca-certificates",
                    innermost(&e)
                ),
                is_transient: false,
            })
        })?;
        Ok(cell.get_or_init(|| client))
    }

    /// Follows where [`may_follow`] allows it. reqwest itself drops the credentials when the host
    /// changes.
    fn redirects(&self) -> reqwest::redirect::Policy {
        let reach = self.reach.clone();
        reqwest::redirect::Policy::custom(move |attempt| {
            match may_follow(&reach, attempt.previous(), attempt.url()) {
                Ok(()) => attempt.follow(),
                Err(reason) => attempt.error(reason),
            }
        })
    }
}

fn may_follow(reach: &Reach, previous: &[Url], next: &Url) -> Result<(), &'static str> {
    let was_tls = previous.last().is_some_and(|url| url.scheme() == "https");
    if previous.len() > REDIRECTS_MAX {
        Err("too many redirects")
    } else if was_tls && next.scheme() != "https" {
        Err("a redirect leads from TLS to plain HTTP")
    } else if !reach.may_ask(next) {
        Err("a redirect leads to this machine or its link")
    } else {
        Ok(())
    }
}

impl Session<'_> {
    /// The manifest or index that the reference means.
    pub(super) async fn root_manifest(&self) -> Result<Fetched, Error> {
        let digest = Digest::of_reference(self.reference)?;
        self.manifest(self.reference.version(), digest).await
    }

    /// A manifest by its digest, as an index names it.
    pub(super) async fn manifest_by_digest(&self, digest: Digest) -> Result<Fetched, Error> {
        self.manifest(&digest.to_string(), Some(digest)).await
    }

    async fn manifest(&self, version: &str, expected: Option<Digest>) -> Result<Fetched, Error> {
        let path = format!("{}/manifests/{version}", self.reference.repository());
        let bytes = self
            .fetch(
                &path,
                MANIFEST_BYTES_MAX,
                Some(&manifest::ACCEPT.join(", ")),
            )
            .await?;
        let digest = Digest::of(&bytes);
        if expected.is_some_and(|expected| expected != digest) {
            return Err(manifest::corrupt(
                &format!("the manifest {version}"),
                &format!("its digest is {digest}"),
            ));
        }
        Ok(Fetched { bytes, digest })
    }

    /// A small blob, whole.
    pub(super) async fn blob(&self, digest: Digest, bytes_max: u64) -> Result<Vec<u8>, Error> {
        let path = format!("{}/blobs/{digest}", self.reference.repository());
        let bytes = self.fetch(&path, bytes_max, None).await?;
        match Digest::of(&bytes) {
            actual if actual == digest => Ok(bytes),
            actual => Err(manifest::corrupt(
                &format!("the blob {digest}"),
                &format!("its digest is {actual}"),
            )),
        }
    }

    /// Asks each endpoint in turn, each with its retries; the registry's own answer counts.
    async fn fetch(&self, path: &str, max: u64, accept: Option<&str>) -> Result<Vec<u8>, Error> {
        let mut last = None;
        for endpoint in &self.endpoints {
            let attempt = || async {
                let response = self.get(endpoint, path, accept, None).await?;
                bounded_body(response, max).await
            };
            match self.with_retries(attempt, UNREACHABLE_ATTEMPTS_MAX).await {
                Ok(bytes) => return Ok(bytes),
                Err(failure) => last = Some(self.explain_passing(endpoint, path, failure)),
            }
        }
        Err(last.expect("there is always the registry itself"))
    }

    async fn with_retries<T, F: Future<Output = Result<T, RequestError>>>(
        &self,
        attempt: impl FnMut() -> F,
        unreachable_max: usize,
    ) -> Result<T, RequestError> {
        let waits = ExponentialBuilder::default()
            .with_min_delay(RETRY_WAIT_FIRST)
            .with_max_delay(RETRY_WAIT_LONGEST)
            .with_max_times(ATTEMPTS_MAX - 1)
            .with_jitter();
        let mut unreachable = 0;
        let may_pass = |error: &RequestError| {
            unreachable += usize::from(matches!(error, RequestError::Unreachable(_)));
            error.is_transient() && unreachable < unreachable_max
        };
        attempt.retry(waits).when(may_pass).await
    }

    /// One request. A refusal that names a way to authenticate is answered once.
    async fn get(
        &self,
        endpoint: &Endpoint,
        path: &str,
        accept: Option<&str>,
        range_from: Option<u64>,
    ) -> Result<Response, RequestError> {
        let mut url = endpoint
            .api
            .join(path)
            .map_err(|e| RequestError::Broken(e.to_string()))?;
        if !endpoint.is_origin {
            url.query_pairs_mut()
                .append_pair("ns", self.reference.registry());
        }
        let http = self.client.http(endpoint)?;
        let mut has_answered_challenge = false;
        loop {
            let mut request = http.get(url.clone());
            if let Some(accept) = accept {
                request = request.header(ACCEPT, accept);
            }
            if let Some(from) = range_from {
                request = request.header(reqwest::header::RANGE, format!("bytes={from}-"));
            }
            if let Some(authorization) = endpoint.authorization.header() {
                request = request.header(reqwest::header::AUTHORIZATION, authorization);
            }
            let response = request
                .send()
                .await
                .map_err(|e| RequestError::from_reqwest(&e))?;
            match response.status() {
                status if status.is_success() => return Ok(response),
                StatusCode::UNAUTHORIZED if !has_answered_challenge => {
                    has_answered_challenge = true;
                    let auth = self.auth.filter(|_| endpoint.is_origin);
                    let repository = self.reference.repository();
                    endpoint
                        .authorization
                        .answer(
                            http,
                            &response,
                            (&endpoint.api, &self.client.reach),
                            repository,
                            auth,
                        )
                        .await?;
                }
                status => return Err(RequestError::Status(status, message_of(response).await)),
            }
        }
    }

    /// As [`Session::explain`]. A mirror's failure is told here or nowhere: the registry's own
    /// answer is the one that counts.
    fn explain_passing(&self, endpoint: &Endpoint, path: &str, failure: RequestError) -> Error {
        let error = self.explain(endpoint, path, failure);
        if !endpoint.is_origin {
            tracing::warn!(mirror = %endpoint.host, error = %error_chain(&error), "a mirror failed; going on without it");
        }
        error
    }

    fn explain(&self, endpoint: &Endpoint, path: &str, failure: RequestError) -> Error {
        let registry = endpoint.host.clone();
        let reference = self.reference.to_string();
        let is_transient = failure.is_transient();
        match failure {
            RequestError::Permanent(error) => error,
            RequestError::Broken(message) => Error::Registry {
                registry,
                message: format!("{message} (after {ATTEMPTS_MAX} attempts)"),
                is_transient,
            },
            RequestError::Unreachable(message) => Error::Registry {
                message: format!(
                    "{message}: it cannot be reached; check the address in the image's name, and the way there"
                ),
                registry,
                is_transient,
            },
            RequestError::Status(StatusCode::NOT_FOUND, message)
                if path.contains("/manifests/") =>
            {
                Error::NotFound {
                    reference,
                    message: format!(
                        "registry {registry} says: {message}; check the name and the tag"
                    ),
                }
            }
            RequestError::Status(
                status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN),
                message,
            ) => {
                let advice = match (self.auth, endpoint.is_origin) {
                    (None, _) | (_, false) => {
                        "it does not exist there or needs credentials; check the name or pass a user \
                         name and password"
                    }
                    (Some(_), true) => "check the user name, the password and what they may pull",
                };
                Error::Unauthorized {
                    reference,
                    message: format!("{status}: {message}; {advice}"),
                }
            }
            RequestError::Status(status, message) => Error::Registry {
                registry,
                message: format!("it answered {status}: {message}"),
                is_transient,
            },
        }
    }
}

async fn bounded_body(mut response: Response, max: u64) -> Result<Vec<u8>, RequestError> {
    let mut bytes = Vec::new();
    loop {
        match response.chunk().await {
            Ok(None) => return Ok(bytes),
            Ok(Some(chunk)) if bytes.len() as u64 + chunk.len() as u64 <= max => {
                bytes.extend_from_slice(&chunk);
            }
            Ok(Some(_)) => {
                return Err(RequestError::Permanent(manifest::corrupt(
                    "the registry's answer",
                    &format!(
                        "it is larger than {max} bytes, which no manifest or configuration is"
                    ),
                )));
            }
            Err(error) => return Err(RequestError::from_reqwest(&error)),
        }
    }
}

/// What the registry says went wrong, in a line.
async fn message_of(response: Response) -> String {
    #[derive(serde::Deserialize)]
    struct Envelope {
        errors: Vec<Item>,
    }
    #[derive(serde::Deserialize)]
    struct Item {
        #[serde(default)]
        code: String,
        #[serde(default)]
        message: String,
    }
    let is_json = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    let reason = response
        .status()
        .canonical_reason()
        .unwrap_or("no reason given")
        .to_owned();
    if !is_json {
        return reason;
    }
    let Ok(bytes) = bounded_body(response, ERROR_BYTES_MAX).await else {
        return reason;
    };
    match serde_json::from_slice::<Envelope>(&bytes).map(|envelope| envelope.errors) {
        Ok(errors) if !errors.is_empty() => {
            let Item { code, message } = &errors[0];
            if message.is_empty() {
                code.clone()
            } else {
                message.clone()
            }
        }
        _ => reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_few_and_never_leave_tls() {
        let url = |text: &str| Url::parse(text).unwrap();
        let (tls, plain) = (url("https://a.example"), url("http://b.example"));
        let reach = Reach::new(&Config::default());
        let may_follow = |previous: &[Url], next: &Url| may_follow(&reach, previous, next);
        assert_eq!(may_follow(std::slice::from_ref(&plain), &tls), Ok(()));
        assert_eq!(may_follow(std::slice::from_ref(&plain), &plain), Ok(()));
        assert!(may_follow(std::slice::from_ref(&tls), &plain).is_err());
        assert_eq!(may_follow(&vec![tls.clone(); REDIRECTS_MAX], &tls), Ok(()));
        assert!(may_follow(&vec![tls.clone(); REDIRECTS_MAX + 1], &tls).is_err());
        for local in ["http://127.0.0.1:1/", "http://169.254.169.254/latest/"] {
            assert!(may_follow(std::slice::from_ref(&plain), &url(local)).is_err());
        }
    }
}
