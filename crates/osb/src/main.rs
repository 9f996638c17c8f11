//! The multi-call binary.
fn main() {}
