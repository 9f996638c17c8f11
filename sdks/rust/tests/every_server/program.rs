//! What the SDK needs of every OpenSandbox server, tried on the one that the environment names:
//! one line for each part that works, and an error for the first that does not. Extensions of our
//! own server are left out. In the sandboxes it wants our execd, which tells when a command in the
//! background ends.
//!
//! `OPEN_SANDBOX_DOMAIN=localhost:8080 OPEN_SANDBOX_API_KEY=secret \
//!     cargo run -p opensandbox --example every_server -- python:3.12`

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::Write as _;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use opensandbox::wire::sandbox::SandboxState;
use opensandbox::{
    Client, ConnectionConfig, Event, Page, Sandbox, SandboxFilter, SnapshotFilter, TerminalEvent,
    TerminalOptions,
};

type Error = Box<dyn std::error::Error>;
type Result<T = ()> = std::result::Result<T, Error>;

/// Long enough for an engine that is busy with other work; only a hang takes it.
const DEADLINE: Duration = Duration::from_secs(240);

/// A label that only sandboxes of this run have.
const LABEL: &str = "every-server";

#[tokio::main]
async fn main() -> Result {
    let image = std::env::args().nth(1);
    let image = image.unwrap_or_else(|| "python:3.12".to_owned());
    let client = Client::from_env()?;
    let run = std::process::id().to_string();
    let tried = tokio::time::timeout(DEADLINE, every_part(&client, &image, &run)).await;
    // Also after a failure; what failed matters more than whether this works.
    let removed = remove_all(&client, &run).await;
    tried.map_err(|_| format!("not done after {DEADLINE:?}"))??;
    removed
}

async fn every_part(client: &Client, image: &str, run: &str) -> Result {
    let health = client.health().await?;
    let version = client.version().await?.version;
    works(&format!("health {}, version {version}", health.status))?;
    errors(client).await?;

    let sandbox = client
        .create(image)
        .metadata(LABEL, run)
        .metadata("number", "1")
        .env("GREETING", "hello")
        .timeout(Duration::from_secs(600))
        .await?;
    described(&sandbox, run).await?;
    lists(client, image, run).await?;
    renewed(&sandbox).await?;
    commands(&sandbox).await?;
    sessions_and_terminals(&sandbox).await?;
    files(&sandbox).await?;
    for port in [8080, 9000] {
        endpoint(&sandbox, port).await?;
    }
    paused(client, &sandbox, run).await?;
    snapshot(client, &sandbox, run).await?;
    diagnostics(&sandbox).await?;
    killed(client, &sandbox).await
}

/// Errors have their type, code and request's id, whatever form the answer has.
async fn errors(client: &Client) -> Result {
    let unknown = "00000000-0000-4000-8000-000000000000";
    let error = client.get(unknown).await.expect_err("there is none");
    same("not found", error.is_not_found(), true)?;
    same("has a code", error.code().is_some(), true)?;
    same("has a request id", error.request_id().is_some(), true)?;
    let missing = client.connect(unknown).timeout(Duration::from_secs(60));
    let error = missing.await.expect_err("there is none");
    same("connecting: not found", error.is_not_found(), true)?;
    works(&format!("an unknown id: {error}"))?;
    // One that is gone is no error to end, but is one to the control plane.
    client.sandbox(unknown).kill().await?;
    let error = client.kill(unknown).await.expect_err("there is none");
    same("killing: not found", error.is_not_found(), true)?;

    let too_short = client
        .create("no/such-image")
        .timeout(Duration::from_secs(1));
    let error = too_short.await.expect_err("a minute is the least");
    let api = error.api().ok_or("the server said nothing")?;
    same("refused", api.status.is_client_error(), true)?;
    let names_it = |text: &str| text.contains("timeout");
    same("says what", names_it(&error.to_string()), true)?;
    same(
        "lists it",
        api.details.iter().any(|one| names_it(one)),
        true,
    )?;
    works(&format!("a request that is wrong: {error}"))?;

    // A server without a key takes every key.
    if std::env::var_os(opensandbox::ENV_API_KEY).is_some() {
        let config = ConnectionConfig::load()?.api_key("wrong");
        let error = Client::new(config)?.get(unknown).await;
        let error = error.expect_err("the key is wrong");
        same("unauthorized", error.is_unauthorized(), true)?;
        works(&format!("a wrong key: {error}"))?;
    }
    Ok(())
}

async fn described(sandbox: &Sandbox, run: &str) -> Result {
    let info = sandbox.info().await?;
    same("id", info.id.as_str(), sandbox.id())?;
    same("state", info.status.state, SandboxState::Running)?;
    let label = |info: &opensandbox::wire::sandbox::Sandbox, name: &str| {
        info.metadata.as_ref()?.get(name).cloned()
    };
    same("label", label(&info, LABEL).as_deref(), Some(run))?;
    let patch = [
        ("color".to_owned(), Some("blue".to_owned())),
        ("number".to_owned(), None),
    ];
    let patched = sandbox.patch_metadata(&patch.into()).await?;
    same("new", label(&patched, "color").as_deref(), Some("blue"))?;
    same("removed", label(&patched, "number"), None)?;
    same("kept", label(&patched, LABEL).as_deref(), Some(run))?;

    let again = sandbox.client().connect(sandbox.id()).await?;
    again.ping().await?;
    let metrics = again.metrics().await?;
    works(&format!("create, get, metadata, connect, {metrics:?}"))
}

async fn lists(client: &Client, image: &str, run: &str) -> Result {
    for number in ["2", "3"] {
        let another = client.create(image).metadata(LABEL, run);
        // Characters that a query inside a query must encode twice to bring home.
        another
            .metadata("number", number)
            .metadata("a.b/c_d", "e-f_g.h")
            .await?;
    }
    let mut filter = filter(run);
    filter.page = Page { number: 1, size: 2 };
    let first = client.list(&filter).await?;
    same("items", first.items.len(), 2)?;
    same("total", first.pagination.total_items, 3)?;
    same("pages", first.pagination.total_pages, 2)?;
    same("more", first.pagination.has_next_page, true)?;
    filter.page.number = 2;
    let second = client.list(&filter).await?;
    same("rest", second.items.len(), 1)?;
    same("no more", second.pagination.has_next_page, false)?;
    filter.page.number = 1;
    let all: Vec<_> = client.list_all(filter.clone()).try_collect().await?;
    let ids: std::collections::BTreeSet<_> = all.iter().map(|one| one.id.as_str()).collect();
    same("all, page by page", ids.len(), 3)?;

    filter
        .metadata
        .insert("a.b/c_d".to_owned(), "e-f_g.h".to_owned());
    same("by two labels", client.list(&filter).await?.items.len(), 2)?;
    filter.metadata.insert("number".to_owned(), "3".to_owned());
    same(
        "by three labels",
        client.list(&filter).await?.items.len(),
        1,
    )?;
    filter.states = vec![SandboxState::Running, SandboxState::Paused];
    same("by state", client.list(&filter).await?.items.len(), 1)?;
    filter.states = vec![SandboxState::Failed];
    same(
        "in no such state",
        client.list(&filter).await?.items.len(),
        0,
    )?;
    works("lists: labels, states, pages")
}

async fn renewed(sandbox: &Sandbox) -> Result {
    let before = sandbox.info().await?.expires_at.ok_or("no end")?;
    let told = sandbox.renew(Duration::from_secs(3600)).await?;
    same("later", told > before, true)?;
    let after = sandbox.info().await?.expires_at.ok_or("no end")?;
    let apart = after.duration_since(told).abs();
    // A server may keep whole seconds only.
    same("kept", apart.as_secs() <= 1, true)?;
    works("renewal")
}

async fn commands(sandbox: &Sandbox) -> Result {
    let commands = sandbox.commands();
    let said = commands
        .run("echo $GREETING; echo bad >&2; printf no-end; exit 3")
        .await?;
    same("stdout", said.stdout.as_str(), "hello\nno-end")?;
    same("stderr", said.stderr.as_str(), "bad\n")?;
    same("exit code", said.exit_code(), Some(3))?;

    // The second line is written only after the first has been seen here.
    sandbox.commands().run("mkfifo /tmp/gate").await?;
    let mut events = commands
        .run("echo first; cat /tmp/gate; pwd; echo $COLOR")
        .cwd("/tmp")
        .env("COLOR", "blue")
        .stream()
        .await?;
    let mut seen = String::new();
    while !seen.contains("first\n") {
        push(&mut seen, events.next().await)?;
    }
    commands.run("echo second >/tmp/gate").await?;
    while let Some(event) = events.next().await {
        push(&mut seen, Some(event))?;
    }
    same("streamed", seen.as_str(), "first\nsecond\n/tmp\nblue\n")?;

    let slow = commands
        .run("exec sleep 600")
        .timeout(Duration::from_millis(300));
    same("ended by its timeout", slow.await?.is_success(), false)?;

    let id = commands
        .run("echo begun; cat /tmp/gate; exit 4")
        .background()
        .await?;
    same("runs", commands.status(&id).await?.running, true)?;
    commands.run("echo opened >/tmp/gate").await?;
    let all = commands.follow(&id, 0).await?.output().await?;
    same("background code", all.exit_code(), Some(4))?;
    let logs = commands.logs(&id, None).await?;
    same("logs", logs.text.as_str(), "begun\nopened\n")?;
    same("its code", commands.status(&id).await?.exit_code, Some(4))?;
    let id = commands.run("exec sleep 600").background().await?;
    commands.interrupt(&id).await?;
    let ended = commands.follow(&id, 0).await?.output().await?;
    same("interrupted", ended.is_success(), false)?;
    works("commands: output, code, stream, timeout, background, logs, interrupt")
}

fn push(seen: &mut String, event: Option<opensandbox::Result<Event>>) -> Result {
    match event.ok_or("the stream ended early")?? {
        Event::Stdout(text) => seen.push_str(&text),
        Event::Error(error) => return Err(format!("{error:?}").into()),
        _ => {}
    }
    Ok(())
}

async fn sessions_and_terminals(sandbox: &Sandbox) -> Result {
    let session = sandbox.sessions().create(Some("/tmp")).await?;
    session.run("cd /usr; KEPT=yes").await?;
    let said = session.run("pwd; echo $KEPT").await?;
    same("session", said.stdout.as_str(), "/usr\nyes\n")?;
    session.delete().await?;

    let terminal = sandbox.terminals().create(Some("/tmp"), None).await?;
    let mut connection = terminal.connect(TerminalOptions::default()).await?;
    connection.input().resize(101, 31).await?;
    connection.input().write(b"stty size; exit 5\n").await?;
    let mut screen = String::new();
    let code = loop {
        match connection
            .next()
            .await
            .ok_or("the terminal closed early")??
        {
            TerminalEvent::Output(bytes) | TerminalEvent::Replay { bytes, .. } => {
                screen.push_str(&String::from_utf8_lossy(&bytes));
            }
            TerminalEvent::Exit { code, .. } => break code,
            TerminalEvent::Connected => {}
            other => return Err(format!("{other:?} after {screen:?}").into()),
        }
    };
    same("its code", code, 5)?;
    same("its size", screen.contains("31 101"), true)?;
    terminal.delete().await?;

    let code = sandbox.code();
    code.run("numbers = [1, 2, 3]").await?;
    same("code", code.run("sum(numbers)").await?.text(), Some("6"))?;
    works("sessions, terminals, code")
}

async fn files(sandbox: &Sandbox) -> Result {
    let files = sandbox.files();
    let folder = "/tmp/some files";
    files.create_directories(&[folder]).await?;
    let path = format!("{folder}/größe & 100%.bin");
    let bytes: Vec<u8> = (0..300_000_u32)
        .map(|number| (number % 251) as u8)
        .collect();
    files.write(&path, bytes.clone()).await?;
    same("read back", files.read(&path).await? == bytes, true)?;
    let part = files.read_range(&path, 1000..1010).await?;
    same("a part", part.as_slice(), &bytes[1000..1010])?;
    let info = files.info(&[&path]).await?;
    same("one file", info.len(), 1)?;
    files.set_mode(&path, 0o600).await?;
    let mode = sandbox
        .commands()
        .run("stat -c %a '/tmp/some files/'*")
        .await?;
    same("mode", mode.stdout.as_str(), "600\n")?;
    let text = format!("{folder}/text");
    files.write(&text, "one two one").await?;
    files.replace(&text, "one", "three").await?;
    same(
        "replaced",
        files.read_text(&text).await?.as_str(),
        "three two three",
    )?;
    same("listed", files.list(folder, 1).await?.len(), 2)?;
    same("found", files.search(folder, "*.bin").await?.len(), 1)?;
    files.rename(&text, format!("{folder}/moved")).await?;
    same("moved away", files.exists(&text).await?, false)?;
    let error = files.read(&text).await.expect_err("it was moved");
    same("not found", error.is_not_found(), true)?;
    files.delete(&[&path]).await?;
    files.delete_directories(&[folder]).await?;
    same("gone", files.exists(folder).await?, false)?;
    works("files: write, read, part, mode, replace, list, search, rename, delete")
}

/// A program in the sandbox answers on a port, and a client outside reads it.
async fn endpoint(sandbox: &Sandbox, port: u16) -> Result {
    let program = format!(
        "import http.server as h\n\
         class Answer(h.BaseHTTPRequestHandler):\n\
         \x20   def do_GET(self):\n\
         \x20       body = ('port {port} ' + self.path).encode()\n\
         \x20       self.send_response(200)\n\
         \x20       self.send_header('Content-Length', str(len(body)))\n\
         \x20       self.end_headers()\n\
         \x20       self.wfile.write(body)\n\
         server = h.HTTPServer(('0.0.0.0', {port}), Answer)\n\
         print('listens', flush=True)\n\
         server.handle_request()\n"
    );
    let path = format!("/tmp/answer-{port}.py");
    sandbox.files().write(&path, program).await?;
    let mut events = sandbox
        .commands()
        .run(format!("exec python3 {path}"))
        .stream()
        .await?;
    let mut seen = String::new();
    while !seen.contains("listens") {
        push(&mut seen, events.next().await)?;
    }
    let (url, headers) = sandbox.url(port).await?;
    let answer = reqwest::Client::new()
        .get(format!("{url}/some/where?a=1"))
        .headers(headers)
        .send()
        .await?;
    let text = answer.error_for_status()?.text().await?;
    same("answer", text, format!("port {port} /some/where?a=1"))?;
    works(&format!("port {port} at {url}"))
}

async fn paused(client: &Client, sandbox: &Sandbox, run: &str) -> Result {
    sandbox.pause().await?;
    let mut filter = filter(run);
    filter.states = vec![SandboxState::Paused];
    let frozen = client.list(&filter).await?.items;
    let ids: Vec<_> = frozen.iter().map(|one| one.id.as_str()).collect();
    same("paused", ids, vec![sandbox.id()])?;
    let error = sandbox.pause().await.expect_err("it is paused already");
    same("refused", error.api().is_some(), true)?;
    sandbox.unpause().await?;
    let said = sandbox.commands().run("echo awake").await?;
    same("runs on", said.stdout.as_str(), "awake\n")?;
    works(&format!("pause, resume; a second pause: {error}"))
}

async fn snapshot(client: &Client, sandbox: &Sandbox, run: &str) -> Result {
    sandbox.files().write("/root/kept", "from before").await?;
    let snapshot = sandbox.snapshot(Some("every-server")).await?;
    let filter = SnapshotFilter {
        sandbox_id: Some(sandbox.id().to_owned()),
        ..SnapshotFilter::default()
    };
    let listed: Vec<_> = client.list_all_snapshots(filter).try_collect().await?;
    same("snapshots", listed.len(), 1)?;
    let copy = Sandbox::create_from_snapshot(snapshot.id.as_str())
        .client(client)
        .metadata(LABEL, run)
        .await?;
    let kept = copy.files().read_text("/root/kept").await?;
    same("in the copy", kept.as_str(), "from before")?;
    copy.kill().await?;
    client.delete_snapshot(snapshot.id.as_str()).await?;
    let error = client.get_snapshot(snapshot.id.as_str()).await;
    let error = error.expect_err("it was removed");
    same("not found", error.is_not_found(), true)?;
    works("snapshot, restore, removal")
}

async fn diagnostics(sandbox: &Sandbox) -> Result {
    let logs = sandbox.diagnostic_logs("container").await?;
    same("whose", logs.sandbox_id.as_str(), sandbox.id())?;
    let events = sandbox.diagnostic_events("runtime").await?;
    same("has events", events.content.is_some(), true)?;
    works("diagnostics")
}

async fn killed(client: &Client, sandbox: &Sandbox) -> Result {
    sandbox.kill().await?;
    let error = client.get(sandbox.id()).await.expect_err("it was killed");
    same("not found", error.is_not_found(), true)?;
    works("kill")
}

async fn remove_all(client: &Client, run: &str) -> Result {
    // Collected first: pages shift while their items go.
    let left: Vec<_> = client.list_all(filter(run)).try_collect().await?;
    for one in left {
        client.sandbox(one.id.as_str()).kill().await?;
    }
    Ok(())
}

fn filter(run: &str) -> SandboxFilter {
    SandboxFilter {
        metadata: BTreeMap::from([(LABEL.to_owned(), run.to_owned())]),
        ..SandboxFilter::default()
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "values, not references to them, read better where it is called"
)]
fn same<T: PartialEq + Debug>(what: &str, got: T, wanted: T) -> Result {
    if got == wanted {
        return Ok(());
    }
    Err(format!("{what}: {got:?} instead of {wanted:?}").into())
}

fn works(what: &str) -> Result {
    Ok(writeln!(std::io::stdout(), "works: {what}")?)
}
