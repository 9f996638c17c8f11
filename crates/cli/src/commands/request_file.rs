//! Files with a whole request in the protocol's own names, for `osb sandbox create --file` and
//! `osb template create --file`. A field that nobody would read is an error, not a surprise.

use std::path::Path;

use api::sandbox::CreateSandboxRequest;
use api::template::CreateTemplateRequest;
use serde_json::{Map, Value};

use super::create::json;
use crate::error::Error;

const SANDBOX_FIELDS: [&str; 16] = [
    "image",
    "templateId",
    "snapshotId",
    "platform",
    "timeout",
    "resourceLimits",
    "resourceRequests",
    "env",
    "metadata",
    "lifecycle",
    "entrypoint",
    "networkPolicy",
    "credentialProxy",
    "secureAccess",
    "volumes",
    "extensions",
];

/// Fields that a template decides.
const TEMPLATE_DECIDES: [&str; 9] = [
    "resourceLimits",
    "resourceRequests",
    "env",
    "entrypoint",
    "volumes",
    "platform",
    "credentialProxy",
    "secureAccess",
    "lifecycle",
];

/// Refuses flags beside a file; each is whether it was given, and its name.
pub(super) fn check_alone(flags: &[(bool, &str)]) -> Result<(), Error> {
    let given: Vec<&str> = flags
        .iter()
        .filter(|(given, _)| *given)
        .map(|(_, name)| *name)
        .collect();
    if given.is_empty() {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "--file says everything; {} cannot be given with it",
        given.join(", ")
    )))
}

/// A request for a sandbox, and whether it says how long that lives.
pub(super) fn sandbox(path: &Path) -> Result<(CreateSandboxRequest, bool), Error> {
    let wrong = |message: String| Error::Content {
        path: path.display().to_string(),
        message,
    };
    let mut fields: Map<String, Value> = json(path)?;
    fields.retain(|name, value| !value.is_null() || name == "timeout");
    let unknown: Vec<&str> = fields
        .keys()
        .map(String::as_str)
        .filter(|name| !SANDBOX_FIELDS.contains(name))
        .collect();
    if !unknown.is_empty() {
        return Err(wrong(format!(
            "unsupported fields: {}; there are {}",
            unknown.join(", "),
            SANDBOX_FIELDS.join(", ")
        )));
    }
    let sources: Vec<&str> = ["image", "templateId", "snapshotId"]
        .into_iter()
        .filter(|name| fields.contains_key(*name))
        .collect();
    if sources.len() != 1 {
        return Err(wrong(format!(
            "exactly one of image, templateId and snapshotId must be set, not {}",
            if sources.is_empty() {
                "none".to_owned()
            } else {
                sources.join(" and ")
            }
        )));
    }
    let excess: Vec<&str> = TEMPLATE_DECIDES
        .into_iter()
        .filter(|name| fields.contains_key("templateId") && fields.contains_key(*name))
        .collect();
    if !excess.is_empty() {
        return Err(wrong(format!(
            "a template decides by itself about {}",
            excess.join(", ")
        )));
    }
    // Two fields may be written shorter than the protocol has them.
    if let Some(Value::String(uri)) = fields.get("image") {
        let uri = uri.clone();
        fields.insert("image".to_owned(), serde_json::json!({ "uri": uri }));
    }
    if let Some(Value::Bool(enabled)) = fields.get("credentialProxy") {
        let enabled = *enabled;
        fields.insert(
            "credentialProxy".to_owned(),
            serde_json::json!({ "enabled": enabled }),
        );
    }
    let is_timed = fields.contains_key("timeout");
    let request: CreateSandboxRequest =
        serde_json::from_value(Value::Object(fields)).map_err(|error| wrong(error.to_string()))?;
    if request
        .image
        .as_ref()
        .is_some_and(|image| image.uri.trim().is_empty())
    {
        return Err(wrong("the image must not be blank".to_owned()));
    }
    if request.credential_proxy.is_some_and(|proxy| proxy.enabled)
        && request.network_policy.is_none()
    {
        return Err(wrong("credentialProxy needs a networkPolicy".to_owned()));
    }
    Ok((request, is_timed))
}

/// A request for a template.
pub(super) fn template(path: &Path) -> Result<CreateTemplateRequest, Error> {
    json(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(CreateSandboxRequest, bool), Error> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        sandbox(file.path())
    }

    #[test]
    fn both_forms_of_an_image_are_read() {
        let (request, is_timed) = read(r#"{"image": "host", "timeout": null}"#).unwrap();
        assert_eq!(request.image.unwrap().uri, "host");
        assert!(is_timed);
        let (request, is_timed) = read(
            r#"{"image": {"uri": "x", "auth": {"username": "u", "password": "p"}},
                "credentialProxy": false}"#,
        )
        .unwrap();
        assert_eq!(request.image.unwrap().auth.unwrap().username, "u");
        assert!(!is_timed);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (text, part) in [
            (r#"{"image": "a", "nope": 1}"#, "unsupported fields: nope"),
            ("{}", "not none"),
            (
                r#"{"image": "a", "snapshotId": "b"}"#,
                "image and snapshotId",
            ),
            (
                r#"{"templateId": "a", "env": {}}"#,
                "decides by itself about env",
            ),
            (r#"{"image": " "}"#, "blank"),
            (
                r#"{"image": "a", "credentialProxy": true}"#,
                "networkPolicy",
            ),
            (r#"{"image": "a", "env": 1}"#, "invalid type"),
            ("[]", "expected a map"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
