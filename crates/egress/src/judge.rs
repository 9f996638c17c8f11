//! A policy as it is asked: may this name be reached, may this address?
//!
//! About a name the first rule decides that matches it. About an address every rule that denies it comes
//! before those that allow it. An operator's rules for all sandboxes stand before the sandbox's own, denials
//! first. Pure: no clock, no I/O.

use std::collections::HashMap;
use std::net::IpAddr;

use api::egress::policy::{EgressPolicy, EgressRule, PolicyAction, Protocol, Target};
use serde::{Deserialize, Serialize};

/// The rules that an operator sets for every sandbox that has a policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Always {
    /// Never reached, whatever a policy says.
    pub deny: Vec<Target>,
    /// Reached, whatever a policy says.
    pub allow: Vec<Target>,
}

/// A policy with an index.
#[derive(Debug)]
pub struct Judge {
    default_action: PolicyAction,
    rules: Vec<EgressRule>,
    /// The numbers of the rules about one name, lowest first.
    names: HashMap<String, Vec<usize>>,
    /// The numbers of the rules about the names below one.
    below: HashMap<String, Vec<usize>>,
    /// The numbers of the rules about addresses.
    ranges: Vec<usize>,
    has_denied_names: bool,
}

/// What is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// A connection over TCP to this port.
    Tcp(u16),
    /// Some port: a name is looked up, and nobody knows yet what for.
    Any,
}

/// What a policy says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it may be reached.
    pub action: PolicyAction,
    /// The number of the rule that decided, operator's rules included; `None` where none matched.
    pub rule: Option<usize>,
}

impl Verdict {
    /// Whether it may be reached.
    pub fn is_allowed(self) -> bool {
        self.action == PolicyAction::Allow
    }
}

impl Judge {
    /// Puts an operator's rules before those of a policy.
    pub fn new(always: &Always, policy: &EgressPolicy) -> Self {
        let of_operator = |action: PolicyAction| {
            move |target: &Target| EgressRule {
                action,
                target: target.clone(),
                ports: Vec::new(),
                protocol: None,
            }
        };
        let denied = always.deny.iter().map(of_operator(PolicyAction::Deny));
        let allowed = always.allow.iter().map(of_operator(PolicyAction::Allow));
        let rules: Vec<EgressRule> = denied
            .chain(allowed)
            .chain(policy.rules.iter().cloned())
            .collect();
        let mut judge = Self {
            default_action: policy.default_action,
            rules,
            names: HashMap::new(),
            below: HashMap::new(),
            ranges: Vec::new(),
            has_denied_names: false,
        };
        judge.index();
        judge
    }

    fn index(&mut self) {
        for (number, rule) in self.rules.iter().enumerate() {
            match &rule.target {
                Target::Name(name) => self.names.entry(name.clone()).or_default().push(number),
                Target::NamesBelow(name) => {
                    self.below.entry(name.clone()).or_default().push(number);
                }
                Target::Range { .. } => self.ranges.push(number),
            }
            let is_name = !matches!(rule.target, Target::Range { .. });
            self.has_denied_names |= is_name && rule.action == PolicyAction::Deny;
        }
    }

    /// What happens where no rule matches.
    pub fn default_action(&self) -> PolicyAction {
        self.default_action
    }

    /// Whether some name is denied, so that connections have to be asked for theirs.
    pub fn has_denied_names(&self) -> bool {
        self.has_denied_names
    }

    /// Whether an address may be allowed that no name led to.
    pub fn sees_addresses(&self) -> bool {
        let is_allowed = |number: &usize| self.rules[*number].action == PolicyAction::Allow;
        self.default_action == PolicyAction::Allow || self.ranges.iter().any(is_allowed)
    }

    /// What is said about a name in lower case, without the dot at its end.
    pub fn name(&self, name: &str, port: Port) -> Verdict {
        let mut first: Option<usize> = None;
        let mut consider = |numbers: Option<&Vec<usize>>| {
            let matching = numbers
                .into_iter()
                .flatten()
                .copied()
                .find(|number| self.is_about(*number, port));
            first = match (first, matching) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        };
        consider(self.names.get(name));
        let mut rest = name;
        while let Some((_, above)) = rest.split_once('.') {
            consider(self.below.get(above));
            rest = above;
        }
        self.verdict(first)
    }

    /// What the rules say about an address; `None` where none is about it.
    pub fn address(&self, address: IpAddr, port: Port) -> Option<Verdict> {
        let address = address.to_canonical();
        let mut allowed = None;
        for &number in &self.ranges {
            let rule = &self.rules[number];
            let Target::Range {
                address: network,
                length,
            } = rule.target
            else {
                continue;
            };
            if !contains(network, length, address) || !self.is_about(number, port) {
                continue;
            }
            if rule.action == PolicyAction::Deny {
                return Some(self.verdict(Some(number)));
            }
            allowed = allowed.or(Some(number));
        }
        allowed.map(|number| self.verdict(Some(number)))
    }

    fn verdict(&self, rule: Option<usize>) -> Verdict {
        Verdict {
            action: rule.map_or(self.default_action, |number| self.rules[number].action),
            rule,
        }
    }

    /// Whether a rule is about this port. A name that may be reached at some port can be looked up; a
    /// denial of some ports does not keep it from being.
    fn is_about(&self, number: usize, port: Port) -> bool {
        let rule = &self.rules[number];
        let is_whole = rule.ports.is_empty() && rule.protocol.is_none();
        match port {
            Port::Any => is_whole || rule.action == PolicyAction::Allow,
            Port::Tcp(port) => {
                let is_port = |range: &api::egress::policy::PortRange| {
                    (range.first()..=range.last()).contains(&port)
                };
                rule.protocol != Some(Protocol::Udp)
                    && (rule.ports.is_empty() || rule.ports.iter().any(is_port))
            }
        }
    }
}

/// Whether the first `length` bits of both are the same.
pub(crate) fn contains(network: IpAddr, length: u8, address: IpAddr) -> bool {
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let shift = 32 - u32::from(length.min(32));
            let mask = u32::MAX.checked_shl(shift).unwrap_or(0);
            network.to_bits() & mask == address.to_bits() & mask
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            let shift = 128 - u32::from(length.min(128));
            let mask = u128::MAX.checked_shl(shift).unwrap_or(0);
            network.to_bits() & mask == address.to_bits() & mask
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rule(action: PolicyAction, target: &str) -> EgressRule {
        EgressRule {
            action,
            target: target.parse().unwrap(),
            ports: Vec::new(),
            protocol: None,
        }
    }

    fn judge(default_action: PolicyAction, rules: &[(PolicyAction, &str)]) -> Judge {
        let rules = rules.iter().map(|(a, t)| rule(*a, t)).collect();
        let policy = EgressPolicy {
            default_action,
            rules,
        };
        Judge::new(&Always::default(), &policy)
    }

    use PolicyAction::{Allow, Deny};

    #[test]
    fn the_first_rule_about_a_name_decides() {
        let judge = judge(
            Deny,
            &[
                (Deny, "bad.example.com"),
                (Allow, "*.example.com"),
                (Allow, "bad.example.com"),
                (Deny, "late.example.com"),
            ],
        );
        let of = |name| judge.name(name, Port::Tcp(443)).action;
        assert_eq!(of("bad.example.com"), Deny);
        assert_eq!(of("a.b.example.com"), Allow, "any depth");
        assert_eq!(of("example.com"), Deny, "not the name itself");
        assert_eq!(of("late.example.com"), Allow, "the wider rule came first");
        assert_eq!(of("notexample.com"), Deny);
        assert_eq!(of("com"), Deny);
        assert_eq!(judge.name("x.example.com", Port::Any).rule, Some(1));
    }

    #[test]
    fn denied_addresses_come_before_allowed_ones_in_any_order() {
        let judge = judge(Allow, &[(Allow, "192.0.2.0/24"), (Deny, "192.0.2.7")]);
        let of = |address: &str| {
            let verdict = judge.address(address.parse().unwrap(), Port::Tcp(80));
            verdict.map(|it| it.action)
        };
        assert_eq!(of("192.0.2.7"), Some(Deny));
        assert_eq!(of("::ffff:192.0.2.7"), Some(Deny), "the same address");
        assert_eq!(of("192.0.2.8"), Some(Allow));
        assert_eq!(of("192.0.3.8"), None);
        assert_eq!(of("2001:db8::1"), None);
    }

    #[test]
    fn an_operators_rules_come_first() {
        let always = Always {
            deny: vec!["never.example".parse().unwrap()],
            allow: vec![
                "never.example".parse().unwrap(),
                "always.example".parse().unwrap(),
            ],
        };
        let policy = EgressPolicy {
            default_action: Deny,
            rules: vec![rule(Allow, "never.example"), rule(Deny, "always.example")],
        };
        let judge = Judge::new(&always, &policy);
        assert_eq!(judge.name("never.example", Port::Any).action, Deny);
        assert_eq!(judge.name("always.example", Port::Any).action, Allow);
    }

    #[test]
    fn ports_narrow_a_rule() {
        let mut policy = EgressPolicy::DENY_ALL;
        policy.rules.push(EgressRule {
            ports: vec!["443".parse().unwrap(), "8000-8080".parse().unwrap()],
            ..rule(Allow, "a.example")
        });
        policy.rules.push(EgressRule {
            protocol: Some(Protocol::Udp),
            ..rule(Allow, "udp.example")
        });
        let judge = Judge::new(&Always::default(), &policy);
        for (port, expected) in [
            (443, Allow),
            (8000, Allow),
            (8080, Allow),
            (80, Deny),
            (8081, Deny),
        ] {
            assert_eq!(judge.name("a.example", Port::Tcp(port)).action, expected);
        }
        assert_eq!(judge.name("a.example", Port::Any).action, Allow);
        assert_eq!(judge.name("udp.example", Port::Tcp(443)).action, Deny);
    }

    /// What the rules say, read one after the other.
    fn plainly(
        rules: &[(PolicyAction, String)],
        default: PolicyAction,
        name: &str,
    ) -> PolicyAction {
        let matches = |target: &str| match target.strip_prefix("*.") {
            Some(above) => name.strip_suffix(above).is_some_and(|it| it.ends_with('.')),
            None => target == name,
        };
        rules
            .iter()
            .find(|(_, target)| matches(target))
            .map_or(default, |(action, _)| *action)
    }

    proptest! {
        #[test]
        fn the_index_says_what_the_list_says(
            rules in prop::collection::vec((any::<bool>(), "(\\*\\.)?([ab]\\.){0,2}[ab]"), 0..12),
            default in any::<bool>(),
            name in "([ab]\\.){0,3}[ab]",
        ) {
            let action = |allow: bool| if allow { Allow } else { Deny };
            let rules: Vec<_> = rules.into_iter().map(|(a, t)| (action(a), t)).collect();
            let borrowed: Vec<_> = rules.iter().map(|(a, t)| (*a, t.as_str())).collect();
            let judge = judge(action(default), &borrowed);
            let expected = plainly(&rules, action(default), &name);
            prop_assert_eq!(judge.name(&name, Port::Tcp(443)).action, expected);
        }

        #[test]
        fn a_range_contains_what_begins_with_its_bits(network in any::<u32>(), address in any::<u32>(), length in 0_u8..=32) {
            let same = u32::from(length) <= (network ^ address).leading_zeros();
            let ip = |bits: u32| IpAddr::from(bits.to_be_bytes());
            prop_assert_eq!(contains(ip(network), length, ip(address)), same);
        }
    }
}
