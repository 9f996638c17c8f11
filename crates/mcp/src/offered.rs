//! What of the tools is offered: nothing that the server behind, or the limits here, would refuse whatever
//! else is asked for.
//!
//! Refuses nothing itself: what is left out of a schema and sent all the same gets the server's answer.

use std::sync::Arc;

use opensandbox::wire::version::ServerCapabilities;
use rmcp::model::Tool;
use serde_json::{Map, Value, json};

use crate::limits::Limits;

/// The tools that make sandboxes, whose arguments depend on what there is.
const CREATING: [&str; 2] = ["sandbox_create", "sandbox_restore"];

/// The tool as it is offered, if it is. `can` is what the server says of itself; one that says nothing is
/// taken to do everything.
pub(crate) fn offered(
    tool: &Tool,
    can: Option<&ServerCapabilities>,
    limits: &Limits,
) -> Option<Tool> {
    let is_lacking = |has: fn(&ServerCapabilities) -> bool| can.is_some_and(|can| !has(can));
    let is_refused = match &*tool.name {
        "sandbox_restore" | "snapshot_create" => is_lacking(|can| can.snapshots),
        "sandbox_pause" | "sandbox_resume" => is_lacking(|can| can.pause),
        _ => false,
    };
    if is_refused {
        return None;
    }
    if !CREATING.contains(&&*tool.name) {
        return Some(tool.clone());
    }
    let mut schema = Map::clone(&tool.input_schema);
    let has_no_rules = is_lacking(|can| can.network_rules);
    if limits.no_network || (has_no_rules && is_lacking(|can| can.no_network)) {
        drop_property(&mut schema, None, "network_policy");
    } else if has_no_rules {
        drop_property(&mut schema, Some("Policy"), "egress");
        describe(
            &mut schema,
            "Policy",
            "What a sandbox may reach outside: everything or nothing.",
        );
    }
    if limits.no_volumes {
        drop_property(&mut schema, None, "volumes");
    } else if is_lacking(|can| can.host_paths) {
        drop_property(&mut schema, Some("Volume"), "host_path");
        describe(
            &mut schema,
            "Volume",
            "One mount: a named volume that outlives the sandbox.",
        );
    }
    drop_unused(&mut schema);
    let mut tool = tool.clone();
    tool.input_schema = Arc::new(schema);
    Some(tool)
}

/// Takes a property away from the schema, or from one of its definitions.
fn drop_property(schema: &mut Map<String, Value>, definition: Option<&str>, name: &str) {
    let object = match definition {
        None => Some(schema),
        Some(definition) => defined(schema, definition),
    };
    let properties = object.and_then(|object| object.get_mut("properties"));
    if let Some(properties) = properties.and_then(Value::as_object_mut) {
        properties.remove(name);
    }
}

fn describe(schema: &mut Map<String, Value>, definition: &str, text: &str) {
    if let Some(object) = defined(schema, definition) {
        object.insert("description".to_owned(), json!(text));
    }
}

fn defined<'a>(
    schema: &'a mut Map<String, Value>,
    name: &str,
) -> Option<&'a mut Map<String, Value>> {
    schema.get_mut("$defs")?.get_mut(name)?.as_object_mut()
}

/// Takes definitions away that nothing refers to any more: each costs a model's context.
fn drop_unused(schema: &mut Map<String, Value>) {
    loop {
        let text = Value::Object(schema.clone()).to_string();
        let Some(Value::Object(definitions)) = schema.get_mut("$defs") else {
            return;
        };
        let before = definitions.len();
        definitions.retain(|name, _| text.contains(&format!("\"#/$defs/{name}\"")));
        if definitions.len() == before {
            return;
        }
    }
}
