//! Where Muster does otherwise than Karmada on purpose: the behaviours that the conformance vectors mark as odd and that
//! are not copied, each with its reason.

use muster_shared::vectors::Deviation;

/// All of them. A line of a suite may differ only if its quirk is named here.
pub const DEVIATIONS: &[Deviation] = &[
    Deviation {
        suite: "cluster_monitor",
        quirk: "any change of the Ready condition makes the monitor forget the lease it knew, so at its next pass an old, unrenewed lease counts as fresh and extends the grace once",
        reason: "a lease that was not renewed is no sign of life: the grace is one grace, so that detection takes as long as configured",
    },
    Deviation {
        suite: "tolerations",
        quirk: "a toleration chosen for one taint also shortens the time of another taint it happens to match",
        reason: "each taint is judged by the first toleration that matches it and by no other: a person who tolerates a taint for ever means it",
    },
    Deviation {
        suite: "graceful_eviction",
        quirk: "with no scheduled cluster the healthy test is vacuously true, so tasks end at once",
        reason: "the last running copy must not go while there is no replacement (safety contract 1)",
    },
];
