//! Names of sandboxes: no two that live have the same.

use std::collections::BTreeMap;

use api::sandbox::NAME_METADATA_KEY;
use lifecycle::{CreateRequest, Error};

use crate::{World, local};

fn called(name: &str) -> CreateRequest {
    let mut request = local();
    request.metadata = BTreeMap::from([(NAME_METADATA_KEY.to_owned(), name.to_owned())]);
    request
}

fn renamed(name: &str) -> BTreeMap<String, Option<String>> {
    BTreeMap::from([(NAME_METADATA_KEY.to_owned(), Some(name.to_owned()))])
}

#[tokio::test(start_paused = true)]
async fn of_many_who_want_one_name_one_gets_it() {
    let world = World::new().await;
    let wanted = (0..20).map(|_| world.service.create(called("web"), None));
    let done = futures_util::future::join_all(wanted).await;
    assert_eq!(done.iter().filter(|made| made.is_ok()).count(), 1);
    let mut refused = done.into_iter().filter_map(Result::err);
    assert!(refused.all(|error| matches!(error, Error::NameTaken { .. })));
    assert_eq!(world.backend.sandboxes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn of_many_who_are_to_be_renamed_one_is() {
    let world = World::new().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(world.running().await.id.clone());
    }
    let patches = ids
        .iter()
        .map(|id| world.service.patch_metadata(id, renamed("web")));
    let done = futures_util::future::join_all(patches).await;
    assert_eq!(done.iter().filter(|made| made.is_ok()).count(), 1);
    // The one that has it may be given it again, and may give it up.
    let has_it = done.into_iter().find_map(Result::ok).unwrap().id.clone();
    world
        .service
        .patch_metadata(&has_it, renamed("web"))
        .await
        .unwrap();
    world
        .service
        .patch_metadata(&has_it, renamed("old"))
        .await
        .unwrap();
    world.service.create(called("web"), None).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_name_is_free_when_its_sandbox_is_gone_and_kept_over_a_restart() {
    let world = World::new().await;
    let id = world
        .service
        .create(called("web"), None)
        .await
        .unwrap()
        .sandbox
        .id
        .clone();
    let world = world.restart().await;
    let refused = world.service.create(called("web"), None).await.unwrap_err();
    assert!(refused.to_string().contains(id.as_str()), "{refused}");
    world.service.delete(&id).await.unwrap();
    world.service.create(called("web"), None).await.unwrap();
}
