//! The binding of a template that others refer to.

use std::collections::BTreeMap;

use muster_shared::api::binding::{
    BindingSnapshot, ObjectReference, ResourceBinding, ResourceBindingSpec, TargetCluster,
};
use muster_shared::api::policy::{ConflictResolution, PurgeMode};
use muster_shared::merge;
use muster_shared::names::{self, finalizer, label};
use serde_json::{Map, Value, json};

use crate::binding::BindingKey;
use crate::detector::{Template, TemplateKey};

/// A binding that refers to the template.
#[derive(Clone, Copy, Debug)]
pub struct Referrer<'a> {
    /// Its name.
    pub key: &'a BindingKey,
    /// Its permanent id.
    pub id: &'a str,
    /// What it says.
    pub spec: &'a ResourceBindingSpec,
}

impl Referrer<'_> {
    /// Where it is. Clusters that it is leaving gracefully count: its old copy still runs there and still needs what it refers to.
    /// (Karmada leaves them out and so takes a config map away from under a running workload.)
    fn snapshot(&self) -> BindingSnapshot {
        let mut clusters = self.spec.clusters.clone();
        for task in &self.spec.graceful_eviction_tasks {
            let stays =
                task.purge_mode.as_ref().map(PurgeMode::canonical) != Some(&PurgeMode::Directly);
            if stays
                && !clusters
                    .iter()
                    .any(|cluster| cluster.name == task.from_cluster)
            {
                clusters.push(TargetCluster {
                    name: task.from_cluster.clone(),
                    ..TargetCluster::default()
                });
            }
        }
        BindingSnapshot {
            namespace: self.key.namespace.clone(),
            name: self.key.name.clone(),
            clusters,
        }
    }
}

/// The key of the binding that a snapshot was taken of.
pub fn key_of(snapshot: &BindingSnapshot) -> BindingKey {
    BindingKey {
        namespace: snapshot.namespace.clone(),
        name: snapshot.name.clone(),
    }
}

/// The label by which a referrer is marked on what is attached to it.
pub fn mark(referrer: &BindingKey) -> String {
    let namespace = referrer.namespace.as_deref().unwrap_or_default();
    format!(
        "{}{}",
        label::DEPENDED_BY_PREFIX,
        names::binding_reference_key(namespace, &referrer.name)
    )
}

/// What is written.
#[derive(Debug, PartialEq)]
pub enum Write {
    /// The binding, which does not exist yet.
    Create(Value),
    /// A merge patch.
    Patch(Value),
}

/// A template with those that refer to it.
#[derive(Debug)]
pub struct Attached<'a> {
    /// The template.
    pub key: &'a TemplateKey,
    /// The template.
    pub template: &'a Template,
    /// Whether its content changed since its binding was last written.
    pub content_changed: bool,
    /// Those that refer to it and have clusters, in a stable order.
    pub referrers: &'a [Referrer<'a>],
}

impl Attached<'_> {
    /// What has to be written. `undecided` are referrers of which it is not known yet what they need; their snapshots stay.
    pub fn write(
        &self,
        held: Option<&ResourceBinding>,
        undecided: impl Fn(&BindingKey) -> bool,
    ) -> Option<Write> {
        match held {
            None if self.referrers.is_empty() => None,
            None => Some(Write::Create(self.create())),
            Some(held) => self.patch(held, undecided).map(Write::Patch),
        }
    }

    fn create(&self) -> Value {
        let mut spec = ResourceBindingSpec {
            resource: self.resource(),
            ..ResourceBindingSpec::default()
        };
        spec.required_by = self.referrers.iter().map(Referrer::snapshot).collect();
        self.inherit(&mut spec);
        let mut labels = self.marks();
        let uid = self.template.metadata().uid.clone().unwrap_or_default();
        labels.insert(label::RESOURCE_BINDING_ID.to_owned(), uid.clone());
        json!({
            "apiVersion": "work.karmada.io/v1alpha2",
            "kind": "ResourceBinding",
            "metadata": {
                "namespace": self.key.namespace,
                "name": names::binding(&self.key.kind.kind, &self.key.name),
                "labels": labels,
                "finalizers": [finalizer::RESOURCE_BINDING],
                "ownerReferences": [{
                    "apiVersion": self.key.kind.api_version,
                    "kind": self.key.kind.kind,
                    "name": self.key.name,
                    "uid": uid,
                    "controller": true,
                    "blockOwnerDeletion": true,
                }],
            },
            "spec": spec,
        })
    }

    fn patch(
        &self,
        held: &ResourceBinding,
        undecided: impl Fn(&BindingKey) -> bool,
    ) -> Option<Value> {
        let kept = |snapshot: &&BindingSnapshot| undecided(&key_of(snapshot));
        let kept: Vec<&BindingSnapshot> = held.spec.required_by.iter().filter(kept).collect();
        let mut spec = held.spec.clone();
        spec.required_by = self.merged(&held.spec.required_by, &kept);
        let resource = self.resource();
        if self.content_changed || held.spec.resource.uid != resource.uid {
            spec.resource = resource;
        }
        if spec.placement.is_none() && kept.is_empty() {
            self.inherit(&mut spec);
        }
        let mut patch = Map::new();
        if let Some(difference) = merge::difference(&json!(held.spec), &json!(spec)) {
            patch.insert("spec".to_owned(), difference);
        }
        let labels = self.label_changes(held, &kept);
        if !labels.is_empty() {
            patch.insert("metadata".to_owned(), json!({ "labels": labels }));
        }
        if patch.is_empty() {
            return None;
        }
        let mut patch = Value::Object(patch);
        // The list of referrers is replaced as a whole.
        patch["metadata"]["resourceVersion"] = json!(held.metadata.resource_version);
        Some(patch)
    }

    /// Present snapshots in the order in which they are held, new ones behind them.
    fn merged(&self, held: &[BindingSnapshot], kept: &[&BindingSnapshot]) -> Vec<BindingSnapshot> {
        let mut fresh: Vec<_> = self.referrers.iter().map(Referrer::snapshot).collect();
        let mut merged = Vec::with_capacity(fresh.len());
        for snapshot in held {
            if let Some(at) = fresh
                .iter()
                .position(|fresh| key_of(fresh) == key_of(snapshot))
            {
                merged.push(fresh.remove(at));
            } else if kept.contains(&snapshot) {
                merged.push(snapshot.clone());
            }
        }
        merged.append(&mut fresh);
        merged
    }

    fn marks(&self) -> BTreeMap<String, String> {
        self.referrers
            .iter()
            .map(|referrer| (mark(referrer.key), referrer.id.to_owned()))
            .collect()
    }

    fn label_changes(
        &self,
        held: &ResourceBinding,
        kept: &[&BindingSnapshot],
    ) -> Map<String, Value> {
        let wanted = self.marks();
        let kept: Vec<String> = kept
            .iter()
            .map(|snapshot| mark(&key_of(snapshot)))
            .collect();
        let labels = held.metadata.labels.as_ref();
        let differs =
            |key: &String, value: &String| labels.and_then(|labels| labels.get(key)) != Some(value);
        let missing = wanted
            .iter()
            .filter(|(key, value)| differs(key, value))
            .map(|(key, value)| (key.clone(), json!(value)));
        let stale = labels
            .into_iter()
            .flatten()
            .map(|(key, _)| key)
            .filter(|key| {
                key.starts_with(label::DEPENDED_BY_PREFIX)
                    && !wanted.contains_key(*key)
                    && !kept.contains(*key)
            });
        missing
            .chain(stale.map(|key| (key.clone(), Value::Null)))
            .collect()
    }

    /// A template without a policy of its own is treated as the most demanding of its referrers wants it.
    fn inherit(&self, spec: &mut ResourceBindingSpec) {
        let overwrites = |referrer: &Referrer<'_>| {
            referrer.spec.conflict_resolution == Some(ConflictResolution::Overwrite)
        };
        spec.conflict_resolution = match self.referrers {
            [] => None,
            referrers if referrers.iter().any(overwrites) => Some(ConflictResolution::Overwrite),
            _ => Some(ConflictResolution::Abort),
        };
        let preserves = self
            .referrers
            .iter()
            .filter_map(|referrer| referrer.spec.preserve_resources_on_deletion);
        spec.preserve_resources_on_deletion = preserves.reduce(|one, other| one || other);
    }

    fn resource(&self) -> ObjectReference {
        ObjectReference {
            api_version: self.key.kind.api_version.clone(),
            kind: self.key.kind.kind.clone(),
            namespace: self.key.namespace.clone(),
            name: self.key.name.clone(),
            uid: self.template.metadata().uid.clone(),
            resource_version: self.template.metadata().resource_version.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::detector::Kind;

    fn fixture() -> (TemplateKey, Template) {
        let key = TemplateKey {
            kind: Arc::new(Kind::new("v1", "ConfigMap")),
            namespace: Some("default".into()),
            name: "conf".into(),
        };
        let object = json!({ "metadata": { "name": "conf", "namespace": "default", "uid": "u", "resourceVersion": "5" } });
        (key, Template::new(object).unwrap())
    }

    fn binding(name: &str) -> BindingKey {
        BindingKey {
            namespace: Some("default".into()),
            name: name.into(),
        }
    }

    fn spec(value: Value) -> ResourceBindingSpec {
        serde_json::from_value(value).unwrap()
    }

    fn write(
        held: Option<&ResourceBinding>,
        referrers: &[Referrer<'_>],
        undecided: &[&str],
    ) -> Option<Write> {
        let (key, template) = fixture();
        let attached = Attached {
            key: &key,
            template: &template,
            content_changed: false,
            referrers,
        };
        attached.write(held, |key| undecided.contains(&key.name.as_str()))
    }

    fn created(referrers: &[Referrer<'_>]) -> ResourceBinding {
        match write(None, referrers, &[]) {
            Some(Write::Create(object)) => serde_json::from_value(object).unwrap(),
            other => panic!("expected a creation, got {other:?}"),
        }
    }

    #[test]
    fn a_template_goes_where_its_referrers_are_and_still_are() {
        let (a, placed) = (
            binding("a"),
            spec(json!({
                "clusters": [{ "name": "m1", "replicas": 2 }],
                "gracefulEvictionTasks": [
                    { "fromCluster": "m2", "purgeMode": "Gracefully" }, { "fromCluster": "m3", "purgeMode": "Directly" },
                ],
            })),
        );
        let held = created(&[Referrer {
            key: &a,
            id: "ia",
            spec: &placed,
        }]);
        let clusters: Vec<_> = held.spec.required_by[0]
            .clusters
            .iter()
            .map(|cluster| cluster.name.as_str())
            .collect();
        assert_eq!(clusters, ["m1", "m2"]);
        assert_eq!(held.metadata.labels.unwrap()[&mark(&a)], "ia");
        assert_eq!(held.spec.placement, None);
    }

    #[test]
    fn the_most_demanding_referrer_decides() {
        let (a, b) = (binding("a"), binding("b"));
        let modest =
            spec(json!({ "conflictResolution": "Abort", "preserveResourcesOnDeletion": false }));
        let greedy =
            spec(json!({ "conflictResolution": "Overwrite", "preserveResourcesOnDeletion": true }));
        let held = created(&[
            Referrer {
                key: &a,
                id: "ia",
                spec: &modest,
            },
            Referrer {
                key: &b,
                id: "ib",
                spec: &greedy,
            },
        ]);
        assert_eq!(
            held.spec.conflict_resolution,
            Some(ConflictResolution::Overwrite)
        );
        assert_eq!(held.spec.preserve_resources_on_deletion, Some(true));
    }

    #[test]
    fn what_is_as_it_should_be_is_not_written() {
        let (a, placed) = (
            binding("a"),
            spec(json!({ "clusters": [{ "name": "m1" }] })),
        );
        let referrers = [Referrer {
            key: &a,
            id: "ia",
            spec: &placed,
        }];
        assert_eq!(write(Some(&created(&referrers)), &referrers, &[]), None);
        assert_eq!(write(None, &[], &[]), None);
    }

    #[test]
    fn a_referrer_that_left_is_taken_off_and_one_not_looked_at_yet_stays() {
        let (a, b, placed) = (
            binding("a"),
            binding("b"),
            spec(json!({ "clusters": [{ "name": "m1" }] })),
        );
        let (first, second) = (
            Referrer {
                key: &a,
                id: "ia",
                spec: &placed,
            },
            Referrer {
                key: &b,
                id: "ib",
                spec: &placed,
            },
        );
        let held = created(&[first, second]);
        let Some(Write::Patch(patch)) = write(Some(&held), &[first], &[]) else {
            panic!("expected a patch")
        };
        assert_eq!(patch["spec"]["requiredBy"].as_array().unwrap().len(), 1);
        assert_eq!(patch["metadata"]["labels"], json!({ mark(&b): null }));
        assert_eq!(write(Some(&held), &[first], &["b"]), None);
    }

    #[test]
    fn a_template_with_a_policy_of_its_own_keeps_what_that_says() {
        let (a, greedy) = (
            binding("a"),
            spec(json!({ "clusters": [{ "name": "m1" }], "conflictResolution": "Overwrite" })),
        );
        let referrers = [Referrer {
            key: &a,
            id: "ia",
            spec: &greedy,
        }];
        let mut held = created(&referrers);
        held.spec = spec(
            json!({ "resource": held.spec.resource, "placement": {}, "conflictResolution": "Abort" }),
        );
        let Some(Write::Patch(patch)) = write(Some(&held), &referrers, &[]) else {
            panic!("expected a patch")
        };
        assert_eq!(patch["spec"].get("conflictResolution"), None);
        assert_eq!(patch["spec"]["requiredBy"][0]["name"], "a");
    }
}
