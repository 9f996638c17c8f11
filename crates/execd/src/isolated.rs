//! `/v1/isolated`: execution in a nested, isolated view of the sandbox. Not available in
//! this daemon; `capabilities` says so and everything else refuses.

use axum::routing::{any, get};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::http::Problem;

const MESSAGE: &str = "this execd does not offer isolated sessions; \
    use POST /command or POST /session, or create another sandbox";

pub(crate) fn router() -> Router {
    Router::new()
        .route("/v1/isolated/capabilities", get(capabilities))
        .route("/v1/isolated/{*rest}", any(refuse))
}

async fn capabilities() -> Json<Value> {
    let absent = json!({"state": "unsupported", "message": "isolated sessions are not available"});
    Json(json!({
        "available": false,
        "isolator": "none",
        "version": env!("CARGO_PKG_VERSION"),
        "message": MESSAGE,
        "setpriv_available": false,
        "userns_available": false,
        "commit_supported": false,
        "diff_supported": false,
        "hardening": {
            "init_mode": if std::process::id() == 1 { "pid1" } else { "none" },
            "signal_shield": absent,
            "cap_drop": absent,
            "seccomp": absent,
            "landlock": absent,
            "ebpf": absent,
        },
    }))
}

async fn refuse() -> Problem {
    Problem::not_supported(MESSAGE)
}
