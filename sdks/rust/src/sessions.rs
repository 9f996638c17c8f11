//! Live shells that keep their variables, functions and directory between runs.

use std::future::IntoFuture;
use std::time::Duration;

use api::exec::session::{CreateSessionRequest, CreateSessionResponse, RunInSessionRequest};

use crate::commands::{Boxed, milliseconds};
use crate::error::Result;
use crate::execution::{Execution, Kind, Output};
use crate::sandbox::Sandbox;
use crate::transport::segment;

/// The sessions of a sandbox; see [`Sandbox::sessions`].
#[derive(Debug, Clone)]
pub struct Sessions {
    sandbox: Sandbox,
}

/// A live shell. Dropping it does not end it: [`delete`](Self::delete) does.
#[derive(Debug, Clone)]
pub struct Session {
    sandbox: Sandbox,
    id: String,
}

impl Sessions {
    pub(crate) fn new(sandbox: Sandbox) -> Self {
        Self { sandbox }
    }

    /// Starts a shell, in this directory if given.
    ///
    /// ```no_run
    /// # async fn example(sandbox: &opensandbox::Sandbox) -> opensandbox::Result<()> {
    /// let session = sandbox.sessions().create(None).await?;
    /// session.run("cd /tmp; name=value").await?;
    /// assert_eq!(session.run("echo $PWD $name").await?.stdout, "/tmp value\n");
    /// session.delete().await?;
    /// # Ok(()) }
    /// ```
    pub async fn create(&self, cwd: Option<&str>) -> Result<Session> {
        let exec = self.sandbox.exec().await?;
        let request = CreateSessionRequest {
            cwd: cwd.map(str::to_owned),
        };
        let answer: CreateSessionResponse =
            exec.post("/session").json(&request).json_answer().await?;
        Ok(self.get(answer.session_id.as_str()))
    }

    /// A session by its id, without any request.
    pub fn get(&self, id: impl Into<String>) -> Session {
        Session {
            sandbox: self.sandbox.clone(),
            id: id.into(),
        }
    }
}

impl Session {
    /// The session's id, as the daemon gave it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Runs shell text in it: `.await` it for the output.
    pub fn run(&self, command: impl Into<String>) -> RunInSession {
        RunInSession {
            session: self.clone(),
            request: RunInSessionRequest {
                command: command.into(),
                ..RunInSessionRequest::default()
            },
        }
    }

    /// Interrupts what runs in it.
    pub async fn interrupt(&self) -> Result<()> {
        self.sandbox.commands().interrupt(&self.id).await
    }

    /// Ends it.
    pub async fn delete(&self) -> Result<()> {
        let exec = self.sandbox.exec().await?;
        let path = format!("/session/{}", segment(&self.id)?);
        exec.delete(path).done().await
    }
}

/// A run in a session that is about to be made: `.await` it, or choose
/// [`stream`](Self::stream).
#[derive(Debug, Clone)]
#[must_use = "it runs when it is awaited"]
pub struct RunInSession {
    session: Session,
    request: RunInSessionRequest,
}

impl RunInSession {
    /// Where to run; the session goes on from there.
    pub fn cwd(mut self, directory: impl Into<String>) -> Self {
        self.request.cwd = Some(directory.into());
        self
    }

    /// End this run, not the session, after this time.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request.timeout = Some(milliseconds(timeout));
        self
    }

    /// Starts it and returns its events as they come.
    pub async fn stream(self) -> Result<Execution> {
        let exec = self.session.sandbox.exec().await?;
        let path = format!("/session/{}/run", segment(&self.session.id)?);
        let answer = exec.post(path).json(&self.request).send().await?;
        Ok(Execution::new(answer, Kind::Session, exec))
    }
}

impl IntoFuture for RunInSession {
    type Output = Result<Output>;
    type IntoFuture = Boxed<Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async { self.stream().await?.output().await })
    }
}
