//! What is shown as living lives.
//!
//! A binding reports a workload `Healthy` in a cluster that is not silent only while the cluster
//! has it with ready replicas. A report may be late; it may not stay.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::objects::{self, Binding};
use super::scene::Scene;
use super::troubles::Troubles;
use super::{End, Oracle, Violation};
use crate::feature::WORKLOADS;
use crate::history::{Api, Entry, Key};

const NAME: &str = "shown";

/// The oracle.
#[derive(Debug, Default)]
pub struct Shown {
    troubles: Troubles,
    /// Reports that are not true, with the time since which they could have been set right.
    untrue: BTreeMap<(Key, String), Timestamp>,
}

impl Oracle for Shown {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, entry: &Entry, scene: &Scene) -> Vec<Violation> {
        self.troubles.note(entry);
        if let Some(request) = entry.commit() {
            let plural = request.resource.plural.as_str();
            if request.api == Api::Fleet && plural == "resourcebindings" {
                self.judge(scene, &request.key());
            } else if request.api != Api::Fleet && WORKLOADS.contains(&plural) {
                let template = Key {
                    api: Api::Fleet,
                    ..request.key()
                };
                let keys = scene
                    .bindings()
                    .filter(|(_, it)| it.template().as_ref() == Some(&template))
                    .map(|(key, _)| key.clone());
                for key in keys.collect::<Vec<_>>() {
                    self.judge(scene, &key);
                }
            }
        }
        self.overdue(scene)
    }

    fn end(&mut self, _: &End, scene: &Scene) -> Vec<Violation> {
        self.overdue(scene)
    }
}

impl Shown {
    fn judge(&mut self, scene: &Scene, key: &Key) {
        let binding = scene.objects.get(key).map(|it| Binding(it));
        let reported = binding.filter(|it| !objects::is_deleting(it.0));
        let clusters: Vec<String> = reported
            .iter()
            .flat_map(|it| objects::items(it.0, "/status/aggregatedStatus"))
            .map(|report| objects::text(report, "/clusterName").to_owned())
            .collect();
        self.untrue
            .retain(|(it, cluster), _| it != key || clusters.contains(cluster));
        for cluster in clusters {
            let is_untrue = reported.is_some_and(|it| problem(scene, it, &cluster).is_some());
            let place = (key.clone(), cluster);
            if is_untrue {
                self.untrue.entry(place).or_insert(scene.now);
            } else {
                self.untrue.remove(&place);
            }
        }
    }

    fn overdue(&mut self, scene: &Scene) -> Vec<Violation> {
        let mut said = Vec::new();
        for ((key, cluster), since) in &mut self.untrue {
            let is_reporting = scene.is_reachable(cluster)
                && scene
                    .cluster(cluster)
                    .is_some_and(|it| it.ready() == Some("True"));
            if !is_reporting || self.troubles.of_cluster(cluster, scene.now) {
                *since = scene.now;
                continue;
            }
            let lasts = scene.now.duration_since(*since);
            if lasts <= scene.rules.prompt + scene.rules.lag {
                continue;
            }
            let binding = scene.objects.get(key).map(|it| Binding(it));
            if let Some(problem) = binding.and_then(|it| problem(scene, it, cluster)) {
                let message = format!("shown as Healthy in {cluster} for {lasts:#}: {problem}");
                said.push(scene.violation(NAME, key, &message));
            }
            // What was reported is not reported again at once.
            *since = scene.now;
        }
        said
    }
}

/// Returns the reason why a workload that is reported `Healthy` in a cluster does not live there,
/// if it does not.
fn problem(scene: &Scene, binding: Binding<'_>, cluster: &str) -> Option<String> {
    let report = binding.report(cluster)?;
    let template = binding.template()?;
    if report["health"] != "Healthy" || !WORKLOADS[..3].contains(&template.plural.as_str()) {
        return None;
    }
    let there = Key {
        api: Api::Member(cluster.to_owned()),
        ..template
    };
    let Some(object) = scene.objects.get(&there) else {
        return Some("it does not exist there".to_owned());
    };
    let wanted = wanted(object);
    (wanted > 0 && ready(object) == 0).then(|| format!("none of {wanted} replicas is ready there"))
}

/// Returns the replicas that an object in a member asks for.
fn wanted(object: &Value) -> i64 {
    let daemons = objects::number(object, "/status/desiredNumberScheduled");
    objects::number(object, "/spec/replicas")
        .or(daemons)
        .unwrap_or(1)
}

/// Returns the ready replicas of an object in a member.
pub(super) fn ready(object: &Value) -> i64 {
    let daemons = objects::number(object, "/status/numberReady");
    let ready = objects::number(object, "/status/readyReplicas");
    ready.or(daemons).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::*;
    use super::*;
    use crate::history::World;

    fn story(health: &str, object: Value) -> Story<Shown> {
        let mut story = Story::new(Shown::default());
        story.write(control_plane(), &cluster_key("m1"), cluster("True", &[]));
        story.write(agent("m1"), &member_key("m1"), deployment("m1", 2));
        let mut binding = binding(&["m1"]);
        binding["status"] = json!({"aggregatedStatus": [{"clusterName": "m1", "health": health}]});
        story.write(control_plane(), &binding_key("web"), binding);
        story.write(person(), &member_key("m1"), object);
        story
    }

    #[test]
    fn a_report_of_health_that_is_not_true_does_not_stay() {
        for (health, object, seconds, is_kept) in [
            ("Healthy", Value::Null, 60, true),
            ("Healthy", Value::Null, 200, false),
            ("Unhealthy", Value::Null, 200, true),
            ("Unknown", Value::Null, 200, true),
            ("Healthy", deployment("m1", 0), 200, false),
            ("Healthy", deployment("m1", 1), 200, true),
        ] {
            let mut story = story(health, object);
            story.wait(seconds).ends(is_kept, (health, seconds));
        }
    }

    #[test]
    fn a_cluster_that_is_silent_cannot_set_a_report_right() {
        let mut cut = story("Healthy", Value::Null);
        cut.world(World::CutOff("m1".to_owned())).wait(200);
        assert_eq!(cut.end(), [""; 0]);

        let mut silent = story("Healthy", Value::Null);
        silent.write(control_plane(), &cluster_key("m1"), cluster("Unknown", &[]));
        assert_eq!(silent.wait(200).end(), [""; 0]);
    }
}
