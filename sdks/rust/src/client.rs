//! The control plane: sandboxes by their ids, lists, snapshots, diagnostics, events. What operators
//! ask for besides is in `operator.rs`.

use std::time::Duration;

use api::diagnostics::{DiagnosticContent, LogEvent};
use api::endpoint::Endpoint;
use api::event::LifecycleEvent;
use api::query::{ListSandboxesQuery, ListSnapshotsQuery, QueryWriter};
use api::sandbox::{
    API_KEY_HEADER, CreateSandboxRequest, CreateSandboxResponse, Health, IDEMPOTENCY_KEY_HEADER,
    ListSandboxesResponse, MetadataPatch, RenewSandboxExpirationRequest,
    RenewSandboxExpirationResponse, Sandbox as SandboxInfo, SandboxState,
};
use api::snapshot::{CreateSnapshotRequest, ListSnapshotsResponse, Snapshot, SnapshotState};
use api::version::Version;
use futures_util::Stream;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use jiff::Timestamp;
use serde_json::Value;

use crate::access::{Keys, Tenants};
use crate::config::ConnectionConfig;
use crate::connect::{Connect, READY_TIMEOUT};
use crate::create::CreateSandbox;
use crate::error::{Error, Result};
use crate::event_stream;
use crate::inventory::{Images, Volumes};
use crate::sandbox::Sandbox;
use crate::transport::{Target, Transport, insert, segment};
use crate::wait;

/// How long pausing, resuming and snapshots may take before waiting for them ends.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(300);

/// The control plane. Cheap to clone; clones share their connections.
///
/// ```no_run
/// use opensandbox::{Client, ConnectionConfig, SandboxFilter};
///
/// # async fn example() -> opensandbox::Result<()> {
/// let client = Client::new(ConnectionConfig::new().domain("localhost:8080").api_key("secret"))?;
/// for sandbox in client.list(&SandboxFilter::default()).await?.items {
///     println!("{} {}", sandbox.id, sandbox.status.state);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    target: Target,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Client").field(&self.target.base).finish()
    }
}

impl Client {
    /// A client with these settings. Sends nothing yet.
    pub fn new(config: ConnectionConfig) -> Result<Self> {
        let base = config.base_url()?;
        let mut headers = HeaderMap::new();
        if let Some(key) = &config.api_key {
            insert(&mut headers, API_KEY_HEADER, key.expose())?;
        }
        Ok(Self {
            target: Target {
                transport: Transport::new(config)?,
                base: base.into(),
                headers,
            },
        })
    }

    /// A client with the settings of the environment and of the command line's file.
    pub fn from_env() -> Result<Self> {
        Self::new(ConnectionConfig::load()?)
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Its settings.
    pub fn config(&self) -> &ConnectionConfig {
        &self.target.transport.config
    }

    /// Makes a sandbox from an image.
    pub fn create(&self, image: impl Into<String>) -> CreateSandbox {
        CreateSandbox::from_image(image).client(self)
    }

    /// Connects to a sandbox that exists.
    pub fn connect(&self, id: impl Into<String>) -> Connect {
        Connect::new(id).client(self)
    }

    /// A handle to a sandbox without any request.
    pub fn sandbox(&self, id: impl Into<String>) -> Sandbox {
        Sandbox::handle(self.clone(), id)
    }

    /// Extension: the images that the server keeps.
    pub fn images(&self) -> Images {
        Images::new(self.clone())
    }

    /// Extension: the API keys of the server.
    pub fn keys(&self) -> Keys {
        Keys::new(self.clone())
    }

    /// Extension: the tenants of the server.
    pub fn tenants(&self) -> Tenants {
        Tenants::new(self.clone())
    }

    /// Extension: the named volumes that the server keeps.
    pub fn volumes(&self) -> Volumes {
        Volumes::new(self.clone())
    }

    /// Sends a request to make a sandbox and does not wait until it is ready. Our server answers
    /// when it is; `timeout` is how long that may take.
    pub async fn create_request(
        &self,
        request: &CreateSandboxRequest,
        timeout: Duration,
    ) -> Result<CreateSandboxResponse> {
        self.create_with_key(request, timeout, None).await
    }

    pub(crate) async fn create_with_key(
        &self,
        request: &CreateSandboxRequest,
        timeout: Duration,
        key: Option<&str>,
    ) -> Result<CreateSandboxResponse> {
        let longest = timeout.max(self.config().request_timeout);
        let mut call = self.target.post("/sandboxes").json(request);
        if let Some(key) = key {
            let refused = |_| Error::InvalidArgument(format!("{key:?} is no value of a header"));
            let value = HeaderValue::try_from(key).map_err(refused)?;
            let name = HeaderName::from_bytes(IDEMPOTENCY_KEY_HEADER.as_bytes());
            call = call.header(name.expect("it is a header's name"), value);
        }
        call.timeout(Some(longest)).json_answer().await
    }

    /// What the server knows of a sandbox.
    pub async fn get(&self, id: &str) -> Result<SandboxInfo> {
        self.target.get(path(id, "")?).json_answer().await
    }

    /// One page of sandboxes, newest first.
    pub async fn list(&self, filter: &ListSandboxesQuery) -> Result<ListSandboxesResponse> {
        let request = self.target.get("/sandboxes").query(filter.to_query());
        request.json_answer().await
    }

    /// Every sandbox from the filter's page on, page by page as they are read.
    pub fn list_all(
        &self,
        filter: ListSandboxesQuery,
    ) -> impl Stream<Item = Result<SandboxInfo>> + Send + use<> {
        let client = self.clone();
        pages(filter, move |filter| {
            let client = client.clone();
            async move {
                let page = client.list(&filter).await?;
                let next = page.pagination.has_next_page.then(|| {
                    let mut next = filter;
                    next.page.number += 1;
                    next
                });
                Ok((page.items, next))
            }
        })
    }

    /// Ends a sandbox.
    pub async fn kill(&self, id: &str) -> Result<()> {
        self.target.delete(path(id, "")?).done().await
    }

    /// Freezes a sandbox; returns when it is frozen.
    pub async fn pause(&self, id: &str) -> Result<()> {
        self.target.post(path(id, "/pause")?).done().await?;
        self.wait_for_state(id, SandboxState::Paused).await
    }

    /// Lets a sandbox run on; returns when it runs.
    pub async fn resume(&self, id: &str) -> Result<()> {
        self.target.post(path(id, "/resume")?).done().await?;
        self.wait_for_state(id, SandboxState::Running).await
    }

    /// Waits until a sandbox is in this state; fails when it gets into one from which it never
    /// comes.
    pub async fn wait_for_state(&self, id: &str, wanted: SandboxState) -> Result<()> {
        self.wait_for_state_within(id, wanted, CHANGE_TIMEOUT).await
    }

    /// The same, for at most this time.
    pub(crate) async fn wait_for_state_within(
        &self,
        id: &str,
        wanted: SandboxState,
        timeout: Duration,
    ) -> Result<()> {
        let check = || async {
            let info = self.get(id).await?;
            let state = info.status.state;
            if state == wanted {
                return Ok(Some(()));
            }
            if matches!(state, SandboxState::Failed | SandboxState::Terminated) {
                return Err(Error::Failed {
                    id: format!("sandbox {id}"),
                    state: state.to_string(),
                    message: info.status.message.unwrap_or_default(),
                });
            }
            Ok(None)
        };
        let what = format!("sandbox {id} to be {wanted}");
        wait::until(self, Some(id), &what, timeout, check).await
    }

    /// Lets a sandbox live this much longer, from now.
    pub async fn renew(&self, id: &str, lifetime: Duration) -> Result<Timestamp> {
        let expires_at = Timestamp::now().checked_add(lifetime).map_err(|error| {
            Error::InvalidArgument(format!("the lifetime is too long: {error}"))
        })?;
        let request = RenewSandboxExpirationRequest { expires_at };
        let request = self
            .target
            .post(path(id, "/renew-expiration")?)
            .json(&request);
        let answer: RenewSandboxExpirationResponse = request.json_answer().await?;
        Ok(answer.expires_at)
    }

    /// Sets and removes labels of a sandbox.
    pub async fn patch_metadata(&self, id: &str, patch: &MetadataPatch) -> Result<SandboxInfo> {
        let request = self.target.request(Method::PATCH, path(id, "/metadata")?);
        request.json(patch).json_answer().await
    }

    /// Where a port of a sandbox is reached from outside.
    pub async fn endpoint(&self, id: &str, port: u16) -> Result<Endpoint> {
        self.endpoint_query(id, port, QueryWriter::new()).await
    }

    /// Where a port of a sandbox is reached, as a route that is good until then.
    pub async fn signed_endpoint(
        &self,
        id: &str,
        port: u16,
        expires: Timestamp,
    ) -> Result<Endpoint> {
        let query = QueryWriter::new().pair("expires", &expires.as_second().to_string());
        self.endpoint_query(id, port, query).await
    }

    async fn endpoint_query(&self, id: &str, port: u16, query: QueryWriter) -> Result<Endpoint> {
        let query = if self.config().uses_server_proxy() {
            query.pair("use_server_proxy", "true")
        } else {
            query
        };
        let request = self.target.get(path(id, &format!("/endpoints/{port}"))?);
        // Held until the sandbox is ready, which may take as long as its image takes to come.
        let longest = READY_TIMEOUT.max(self.config().request_timeout);
        request
            .query(query.finish())
            .timeout(Some(longest))
            .json_answer()
            .await
    }

    /// Begins a copy of a sandbox's filesystem.
    pub async fn create_snapshot(&self, id: &str, name: Option<&str>) -> Result<Snapshot> {
        let request = CreateSnapshotRequest {
            name: name.map(str::to_owned),
        };
        let call = self.target.post(path(id, "/snapshots")?).json(&request);
        // A server may answer only when the copy is made.
        call.timeout(Some(CHANGE_TIMEOUT)).json_answer().await
    }

    /// A snapshot.
    pub async fn get_snapshot(&self, id: &str) -> Result<Snapshot> {
        let request = self.target.get(format!("/snapshots/{}", segment(id)?));
        request.json_answer().await
    }

    /// Waits until sandboxes can be made from a snapshot.
    pub async fn wait_for_snapshot(&self, id: &str) -> Result<Snapshot> {
        let check = || async {
            let snapshot = self.get_snapshot(id).await?;
            match snapshot.status.state {
                SnapshotState::Ready => Ok(Some(snapshot)),
                SnapshotState::Failed | SnapshotState::Deleting => Err(Error::Failed {
                    id: format!("snapshot {id}"),
                    state: snapshot.status.state.to_string(),
                    message: snapshot.status.message.unwrap_or_default(),
                }),
                _ => Ok(None),
            }
        };
        let what = format!("snapshot {id} to be ready");
        wait::until(self, None, &what, CHANGE_TIMEOUT, check).await
    }

    /// One page of snapshots, newest first.
    pub async fn list_snapshots(
        &self,
        filter: &ListSnapshotsQuery,
    ) -> Result<ListSnapshotsResponse> {
        let request = self.target.get("/snapshots").query(filter.to_query());
        request.json_answer().await
    }

    /// Every snapshot from the filter's page on, page by page as they are read.
    pub fn list_all_snapshots(
        &self,
        filter: ListSnapshotsQuery,
    ) -> impl Stream<Item = Result<Snapshot>> + Send + use<> {
        let client = self.clone();
        pages(filter, move |filter| {
            let client = client.clone();
            async move {
                let page = client.list_snapshots(&filter).await?;
                let next = page.pagination.has_next_page.then(|| {
                    let mut next = filter;
                    next.page.number += 1;
                    next
                });
                Ok((page.items, next))
            }
        })
    }

    /// Removes a snapshot.
    pub async fn delete_snapshot(&self, id: &str) -> Result<()> {
        let request = self.target.delete(format!("/snapshots/{}", segment(id)?));
        request.done().await
    }

    /// Logs of a sandbox for whoever looks for what went wrong.
    pub async fn diagnostic_logs(&self, id: &str, scope: &str) -> Result<DiagnosticContent> {
        self.diagnostics(id, "logs", scope).await
    }

    /// What happened to a sandbox.
    pub async fn diagnostic_events(&self, id: &str, scope: &str) -> Result<DiagnosticContent> {
        self.diagnostics(id, "events", scope).await
    }

    async fn diagnostics(&self, id: &str, kind: &str, scope: &str) -> Result<DiagnosticContent> {
        let query = QueryWriter::new().pair("scope", scope).finish();
        let request = self.target.get(path(id, &format!("/diagnostics/{kind}"))?);
        request.query(query).json_answer().await
    }

    /// The older diagnostics, as text: `logs`, `events`, `inspect` or `summary`, with an encoded
    /// query.
    pub async fn diagnostics_text(&self, id: &str, kind: &str, query: &str) -> Result<String> {
        let request = self
            .target
            .get(path(id, &format!("/diagnostics/{}", segment(kind)?))?)
            .query(query.to_owned());
        let bytes = request.bytes_answer().await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Extension: what a sandbox's main program prints, as it does, after at most `tail` of the
    /// lines before. The last event is `End`; a stream that ends without it was cut off.
    pub async fn follow_logs(
        &self,
        id: &str,
        tail: Option<u64>,
    ) -> Result<impl Stream<Item = Result<LogEvent>> + Send + use<>> {
        let tail = tail.map(|tail| tail.to_string());
        let query = QueryWriter::new().optional("tail", tail.as_deref());
        let request = self.target.get(path(id, "/logs")?).query(query.finish());
        Ok(event_stream::values(request.send().await?, "a log"))
    }

    /// Extension: what happens to sandboxes, as it happens; of one sandbox only, and only after
    /// this event, if given.
    pub async fn events(
        &self,
        sandbox_id: Option<&str>,
        after: Option<u64>,
    ) -> Result<impl Stream<Item = Result<LifecycleEvent>> + Send + use<>> {
        let after = after.map(|after| after.to_string());
        let query = QueryWriter::new()
            .optional("sandboxId", sandbox_id)
            .optional("after", after.as_deref());
        let request = self.target.get("/events").query(query.finish());
        let answer = request.send().await?;
        Ok(event_stream::values(answer, "events"))
    }

    /// Whether the server is well.
    pub async fn health(&self) -> Result<Health> {
        self.at_root("/health").await
    }

    /// The version of the contract that the server speaks.
    pub async fn version(&self) -> Result<Version> {
        self.at_root("/version").await
    }

    async fn at_root<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.root()?.get(path).json_answer().await
    }

    /// The server without the version before its paths.
    pub(crate) fn root(&self) -> Result<Target> {
        let mut target = self.target.clone();
        target.base = self.config().root_url()?.into();
        Ok(target)
    }

    /// Any request of the control plane that has no method of its own yet: a path below `/v1`
    /// with its encoded query, and a JSON body. Answers `null` where the answer has no body.
    pub async fn request(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut request = self.target.request(method, path).query(query.to_owned());
        if let Some(body) = body {
            request = request.json(body);
        }
        let bytes = request.bytes_answer().await?;
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes).map_err(|error| Error::Unreadable {
            what: path.to_owned(),
            message: error.to_string(),
        })
    }
}

pub(crate) fn path(id: &str, rest: &str) -> Result<String> {
    Ok(format!("/sandboxes/{}{rest}", segment(id)?))
}

/// The items of one page after the other.
fn pages<F, T, Fetch, Answer>(first: F, fetch: Fetch) -> impl Stream<Item = Result<T>> + Send
where
    F: Send,
    T: Send,
    Fetch: Fn(F) -> Answer + Send,
    Answer: Future<Output = Result<(Vec<T>, Option<F>)>> + Send,
{
    let state = (Vec::new().into_iter(), Some(first), fetch);
    futures_util::stream::try_unfold(state, |(mut items, mut next, fetch)| async move {
        loop {
            if let Some(item) = items.next() {
                return Ok(Some((item, (items, next, fetch))));
            }
            let Some(filter) = next.take() else {
                return Ok(None);
            };
            let (page, following) = fetch(filter).await?;
            items = page.into_iter();
            next = following;
        }
    })
}
