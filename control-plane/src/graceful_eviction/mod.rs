//! The end of an eviction: when the copy in the cluster that is being left may go.

pub mod assess;

#[cfg(test)]
mod conformance;
