//! The helper's program on a real X server (Xtigervnc), seen from both sides: by HTTP, and by an X client
//! that shows pictures and takes what is typed. Chromium and whole images are in tests/environments.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy takes for ordinary functions"
)]

mod faults;
mod hands;
mod live_view;
mod screen;
mod stage;
