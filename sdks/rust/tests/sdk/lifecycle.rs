//! Sandboxes, snapshots, lists, errors, and what only our server can do.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use opensandbox::wire::event::{AuditEventsQuery, LifecycleEventKind};
use opensandbox::wire::network_policy::{NetworkPolicy, NetworkRule, PolicyAction};
use opensandbox::wire::sandbox::SandboxState;
use opensandbox::{
    Client, CreateSandbox, Error, Protocol, RetryPolicy, Sandbox, SandboxFilter, SnapshotFilter,
    volume,
};

use crate::sandbox;
use crate::server::Server;

pub(crate) async fn a_sandbox_from_creation_to_end(server: Arc<Server>) {
    let client = server.client();
    let create = Sandbox::create("host")
        .client(&client)
        .timeout(Duration::from_secs(300))
        .env("A", "b")
        .metadata("case", "creation")
        .resource("memory", "256Mi")
        .entrypoint(["sleep", "infinity"])
        .ready_timeout(Duration::from_secs(60))
        .health_check_interval(Duration::from_millis(50));
    let (sandbox, answer) = create.create().await.unwrap();
    assert_eq!(answer.id.as_str(), sandbox.id());
    assert_eq!(
        sandbox.client().config().request_timeout_value().as_secs(),
        30
    );
    let info = sandbox.info().await.unwrap();
    assert_eq!(info.status.state, SandboxState::Running);
    assert_eq!(info.metadata.unwrap()["case"], "creation");
    let output = sandbox.commands().run("echo $A").await.unwrap();
    assert_eq!(output.stdout, "b\n");
    assert!(sandbox.is_healthy().await);

    let used = sandbox.metrics().await.unwrap();
    assert!(
        used.mem_total_mib > 200.0 && used.mem_total_mib < 300.0,
        "{used:?}"
    );
    let mut watched = pin!(sandbox.watch_metrics().await.unwrap());
    assert!(watched.next().await.unwrap().unwrap().timestamp > 0);

    let expires = sandbox.renew(Duration::from_secs(900)).await.unwrap();
    assert!(expires > info.expires_at.unwrap());
    let patch = BTreeMap::from([
        ("case".to_owned(), None),
        ("other".to_owned(), Some("1".to_owned())),
    ]);
    let patched = sandbox.patch_metadata(&patch).await.unwrap();
    assert_eq!(
        patched.metadata.unwrap(),
        [("other".to_owned(), "1".to_owned())].into()
    );

    let endpoint = sandbox.endpoint(8000).await.unwrap();
    assert!(endpoint.endpoint.ends_with("/8000"), "{endpoint:?}");
    // This server has no gateway, and says so.
    let refused = sandbox.link(8000, None).await.unwrap_err();
    assert!(refused.to_string().contains("ingress gateway"), "{refused}");
    let (url, headers) = sandbox.url(8000).await.unwrap();
    assert!(url.starts_with("http://") && !headers.is_empty());
    let signed = sandbox.signed_endpoint(8000, expires).await.unwrap_err();
    assert_eq!(signed.status().unwrap().as_u16(), 400, "{signed}");

    let same = Sandbox::connect(sandbox.id())
        .client(&client)
        .timeout(Duration::from_secs(60))
        .health_check_interval(Duration::from_millis(50))
        .await
        .unwrap();
    same.ping().await.unwrap();
    let proxied = Client::new(server.config().use_server_proxy(true)).unwrap();
    let proxied = proxied.connect(sandbox.id()).await.unwrap();
    assert!(proxied.commands().run("true").await.unwrap().is_success());

    sandbox.kill().await.unwrap();
    sandbox.kill().await.unwrap();
    assert!(sandbox.info().await.unwrap_err().is_not_found());
    let late = client
        .connect(sandbox.id())
        .skip_health_check()
        .await
        .unwrap();
    assert!(!late.is_healthy().await);
}

pub(crate) async fn a_block_that_is_left_ends_its_sandbox(server: Arc<Server>) {
    let client = server.client();
    let create = || Sandbox::create("host").client(&client);
    let is_gone = async |id: &str| {
        client
            .get(id)
            .await
            .is_err_and(|error| error.is_not_found())
    };

    let id = create()
        .scoped(async |sandbox| Ok::<_, Error>(sandbox.id().to_owned()))
        .await
        .unwrap();
    assert!(is_gone(&id).await, "it ended with its block");
    let kept = create()
        .scoped(async |sandbox| {
            sandbox.keep();
            Ok::<_, Error>(sandbox)
        })
        .await
        .unwrap();
    assert!(kept.is_healthy().await, "it was kept");
    kept.kill().await.unwrap();

    // A block that is not awaited any more is left as well.
    let mut events = pin!(client.events(None, None).await.unwrap());
    let (tell, told) = tokio::sync::oneshot::channel();
    let given_up = tokio::spawn(create().scoped(async |sandbox| {
        tell.send(sandbox.id().to_owned()).unwrap();
        std::future::pending::<opensandbox::Result<()>>().await
    }));
    let id = told.await.unwrap();
    given_up.abort();
    loop {
        let event = events.next().await.unwrap().unwrap();
        let is_same = event.sandbox_id.is_some_and(|other| other.as_str() == id);
        if is_same && event.kind == LifecycleEventKind::SandboxDeleted {
            break;
        }
    }
    assert!(is_gone(&id).await, "it ended although its block did not");
}

pub(crate) async fn lists_are_filtered_and_paged(server: Arc<Server>) {
    let client = server.client();
    let make = |_| async {
        let create = client.create("host").metadata("case", "list-and-page");
        create.skip_health_check().await.unwrap()
    };
    let made = futures_util::future::join_all((0..3).map(make)).await;
    let mut filter = SandboxFilter {
        states: vec![SandboxState::Running, SandboxState::Pending],
        metadata: [("case".to_owned(), "list-and-page".to_owned())].into(),
        ..SandboxFilter::default()
    };
    filter.page.size = 2;
    let page = client.list(&filter).await.unwrap();
    assert_eq!((page.items.len(), page.pagination.total_items), (2, 3));
    let all = client.list_all(filter.clone());
    let all: Vec<_> = all.try_collect().await.unwrap();
    assert_eq!(all.len(), 3);
    for sandbox in &made {
        assert_eq!(client.sandbox(sandbox.id()).id(), sandbox.id());
        client.kill(sandbox.id()).await.unwrap();
    }
    assert!(client.list(&filter).await.unwrap().items.is_empty());
}

pub(crate) async fn pause_snapshot_and_restore(server: Arc<Server>) {
    let client = server.client();
    let sandbox = sandbox(&client).await;
    sandbox.files().write("/root/kept", "kept").await.unwrap();
    sandbox.pause().await.unwrap();
    assert_eq!(
        sandbox.info().await.unwrap().status.state,
        SandboxState::Paused
    );
    let paused = client.connect(sandbox.id()).await.unwrap_err();
    assert!(paused.to_string().contains("Paused"), "{paused}");
    sandbox.unpause().await.unwrap();
    assert!(sandbox.is_healthy().await);
    client.pause(sandbox.id()).await.unwrap();
    let resumed = Sandbox::resume(sandbox.id()).client(&client).await.unwrap();
    assert!(resumed.is_healthy().await);
    let state = SandboxState::Running;
    client.wait_for_state(sandbox.id(), state).await.unwrap();

    let snapshot = sandbox.snapshot(Some("kept")).await.unwrap();
    let id = snapshot.id.as_str();
    assert_eq!(client.get_snapshot(id).await.unwrap().id, snapshot.id);
    let filter = SnapshotFilter {
        sandbox_id: Some(sandbox.id().to_owned()),
        ..SnapshotFilter::default()
    };
    assert_eq!(client.list_snapshots(&filter).await.unwrap().items.len(), 1);
    let all = client.list_all_snapshots(filter);
    assert_eq!(all.try_collect::<Vec<_>>().await.unwrap().len(), 1);
    let begun = client.create_snapshot(sandbox.id(), None).await.unwrap();
    let second = client.wait_for_snapshot(begun.id.as_str()).await.unwrap();
    client.delete_snapshot(second.id.as_str()).await.unwrap();

    let restored = Sandbox::create_from_snapshot(id).client(&client);
    let restored = restored.await.unwrap();
    assert_eq!(restored.files().read("/root/kept").await.unwrap(), b"kept");
    restored.kill().await.unwrap();
    client.delete_snapshot(id).await.unwrap();
    assert!(client.get_snapshot(id).await.unwrap_err().is_not_found());
    sandbox.kill().await.unwrap();
}

pub(crate) async fn errors_say_what_and_which_request(server: Arc<Server>) {
    let client = server.client();
    let error = client.get("no-such-sandbox").await.unwrap_err();
    assert!(error.is_not_found() && error.code().is_some() && !error.is_retryable());
    let id = error.request_id().expect("every answer names its request");
    assert!(error.to_string().contains(id), "{error}");
    assert!(error.api().unwrap().what.contains("GET /sandboxes/"));

    let stranger = Client::new(server.config().api_key("wrong")).unwrap();
    let error = stranger.list(&SandboxFilter::default()).await.unwrap_err();
    assert!(error.is_unauthorized(), "{error}");

    let config = opensandbox::ConnectionConfig::new()
        .domain("127.0.0.1:1")
        .protocol(Protocol::Http)
        .request_timeout(Duration::from_secs(5))
        .user_agent("test")
        .header("X-Test", "1")
        .retry(RetryPolicy::disabled());
    assert_eq!(Protocol::Http.as_str(), "http");
    assert_eq!(config.root_url().unwrap(), "http://127.0.0.1:1");
    assert_eq!(config.base_url().unwrap(), "http://127.0.0.1:1/v1");
    let error = Client::new(config).unwrap().health().await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Connection {
                is_unsent: true,
                ..
            }
        ),
        "{error}"
    );
    assert!(error.is_retryable());

    let wrong = client.create("host").resource("cpu", "lots").await;
    let wrong = wrong.unwrap_err();
    assert!(!wrong.api().unwrap().details.is_empty(), "{wrong:?}");
    for id in ["", ".", ".."] {
        let error = client.get(id).await.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    }
    // The environment may say anything here; only that it is read without a fault is asked.
    let _ = opensandbox::ConnectionConfig::from_env().unwrap();
    let _ = opensandbox::ConnectionConfig::load();
    let _ = Client::from_env();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("config.toml");
    std::fs::write(
        &file,
        "[connection]\ndomain = 'a:1'\n[output]\ncolor = true\n",
    )
    .unwrap();
    let config = opensandbox::ConnectionConfig::from_file(&file).unwrap();
    assert_eq!(config.root_url().unwrap(), "http://a:1");
    assert!(config.with_environment().is_ok());
    assert!(
        opensandbox::ConnectionConfig::default_file().is_none_or(|f| f.ends_with("config.toml"))
    );
    std::fs::write(&file, "connection = 3").unwrap();
    assert!(opensandbox::ConnectionConfig::from_file(&file).is_err());
}

pub(crate) async fn extensions_of_the_server(server: Arc<Server>) {
    let client = server.client();
    assert_eq!(client.health().await.unwrap().status, "healthy");
    assert!(!client.version().await.unwrap().version.is_empty());
    let mut events = pin!(client.events(None, None).await.unwrap());
    let sandbox = sandbox(&client).await;
    loop {
        let event = events.next().await.unwrap().unwrap();
        if event
            .sandbox_id
            .is_some_and(|id| id.as_str() == sandbox.id())
        {
            break;
        }
    }
    let filter = AuditEventsQuery {
        resource: Some(sandbox.id().to_owned()),
        limit: Some(10),
        ..AuditEventsQuery::default()
    };
    // The record is written behind; creating is in it once a later change of it is answered.
    client.audit_events(&filter).await.unwrap();
    let logs = sandbox.diagnostic_logs("all").await.unwrap();
    assert_eq!(logs.sandbox_id.as_str(), sandbox.id());
    let events = sandbox.diagnostic_events("all").await.unwrap();
    assert!(events.content.is_some());
    client
        .diagnostic_logs(sandbox.id(), "container")
        .await
        .unwrap();
    client
        .diagnostic_events(sandbox.id(), "runtime")
        .await
        .unwrap();
    let summary = client.diagnostics_text(sandbox.id(), "summary", "").await;
    assert!(summary.unwrap().contains(sandbox.id()));
    let path = format!("/sandboxes/{}?x=1", sandbox.id());
    let raw = client
        .request(http::Method::GET, &path, None)
        .await
        .unwrap();
    assert_eq!(raw["id"], sandbox.id());

    // Whether this server has them is its affair; that it is asked in the right words is ours.
    let rule = NetworkRule::new(PolicyAction::Deny, "example.com");
    let policy = NetworkPolicy::deny_all();
    let known = |error: &Error| error.status().is_some_and(|status| status.as_u16() != 422);
    let id = sandbox.id();
    let vault = serde_json::json!({"credentials": [], "bindings": []});
    let vault = serde_json::from_value(vault).unwrap();
    let answers = [
        client.network_policy(id).await.err(),
        client.set_network_policy(id, &policy).await.err(),
        client
            .patch_network_policy(id, std::slice::from_ref(&rule))
            .await
            .err(),
        sandbox.egress().policy().await.err(),
        sandbox
            .egress()
            .patch(std::slice::from_ref(&rule))
            .await
            .err(),
        sandbox
            .egress()
            .delete(&["example.com".to_owned()])
            .await
            .err(),
        sandbox.credential_vault().get().await.err(),
        sandbox.credential_vault().credentials().await.err(),
        sandbox.credential_vault().credential("c").await.err(),
        sandbox.credential_vault().bindings().await.err(),
        sandbox.credential_vault().binding("b").await.err(),
        sandbox.credential_vault().create(&vault).await.err(),
        sandbox
            .credential_vault()
            .patch(&Default::default())
            .await
            .err(),
        sandbox.credential_vault().delete().await.err(),
        client.list_templates("page=1").await.err(),
        client.get_template("tpl_none").await.err(),
        client.delete_template("tpl_none").await.err(),
    ];
    for error in answers.iter().flatten() {
        assert!(known(error), "{error}");
    }
    let template = serde_json::json!({"image": "host", "publish": "s3://b/p"});
    let template = serde_json::from_value(template).unwrap();
    let refused = client.create_template(&template).await;
    assert!(refused.is_err_and(|error| known(&error)));
    sandbox.kill().await.unwrap();
}

pub(crate) async fn a_create_that_cannot_work_leaves_nothing(server: Arc<Server>) {
    let client = server.client();
    let create = CreateSandbox::from_image("host")
        .client(&client)
        .metadata("case", "cannot-work")
        .image_auth("user", "password")
        .forever()
        .resources([("cpu".to_owned(), "1".to_owned())].into())
        .resource_requests([("cpu".to_owned(), "1".to_owned())].into())
        .network_policy(NetworkPolicy::default())
        .credential_proxy(false)
        .secure_access(false)
        .volume(volume::read_only(volume::host("v", "/not/allowed", "/v")))
        .volume(volume::named("n", "n", "/n"))
        .platform("linux", "amd64")
        .lifecycle(Default::default())
        .extension("opensandbox.extensions.x", "1");
    assert_eq!(create.request().volumes.as_ref().unwrap().len(), 2);
    let request = create.request().clone();
    let refused = client
        .create_request(&request, Duration::from_secs(5))
        .await;
    assert!(refused.unwrap_err().status().unwrap().is_client_error());
    let refused = CreateSandbox::from_request(request).client(&client).await;
    assert!(refused.unwrap_err().status().unwrap().is_client_error());
    let template = Sandbox::create_from_template("tpl_none").client(&client);
    assert!(template.await.unwrap_err().api().is_some());
    assert!(
        CreateSandbox::from_snapshot("s")
            .request()
            .snapshot_id
            .is_some()
    );
    assert!(
        CreateSandbox::from_template("t")
            .request()
            .template_id
            .is_some()
    );

    // It has no time to become ready.
    let create = client
        .create("host")
        .metadata("case", "cannot-work")
        .ready_timeout(Duration::from_nanos(1));
    let error = create.await.unwrap_err();
    assert!(matches!(error, Error::NotReady { .. }), "{error}");
    let filter = SandboxFilter {
        metadata: [("case".to_owned(), "cannot-work".to_owned())].into(),
        ..SandboxFilter::default()
    };
    let left = client.list(&filter).await.unwrap().items;
    assert!(left.is_empty(), "{error}: {left:?}");
    let handle = Sandbox::handle(client, "no-such-sandbox");
    assert!(handle.ping().await.unwrap_err().is_not_found());
}
