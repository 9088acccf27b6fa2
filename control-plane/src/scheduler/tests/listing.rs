//! In which order a new result names its clusters.

use serde_json::json;

use super::fixtures::{cluster, decide_with, deployment, placed, static_weights, tainted};
use crate::scheduler::core::Options;

#[test]
fn clusters_are_listed_by_name_and_only_for_karmada_the_best_one_first() {
    let everywhere = deployment(2, &json!({}));
    let weights = static_weights(&[("m1", 1), ("m2", 1)]);
    let weighted = placed(deployment(2, &weights), &[("m1", 1)]);
    let well = [cluster("m1", 10), cluster("m2", 20)];
    let ill = [tainted("m1", 10, "x", "NoSchedule"), cluster("m2", 20)];
    let (ours, theirs) = (Options::default(), Options::karmada());
    for (what, spec, clusters, options, expected) in [
        ("copies", &everywhere, &well, &ours, ["m1", "m2"]),
        ("as Karmada", &everywhere, &well, &theirs, ["m2", "m1"]),
        ("shares", &weighted, &well, &ours, ["m1", "m2"]),
        ("it keeps what it has", &weighted, &ill, &ours, ["m1", "m2"]),
    ] {
        let decision = decide_with(spec, clusters, options).unwrap();
        let names: Vec<&str> = decision.clusters.iter().map(|it| &*it.name).collect();
        assert_eq!(names, expected, "{what}");
    }
}
