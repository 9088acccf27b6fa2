//! Data arrives before the workload: no two members are primary at a time, and no copy of a
//! workload starts before its data is there.
//!
//! A workload whose binding has `spec.dataReplication` is judged by its roles: the field of the
//! object in each member, what its status says, and, when the workload is created in a member, that
//! the object there has become primary, and that the conditions of its gates hold.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::objects::{self, items, referent, text};
use super::scene::Scene;
use super::{Oracle, Violation};
use crate::history::{Api, Entry, Key, Request, World};

const NAME: &str = "data";

/// Time in which the agent and the engine of a member that is back have demoted what it has.
const BACK: SignedDuration = SignedDuration::from_secs(60);

/// The oracle.
#[derive(Debug, Default)]
pub struct Data {
    /// The rules of each binding that has some, with its workload.
    rules: BTreeMap<Key, Value>,
    /// Members that were down, and when they came back.
    back: BTreeMap<String, Timestamp>,
}

impl Oracle for Data {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, entry: &Entry, scene: &Scene) -> Vec<Violation> {
        if let Some(World::Up(member)) = entry.world() {
            self.back.insert(member.clone(), entry.at);
        }
        let Some(request) = entry.commit() else {
            return Vec::new();
        };
        if request.api == Api::Fleet {
            if request.resource.plural == "resourcebindings" {
                self.learn(request);
            }
            return Vec::new();
        }
        let rules = self.rules.values();
        let wrong = rules.filter_map(|rules| {
            self.two(rules, request, scene)
                .or_else(|| early(rules, request, scene))
        });
        wrong
            .map(|why| scene.violation(NAME, &request.key(), &why))
            .collect()
    }
}

impl Data {
    fn learn(&mut self, request: &Request) {
        let spec = request.after.as_ref().map(|after| &after["spec"]);
        match spec.filter(|spec| !spec["dataReplication"].is_null()) {
            Some(spec) => _ = self.rules.insert(request.key(), spec.clone()),
            None => _ = self.rules.remove(&request.key()),
        }
    }

    /// Returns whether the agent of a member would have demoted an object by now, had it not been
    /// down.
    fn is_fenced(&self, rules: &Value, role: &Value, member: &str, scene: &Scene) -> bool {
        let after = objects::number(rules, "/failover/cluster/fencing/afterSeconds");
        let takes = objects::number(role, "/demotionSeconds").unwrap_or(60);
        let is_long = |since: &Timestamp, seconds: i64| {
            scene.now.duration_since(*since) >= SignedDuration::from_secs(seconds)
        };
        let is_back = |at: &Timestamp| scene.now.duration_since(*at) <= BACK;
        after.is_some_and(|after| match scene.down.get(member) {
            Some(since) => is_long(since, after + takes),
            None => self.back.get(member).is_some_and(is_back),
        })
    }

    /// Returns what is wrong if a write makes a second member primary.
    fn two(&self, rules: &Value, request: &Request, scene: &Scene) -> Option<String> {
        items(rules, "/dataReplication/roles").find_map(|role| {
            let pointer = format!("/{}", text(role, "/path").replace('.', "/"));
            let object = |member: &str| scene.objects.get(&object(rules, &role["object"], member)?);
            let Api::Member(member) = &request.api else {
                return None;
            };
            let is_it = self::object(rules, &role["object"], member) == Some(request.key());
            let is_ordered = |it: &Value| text(it, &pointer) == text(role, "/primary");
            let promoted = format!("/{}", text(&role["promoted"], "/path").replace('.', "/"));
            let is_primary = |it: &Value| text(it, &promoted) == text(&role["promoted"], "/value");
            let all = || {
                let members = scene.members();
                let counted = members.filter(|it| !self.is_fenced(rules, role, it, scene));
                counted.filter_map(object)
            };
            let (ordered, are) = (
                all().filter(|it| is_ordered(it)).count(),
                all().filter(|it| is_primary(it)).count(),
            );
            (is_it && (ordered > 1 || are > 1))
                .then(|| format!("{ordered} members are ordered to be primary, and {are} are"))
        })
    }
}

/// Returns the object of a rule in a member.
fn object(rules: &Value, reference: &Value, member: &str) -> Option<Key> {
    let mut reference = reference.clone();
    reference["namespace"] = rules["resource"]["namespace"].clone();
    referent(&Api::Member(member.to_owned()), &reference)
}

fn says(object: &Value, check: &Value) -> bool {
    let observed = objects::number(object, "/status/observedGeneration");
    if observed < objects::number(object, "/metadata/generation") {
        return false;
    }
    if let Some(kind) = check["condition"]["type"].as_str() {
        let found = objects::condition(object, kind);
        return found.is_some_and(|it| text(it, "/status") == "True");
    }
    let pointer = format!("/{}", text(check, "/path").replace('.', "/"));
    text(object, &pointer) == text(check, "/value")
}

/// Returns what is wrong if a write creates the workload in a member before its data is there.
fn early(rules: &Value, request: &Request, scene: &Scene) -> Option<String> {
    let Api::Member(member) = &request.api else {
        return None;
    };
    let is_workload = referent(&request.api, &rules["resource"]) == Some(request.key());
    if !is_workload || request.before.is_some() || request.after.is_none() {
        return None;
    }
    let lacks = |reference: &Value, check: &Value| {
        let key = object(rules, reference, member)?;
        let is_so = scene.objects.get(&key).is_some_and(|it| says(it, check));
        (!is_so).then(|| format!("it starts before {} {}", key.plural, key.name))
    };
    let promoted =
        items(rules, "/dataReplication/roles").map(|it| (&it["object"], &it["promoted"]));
    let ready = items(rules, "/dataReplication/gates").map(|it| (&it["object"], &it["ready"]));
    let mut checks = promoted.chain(ready);
    checks.find_map(|(reference, check)| lacks(reference, check))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::*;
    use super::*;

    fn replication(state: &str, said: &str, observed: i64) -> Value {
        json!({
            "metadata": {"namespace": "default", "name": "web", "generation": 2},
            "spec": {"state": state},
            "status": {
                "state": said, "observedGeneration": observed,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        })
    }

    fn key(member: &str) -> Key {
        objects::key(
            &Api::Member(member.to_owned()),
            "data.example.com",
            "replications",
            "default",
            "web",
        )
    }

    fn ruled() -> Value {
        let object =
            json!({"apiVersion": "data.example.com/v1", "kind": "Replication", "name": "web"});
        let mut binding = binding(&["m1"]);
        binding["spec"]["dataReplication"] = json!({
            "roles": [{
                "object": object, "path": "spec.state", "primary": "primary",
                "promoted": {"path": "status.state", "value": "Primary"},
            }],
            "gates": [{"object": object, "ready": {"condition": {"type": "Ready"}}}],
        });
        binding
    }

    #[test]
    fn two_members_are_never_primary_and_no_copy_starts_before_its_data() {
        let (first, none) = (replication("primary", "Primary", 2), Value::Null);
        let second = replication("secondary", "Secondary", 2);
        let reported = replication("primary", "Secondary", 2);
        let promoted = replication("secondary", "Primary", 2);
        let late = replication("primary", "Primary", 1);
        let two_are = "1 members are ordered to be primary, and 2 are";
        let early = "it starts before replications web";
        for (what, m1, m2, starts, expected) in [
            ("in order", &first, &second, "m1", ""),
            (
                "two are ordered",
                &first,
                &reported,
                "",
                "2 members are ordered",
            ),
            ("two are", &first, &promoted, "", two_are),
            ("no data", &none, &none, "m1", early),
            ("not yet", &late, &none, "m1", early),
            ("elsewhere", &first, &none, "m2", early),
        ] {
            let mut story = Story::new(Data::default());
            for name in ["m1", "m2"] {
                story.write(agent(name), &cluster_key(name), cluster("True", &[]));
            }
            story.write(control_plane(), &binding_key("web"), ruled());
            for (member, object) in [("m1", m1), ("m2", m2)] {
                if !object.is_null() {
                    story.write(agent(member), &key(member), object.clone());
                }
            }
            if !starts.is_empty() {
                story.write(agent(starts), &member_key(starts), deployment(starts, 0));
            }
            let reported = story.reported();
            let is_so = reported.len() == usize::from(!expected.is_empty())
                && reported.iter().all(|it| it.contains(expected));
            assert!(is_so, "{what}: {reported:?}");
        }
    }

    #[test]
    fn what_a_dead_member_has_counts_until_its_agent_would_have_demoted_it() {
        let fenced = json!({"cluster": {"fencing": {"afterSeconds": 60}}});
        for (failover, down, back, is_kept) in [
            (&fenced, 119, None, false),
            (&fenced, 120, None, true),
            (&fenced, 120, Some(60), true),
            (&fenced, 120, Some(61), false),
            (&json!({"cluster": {}}), 120, None, false),
        ] {
            let mut story = Story::new(Data::default());
            for name in ["m1", "m2"] {
                story.write(agent(name), &cluster_key(name), cluster("True", &[]));
            }
            let mut ruled = ruled();
            ruled["spec"]["failover"] = failover.clone();
            story.write(control_plane(), &binding_key("web"), ruled);
            let first = replication("primary", "Primary", 2);
            story.write(agent("m1"), &key("m1"), first.clone());
            story.world(World::Down("m1".to_owned())).wait(down);
            if let Some(seconds) = back {
                story.world(World::Up("m1".to_owned())).wait(seconds);
            }
            story.write(agent("m2"), &key("m2"), first);
            story.keeps(is_kept, (failover, down, back));
        }
    }
}
