//! Sandboxes that are ready before they are asked for.

use std::collections::BTreeMap;

use api::egress::policy::EgressPolicy;
use futures_util::future::join_all;

use super::world::{Failure, Made, World, ensure};
use super::{Case, case};
use crate::backend::{Backend, Claim, Created, Error, ObservedState, Spec, WarmPools, WarmSpec};

/// Sandboxes that are ready, and the callers that want one at the same time.
const READY: usize = 4;
const CALLERS: usize = 12;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(a_ready_sandbox_is_nobodys, [WarmPools]),
        case!(a_claim_gives_everything_at_once, [WarmPools]),
        case!(
            a_claimed_sandbox_has_token_and_environment,
            [WarmPools, Shell]
        ),
        case!(each_is_claimed_once, [WarmPools]),
        case!(pools_are_apart, [WarmPools]),
        case!(a_refused_claim_uses_nothing_up, [WarmPools]),
        case!(a_claimed_sandbox_is_never_ready_again, [WarmPools]),
        case!(ready_sandboxes_outlive_the_server, [WarmPools]),
        case!(a_drained_pool_has_none, [WarmPools]),
        case!(a_failed_preparation_leaves_nothing, [WarmPools]),
    ]
}

fn pools(backend: &dyn Backend) -> Result<&dyn WarmPools, Failure> {
    let pools = backend.warm_pools();
    pools.ok_or(Failure("it has no pools any more".to_owned()))
}

/// The shape of a plain sandbox, and the claim that makes it the same as a plain one.
fn split(spec: Spec) -> (WarmSpec, Claim) {
    let shape = WarmSpec {
        source: spec.source,
        platform: spec.platform,
        entrypoint: spec.entrypoint,
        limits: spec.limits,
        volumes: spec.volumes,
    };
    let claim = Claim {
        id: spec.id,
        env: spec.env,
        network: spec.network,
        access_token: spec.access_token,
        labels: spec.labels,
    };
    (shape, claim)
}

async fn prepare(world: &World, pool: &str, count: usize) -> Result<(), Failure> {
    let backend = world.backend();
    for _ in 0..count {
        let (shape, _) = split(world.spec());
        pools(&*backend)?.prepare(pool, shape).await?;
    }
    Ok(())
}

async fn claim(world: &World, pool: &str, spec: Spec) -> Result<Option<(Made, Created)>, Failure> {
    let made = world.note(&spec);
    let backend = world.backend();
    let claimed = pools(&*backend)?.claim(pool, split(spec).1).await?;
    Ok(claimed.map(|created| (made, created)))
}

async fn ready(world: &World, pool: &str) -> Result<usize, Failure> {
    let backend = world.backend();
    let ready = pools(&*backend)?.ready().await?;
    Ok(ready.get(pool).copied().unwrap_or(0))
}

async fn a_ready_sandbox_is_nobodys(world: &World) -> Result<(), Failure> {
    let before = world.backend().list().await?.len();
    let pool = world.pool();
    prepare(world, &pool, 1).await?;
    ensure!(ready(world, &pool).await? == 1, "it is not ready");
    let listed = world.backend().list().await?;
    ensure!(listed.len() == before, "it is listed: {listed:?}");
    Ok(())
}

async fn a_claim_gives_everything_at_once(world: &World) -> Result<(), Failure> {
    let pool = world.pool();
    prepare(world, &pool, 1).await?;
    let mut spec = world.spec();
    spec.labels = BTreeMap::from([("colour".to_owned(), "blue, \"quoted\"".to_owned())]);
    let (labels, entrypoint) = (spec.labels.clone(), spec.entrypoint.clone());
    let claimed = claim(world, &pool, spec).await?;
    let (made, created) = claimed.ok_or(Failure("the pool had none".to_owned()))?;
    ensure!(
        entrypoint.is_none_or(|entrypoint| entrypoint == created.entrypoint),
        "it runs {:?}",
        created.entrypoint
    );
    let listed = world.backend().list().await?;
    let found = listed.iter().find(|it| it.id == made.id);
    let found = found.ok_or(Failure("it is not listed".to_owned()))?;
    ensure!(
        found.state == ObservedState::Running,
        "it is {:?}",
        found.state
    );
    ensure!(found.labels == labels, "its labels are {:?}", found.labels);
    ensure!(ready(world, &pool).await? == 0, "it is ready still");
    Ok(())
}

async fn a_claimed_sandbox_has_token_and_environment(world: &World) -> Result<(), Failure> {
    let pool = world.pool();
    prepare(world, &pool, 1).await?;
    let mut spec = world.spec();
    spec.env.insert("COLOUR".to_owned(), "blue".to_owned());
    let claimed = claim(world, &pool, spec).await?;
    let (made, _) = claimed.ok_or(Failure("the pool had none".to_owned()))?;
    let output = world.output(&made, "echo $COLOUR").await?;
    ensure!(output == "blue\n", "its environment has {output:?}");
    Ok(())
}

async fn each_is_claimed_once(world: &World) -> Result<(), Failure> {
    let pool = world.pool();
    prepare(world, &pool, READY).await?;
    let specs: Vec<Spec> = (0..CALLERS).map(|_| world.spec()).collect();
    let claims = join_all(specs.into_iter().map(|spec| claim(world, &pool, spec))).await;
    let claimed = claims.into_iter().collect::<Result<Vec<_>, _>>()?;
    let claimed: Vec<_> = claimed.into_iter().flatten().collect();
    ensure!(
        claimed.len() == READY,
        "{} got one of {READY}",
        claimed.len()
    );
    let listed = world.backend().list().await?;
    for (made, _) in &claimed {
        ensure!(listed.iter().any(|it| it.id == made.id), "one is missing");
    }
    Ok(())
}

async fn pools_are_apart(world: &World) -> Result<(), Failure> {
    let (filled, empty) = (world.pool(), world.pool());
    prepare(world, &filled, 1).await?;
    let claimed = claim(world, &empty, world.spec()).await?;
    ensure!(claimed.is_none(), "it was claimed from another pool");
    ensure!(ready(world, &filled).await? == 1, "the other pool lost one");
    Ok(())
}

async fn a_refused_claim_uses_nothing_up(world: &World) -> Result<(), Failure> {
    let pool = world.pool();
    prepare(world, &pool, 1).await?;
    let taken = world.plain().await?;
    let spec = Spec {
        id: taken.id.clone(),
        ..world.spec()
    };
    let backend = world.backend();
    let claimed = pools(&*backend)?.claim(&pool, split(spec).1).await;
    ensure!(
        matches!(claimed, Err(Error::Invalid { .. })),
        "an id in use was given again: {claimed:?}"
    );
    ensure!(ready(world, &pool).await? == 1, "it is used up");
    Ok(())
}

/// What somebody used is deleted, never given to the next.
async fn a_claimed_sandbox_is_never_ready_again(world: &World) -> Result<(), Failure> {
    let pool = world.pool();
    prepare(world, &pool, 1).await?;
    let claimed = claim(world, &pool, world.spec()).await?;
    let (made, _) = claimed.ok_or(Failure("the pool had none".to_owned()))?;
    world.delete(&made.id).await?;
    ensure!(ready(world, &pool).await? == 0, "it is ready again");
    let again = claim(world, &pool, world.spec()).await?;
    ensure!(again.is_none(), "it was claimed again");
    Ok(())
}

async fn ready_sandboxes_outlive_the_server(world: &World) -> Result<(), Failure> {
    let pool = world.pool();
    prepare(world, &pool, 2).await?;
    let spec = Spec {
        network: EgressPolicy::ALLOW_ALL,
        ..world.spec()
    };
    let claimed = claim(world, &pool, spec).await?;
    let (made, _) = claimed.ok_or(Failure("the pool had none".to_owned()))?;
    world.reopen().await;
    ensure!(ready(world, &pool).await? == 1, "the ready one is gone");
    let kept = world.backend().inspect(&made.id).await?;
    ensure!(
        kept.state == ObservedState::Running,
        "the claimed one is {:?}",
        kept.state
    );
    let claimed = claim(world, &pool, world.spec()).await?;
    ensure!(claimed.is_some(), "the ready one cannot be claimed");
    Ok(())
}

async fn a_drained_pool_has_none(world: &World) -> Result<(), Failure> {
    let (drained, other) = (world.pool(), world.pool());
    prepare(world, &drained, 2).await?;
    prepare(world, &other, 1).await?;
    let backend = world.backend();
    pools(&*backend)?.drain(&drained).await?;
    pools(&*backend)?.drain(&drained).await?;
    ensure!(ready(world, &drained).await? == 0, "some are ready still");
    ensure!(ready(world, &other).await? == 1, "another pool lost one");
    Ok(())
}

async fn a_failed_preparation_leaves_nothing(world: &World) -> Result<(), Failure> {
    let pool = world.pool();
    let (mut shape, _) = split(world.spec());
    shape.source = crate::backend::Source::Image {
        reference: world.facts.missing_image.clone(),
        auth: None,
    };
    let backend = world.backend();
    let prepared = pools(&*backend)?.prepare(&pool, shape).await;
    ensure!(
        prepared.is_err(),
        "it was made of an image that does not exist"
    );
    ensure!(ready(world, &pool).await? == 0, "something is ready");
    Ok(())
}
