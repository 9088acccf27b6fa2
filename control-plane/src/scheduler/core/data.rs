//! Where the data of workloads is.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{ResourceBindingSpec, ResourceBindingStatus};
use muster_shared::api::data_replication::DataReference;
use muster_shared::conditions;
use muster_shared::names::condition::DATA_PENDING;

use crate::fleet::binding::{BindingKey, Bindings};
use crate::fleet::followers::{object_key, objects_of};
use crate::fleet::template::TemplateKey;

/// Finds a binding by its key.
type Find = dyn Fn(&BindingKey) -> Option<Arc<AnyBinding>> + Send + Sync;

/// Knows the clusters that the objects of workloads' data are placed in. Cheap to clone.
#[derive(Clone)]
pub struct DataPlaces(Arc<Find>);

/// Knows of no object.
impl Default for DataPlaces {
    fn default() -> Self {
        Self(Arc::new(|_| None))
    }
}

impl fmt::Debug for DataPlaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataPlaces")
    }
}

/// The objects without which no copy of a workload starts, with their bindings, as far as policies
/// place them: what merely follows other objects goes where these go.
#[derive(Debug, Default)]
pub struct Needed<'a>(Vec<(&'a DataReference, Arc<AnyBinding>)>);

impl<'a> Needed<'a> {
    /// Returns an object that a cluster does not get, so that a copy there would wait for it
    /// without end.
    pub fn lacking(&self, cluster: &str) -> Option<&'a DataReference> {
        let mut objects = self.0.iter();
        let lacking = objects.find(|(_, binding)| binding.spec.target(cluster).is_none());
        lacking.map(|(object, _)| *object)
    }
}

impl DataPlaces {
    /// Returns the places as caches show them at each moment.
    pub fn of(bindings: &Bindings) -> Self {
        let bindings = bindings.clone();
        Self(Arc::new(move |key| bindings.get(key)))
    }

    /// Returns the places that some bindings show.
    pub fn among(bindings: &[Arc<AnyBinding>]) -> Self {
        let objects: BTreeSet<BindingKey> = bindings.iter().flat_map(|it| objects_of(it)).collect();
        let keyed = bindings.iter().map(|it| (BindingKey::of(it), it));
        let known = keyed.filter(|(key, _)| objects.contains(key));
        let known: HashMap<_, _> = known.map(|(key, it)| (key, Arc::clone(it))).collect();
        Self(Arc::new(move |key| known.get(key).cloned()))
    }

    /// Returns what a workload needs, and where that is placed.
    pub fn needed<'a>(&self, spec: &'a ResourceBindingSpec) -> Needed<'a> {
        let Some(data) = &spec.data_replication else {
            return Needed::default();
        };
        let workload = BindingKey::for_template(&TemplateKey::of(&spec.resource));
        let gates = data.gates.iter().filter(|it| !it.starts_on_timeout());
        let objects = data.roles.iter().map(|it| &it.object);
        let objects = objects.chain(gates.map(|it| &it.object));
        let placed = objects.filter_map(|object| {
            let binding = (self.0)(&object_key(&workload, object))?;
            let is_placed = binding.spec.placement.is_some() && object.is(&binding.spec.resource);
            is_placed.then_some((object, binding))
        });
        Needed(placed.collect())
    }

    /// Returns the clusters that a workload was placed in before its data was, which that does not
    /// reach: no copy has been made there.
    pub fn unstarted<'a>(
        &self,
        spec: &'a ResourceBindingSpec,
        status: &ResourceBindingStatus,
    ) -> Vec<&'a str> {
        if !conditions::is_true(&status.conditions, DATA_PENDING) {
            return Vec::new();
        }
        let needed = self.needed(spec);
        let targets = spec.clusters.iter().map(|it| it.name.as_str());
        let is_unstarted = |it: &&str| needed.lacking(it).is_some() && status.report(it).is_none();
        targets.filter(is_unstarted).collect()
    }
}

#[cfg(test)]
mod tests {
    use muster_shared::{merge, names};
    use serde_json::{Value, json};

    use super::*;
    use crate::fleet::testing::only_condition;
    use crate::scheduler::core::{FitError, Options, Snapshot, schedule};
    use crate::scheduler::tests::fixtures::{cluster, decoded};

    fn binding(kind: &str, clusters: &[&str], more: &Value) -> Arc<AnyBinding> {
        let clusters = clusters.iter().map(|it| json!({"name": it}));
        let mut binding = json!({
            "metadata": {"namespace": "shop", "name": names::binding(kind, "db")},
            "spec": {
                "resource": {
                    "apiVersion": "v1", "kind": kind, "namespace": "shop", "name": "db",
                },
                "clusters": clusters.collect::<Vec<_>>(),
            },
        });
        merge::apply(&mut binding["spec"], more);
        Arc::new(serde_json::from_value(binding).unwrap())
    }

    #[test]
    fn a_workload_is_placed_where_all_its_data_is() {
        let object = |kind: &str| json!({"apiVersion": "v1", "kind": kind, "name": "db"});
        let placement = json!({"placement": {"spreadConstraints": [
            {"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1},
        ]}});
        let gate = |kind: &str, then: &str| json!({"object": object(kind), "onTimeout": then});
        let mut with_data = placement.clone();
        with_data["dataReplication"] = json!({
            "roles": [{"object": object("Role")}],
            "gates": [gate("Gate", "Wait"), gate("Waived", "Start"), gate("Absent", "Wait")],
        });
        let all = [
            binding("Role", &["m2", "m3"], &placement),
            binding("Gate", &["m1", "m3"], &placement),
            binding("Waived", &[], &placement),
            binding("Follows", &[], &json!({})),
        ];
        let workload = |on: &[&str]| binding("ConfigMap", on, &with_data);
        let placed = |on: &[&str], names: &[&str]| {
            let workload = workload(on);
            let known: Vec<_> = all.iter().cloned().chain([Arc::clone(&workload)]).collect();
            let clusters = names.iter().map(|it| Arc::new(decoded(&cluster(it, 10))));
            let snapshot = Snapshot::new(clusters).with_data(DataPlaces::among(&known));
            let (spec, status) = (&workload.spec, workload.status());
            let decision = schedule(spec, status, &snapshot, &Options::default());
            decision.map(|it| it.clusters[0].name.clone())
        };
        assert_eq!(placed(&[], &["m1", "m2", "m3"]).as_deref(), Ok("m3"));
        assert_eq!(placed(&["m1"], &["m1", "m2"]).as_deref(), Ok("m1"));
        let Err(FitError::NoClusterFit(refusals)) = placed(&[], &["m1", "m2"]) else {
            panic!("no cluster has both");
        };
        let expected = "0/2 clusters are available: \
             1 cluster(s) did not have Gate db, which is data of the workload, \
             1 cluster(s) did not have Role db, which is data of the workload.";
        assert_eq!(refusals, expected);
        // The workload was placed before its data, and waits there.
        for (status, reported, expected) in [
            ("True", "m2", &["m1"][..]),
            ("True", "m1", &[]),
            ("False", "m2", &[]),
        ] {
            let workload = workload(&["m1", "m3"]);
            let status = json!({
                "conditions": only_condition("DataPending", status),
                "aggregatedStatus": [{"clusterName": reported}],
            });
            let status = serde_json::from_value(status).unwrap();
            let known = DataPlaces::among(&[&all[..], &[Arc::clone(&workload)]].concat());
            assert_eq!(known.unstarted(&workload.spec, &status), expected);
        }
    }
}
