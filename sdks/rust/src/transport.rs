//! Requests and their answers: headers, deadlines, errors, and the one place that decides what is
//! sent again. Knows nothing of sandboxes.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use rand::Rng as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use api::sandbox::IDEMPOTENCY_KEY_HEADER;

use crate::config::ConnectionConfig;
use crate::error::{Error, Result, is_passing};
use crate::refusal::refusal;

/// Connections are kept this long for the next request, as in the other SDKs.
const KEEP_IDLE: Duration = Duration::from_secs(30);

/// A connection that is silent for so long is asked whether it lives, so that a stream whose
/// other side vanished ends with an error and not never.
const TCP_KEEPALIVE: Duration = Duration::from_secs(20);

/// An answer that is read into memory as a whole is at most this long. Listings of large trees
/// have some tens of MiB; what is longer is a fault or an attack.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

pub(crate) struct Transport {
    pub(crate) config: ConnectionConfig,
    http: reqwest::Client,
    /// For upgrades, which HTTP/2 does not have; made when first needed.
    upgrades: OnceLock<reqwest::Client>,
}

impl Transport {
    pub(crate) fn new(config: ConnectionConfig) -> Result<Arc<Self>> {
        let http = build(&config, false)?;
        Ok(Arc::new(Self {
            config,
            http,
            upgrades: OnceLock::new(),
        }))
    }

    fn upgrades(&self) -> Result<&reqwest::Client> {
        if let Some(client) = self.upgrades.get() {
            return Ok(client);
        }
        let client = build(&self.config, true)?;
        Ok(self.upgrades.get_or_init(|| client))
    }
}

fn build(config: &ConnectionConfig, http1_only: bool) -> Result<reqwest::Client> {
    let mut headers = HeaderMap::new();
    for (name, value) in &config.headers {
        insert(&mut headers, name, value)?;
    }
    let mut builder = reqwest::Client::builder()
        .default_headers(headers)
        .user_agent(config.user_agent.clone())
        // Credentials are in headers of our own, which a redirect must not carry elsewhere.
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(config.request_timeout)
        .tcp_keepalive(TCP_KEEPALIVE)
        .tcp_nodelay(true)
        .pool_idle_timeout(KEEP_IDLE);
    if let Some(socket) = config.socket() {
        builder = builder.unix_socket(socket);
    }
    if http1_only {
        builder = builder.http1_only();
    }
    builder = crate::tls::pinned(builder, config, http1_only)?;
    builder.build().map_err(|error| Error::Config {
        origin: "connection".to_owned(),
        message: api::error_chain(&error).to_string(),
    })
}

/// Sets a header from text that came from elsewhere.
pub(crate) fn insert(headers: &mut HeaderMap, name: &str, value: &str) -> Result<()> {
    let wrong = |message: String| Error::Config {
        origin: format!("header {name}"),
        message,
    };
    let key = HeaderName::try_from(name).map_err(|error| wrong(error.to_string()))?;
    let mut value = HeaderValue::try_from(value).map_err(|error| wrong(error.to_string()))?;
    // Any of them may be a credential; none is worth showing.
    value.set_sensitive(true);
    headers.insert(key, value);
    Ok(())
}

/// A place that requests go to, with the headers they carry.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) transport: Arc<Transport>,
    /// Without a slash at the end.
    pub(crate) base: Arc<str>,
    pub(crate) headers: HeaderMap,
}

impl Target {
    /// What a request goes to, for messages: a URL, or what is asked of which unix socket.
    fn shown(&self, path: &str) -> String {
        let Some(socket) = self.transport.config.socket() else {
            return format!("{}{path}", self.base);
        };
        let base = self.base.trim_start_matches("http://localhost");
        format!("{base}{path} at unix://{}", socket.display())
    }

    pub(crate) fn request(&self, method: Method, path: impl Into<String>) -> Request<'_> {
        Request {
            target: self,
            method,
            path: path.into(),
            query: String::new(),
            headers: HeaderMap::new(),
            payload: Payload::None,
            timeout: Some(self.transport.config.request_timeout),
        }
    }

    pub(crate) fn get(&self, path: impl Into<String>) -> Request<'_> {
        self.request(Method::GET, path)
    }

    pub(crate) fn post(&self, path: impl Into<String>) -> Request<'_> {
        self.request(Method::POST, path)
    }

    pub(crate) fn delete(&self, path: impl Into<String>) -> Request<'_> {
        self.request(Method::DELETE, path)
    }
}

enum Payload {
    None,
    /// Can be sent again.
    Bytes(Bytes, HeaderValue),
    /// Can be sent once.
    Once {
        body: reqwest::Body,
        content_type: HeaderValue,
        length: Option<u64>,
    },
}

/// One request that is being put together.
pub(crate) struct Request<'a> {
    target: &'a Target,
    method: Method,
    path: String,
    query: String,
    headers: HeaderMap,
    payload: Payload,
    timeout: Option<Duration>,
}

impl Request<'_> {
    /// Sets the query, already encoded.
    pub(crate) fn query(mut self, query: String) -> Self {
        self.query = query;
        self
    }

    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    pub(crate) fn json<T: Serialize + ?Sized>(mut self, value: &T) -> Self {
        let bytes = serde_json::to_vec(value).expect("wire types have text keys only");
        self.payload = Payload::Bytes(bytes.into(), HeaderValue::from_static("application/json"));
        self
    }

    pub(crate) fn bytes(mut self, bytes: Bytes, content_type: HeaderValue) -> Self {
        self.payload = Payload::Bytes(bytes, content_type);
        self
    }

    pub(crate) fn body(
        mut self,
        body: reqwest::Body,
        content_type: HeaderValue,
        length: Option<u64>,
    ) -> Self {
        self.payload = Payload::Once {
            body,
            content_type,
            length,
        };
        self
    }

    /// The whole exchange may take this long; nothing is forever.
    pub(crate) fn timeout(mut self, timeout: Option<Duration>) -> Self {
        self.timeout = timeout;
        self
    }

    fn what(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// Sends it and reads the answer as JSON.
    pub(crate) async fn json_answer<T: DeserializeOwned>(self) -> Result<T> {
        let what = self.what();
        let limit = self.timeout;
        let answer = self.send().await?;
        let bytes = read(answer, ANSWER_BYTES_MAX, limit, &what).await?;
        serde_json::from_slice(&bytes).map_err(|error| Error::Unreadable {
            what,
            message: error.to_string(),
        })
    }

    /// Sends it and reads the answer as bytes.
    pub(crate) async fn bytes_answer(self) -> Result<Bytes> {
        let what = self.what();
        let limit = self.timeout;
        read(self.send().await?, ANSWER_BYTES_MAX, limit, &what).await
    }

    /// Sends it and lets the answer's body, if any, pass.
    pub(crate) async fn done(self) -> Result<()> {
        self.bytes_answer().await.map(drop)
    }

    /// Sends it, again where that is safe, and answers what came with a good status. The
    /// deadline is for the answer's head; the body may take longer.
    pub(crate) async fn send(mut self) -> Result<reqwest::Response> {
        let policy = self.target.transport.config.retry;
        let mut delay = policy.first_delay;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let error = match self.attempt().await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if attempt > policy.attempts || !self.may_repeat(&error) {
                return Err(error);
            }
            let asked = error.api().and_then(|error| error.retry_after);
            let wait = asked.unwrap_or(delay).min(policy.longest_delay);
            // There is no event to wait for: the other side is busy or away.
            tokio::time::sleep(wait).await;
            // Spread out, so that clients that failed together do not return together.
            let widest = (delay * 3).max(policy.first_delay + Duration::from_millis(1));
            delay = rand::rng()
                .random_range(policy.first_delay..widest)
                .min(policy.longest_delay);
        }
    }

    /// A server that is given a key does once what it is asked twice.
    fn is_idempotent(&self) -> bool {
        self.method.is_idempotent() || self.headers.contains_key(IDEMPOTENCY_KEY_HEADER)
    }

    fn may_repeat(&self, error: &Error) -> bool {
        if matches!(self.payload, Payload::Once { .. }) {
            return false;
        }
        match error {
            Error::Connection {
                is_unsent: true, ..
            } => true,
            Error::Connection { .. } => self.is_idempotent(),
            Error::Api(api) => self.is_idempotent() && is_passing(api.status),
            _ => false,
        }
    }

    async fn attempt(&mut self) -> Result<reqwest::Response> {
        let transport = &self.target.transport;
        let mut url = format!("{}{}", self.target.base, self.path);
        let shown = self.target.shown(&self.path);
        if !self.query.is_empty() {
            url.push('?');
            url.push_str(&self.query);
        }
        let mut headers = self.target.headers.clone();
        headers.extend(self.headers.clone());
        let mut request = transport.http.request(self.method.clone(), url);
        match std::mem::replace(&mut self.payload, Payload::None) {
            Payload::None => {}
            Payload::Bytes(bytes, content_type) => {
                headers.insert(CONTENT_TYPE, content_type.clone());
                request = request.body(bytes.clone());
                self.payload = Payload::Bytes(bytes, content_type);
            }
            Payload::Once {
                body,
                content_type,
                length,
            } => {
                headers.insert(CONTENT_TYPE, content_type.clone());
                if let Some(length) = length {
                    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
                }
                request = request.body(body);
                self.payload = Payload::Once {
                    body: reqwest::Body::from(Bytes::new()),
                    content_type,
                    length: None,
                };
            }
        }
        let sending = request.headers(headers).send();
        let answer = match self.timeout {
            Some(limit) => tokio::time::timeout(limit, sending)
                .await
                .map_err(|_| late(&self.what(), limit))?,
            None => sending.await,
        };
        let answer = answer.map_err(|error| unreachable(shown, error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        Err(refusal(self.what(), answer).await)
    }
}

/// Asks for an upgrade; answers the raw connection and the headers of the answer.
pub(crate) async fn upgrade(
    target: &Target,
    path_and_query: &str,
    headers: HeaderMap,
) -> Result<(reqwest::Upgraded, HeaderMap)> {
    let what = format!("GET {}", path_and_query.split('?').next().unwrap_or(""));
    let mut all = target.headers.clone();
    all.extend(headers);
    let limit = target.transport.config.request_timeout;
    let sending = target
        .transport
        .upgrades()?
        .get(format!("{}{path_and_query}", target.base))
        .headers(all)
        .send();
    let answer = tokio::time::timeout(limit, sending)
        .await
        .map_err(|_| late(&what, limit))?
        .map_err(|error| unreachable(target.shown(path_and_query), error))?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(refusal(what, answer).await);
    }
    let headers = answer.headers().clone();
    let raw = answer
        .upgrade()
        .await
        .map_err(|error| unreachable(target.shown(path_and_query), error))?;
    Ok((raw, headers))
}

pub(crate) async fn read(
    mut answer: reqwest::Response,
    most: usize,
    limit: Option<Duration>,
    what: &str,
) -> Result<Bytes> {
    let url = answer.url().path().to_owned();
    let reading = async {
        let mut whole = BytesMut::new();
        while let Some(piece) = answer
            .chunk()
            .await
            .map_err(|error| unreachable(url.clone(), error))?
        {
            if whole.len() + piece.len() > most {
                return Err(Error::Unreadable {
                    what: what.to_owned(),
                    message: format!("it is longer than {most} bytes"),
                });
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    };
    match limit {
        Some(limit) => tokio::time::timeout(limit, reading)
            .await
            .map_err(|_| late(what, limit))?,
        None => reading.await,
    }
}

fn late(what: &str, after: Duration) -> Error {
    Error::Timeout {
        what: what.to_owned(),
        after,
    }
}

/// No answer, or half of one.
pub(crate) fn unreachable(url: String, error: reqwest::Error) -> Error {
    Error::Connection {
        url,
        is_unsent: error.is_connect() || error.is_builder(),
        source: Box::new(error.without_url()),
    }
}

/// An id as a segment of a path. What would lead to another path is refused.
pub(crate) fn segment(id: &str) -> Result<String> {
    if id.is_empty() || id == "." || id == ".." {
        return Err(Error::InvalidArgument(format!("{id:?} is not an id")));
    }
    // A query value encodes more than a segment needs, and everything that it must.
    let encoded = api::query::QueryWriter::new().pair("", id).finish();
    Ok(encoded.trim_start_matches('=').to_owned())
}
