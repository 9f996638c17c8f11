//! `osb egress …`: what a sandbox may reach, while it runs.

use api::network_policy::{NetworkRule, PolicyAction};

use super::{DONE, Outcome};
use crate::app::App;
use crate::args::sandbox_side::Egress;
use crate::error::Error;
use crate::model;
use crate::output::Record;

pub(super) async fn run(app: &App, command: Egress) -> Outcome {
    let printer = app.printer();
    match command {
        Egress::Get { sandbox_id } => {
            let status = app.sandbox(&sandbox_id).await?.egress().policy().await?;
            printer.record(
                "Egress policy",
                &model::policy(&status.policy.unwrap_or_default()),
            )?;
        }
        Egress::Patch { sandbox_id, rule } => {
            let rules: Result<Vec<NetworkRule>, Error> =
                rule.iter().map(|text| parse(text)).collect();
            let rules = rules?;
            app.sandbox(&sandbox_id)
                .await?
                .egress()
                .patch(&rules)
                .await?;
            let record = Record::new()
                .with("sandbox_id", sandbox_id)
                .with("patched_rules", model::snake(&rules));
            printer.done("Egress policy patched", &record)?;
        }
        Egress::Delete { sandbox_id, target } => {
            app.sandbox(&sandbox_id)
                .await?
                .egress()
                .delete(&target)
                .await?;
            let record = Record::new()
                .with("sandbox_id", sandbox_id)
                .with("deleted_targets", target);
            printer.done("Egress rules deleted", &record)?;
        }
    }
    Ok(DONE)
}

/// A rule written `ACTION=TARGET`.
fn parse(text: &str) -> Result<NetworkRule, Error> {
    let wrong = || {
        Error::Usage(format!(
            "'{text}' is not a rule; write allow=TARGET or deny=TARGET, such as \
             allow=packages.example.com"
        ))
    };
    let (action, target) = text.split_once('=').ok_or_else(wrong)?;
    let action = match action.trim().to_ascii_lowercase().as_str() {
        "allow" => PolicyAction::Allow,
        "deny" => PolicyAction::Deny,
        _ => return Err(wrong()),
    };
    let target = target.trim().to_owned();
    if target.is_empty() {
        return Err(wrong());
    }
    Ok(NetworkRule::new(action, target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_written() {
        let rule = parse(" ALLOW = example.com ").unwrap();
        assert_eq!(
            (rule.action, &*rule.target),
            (PolicyAction::Allow, "example.com")
        );
        for text in ["allow", "permit=x", "deny="] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
