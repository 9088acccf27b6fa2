//! Which clusters an affinity means.

use muster_shared::{
    api::{cluster::Cluster, policy::ClusterAffinity},
    selectors,
};
use muster_vectors::Difference;
use serde_json::{from_value, json};

use crate::replay;

#[test]
fn affinities_choose_the_clusters_that_the_reference_chooses() {
    replay("cluster_affinity", |case| {
        let affinity: ClusterAffinity = from_value(case.input["affinity"].clone()).unwrap();
        let flat = &case.input["cluster"];
        let cluster: Cluster = from_value(json!({
            "metadata": { "name": flat["name"], "labels": flat["labels"] },
            "spec": flat,
        }))
        .unwrap();
        let matches = selectors::matches_affinity(&affinity, &cluster);
        if case.output["matches"] == matches {
            Ok(())
        } else {
            Err(Difference::new(&case.output["matches"], matches.into()))
        }
    });
}
