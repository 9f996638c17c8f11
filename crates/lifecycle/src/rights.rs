//! What a caller may do: roles, the rights that each has, and the scope that narrows a key to less.
//!
//! Says what may be, not who somebody is: that is `keys`. Where a right is asked for is `admission`.

use std::collections::{BTreeMap, BTreeSet};

use api::id::SandboxId;
use serde::{Deserialize, Serialize};

use crate::sandbox::Sandbox;

/// What a caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Everything within its tenant, its keys included. In the built-in tenant also tenants.
    Admin,
    /// Everything within its tenant but keys.
    Operator,
    /// Makes, uses and removes sandboxes, snapshots and volumes.
    User,
    /// Looks, and changes nothing: neither goes into a sandbox nor learns how one would.
    Viewer,
    /// Was let in by the proxy, which compared the access token of the sandbox: looks at that
    /// sandbox and connects into it, and nothing else.
    #[serde(skip)]
    Visitor,
    /// Showed the egress token of the sandbox: reads and changes what that sandbox may reach, and nothing else.
    #[serde(skip)]
    PolicyHolder,
    /// A part of the server itself: everything, of every tenant.
    #[serde(skip)]
    Server,
}

/// One kind of thing that callers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Looks at sandboxes, snapshots, volumes, their events and logs.
    Read,
    /// Goes into sandboxes, and learns how.
    Connect,
    /// Makes sandboxes.
    Create,
    /// Changes and removes sandboxes; makes and removes snapshots and volumes.
    Change,
    /// Looks after the images of the machine.
    Images,
    /// Reads the audit trail.
    Audit,
    /// Reads what the server counts.
    Metrics,
    /// Makes and revokes keys, and in the built-in tenant tenants.
    Keys,
}

impl Right {
    /// Every right.
    pub const ALL: [Right; 8] = [
        Right::Read,
        Right::Connect,
        Right::Create,
        Right::Change,
        Right::Images,
        Right::Audit,
        Right::Metrics,
        Right::Keys,
    ];

    /// As it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Connect => "connect",
            Right::Create => "create",
            Right::Change => "change",
            Right::Images => "images",
            Right::Audit => "audit",
            Right::Metrics => "metrics",
            Right::Keys => "keys",
        }
    }
}

impl Role {
    /// Those that a key can have, from the one with most rights on.
    pub const OF_KEYS: [Role; 4] = [Role::Admin, Role::Operator, Role::User, Role::Viewer];

    /// As it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Operator => "operator",
            Role::User => "user",
            Role::Viewer => "viewer",
            Role::Visitor => "visitor",
            Role::PolicyHolder => "policy holder",
            Role::Server => "server",
        }
    }

    /// Whether holders of this role have a right, unless their scope takes it away.
    pub fn has(self, right: Right) -> bool {
        match self {
            Role::Admin | Role::Server => true,
            Role::Operator => right != Right::Keys,
            Role::User => {
                matches!(
                    right,
                    Right::Read | Right::Connect | Right::Create | Right::Change
                )
            }
            Role::Viewer => right == Right::Read,
            Role::Visitor | Role::PolicyHolder => false,
        }
    }
}

/// What narrows a key further than its role. The default narrows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Scope {
    /// Only these rights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actions: Option<BTreeSet<Right>>,
    /// Only sandboxes of these images are made: a reference as requests have it, or the beginning of
    /// some with `*` behind it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
    /// Only sandboxes with these labels exist; new ones get them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Only this sandbox exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxId>,
}

impl Scope {
    /// Whether it leaves a right.
    pub(crate) fn leaves(&self, right: Right) -> bool {
        // What belongs to the whole tenant is not for somebody to whom a part of it exists.
        let is_of_tenant = matches!(
            right,
            Right::Images | Right::Audit | Right::Metrics | Right::Keys
        );
        self.actions.as_ref().is_none_or(|it| it.contains(&right))
            && !(is_of_tenant && self.is_part())
            && !(right == Right::Create && self.sandbox.is_some())
    }

    /// Whether only a part of the tenant's sandboxes exists.
    pub(crate) fn is_part(&self) -> bool {
        self.sandbox.is_some() || !self.labels.is_empty()
    }

    /// Whether a sandbox exists.
    pub(crate) fn covers(&self, sandbox: &Sandbox) -> bool {
        let is_it = self.sandbox.as_ref().is_none_or(|id| *id == sandbox.id);
        is_it && self.has_labels(&sandbox.metadata)
    }

    /// Whether labels are those that sandboxes must have.
    pub(crate) fn has_labels(&self, metadata: &BTreeMap<String, String>) -> bool {
        self.labels
            .iter()
            .all(|(key, value)| metadata.get(key) == Some(value))
    }

    /// Whether sandboxes of this image may be made.
    pub(crate) fn admits_image(&self, reference: &str) -> bool {
        self.images.is_empty() || self.images.iter().any(|it| matches_image(it, reference))
    }
}

/// A beginning without a `/` ends within the first part of a reference: `python*` is no registry whose name
/// begins so.
fn matches_image(pattern: &str, reference: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => reference.strip_prefix(beginning).is_some_and(|rest| {
            beginning.is_empty() || beginning.contains('/') || !rest.contains('/')
        }),
        None => pattern == reference,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_leaves_nothing_of_the_tenant_to_who_sees_a_part_of_it() {
        let labelled = Scope {
            labels: BTreeMap::from([("team".to_owned(), "blue".to_owned())]),
            ..Scope::default()
        };
        for right in Right::ALL {
            let is_own = matches!(
                right,
                Right::Read | Right::Connect | Right::Create | Right::Change
            );
            assert_eq!(labelled.leaves(right), is_own, "{right:?}");
            assert!(Scope::default().leaves(right));
        }
        let one = Scope {
            sandbox: Some("a".parse().unwrap()),
            ..Scope::default()
        };
        assert!(one.leaves(Right::Change) && !one.leaves(Right::Create));
    }

    #[test]
    fn images_are_admitted_by_their_reference_or_its_beginning() {
        let scope = Scope {
            images: vec![
                "python:3.12".to_owned(),
                "registry.example/ours/*".to_owned(),
            ],
            ..Scope::default()
        };
        assert!(scope.admits_image("python:3.12"));
        assert!(scope.admits_image("registry.example/ours/a:1"));
        for other in [
            "python:3.1",
            "python:3.12-slim",
            "registry.example/oursx",
            "*",
        ] {
            assert!(!scope.admits_image(other), "{other}");
        }
        let scope = Scope {
            images: vec!["python*".to_owned()],
            ..Scope::default()
        };
        assert!(scope.admits_image("python:3.12") && scope.admits_image("python-slim"));
        assert!(!scope.admits_image("python.evil.example/x:1"));
        assert!(Scope::default().admits_image("anything"));
    }
}
