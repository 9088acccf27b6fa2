//! Targets that are reached through public functions. Those of private ones lie beside them, in
//! modules named `fuzz`.

// The lints know test functions, not the functions that they share.
#![allow(clippy::unwrap_used, clippy::panic)]

mod certificates;
mod documents;
mod jsonpath;
mod kubeconfig;
mod lua;
mod protobuf;
mod selectors;

use std::alloc::System;

use muster_fuzz::Memory;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes that a parser may allocate: a mebibyte, and a kibibyte for each byte that it reads.
const MEMORY: Memory = Memory {
    allocated: || ALLOCATOR.stats().bytes_allocated,
    base: 1 << 20,
    each: 1 << 10,
};
