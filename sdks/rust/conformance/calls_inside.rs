//! The calls on a sandbox and on what it gives: commands, code, streams, what it may reach.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use opensandbox::wire::exec::command::RunCommandRequest;
use opensandbox::{Execution, RunCode, RunCommand, Sandbox};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::arguments::With;
use crate::calls::unknown;
use crate::held::{Closable, Held};
use crate::{Answer, Failure, Made, closed, shapes, silent, told};

pub(crate) async fn sandbox(call: &str, on: &Sandbox, with: &With) -> Made {
    let port = || with.need::<u16>("port");
    match call {
        "sandbox.info" => told(on.info().await?),
        "sandbox.metrics" => told(on.metrics().await?),
        "sandbox.kill" => silent(on.kill().await?),
        "sandbox.pause" => silent(on.pause().await?),
        "sandbox.resume" => silent(on.unpause().await?),
        "sandbox.ping" => silent(on.ping().await?),
        "sandbox.is_healthy" => told(json!({"healthy": on.is_healthy().await})),
        "sandbox.renew" => {
            let lifetime = with.time("lifetime_s").unwrap_or_default();
            told(json!({"expires_at": on.renew(lifetime).await?.to_string()}))
        }
        "sandbox.patch_metadata" => told(on.patch_metadata(&with.need("patch")?).await?),
        "sandbox.wait_for_state" => {
            let timeout = with.time("timeout_ms").unwrap_or_default();
            silent(on.wait_for_state(with.need("state")?, timeout).await?)
        }
        "sandbox.endpoint" => told(on.endpoint(port()?).await?),
        "sandbox.url" => {
            let (url, headers) = on.url(port()?).await?;
            let text = |value: &http::HeaderValue| value.to_str().unwrap_or("").to_owned();
            let headers: BTreeMap<_, _> = headers
                .iter()
                .map(|(name, value)| (name.as_str(), text(value)))
                .collect();
            told(json!({"url": url, "headers": headers}))
        }
        "sandbox.signed_endpoint" => {
            let after = with.time("expires_in_s").unwrap_or_default();
            told(
                on.signed_endpoint(port()?, Timestamp::now() + after)
                    .await?,
            )
        }
        "sandbox.link" => {
            let until = Timestamp::now() + with.time("expires_in_s").unwrap_or_default();
            told(json!({"link": on.link(port()?, Some(until)).await?}))
        }
        "sandbox.snapshot" => told(on.snapshot(with.text("name")).await?),
        "sandbox.watch_metrics" => {
            let watch = Held::of_stream(on.watch_metrics().await?);
            Ok(Answer::Kept(watch, Value::Null))
        }
        "sandbox.tunnel" => {
            let tunnel = Held::of_tunnel(on.tunnel(port()?).await?);
            Ok(Answer::Kept(tunnel, Value::Null))
        }
        "sandbox.isolated_capabilities" => told(on.isolated_capabilities().await?),
        _ => unknown(call),
    }
}

pub(crate) async fn streams(call: &str, on: &Held, with: &With) -> Made {
    let broken = |error: std::io::Error| Failure::Runner(error.to_string());
    match call {
        "stream.next" => {
            let next = on
                .stream()?
                .using(async |values| values.0.next().await)
                .await;
            match next.flatten() {
                Some(value) => Ok(Answer::Told(value?)),
                None => silent(()),
            }
        }
        "stream.close" => closed(on.stream()?.close()).await,
        "tunnel.write" => {
            let text = with.string("text").as_bytes();
            let writer = &on.tunnel()?.writer;
            let sent = writer.using(async |writer| {
                writer.0.write_all(text).await?;
                writer.0.flush().await
            });
            silent(sent.await.unwrap_or(Ok(())).map_err(broken)?)
        }
        "tunnel.read" => {
            let most = with.need("bytes")?;
            let reader = &on.tunnel()?.reader;
            let read = reader.using(async |reader| {
                let mut bytes = Vec::new();
                (&mut reader.0).take(most).read_to_end(&mut bytes).await?;
                Ok(bytes)
            });
            let bytes = read.await.unwrap_or(Ok(Vec::new())).map_err(broken)?;
            told(json!({"text": String::from_utf8_lossy(&bytes)}))
        }
        "tunnel.close" => closed(on.tunnel()?.close()).await,
        _ => unknown(call),
    }
}

fn command(on: &Sandbox, with: &With) -> Result<RunCommand, Failure> {
    let mut command = on.commands().order(RunCommandRequest {
        command: with.optional("command")?,
        argv: with.optional("argv")?,
        ..RunCommandRequest::default()
    });
    if let Some(cwd) = with.text("cwd") {
        command = command.cwd(cwd);
    }
    let env: BTreeMap<String, String> = with.optional("env")?.unwrap_or_default();
    command = command.envs(env);
    if let Some(timeout) = with.time("timeout_ms") {
        command = command.timeout(timeout);
    }
    if let Some(uid) = with.optional("uid")? {
        command = command.uid(uid);
    }
    if let Some(gid) = with.optional("gid")? {
        command = command.gid(gid);
    }
    if let Some(text) = with.text("stdin") {
        command = command.stdin(text);
    }
    if with.is("stdin_open") {
        command = command.stdin_open();
    }
    Ok(command)
}

pub(crate) fn kept_execution(execution: Execution) -> Made {
    Ok(Answer::Kept(Held::of_execution(execution), Value::Null))
}

pub(crate) async fn commands(call: &str, on: &Sandbox, with: &With) -> Made {
    let commands = on.commands();
    let id = with.string("id");
    match call {
        "commands.run" => Ok(Answer::Told(shapes::output(&command(on, with)?.await?))),
        "commands.start" => kept_execution(command(on, with)?.stream().await?),
        "commands.background" => told(json!({"id": command(on, with)?.background().await?})),
        "commands.follow" => {
            let after = with.number("after").unwrap_or(0);
            kept_execution(commands.follow(id, after).await?)
        }
        "commands.status" => told(commands.status(id).await?),
        "commands.list" => told(commands.list().await?),
        "commands.logs" => {
            let logs = commands.logs(id, with.number("cursor")).await?;
            told(json!({"text": logs.text, "cursor": logs.cursor}))
        }
        "commands.interrupt" => silent(commands.interrupt(id).await?),
        "commands.write_stdin" => {
            let text = with.string("text").to_owned();
            let written = commands.write_stdin(id, text, with.is("close")).await?;
            told(json!({"written": written}))
        }
        "commands.set_env" => {
            let variables: BTreeMap<String, String> = with.need("variables")?;
            silent(commands.set_env(&variables).await?)
        }
        _ => unknown(call),
    }
}

pub(crate) async fn execution(call: &str, on: &Closable<Execution>) -> Made {
    match call {
        "execution.next" => {
            let next = on.using(async |events| events.next().await).await;
            match next.flatten() {
                Some(event) => Ok(Answer::Told(shapes::event(&event?))),
                None => silent(()),
            }
        }
        "execution.output" => {
            let execution = on.take().await;
            let execution = execution.ok_or(Failure::Runner("it is closed".to_owned()))?;
            Ok(Answer::Told(shapes::output(&execution.output().await?)))
        }
        "execution.close" => closed(on.close()).await,
        _ => unknown(call),
    }
}

fn cell(on: &Sandbox, with: &With) -> RunCode {
    let mut cell = on.code().run(with.string("code"));
    if let Some(language) = with.text("language") {
        cell = cell.language(language);
    }
    if let Some(context) = with.text("context") {
        cell = cell.context(context);
    }
    if let Some(timeout) = with.time("timeout_ms") {
        cell = cell.timeout(timeout);
    }
    cell
}

pub(crate) async fn code(call: &str, on: &Sandbox, with: &With) -> Made {
    let code = on.code();
    let (id, language) = (with.string("id"), with.text("language"));
    match call {
        "code.run" => Ok(Answer::Told(shapes::output(&cell(on, with).await?))),
        "code.start" => kept_execution(cell(on, with).stream().await?),
        "code.create_context" => {
            let language = language.unwrap_or("");
            told(code.create_context(language, with.text("cwd")).await?)
        }
        "code.get_context" => told(code.get_context(id).await?),
        "code.delete_context" => silent(code.delete_context(id).await?),
        "code.interrupt" => silent(code.interrupt(id).await?),
        "code.list_contexts" => told(code.list_contexts(language).await?),
        "code.delete_contexts" => silent(code.delete_contexts(language.unwrap_or("")).await?),
        _ => unknown(call),
    }
}

pub(crate) async fn egress(call: &str, on: &Sandbox, with: &With) -> Made {
    let (egress, vault) = (on.egress(), on.credential_vault());
    let name = with.string("name");
    match call {
        "egress.policy" => told(egress.policy().await?),
        "egress.patch" => told(egress.patch(&with.need::<Vec<_>>("rules")?).await?),
        "egress.delete" => told(egress.delete(&with.need::<Vec<_>>("targets")?).await?),
        "egress.replace" => told(egress.set(&with.need("policy")?).await?),
        "vault.create" => told(vault.create(&with.need("request")?).await?),
        "vault.get" => told(vault.get().await?),
        "vault.patch" => told(vault.patch(&with.need("request")?).await?),
        "vault.delete" => silent(vault.delete().await?),
        "vault.credentials" => told(vault.credentials().await?),
        "vault.credential" => told(vault.credential(name).await?),
        "vault.bindings" => told(vault.bindings().await?),
        "vault.binding" => told(vault.binding(name).await?),
        _ => unknown(call),
    }
}
