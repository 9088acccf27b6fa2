//! Small histories, written by hand.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use muster_shared::merge;
use serde_json::{Value, json};

use super::objects;
use super::scene::Scene;
use super::{End, Oracle, Rules, Violation};
use crate::history::{
    Actor, Api, Entry, Event, Key, Outcome, Phase, Process, Request, Resource, Verb, World,
};

/// A history that is passed to one oracle as it is written.
pub struct Story<O> {
    oracle: O,
    scene: Scene,
    now: Timestamp,
    objects: BTreeMap<Key, Arc<Value>>,
    reported: Vec<Violation>,
}

/// Returns the leader.
pub fn control_plane() -> Actor {
    Actor::Process(Process::ControlPlane(0))
}

/// Returns the agent of a cluster.
pub fn agent(cluster: &str) -> Actor {
    Actor::Process(Process::Agent(cluster.to_owned()))
}

/// Returns a user.
pub fn person() -> Actor {
    Actor::Person("ada".to_owned())
}

impl<O: Oracle> Story<O> {
    /// Makes a history of a fleet whose settings are the defaults.
    pub fn new(oracle: O) -> Self {
        Self::with(oracle, Rules::default())
    }

    /// Makes a history of a fleet with these settings.
    pub fn with(oracle: O, rules: Rules) -> Self {
        let start = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1);
        let mut story = Self {
            oracle,
            scene: Scene::new(rules),
            now: start,
            objects: BTreeMap::new(),
            reported: Vec::new(),
        };
        story.world(World::Phase(Phase::Busy));
        story
    }

    /// Lets time pass.
    pub fn wait(&mut self, seconds: i64) -> &mut Self {
        self.now += SignedDuration::from_secs(seconds);
        self
    }

    /// Returns the present time of the story in the form in which objects hold it.
    pub fn time(&self) -> String {
        self.now.to_string()
    }

    /// Makes something happen to the world.
    pub fn world(&mut self, world: World) -> &mut Self {
        self.push(Event::World(world))
    }

    /// Writes an object at an API as somebody; `null` deletes it.
    pub fn write(&mut self, actor: Actor, key: &Key, object: Value) -> &mut Self {
        let before = self.objects.get(key).cloned();
        let after = (!object.is_null()).then(|| Arc::new(object));
        match &after {
            Some(after) => self.objects.insert(key.clone(), Arc::clone(after)),
            None => self.objects.remove(key),
        };
        let verb = match (&before, &after) {
            (None, _) => Verb::Create,
            (_, None) => Verb::Delete,
            _ => Verb::Patch,
        };
        self.push(Event::Request(Request {
            api: key.api.clone(),
            actor,
            verb,
            resource: Resource::new(&key.group, &key.plural),
            namespace: (!key.namespace.is_empty()).then(|| key.namespace.clone()),
            name: key.name.clone(),
            before,
            after,
            outcome: Outcome::Committed,
            answered: true,
        }))
    }

    /// Refuses somebody's write of an object, as a server does.
    pub fn refuse(&mut self, actor: Actor, key: &Key, code: u16) -> &mut Self {
        let held = self.objects.get(key).cloned();
        self.push(Event::Request(Request {
            api: key.api.clone(),
            actor,
            verb: Verb::Patch,
            resource: Resource::new(&key.group, &key.plural),
            namespace: (!key.namespace.is_empty()).then(|| key.namespace.clone()),
            name: key.name.clone(),
            before: held.clone(),
            after: held,
            outcome: Outcome::Refused(code),
            answered: true,
        }))
    }

    /// Merges into an object, as a merge patch does.
    pub fn patch(&mut self, actor: Actor, key: &Key, patch: &Value) -> &mut Self {
        let mut object = self
            .objects
            .get(key)
            .map_or(Value::Null, |it| (**it).clone());
        merge::apply(&mut object, patch);
        self.write(actor, key, object)
    }

    /// Violations so far, in the order in which they were reported.
    pub fn reported(&self) -> Vec<&str> {
        self.reported.iter().map(|it| it.message.as_str()).collect()
    }

    /// Violations, those of the end included.
    pub fn end(&mut self) -> Vec<&str> {
        let end = End {
            at: self.now,
            objects: self.objects.clone(),
            // A member that left the fleet is reached as well as before.
            reachable: self
                .scene
                .clusters()
                .map(|(name, _)| name)
                .chain(self.scene.members())
                .filter(|name| self.scene.is_reachable(name))
                .map(str::to_owned)
                .collect(),
        };
        self.scene.now = self.now;
        let reported = self.oracle.end(&end, &self.scene);
        self.reported.extend(reported);
        self.reported()
    }

    /// Checks whether the rule was kept so far, as it should be in this case.
    #[track_caller]
    pub fn keeps(&self, is_kept: bool, case: impl Debug) {
        let reported = self.reported();
        assert_eq!(reported.is_empty(), is_kept, "{case:?}: {reported:?}");
    }

    /// Checks whether the rule was kept to the end.
    #[track_caller]
    pub fn ends(&mut self, is_kept: bool, case: impl Debug) {
        self.ends_without("", is_kept, case);
    }

    /// Checks whether the rule was kept to the end, by the violations that contain a text.
    #[track_caller]
    pub fn ends_without(&mut self, part: &str, is_kept: bool, case: impl Debug) {
        let reported = self.end();
        let is_reported = reported.iter().any(|it| it.contains(part));
        assert_eq!(!is_reported, is_kept, "{case:?}: {reported:?}");
    }

    fn push(&mut self, event: Event) -> &mut Self {
        let entry = Entry {
            at: self.now,
            event,
        };
        self.scene.apply(&entry);
        let reported = self.oracle.observe(&entry, &self.scene);
        self.reported.extend(reported);
        self
    }
}

/// Returns the key of a binding.
pub fn binding_key(name: &str) -> Key {
    objects::key(
        &Api::Fleet,
        objects::WORK,
        "resourcebindings",
        "default",
        name,
    )
}

/// Returns the key of a Cluster.
pub fn cluster_key(name: &str) -> Key {
    objects::key(&Api::Fleet, objects::CLUSTER, "clusters", "", name)
}

/// Returns the key of the lease of `m1` at an API.
pub fn lease_key(api: &Api) -> Key {
    let group = "coordination.k8s.io";
    objects::key(api, group, "leases", "karmada-cluster", "m1")
}

/// Returns the key of the PropagationPolicy `p`.
pub fn policy_key() -> Key {
    objects::key(
        &Api::Fleet,
        objects::POLICY,
        "propagationpolicies",
        "default",
        "p",
    )
}

/// Returns the annotations by which the policy `p` claims a binding.
pub fn claimed() -> Value {
    json!({
        "propagationpolicy.karmada.io/namespace": "default",
        "propagationpolicy.karmada.io/name": "p",
    })
}

/// Returns the key of the Work of `web` for a cluster.
pub fn work_key(cluster: &str) -> Key {
    let namespace = format!("{}{cluster}", objects::EXECUTION);
    objects::key(&Api::Fleet, objects::WORK, "works", &namespace, "web")
}

/// Returns the key of the Deployment `web` at an API.
pub fn deployment_key(api: &Api) -> Key {
    objects::key(api, "apps", "deployments", "default", "web")
}

/// Returns the key of the Deployment `web` in a member.
pub fn member_key(cluster: &str) -> Key {
    deployment_key(&Api::Member(cluster.to_owned()))
}

/// Returns a Cluster with this status of its condition Ready and with taints given as `key:effect`.
pub fn cluster(ready: &str, taints: &[&str]) -> Value {
    let taints: Vec<Value> = taints
        .iter()
        .filter_map(|taint| taint.split_once(':'))
        .map(|(key, effect)| json!({"key": key, "effect": effect}))
        .collect();
    json!({
        "spec": {"taints": taints},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    })
}

/// Returns a binding of Deployment `web` with these targets.
pub fn binding(clusters: &[&str]) -> Value {
    let clusters: Vec<Value> = clusters
        .iter()
        .map(|name| json!({"name": name, "replicas": 2}))
        .collect();
    json!({
        "metadata": {"generation": 1},
        "spec": {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": "web"},
            "replicas": 2,
            "placement": {},
            "clusters": clusters,
        },
    })
}

/// Returns the Work of the binding `web` with its Deployment, of which its member has reported
/// something.
pub fn work() -> Value {
    json!({
        "metadata": {"annotations": {
            "resourcebinding.karmada.io/namespace": "default",
            "resourcebinding.karmada.io/name": "web",
        }},
        "spec": {"workload": {"manifests": [{
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": "default", "name": "web"},
            "spec": {"replicas": 2},
        }]}},
        "status": {"manifestStatuses": [{}]},
    })
}

/// Returns the Deployment `web` in a member, with so many ready replicas.
pub fn deployment(cluster: &str, ready: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "default", "name": "web", "annotations": {
            "work.karmada.io/namespace": format!("{}{cluster}", objects::EXECUTION),
            "work.karmada.io/name": "web",
            "resourcebinding.karmada.io/namespace": "default",
            "resourcebinding.karmada.io/name": "web",
        }},
        "spec": {"replicas": 2},
        "status": {"replicas": 2, "readyReplicas": ready},
    })
}
