//! sandbox
fn main() {}
