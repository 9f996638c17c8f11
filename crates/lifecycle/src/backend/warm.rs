//! Sandboxes that are ready before anybody asks for one: made without an identity, given one when they are
//! claimed.
//!
//! A pool is a name for sandboxes of one shape, chosen by the service: a shape that changes gets another
//! name. Which of a pool's sandboxes a claim gets is the backend's choice, because on a cluster several
//! servers claim from one pool, and only the backend can see to it that none is given twice. There somebody
//! else may fill a pool, too, so that nobody counts on knowing how many are ready.

use std::collections::BTreeMap;

use api::egress::policy::EgressPolicy;
use api::id::SandboxId;
use async_trait::async_trait;
use secrecy::SecretString;

use super::{Created, Error, Limits, Platform, Source, Spec, Volume};

/// The ready sandboxes of a backend. None of them is a sandbox for [`Backend`](super::Backend) until it is
/// claimed: `list` does not have it, and no id reaches it.
#[async_trait]
pub trait WarmPools: Send + Sync {
    /// Makes one more sandbox for a pool and returns once it can be claimed. On error nothing of it is left
    /// behind.
    async fn prepare(&self, pool: &str, spec: WarmSpec) -> Result<(), Error>;

    /// Gives a ready sandbox of the pool everything that makes it somebody's, at once: from now on it is as
    /// if [`Backend::create`](super::Backend::create) had made it, and it is never ready again. `None` where
    /// the pool has none. Each is given to one caller only, however many claim at once.
    ///
    /// A server that is killed meanwhile leaves the sandbox ready, or listed with the whole claim.
    async fn claim(&self, pool: &str, claim: Claim) -> Result<Option<Created>, Error>;

    /// How many sandboxes are ready in each pool that has any, also those of an earlier server.
    async fn ready(&self) -> Result<BTreeMap<String, usize>, Error>;

    /// Removes the ready sandboxes of a pool.
    async fn drain(&self, pool: &str) -> Result<(), Error>;
}

/// The shape of a ready sandbox: what a claim cannot change.
#[derive(Debug, Clone)]
pub struct WarmSpec {
    /// What its filesystem starts as.
    pub source: Source,
    /// The platform asked for; `None` is this machine's.
    pub platform: Option<Platform>,
    /// The command that PID 1 supervises, started when the sandbox is claimed, with the environment of the
    /// claim; `None` is the image's own.
    pub entrypoint: Option<Vec<String>>,
    /// What it may use.
    pub limits: Limits,
    /// What is mounted into it.
    pub volumes: Vec<Volume>,
}

/// What makes a ready sandbox somebody's. How long it lives is in the labels, as for a sandbox that is
/// created: backends keep no time.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The sandbox's id, minted by the service.
    pub id: SandboxId,
    /// Environment of the entrypoint and of every command, over the image's own.
    pub env: BTreeMap<String, String>,
    /// What it may reach, in force before the entrypoint starts.
    pub network: EgressPolicy,
    /// The token its daemon asks for from now on.
    pub access_token: SecretString,
    /// Kept with the sandbox, as [`Spec::labels`].
    pub labels: BTreeMap<String, String>,
}

impl Spec {
    /// The sandbox that a claim makes of a ready one.
    pub fn of_claim(shape: WarmSpec, claim: Claim) -> Spec {
        Spec {
            id: claim.id,
            source: shape.source,
            platform: shape.platform,
            entrypoint: shape.entrypoint,
            env: claim.env,
            limits: shape.limits,
            volumes: shape.volumes,
            network: claim.network,
            access_token: claim.access_token,
            labels: claim.labels,
        }
    }
}
