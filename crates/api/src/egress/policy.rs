//! What a sandbox may reach, as the server works with it: a policy whose every rule was understood. The
//! policy routes of the egress contract share their types with the lifecycle contract.

use std::fmt;
use std::str::FromStr;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::ErrorCode;
pub use crate::network_policy::{
    NetworkPolicy, NetworkRule, PolicyAction, PolicyMode, PolicyStatus,
};
use crate::problem::{Excerpt, Problem, Problems};
use crate::validate::check_rules;
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
    /// The ports that the rule is about; none stand for all.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(into = "String")]
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
        if !written.presets.is_empty() {
            // Who knows the operator's lists puts their rules in place of the names.
            let problem = Problem::new("presets", "there are none here");
            return Err(vec![problem]);
        }
        Ok(Self {
            default_action: written.fallback(),
            rules: EgressRule::read("egress", &written.egress)?,
        })
    }
}

impl EgressRule {
    /// Rules as they are written; `field` is the name of their list in the request.
    pub fn read(field: &str, written: &[NetworkRule]) -> Result<Vec<Self>, Vec<Problem>> {
        let mut problems = Problems::new();
        check_rules(field, written, &mut problems);
        problems.into_result(())?;
        // Every target that cannot be read was named.
        let rule = |rule: &NetworkRule| {
            let target = rule.target.parse().ok()?;
            Some(Self {
                action: rule.action,
                target,
                ports: rule.ports.clone(),
                protocol: rule.protocol,
            })
        };
        Ok(written.iter().filter_map(rule).collect())
    }
}

/// Targets as `DELETE /policy` names them.
pub fn read_targets(written: &[String]) -> Result<Vec<Target>, Vec<Problem>> {
    let mut problems = Problems::new();
    let mut targets = Vec::with_capacity(written.len());
    for (index, text) in written.iter().enumerate() {
        let target = text.parse::<Target>();
        let field = format!("[{index}]");
        targets.extend(problems.check(ErrorCode::SandboxInvalidParameter, field, target));
    }
    problems.into_result(targets)
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

/// From a text, or from one port as a number.
impl<'de> Deserialize<'de> for PortRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Written;
        impl Visitor<'_> for Written {
            type Value = PortRange;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port such as 443 or a range of ports such as \"8000-8080\"")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<PortRange, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<PortRange, E> {
                number.to_string().parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Written)
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
        let rule = |(action, target): &(PolicyAction, &str)| NetworkRule::new(*action, *target);
        NetworkPolicy {
            default_action: None,
            egress: rules.iter().map(rule).collect(),
            presets: Vec::new(),
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
    fn ports_and_protocol_are_read_and_written_as_they_were() {
        let written = r#"{"egress":[{"action":"allow","target":"a.example","ports":[443,"8000-8080"],"protocol":"tcp"}]}"#;
        let policy: NetworkPolicy = serde_json::from_str(written).unwrap();
        let policy = EgressPolicy::try_from(&policy).unwrap();
        let rule = &policy.rules[0];
        assert_eq!(rule.protocol, Some(Protocol::Tcp));
        assert_eq!(
            rule.ports,
            ["443".parse().unwrap(), "8000-8080".parse().unwrap()]
        );
        let shown = serde_json::to_value(NetworkPolicy::from(&policy)).unwrap();
        assert_eq!(
            shown["egress"][0]["ports"],
            serde_json::json!(["443", "8000-8080"])
        );
    }

    #[test]
    fn what_has_no_meaning_is_refused() {
        for written in [
            r#"{"defualtAction":"allow"}"#,
            r#"{"egres":[]}"#,
            r#"{"defaultAction":"alow"}"#,
            r#"{"egress":[{"action":"permit","target":"a.example"}]}"#,
            r#"{"egress":[{"action":"allow","target":"a.example","port":443}]}"#,
            r#"{"egress":[{"action":"allow","target":"a.example","ports":[0]}]}"#,
            r#"{"egress":[{"action":"allow","target":"a.example","ports":["http"]}]}"#,
            r#"{"egress":[{"action":"allow","target":"a.example","protocol":"icmp"}]}"#,
            r#"{"egress":[{"action":"allow"}]}"#,
        ] {
            assert!(
                serde_json::from_str::<NetworkPolicy>(written).is_err(),
                "{written}"
            );
        }
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
