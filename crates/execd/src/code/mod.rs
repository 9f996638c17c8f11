//! The code interpreter's routes. Until an interpreter is built in they refuse, so that a
//! client learns at once that this daemon cannot run code contexts.

use std::sync::Arc;

use axum::Router;
use axum::routing::any;

use crate::http::Problem;
use crate::state::Shared;

pub(crate) fn router(_: Arc<Shared>) -> Router {
    Router::new()
        .route("/code", any(refuse))
        .route("/code/context", any(refuse))
        .route("/code/contexts", any(refuse))
        .route("/code/contexts/{id}", any(refuse))
}

async fn refuse() -> Problem {
    Problem::not_supported(
        "this execd has no code interpreter; run the code with POST /command or in a session",
    )
}
