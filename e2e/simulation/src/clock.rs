//! Virtual time: a calendar that moves with tokio's paused clock.
//!
//! A simulation runs on one thread, which has one clock. API servers read the true calendar;
//! programs of the product read one that may be wrong by an offset, because clocks jump.

use std::cell::Cell;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Second since 1970 at which every simulation begins: 2030-01-01T00:00:00Z.
const EPOCH: i64 = 1_893_456_000;

thread_local! {
    static START: Cell<Option<Instant>> = const { Cell::new(None) };
    static OFFSET: Cell<SignedDuration> = const { Cell::new(SignedDuration::ZERO) };
}

/// Begins the virtual time of this thread now, for the simulation and for the product.
pub fn begin() {
    START.set(Some(Instant::now()));
    OFFSET.set(SignedDuration::ZERO);
    muster_shared::clock::set_calendar_of_thread(of_programs);
}

/// The true calendar.
pub fn now() -> Timestamp {
    let epoch = Timestamp::from_second(EPOCH).unwrap_or_default();
    let passed = START.get().map(|start| start.elapsed()).unwrap_or_default();
    epoch + SignedDuration::try_from(passed).unwrap_or_default()
}

/// The calendar that programs of the product read.
pub fn of_programs() -> Timestamp {
    now().saturating_add(OFFSET.get()).unwrap_or(Timestamp::MAX)
}

/// Makes the calendar of the programs wrong by an offset.
pub fn set_offset(offset: SignedDuration) {
    OFFSET.set(offset);
}
