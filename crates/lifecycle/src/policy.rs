//! Changes of what a sandbox may reach, as functions of the policy it has. Pure: what asks for them is in
//! `service`, what carries them out in `calls`.

use api::egress::policy::{EgressPolicy, EgressRule, RULES_MAX_DEFAULT, Target};

use crate::error::Error;

/// A change of a policy, with the meaning that the contract gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyChange {
    /// Another policy in place of it.
    Replace(EgressPolicy),
    /// These rules before the others. Of several about the same target, ports and protocol the first counts;
    /// earlier rules about any of their targets go.
    Merge(Vec<EgressRule>),
    /// The rules about these targets go.
    Remove(Vec<Target>),
}

/// How a policy stands after a change was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyOutcome {
    /// What is in force.
    pub policy: EgressPolicy,
    /// Whether that is another than before.
    pub is_changed: bool,
}

impl PolicyChange {
    /// The policy after the change.
    pub fn apply(self, current: &EgressPolicy) -> Result<EgressPolicy, Error> {
        let changed = match self {
            Self::Replace(policy) => policy,
            Self::Merge(rules) => merge(rules, current),
            Self::Remove(targets) => {
                let mut policy = current.clone();
                policy.rules.retain(|rule| !targets.contains(&rule.target));
                policy
            }
        };
        match changed.rules.len() {
            rules if rules > RULES_MAX_DEFAULT => Err(Error::TooManyRules {
                rules,
                max: RULES_MAX_DEFAULT,
            }),
            _ => Ok(changed),
        }
    }
}

fn merge(new: Vec<EgressRule>, current: &EgressPolicy) -> EgressPolicy {
    use std::collections::HashSet;
    let targets: HashSet<Target> = new.iter().map(|rule| rule.target.clone()).collect();
    let mut seen = HashSet::new();
    let mut rules = new;
    rules.retain(|rule| seen.insert((rule.target.clone(), rule.ports.clone(), rule.protocol)));
    let kept = current.rules.iter();
    rules.extend(kept.filter(|rule| !targets.contains(&rule.target)).cloned());
    EgressPolicy {
        default_action: current.default_action,
        rules,
    }
}

#[cfg(test)]
mod tests {
    use api::egress::policy::PolicyAction::{self, Allow, Deny};

    use super::*;

    fn rule(action: PolicyAction, target: &str) -> EgressRule {
        EgressRule {
            action,
            target: target.parse().unwrap(),
            ports: Vec::new(),
            protocol: None,
        }
    }

    fn policy(rules: &[(PolicyAction, &str)]) -> EgressPolicy {
        EgressPolicy {
            default_action: Deny,
            rules: rules.iter().map(|(a, t)| rule(*a, t)).collect(),
        }
    }

    #[test]
    fn merged_rules_come_first_and_take_the_place_of_those_about_their_targets() {
        let current = policy(&[
            (Allow, "a.example"),
            (Allow, "b.example"),
            (Deny, "10.0.0.0/8"),
        ]);
        let new = vec![
            rule(Deny, "B.example"),
            rule(Allow, "b.example"),
            rule(Allow, "c.example"),
        ];
        let merged = PolicyChange::Merge(new).apply(&current).unwrap();
        let expected = policy(&[
            (Deny, "b.example"),
            (Allow, "c.example"),
            (Allow, "a.example"),
            (Deny, "10.0.0.0/8"),
        ]);
        assert_eq!(merged, expected);
    }

    #[test]
    fn rules_about_different_ports_of_a_target_stand_beside_each_other() {
        let at = |port: &str| EgressRule {
            ports: vec![port.parse().unwrap()],
            ..rule(Allow, "a.example")
        };
        let current = policy(&[(Allow, "a.example")]);
        let merged = PolicyChange::Merge(vec![at("22"), at("443"), at("22")]).apply(&current);
        assert_eq!(merged.unwrap().rules, [at("22"), at("443")]);
    }

    #[test]
    fn removal_is_by_target_and_never_fails_for_want_of_one() {
        let current = policy(&[(Allow, "a.example"), (Allow, "*.a.example")]);
        let target = |text: &str| text.parse::<Target>().unwrap();
        let removed = PolicyChange::Remove(vec![target("A.Example"), target("x.example")]);
        assert_eq!(
            removed.apply(&current).unwrap(),
            policy(&[(Allow, "*.a.example")])
        );
    }

    #[test]
    fn more_rules_than_a_policy_may_have_are_refused_after_merging() {
        let many = |from: usize, count: usize| -> Vec<EgressRule> {
            let names = (from..from + count).map(|i| format!("h{i}.example"));
            names.map(|name| rule(Allow, &name)).collect()
        };
        let current = EgressPolicy {
            default_action: Deny,
            rules: many(0, RULES_MAX_DEFAULT),
        };
        let refused = PolicyChange::Merge(many(RULES_MAX_DEFAULT, 1)).apply(&current);
        assert!(matches!(
            refused,
            Err(Error::TooManyRules { rules: 4097, .. })
        ));
        assert!(PolicyChange::Merge(many(0, 9)).apply(&current).is_ok());
    }
}
