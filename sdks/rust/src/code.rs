//! Code that remembers: contexts, and cells that run in them.

use std::future::IntoFuture;
use std::time::Duration;

use api::exec::code::{Context, ContextRef, CreateContextRequest, RunCodeRequest};
use api::query::QueryWriter;

use crate::commands::{Boxed, milliseconds};
use crate::error::Result;
use crate::execution::{Execution, Kind, Output};
use crate::sandbox::Sandbox;
use crate::transport::segment;

/// The code of a sandbox; see [`Sandbox::code`].
#[derive(Debug, Clone)]
pub struct Code {
    sandbox: Sandbox,
}

impl Code {
    pub(crate) fn new(sandbox: Sandbox) -> Self {
        Self { sandbox }
    }

    /// Runs code in the default context of its language, or in one that is chosen.
    ///
    /// ```no_run
    /// # async fn example(sandbox: &opensandbox::Sandbox) -> opensandbox::Result<()> {
    /// sandbox.code().run("x = 20").await?;
    /// let output = sandbox.code().run("x + 1").await?;
    /// assert_eq!(output.text(), Some("21"));
    /// # Ok(()) }
    /// ```
    pub fn run(&self, code: impl Into<String>) -> RunCode {
        RunCode {
            sandbox: self.sandbox.clone(),
            request: RunCodeRequest {
                code: code.into(),
                ..RunCodeRequest::default()
            },
        }
    }

    /// Makes a context of a language, in this directory if given.
    pub async fn create_context(&self, language: &str, cwd: Option<&str>) -> Result<Context> {
        let exec = self.sandbox.exec().await?;
        let request = CreateContextRequest {
            language: Some(language.to_owned()),
            cwd: cwd.map(str::to_owned),
            ..CreateContextRequest::default()
        };
        let call = exec.post("/code/context").json(&request);
        call.json_answer().await
    }

    /// A context.
    pub async fn get_context(&self, id: &str) -> Result<Context> {
        let exec = self.sandbox.exec().await?;
        let path = format!("/code/contexts/{}", segment(id)?);
        exec.get(path).json_answer().await
    }

    /// The contexts, of one language if given.
    pub async fn list_contexts(&self, language: Option<&str>) -> Result<Vec<Context>> {
        let exec = self.sandbox.exec().await?;
        let query = QueryWriter::new().optional("language", language);
        let request = exec.get("/code/contexts").query(query.finish());
        request.json_answer().await
    }

    /// Ends a context.
    pub async fn delete_context(&self, id: &str) -> Result<()> {
        let exec = self.sandbox.exec().await?;
        let path = format!("/code/contexts/{}", segment(id)?);
        exec.delete(path).done().await
    }

    /// Ends the contexts of a language.
    pub async fn delete_contexts(&self, language: &str) -> Result<()> {
        let exec = self.sandbox.exec().await?;
        let query = QueryWriter::new().pair("language", language).finish();
        exec.delete("/code/contexts").query(query).done().await
    }

    /// Interrupts what runs in a context, which is named by the id of
    /// [`Event::Started`](crate::Event::Started).
    pub async fn interrupt(&self, id: &str) -> Result<()> {
        let exec = self.sandbox.exec().await?;
        let query = QueryWriter::new().pair("id", id).finish();
        exec.delete("/code").query(query).done().await
    }
}

/// Code that is about to run: `.await` it, or choose [`stream`](Self::stream).
#[derive(Debug, Clone)]
#[must_use = "it runs when it is awaited"]
pub struct RunCode {
    sandbox: Sandbox,
    request: RunCodeRequest,
}

impl RunCode {
    fn place(&mut self) -> &mut ContextRef {
        self.request.context.get_or_insert_default()
    }

    /// In the default context of this language.
    pub fn language(mut self, language: impl Into<String>) -> Self {
        self.place().language = Some(language.into());
        self
    }

    /// In this context.
    pub fn context(mut self, id: impl Into<String>) -> Self {
        self.place().id = Some(id.into());
        self
    }

    /// Extension: interrupt it after this time.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request.timeout = Some(milliseconds(timeout));
        self
    }

    /// Starts it and returns its events as they come.
    pub async fn stream(self) -> Result<Execution> {
        let exec = self.sandbox.exec().await?;
        let answer = exec.post("/code").json(&self.request).send().await?;
        Ok(Execution::new(answer, Kind::Code, exec))
    }
}

impl IntoFuture for RunCode {
    type Output = Result<Output>;
    type IntoFuture = Boxed<Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async { self.stream().await?.output().await })
    }
}
