//! Checks whether movement is paused.

use muster_control_plane::fleet::pause::Pause;
use muster_shared::check::Category;

use super::facts::Facts;

const NAME: &str = "pauses";

pub(super) fn check(category: &mut Category, facts: &Facts) {
    if let Err(refusal) = &facts.pause {
        category.unknown(NAME, "the pause of the fleet", refusal);
    }
    let record = facts.pause.as_ref().ok().and_then(Option::as_ref);
    let clusters = facts.clusters.as_deref().unwrap_or_default();
    let pauses: Vec<Pause> = Pause::all(record, clusters, facts.fleet_time()).collect();
    for pause in &pauses {
        let hint = match &pause.cluster {
            None => {
                "No workload leaves a failed cluster meanwhile. To end that: kubectl muster resume"
                    .to_owned()
            }
            Some(name) => format!(
                "No workload leaves it meanwhile, even if it fails. To end that: kubectl muster resume {name}"
            ),
        };
        category.warning(NAME, pause.to_string(), hint);
    }
    if pauses.is_empty() && facts.pause.is_ok() {
        category.ok(NAME, "movement is not paused");
    }
}
