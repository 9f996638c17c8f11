//! The OpenAPI document of the contract, and a page that shows it. The page needs nothing from
//! elsewhere, so it works on a machine without internet.

use std::sync::LazyLock;

use api::spec::Contract;
use axum::response::{Html, IntoResponse};
use bytes::Bytes;
use http::header;

static DOCUMENT: LazyLock<Bytes> =
    LazyLock::new(|| Bytes::from(Contract::Lifecycle.render().into_bytes()));

/// `GET /openapi.json`
pub(super) async fn openapi() -> impl IntoResponse {
    (
        [(header::CONTENT_TYPE, "application/json")],
        DOCUMENT.clone(),
    )
}

/// `GET /docs`, `GET /redoc`
pub(super) async fn page() -> Html<&'static str> {
    Html(include_str!("docs.html"))
}
