//! The public Rust client.
