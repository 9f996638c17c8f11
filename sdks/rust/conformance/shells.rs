//! The calls on sessions and terminals.

use std::sync::Arc;

use opensandbox::{RunInSession, Session, Terminal, TerminalOptions};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::arguments::With;
use crate::calls::unknown;
use crate::calls_inside::kept_execution;
use crate::held::{Closable, Connection, Held};
use crate::{Answer, Made, shapes, silent, told};

pub(crate) async fn make(call: &str, on: &Held, with: &With) -> Made {
    match call {
        "sessions.create" => {
            let session = on.sandbox()?.sessions().create(with.text("cwd")).await?;
            let shown = json!({"id": session.id()});
            Ok(Answer::Kept(Held::Session(session), shown))
        }
        "session.run" => {
            let output = run(on.session()?, with).await?;
            Ok(Answer::Told(shapes::output(&output)))
        }
        "session.start" => kept_execution(run(on.session()?, with).stream().await?),
        "session.interrupt" => silent(on.session()?.interrupt().await?),
        "session.delete" => silent(on.session()?.delete().await?),
        "terminals.create" => {
            let terminals = on.sandbox()?.terminals();
            let (cwd, command) = (with.text("cwd"), with.text("command"));
            let created = terminals.create_sized(cwd, command, with.optional("size")?);
            let terminal = created.await?;
            let shown = json!({"id": terminal.id()});
            Ok(Answer::Kept(Held::Terminal(terminal), shown))
        }
        "terminal.status" => told(on.terminal()?.status().await?),
        "terminal.delete" => silent(on.terminal()?.delete().await?),
        "terminal.connect" => connect(on.terminal()?, with).await,
        _ => connection(call, on.connection()?, with).await,
    }
}

fn run(session: &Session, with: &With) -> RunInSession {
    let mut run = session.run(with.string("command"));
    if let Some(cwd) = with.text("cwd") {
        run = run.cwd(cwd);
    }
    if let Some(timeout) = with.time("timeout_ms") {
        run = run.timeout(timeout);
    }
    run
}

async fn connect(terminal: &Terminal, with: &With) -> Made {
    let options = TerminalOptions {
        pipes: with.is("pipes"),
        since: with.number("since"),
        take_over: with.is("take_over"),
        size: with.optional("size")?,
    };
    let (input, output) = terminal.connect(options).await?.split();
    let connection = Arc::new(Connection {
        input: Mutex::new(input),
        output: Closable::new(output),
    });
    Ok(Answer::Kept(Held::Connection(connection), Value::Null))
}

async fn connection(call: &str, on: &Connection, with: &With) -> Made {
    if call == "connection.next" {
        let next = on.output.using(async |output| output.next().await).await;
        return match next.flatten() {
            Some(event) => Ok(Answer::Told(shapes::terminal_event(&event?))),
            None => silent(()),
        };
    }
    let mut input = on.input.lock().await;
    match call {
        "connection.write" => silent(input.write(with.string("text").as_bytes()).await?),
        "connection.resize" => {
            let (columns, rows) = (with.need("columns")?, with.need("rows")?);
            silent(input.resize(columns, rows).await?)
        }
        "connection.signal" => silent(input.signal(with.need("signal")?).await?),
        "connection.ping" => silent(input.ping().await?),
        "connection.close" => silent(input.close().await?),
        _ => unknown(call),
    }
}
