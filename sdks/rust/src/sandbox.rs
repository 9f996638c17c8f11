//! One sandbox: a handle that is cheap to clone, and everything that is reached from it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::diagnostics::DiagnosticContent;
use api::endpoint::{EGRESS_PORT, Endpoint};
use api::exec::PORT;
use api::exec::isolated::IsolatedCapabilities;
use api::exec::metrics::Metrics;
use api::query::QueryWriter;
use api::sandbox::{API_KEY_HEADER, MetadataPatch, Sandbox as SandboxInfo, SandboxState};
use api::snapshot::Snapshot;
use futures_util::Stream;
use http::HeaderMap;
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::client::Client;
use crate::code::Code;
use crate::commands::Commands;
use crate::connect::Connect;
use crate::create::CreateSandbox;
use crate::egress::{CredentialVault, Egress};
use crate::error::{Error, Result};
use crate::event_stream;
use crate::files::Files;
use crate::pty::Terminals;
use crate::sessions::Sessions;
use crate::transport::{self, Target, insert, segment};

/// A sandbox. Clones are the same sandbox. Dropping it does not end it: [`kill`](Self::kill) does,
/// the end of its time, or leaving the block of [`CreateSandbox::scoped`].
///
/// ```no_run
/// use opensandbox::Sandbox;
///
/// # async fn example() -> opensandbox::Result<()> {
/// let sandbox = Sandbox::create("python:3.12").env("GREETING", "hello").await?;
/// let output = sandbox.commands().run("echo $GREETING from $(hostname)").await?;
/// print!("{}", output.stdout);
/// sandbox.kill().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Sandbox {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    id: String,
    /// Where the daemon and the egress API are, once asked for.
    exec: Mutex<Option<Target>>,
    egress: Mutex<Option<Target>>,
    /// It outlives the block that it was made for.
    is_kept: AtomicBool,
}

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Sandbox").field(&self.id()).finish()
    }
}

impl Sandbox {
    /// Makes a sandbox from an image. `.await` it, after setting what it should have.
    pub fn create(image: impl Into<String>) -> CreateSandbox {
        CreateSandbox::from_image(image)
    }

    /// Makes a sandbox from a snapshot.
    pub fn create_from_snapshot(snapshot_id: impl Into<String>) -> CreateSandbox {
        CreateSandbox::from_snapshot(snapshot_id)
    }

    /// Makes a sandbox from a template.
    pub fn create_from_template(template_id: impl Into<String>) -> CreateSandbox {
        CreateSandbox::from_template(template_id)
    }

    /// Connects to a sandbox that exists.
    pub fn connect(id: impl Into<String>) -> Connect {
        Connect::new(id)
    }

    /// Resumes a paused sandbox and connects to it.
    pub fn resume(id: impl Into<String>) -> Connect {
        Connect::new(id).resuming()
    }

    /// A handle without any request: nothing is checked before the first call.
    pub fn handle(client: Client, id: impl Into<String>) -> Self {
        Self {
            inner: Arc::new(Inner {
                client,
                id: id.into(),
                exec: Mutex::new(None),
                egress: Mutex::new(None),
                is_kept: AtomicBool::new(false),
            }),
        }
    }

    /// The sandbox's id, by which it can be connected to again.
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// The client it is reached by.
    pub fn client(&self) -> &Client {
        &self.inner.client
    }

    /// Runs commands.
    pub fn commands(&self) -> Commands {
        Commands::new(self.clone())
    }

    /// Live shells.
    pub fn sessions(&self) -> Sessions {
        Sessions::new(self.clone())
    }

    /// Terminals.
    pub fn terminals(&self) -> Terminals {
        Terminals::new(self.clone())
    }

    /// Files and directories.
    pub fn files(&self) -> Files {
        Files::new(self.clone())
    }

    /// Code that remembers.
    pub fn code(&self) -> Code {
        Code::new(self.clone())
    }

    /// What it may reach.
    pub fn egress(&self) -> Egress {
        Egress::new(self.clone())
    }

    /// Credentials that are put into its requests on the way out.
    pub fn credential_vault(&self) -> CredentialVault {
        CredentialVault::new(self.clone())
    }

    /// Lets it outlive the block of [`CreateSandbox::scoped`].
    pub fn keep(&self) {
        self.inner.is_kept.store(true, Ordering::Release);
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.inner.is_kept.load(Ordering::Acquire)
    }

    /// What the server knows of it.
    pub async fn info(&self) -> Result<SandboxInfo> {
        self.client().get(self.id()).await
    }

    /// What it uses now.
    pub async fn metrics(&self) -> Result<Metrics> {
        self.exec().await?.get("/metrics").json_answer().await
    }

    /// What it uses, each second.
    pub async fn watch_metrics(
        &self,
    ) -> Result<impl Stream<Item = Result<Metrics>> + Send + use<>> {
        let exec = self.exec().await?;
        let answer = exec.get("/metrics/watch").send().await?;
        Ok(event_stream::values(answer, "metrics"))
    }

    /// Whether the daemon in it answers.
    pub async fn is_healthy(&self) -> bool {
        self.ping().await.is_ok()
    }

    /// Asks the daemon in it whether it is up.
    pub async fn ping(&self) -> Result<()> {
        self.exec().await?.get("/ping").done().await
    }

    /// Where one of its ports is reached from outside.
    pub async fn endpoint(&self, port: u16) -> Result<Endpoint> {
        self.client().endpoint(self.id(), port).await
    }

    /// Where one of its ports is reached, as a route that is good until then.
    pub async fn signed_endpoint(&self, port: u16, expires: Timestamp) -> Result<Endpoint> {
        self.client()
            .signed_endpoint(self.id(), port, expires)
            .await
    }

    /// Extension: a link by which a browser reaches one of its ports, good for once. The browser is let in
    /// until then, or for as long as the server says. Needs a server with an ingress gateway.
    ///
    /// ```no_run
    /// # async fn example(sandbox: opensandbox::Sandbox) -> opensandbox::Result<()> {
    /// println!("Open {}", sandbox.link(8080, None).await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn link(&self, port: u16, until: Option<Timestamp>) -> Result<String> {
        let until = until.map(|until| until.as_second().to_string());
        let query = QueryWriter::new()
            .pair("link", "true")
            .optional("expires", until.as_deref());
        let path = format!("/sandboxes/{}/endpoints/{port}", segment(self.id())?);
        let request = self.client().target().get(path).query(query.finish());
        let answer: Endpoint = request.json_answer().await?;
        let missing = || Error::InvalidArgument("the server knows no links".to_owned());
        answer.link.ok_or_else(missing)
    }

    /// The URL of one of its ports, and the headers to send.
    pub async fn url(&self, port: u16) -> Result<(String, HeaderMap)> {
        let target = self.target(port).await?;
        Ok((target.base.to_string(), target.headers))
    }

    /// Extension: a plain byte stream to one of its ports, for whatever does not speak HTTP.
    pub async fn tunnel(
        &self,
        port: u16,
    ) -> Result<impl AsyncRead + AsyncWrite + Send + Unpin + use<>> {
        let target = self.target(port).await?;
        let mut headers = HeaderMap::new();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("tcp"));
        let (raw, _) = transport::upgrade(&target, "/", headers).await?;
        Ok(raw)
    }

    /// Lets it live this much longer, from now.
    pub async fn renew(&self, lifetime: Duration) -> Result<Timestamp> {
        self.client().renew(self.id(), lifetime).await
    }

    /// Sets and removes labels.
    pub async fn patch_metadata(&self, patch: &MetadataPatch) -> Result<SandboxInfo> {
        self.client().patch_metadata(self.id(), patch).await
    }

    /// Freezes it; returns when it is frozen.
    pub async fn pause(&self) -> Result<()> {
        self.client().pause(self.id()).await
    }

    /// Lets it run on; returns when it runs.
    pub async fn unpause(&self) -> Result<()> {
        // It may come back at another address.
        *locked(&self.inner.exec) = None;
        *locked(&self.inner.egress) = None;
        self.client().resume(self.id()).await
    }

    /// Waits until it is in this state, for at most this time; fails when it gets into one from
    /// which it never comes.
    pub async fn wait_for_state(&self, state: SandboxState, timeout: Duration) -> Result<()> {
        let client = self.client();
        client
            .wait_for_state_within(self.id(), state, timeout)
            .await
    }

    /// Whether isolated sessions can be made in it, and how they would be.
    pub async fn isolated_capabilities(&self) -> Result<IsolatedCapabilities> {
        let exec = self.exec().await?;
        exec.get("/v1/isolated/capabilities").json_answer().await
    }

    /// Keeps a copy of its filesystem; returns when sandboxes can be made from it.
    pub async fn snapshot(&self, name: Option<&str>) -> Result<Snapshot> {
        let begun = self.client().create_snapshot(self.id(), name).await?;
        self.client().wait_for_snapshot(begun.id.as_str()).await
    }

    /// Its logs for whoever looks for what went wrong; `container` and `all` are scopes.
    pub async fn diagnostic_logs(&self, scope: &str) -> Result<DiagnosticContent> {
        self.client().diagnostic_logs(self.id(), scope).await
    }

    /// What happened to it; `runtime` and `all` are scopes.
    pub async fn diagnostic_events(&self, scope: &str) -> Result<DiagnosticContent> {
        self.client().diagnostic_events(self.id(), scope).await
    }

    /// Ends it. One that is already gone is no error.
    pub async fn kill(&self) -> Result<()> {
        match self.client().kill(self.id()).await {
            Err(error) if error.is_not_found() => Ok(()),
            done => done,
        }
    }

    /// The daemon inside.
    pub(crate) async fn exec(&self) -> Result<Target> {
        self.kept(&self.inner.exec, PORT).await
    }

    /// The egress API.
    pub(crate) async fn egress_api(&self) -> Result<Target> {
        self.kept(&self.inner.egress, EGRESS_PORT).await
    }

    async fn kept(&self, slot: &Mutex<Option<Target>>, port: u16) -> Result<Target> {
        let known = locked(slot).clone();
        if let Some(target) = known {
            return Ok(target);
        }
        let target = self.target(port).await?;
        *locked(slot) = Some(target.clone());
        Ok(target)
    }

    async fn target(&self, port: u16) -> Result<Target> {
        let Endpoint {
            endpoint, headers, ..
        } = self.endpoint(port).await?;
        let transport = Arc::clone(&self.client().target().transport);
        let config = &transport.config;
        let mut all = HeaderMap::new();
        if let Some(key) = config
            .api_key
            .as_ref()
            .filter(|_| config.uses_server_proxy())
        {
            // Only the server may see the key; a sandbox never does.
            insert(&mut all, API_KEY_HEADER, key.expose())?;
        }
        for (name, value) in headers.iter().flatten() {
            insert(&mut all, name, value)?;
        }
        let endpoint = endpoint.trim_end_matches('/');
        let base = if endpoint.contains("://") {
            endpoint.to_owned()
        } else {
            format!("{}://{endpoint}", config.scheme())
        };
        Ok(Target {
            transport,
            base: base.into(),
            headers: all,
        })
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
