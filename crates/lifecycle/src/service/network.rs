//! What a sandbox may reach, as callers read and change it.

use api::egress::policy::EgressPolicy;
use api::id::SandboxId;

use super::{Service, within};
use crate::backend;
use crate::error::Error;
use crate::owner::Command;
use crate::policy::{PolicyChange, PolicyOutcome};
use crate::rights::Right;
use crate::{admission, deadlines};

impl Service {
    /// What a sandbox may reach now.
    pub async fn network_policy(&self, id: &SandboxId) -> Result<EgressPolicy, Error> {
        admission::hold_policy(&self.caller, Right::Read)?;
        let sandbox = self.get(id)?;
        let read = self.shared().backend.network_policy(id);
        match within("reading the network policy", deadlines::INSPECT, read).await? {
            Err(backend::Error::NotFound(_)) => Err(Error::WrongState {
                id: id.clone(),
                action: "read its network policy",
                state: sandbox.status.state,
                why: sandbox.status.why_ended(),
                wanted: "Running or Paused",
            }),
            other => Ok(other?),
        }
    }

    /// Changes what a sandbox may reach. It is in force when answered, and stays so over a restart.
    pub async fn change_network_policy(
        &self,
        id: &SandboxId,
        change: PolicyChange,
    ) -> Result<PolicyOutcome, Error> {
        admission::hold_policy(&self.caller, Right::Change)?;
        let capabilities = self.plane.capabilities();
        admission::policy_change(&change, capabilities, self.plane.backend_name())?;
        let by = self.caller.audit.clone();
        self.tell(id, |reply| Command::ChangePolicy { change, by, reply })
            .await
    }
}
