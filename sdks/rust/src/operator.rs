//! What those who run a server ask for: templates, its pools, policies by the control plane, the audit
//! record, its own metrics and API document.

use api::event::{AuditEventsQuery, ListAuditEventsResponse};
use api::metrics_event::MetricsEvent;
use api::network_policy::{NetworkPolicy, NetworkRule, PolicyStatus};
use api::pool::{CreatePoolRequest, ListPoolsResponse, Pool, UpdatePoolRequest};
use api::query::QueryWriter;
use api::template::{CreateTemplateRequest, ListTemplatesResponse, Template};
use http::Method;
use serde_json::Value;

use crate::client::{Client, path};
use crate::error::Result;
use crate::transport::segment;

impl Client {
    /// What a sandbox may reach, by the control plane. [`Sandbox::egress`](crate::Sandbox::egress)
    /// asks the sandbox.
    pub async fn network_policy(&self, id: &str) -> Result<PolicyStatus> {
        let request = self.target().get(path(id, "/networkpolicy")?);
        request.json_answer().await
    }

    /// Replaces what a sandbox may reach.
    pub async fn set_network_policy(
        &self,
        id: &str,
        policy: &NetworkPolicy,
    ) -> Result<PolicyStatus> {
        let request = self
            .target()
            .request(Method::PUT, path(id, "/networkpolicy")?);
        request.json(policy).json_answer().await
    }

    /// Puts rules before the others.
    pub async fn patch_network_policy(
        &self,
        id: &str,
        rules: &[NetworkRule],
    ) -> Result<PolicyStatus> {
        let request = self
            .target()
            .request(Method::PATCH, path(id, "/networkpolicy")?);
        request.json(rules).json_answer().await
    }

    /// Removes the rules of these targets.
    pub async fn delete_network_policy(
        &self,
        id: &str,
        targets: &[String],
    ) -> Result<PolicyStatus> {
        let request = self.target().delete(path(id, "/networkpolicy")?);
        request.json(targets).json_answer().await
    }

    /// Begins to build a template.
    pub async fn create_template(&self, request: &CreateTemplateRequest) -> Result<Template> {
        let call = self.target().post("/templates").json(request);
        call.json_answer().await
    }

    /// A template.
    pub async fn get_template(&self, id: &str) -> Result<Template> {
        let request = self.target().get(format!("/templates/{}", segment(id)?));
        request.json_answer().await
    }

    /// One page of templates; the query is `page`, `pageSize` and `metadata`, encoded.
    pub async fn list_templates(&self, query: &str) -> Result<ListTemplatesResponse> {
        let request = self.target().get("/templates").query(query.to_owned());
        request.json_answer().await
    }

    /// Removes a template.
    pub async fn delete_template(&self, id: &str) -> Result<()> {
        let request = self.target().delete(format!("/templates/{}", segment(id)?));
        request.done().await
    }

    /// Makes a pool of the server. [`Pool`](crate::Pool) is one on this side.
    pub async fn create_pool(&self, request: &CreatePoolRequest) -> Result<Pool> {
        let call = self.target().post("/pools").json(request);
        call.json_answer().await
    }

    /// A pool of the server.
    pub async fn get_pool(&self, name: &str) -> Result<Pool> {
        let request = self.target().get(format!("/pools/{}", segment(name)?));
        request.json_answer().await
    }

    /// The pools of the server.
    pub async fn list_pools(&self) -> Result<ListPoolsResponse> {
        self.target().get("/pools").json_answer().await
    }

    /// Changes a pool of the server.
    pub async fn update_pool(&self, name: &str, request: &UpdatePoolRequest) -> Result<Pool> {
        let place = format!("/pools/{}", segment(name)?);
        let call = self.target().request(Method::PUT, place).json(request);
        call.json_answer().await
    }

    /// Removes a pool of the server.
    pub async fn delete_pool(&self, name: &str) -> Result<()> {
        let request = self.target().delete(format!("/pools/{}", segment(name)?));
        request.done().await
    }

    /// Extension: who changed what, newest first.
    pub async fn audit_events(&self, filter: &AuditEventsQuery) -> Result<ListAuditEventsResponse> {
        let number = |number: Option<u64>| number.map(|number| number.to_string());
        let query = QueryWriter::new()
            .optional("resource", filter.resource.as_deref())
            .optional("actor", filter.actor.as_deref())
            .optional("before", number(filter.before).as_deref())
            .optional("limit", number(filter.limit).as_deref());
        let request = self.target().get("/audit-events").query(query.finish());
        request.json_answer().await
    }

    /// The server's own metrics, as Prometheus reads them.
    pub async fn metrics_text(&self) -> Result<String> {
        let bytes = self.root()?.get("/metrics").bytes_answer().await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The server's API document.
    pub async fn openapi(&self) -> Result<Value> {
        self.root()?.get("/openapi.json").json_answer().await
    }

    /// Tells the server how a client fared, as the published clients do.
    pub async fn report_event(&self, event: &MetricsEvent) -> Result<()> {
        let request = self.target().post("/metrics/events").json(event);
        request.done().await
    }
}
