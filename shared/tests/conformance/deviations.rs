//! Where we differ from the reference on purpose. Everything else has to match.

use muster_shared::vectors::Deviation;

/// The differences, each with its reason.
pub const DECLARED: &[Deviation] = &[
    Deviation {
        suite: "quantity",
        quirk: "milli value does not fit 64 bit",
        reason: "saturates instead of wrapping: a wrapped amount may turn negative, and a scheduler believes it",
    },
    Deviation {
        suite: "quantity",
        quirk: "number beyond 64 bit",
        reason: "saturates instead of wrapping, for the same reason",
    },
    Deviation {
        suite: "quantity",
        quirk: "negative number held with arbitrary precision: upstream's integer and milli values are wrong",
        reason: "rounds away from zero, as for every other number",
    },
];
