//! Checks whether movement is paused.

use muster_control_plane::fleet::pause::Pause;
use muster_shared::check::Category;

use super::facts::Facts;

const NAME: &str = "pauses";

pub(super) fn check(category: &mut Category, facts: &Facts) {
    let now = facts.fleet_time();
    let fleet = match &facts.pause {
        Ok(pause) => pause.as_ref().filter(|it| it.holds(now)),
        Err(refusal) => {
            category.unknown(NAME, "the pause of the fleet", refusal);
            None
        }
    };
    if let Some(pause) = fleet {
        let hint =
            "No workload leaves a failed cluster meanwhile. To end that: kubectl muster resume";
        category.warning(NAME, pause.to_string(), hint);
    }
    let clusters = facts.clusters.as_deref().unwrap_or_default();
    let own = clusters.iter().filter_map(Pause::of_cluster);
    let own: Vec<Pause> = own.filter(|it| it.holds(now)).collect();
    for pause in &own {
        let name = pause.cluster.as_deref().unwrap_or_default();
        let hint = format!(
            "No workload leaves it meanwhile, even if it fails. To end that: kubectl muster resume {name}"
        );
        category.warning(NAME, pause.to_string(), hint);
    }
    if fleet.is_none() && own.is_empty() && facts.pause.is_ok() {
        category.ok(NAME, "movement is not paused");
    }
}
