//! The program `muster-control-plane`.

use std::process::ExitCode;

/// Half of the time of a large fleet goes into the allocator of the C library: between the
/// compressed objects of the caches, it searches long for room for short texts of many lengths.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    muster_control_plane::execute(std::env::args_os())
}
