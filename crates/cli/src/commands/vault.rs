//! `osb credential-vault …`. Secrets come from a file or standard input, never from a flag, where
//! everyone on the machine could read them.

use std::io::Read as _;
use std::path::Path;

use api::egress::vault::{CreateVaultRequest, MutateVaultRequest};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use super::{DONE, Outcome};
use crate::app::App;
use crate::args::sandbox_side::{Binding, Credential, Vault};
use crate::error::Error;
use crate::model;
use crate::output::{Record, Value};

pub(super) async fn run(app: &App, command: Vault) -> Outcome {
    let printer = app.printer();
    let vault = async |id: &str| Ok::<_, Error>(app.sandbox(id).await?.credential_vault());
    match command {
        Vault::Create(args) => {
            let request: CreateVaultRequest = payload(&args.file)?;
            let state = vault(&args.sandbox_id).await?.create(&request).await?;
            printer.record("Credential vault", &record(&state))?;
        }
        Vault::Get { sandbox_id } => {
            let state = vault(&sandbox_id).await?.get().await?;
            printer.record("Credential vault", &record(&state))?;
        }
        Vault::Patch(args) => {
            let request: MutateVaultRequest = payload(&args.file)?;
            if request.credentials.is_none() && request.bindings.is_none() {
                return Err(Error::Content {
                    path: args.file,
                    message: "it must change credentials or bindings".to_owned(),
                });
            }
            let state = vault(&args.sandbox_id).await?.patch(&request).await?;
            printer.record("Credential vault", &record(&state))?;
        }
        Vault::Delete { sandbox_id } => {
            vault(&sandbox_id).await?.delete().await?;
            let record = Record::new()
                .with("sandbox_id", sandbox_id)
                .with("status", "deleted");
            printer.done("Credential vault deleted", &record)?;
        }
        Vault::Credential(Credential::List { sandbox_id }) => {
            let found = vault(&sandbox_id).await?.credentials().await?;
            let rows: Vec<Record> = found.credentials.iter().map(record).collect();
            printer.rows("Credentials", &["name", "source_type", "revision"], &rows)?;
        }
        Vault::Credential(Credential::Get {
            sandbox_id,
            credential_name,
        }) => {
            let found = vault(&sandbox_id)
                .await?
                .credential(&credential_name)
                .await?;
            printer.record("Credential", &record(&found))?;
        }
        Vault::Binding(Binding::List { sandbox_id }) => {
            let found = vault(&sandbox_id).await?.bindings().await?;
            let rows: Vec<Record> = found.bindings.iter().map(record).collect();
            printer.rows("Bindings", &["name", "revision", "match", "auth"], &rows)?;
        }
        Vault::Binding(Binding::Get {
            sandbox_id,
            binding_name,
        }) => {
            let found = vault(&sandbox_id).await?.binding(&binding_name).await?;
            printer.record("Binding", &record(&found))?;
        }
    }
    Ok(DONE)
}

fn record(value: &impl serde::Serialize) -> Record {
    match model::snake(value) {
        Value::Record(record) => record,
        _ => Record::new(),
    }
}

/// A request as JSON or YAML. Errors do not repeat the text: it holds secrets.
fn payload<T: DeserializeOwned>(file: &str) -> Result<T, Error> {
    let wrong = |message: &str| Error::Content {
        path: if file == "-" {
            "standard input".to_owned()
        } else {
            file.to_owned()
        },
        message: message.to_owned(),
    };
    let text = if file == "-" {
        let mut text = String::new();
        let read = std::io::stdin().read_to_string(&mut text);
        read.map_err(|error| Error::file("read", Path::new("standard input"), error))?;
        text
    } else {
        let path = Path::new(file);
        std::fs::read_to_string(path).map_err(|error| Error::file("read", path, error))?
    };
    let mut fields: Map<String, Json> =
        serde_yaml_ng::from_str(&text).map_err(|_| wrong("it is not an object in JSON or YAML"))?;
    if let Some(revision) = fields.remove("expected_revision") {
        fields.insert("expectedRevision".to_owned(), revision);
    }
    serde_json::from_value(Json::Object(fields)).map_err(|error| {
        // The place is told; the value it names could be the secret.
        let text = error.to_string();
        let known = text.starts_with("missing field") || text.starts_with("unknown field");
        wrong(if known {
            &text
        } else {
            "a field has a value of the wrong kind"
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<CreateVaultRequest, Error> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        payload(file.path().to_str().unwrap())
    }

    #[test]
    fn yaml_and_json_are_read_and_secrets_are_not_repeated() {
        let yaml = "credentials:\n- name: a\n  source: {value: s3cret}\nbindings: []\n";
        assert_eq!(read(yaml).unwrap().credentials[0].name, "a");
        assert!(read(r#"{"credentials": [], "bindings": []}"#).is_ok());
        for text in [
            "credentials:\n- name: a\n  source: s3cret\nbindings: []\n",
            "credentials: s3cret\nbindings: []",
            "- s3cret",
            "{s3cret",
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(!message.contains("s3cret"), "{message}");
        }
    }
}
