//! Declared differences from Karmada: behaviours that the conformance vectors mark and that Muster
//! does not copy, each with its reason.

use muster_vectors::Deviation;

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
        suite: "tolerations",
        quirk: "a NoExecute taint without timeAdded never runs out",
        reason: "a limited toleration is limited: such a taint counts from now, and the cluster controller dates it",
    },
    Deviation {
        suite: "graceful_eviction",
        quirk: "with no scheduled cluster the healthy test is vacuously true, so tasks end at once",
        reason: "the last running copy must not go while there is no replacement (safety contract 1)",
    },
    Deviation {
        suite: "application_failover",
        quirk: "numbers pass through 64-bit floats and large ones print in scientific notation",
        reason: "an id that is a number must arrive with all its digits (K59)",
    },
    Deviation {
        suite: "divide",
        quirk: "sum of allocatable replicas exceeds 32 bit and wraps upstream",
        reason: "sums do not wrap, so a large fleet is not taken for a full one",
    },
    Deviation {
        suite: "divide",
        quirk: "more than 12 candidates: upstream orders them by available replicas with an unstable sort, ties may fall differently",
        reason: "ties go to the more preferred cluster, whatever the number of candidates",
    },
    Deviation {
        suite: "schedule_end_to_end",
        quirk: "zero replicas: every cluster counts as having 2147483647 free, the 32-bit sum wraps negative and a triggered reschedule fails",
        reason: "sums do not wrap, so nothing fits as easily as something",
    },
    Deviation {
        suite: "select_clusters",
        quirk: "region minGroups 0 together with cluster minGroups 0 accepts the empty set of regions and so always ends in an error",
        reason: "no regions are never what is wanted: 0 counts as 1, as admission writes it",
    },
    Deviation {
        suite: "select_clusters",
        quirk: "region minGroups 0 makes the score divide by zero (float infinity converted to a 64-bit integer)",
        reason: "0 counts as 1, so the score of a region is that of its clusters and overflows nowhere",
    },
    Deviation {
        suite: "estimator_general",
        quirk: "component estimate mixes milli units (decimal notation) and whole units (binary notation) of the same resource",
        reason: "the notation of a quantity does not change the amount",
    },
    Deviation {
        suite: "estimator_general",
        quirk: "result above 31 bits is truncated to 32 bits",
        reason: "an estimate stops at the largest number of replicas that the API can express",
    },
    Deviation {
        suite: "schedule_binding",
        quirk: "an unreadable applied-placement annotation counts as unchanged",
        reason: "a change of the placement must not be lost because nobody knows what was applied before",
    },
];
