//! `osb key …` and `osb tenant …`.

use std::time::Duration;

use api::access::{
    ApiKey, CreateKeyRequest, CreateTokenRequest, KeyAction, KeyRole, NewApiKey, RotateKeyRequest,
};
use jiff::{SignedDuration, Timestamp};
use opensandbox::Keys;

use super::{DONE, Outcome};
use crate::app::App;
use crate::args::access::{Action, Key, NewKey, Role, Tenant};
use crate::error::Error;
use crate::model;
use crate::output::{Format, Message, Record, Value};

const KEY_COLUMNS: [&str; 8] = [
    "id",
    "tenant",
    "name",
    "role",
    "scope",
    "created_at",
    "expires_at",
    "last_used_at",
];

const TENANT_COLUMNS: [&str; 3] = ["name", "is_configured", "created_at"];

pub(super) async fn key(app: &App, command: Key) -> Outcome {
    let keys = app.client()?.keys();
    let printer = app.printer();
    match command {
        Key::New(args) => {
            let made = keys.create(&request(args)?).await?;
            show(app, "Key made; it is shown this once", &made)?;
        }
        Key::Ls => {
            let found = keys.list().await?.items;
            let is_data = matches!(printer.format(), Format::Json | Format::Yaml);
            let rows: Vec<Record> = match is_data {
                true => found.iter().map(whole).collect(),
                false => found.iter().map(row).collect(),
            };
            printer.rows("Keys", &KEY_COLUMNS, &rows)?;
        }
        Key::Revoke { keys: wanted } => {
            for wanted in wanted {
                let found = find(&keys, &wanted).await?;
                keys.revoke(&found.id).await?;
                printer.message(Message::Ok, &format!("Revoked: {}", found.name))?;
            }
        }
        Key::Rotate { key, grace } => {
            let found = find(&keys, &key).await?;
            let grace_seconds = grace.map(|grace| grace.as_secs());
            let request = RotateKeyRequest { grace_seconds };
            let made = keys.rotate(&found.id, &request).await?;
            show(app, "Key rotated; the new one is shown this once", &made)?;
        }
        Key::Token {
            sandbox,
            actions,
            ttl,
        } => {
            let sandbox_id = match sandbox {
                Some(sandbox) => {
                    let id = app.find(&sandbox).await?.parse();
                    Some(id.map_err(|_| Error::Usage(format!("'{sandbox}' is no sandbox")))?)
                }
                None => None,
            };
            let request = CreateTokenRequest {
                sandbox_id,
                actions: some_actions(&actions),
                ttl_seconds: ttl.map(|ttl| ttl.as_secs()),
            };
            let made = keys.create_token(&request).await?;
            show(app, "Token made; it is shown this once", &made)?;
        }
    }
    Ok(DONE)
}

pub(super) async fn tenant(app: &App, command: Tenant) -> Outcome {
    let tenants = app.client()?.tenants();
    let printer = app.printer();
    match command {
        Tenant::New { names } => {
            for name in names {
                let made = tenants.create(&name).await?;
                printer.message(Message::Ok, &format!("Created: {}", made.name))?;
            }
        }
        Tenant::Ls => {
            let found = tenants.list().await?.items;
            let rows: Vec<Record> = found.iter().map(tenant_record).collect();
            printer.rows("Tenants", &TENANT_COLUMNS, &rows)?;
        }
        Tenant::Get { name } => {
            let found = tenants.get(&name).await?;
            printer.record("Tenant", &tenant_record(&found))?;
        }
        Tenant::Rm { names } => {
            for name in names {
                tenants.remove(&name).await?;
                printer.message(Message::Ok, &format!("Removed: {name}"))?;
            }
        }
    }
    Ok(DONE)
}

fn tenant_record(tenant: &api::access::Tenant) -> Record {
    Record::new()
        .with("name", tenant.name.as_str())
        .with("is_configured", tenant.is_configured)
        .with("created_at", tenant.created_at)
}

fn request(args: NewKey) -> Result<CreateKeyRequest, Error> {
    let actions = match args.read_only {
        true => vec![Action::Read],
        false => args.actions,
    };
    let label = |text: &String| match text.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(Error::Usage(format!("--label {text}: write KEY=VALUE"))),
    };
    let labels: Result<_, Error> = args.labels.iter().map(label).collect();
    Ok(CreateKeyRequest {
        name: args.name,
        role: match args.role {
            Role::Admin => KeyRole::Admin,
            Role::Operator => KeyRole::Operator,
            Role::User => KeyRole::User,
            Role::Viewer => KeyRole::Viewer,
        },
        tenant: args.tenant,
        actions: some_actions(&actions),
        images: args.images,
        labels: labels?,
        expires_at: args.expires.map(from_now).transpose()?,
    })
}

fn from_now(span: Duration) -> Result<Timestamp, Error> {
    let span = SignedDuration::try_from(span).ok();
    span.and_then(|span| Timestamp::now().checked_add(span).ok())
        .ok_or_else(|| Error::Usage("--expires: that is too long".to_owned()))
}

fn some_actions(actions: &[Action]) -> Option<Vec<KeyAction>> {
    let to_wire = |action: &Action| match action {
        Action::Read => KeyAction::Read,
        Action::Connect => KeyAction::Connect,
        Action::Create => KeyAction::Create,
        Action::Change => KeyAction::Change,
        Action::Images => KeyAction::Images,
        Action::Audit => KeyAction::Audit,
        Action::Metrics => KeyAction::Metrics,
        Action::Keys => KeyAction::Keys,
    };
    (!actions.is_empty()).then(|| actions.iter().map(to_wire).collect())
}

/// The key with this id, or the only one with this name.
async fn find(keys: &Keys, wanted: &str) -> Result<ApiKey, Error> {
    let all = keys.list().await?.items;
    if let Some(found) = all.iter().find(|key| key.id == wanted) {
        return Ok(found.clone());
    }
    let is_it = |key: &&ApiKey| key.name == wanted && key.parent.is_none();
    let mut named = all.iter().filter(is_it);
    match (named.next(), named.next()) {
        (Some(found), None) => Ok(found.clone()),
        (Some(_), Some(_)) => Err(Error::Usage(format!(
            "several tenants have a key named '{wanted}'; `osb key ls` shows their ids"
        ))),
        (None, _) => Err(Error::Failed {
            message: format!("there is no key '{wanted}'"),
            next: Some("`osb key ls` lists them".to_owned()),
        }),
    }
}

/// Everything of a key, for programs.
fn whole(key: &ApiKey) -> Record {
    match model::snake(key) {
        Value::Record(record) => record,
        _ => Record::new(),
    }
}

/// What of a key fits a line.
fn row(key: &ApiKey) -> Record {
    Record::new()
        .with("id", key.id.as_str())
        .with("tenant", key.tenant.as_str())
        .with("name", key.name.as_str())
        .with("role", role(key.role))
        .with("scope", scope(key))
        .with("created_at", key.created_at)
        .with("expires_at", key.expires_at)
        .with("last_used_at", key.last_used_at)
}

fn role(role: KeyRole) -> &'static str {
    match role {
        KeyRole::Admin => "admin",
        KeyRole::Operator => "operator",
        KeyRole::User => "user",
        KeyRole::Viewer => "viewer",
    }
}

/// What narrows a key, in few words.
fn scope(key: &ApiKey) -> String {
    let actions = key.actions.iter().flatten();
    let actions = actions.map(|action| format!("{action:?}").to_lowercase());
    let labels = key
        .labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"));
    let sandbox = key.sandbox_id.iter().map(ToString::to_string);
    let parts = actions.chain(key.images.iter().cloned());
    let parts: Vec<String> = parts.chain(labels).chain(sandbox).collect();
    parts.join(" ")
}

/// A new value with what it is for. At a terminal and in a pipe alike the value is on standard output.
fn show(app: &App, title: &str, made: &NewApiKey) -> Result<(), Error> {
    let record = Record::new()
        .with("id", made.key.id.as_str())
        .with("name", made.key.name.as_str())
        .with("tenant", made.key.tenant.as_str())
        .with("role", role(made.key.role))
        .with("expires_at", made.key.expires_at)
        .with("value", made.value.expose());
    app.printer().done(title, &record)?;
    Ok(())
}
