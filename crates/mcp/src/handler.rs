//! The protocol's side: which tools there are, calling one, resources.

use std::collections::BTreeMap;
use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, Implementation, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};

use crate::offered::offered;
use crate::progress::Progress;
use crate::registry::Registry;
use crate::tool::{Call, Entry, ToolError};
use crate::{code, commands, files, resources, sandboxes, snapshots};

const INSTRUCTIONS: &str = "\
Sandboxes are isolated Linux machines in which you run commands and code and keep files; nothing in \
them touches the user's machine. Start with sandbox_create and keep the sandbox_id it answers: every \
other tool takes it. command_run runs shell text (set timeout_seconds; use background=true for \
servers, then command_logs); code_run keeps variables between calls and answers values and images; \
file_read and file_write handle text, file_read_binary and file_write_binary the rest. Relative \
state such as the working directory is not kept between command_run calls: give working_directory. \
sandbox_get_endpoint tells where a port is reached from outside. snapshot_create and \
sandbox_restore save and bring back a file system. End with sandbox_kill.";

/// One client's view of the server.
#[derive(Clone)]
pub(crate) struct Handler {
    registry: Arc<Registry>,
    tools: Arc<BTreeMap<String, Entry>>,
}

impl Handler {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        let entries = [
            sandboxes::tools(),
            commands::tools(),
            code::tools(),
            files::tools(),
            snapshots::tools(),
        ];
        let named = |entry: Entry| (entry.tool.name.to_string(), entry);
        let tools = entries.into_iter().flatten().map(named).collect();
        Self {
            registry,
            tools: Arc::new(tools),
        }
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .build();
        let name = Implementation::new("OpenSandbox Sandbox", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities)
            .with_server_info(name)
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let can = self.registry.capabilities().await;
        let limits = &self.registry.limits;
        let tools = self.tools.values();
        let tools = tools.filter_map(|entry| offered(&entry.tool, can, limits));
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools.get(name).map(|entry| entry.tool.clone())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(entry) = self.tools.get(request.name.as_ref()) else {
            let message = format!("there is no tool called {:?}", request.name);
            return Err(ErrorData::invalid_params(message, None));
        };
        let call = Call {
            registry: Arc::clone(&self.registry),
            progress: Progress::of(&context),
            cancelled: context.ct.clone(),
        };
        let cancelled = call.cancelled.clone();
        let work = match entry.begin(call, request.arguments) {
            Ok(work) => work,
            Err(failure) => return Ok(failure.into_result().into()),
        };
        // Work with something to undo looks at the cancellation itself and is quick about it;
        // so it comes first, and only what ignores the cancellation is dropped.
        let outcome = tokio::select! {
            biased;
            outcome = work => outcome,
            () = grace(cancelled) => Err(ToolError::new("the call was cancelled")),
        };
        let result = outcome.map_or_else(ToolError::into_result, |answer| answer.into_result());
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let list = resources::list(&self.registry);
        Ok(ListResourcesResult::with_all_items(list))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let templates = resources::templates();
        Ok(ListResourceTemplatesResult::with_all_items(templates))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let read = resources::read(&self.registry, &request.uri).await;
        let result = read
            .map_err(|failure| ErrorData::resource_not_found(failure.message().to_owned(), None))?;
        Ok(result.into())
    }
}

/// Ends a moment after the cancellation, so that work that interrupts what it started can.
async fn grace(cancelled: tokio_util::sync::CancellationToken) {
    const UNDO_TIME: std::time::Duration = std::time::Duration::from_secs(5);
    cancelled.cancelled().await;
    tokio::time::sleep(UNDO_TIME).await;
}
