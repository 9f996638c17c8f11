//! Commands in a sandbox: to the end, as a stream, or in the background.

use std::collections::BTreeMap;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use api::exec::command::{CommandStatus, LOGS_CURSOR_HEADER, RunCommandRequest, StdinResponse};
use api::query::QueryWriter;
use bytes::Bytes;
use http::HeaderValue;

use crate::error::{Error, Result};
use crate::execution::{Execution, Kind, Output};
use crate::sandbox::Sandbox;
use crate::transport::segment;

/// A future that owns everything it needs.
pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// The commands of a sandbox; see [`Sandbox::commands`].
#[derive(Debug, Clone)]
pub struct Commands {
    sandbox: Sandbox,
}

/// Output of a command so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logs {
    /// The output from the cursor on.
    pub text: String,
    /// Where to read on.
    pub cursor: Option<u64>,
}

impl Commands {
    pub(crate) fn new(sandbox: Sandbox) -> Self {
        Self { sandbox }
    }

    /// Runs shell text.
    ///
    /// ```no_run
    /// # async fn example(sandbox: &opensandbox::Sandbox) -> opensandbox::Result<()> {
    /// let output = sandbox.commands().run("ls -l | wc -l").cwd("/tmp").await?;
    /// println!("{} lines, exit code {:?}", output.stdout.trim(), output.exit_code());
    /// # Ok(()) }
    /// ```
    pub fn run(&self, command: impl Into<String>) -> RunCommand {
        self.order(RunCommandRequest {
            command: Some(command.into()),
            ..RunCommandRequest::default()
        })
    }

    /// Runs a program with its arguments, without a shell.
    pub fn exec<A: Into<String>>(&self, argv: impl IntoIterator<Item = A>) -> RunCommand {
        self.order(RunCommandRequest {
            argv: Some(argv.into_iter().map(Into::into).collect()),
            ..RunCommandRequest::default()
        })
    }

    /// Runs a request as it goes over the wire.
    pub fn order(&self, request: RunCommandRequest) -> RunCommand {
        RunCommand {
            sandbox: self.sandbox.clone(),
            request,
        }
    }

    /// How a command is going.
    pub async fn status(&self, id: &str) -> Result<CommandStatus> {
        let exec = self.sandbox.exec().await?;
        let path = format!("/command/status/{}", segment(id)?);
        exec.get(path).json_answer().await
    }

    /// Extension: the commands that the daemon still knows.
    pub async fn list(&self) -> Result<Vec<CommandStatus>> {
        self.sandbox
            .exec()
            .await?
            .get("/command")
            .json_answer()
            .await
    }

    /// Output of a command from `cursor` on; `None` is from its beginning.
    pub async fn logs(&self, id: &str, cursor: Option<u64>) -> Result<Logs> {
        let exec = self.sandbox.exec().await?;
        let cursor = cursor.map(|cursor| cursor.to_string());
        let query = QueryWriter::new().optional("cursor", cursor.as_deref());
        let request = exec
            .get(format!("/command/{}/logs", segment(id)?))
            .query(query.finish());
        let answer = request.send().await?;
        let cursor = answer.headers().get(LOGS_CURSOR_HEADER);
        let cursor = cursor.and_then(|value| value.to_str().ok()?.parse().ok());
        let url = answer.url().path().to_owned();
        let bytes = answer
            .bytes()
            .await
            .map_err(|error| crate::transport::unreachable(url, error))?;
        Ok(Logs {
            text: String::from_utf8_lossy(&bytes).into_owned(),
            cursor,
        })
    }

    /// Interrupts a command, or what runs in a session.
    pub async fn interrupt(&self, id: &str) -> Result<()> {
        let exec = self.sandbox.exec().await?;
        let query = QueryWriter::new().pair("id", id).finish();
        exec.delete("/command").query(query).done().await
    }

    /// Extension: writes to the stdin of a command that was started with
    /// [`stdin_open`](RunCommand::stdin_open); `close` ends its input. Answers how many bytes it
    /// took.
    pub async fn write_stdin(&self, id: &str, input: impl Into<Bytes>, close: bool) -> Result<u64> {
        let exec = self.sandbox.exec().await?;
        let query = QueryWriter::new().pair("close", if close { "true" } else { "false" });
        let request = exec
            .post(format!("/command/{}/stdin", segment(id)?))
            .query(query.finish())
            .bytes(
                input.into(),
                HeaderValue::from_static("application/octet-stream"),
            )
            // A command that does not read holds its writer up for as long as it likes.
            .timeout(None);
        let answer: StdinResponse = request.json_answer().await?;
        Ok(answer.written)
    }

    /// Extension: follows a command, also one that runs in the background, from the event after
    /// `after` on; 0 is from its beginning. Behind the last event of a command that has ended there
    /// is nothing, and the stream ends at once.
    pub async fn follow(&self, id: &str, after: u64) -> Result<Execution> {
        let exec = self.sandbox.exec().await?;
        let query = QueryWriter::new().pair("after", &after.to_string());
        let request = exec.get(format!("/command/{}/events", segment(id)?));
        let answer = request.query(query.finish()).send().await?;
        Ok(Execution::follow(answer, id, after, exec.clone()))
    }

    /// Makes variables part of the environment of every command from now on, by adding them to
    /// the file that the daemon reads.
    pub async fn set_env(&self, variables: &BTreeMap<String, String>) -> Result<()> {
        let mut lines = String::new();
        for (name, value) in variables {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(is_name) || value.contains('\n') {
                return Err(Error::InvalidArgument(format!(
                    "{name:?} cannot be kept: a name has letters, digits and _, and a value is \
                     one line"
                )));
            }
            lines.push_str(&format!("{name}={value}\n"));
        }
        let file = "${EXECD_ENVS:-/opt/opensandbox/.env}";
        let text = lines.replace('\'', r"'\''");
        let command =
            format!("mkdir -p \"$(dirname \"{file}\")\" && printf %s '{text}' >> \"{file}\"");
        let output = self.run(command).await?;
        if output.is_success() {
            return Ok(());
        }
        Err(Error::Failed {
            id: self.sandbox.id().to_owned(),
            state: "not able to keep variables".to_owned(),
            message: output.stderr,
        })
    }
}

/// A command that is about to run: `.await` it for its output, or choose
/// [`stream`](Self::stream) or [`background`](Self::background).
#[derive(Debug, Clone)]
#[must_use = "a command runs when it is awaited"]
pub struct RunCommand {
    sandbox: Sandbox,
    request: RunCommandRequest,
}

impl RunCommand {
    /// Its working directory.
    pub fn cwd(mut self, directory: impl Into<String>) -> Self {
        self.request.cwd = Some(directory.into());
        self
    }

    /// Adds a variable to its environment.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.request.envs.insert(name.into(), value.into());
        self
    }

    /// Adds variables to its environment.
    pub fn envs(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        self.request.envs.extend(variables);
        self
    }

    /// Kill it after this time.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request.timeout = Some(milliseconds(timeout));
        self
    }

    /// Run it as this user.
    pub fn uid(mut self, uid: u32) -> Self {
        self.request.uid = Some(uid);
        self
    }

    /// Run it as this group; needs a user as well.
    pub fn gid(mut self, gid: u32) -> Self {
        self.request.gid = Some(gid);
        self
    }

    /// Extension: text for its stdin, which then ends.
    pub fn stdin(mut self, text: impl Into<String>) -> Self {
        self.request.stdin = Some(text.into());
        self
    }

    /// Extension: keeps its stdin open for [`Commands::write_stdin`].
    pub fn stdin_open(mut self) -> Self {
        self.request.stdin_open = true;
        self
    }

    /// Starts it and returns its events as they come.
    pub async fn stream(self) -> Result<Execution> {
        let exec = self.sandbox.exec().await?;
        let request = exec.post("/command").json(&self.request);
        let answer = request.send().await?;
        Ok(Execution::new(answer, Kind::Command, exec))
    }

    /// Starts it in the background and returns its id.
    pub async fn background(mut self) -> Result<String> {
        self.request.background = true;
        let output = self.stream().await?.output().await?;
        match (output.id, output.error) {
            (Some(id), None) => Ok(id),
            (_, Some(error)) => Err(Error::Failed {
                id: "the command".to_owned(),
                state: "not started".to_owned(),
                message: error.evalue,
            }),
            (None, None) => Err(Error::StreamBroken {
                what: "a background command".to_owned(),
                message: "it ended without the command's id".to_owned(),
                source: None,
            }),
        }
    }
}

impl IntoFuture for RunCommand {
    type Output = Result<Output>;
    type IntoFuture = Boxed<Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async { self.stream().await?.output().await })
    }
}

/// A wait as the protocol writes it; at least one, because 0 is forever.
pub(crate) fn milliseconds(timeout: Duration) -> i64 {
    i64::try_from(timeout.as_millis())
        .unwrap_or(i64::MAX)
        .max(1)
}
