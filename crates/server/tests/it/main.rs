//! The server over real HTTP on a port of its own, on a backend and a store in memory.

mod access;
mod operations;
mod proxy;
mod sandboxes;
mod support;
