//! Routes of this feature.

use std::sync::Arc;

use axum::Router;

use crate::state::Shared;

pub(crate) fn router(_: Arc<Shared>) -> Router {
    Router::new()
}
