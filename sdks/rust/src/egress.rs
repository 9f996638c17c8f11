//! What a sandbox may reach, and the credentials that are put into its requests on the way out.
//! Both are asked of the sandbox's egress API.

use api::egress::vault::{
    CreateVaultRequest, CredentialBindingListResponse, CredentialBindingMetadata,
    CredentialListResponse, CredentialMetadata, MutateVaultRequest, VaultState,
};
use api::network_policy::{NetworkPolicy, NetworkRule, PolicyStatus};
use http::Method;

use crate::error::Result;
use crate::sandbox::Sandbox;
use crate::transport::segment;

const VAULT: &str = "/credential-vault";

/// What a sandbox may reach; see [`Sandbox::egress`].
#[derive(Debug, Clone)]
pub struct Egress {
    sandbox: Sandbox,
}

impl Egress {
    pub(crate) fn new(sandbox: Sandbox) -> Self {
        Self { sandbox }
    }

    /// The policy.
    pub async fn policy(&self) -> Result<PolicyStatus> {
        let api = self.sandbox.egress_api().await?;
        api.get("/policy").json_answer().await
    }

    /// Replaces the policy.
    pub async fn set(&self, policy: &NetworkPolicy) -> Result<PolicyStatus> {
        let api = self.sandbox.egress_api().await?;
        let request = api.request(Method::PUT, "/policy").json(policy);
        request.json_answer().await
    }

    /// Puts rules before the others.
    pub async fn patch(&self, rules: &[NetworkRule]) -> Result<PolicyStatus> {
        let api = self.sandbox.egress_api().await?;
        let request = api.request(Method::PATCH, "/policy").json(rules);
        request.json_answer().await
    }

    /// Removes the rules of these targets.
    pub async fn delete(&self, targets: &[String]) -> Result<PolicyStatus> {
        let api = self.sandbox.egress_api().await?;
        let request = api.delete("/policy").json(targets);
        request.json_answer().await
    }
}

/// Credentials of a sandbox; see [`Sandbox::credential_vault`].
#[derive(Debug, Clone)]
pub struct CredentialVault {
    sandbox: Sandbox,
}

impl CredentialVault {
    pub(crate) fn new(sandbox: Sandbox) -> Self {
        Self { sandbox }
    }

    /// Makes the vault.
    pub async fn create(&self, request: &CreateVaultRequest) -> Result<VaultState> {
        let api = self.sandbox.egress_api().await?;
        api.post(VAULT).json(request).json_answer().await
    }

    /// The vault, without any secret.
    pub async fn get(&self) -> Result<VaultState> {
        let api = self.sandbox.egress_api().await?;
        api.get(VAULT).json_answer().await
    }

    /// Changes the vault, all or nothing.
    pub async fn patch(&self, request: &MutateVaultRequest) -> Result<VaultState> {
        let api = self.sandbox.egress_api().await?;
        let call = api.request(Method::PATCH, VAULT).json(request);
        call.json_answer().await
    }

    /// Removes the vault.
    pub async fn delete(&self) -> Result<()> {
        let api = self.sandbox.egress_api().await?;
        api.delete(VAULT).done().await
    }

    /// Its credentials, without any secret.
    pub async fn credentials(&self) -> Result<CredentialListResponse> {
        let api = self.sandbox.egress_api().await?;
        let request = api.get(format!("{VAULT}/credentials"));
        request.json_answer().await
    }

    /// One credential, without any secret.
    pub async fn credential(&self, name: &str) -> Result<CredentialMetadata> {
        let api = self.sandbox.egress_api().await?;
        let request = api.get(format!("{VAULT}/credentials/{}", segment(name)?));
        request.json_answer().await
    }

    /// Its bindings.
    pub async fn bindings(&self) -> Result<CredentialBindingListResponse> {
        let api = self.sandbox.egress_api().await?;
        let request = api.get(format!("{VAULT}/bindings"));
        request.json_answer().await
    }

    /// One binding.
    pub async fn binding(&self, name: &str) -> Result<CredentialBindingMetadata> {
        let api = self.sandbox.egress_api().await?;
        let request = api.get(format!("{VAULT}/bindings/{}", segment(name)?));
        request.json_answer().await
    }
}
