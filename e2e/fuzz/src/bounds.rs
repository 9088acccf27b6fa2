//! What one execution may use, and how it is measured.

use std::time::{Duration, Instant};

/// Returns the time of the processor that an execution took on this thread: the clock on the wall
/// would count what other processes do. The time is `None` where the system does not say it.
fn processor_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds = text.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

/// Measures how long something takes: by the processor's time where the system says it.
pub(crate) fn measure(run: impl FnOnce()) -> Duration {
    let (start, wall) = (processor_time(), Instant::now());
    run();
    match (start, processor_time()) {
        (Some(start), Some(end)) => end.saturating_sub(start),
        _ => wall.elapsed(),
    }
}

/// Bytes that an execution may allocate, freed ones included: so many, and so many for each byte of
/// the input.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Returns the number of bytes that the process has allocated so far.
    pub allocated: fn() -> usize,
    /// Bytes for any input.
    pub base: usize,
    /// Bytes for each byte of the input.
    pub each: usize,
}

impl Memory {
    pub(crate) const fn limit(&self, length: usize) -> usize {
        self.base + self.each * length
    }
}
