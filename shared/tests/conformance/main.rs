//! Conformance with the reference implementation, a module for each suite of vectors.

// The lints know test functions, not the functions that they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use muster_vectors::{Case, Difference};

mod capacity;
mod cluster_affinity;
mod deviations;
mod names;
mod quantity;

/// Replays a suite from the project's own copy, and more if there is more (see
/// [`muster_vectors::replay`]).
fn replay(suite: &str, run: impl Fn(&Case) -> Result<(), Difference>) {
    let own = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"));
    if let Err(report) = muster_vectors::replay(suite, own, deviations::DECLARED, run) {
        panic!("{report}");
    }
}
