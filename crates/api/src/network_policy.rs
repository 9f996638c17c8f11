//! What a sandbox may reach: the policy, and the answers of the routes that change it.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::deserialize::null_as_default;

/// Rules in order; the first that matches a name decides.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicy {
    /// What happens where no rule matches; nothing is `deny`.
    #[serde(
        default,
        alias = "default_action",
        skip_serializing_if = "Option::is_none"
    )]
    pub default_action: Option<PolicyAction>,
    /// The rules. Always present in answers, because a published client fails on `null`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub egress: Vec<NetworkRule>,
}

impl NetworkPolicy {
    /// Everything may be reached.
    pub fn allow_all() -> Self {
        Self {
            default_action: Some(PolicyAction::Allow),
            egress: Vec::new(),
        }
    }

    /// What happens where no rule matches.
    pub fn fallback(&self) -> PolicyAction {
        self.default_action.unwrap_or_default()
    }

    /// How the policy is called in answers.
    pub fn mode(&self) -> PolicyMode {
        match (self.fallback(), self.egress.is_empty()) {
            (PolicyAction::Allow, true) => PolicyMode::AllowAll,
            (PolicyAction::Deny, true) => PolicyMode::DenyAll,
            (_, false) => PolicyMode::Enforcing,
        }
    }
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NetworkRule {
    /// Whether the target may be reached; nothing is `deny`.
    #[serde(default)]
    #[schema(required = true)]
    pub action: PolicyAction,
    /// A name, `*.` and a name, an address or a range of addresses.
    #[schema(min_length = 1)]
    pub target: String,
}

/// Whether something may be reached. Anything else is refused, never read as one of the two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PolicyAction {
    /// It may.
    Allow,
    /// It may not.
    #[default]
    Deny,
}

impl PolicyAction {
    /// As it stands on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

impl fmt::Display for PolicyAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for PolicyAction {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.eq_ignore_ascii_case("allow") {
            Ok(Self::Allow)
        } else if text.eq_ignore_ascii_case("deny") {
            Ok(Self::Deny)
        } else {
            Err(serde::de::Error::unknown_variant(&text, &["allow", "deny"]))
        }
    }
}

/// How a policy is called in answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyMode {
    /// Everything may be reached.
    AllowAll,
    /// Nothing may be reached.
    DenyAll,
    /// The rules decide.
    Enforcing,
}

/// Answer of every route about a policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PolicyStatusResponse)]
pub struct PolicyStatus {
    /// `ok`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// How the policy is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub mode: Option<PolicyMode>,
    /// How it is enforced: `dns` or `dns+nft`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforcement_mode: Option<String>,
    /// What the request did, where that is not plain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The policy itself, only when it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<NetworkPolicy>,
}
