//! The calls on a client: what it asks the control plane, and what it makes. The others are in
//! `calls_inside.rs`, `shells.rs` and `files.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use opensandbox::wire::event::AuditEventsQuery;
use opensandbox::wire::inventory::PullImageRequest;
use opensandbox::wire::query::QueryWriter;
use opensandbox::wire::sandbox::ImageSpec;
use opensandbox::{AcquirePolicy, Client, Pool, PoolConfig, Sandbox};
use serde_json::{Value, json};

use crate::arguments::With;
use crate::held::Held;
use crate::{Answer, Failure, Made, calls_inside, closed, config, files, shells, silent, told};

/// Makes a call of sdks/conformance/README.md.
pub(crate) async fn make(call: &str, on: Option<Held>, with: &With) -> Made {
    if call == "config.load" {
        return config::load(with).await;
    }
    if call == "client.new" {
        let client = Client::new(with.config()?)?;
        return Ok(Answer::Kept(Held::Client(client), Value::Null));
    }
    let on = on.ok_or_else(|| Failure::Runner(format!("{call} is made on nothing")))?;
    let (family, _) = call.split_once('.').unwrap_or((call, ""));
    match family {
        "client" => client(call, on.client()?, with).await,
        "images" | "volumes" => inventory(call, on.client()?, with).await,
        "keys" | "tenants" => access(call, on.client()?, with).await,
        "pool" => pool(call, &on, with).await,
        "stream" | "tunnel" => calls_inside::streams(call, &on, with).await,
        "sandbox" => sandboxes(call, &on, with).await,
        "commands" => calls_inside::commands(call, on.sandbox()?, with).await,
        "execution" => calls_inside::execution(call, on.execution()?).await,
        "sessions" | "session" | "terminals" | "terminal" | "connection" => {
            shells::make(call, &on, with).await
        }
        "code" => calls_inside::code(call, on.sandbox()?, with).await,
        "files" => files::make(call, on.sandbox()?, with).await,
        "egress" | "vault" => calls_inside::egress(call, on.sandbox()?, with).await,
        _ => unknown(call),
    }
}

pub(crate) fn unknown(call: &str) -> Made {
    Err(Failure::Runner(format!("this runner has no call {call}")))
}

pub(crate) fn kept_sandbox(sandbox: Sandbox) -> Made {
    let shown = json!({"id": sandbox.id()});
    Ok(Answer::Kept(Held::Sandbox(sandbox), shown))
}

fn kept_stream<T: serde::Serialize + 'static>(
    values: impl Stream<Item = opensandbox::Result<T>> + Send + 'static,
) -> Made {
    Ok(Answer::Kept(Held::of_stream(values), Value::Null))
}

async fn collected<T: serde::Serialize>(
    all: impl Stream<Item = opensandbox::Result<T>>,
    with: &With,
) -> Made {
    let limit = with.optional("limit")?.unwrap_or(usize::MAX);
    let values: Vec<T> = all.take(limit).try_collect().await?;
    told(values)
}

/// What a client asks of sandboxes and snapshots; the rest is [`operator`].
async fn client(call: &str, on: &Client, with: &With) -> Made {
    let id = with.string("id");
    match call {
        "client.health" => told(on.health().await?),
        "client.version" => told(on.version().await?),
        "client.get" => told(on.get(id).await?),
        "client.kill" => silent(on.kill(id).await?),
        "client.list" => told(on.list(&with.sandbox_filter()?).await?),
        "client.list_all" => collected(on.list_all(with.sandbox_filter()?), with).await,
        "client.pause" => silent(on.pause(id).await?),
        "client.resume" => silent(on.resume(id).await?),
        "client.request" => {
            let method = with.string("method").parse();
            let method = method.map_err(|_| Failure::Runner("method".to_owned()))?;
            let body: Option<Value> = with.optional("body")?;
            let path = with.string("path");
            told(on.request(method, path, body.as_ref()).await?)
        }
        "client.get_snapshot" => told(on.get_snapshot(id).await?),
        "client.delete_snapshot" => silent(on.delete_snapshot(id).await?),
        "client.list_snapshots" => told(on.list_snapshots(&with.snapshot_filter()?).await?),
        "client.list_all_snapshots" => {
            collected(on.list_all_snapshots(with.snapshot_filter()?), with).await
        }
        "client.events" => kept_stream(
            on.events(with.text("sandbox_id"), with.number("after"))
                .await?,
        ),
        "client.follow_logs" => kept_stream(on.follow_logs(id, with.number("tail")).await?),
        _ => operator(call, on, with).await,
    }
}

/// What those who run a server ask for.
async fn operator(call: &str, on: &Client, with: &With) -> Made {
    let (id, name) = (with.string("id"), with.string("name"));
    match call {
        "client.create_template" => told(on.create_template(&with.need("request")?).await?),
        "client.get_template" => told(on.get_template(id).await?),
        "client.list_templates" => told(on.list_templates(&template_query(with)?).await?),
        "client.delete_template" => silent(on.delete_template(id).await?),
        "client.create_pool" => told(on.create_pool(&with.need("request")?).await?),
        "client.get_pool" => told(on.get_pool(name).await?),
        "client.list_pools" => told(on.list_pools().await?),
        "client.update_pool" => told(on.update_pool(name, &with.need("request")?).await?),
        "client.delete_pool" => silent(on.delete_pool(name).await?),
        "client.network_policy" => told(on.network_policy(id).await?),
        "client.set_network_policy" => {
            told(on.set_network_policy(id, &with.need("policy")?).await?)
        }
        "client.patch_network_policy" => {
            let rules: Vec<_> = with.need("rules")?;
            told(on.patch_network_policy(id, &rules).await?)
        }
        "client.delete_network_policy" => {
            let targets: Vec<_> = with.need("targets")?;
            told(on.delete_network_policy(id, &targets).await?)
        }
        "client.audit_events" => {
            let filter = AuditEventsQuery {
                resource: with.optional("resource")?,
                actor: with.optional("actor")?,
                before: with.number("before"),
                limit: with.number("limit"),
            };
            told(on.audit_events(&filter).await?)
        }
        "client.diagnostic_logs" => told(on.diagnostic_logs(id, with.string("scope")).await?),
        "client.diagnostic_events" => told(on.diagnostic_events(id, with.string("scope")).await?),
        "client.diagnostics_text" => {
            let query: BTreeMap<String, Value> = with.optional("query")?.unwrap_or_default();
            let query = query
                .iter()
                .fold(QueryWriter::new(), |writer, (name, value)| {
                    let text = value
                        .as_str()
                        .map_or_else(|| value.to_string(), str::to_owned);
                    writer.pair(name, &text)
                });
            let kind = with.string("kind");
            let text = on.diagnostics_text(id, kind, &query.finish()).await?;
            told(json!({"text": text}))
        }
        "client.metrics_text" => told(json!({"text": on.metrics_text().await?})),
        "client.openapi" => told(on.openapi().await?),
        "client.report_event" => silent(on.report_event(&with.need("event")?).await?),
        _ => unknown(call),
    }
}

fn template_query(with: &With) -> Result<String, Failure> {
    let filter = with.sandbox_filter()?;
    Ok(filter.to_query())
}

async fn inventory(call: &str, on: &Client, with: &With) -> Made {
    let (images, volumes) = (on.images(), on.volumes());
    let (name, reference) = (with.string("name"), with.string("reference"));
    match call {
        "images.list" => told(images.list().await?),
        "images.prune" => told(images.prune().await?),
        "images.pull" => {
            let request = PullImageRequest {
                image: ImageSpec {
                    uri: with.string("image").to_owned(),
                    auth: None,
                },
                platform: with.optional("platform")?,
            };
            kept_stream(images.pull(&request).await?)
        }
        "images.import" => {
            let archive = files::packed(&with.need("files")?)?;
            told(images.import(archive, with.text("name")).await?)
        }
        "images.export" => {
            let archive = images.export(reference).await?.bytes().await?;
            files::entries(&archive, false)
        }
        "images.tag" => told(images.tag(reference, name).await?),
        "images.remove" => silent(images.remove(reference).await?),
        "volumes.list" => told(volumes.list().await?),
        "volumes.create" => told(volumes.create(name).await?),
        "volumes.remove" => silent(volumes.remove(name, with.is("force")).await?),
        _ => unknown(call),
    }
}

async fn access(call: &str, on: &Client, with: &With) -> Made {
    let (keys, tenants) = (on.keys(), on.tenants());
    let (id, name) = (with.string("id"), with.string("name"));
    match call {
        "keys.list" => told(keys.list().await?),
        "keys.create" => told(keys.create(&with.need("request")?).await?),
        "keys.create_token" => told(keys.create_token(&with.need("request")?).await?),
        "keys.rotate" => {
            let request = serde_json::json!({"graceSeconds": with.number("grace_s")});
            let request = serde_json::from_value(request).expect("it is as on the wire");
            told(keys.rotate(id, &request).await?)
        }
        "keys.revoke" => silent(keys.revoke(id).await?),
        "tenants.list" => told(tenants.list().await?),
        "tenants.get" => told(tenants.get(name).await?),
        "tenants.create" => told(tenants.create(name).await?),
        "tenants.remove" => silent(tenants.remove(name).await?),
        _ => unknown(call),
    }
}

/// A sandbox is made on a client, and used on itself.
async fn sandboxes(call: &str, on: &Held, with: &With) -> Made {
    match call {
        "sandbox.create" => kept_sandbox(with.create(on.client()?)?.await?),
        "sandbox.connect" => {
            let id = with.string("id");
            let mut connect = if with.is("resume") {
                Sandbox::resume(id).client(on.client()?)
            } else {
                on.client()?.connect(id)
            };
            if let Some(timeout) = with.time("timeout_ms") {
                connect = connect.timeout(timeout);
            }
            kept_sandbox(connect.await?)
        }
        "sandbox.scope" => scope(on.client()?, with).await,
        _ => calls_inside::sandbox(call, on.sandbox()?, with).await,
    }
}

/// Makes a sandbox in the language's block, and leaves it.
async fn scope(client: &Client, with: &With) -> Made {
    let mut id = String::new();
    let left = with
        .create(client)?
        .scoped(async |sandbox| {
            id = sandbox.id().to_owned();
            if with.is("keep") {
                sandbox.keep();
            }
            if with.is("fail") {
                return Err(Failure::Runner("left by an error".to_owned()));
            }
            Ok(())
        })
        .await;
    match left {
        Err(Failure::Runner(_)) | Ok(()) => told(json!({"id": id})),
        Err(failure) => Err(failure),
    }
}

async fn pool(call: &str, on: &Held, with: &With) -> Made {
    match call {
        "pool.start" => {
            let client = on.client()?;
            let most = with.optional("max_idle")?.unwrap_or(0);
            let mut config = PoolConfig::new(with.create(client)?, most);
            if with.text("policy") == Some("fail") {
                config = config.policy(AcquirePolicy::Fail);
            }
            if let Some(timeout) = with.time("idle_timeout_s") {
                config = config.idle_timeout(timeout);
            }
            let pool = Arc::new(Pool::start(client, config));
            Ok(Answer::Kept(Held::Pool(pool), Value::Null))
        }
        "pool.acquire" => {
            let lifetime = with.time("lifetime_s");
            let lifetime = lifetime.unwrap_or(opensandbox::DEFAULT_LIFETIME);
            kept_sandbox(on.pool()?.acquire(lifetime).await?)
        }
        "pool.status" => {
            let status = on.pool()?.status();
            told(json!({
                "idle": status.idle, "warming": status.warming, "max_idle": status.max_idle,
                "is_degraded": status.is_degraded,
            }))
        }
        "pool.resize" => closed(on.pool()?.resize(with.need("max_idle")?)).await,
        "pool.wait_until_warm" => {
            let timeout = with.time("timeout_ms").unwrap_or_default();
            silent(on.pool()?.wait_until_warm(timeout).await?)
        }
        "pool.shutdown" => closed(on.pool()?.shutdown()).await,
        _ => unknown(call),
    }
}
