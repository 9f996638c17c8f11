//! Reading request bodies: JSON of a known type, with errors that name the field.
//!
//! Bodies are bounded by whoever read them; nesting is bounded by the parser (128 levels).

mod strict;

use serde::de::DeserializeOwned;

use self::strict::Strict;
use crate::problem::Problem;

/// Reads a body that is an object. Unknown fields are ignored unless the type forbids them, and
/// only blanks may follow.
pub fn from_slice<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    read(body)
}

/// Reads a body that is a list.
pub fn list_from_slice<T: DeserializeOwned>(body: &[u8]) -> Result<Vec<T>, Problem> {
    read(body)
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(Strict(&mut deserializer)).map_err(|error| {
        let path = error.path().to_string();
        let field = if path == "." {
            String::new()
        } else {
            bounded(path)
        };
        Problem::new(field, explain(error.inner()))
    })?;
    deserializer
        .end()
        .map_err(|error| Problem::new("", explain(&error)))?;
    Ok(value)
}

/// Reads a body that may be missing, which is all defaults.
pub fn from_slice_or_default<T: DeserializeOwned + Default>(body: &[u8]) -> Result<T, Problem> {
    if body.trim_ascii().is_empty() || body.trim_ascii() == b"null" {
        return Ok(T::default());
    }
    from_slice(body)
}

fn explain(error: &serde_json::Error) -> String {
    use serde_json::error::Category;
    let message = bounded(error.to_string());
    match error.classify() {
        Category::Eof => format!("the JSON ends too early: {message}"),
        Category::Syntax => format!("not JSON: {message}"),
        Category::Data | Category::Io => message,
    }
}

/// Names and values of the request may be part of a message: keep it short.
fn bounded(mut message: String) -> String {
    const MESSAGE_BYTES_MAX: usize = 512;
    if message.len() > MESSAGE_BYTES_MAX {
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::CreateSandboxRequest;

    fn refuse(body: &[u8]) -> Problem {
        from_slice::<CreateSandboxRequest>(body).unwrap_err()
    }

    #[test]
    fn a_wrong_type_names_its_field() {
        let problem = refuse(br#"{"volumes":[{"name":"a","mountPath":7}]}"#);
        assert_eq!(problem.field, "volumes[0].mountPath");
        assert!(problem.message.contains("expected a string"), "{problem}");
    }

    #[test]
    fn bad_bodies_are_refused_with_a_reason() {
        let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
        for (body, reason) in [
            (&b""[..], "ends too early"),
            (b"{", "ends too early"),
            (b"nonsense", "not JSON"),
            (b"{}x", "not JSON"),
            (b"[]", "must be an object"),
            (b"7", "invalid type"),
            (b"\xff\xfe", "not JSON"),
            (b"{\"image\":{\"uri\":\"\xff\"}}", "not JSON"),
            (deep.as_bytes(), "must be an object"),
        ] {
            let problem = refuse(body);
            assert!(problem.message.contains(reason), "{body:?} gave {problem}");
        }
        let nested = format!("{{\"template\":{{\"a\":{}", "[".repeat(200));
        let problem = from_slice::<crate::pool::CreatePoolRequest>(nested.as_bytes()).unwrap_err();
        assert!(problem.message.contains("recursion limit"), "{problem}");
        assert!(list_from_slice::<String>(b"{}").is_err());
    }

    #[test]
    fn an_error_never_repeats_a_long_body() {
        let body = format!(
            r#"{{"platform":{{"os":"linux","arch":[]}},"{}":1}}"#,
            "x".repeat(9000)
        );
        assert!(refuse(body.as_bytes()).message.len() < 600);
        let body = format!(r#"{{"lifecycle":{{"{}":1}}}}"#, "x".repeat(9000));
        let problem = refuse(body.as_bytes());
        assert!(problem.message.len() < 600 && problem.field.len() < 600);
    }

    #[test]
    fn an_object_is_never_read_from_a_list() {
        let problem = refuse(br#"{"image":["python"]}"#);
        assert_eq!(problem.field, "image");
        assert!(problem.message.contains("must be an object"), "{problem}");
        let problem = refuse(br#"{"volumes":[["a","/a"]]}"#);
        assert_eq!(problem.field, "volumes[0]");
        let problem = list_from_slice::<crate::exec::file::Rename>(br#"[["a","b"]]"#).unwrap_err();
        assert_eq!(problem.field, "[0]");
    }

    #[test]
    fn a_missing_body_is_all_defaults_where_that_is_allowed() {
        for body in [&b""[..], b"  ", b"null", b"{}"] {
            let request: crate::snapshot::CreateSnapshotRequest =
                from_slice_or_default(body).unwrap();
            assert_eq!(request.name, None);
        }
    }
}
