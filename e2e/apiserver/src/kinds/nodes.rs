//! Nodes report for themselves.

use super::Strategy;

pub(super) struct Nodes;

impl Strategy for Nodes {
    fn brings_status(&self) -> bool {
        true
    }
}
