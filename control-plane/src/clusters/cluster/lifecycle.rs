//! Creation and deletion of a Cluster.
//!
//! On creation: the execution namespace for its Works, the finalizer, and the taints of its
//! condition. On deletion, in Karmada's order:
//!
//! 1. Works that no agent can remove any more are deleted, and lose their finalizer.
//! 2. All Works are deleted.
//! 3. The execution namespace is deleted, which also holds the agent's rights on the Works.
//! 4. Bindings no longer name the cluster.
//! 5. The finalizer is removed.
//!
//! Nothing here depends on the feature gate `Failover`: a Cluster can always be removed.

use jiff::Timestamp;
use muster_shared::api::cluster::{Cluster, ClusterSyncMode};
use muster_shared::conditions;
use muster_shared::finalizers;
use muster_shared::k8s::Taint;
use muster_shared::names::{condition, finalizer};
use serde_json::{Map, Value, json};

use crate::clusters::taint::condition_taints;
use crate::clusters::taint::record::Record;
use crate::settings::Settings;

/// Changes of a Cluster that is not being deleted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// The merge patch that gives it to it, with the resource version it was decided on.
    pub patch: Option<Value>,
    /// The new taints, if they change.
    pub taints: Option<Vec<Taint>>,
    /// Time of the next change, if one falls due.
    pub again: Option<Timestamp>,
}

/// Compares a cluster with what it should be: finalizer and taints come in one patch.
pub fn missing_changes(cluster: &Cluster, settings: &Settings, now: Timestamp) -> Changes {
    let record = Record::on(cluster).unwrap_or_default();
    let ready = cluster.condition(condition::READY);
    let by_policy = |taint: &Taint| record.answers_for(taint);
    let is_duplicate = cluster
        .condition(condition::UNIQUE_IDENTITY)
        .is_some_and(|unique| unique.status == conditions::FALSE);
    let condition_taints::Wanted { taints, again } = condition_taints::wanted(
        &cluster.spec.taints,
        ready,
        is_duplicate,
        settings,
        by_policy,
        now,
    );
    let mut metadata = Map::new();
    if let Some(all) = finalizers::with(&cluster.metadata, finalizer::CLUSTER) {
        metadata.insert("finalizers".to_owned(), json!(all));
    }
    if metadata.is_empty() && taints.is_none() {
        return Changes {
            again,
            ..Changes::default()
        };
    }
    metadata.insert(
        "resourceVersion".to_owned(),
        json!(cluster.metadata.resource_version),
    );
    let mut patch = json!({ "metadata": metadata });
    if let Some(taints) = &taints {
        patch["spec"] = json!({"taints": (!taints.is_empty()).then_some(taints)});
    }
    Changes {
        patch: Some(patch),
        taints,
        again,
    }
}

/// Next step in the deletion of a Cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionStep {
    /// Delete the Works and remove their finalizers, because no agent may be able to. Objects that
    /// no agent removes stay in the member.
    ReleaseWorks,
    /// Delete the Works, and wait until the agent has removed their objects.
    DeleteWorks,
    /// Delete the execution namespace.
    DeleteNamespace,
    /// Wait until the execution namespace is gone.
    AwaitNamespace,
    /// Wait until no binding names the cluster.
    AwaitBindings,
    /// Remove the finalizer of the Cluster.
    Release,
    /// No step is left.
    Nothing,
}

/// Remains of a cluster that is being deleted.
#[derive(Clone, Copy, Debug)]
pub struct DeletionState<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// Its execution namespace: whether it is there, and whether it is being deleted.
    pub namespace: Option<bool>,
    /// Whether it has Works.
    pub has_works: bool,
    /// Whether one of them waits for the agent.
    pub has_held_works: bool,
    /// Whether a binding names it.
    pub is_named: bool,
}

impl DeletionState<'_> {
    /// Returns the next step of the deletion. `connects` says whether the control plane connects to
    /// members of sync mode Push.
    pub fn next(self, connects: bool) -> DeletionStep {
        let ready = self.cluster.is_true(condition::READY);
        // Of a cluster that is not ready, no agent and no connection removes anything any more. The
        // Works of a push cluster that another control plane connects to are left to that.
        let is_ours = self.cluster.spec.sync_mode == ClusterSyncMode::Pull || connects;
        if is_ours && !ready && self.has_held_works {
            return DeletionStep::ReleaseWorks;
        }
        match self.namespace {
            Some(false) if self.has_works => return DeletionStep::DeleteWorks,
            Some(false) => return DeletionStep::DeleteNamespace,
            Some(true) => return DeletionStep::AwaitNamespace,
            None => {}
        }
        if self.is_named {
            DeletionStep::AwaitBindings
        } else if finalizers::has(&self.cluster.metadata, finalizer::CLUSTER) {
            DeletionStep::Release
        } else {
            DeletionStep::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fleet::testing::at;

    const OURS: &[&str] = &["karmada.io/cluster-controller"];

    fn cluster(ready: &str, finalizers: &[&str]) -> Cluster {
        serde_json::from_value(json!({
            "metadata": {"name": "member1", "resourceVersion": "7", "finalizers": finalizers},
            "spec": {"syncMode": "Pull"},
            "status": {"conditions": [
                {"type": "Ready", "status": ready, "reason": "", "message": "", "lastTransitionTime": at(0)},
            ]},
        }))
        .unwrap()
    }

    /// Returns what a cluster lacks where its taints follow its condition.
    fn missing(cluster: &Cluster, classic: Option<Duration>, now: Timestamp) -> Changes {
        let settings = Settings {
            failover_eviction_timeout: classic.map(muster_shared::settings::Duration),
            ..Settings::default()
        };
        missing_changes(cluster, &settings, now)
    }

    #[test]
    fn a_new_cluster_gets_finalizer_and_taints_in_one_patch_and_then_nothing_more() {
        let new = missing(&cluster("False", &["other"]), None, at(5));
        let patch = new.patch.unwrap();
        assert_eq!(
            patch["metadata"],
            json!({"finalizers": ["other", "karmada.io/cluster-controller"], "resourceVersion": "7"})
        );
        assert_eq!(
            patch["spec"]["taints"][0]["key"],
            "cluster.karmada.io/not-ready"
        );
        let more = missing(&cluster("True", OURS), None, at(5));
        assert_eq!(more, Changes::default());
    }

    #[test]
    fn the_last_taint_is_removed_by_null() {
        let mut recovered = cluster("True", OURS);
        recovered.spec.taints = missing(&cluster("False", &[]), None, at(5)).taints.unwrap();
        assert_eq!(
            missing(&recovered, None, at(9)).patch.unwrap()["spec"],
            json!({"taints": null})
        );
    }

    #[test]
    fn a_cluster_that_shares_its_identity_with_another_is_closed() {
        for (unique, taints) in [("True", 0), ("Unknown", 0), ("False", 1)] {
            let mut cluster = cluster("True", OURS);
            let condition = conditions::new(condition::UNIQUE_IDENTITY, unique, "R", "", at(0));
            let status = cluster.status.as_mut().unwrap();
            status.conditions.push(condition);
            let changes = missing(&cluster, None, at(5));
            assert_eq!(changes.taints.unwrap_or_default().len(), taints, "{unique}");
        }
    }

    #[test]
    fn a_taint_that_falls_due_later_is_reported_though_nothing_is_written_yet() {
        let mut silent = cluster("Unknown", OURS);
        let classic = Some(Duration::from_mins(5));
        silent.spec.taints = missing(&silent, classic, at(5)).taints.unwrap();
        let later = missing(&silent, classic, at(6));
        assert_eq!(later.patch, None);
        assert_eq!(later.again, Some(at(305)));
    }

    #[test]
    fn a_cluster_leaves_step_by_step() {
        use DeletionStep::{
            AwaitBindings, AwaitNamespace, DeleteNamespace, DeleteWorks, Nothing, Release,
            ReleaseWorks,
        };
        let (there, going) = (Some(false), Some(true));
        let theirs: &[&str] = &["other"];
        for (ready, namespace, has_held_works, is_named, finalizers, expected) in [
            ("Unknown", there, true, true, OURS, ReleaseWorks),
            ("True", there, true, true, OURS, DeleteWorks),
            ("True", there, false, true, OURS, DeleteNamespace),
            ("Unknown", there, false, true, OURS, DeleteNamespace),
            ("True", going, true, true, OURS, AwaitNamespace),
            ("Unknown", going, true, true, OURS, ReleaseWorks),
            ("True", None, false, true, OURS, AwaitBindings),
            ("True", None, false, false, OURS, Release),
            ("True", None, false, false, theirs, Nothing),
        ] {
            let cluster = cluster(ready, finalizers);
            let deletion = DeletionState {
                cluster: &cluster,
                namespace,
                has_works: has_held_works,
                has_held_works,
                is_named,
            };
            assert_eq!(deletion.next(false), expected, "{deletion:?}");
        }
    }

    #[test]
    fn the_works_of_a_push_cluster_are_released_only_where_this_control_plane_connects_to_it() {
        let mut cluster = cluster("False", OURS);
        cluster.spec.sync_mode = ClusterSyncMode::Push;
        for (connects, expected) in [
            (true, DeletionStep::ReleaseWorks),
            (false, DeletionStep::DeleteWorks),
        ] {
            let deletion = DeletionState {
                cluster: &cluster,
                namespace: Some(false),
                has_works: true,
                has_held_works: true,
                is_named: true,
            };
            assert_eq!(deletion.next(connects), expected, "{deletion:?}");
        }
    }
}
