//! Conformance with the reference implementation, a module for each suite of vectors.

// The lints know test functions, not the functions that they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use muster_shared::vectors::{self, Case};

mod capacity;
mod cluster_affinity;
mod deviations;
mod names;
mod quantity;
mod tolerations;

/// Replays a suite from the project's own copy, and more if there is more (see [`vectors::replay`]).
fn replay(suite: &str, run: impl Fn(&Case) -> Result<(), String>) {
    let own = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors"));
    if let Err(report) = vectors::replay(suite, own, deviations::DECLARED, run) {
        panic!("{report}");
    }
}
