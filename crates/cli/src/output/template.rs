//! `--format`: what to print of each record, in the notation that Docker's users know. Fields and
//! JSON of them; conditions and loops are refused rather than printed wrong.

use super::record::{Record, Value};

/// What to print of each record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Template {
    parts: Vec<Part>,
    /// With a line above that names the fields, in columns that tabs set apart.
    pub(crate) is_table: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Field { path: Vec<String>, is_json: bool },
}

/// Docker's names for fields that have others here.
const ALIASES: [(&str, &str); 6] = [
    ("names", "name"),
    ("state", "status"),
    ("runningfor", "createdat"),
    ("command", "entrypoint"),
    ("labels", "metadata"),
    ("containerid", "id"),
];

impl Template {
    /// Reads a template, or says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == "json" {
            let whole = Part::Field {
                path: Vec::new(),
                is_json: true,
            };
            return Ok(Self {
                parts: vec![whole],
                is_table: false,
            });
        }
        let (is_table, mut rest) = match text.strip_prefix("table ") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let mut parts = Vec::new();
        while let Some((before, behind)) = rest.split_once("{{") {
            let Some((inside, behind)) = behind.split_once("}}") else {
                return Err(format!("'{text}': {{{{ without }}}}"));
            };
            parts.push(Part::Text(unescaped(before)));
            parts.push(field(inside.trim())?);
            rest = behind;
        }
        parts.push(Part::Text(unescaped(rest)));
        Ok(Self { parts, is_table })
    }

    /// What it prints of a record.
    pub(crate) fn render(&self, record: &Record) -> Result<String, String> {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out += text,
                Part::Field { path, is_json } => {
                    let value = look_up(record, path)?;
                    out += &match is_json {
                        true => serde_json::to_string(&value).map_err(|error| error.to_string())?,
                        false => match value {
                            Value::Null => String::new(),
                            value => value.cell(),
                        },
                    };
                }
            }
        }
        Ok(out)
    }

    /// The line above a table.
    pub(crate) fn header(&self) -> String {
        let name = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Field { path, .. } => path
                .last()
                .map_or("ALL".to_owned(), |name| name.to_uppercase()),
        };
        self.parts.iter().map(name).collect()
    }
}

fn field(text: &str) -> Result<Part, String> {
    let (is_json, text) = match text.strip_prefix("json ") {
        Some(rest) => (true, rest.trim()),
        None => (false, text),
    };
    let Some(path) = text.strip_prefix('.') else {
        return Err(format!(
            "'{{{{{text}}}}}' cannot be printed; there are {{{{.FIELD}}}}, {{{{.FIELD.FIELD}}}} and \
             {{{{json .FIELD}}}}"
        ));
    };
    let is_name = |name: &str| {
        name.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-/".contains(&b))
    };
    let path: Vec<String> = match path {
        "" => Vec::new(),
        path => path.split('.').map(str::to_owned).collect(),
    };
    if let Some(wrong) = path.iter().find(|name| name.is_empty() || !is_name(name)) {
        return Err(format!("'{wrong}' is not the name of a field"));
    }
    Ok(Part::Field { path, is_json })
}

/// Tabs and line ends as they are written on a command line.
fn unescaped(text: &str) -> String {
    text.replace("\\t", "\t").replace("\\n", "\n")
}

fn look_up(record: &Record, path: &[String]) -> Result<Value, String> {
    let mut value = Value::Record(record.clone());
    for name in path {
        value = match &value {
            Value::Record(fields) => match find(fields, name) {
                Some(found) => found.clone(),
                None => {
                    let known: Vec<&str> = fields.fields().map(|(name, _)| name).collect();
                    return Err(format!(
                        "there is no field {name}; there are {}",
                        known.join(", ")
                    ));
                }
            },
            // What is not there has no parts either.
            Value::Null => Value::Null,
            _ => return Err(format!("there is no field {name} in a plain value")),
        };
    }
    Ok(value)
}

fn find<'a>(record: &'a Record, name: &str) -> Option<&'a Value> {
    let plain = |name: &str| name.to_lowercase().replace(['_', '-'], "");
    let by = |wanted: &str| {
        let mut fields = record.fields();
        fields
            .find(|(known, _)| plain(known) == wanted)
            .map(|(_, value)| value)
    };
    let wanted = plain(name);
    by(&wanted).or_else(|| {
        let alias = ALIASES.iter().find(|(alias, _)| *alias == wanted);
        by(alias?.1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record::new()
            .with("id", "abc")
            .with("name", "web")
            .with(
                "status",
                Record::new()
                    .with("state", "Running")
                    .with("message", Value::Null),
            )
            .with("created_at", "now")
    }

    #[track_caller]
    fn check(template: &str, expected: &str) {
        let template = Template::parse(template).unwrap();
        assert_eq!(template.render(&record()).unwrap(), expected);
    }

    #[test]
    fn fields_are_found_by_dockers_names_and_ours() {
        check("{{.ID}}: {{.Names}}", "abc: web");
        check("{{ .status.state }}\\t{{.CreatedAt}}", "Running\tnow");
        check("{{json .status}}", r#"{"state":"Running","message":null}"#);
        check("{{.status.message}}|", "|");
        check("plain", "plain");
        assert_eq!(
            Template::parse("table {{.ID}}\\t{{.Names}}")
                .unwrap()
                .header(),
            "ID\tNAMES"
        );
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in [
            "{{.ID",
            "{{if .ID}}x{{end}}",
            "{{range .x}}",
            "{{.}.}}",
            "{{len .ID}}",
        ] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
        let template = Template::parse("{{.Nope}}").unwrap();
        assert!(template.render(&record()).unwrap_err().contains("id, name"));
    }
}
