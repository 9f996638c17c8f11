//! execd: the daemon inside every sandbox.
//!
//! It runs commands, shells and terminals, moves files, reports metrics and forwards
//! ports, over HTTP on an inherited unix socket and on TCP. As PID 1 it is also the
//! sandbox's init. It knows nothing of the control plane and never calls it.
//!
//! The program is `main.rs`, which only parses its arguments and calls [`run`]. This is a library
//! so that the unit tests of its modules are built once; nothing but [`args`] and [`run`] is public,
//! and the tests in `tests/` start the program.

pub mod args;
mod code;
mod command;
mod files;
mod handoff;
mod http;
mod identity;
mod init;
mod install;
mod isolated;
mod limits;
mod log;
mod metrics;
mod output;
mod path;
mod process;
mod proxy;
mod pty;
mod session;
mod start;
mod state;
mod sys;
mod tunnel;

pub use start::run;
