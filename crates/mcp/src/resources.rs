//! Files and logs of sandboxes as resources that a client can attach.
//!
//! `sandbox://{id}/files/{path}`, `sandbox://{id}/logs`, `sandbox://{id}/commands/{id}/logs`.

use base64::Engine as _;
use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};

use crate::files::media_type;
use crate::registry::Registry;
use crate::tool::ToolError;

const SCHEME: &str = "sandbox://";

/// A resource is read whole, so it may be this large.
const RESOURCE_BYTES_MAX: u64 = 8 * 1024 * 1024;

pub(crate) fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new(format!("{SCHEME}{{sandbox_id}}/files/{{+path}}"), "file")
            .with_description("A file of a sandbox, by its path without the first slash."),
        ResourceTemplate::new(format!("{SCHEME}{{sandbox_id}}/logs"), "logs")
            .with_description("What a sandbox's entrypoint has printed.")
            .with_mime_type("text/plain"),
        ResourceTemplate::new(
            format!("{SCHEME}{{sandbox_id}}/commands/{{execution_id}}/logs"),
            "command logs",
        )
        .with_description("What a command has printed, by the id that command_run answered.")
        .with_mime_type("text/plain"),
    ]
}

/// The logs of every sandbox that is known here.
pub(crate) fn list(registry: &Registry) -> Vec<Resource> {
    let sandboxes = registry.sandboxes().into_iter();
    let logs = |sandbox: opensandbox::Sandbox| {
        let id = sandbox.id();
        Resource::new(
            format!("{SCHEME}{id}/logs"),
            format!("logs of sandbox {id}"),
        )
        .with_mime_type("text/plain")
    };
    sandboxes.map(logs).collect()
}

pub(crate) async fn read(registry: &Registry, uri: &str) -> Result<ReadResourceResult, ToolError> {
    let unknown = || {
        ToolError::new(format!(
            "there is no resource {uri}; resources are {SCHEME}ID/files/PATH, {SCHEME}ID/logs and \
             {SCHEME}ID/commands/ID/logs"
        ))
    };
    let rest = uri.strip_prefix(SCHEME).ok_or_else(unknown)?;
    let (id, place) = rest.split_once('/').ok_or_else(unknown)?;
    let contents = if let Some(path) = place.strip_prefix("files/") {
        file(registry, id, &decode(path), uri).await?
    } else if place == "logs" {
        registry.check_visible(id)?;
        let logs = registry.client.diagnostic_logs(id, "all").await?;
        text(logs.content.unwrap_or_default(), uri)
    } else {
        let command = place.strip_prefix("commands/");
        let command = command.and_then(|place| place.strip_suffix("/logs"));
        let command = command.ok_or_else(unknown)?;
        let sandbox = registry.get(id, true).await?;
        let logs = sandbox.commands().logs(command, None).await?;
        text(logs.text, uri)
    };
    Ok(ReadResourceResult::new(vec![contents]))
}

fn text(content: String, uri: &str) -> ResourceContents {
    ResourceContents::text(content, uri).with_mime_type("text/plain")
}

async fn file(
    registry: &Registry,
    id: &str,
    path: &str,
    uri: &str,
) -> Result<ResourceContents, ToolError> {
    let sandbox = registry.get(id, true).await?;
    let path = format!("/{}", path.trim_start_matches('/'));
    let stream = sandbox.files().download(&path).await?;
    if stream
        .length()
        .is_none_or(|length| length > RESOURCE_BYTES_MAX)
    {
        return Err(ToolError::new(format!(
            "{path} is longer than {RESOURCE_BYTES_MAX} bytes; read it in parts with file_read"
        )));
    }
    let bytes = stream.bytes().await?;
    Ok(match String::from_utf8(bytes) {
        Ok(content) => text(content, uri),
        Err(error) => {
            let bytes = error.into_bytes();
            let encoded = base64::engine::general_purpose::STANDARD.encode(&bytes);
            ResourceContents::blob(encoded, uri).with_mime_type(media_type(&bytes))
        }
    })
}

/// A path as it stands in a URI; a `%` that begins no byte is itself.
fn decode(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = (byte == b'%')
            .then(|| after.split_at_checked(2))
            .flatten()
            .and_then(|(digits, after)| {
                let digits = std::str::from_utf8(digits).ok()?;
                Some((u8::from_str_radix(digits, 16).ok()?, after))
            });
        let (byte, after) = escaped.unwrap_or((byte, after));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_from_uris() {
        assert_eq!(decode("tmp/a%20b%2Fc"), "tmp/a b/c");
        assert_eq!(decode("100%"), "100%");
        assert_eq!(decode("%zz%C3%BC"), "%zzü");
    }
}
