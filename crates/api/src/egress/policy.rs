//! What a sandbox may reach, as the server works with it: a policy whose every rule was understood. The
//! policy routes of the egress contract share their types with the lifecycle contract.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use crate::network_policy::{
    NetworkPolicy, NetworkRule, PolicyAction, PolicyMode, PolicyStatus,
};
use crate::problem::{Excerpt, Problem};
pub use crate::validate::{Target, TargetError};

/// Body of `PATCH /policy`: rules to put before the others.
pub type PolicyPatch = Vec<NetworkRule>;

/// Body of `DELETE /policy`: targets whose rules go.
pub type PolicyTargets = Vec<String>;

/// A policy has at most this many rules unless the operator says otherwise, as in the published
/// sidecar.
pub const RULES_MAX_DEFAULT: usize = 4096;

/// The body of a policy request is at most this long, as in the published sidecar.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;

/// A [`NetworkPolicy`] that was read: nothing in it can be misunderstood by who enforces it.
///
/// About a name the first rule that matches it decides. About an address every rule that denies it comes
/// before those that allow it, in whatever order they stand, because packet filters keep both as sets; the
/// published sidecar does the same. Rules that an operator sets for all sandboxes stand before a sandbox's
/// own: they are put in front by who enforces the policy and are never part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressPolicy {
    /// What happens where no rule matches.
    pub default_action: PolicyAction,
    /// The rules in the order in which they were written.
    pub rules: Vec<EgressRule>,
}

/// One rule of an [`EgressPolicy`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressRule {
    /// Whether the target may be reached.
    pub action: PolicyAction,
    /// Names or addresses.
    pub target: Target,
    /// The ports that the rule is about; none stand for all. The contract has no word for them yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortRange>,
    /// The protocol that the rule is about; `None` stands for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
}

/// A protocol with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// Ports from the first to the last, both included: `443` or `8000-8080`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// Why a text is not a range of ports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a port or a range of ports; write 443 or 8000-8080, from 1 to 65535")]
pub struct PortRangeError(String);

impl EgressPolicy {
    /// Everything may be reached.
    pub const ALLOW_ALL: Self = Self::all(PolicyAction::Allow);

    /// Nothing may be reached.
    pub const DENY_ALL: Self = Self::all(PolicyAction::Deny);

    const fn all(default_action: PolicyAction) -> Self {
        Self {
            default_action,
            rules: Vec::new(),
        }
    }

    /// How the policy is called in answers.
    pub fn mode(&self) -> PolicyMode {
        match (self.default_action, self.rules.is_empty()) {
            (PolicyAction::Allow, true) => PolicyMode::AllowAll,
            (PolicyAction::Deny, true) => PolicyMode::DenyAll,
            (_, false) => PolicyMode::Enforcing,
        }
    }
}

impl TryFrom<&NetworkPolicy> for EgressPolicy {
    type Error = Vec<Problem>;

    fn try_from(written: &NetworkPolicy) -> Result<Self, Vec<Problem>> {
        written.validate()?;
        // `validate` has named every target that cannot be read.
        let rule = |rule: &NetworkRule| {
            let target = rule.target.parse().ok()?;
            Some(EgressRule {
                action: rule.action,
                target,
                ports: Vec::new(),
                protocol: None,
            })
        };
        Ok(Self {
            default_action: written.fallback(),
            rules: written.egress.iter().filter_map(rule).collect(),
        })
    }
}

impl PortRange {
    /// The first port.
    pub const fn first(self) -> u16 {
        self.first
    }

    /// The last port; the first again where the range is one port.
    pub const fn last(self) -> u16 {
        self.last
    }
}

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<Self, PortRangeError> {
        let refused = || PortRangeError(Excerpt(text).to_string());
        let port = |text: &str| crate::validate::port("ports", text).map_err(|_| refused());
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let range = Self {
            first: port(first)?,
            last: port(last)?,
        };
        if range.first <= range.last {
            Ok(range)
        } else {
            Err(refused())
        }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => self.first.fmt(f),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

impl TryFrom<String> for PortRange {
    type Error = PortRangeError;

    fn try_from(text: String) -> Result<Self, PortRangeError> {
        text.parse()
    }
}

impl From<PortRange> for String {
    fn from(range: PortRange) -> Self {
        range.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(rules: &[(PolicyAction, &str)]) -> NetworkPolicy {
        let rule = |(action, target): &(PolicyAction, &str)| NetworkRule {
            action: *action,
            target: (*target).to_owned(),
        };
        NetworkPolicy {
            default_action: None,
            egress: rules.iter().map(rule).collect(),
        }
    }

    #[test]
    fn rules_are_read_in_order_and_kept_as_they_are() {
        use PolicyAction::{Allow, Deny};
        let policy = written(&[
            (Deny, "Bad.Example.com"),
            (Allow, "*.example.com"),
            (Allow, "192.0.2.7"),
            (Deny, "2001:db8::/32"),
        ]);
        let policy = EgressPolicy::try_from(&policy).unwrap();
        assert_eq!(policy.default_action, Deny, "nothing is deny");
        assert_eq!(policy.mode(), PolicyMode::Enforcing);
        let targets: Vec<_> = policy
            .rules
            .iter()
            .map(|it| it.target.to_string())
            .collect();
        let expected = [
            "bad.example.com",
            "*.example.com",
            "192.0.2.7",
            "2001:db8::/32",
        ];
        assert_eq!(targets, expected);
        let kept = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<EgressPolicy>(&kept).unwrap(), policy);
    }

    #[test]
    fn a_typo_is_refused_with_its_place() {
        let policy = written(&[
            (PolicyAction::Allow, "example.com"),
            (PolicyAction::Allow, "exam ple.com"),
        ]);
        let problems = EgressPolicy::try_from(&policy).unwrap_err();
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].field, "egress[1].target");
        let kept = r#"{"default_action":"deny","rules":[{"action":"allow","target":"a b"}]}"#;
        assert!(serde_json::from_str::<EgressPolicy>(kept).is_err());
    }

    #[test]
    fn ports_are_one_or_a_range() {
        for (text, first, last) in [("443", 443, 443), ("8000-8080", 8000, 8080)] {
            let range: PortRange = text.parse().unwrap();
            assert_eq!((range.first(), range.last()), (first, last));
            assert_eq!(range.to_string(), text);
        }
        for text in ["", "0", "65536", "9-8", "1-", "-1", "+1", "1-2-3", "http"] {
            assert!(text.parse::<PortRange>().is_err(), "{text}");
        }
    }
}
