//! Commands, sessions, terminals and the init, asked for over HTTP from the real program.

#![expect(
    clippy::unwrap_used,
    reason = "a failed unwrap in a test is the test's failure"
)]

#[path = "exec/bad_input.rs"]
mod bad_input;
#[path = "exec/code.rs"]
mod code;
#[path = "exec/commands.rs"]
mod commands;
mod daemon;
#[path = "exec/events.rs"]
mod events;
#[path = "exec/init.rs"]
mod init;
#[path = "exec/limits.rs"]
mod limits;
#[path = "exec/sessions.rs"]
mod sessions;
#[path = "exec/terminals.rs"]
mod terminals;
