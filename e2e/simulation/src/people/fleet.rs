//! Random fleets.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Dice;

/// A member cluster of a fleet that is to be set up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Site {
    /// Name of its Cluster.
    pub name: String,
    /// Provider.
    pub provider: String,
    /// Region.
    pub region: String,
    /// Zone.
    pub zone: String,
    /// Number of nodes.
    pub nodes: usize,
    /// CPUs of each node.
    pub cpu: u32,
    /// Labels of its Cluster.
    pub labels: BTreeMap<String, String>,
    /// Whether the control plane connects to it (`syncMode: Push`), so that it has no agent.
    pub push: bool,
}

/// Draws a fleet of so many members, of which so many percent have no agent.
pub fn draw(dice: &mut impl Dice, members: u64, push: u64) -> Vec<Site> {
    let regions = dice.between(1, 3);
    let zones = dice.between(1, 3);
    let providers = dice.between(1, 2);
    (1..=members)
        .map(|number| {
            let region = dice.between(1, regions);
            // Grades: a small site, an ordinary one, a large one.
            let (nodes, cpu) = *dice.one(&[(1, 4), (2, 8), (3, 8), (3, 16)]);
            let labels = [
                ("tier", *dice.one(&["gold", "silver"])),
                ("env", *dice.one(&["prod", "prod", "test"])),
            ];
            Site {
                name: format!("m{number}"),
                provider: format!("provider-{}", dice.between(1, providers)),
                region: format!("region-{region}"),
                zone: format!("zone-{region}-{}", dice.between(1, zones)),
                nodes,
                cpu,
                labels: labels
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .collect(),
                push: dice.percent(push),
            }
        })
        .collect()
}
