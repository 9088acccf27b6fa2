//! Where we differ from the reference on purpose. Everything else has to match.

use muster_vectors::Deviation;

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
    Deviation {
        suite: "cluster_affinity",
        quirk: "only the plural zones list is consulted; the deprecated single zone is ignored",
        reason: "a single zone counts as the list of it, which is what Karmada's API server makes of it on write",
    },
    Deviation {
        suite: "resource_summary",
        quirk: "init container maximum is taken against the running total of all pods, so the result depends on pod order",
        reason: "each pod counts by itself, as Kubernetes' scheduler does (K8)",
    },
    Deviation {
        suite: "resource_summary",
        quirk: "finished pods that never got a node still count as allocating",
        reason: "a finished pod waits for nothing (K9)",
    },
    Deviation {
        suite: "resource_models",
        quirk: "init container maximum is taken against the running total of all pods, so the result depends on pod order",
        reason: "each pod counts by itself, as Kubernetes' scheduler does (K8)",
    },
    Deviation {
        suite: "resource_models",
        quirk: "a node without free pod slots ends the count, so later nodes are missed and the result depends on node order",
        reason: "a full node is left out, the others are counted (K10)",
    },
    Deviation {
        suite: "resource_models",
        quirk: "a node without any allocatable map ends the count, so it and all later nodes are missed",
        reason: "a node that offers nothing is left out, the others are counted",
    },
    Deviation {
        suite: "resource_models_validation",
        quirk: "equal numbers written in another notation or scale may count as not contiguous",
        reason: "ends of ranges are compared by amount (K12)",
    },
];
