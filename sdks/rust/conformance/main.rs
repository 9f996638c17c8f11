//! Reads calls from stdin, one JSON object a line, makes them with the SDK and answers on stdout; the
//! protocol is in sdks/conformance/README.md. Calls overlap, as there. It decides nothing about how
//! the SDK behaves.

mod arguments;
mod calls;
mod calls_inside;
mod config;
mod files;
mod held;
mod shapes;
mod shells;

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opensandbox::error_chain;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use crate::arguments::With;
use crate::held::Held;

/// A line of stdin.
#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    id: u64,
    #[serde(default)]
    call: String,
    on: Option<String>,
    #[serde(default)]
    with: Map<String, Value>,
    #[serde(rename = "as")]
    name: Option<String>,
    cancel: Option<u64>,
}

/// What a call gave: something to tell, or something to keep under a name with what is told of it.
enum Answer {
    Told(Value),
    Kept(Held, Value),
}

/// Why a call gave nothing.
enum Failure {
    /// The SDK says so.
    Sdk(Box<opensandbox::Error>),
    /// The SDK said so in another process, in these words.
    Described(Value),
    /// The runner is wrong, or was asked for something that it does not have.
    Runner(String),
}

impl From<opensandbox::Error> for Failure {
    fn from(error: opensandbox::Error) -> Self {
        Self::Sdk(Box::new(error))
    }
}

type Made = Result<Answer, Failure>;

/// A result as it is on the wire.
fn told(value: impl Serialize) -> Made {
    let value = serde_json::to_value(value);
    value
        .map(Answer::Told)
        .map_err(|error| Failure::Runner(error.to_string()))
}

/// No result.
fn silent(_: ()) -> Made {
    Ok(Answer::Told(Value::Null))
}

/// No result, and no error either.
async fn closed(closing: impl Future<Output = ()>) -> Made {
    closing.await;
    silent(())
}

#[derive(Default)]
struct Runner {
    held: Mutex<Vec<(String, Held)>>,
    running: Mutex<HashMap<u64, oneshot::Sender<()>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().nth(1).as_deref() == Some(config::ARGUMENT) {
        say(&config::loaded());
        return Ok(());
    }
    let runner = Arc::new(Runner::default());
    say(&json!({"ready": true}));
    let runtime = tokio::runtime::Runtime::new()?;
    for line in std::io::stdin().lines() {
        let message: Message = serde_json::from_str(&line?)?;
        if let Some(number) = message.cancel {
            if let Some(cancel) = locked(&runner.running).remove(&number) {
                // A call that has just ended is not there to be given up.
                let _ = cancel.send(());
            }
            continue;
        }
        let (cancel, cancelled) = oneshot::channel();
        locked(&runner.running).insert(message.id, cancel);
        runtime.spawn(answer(Arc::clone(&runner), message, cancelled));
    }
    Ok(())
}

fn say(answer: &Value) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{answer}")
        .and_then(|()| out.flush())
        .expect("the harness reads what the runner says");
}

async fn answer(runner: Arc<Runner>, message: Message, cancelled: oneshot::Receiver<()>) {
    let id = message.id;
    let made = tokio::select! {
        // Dropping a call gives it up: that is how Rust cancels.
        Ok(()) = cancelled => Err(json!({"kind": "cancelled", "message": "the call was given up"})),
        made = runner.make(message) => made.map_err(|failure| described(&failure)),
    };
    locked(&runner.running).remove(&id);
    match made {
        Ok(result) => say(&json!({"id": id, "result": result})),
        Err(error) => say(&json!({"id": id, "error": error})),
    }
}

fn described(failure: &Failure) -> Value {
    let error = match failure {
        Failure::Sdk(error) => error,
        Failure::Described(error) => return error.clone(),
        Failure::Runner(message) => return json!({"kind": "runner", "message": message}),
    };
    json!({
        "kind": error.kind().as_str(),
        "message": error_chain(&**error).to_string(),
        "status": error.status().map(|status| status.as_u16()),
        "code": error.code(),
        "request_id": error.request_id(),
        "retryable": error.is_retryable(),
        "remedy": error.remedy(),
    })
}

impl Runner {
    async fn make(&self, message: Message) -> Result<Value, Failure> {
        if message.call == "runner.reset" {
            self.reset().await;
            return Ok(Value::Null);
        }
        let on = match &message.on {
            Some(name) => Some(self.found(name)?),
            None => None,
        };
        let with = With(message.with);
        match calls::make(&message.call, on, &with).await? {
            Answer::Told(value) => Ok(value),
            Answer::Kept(held, value) => {
                let name = message.name.ok_or_else(|| {
                    Failure::Runner(format!(
                        "{} leaves something, and has no name for it",
                        message.call
                    ))
                })?;
                locked(&self.held).push((name, held));
                Ok(value)
            }
        }
    }

    /// What was left under a name last.
    fn found(&self, name: &str) -> Result<Held, Failure> {
        let held = locked(&self.held);
        let found = held.iter().rev().find(|(known, _)| known == name);
        found
            .map(|(_, held)| held.clone())
            .ok_or_else(|| Failure::Runner(format!("nothing is held as {name}")))
    }

    /// Closes and forgets everything, the newest first.
    async fn reset(&self) {
        let all = std::mem::take(&mut *locked(&self.held));
        for (_, held) in all.into_iter().rev() {
            held.close().await;
        }
    }
}
