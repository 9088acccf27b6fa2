//! The control plane.
fn main() {}
