//! What a sandbox may reach: the policy, and the answers of the routes that change it.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::deserialize::null_as_default;
use crate::egress::policy::{EgressPolicy, EgressRule, PortRange, Protocol};

/// Rules in order; the first that matches a name decides.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
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
    /// Lists of targets that the operator defined under these names: their rules, all of which allow, stand
    /// behind the others. Not part of the published contract.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub presets: Vec<String>,
}

impl NetworkPolicy {
    /// Everything may be reached.
    pub fn allow_all() -> Self {
        Self {
            default_action: Some(PolicyAction::Allow),
            ..Self::default()
        }
    }

    /// Nothing may be reached.
    pub fn deny_all() -> Self {
        Self {
            default_action: Some(PolicyAction::Deny),
            ..Self::default()
        }
    }

    /// What happens where no rule matches.
    pub fn fallback(&self) -> PolicyAction {
        self.default_action.unwrap_or_default()
    }

    /// How the policy is called in answers.
    pub fn mode(&self) -> PolicyMode {
        let is_plain = self.egress.is_empty() && self.presets.is_empty();
        match (self.fallback(), is_plain) {
            (PolicyAction::Allow, true) => PolicyMode::AllowAll,
            (PolicyAction::Deny, true) => PolicyMode::DenyAll,
            (_, false) => PolicyMode::Enforcing,
        }
    }
}

impl From<&EgressPolicy> for NetworkPolicy {
    fn from(policy: &EgressPolicy) -> Self {
        Self {
            default_action: Some(policy.default_action),
            egress: policy.rules.iter().map(NetworkRule::from).collect(),
            presets: Vec::new(),
        }
    }
}

/// One rule. A field that is not one of these is refused: its author believes that it means something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkRule {
    /// Whether the target may be reached; nothing is `deny`.
    #[serde(default)]
    #[schema(required = true)]
    pub action: PolicyAction,
    /// A name, `*.` and a name, an address or a range of addresses.
    #[schema(min_length = 1)]
    pub target: String,
    /// The ports that the rule is about, such as `443` and `8000-8080`; none stand for all. Not part of the
    /// published contract.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schema(value_type = Vec<String>)]
    pub ports: Vec<PortRange>,
    /// The protocol that the rule is about, `tcp` or `udp`; nothing stands for both. Not part of the published
    /// contract.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub protocol: Option<Protocol>,
}

impl NetworkRule {
    /// A rule about every port of a target.
    pub fn new(action: PolicyAction, target: impl Into<String>) -> Self {
        Self {
            action,
            target: target.into(),
            ports: Vec::new(),
            protocol: None,
        }
    }
}

impl From<&EgressRule> for NetworkRule {
    fn from(rule: &EgressRule) -> Self {
        Self {
            action: rule.action,
            target: rule.target.to_string(),
            ports: rule.ports.clone(),
            protocol: rule.protocol,
        }
    }
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
