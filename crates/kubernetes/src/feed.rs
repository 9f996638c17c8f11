//! The watch of the sandboxes' pods, turned into states of sandboxes, and the one of the nodes.
//!
//! A watch that breaks is begun again where it was; where the API server no longer has that (410 Gone), it lists
//! everything, and what is missing in the list is gone. While it is away, sandboxes are shown as they were last seen.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::error_chain;
use api::id::SandboxId;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::runtime::watcher::{self, Config, Event as Watched, watcher};
use lifecycle::backend::{Error, Event};
use tokio_util::sync::CancellationToken;

use crate::backend::Shared;
use crate::call::{Cluster, unavailable};
use crate::names::{ID, VOLUMES};
use crate::sandbox::{Known, Sandbox};
use crate::secret::{self, Kept};
use crate::status::{Seen, State, seen};
use crate::{removal, volume};

/// Waits between attempts to reach an API server that is away: soon at first, because a restart takes a second, then
/// seldom enough to cost nothing.
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// How long the first list may take: tens of thousands of pods come in pages.
const FIRST_LIST_MAX: Duration = Duration::from_secs(60);

type Pods = BoxStream<'static, Result<Watched<Pod>, watcher::Error>>;

/// Follows the pods of sandboxes.
pub(crate) struct Feed {
    pods: Pods,
    /// Names in the list that is being read.
    listed: HashSet<SandboxId>,
    /// What the Secrets said when the server started, until each is used.
    kept: HashMap<SandboxId, Kept>,
    lists: usize,
}

impl Feed {
    pub(crate) fn new(cluster: &Cluster, kept: HashMap<SandboxId, Kept>) -> Self {
        let api: Api<Pod> = cluster.api();
        Self {
            pods: watcher(api, Config::default().labels(ID)).boxed(),
            listed: HashSet::new(),
            kept,
            lists: 0,
        }
    }

    /// Reads the first list, so that everything is known before anybody asks.
    pub(crate) async fn first(&mut self, shared: &Arc<Shared>) -> Result<(), Error> {
        let read = async {
            while self.lists == 0 {
                match self.pods.next().await {
                    Some(Ok(event)) => self.take(shared, event),
                    Some(Err(error)) => return Err(unavailable(error_chain(&error).to_string())),
                    None => return Err(unavailable("the watch of pods ended")),
                }
            }
            Ok(())
        };
        match tokio::time::timeout(FIRST_LIST_MAX, read).await {
            Ok(read) => read,
            Err(_) => Err(unavailable(format!(
                "the pods could not be listed within {} s",
                FIRST_LIST_MAX.as_secs()
            ))),
        }
    }

    /// Follows until `stop`.
    pub(crate) async fn follow(mut self, shared: Weak<Shared>, stop: CancellationToken) {
        let mut wait = RETRY_MIN;
        loop {
            let next = tokio::select! {
                () = stop.cancelled() => return,
                next = self.pods.next() => next,
            };
            let Some(next) = next else { return };
            match next {
                Ok(event) => {
                    wait = RETRY_MIN;
                    let Some(shared) = shared.upgrade() else {
                        return;
                    };
                    self.take(&shared, event);
                }
                Err(error) => {
                    tracing::warn!(error = %error_chain(&error), "the watch of pods broke; beginning it again");
                    if tokio::time::timeout(wait, stop.cancelled()).await.is_ok() {
                        return;
                    }
                    wait = (wait * 2).min(RETRY_MAX);
                }
            }
        }
    }

    fn take(&mut self, shared: &Arc<Shared>, event: Watched<Pod>) {
        match event {
            Watched::Init => self.listed.clear(),
            Watched::InitApply(pod) => {
                if let Some(id) = id(&pod) {
                    self.listed.insert(id.clone());
                    self.apply(shared, id, &pod);
                }
            }
            Watched::InitDone => self.listed_all(shared),
            Watched::Apply(pod) => {
                if let Some(id) = id(&pod) {
                    self.apply(shared, id, &pod);
                }
            }
            Watched::Delete(pod) => {
                if let Some(sandbox) = id(&pod).and_then(|id| shared.sandboxes.find(&id))
                    && is_of(&sandbox, &pod)
                {
                    gone(shared, &sandbox);
                }
            }
        }
    }

    fn listed_all(&mut self, shared: &Arc<Shared>) {
        for sandbox in shared.sandboxes.all() {
            if !self.listed.contains(&sandbox.id) {
                gone(shared, &sandbox);
            }
        }
        self.listed.clear();
        self.kept.clear();
        self.lists += 1;
        if self.lists > 1 {
            shared.sandboxes.tell(Event::Resync);
        }
    }

    fn apply(&mut self, shared: &Arc<Shared>, id: SandboxId, pod: &Pod) {
        if let Some(sandbox) = shared.sandboxes.find(&id) {
            if is_of(&sandbox, pod) {
                see(shared, &sandbox, seen(pod));
            }
            return;
        }
        if shared.sandboxes.is_being_created(&id) {
            return;
        }
        if self.lists == 0 {
            let kept = self.kept.remove(&id);
            shared.sandboxes.insert(adopted(id, pod, kept));
            return;
        }
        // Made by another server: what it keeps is in its Secret.
        let (shared, pod) = (shared.clone(), pod.clone());
        tokio::spawn(async move {
            let name = pod.metadata.name.clone().unwrap_or_default();
            match secret::get(&shared.cluster, &name).await {
                Ok(kept) if shared.sandboxes.find(&id).is_none() => {
                    shared.sandboxes.insert(adopted(id, &pod, kept));
                }
                Ok(_) => {}
                Err(failure) => {
                    tracing::warn!(sandbox_id = %id, error = %error_chain(&failure), "a sandbox of another server is not known yet");
                }
            }
        });
    }
}

fn id(pod: &Pod) -> Option<SandboxId> {
    pod.metadata.labels.as_ref()?.get(ID)?.parse().ok()
}

/// Whether the pod is the sandbox's own, not one of its name that was there before or came after.
fn is_of(sandbox: &Sandbox, pod: &Pod) -> bool {
    let Some(uid) = &pod.metadata.uid else {
        return false;
    };
    // Its creator may not have had the answer yet.
    sandbox.uid.get_or_init(|| uid.clone()) == uid
}

fn adopted(id: SandboxId, pod: &Pod, kept: Option<Kept>) -> Arc<Sandbox> {
    let kept = kept.unwrap_or_else(|| Kept {
        labels: std::collections::BTreeMap::new(),
        token: None,
    });
    let annotations = pod.metadata.annotations.as_ref();
    let leaving = annotations.and_then(|it| serde_json::from_str(it.get(VOLUMES)?).ok());
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    let claims =
        volumes.filter_map(|it| Some(it.persistent_volume_claim.as_ref()?.claim_name.clone()));
    let sandbox = Sandbox::new(Known {
        id,
        name: pod.metadata.name.clone().unwrap_or_default(),
        labels: kept.labels,
        token: kept.token,
        volumes: claims.collect(),
        leaving_volumes: leaving.unwrap_or_default(),
    });
    let _ = sandbox
        .uid
        .set(pod.metadata.uid.clone().unwrap_or_default());
    sandbox.see(seen(pod));
    Arc::new(sandbox)
}

/// Notes what was seen and tells what nobody asked for.
fn see(shared: &Arc<Shared>, sandbox: &Arc<Sandbox>, now: Seen) {
    let before = sandbox.exit();
    sandbox.see(now);
    if let (None, Some(exit)) = (before, sandbox.exit()) {
        let id = sandbox.id.clone();
        shared.sandboxes.tell(Event::Exited { id, exit });
    }
}

fn gone(shared: &Arc<Shared>, sandbox: &Arc<Sandbox>) {
    if sandbox.state() == State::Gone {
        return;
    }
    sandbox.see_gone();
    if sandbox.is_leaving.load(Ordering::Relaxed) || shared.sandboxes.is_being_created(&sandbox.id)
    {
        return;
    }
    let id = sandbox.id.clone();
    shared.sandboxes.tell(Event::Vanished { id });
    shared.sandboxes.remove(&sandbox.id);
    let (shared, sandbox) = (shared.clone(), sandbox.clone());
    tokio::spawn(
        async move { removal::forget(&shared, &sandbox.name, &sandbox.leaving_volumes).await },
    );
}

/// Removes what a server that was killed left without a pod.
pub(crate) async fn tidy(shared: &Arc<Shared>) -> Result<(), Error> {
    let is_here = |id: &SandboxId| {
        shared.sandboxes.find(id).is_some() || shared.sandboxes.is_being_created(id)
    };
    let secrets = secret::list(&shared.cluster).await;
    for found in secrets.map_err(crate::call::CallError::into_error)? {
        let Some(id) = secret::id(&found).filter(|id| !is_here(id)) else {
            continue;
        };
        // Another server may be about to make its pod.
        let made = found.metadata.creation_timestamp.map(|time| time.0);
        let age = made.map(|at| jiff::Timestamp::now().duration_since(at));
        if age.is_some_and(|age| age.unsigned_abs() > shared.config.create_timeout * 2) {
            tracing::info!(sandbox_id = %id, "removing what is left of a sandbox without a pod");
            removal::forget(shared, &found.metadata.name.unwrap_or_default(), &[]).await;
        }
    }
    let claims = volume::leaving(&shared.cluster).await;
    for (id, claim) in claims.map_err(crate::call::CallError::into_error)? {
        if !is_here(&id) {
            removal::forget_volume(shared, &claim).await;
        }
    }
    Ok(())
}

/// Follows the nodes until `stop`, where the server may see them.
pub(crate) async fn follow_nodes(cluster: Cluster, shared: Weak<Shared>, stop: CancellationToken) {
    let api: Api<Node> = Api::all(cluster.client.clone());
    let mut nodes = watcher(api, Config::default()).boxed();
    let mut listed = HashSet::new();
    let mut wait = RETRY_MIN;
    loop {
        let next = tokio::select! {
            () = stop.cancelled() => return,
            next = nodes.next() => next,
        };
        let Some(held) = shared.upgrade() else { return };
        let name = |node: &Node| node.metadata.name.clone().unwrap_or_default();
        match next {
            None => return,
            Some(Ok(Watched::Init)) => listed.clear(),
            Some(Ok(Watched::InitApply(node))) => {
                listed.insert(name(&node));
                held.nodes.see(&node);
            }
            Some(Ok(Watched::InitDone)) => {
                held.nodes.keep(&listed);
                held.nodes_known.send_replace(true);
            }
            Some(Ok(Watched::Apply(node))) => held.nodes.see(&node),
            Some(Ok(Watched::Delete(node))) => held.nodes.remove(&name(&node)),
            Some(Err(error)) if is_forbidden(&error) => {
                tracing::warn!(error = %error_chain(&error), "nodes are not visible; images count as absent until a sandbox used them");
                held.nodes_known.send_replace(true);
                return;
            }
            Some(Err(error)) => {
                tracing::debug!(error = %error_chain(&error), "the watch of nodes broke");
                drop(held);
                if tokio::time::timeout(wait, stop.cancelled()).await.is_ok() {
                    return;
                }
                wait = (wait * 2).min(RETRY_MAX);
            }
        }
    }
}

fn is_forbidden(error: &watcher::Error) -> bool {
    let cause = match error {
        watcher::Error::InitialListFailed(cause) | watcher::Error::WatchStartFailed(cause) => cause,
        _ => return false,
    };
    matches!(cause, kube::Error::Api(status) if status.code == 403)
}
