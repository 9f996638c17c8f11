//! The OpenAPI documents of our contracts, made from the wire types and a table of operations.
//!
//! The documents in `specs/` are these, written out; a test fails when they differ.

mod diagnostics;
mod document;
mod egress;
mod execution;
mod lifecycle;
mod operation;

pub use operation::{Content, In, Mount, Operation, Parameter, Response, Shape};

use serde_json::Value;

/// The version of the published protocol that the documents describe.
pub const PROTOCOL_VERSION: &str = "1.1.1";

/// One of our contracts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contract {
    /// The server's: making, finding and ending sandboxes.
    Lifecycle,
    /// The daemon's inside a sandbox: commands, files, code, terminals.
    Execution,
    /// What a sandbox may reach, and with which credentials.
    Egress,
    /// What went on in a sandbox.
    Diagnostics,
}

impl Contract {
    /// All contracts.
    pub const ALL: [Self; 4] = [
        Self::Lifecycle,
        Self::Execution,
        Self::Egress,
        Self::Diagnostics,
    ];

    /// The name of the contract's document in `specs/`.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Lifecycle => "lifecycle.json",
            Self::Execution => "execd.json",
            Self::Egress => "egress.json",
            Self::Diagnostics => "diagnostics.json",
        }
    }

    /// The contract's operations.
    pub fn operations(self) -> Vec<Operation> {
        match self {
            Self::Lifecycle => lifecycle::operations(),
            Self::Execution => execution::operations(),
            Self::Egress => egress::operations(),
            Self::Diagnostics => diagnostics::operations(),
        }
    }

    /// The contract as an OpenAPI document.
    pub fn document(self) -> Value {
        document::build(self)
    }

    /// The document as it stands in `specs/`.
    pub fn render(self) -> String {
        let mut text =
            serde_json::to_string_pretty(&self.document()).expect("a JSON value is always written");
        text.push('\n');
        text
    }
}
