//! Keys, tokens and tenants of a server.

use std::collections::BTreeMap;
use std::sync::Arc;

use opensandbox::wire::access::{
    CreateKeyRequest, CreateTokenRequest, KeyAction, KeyRole, RotateKeyRequest,
};
use opensandbox::{Client, CreateSandbox, SandboxFilter};

use crate::server::Server;

fn client(server: &Server, key: &str) -> Client {
    Client::new(server.config().api_key(key)).unwrap()
}

fn request(name: &str, role: KeyRole) -> CreateKeyRequest {
    CreateKeyRequest {
        name: name.to_owned(),
        role,
        tenant: None,
        actions: None,
        images: Vec::new(),
        labels: BTreeMap::new(),
        expires_at: None,
    }
}

pub(crate) async fn keys_and_tokens_come_and_go(server: Arc<Server>) {
    let root = server.client();
    let made = root
        .keys()
        .create(&request("sdk", KeyRole::User))
        .await
        .unwrap();
    let user = client(&server, made.value.expose());
    let sandbox = CreateSandbox::from_image("host")
        .client(&user)
        .await
        .unwrap();
    let other = CreateSandbox::from_image("host")
        .client(&root)
        .await
        .unwrap();
    let request = CreateTokenRequest {
        sandbox_id: Some(sandbox.id().parse().unwrap()),
        actions: Some(vec![KeyAction::Read, KeyAction::Connect]),
        ttl_seconds: Some(600),
    };
    let token = user.keys().create_token(&request).await.unwrap();
    let holder = client(&server, token.value.expose());
    let seen = holder.list(&SandboxFilter::default()).await.unwrap().items;
    assert_eq!(seen.len(), 1);
    assert!(holder.get(other.id()).await.unwrap_err().is_not_found());
    assert!(holder.kill(sandbox.id()).await.is_err());
    let listed = root.keys().list().await.unwrap().items;
    let found = listed.iter().find(|key| key.id == made.key.id).unwrap();
    assert!(found.last_used_at.is_some());
    let grace = RotateKeyRequest {
        grace_seconds: None,
    };
    let rotated = root.keys().rotate(&made.key.id, &grace).await.unwrap();
    assert!(user.list(&SandboxFilter::default()).await.is_err());
    assert!(holder.list(&SandboxFilter::default()).await.is_err());
    let user = client(&server, rotated.value.expose());
    user.list(&SandboxFilter::default()).await.unwrap();
    root.keys().revoke(&made.key.id).await.unwrap();
    assert!(user.list(&SandboxFilter::default()).await.is_err());
    root.kill(sandbox.id()).await.unwrap();
    other.kill().await.unwrap();
}

pub(crate) async fn tenants_come_and_go(server: Arc<Server>) {
    let tenants = server.client().tenants();
    assert_eq!(tenants.create("sdk-team").await.unwrap().name, "sdk-team");
    assert!(!tenants.get("sdk-team").await.unwrap().is_configured);
    let listed = tenants.list().await.unwrap().items;
    assert!(listed.iter().any(|tenant| tenant.name == "sdk-team"));
    let key = CreateKeyRequest {
        tenant: Some("sdk-team".to_owned()),
        ..request("team", KeyRole::User)
    };
    let made = server.client().keys().create(&key).await.unwrap();
    let team = client(&server, made.value.expose());
    let sandbox = CreateSandbox::from_image("host")
        .client(&team)
        .await
        .unwrap();
    assert!(
        server
            .client()
            .get(sandbox.id())
            .await
            .unwrap_err()
            .is_not_found()
    );
    assert!(tenants.remove("sdk-team").await.is_err());
    sandbox.kill().await.unwrap();
    tenants.remove("sdk-team").await.unwrap();
    assert!(team.list(&SandboxFilter::default()).await.is_err());
    assert!(tenants.get("sdk-team").await.unwrap_err().is_not_found());
}
