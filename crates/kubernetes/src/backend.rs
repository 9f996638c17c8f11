//! The Kubernetes backend behind the trait that the lifecycle service speaks.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::id::{SandboxId, SnapshotId};
use async_trait::async_trait;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use lifecycle::backend::{
    Backend, Capabilities, ConnectError, Created, Error, Event, LogQuery, Logs, Platform,
    PullProgress, SandboxDetails, SnapshotDetails, Source, Spec, Stream, Target,
};
use lifecycle::registry::Registry;
use tokio::sync::{broadcast, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::call::{CallError, Cluster};
use crate::config::Config;
use crate::create::create;
use crate::feed::{self, Feed};
use crate::image::{self, Pulls};
use crate::node::Nodes;
use crate::sandbox::Sandbox;
use crate::{describe, dial, logs, removal, secret, template, volume};

/// Creations that the cluster is asked for at once. Its nodes work them off side by side; more would only wait longer
/// within their deadlines.
const CREATIONS_MAX: usize = 64;

/// How long the first list of nodes may take. A server that sees none works without.
const NODES_MAX: Duration = Duration::from_secs(10);

/// The Kubernetes backend. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Kubernetes {
    shared: Arc<Shared>,
}

impl fmt::Debug for Kubernetes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = &self.shared.cluster.namespace;
        f.debug_struct("Kubernetes")
            .field("namespace", namespace)
            .finish()
    }
}

/// What all sandboxes share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) cluster: Cluster,
    pub(crate) sandboxes: Registry<Sandbox>,
    pub(crate) nodes: Nodes,
    /// Nodes were listed once, or cannot be.
    pub(crate) nodes_known: watch::Sender<bool>,
    pub(crate) pulls: Pulls,
    pub(crate) template: Option<PodTemplateSpec>,
    stop: CancellationToken,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Kubernetes {
    /// Connects to the cluster and takes back the sandboxes that it has.
    pub async fn open(config: Config) -> Result<Self, Error> {
        let template = config.template.as_deref().map(template::read).transpose()?;
        let cluster = Cluster::connect(&config).await?;
        let version = cluster.version().await?;
        tracing::info!(
            version,
            namespace = cluster.namespace,
            "the cluster answers"
        );
        // Before the pods: a Secret is made before its pod and removed after it, so each pod has its own here.
        let secrets = secret::list(&cluster)
            .await
            .map_err(CallError::into_error)?;
        let kept = secrets
            .iter()
            .filter_map(|it| Some((secret::id(it)?, secret::kept(it))));
        let mut feed = Feed::new(&cluster, kept.collect::<HashMap<_, _>>());
        let shared = Arc::new(Shared {
            config,
            cluster: cluster.clone(),
            sandboxes: Registry::default(),
            nodes: Nodes::default(),
            nodes_known: watch::Sender::new(false),
            pulls: Pulls::default(),
            template,
            stop: CancellationToken::new(),
        });
        feed.first(&shared).await?;
        let stop = shared.stop.clone();
        tokio::spawn(feed.follow(Arc::downgrade(&shared), stop.clone()));
        tokio::spawn(feed::follow_nodes(cluster, Arc::downgrade(&shared), stop));
        let mut known = shared.nodes_known.subscribe();
        if tokio::time::timeout(NODES_MAX, known.wait_for(|known| *known))
            .await
            .is_err()
        {
            tracing::warn!("the nodes could not be listed; images count as absent until they are");
        }
        feed::tidy(&shared).await?;
        image::tidy(&shared).await.map_err(CallError::into_error)?;
        Ok(Self { shared })
    }
}

/// What this backend has no way to do yet.
fn unsupported(what: &'static str) -> Error {
    Error::Invalid {
        field: what,
        message: "sandboxes on Kubernetes cannot do this".to_owned(),
    }
}

#[async_trait]
impl Backend for Kubernetes {
    fn name(&self) -> &'static str {
        "kubernetes"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            pause: false,
            snapshot: false,
            network_none: false,
            network_rules: false,
            disk_limit: false,
            gpu: true,
            foreign_platform: true,
        }
    }

    fn creations_max(&self) -> usize {
        CREATIONS_MAX
    }

    async fn health(&self) -> Result<(), Error> {
        self.shared.cluster.version().await.map(drop)
    }

    async fn is_local(&self, source: &Source, platform: Option<&Platform>) -> bool {
        match source {
            Source::Image { reference, .. } => self.shared.nodes.have(reference, platform),
            Source::Snapshot(_) => false,
        }
    }

    async fn pull(
        &self,
        source: &Source,
        platform: Option<&Platform>,
        progress: mpsc::Sender<PullProgress>,
    ) -> Result<(), Error> {
        // Kubelets tell nobody how a download goes.
        drop(progress);
        match source {
            Source::Snapshot(id) => Err(Error::SnapshotNotFound(id.clone())),
            Source::Image { reference, auth } => {
                image::pull(&self.shared, reference, auth.as_ref(), platform).await
            }
        }
    }

    async fn create(&self, spec: Spec) -> Result<Created, Error> {
        let creation = create(&self.shared, &spec);
        let claims = volume::claims(&spec.volumes);
        self.shared
            .sandboxes
            .create(&spec.id, claims, creation)
            .await
    }

    async fn delete(&self, id: &SandboxId, grace: Duration) -> Result<(), Error> {
        match self.shared.sandboxes.get_settled(id).await? {
            Some(sandbox) => removal::delete(&self.shared, &sandbox, grace).await,
            None => Ok(()),
        }
    }

    async fn pause(&self, id: &SandboxId) -> Result<(), Error> {
        self.shared.sandboxes.get(id)?;
        Err(unsupported("pause"))
    }

    async fn resume(&self, id: &SandboxId) -> Result<(), Error> {
        self.shared.sandboxes.get(id)?;
        Err(unsupported("resume"))
    }

    async fn snapshot(&self, id: &SandboxId, _: &SnapshotId) -> Result<SnapshotDetails, Error> {
        self.shared.sandboxes.get(id)?;
        Err(unsupported("snapshot"))
    }

    async fn delete_snapshot(&self, _: &SnapshotId) -> Result<(), Error> {
        // There are none, and what is gone already is no error.
        Ok(())
    }

    async fn list_snapshots(&self) -> Result<Vec<SnapshotDetails>, Error> {
        Ok(Vec::new())
    }

    async fn list(&self) -> Result<Vec<SandboxDetails>, Error> {
        let all = self.shared.sandboxes.all();
        Ok(all.iter().map(|sandbox| sandbox.observe()).collect())
    }

    async fn inspect(&self, id: &SandboxId) -> Result<SandboxDetails, Error> {
        Ok(self.shared.sandboxes.get(id)?.observe())
    }

    async fn connect(
        &self,
        id: &SandboxId,
        target: Target,
    ) -> Result<Box<dyn Stream>, ConnectError> {
        let sandbox = self.shared.sandboxes.get(id);
        let sandbox = sandbox.map_err(|_| ConnectError::NotFound(id.clone()))?;
        dial::connect(&sandbox, target).await
    }

    async fn logs(&self, id: &SandboxId, query: LogQuery) -> Result<Logs, Error> {
        let sandbox = self.shared.sandboxes.get(id)?;
        logs::read(&self.shared.cluster, &sandbox, query).await
    }

    async fn follow_logs(
        &self,
        id: &SandboxId,
        query: LogQuery,
    ) -> Result<mpsc::Receiver<String>, Error> {
        let sandbox = self.shared.sandboxes.get(id)?;
        Ok(logs::follow(&self.shared.cluster, &sandbox, query))
    }

    async fn describe(&self, id: &SandboxId) -> Result<String, Error> {
        let sandbox = self.shared.sandboxes.get(id)?;
        describe::describe(&self.shared, &sandbox).await
    }

    fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.sandboxes.events()
    }
}
