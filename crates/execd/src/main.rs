//! The daemon inside every sandbox.
fn main() {}
