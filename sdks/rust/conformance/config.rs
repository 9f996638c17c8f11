//! `config.load`: settings from an environment and a file alone. The environment of a process cannot
//! be changed safely while it runs, so a second process with that environment loads them.

use std::process::Stdio;

use opensandbox::{Client, ConnectionConfig};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::arguments::With;
use crate::{Answer, Failure, Made, described};

/// What the second process is told.
pub(crate) const ARGUMENT: &str = "load-config";

/// What the second process says: settings, or why not.
pub(crate) fn loaded() -> Value {
    match settings() {
        Ok(settings) => json!({"result": settings}),
        Err(error) => json!({"error": described(&error.into())}),
    }
}

fn settings() -> opensandbox::Result<Value> {
    let client = Client::new(ConnectionConfig::load()?)?;
    let config = client.config();
    let timeout = config.request_timeout_value();
    Ok(json!({
        "base_url": config.base_url()?,
        "request_timeout_ms": u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        "use_server_proxy": config.uses_server_proxy(),
        "has_api_key": config.has_api_key(),
    }))
}

/// A failure that the second process described already.
pub(crate) async fn load(with: &With) -> Made {
    let runner = |error: std::io::Error| Failure::Runner(error.to_string());
    let home = tempfile::tempdir().map_err(runner)?;
    if let Some(file) = with.text("file") {
        let folder = home.path().join(".opensandbox");
        std::fs::create_dir(&folder).map_err(runner)?;
        std::fs::write(folder.join("config.toml"), file).map_err(runner)?;
    }
    let environment: std::collections::BTreeMap<String, String> =
        with.optional("environment")?.unwrap_or_default();
    let output = Command::new(std::env::current_exe().map_err(runner)?)
        .arg(ARGUMENT)
        .env_clear()
        .envs(environment)
        .env("HOME", home.path())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .await
        .map_err(runner)?;
    let mut said: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| Failure::Runner(format!("the second process said nothing: {error}")))?;
    match said.get_mut("result") {
        Some(settings) => Ok(Answer::Told(settings.take())),
        None => Err(Failure::Described(said["error"].take())),
    }
}
