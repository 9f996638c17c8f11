//! Settings of what sandboxes reach outside: what holds for all of them, and lists of targets that requests name.

use std::collections::BTreeMap;

use api::egress::policy::{NetworkPolicy, NetworkRule, PolicyAction, Target};
use api::error::ErrorCode;
use api::problem::{Problem, Problems as RequestProblems};
use daemon::config::Problems;
use daemon::section;

use super::{Config, RuntimeKind};

section! {
    /// What sandboxes reach outside. Enforced by the embedded runtime.
    pub struct Egress {
        /// Names and addresses that every sandbox with a network policy reaches, whatever it says:
        /// ["packages.example.com", "*.example.org", "203.0.113.0/24"]
        always_allow: Vec<String> = Vec::new(),
        /// Names and addresses that no sandbox with a network policy reaches, whatever it says. Stands
        /// before always_allow. Addresses are kept from sandboxes without a policy, too; names cannot be.
        always_deny: Vec<String> = Vec::new(),
        /// Private networks that sandboxes may reach: ["10.20.0.0/16"]. All others (10.0.0.0/8,
        /// 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10, …) are closed, but for nameservers there.
        /// This machine, other sandboxes and clouds' metadata are never reached.
        private_networks: Vec<String> = Vec::new(),
        /// Lists of targets under names, which a request allows by name:
        /// { "packages" = ["packages.example.com", "*.packages.example.com"] }
        presets: BTreeMap<String, Vec<String>> = BTreeMap::new(),
    }
}

pub(super) fn check(config: &Config, problems: &mut Problems) {
    let egress = &config.egress;
    let lists = [
        ("always_allow".to_owned(), &egress.always_allow),
        ("always_deny".to_owned(), &egress.always_deny),
        ("private_networks".to_owned(), &egress.private_networks),
    ];
    let is_set = lists.iter().any(|(_, list)| !list.is_empty());
    if is_set && config.runtime.kind != RuntimeKind::Embedded {
        problems.add(
            "egress.always_allow, always_deny and private_networks are enforced by the embedded \
             runtime alone; leave them out, or set runtime.type = \"embedded\"",
        );
    }
    let presets = egress.presets.iter();
    let presets = presets.map(|(name, list)| (format!("presets.{name}"), list));
    for (key, list) in lists.into_iter().chain(presets) {
        for text in list {
            match text.parse::<Target>() {
                Err(error) => problems.add(format!("egress.{key}: {error}")),
                Ok(Target::Range { .. }) => {}
                Ok(_) if key == "private_networks" => problems.add(format!(
                    "egress.{key}: {text:?} is a name; write a network such as 10.20.0.0/16"
                )),
                Ok(_) => {}
            }
        }
    }
}

impl Egress {
    /// As the runtime takes them.
    ///
    /// # Panics
    /// Before the settings were checked.
    pub(crate) fn settings(&self) -> runtime::Egress {
        let read = |list: &[String]| -> Vec<Target> {
            let targets = list.iter().map(|text| text.parse());
            let targets: Result<_, _> = targets.collect();
            targets.expect("checked when the settings were read")
        };
        runtime::Egress {
            always: runtime::Always {
                allow: read(&self.always_allow),
                deny: read(&self.always_deny),
            },
            private: read(&self.private_networks),
        }
    }

    /// Puts the rules of presets that a policy names behind its own.
    pub(crate) fn expand(
        &self,
        field: &str,
        policy: &NetworkPolicy,
    ) -> Result<NetworkPolicy, Vec<Problem>> {
        let mut expanded = policy.clone();
        let mut problems = RequestProblems::new();
        for (index, name) in std::mem::take(&mut expanded.presets).iter().enumerate() {
            match self.presets.get(name) {
                Some(targets) => expanded.egress.extend(
                    targets
                        .iter()
                        .map(|target| NetworkRule::new(PolicyAction::Allow, target)),
                ),
                None => {
                    let known: Vec<&str> = self.presets.keys().map(String::as_str).collect();
                    let known = match known.is_empty() {
                        true => "its operator has defined none (egress.presets)".to_owned(),
                        false => format!("it has {}", known.join(", ")),
                    };
                    problems.add_code(
                        ErrorCode::SandboxInvalidParameter,
                        format!("{field}presets[{index}]"),
                        format!("this server has no such preset; {known}"),
                    );
                }
            }
        }
        problems.into_result(expanded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn egress(presets: &[(&str, &[&str])]) -> Egress {
        let list = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect();
        let presets = presets.iter();
        Egress {
            presets: presets
                .map(|(name, it)| ((*name).to_owned(), list(it)))
                .collect(),
            ..Egress::default()
        }
    }

    #[test]
    fn presets_stand_behind_the_rules_of_a_policy() {
        let egress = egress(&[("packages", &["a.example", "*.a.example"])]);
        let policy = NetworkPolicy {
            egress: vec![NetworkRule::new(PolicyAction::Deny, "x.a.example")],
            presets: vec!["packages".to_owned()],
            ..NetworkPolicy::default()
        };
        let expanded = egress.expand("", &policy).unwrap();
        let targets: Vec<&str> = expanded.egress.iter().map(|it| &*it.target).collect();
        assert_eq!(targets, ["x.a.example", "a.example", "*.a.example"]);
        assert!(expanded.presets.is_empty());
        let unknown = NetworkPolicy {
            presets: vec!["other".to_owned()],
            ..NetworkPolicy::default()
        };
        let problems = egress.expand("networkPolicy.", &unknown).unwrap_err();
        assert_eq!(problems[0].field, "networkPolicy.presets[0]");
        assert!(
            problems[0].message.contains("it has packages"),
            "{problems:?}"
        );
    }

    #[test]
    fn what_is_no_target_is_refused_with_its_key() {
        let mut config = Config::default();
        config.egress.always_allow = vec!["https://a.example".to_owned()];
        config.egress.private_networks = vec!["a.example".to_owned(), "10.0.0.0/8".to_owned()];
        config.egress.presets = egress(&[("p", &["a..b"])]).presets;
        let mut problems = Problems::default();
        check(&config, &mut problems);
        let text = format!("{problems}");
        for key in [
            "egress.always_allow",
            "egress.private_networks",
            "egress.presets.p",
        ] {
            assert!(text.contains(key), "{text}");
        }
        config.egress = Egress::default();
        config.egress.always_deny = vec!["a.example".to_owned()];
        config.runtime.kind = RuntimeKind::Docker;
        let mut problems = Problems::default();
        check(&config, &mut problems);
        assert!(format!("{problems}").contains("embedded"));
    }
}
