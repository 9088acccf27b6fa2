//! Safety contract 10: a fleet at rest writes nothing but leases, nor does one that is started
//! anew.

use super::scene::Scene;
use super::{End, Oracle, Violation};
use crate::history::{Actor, Entry, Outcome, Phase};

const NAME: &str = "rest";

/// The oracle.
#[derive(Debug, Default)]
pub struct Rest;

impl Oracle for Rest {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, entry: &Entry, scene: &Scene) -> Vec<Violation> {
        let Some(request) = entry.request() else {
            return Vec::new();
        };
        let by_product = matches!(request.actor, Actor::Process(_));
        let is_lease = request.resource.group == "coordination.k8s.io";
        if scene.phase < Phase::Rest || !by_product || is_lease {
            return Vec::new();
        }
        let what = match request.outcome {
            Outcome::Committed => "changes",
            Outcome::Unchanged => "writes without a change to",
            Outcome::Refused(_) | Outcome::Lost => return Vec::new(),
        };
        let when = if scene.phase == Phase::Rest {
            "at rest"
        } else {
            "after a fresh start"
        };
        let message = format!("{} {what} it {when}", request.actor);
        vec![scene.violation(NAME, &request.key(), &message)]
    }

    fn end(&mut self, _: &End, _: &Scene) -> Vec<Violation> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::objects;
    use super::super::testing::*;
    use super::*;
    use crate::history::{Api, World};

    #[test]
    fn a_fleet_at_rest_writes_leases_and_nothing_else() {
        let lease = objects::key(&Api::Fleet, "coordination.k8s.io", "leases", "x", "m1");
        let web = binding_key("web");
        for (phase, actor, key, is_kept) in [
            (Phase::Busy, control_plane(), &web, true),
            (Phase::Calm, control_plane(), &web, true),
            (Phase::Rest, control_plane(), &web, false),
            (Phase::Rest, agent("m1"), &lease, true),
            (Phase::Rest, Actor::Workloads, &web, true),
            (Phase::Fresh, control_plane(), &web, false),
            (Phase::Fresh, agent("m1"), &lease, true),
        ] {
            let mut story = Story::new(Rest);
            story.world(World::Phase(phase));
            story.write(actor.clone(), key, json!({}));
            assert_eq!(story.told().is_empty(), is_kept, "{phase:?} {actor}");
        }
    }
}
