//! The member-cluster agent.
fn main() {}
