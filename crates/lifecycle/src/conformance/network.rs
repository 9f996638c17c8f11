//! What a sandbox may reach, as a policy that can change.

use api::egress::policy::{EgressPolicy, EgressRule, PolicyAction};

use super::world::{Failure, World, ensure};
use super::{Case, case};
use crate::backend::{Error, Spec};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(rules_that_are_not_enforced_are_refused, []),
        case!(a_policy_is_kept_as_it_was_given, [NetworkRules]),
        case!(a_policy_is_replaced_as_a_whole, [NetworkRules]),
        case!(a_policy_outlives_the_server, [NetworkRules]),
        case!(what_all_or_nothing_may_be_reached_is_known, [NetworkNone]),
        case!(rules_can_come_later, [NetworkRules]),
        case!(a_policy_needs_a_sandbox, []),
    ]
}

/// Denied but for these targets, in this order.
fn allowing(targets: &[&str]) -> Result<EgressPolicy, Failure> {
    let mut policy = EgressPolicy::DENY_ALL;
    for target in targets {
        policy.rules.push(EgressRule {
            action: PolicyAction::Allow,
            target: target.parse()?,
            ports: Vec::new(),
            protocol: None,
        });
    }
    Ok(policy)
}

fn with_policy(world: &World, policy: &EgressPolicy) -> Spec {
    Spec {
        network: policy.clone(),
        ..world.spec()
    }
}

/// A policy that is not enforced is worse than none: its author relies on it.
async fn rules_that_are_not_enforced_are_refused(world: &World) -> Result<(), Failure> {
    let is_enforced = world.backend().capabilities().network_rules;
    let policy = allowing(&["example.com"])?;
    let spec = with_policy(world, &policy);
    let made = world.note(&spec);
    let created = world.backend().create(spec).await;
    if is_enforced {
        return Ok(created.map(drop)?);
    }
    ensure!(
        matches!(created, Err(Error::Invalid { .. })),
        "creation with rules says {created:?}"
    );
    let listed = world.backend().list().await?;
    ensure!(listed.iter().all(|it| it.id != made.id), "it was made");
    let made = world.plain().await?;
    let changed = world.backend().set_network_policy(&made.id, &policy).await;
    ensure!(
        matches!(changed, Err(Error::Invalid { .. })),
        "a change says {changed:?}"
    );
    Ok(())
}

async fn a_policy_is_kept_as_it_was_given(world: &World) -> Result<(), Failure> {
    let policy = allowing(&["*.example.com", "192.0.2.0/24", "2001:db8::1", "b.example"])?;
    let made = world.create(with_policy(world, &policy)).await?;
    let kept = world.backend().network_policy(&made.id).await?;
    ensure!(kept == policy, "it says {kept:?}");
    Ok(())
}

async fn a_policy_is_replaced_as_a_whole(world: &World) -> Result<(), Failure> {
    let made = world
        .create(with_policy(world, &allowing(&["a.example"])?))
        .await?;
    let policies = [
        allowing(&["b.example", "c.example"])?,
        EgressPolicy::ALLOW_ALL,
        EgressPolicy::DENY_ALL,
    ];
    for policy in policies {
        world
            .backend()
            .set_network_policy(&made.id, &policy)
            .await?;
        let kept = world.backend().network_policy(&made.id).await?;
        ensure!(kept == policy, "after {policy:?} it says {kept:?}");
    }
    Ok(())
}

/// Also where no rules are enforced: clients ask it of every sandbox.
async fn what_all_or_nothing_may_be_reached_is_known(world: &World) -> Result<(), Failure> {
    for policy in [EgressPolicy::ALLOW_ALL, EgressPolicy::DENY_ALL] {
        let made = world.create(with_policy(world, &policy)).await?;
        let kept = world.backend().network_policy(&made.id).await?;
        ensure!(kept == policy, "of {policy:?} it says {kept:?}");
    }
    Ok(())
}

async fn rules_can_come_later(world: &World) -> Result<(), Failure> {
    for first in [EgressPolicy::ALLOW_ALL, EgressPolicy::DENY_ALL] {
        let made = world.create(with_policy(world, &first)).await?;
        for policy in [allowing(&["a.example"])?, EgressPolicy::DENY_ALL, first] {
            world
                .backend()
                .set_network_policy(&made.id, &policy)
                .await?;
            let kept = world.backend().network_policy(&made.id).await?;
            ensure!(kept == policy, "after {policy:?} it says {kept:?}");
        }
        world.reopen().await;
        let inspected = world.backend().inspect(&made.id).await?;
        ensure!(
            inspected.state == crate::backend::ObservedState::Running,
            "it is {:?}",
            inspected.state
        );
    }
    Ok(())
}

async fn a_policy_outlives_the_server(world: &World) -> Result<(), Failure> {
    let made = world
        .create(with_policy(world, &allowing(&["a.example"])?))
        .await?;
    let policy = allowing(&["b.example"])?;
    world
        .backend()
        .set_network_policy(&made.id, &policy)
        .await?;
    world.reopen().await;
    let kept = world.backend().network_policy(&made.id).await?;
    ensure!(kept == policy, "it says {kept:?}");
    Ok(())
}

async fn a_policy_needs_a_sandbox(world: &World) -> Result<(), Failure> {
    let id = world.spec().id;
    let policy = EgressPolicy::DENY_ALL;
    let changed = world.backend().set_network_policy(&id, &policy).await;
    let is_refused = match world.backend().capabilities().network_rules {
        true => matches!(changed, Err(Error::NotFound(_))),
        false => matches!(changed, Err(Error::Invalid { .. })),
    };
    ensure!(is_refused, "it says {changed:?}");
    Ok(())
}
