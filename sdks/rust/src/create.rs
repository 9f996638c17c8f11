//! Making a sandbox: what it should have, and waiting until it can be used.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::time::Duration;

use api::network_policy::NetworkPolicy;
use api::sandbox::{
    CreateSandboxRequest, CreateSandboxResponse, CredentialProxyConfig, EXTENSION_RENEW_SECONDS,
    ImageAuth, ImageSpec, PlatformSpec, SandboxLifecycle,
};
use api::secret::Secret;
use api::volume::Volume;

use crate::client::Client;
use crate::commands::Boxed;
use crate::connect::{self, READY_TIMEOUT};
use crate::error::{Error, Result};
use crate::sandbox::Sandbox;

/// How long a sandbox lives that nothing was said about, as in the other SDKs.
pub const DEFAULT_LIFETIME: Duration = Duration::from_secs(600);

/// What a sandbox may use that nothing was said about, as in the other SDKs.
const DEFAULT_RESOURCES: [(&str, &str); 2] = [("cpu", "1"), ("memory", "2Gi")];

/// What a sandbox does that nothing was said about: it stays.
const DEFAULT_ENTRYPOINT: [&str; 3] = ["tail", "-f", "/dev/null"];

/// A sandbox about to be made: `.await` it.
#[derive(Debug, Clone)]
#[must_use = "a sandbox is made when it is awaited"]
pub struct CreateSandbox {
    request: CreateSandboxRequest,
    client: Option<Client>,
    ready_timeout: Duration,
    interval: Duration,
    skip_check: bool,
    idempotency_key: Option<String>,
}

impl CreateSandbox {
    fn with(request: CreateSandboxRequest) -> Self {
        Self {
            request,
            client: None,
            ready_timeout: READY_TIMEOUT,
            interval: connect::ASK_AGAIN,
            skip_check: false,
            idempotency_key: None,
        }
    }

    fn defaults() -> CreateSandboxRequest {
        let resources = DEFAULT_RESOURCES.map(|(name, amount)| (name.into(), amount.into()));
        CreateSandboxRequest {
            timeout: Some(seconds(DEFAULT_LIFETIME)),
            resource_limits: Some(resources.into()),
            ..CreateSandboxRequest::default()
        }
    }

    /// From an image.
    pub fn from_image(image: impl Into<String>) -> Self {
        Self::with(CreateSandboxRequest {
            image: Some(ImageSpec {
                uri: image.into(),
                auth: None,
            }),
            entrypoint: Some(DEFAULT_ENTRYPOINT.map(str::to_owned).into()),
            ..Self::defaults()
        })
    }

    /// From a snapshot.
    pub fn from_snapshot(id: impl Into<String>) -> Self {
        Self::with(CreateSandboxRequest {
            snapshot_id: Some(id.into()),
            entrypoint: Some(DEFAULT_ENTRYPOINT.map(str::to_owned).into()),
            ..Self::defaults()
        })
    }

    /// From a template, which says by itself what its sandboxes may use and do.
    pub fn from_template(id: impl Into<String>) -> Self {
        Self::with(CreateSandboxRequest {
            template_id: Some(id.into()),
            timeout: Some(seconds(DEFAULT_LIFETIME)),
            ..CreateSandboxRequest::default()
        })
    }

    /// From a request as it goes over the wire; nothing is added to it.
    pub fn from_request(request: CreateSandboxRequest) -> Self {
        Self::with(request)
    }

    /// The request as it would go over the wire.
    pub fn request(&self) -> &CreateSandboxRequest {
        &self.request
    }

    /// Which client to make it by; without one, one from the environment and the file.
    pub fn client(mut self, client: &Client) -> Self {
        self.client = Some(client.clone());
        self
    }

    /// Credentials for a private registry.
    pub fn image_auth(mut self, username: impl Into<String>, password: impl Into<String>) -> Self {
        if let Some(image) = &mut self.request.image {
            image.auth = Some(ImageAuth {
                username: username.into(),
                password: Secret::new(password),
            });
        }
        self
    }

    /// How long it lives; [`forever`](Self::forever) for no end.
    pub fn timeout(mut self, lifetime: Duration) -> Self {
        self.request.timeout = Some(seconds(lifetime));
        self
    }

    /// It lives until it is killed.
    pub fn forever(mut self) -> Self {
        self.request.timeout = None;
        self
    }

    /// Adds a variable to the environment of everything that runs in it.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let env = self.request.env.get_or_insert_default();
        env.insert(name.into(), Some(value.into()));
        self
    }

    /// Adds a label.
    pub fn metadata(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let metadata = self.request.metadata.get_or_insert_default();
        metadata.insert(name.into(), value.into());
        self
    }

    /// Sets how much of a resource it may use: `cpu`, `memory`, `disk`, `pids`, `gpu`.
    pub fn resource(mut self, name: impl Into<String>, amount: impl Into<String>) -> Self {
        let limits = self.request.resource_limits.get_or_insert_default();
        limits.insert(name.into(), amount.into());
        self
    }

    /// Sets how much of each resource it may use, and nothing of the defaults.
    pub fn resources(mut self, limits: BTreeMap<String, String>) -> Self {
        self.request.resource_limits = Some(limits);
        self
    }

    /// Sets how much of each resource it is sure to get.
    pub fn resource_requests(mut self, requests: BTreeMap<String, String>) -> Self {
        self.request.resource_requests = Some(requests);
        self
    }

    /// The command that it supervises.
    pub fn entrypoint<A: Into<String>>(mut self, argv: impl IntoIterator<Item = A>) -> Self {
        self.request.entrypoint = Some(argv.into_iter().map(Into::into).collect());
        self
    }

    /// What it may reach.
    pub fn network_policy(mut self, policy: NetworkPolicy) -> Self {
        self.request.network_policy = Some(policy);
        self
    }

    /// Whether credentials are put into its requests on the way out.
    pub fn credential_proxy(mut self, enabled: bool) -> Self {
        self.request.credential_proxy = Some(CredentialProxyConfig { enabled });
        self
    }

    /// Whether its endpoints need a token of their own.
    pub fn secure_access(mut self, secure: bool) -> Self {
        self.request.secure_access = secure;
        self
    }

    /// Mounts something into it; see [`crate::volume`].
    pub fn volume(mut self, volume: Volume) -> Self {
        self.request.volumes.get_or_insert_default().push(volume);
        self
    }

    /// Its platform.
    pub fn platform(mut self, os: impl Into<String>, arch: impl Into<String>) -> Self {
        self.request.platform = Some(PlatformSpec {
            os: os.into(),
            arch: arch.into(),
        });
        self
    }

    /// Hooks that run in it.
    pub fn lifecycle(mut self, hooks: SandboxLifecycle) -> Self {
        self.request.lifecycle = Some(hooks);
        self
    }

    /// Adds a further setting by name.
    pub fn extension(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let extensions = self.request.extensions.get_or_insert_default();
        extensions.insert(name.into(), value.into());
        self
    }

    /// A label `name`, by which it can be listed.
    pub fn name(self, name: impl Into<String>) -> Self {
        self.metadata("name", name)
    }

    /// Each request to it through the server lets it live so much longer; the operator must allow it.
    pub fn renew_on_access(self, by: Duration) -> Self {
        self.extension(EXTENSION_RENEW_SECONDS, seconds(by).to_string())
    }

    /// Extension: the server makes one sandbox however often it is asked with this key, so that a broken
    /// connection is tried again.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// How long it may take to be ready, pulling its image included.
    pub fn ready_timeout(mut self, timeout: Duration) -> Self {
        self.ready_timeout = timeout;
        self
    }

    /// How long to wait before asking again whether it is ready.
    pub fn health_check_interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Do not wait until it answers.
    pub fn skip_health_check(mut self) -> Self {
        self.skip_check = true;
        self
    }

    /// Makes it and returns the server's words as well.
    pub async fn create(self) -> Result<(Sandbox, CreateSandboxResponse)> {
        refuse_nothing(&self.request)?;
        let client = match self.client {
            Some(client) => client,
            None => Client::from_env()?,
        };
        let key = self.idempotency_key.as_deref();
        let created = client
            .create_with_key(&self.request, self.ready_timeout, key)
            .await?;
        let sandbox = Sandbox::handle(client, created.id.as_str());
        if !self.skip_check
            && let Err(error) = connect::ready(&sandbox, self.ready_timeout, self.interval).await
        {
            // Nobody would know its id; whether this works is not the caller's question.
            let _ = sandbox.kill().await;
            return Err(error);
        }
        Ok((sandbox, created))
    }

    /// Makes it, gives it to the block and ends it when the block is left: at its end, by an error,
    /// by a panic, or because it is not awaited any more. [`Sandbox::keep`] lets it live on.
    ///
    /// ```no_run
    /// use opensandbox::{Result, Sandbox};
    ///
    /// # async fn example() -> Result<()> {
    /// let output = Sandbox::create("python:3.12")
    ///     .scoped(async |sandbox| sandbox.commands().run("echo hello").await)
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub async fn scoped<T, E, F>(self, block: F) -> std::result::Result<T, E>
    where
        F: AsyncFnOnce(Sandbox) -> std::result::Result<T, E>,
        E: From<Error>,
    {
        let (sandbox, _) = self.create().await?;
        let mut guard = Guard(Some(sandbox.clone()));
        let left = block(sandbox).await;
        let Some(sandbox) = guard.0.take().filter(|sandbox| !sandbox.is_kept()) else {
            return left;
        };
        let ended = sandbox.kill().await;
        let value = left?;
        ended?;
        Ok(value)
    }
}

/// Ends a sandbox whose block was left without coming to its end.
struct Guard(Option<Sandbox>);

impl Drop for Guard {
    fn drop(&mut self) {
        let sandbox = self.0.take().filter(|sandbox| !sandbox.is_kept());
        // Without a runtime nothing can be sent; it then ends with its time.
        if let (Some(sandbox), Ok(runtime)) = (sandbox, tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move { sandbox.kill().await });
        }
    }
}

/// Refuses a sandbox that is made of nothing before anything is sent.
fn refuse_nothing(request: &CreateSandboxRequest) -> Result<()> {
    let image = request.image.as_ref().map(|image| image.uri.as_str());
    let named = [
        image,
        request.snapshot_id.as_deref(),
        request.template_id.as_deref(),
    ];
    if named.into_iter().flatten().any(|name| !name.is_empty()) {
        return Ok(());
    }
    Err(Error::InvalidArgument(
        "a sandbox is made from an image, a snapshot or a template; name one".to_owned(),
    ))
}

impl IntoFuture for CreateSandbox {
    type Output = Result<Sandbox>;
    type IntoFuture = Boxed<Sandbox>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async { self.create().await.map(|(sandbox, _)| sandbox) })
    }
}

/// A lifetime as the protocol writes it.
pub(crate) fn seconds(lifetime: Duration) -> i64 {
    i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX)
}
