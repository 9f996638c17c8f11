//! Whether a request shows the token of the sandbox that it is for.

use crate::message::Head;
use crate::{browser_link, headers};

/// Whether a request shows this token, in one of the headers for it or in the cookie of a browser.
pub fn shows_token(request: Head<'_>, token: &str) -> bool {
    let mut shown = headers::tokens(request).chain(browser_link::cookie_tokens(request));
    shown.any(|shown| daemon::secret::equal(shown, token))
}
