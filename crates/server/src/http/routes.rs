//! The router, made from the contract's table of operations (`api::spec`).
//!
//! Paths, methods, prefixes and the audit trail's names of changes stand in that table alone (the
//! proxied path is also read by `proxy::Route`), which is also what the OpenAPI document is made from;
//! here stands which function handles which operation. An operation without a handler, or a handler
//! without an operation, stops the program before it listens, and every test that starts a server.

use std::collections::HashMap;

use api::spec::{Contract, Mount, Operation};
use axum::Router;
use axum::handler::Handler;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::Method;

use super::{
    App, audit, diagnostics, docs, endpoints, events, images, keys, operations, policy, sandboxes,
    snapshots, tenants, unsupported, volumes,
};

/// The routes of the contract, but for those into sandboxes, which the proxy carries.
pub(super) struct Routes {
    /// Those that ask for a key.
    pub(super) guarded: Router<App>,
    /// Those that everybody may ask.
    pub(super) open: Router<App>,
}

/// Makes a route of the method that the table says.
type Handle = Box<dyn FnOnce(MethodFilter) -> MethodRouter<App>>;

pub(super) fn table(app: &App) -> Routes {
    let mut handlers = handlers();
    let mut everywhere = Router::new();
    let mut guarded = Router::new();
    let mut open = Router::new();
    let operations = Contract::Lifecycle.operations();
    for operation in operations.iter().filter(|it| it.mount != Mount::Proxied) {
        let handle = handlers
            .remove(&*operation.id)
            .unwrap_or_else(|| panic!("operation {} has a handler", operation.id));
        let mut route = handle(method(operation));
        if let Some(action) = operation.action {
            route = route.route_layer(from_fn_with_state((app.clone(), action), audit::record));
        }
        let router = match operation.mount {
            Mount::Everywhere => &mut everywhere,
            _ if asks_for_key(operation) => &mut guarded,
            _ => &mut open,
        };
        *router = std::mem::take(router).route(&pattern(operation), route);
    }
    let unknown: Vec<_> = handlers.into_keys().collect();
    assert!(
        unknown.is_empty(),
        "handlers without an operation: {unknown:?}"
    );
    Routes {
        guarded: guarded.merge(everywhere.clone()).nest("/v1", everywhere),
        open,
    }
}

/// Which function handles which operation of the contract.
fn handlers() -> HashMap<&'static str, Handle> {
    HashMap::from([
        ("createSandbox", to(sandboxes::create)),
        ("listSandboxes", to(sandboxes::list)),
        ("getSandbox", to(sandboxes::get)),
        ("deleteSandbox", to(sandboxes::delete)),
        ("patchSandboxMetadata", to(sandboxes::patch_metadata)),
        ("pauseSandbox", to(sandboxes::pause)),
        ("resumeSandbox", to(sandboxes::resume)),
        ("renewSandboxExpiration", to(sandboxes::renew)),
        ("getSandboxEndpoint", to(endpoints::get)),
        ("getNetworkPolicy", to(policy::get)),
        ("replaceNetworkPolicy", to(policy::replace)),
        ("patchNetworkPolicy", to(policy::patch)),
        ("deleteNetworkPolicy", to(policy::delete)),
        ("createSnapshot", to(snapshots::create)),
        ("listSnapshots", to(snapshots::list)),
        ("getSnapshot", to(snapshots::get)),
        ("deleteSnapshot", to(snapshots::delete)),
        ("listPools", to(unsupported::pools)),
        ("createPool", to(unsupported::pools)),
        ("getPool", to(unsupported::pools)),
        ("updatePool", to(unsupported::pools)),
        ("deletePool", to(unsupported::pools)),
        ("listTemplates", to(unsupported::templates)),
        ("createTemplate", to(unsupported::templates)),
        ("getTemplate", to(unsupported::templates)),
        ("deleteTemplate", to(unsupported::templates)),
        ("listImages", to(images::list)),
        ("pullImage", to(images::pull)),
        ("importImages", to(images::import)),
        ("exportImage", to(images::export)),
        ("pruneImages", to(images::prune)),
        ("tagImage", to(images::tag)),
        ("deleteImage", to(images::remove)),
        ("listVolumes", to(volumes::list)),
        ("createVolume", to(volumes::create)),
        ("deleteVolume", to(volumes::remove)),
        ("listKeys", to(keys::list)),
        ("createKey", to(keys::create)),
        ("deleteKey", to(keys::revoke)),
        ("rotateKey", to(keys::rotate)),
        ("createToken", to(keys::token)),
        ("listTenants", to(tenants::list)),
        ("createTenant", to(tenants::create)),
        ("getTenant", to(tenants::get)),
        ("deleteTenant", to(tenants::remove)),
        ("watchEvents", to(events::stream)),
        ("listAuditEvents", to(events::audit)),
        ("followSandboxLogs", to(diagnostics::follow)),
        ("getSandboxLogs", to(diagnostics::logs)),
        ("getSandboxEvents", to(diagnostics::events)),
        ("getSandboxInspect", to(diagnostics::inspect)),
        ("getSandboxDiagnosticsSummary", to(diagnostics::summary)),
        ("reportMetricsEvent", to(operations::report)),
        ("getServerMetrics", to(operations::metrics)),
        ("getHealth", to(operations::health)),
        ("getVersion", to(operations::version)),
        ("getOpenApi", to(docs::openapi)),
    ])
}

fn to<H, T>(handler: H) -> Handle
where
    H: Handler<T, App>,
    T: 'static,
{
    Box::new(|method| on(method, handler))
}

fn method(operation: &Operation) -> MethodFilter {
    let method: Method = operation.method.parse().expect("a method of HTTP");
    MethodFilter::try_from(method).expect("a method that the router knows")
}

/// `/metrics` stands in the document among what needs no key, for servers that have none; one that
/// has keys asks for one, as its counts tell what its users do.
fn asks_for_key(operation: &Operation) -> bool {
    !operation.is_open || operation.id == "getServerMetrics"
}

/// The path in the router's syntax. It is also the label by which requests are counted, in which
/// parameters have short names: `{sandboxId}` is `{id}`, `{poolName}` is `{name}`.
fn pattern(operation: &Operation) -> String {
    let short = |name: &str| {
        let last_word = name.rfind(|c: char| c.is_ascii_uppercase()).unwrap_or(0);
        name[last_word..].to_ascii_lowercase()
    };
    let parts: Vec<String> = operation
        .path
        .split('/')
        .map(|part| {
            match part
                .strip_prefix('{')
                .and_then(|part| part.strip_suffix('}'))
            {
                Some(name) if operation.takes_rest => format!("{{*{}}}", short(name)),
                Some(name) => format!("{{{}}}", short(name)),
                None => part.to_owned(),
            }
        })
        .collect();
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxy::Route;

    #[test]
    fn patterns_are_the_tables_paths_with_short_names() {
        let operations = Contract::Lifecycle.operations();
        let of = |id: &str| pattern(operations.iter().find(|it| it.id == id).unwrap());
        assert_eq!(of("getSandboxEndpoint"), "/sandboxes/{id}/endpoints/{port}");
        assert_eq!(of("getPool"), "/pools/{name}");
        assert_eq!(of("deleteImage"), "/images/{*reference}");
    }

    #[test]
    fn handlers_are_those_of_the_table() {
        let mut handlers = handlers();
        for operation in Contract::Lifecycle.operations() {
            let is_handled = handlers.remove(&*operation.id).is_some();
            let is_proxied = operation.mount == Mount::Proxied;
            assert_ne!(is_handled, is_proxied, "{}", operation.id);
            let path = operation.path.replace("{port}", "8000");
            assert_eq!(Route::is_for(&path), is_proxied, "{}", operation.id);
        }
        assert!(handlers.is_empty(), "{:?}", handlers.into_keys());
    }

    #[test]
    fn what_changes_something_has_a_name_in_the_audit_trail() {
        for operation in Contract::Lifecycle.operations() {
            let is_change = operation.method != "GET"
                && operation.mount != Mount::Proxied
                && operation.id != "reportMetricsEvent";
            assert_eq!(operation.action.is_some(), is_change, "{}", operation.id);
        }
    }
}
