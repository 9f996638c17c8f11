//! The pool on the client's side.

use std::sync::Arc;
use std::time::Duration;

use opensandbox::{AcquirePolicy, CreateSandbox, Error, Pool, PoolConfig, SandboxFilter};

use crate::server::Server;

const SOON: Duration = Duration::from_secs(90);

pub(crate) async fn sandboxes_are_ready_before_they_are_asked_for(server: Arc<Server>) {
    let client = server.client();
    let kind = CreateSandbox::from_image("host").metadata("case", "pool");
    let config = PoolConfig::new(kind, 2)
        .policy(AcquirePolicy::Fail)
        .idle_timeout(Duration::from_secs(600))
        .warmup_concurrency(2);
    let pool = Pool::start(&client, config);
    pool.wait_until_warm(SOON).await.unwrap();
    assert_eq!((pool.status().idle, pool.status().max_idle), (2, 2));

    let lifetime = Duration::from_secs(120);
    let taken = pool.acquire(lifetime).await.unwrap();
    assert!(taken.commands().run("true").await.unwrap().is_success());
    // One that died while it waited is passed over, and replaced.
    pool.wait_until_warm(SOON).await.unwrap();
    let filter = SandboxFilter {
        metadata: [("case".to_owned(), "pool".to_owned())].into(),
        ..SandboxFilter::default()
    };
    for found in client.list(&filter).await.unwrap().items {
        if found.id.as_str() != taken.id() {
            client.kill(found.id.as_str()).await.unwrap();
        }
    }
    pool.resize(0).await;
    let empty = pool.acquire(lifetime).await.unwrap_err();
    assert!(matches!(empty, Error::PoolEmpty), "{empty}");
    pool.resize(1).await;
    pool.wait_until_warm(SOON).await.unwrap();
    pool.shutdown().await;
    taken.kill().await.unwrap();
    let left = client.list(&filter).await.unwrap().items;
    assert!(left.is_empty(), "{left:?}");
}
