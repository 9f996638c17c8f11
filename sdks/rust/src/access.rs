//! Who may use a server: API keys, tokens made from them, and tenants. Extensions of the protocol, for
//! administrators, but for tokens.

use api::access::{
    CreateKeyRequest, CreateTenantRequest, CreateTokenRequest, ListKeysResponse,
    ListTenantsResponse, NewApiKey, RotateKeyRequest, Tenant,
};

use crate::client::Client;
use crate::error::Result;
use crate::transport::segment;

/// The API keys of a server, by [`Client::keys`].
///
/// ```no_run
/// use opensandbox::Client;
/// use opensandbox::wire::access::CreateTokenRequest;
///
/// # async fn example() -> opensandbox::Result<()> {
/// // For a browser or an agent: an hour, and one sandbox.
/// let request = CreateTokenRequest {
///     sandbox_id: Some("my-sandbox".parse().unwrap()),
///     ..CreateTokenRequest::default()
/// };
/// let token = Client::from_env()?.keys().create_token(&request).await?;
/// println!("{}", token.value.expose());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Keys {
    client: Client,
}

impl Keys {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    /// All that the caller looks after, and tokens that are good.
    pub async fn list(&self) -> Result<ListKeysResponse> {
        self.client.target().get("/keys").json_answer().await
    }

    /// Makes a key, whose value is shown this once.
    pub async fn create(&self, request: &CreateKeyRequest) -> Result<NewApiKey> {
        let call = self.client.target().post("/keys").json(request);
        call.json_answer().await
    }

    /// Gives a key a new value. What is open with the old one ends, and it is good for so many seconds more.
    pub async fn rotate(&self, id: &str, request: &RotateKeyRequest) -> Result<NewApiKey> {
        let path = format!("/keys/{}/rotate", segment(id)?);
        let call = self.client.target().post(path).json(request);
        call.json_answer().await
    }

    /// Revokes a key with its tokens; what is open with them ends.
    pub async fn revoke(&self, id: &str) -> Result<()> {
        let path = format!("/keys/{}", segment(id)?);
        self.client.target().delete(path).done().await
    }

    /// Makes a token from this client's own key: a key for a short time that may do no more.
    pub async fn create_token(&self, request: &CreateTokenRequest) -> Result<NewApiKey> {
        let call = self.client.target().post("/tokens").json(request);
        call.json_answer().await
    }
}

/// The tenants of a server, by [`Client::tenants`].
#[derive(Debug, Clone)]
pub struct Tenants {
    client: Client,
}

impl Tenants {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    /// All but the built-in one.
    pub async fn list(&self) -> Result<ListTenantsResponse> {
        self.client.target().get("/tenants").json_answer().await
    }

    /// One of them.
    pub async fn get(&self, name: &str) -> Result<Tenant> {
        let path = format!("/tenants/{}", segment(name)?);
        self.client.target().get(path).json_answer().await
    }

    /// Makes a tenant.
    pub async fn create(&self, name: &str) -> Result<Tenant> {
        let order = CreateTenantRequest {
            name: name.to_owned(),
        };
        let call = self.client.target().post("/tenants").json(&order);
        call.json_answer().await
    }

    /// Removes a tenant that has nothing any more, with its keys.
    pub async fn remove(&self, name: &str) -> Result<()> {
        let path = format!("/tenants/{}", segment(name)?);
        self.client.target().delete(path).done().await
    }
}
