//! The words in which the tables of operations are written.
//!
//! The OpenAPI documents are made from these tables, and so are the server's router and the names
//! of changes in its audit trail: a route is written down once.

use std::borrow::Cow;

/// One operation of a contract.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The HTTP method, in upper case.
    pub method: &'static str,
    /// The path, with `{names}`.
    pub path: Cow<'static, str>,
    /// A name that is unique in the contract.
    pub id: Cow<'static, str>,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// Whether the published protocol lacks it.
    pub is_extension: bool,
    /// Whether it is answered without credentials.
    pub is_open: bool,
    /// What the audit trail calls the change it makes; `None` for what changes nothing that is
    /// recorded.
    pub action: Option<&'static str>,
    /// At which prefixes the server has it.
    pub mount: Mount,
    /// Whether its last path parameter may hold slashes.
    pub takes_rest: bool,
    /// Its parameters, those in the path left out when they are only text.
    pub parameters: Vec<Parameter>,
    /// Its body, by media type, and whether there must be one.
    pub request: Option<(Vec<Content>, bool)>,
    /// Its answers.
    pub responses: Vec<Response>,
}

/// At which prefixes the server has an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mount {
    /// At `/` and at `/v1`, behind the API key.
    Everywhere,
    /// At the path as it is written alone.
    AsWritten,
    /// At `/` and at `/v1`, carried by the proxy into the sandbox without a look at the rest.
    Proxied,
}

/// A parameter.
#[derive(Debug, Clone)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Where it stands.
    pub location: In,
    /// Whether it must be given.
    pub is_required: bool,
    /// What it is.
    pub shape: Shape,
    /// What it means.
    pub description: &'static str,
}

/// Where a parameter stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum In {
    /// In the path.
    Path,
    /// In the query.
    Query,
    /// In a header.
    Header,
}

/// A body of one media type.
#[derive(Debug, Clone, Copy)]
pub struct Content {
    /// The media type.
    pub media: &'static str,
    /// What it holds.
    pub shape: Shape,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Response {
    /// Its status; 0 stands for every other.
    pub status: u16,
    /// What it means.
    pub description: &'static str,
    /// Its body, by media type; none is an empty one.
    pub content: Vec<Content>,
    /// Headers of its own.
    pub headers: Vec<(&'static str, Shape)>,
    /// Whether it is one that many operations give, for the same reason.
    pub is_common: bool,
}

/// What a value is.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// A type of this contract.
    Named(&'static str),
    /// A list.
    ListOf(&'static Shape),
    /// An object with names of the caller's choice.
    MapOf(&'static Shape),
    /// Text.
    Text,
    /// Text or `null`.
    NullableText,
    /// Bytes.
    Binary,
    /// The parts of an uploaded form.
    Upload,
    /// A whole number of a range.
    Integer {
        /// The least.
        minimum: i64,
        /// The greatest.
        maximum: Option<i64>,
    },
    /// Yes or no.
    Flag,
    /// Anything.
    Any,
}

/// A whole number that is not negative.
pub(super) const COUNT: Shape = Shape::Integer {
    minimum: 0,
    maximum: None,
};

/// A whole number from 1.
pub(super) const POSITIVE: Shape = Shape::Integer {
    minimum: 1,
    maximum: None,
};

pub(super) const JSON: &str = "application/json";
pub(super) const TEXT: &str = "text/plain";
pub(super) const OPENMETRICS: &str = "application/openmetrics-text";
pub(super) const BYTES: &str = "application/octet-stream";
pub(super) const STREAM: &str = crate::frame::CONTENT_TYPE;

impl Operation {
    pub(super) fn new(
        method: &'static str,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Self {
        Self {
            method,
            path: Cow::Borrowed(path),
            id: Cow::Borrowed(id),
            summary,
            is_extension: false,
            is_open: false,
            action: None,
            mount: Mount::Everywhere,
            takes_rest: false,
            parameters: Vec::new(),
            request: None,
            responses: Vec::new(),
        }
    }

    /// Marks what the published protocol lacks.
    pub(super) fn extension(mut self) -> Self {
        self.is_extension = true;
        self
    }

    /// Marks what needs no credentials.
    pub(super) fn open(mut self) -> Self {
        self.is_open = true;
        self
    }

    /// Names the change that it makes, for the audit trail.
    pub(super) fn audited(mut self, action: &'static str) -> Self {
        self.action = Some(action);
        self
    }

    pub(super) fn mounted(mut self, mount: Mount) -> Self {
        self.mount = mount;
        self
    }

    /// Lets the last path parameter hold slashes.
    pub(super) fn taking_rest(mut self) -> Self {
        self.takes_rest = true;
        self
    }

    pub(super) fn path_parameter(self, name: &'static str, shape: Shape) -> Self {
        self.parameter(name, In::Path, true, shape, "")
    }

    pub(super) fn query(self, name: &'static str, shape: Shape, description: &'static str) -> Self {
        self.parameter(name, In::Query, false, shape, description)
    }

    pub(super) fn required_query(
        self,
        name: &'static str,
        shape: Shape,
        description: &'static str,
    ) -> Self {
        self.parameter(name, In::Query, true, shape, description)
    }

    pub(super) fn header(self, name: &'static str, description: &'static str) -> Self {
        self.parameter(name, In::Header, false, Shape::Text, description)
    }

    pub(super) fn parameter(
        mut self,
        name: &'static str,
        location: In,
        is_required: bool,
        shape: Shape,
        description: &'static str,
    ) -> Self {
        self.parameters.push(Parameter {
            name,
            location,
            is_required,
            shape,
            description,
        });
        self
    }

    /// A JSON body that must be there.
    pub(super) fn takes(self, shape: Shape) -> Self {
        self.body(JSON, shape, true)
    }

    /// A JSON body that may be missing.
    pub(super) fn may_take(self, shape: Shape) -> Self {
        self.body(JSON, shape, false)
    }

    pub(super) fn body(mut self, media: &'static str, shape: Shape, is_required: bool) -> Self {
        self.request = Some((vec![Content { media, shape }], is_required));
        self
    }

    /// An answer with an empty body.
    pub(super) fn answers(self, status: u16, description: &'static str) -> Self {
        self.answers_with(status, description, &[])
    }

    /// An answer with a JSON body.
    pub(super) fn answers_json(self, status: u16, description: &'static str, shape: Shape) -> Self {
        self.answers_with(status, description, &[Content { media: JSON, shape }])
    }

    pub(super) fn answers_with(
        mut self,
        status: u16,
        description: &'static str,
        content: &[Content],
    ) -> Self {
        let (content, headers) = (content.to_vec(), Vec::new());
        let response = Response {
            status,
            description,
            content,
            headers,
            is_common: false,
        };
        self.responses.push(response);
        self
    }

    /// A header of the answer that was named last.
    pub(super) fn with_header(mut self, name: &'static str, shape: Shape) -> Self {
        let last = self
            .responses
            .last_mut()
            .expect("an answer comes before its headers");
        last.headers.push((name, shape));
        self
    }

    /// A header of every answer.
    pub(super) fn with_header_everywhere(mut self, name: &'static str, shape: Shape) -> Self {
        for response in &mut self.responses {
            if response.headers.iter().all(|(known, _)| *known != name) {
                response.headers.push((name, shape));
            }
        }
        self
    }

    /// Answers with the error envelope.
    pub(super) fn errors(self, statuses: &[u16]) -> Self {
        let content = [Content {
            media: JSON,
            shape: Shape::Named("ErrorResponse"),
        }];
        self.errors_with(statuses, &content)
    }

    /// Answers with an error of another kind. A status that is named already stays as it is.
    pub(super) fn errors_with(mut self, statuses: &[u16], content: &[Content]) -> Self {
        for status in statuses {
            if self
                .responses
                .iter()
                .all(|response| response.status != *status)
            {
                self = self.answers_with(*status, error_description(*status), content);
                let last = self.responses.last_mut().expect("one was just named");
                last.is_common = true;
            }
        }
        self
    }
}

fn error_description(status: u16) -> &'static str {
    match status {
        400 => "The request breaks a rule; the message says which and what would be right.",
        401 => "Credentials are missing or wrong.",
        403 => "The caller may not do that, or a quota is used up.",
        404 => "There is no such thing.",
        405 => "The path has no such method.",
        408 => "The request did not arrive in time.",
        409 => "The present state does not allow this.",
        410 => "It was there and is gone.",
        412 => "Something that this needs is not ready.",
        413 => "The body is larger than the route takes.",
        416 => "The range is outside the file.",
        422 => "The request does not fit its schema; `detail` lists every problem.",
        426 => "This needs an encrypted or local connection.",
        429 => "Too many of these now; try again later.",
        431 => "The headers are larger than the server takes.",
        500 => "A fault on the server's side; the log of the request id says more.",
        501 => "This backend cannot do that.",
        502 => "Nothing answers inside the sandbox, or its answer broke off.",
        503 => "Not possible now; try again later.",
        504 => "It was not done in time.",
        _ => "An error.",
    }
}
