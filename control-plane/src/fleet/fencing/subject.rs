//! Decides which workloads are fenced, and how their objects are stopped. Pure.

use std::time::Duration;

use muster_interpreter::{Interpreters, Operation};
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::fencing::{Orders, is_queued};
use muster_shared::merge;
use muster_shared::names::api_group;
use serde_json::{Value, json};

/// Seconds that pods may take to end where they do not say (Kubernetes' default).
const GRACE_SECONDS: u32 = 30;

/// Way in which the copy of a kind is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `spec.replicas` is set to 0.
    Scaled,
    /// `spec.suspend` is set to true.
    Suspended,
    /// The object is deleted.
    Deleted,
    /// As the rules for its replicas say, if it has replicas.
    Custom,
    /// The kind runs nothing.
    NoWorkload,
}

impl Kind {
    fn of(api_version: &str, kind: &str) -> Self {
        match (api_group(api_version), kind) {
            ("apps", "Deployment" | "StatefulSet" | "ReplicaSet")
            | ("", "ReplicationController") => Self::Scaled,
            ("batch", "Job" | "CronJob") => Self::Suspended,
            ("apps", "DaemonSet") | ("", "Pod") => Self::Deleted,
            // The kinds that Kubernetes itself has in such groups have no replicas.
            (group, _) if group.contains('.') => Self::Custom,
            _ => Self::NoWorkload,
        }
    }
}

/// Returns whether nothing runs by an object of a kind: kinds of Kubernetes' own that have no pods.
pub fn runs_nothing(api_version: &str, kind: &str) -> bool {
    let is_own = api_group(api_version).ends_with(".k8s.io");
    Kind::of(api_version, kind) == Kind::NoWorkload || is_own
}

/// Returns whether an object of a kind is fenced only where a rule of an interpreter reports its
/// replicas.
pub fn needs_rule(api_version: &str, kind: &str) -> bool {
    Kind::of(api_version, kind) == Kind::Custom
}

/// Returns the time after which the copies of a workload are stopped; `None` if its policy asks for
/// no fencing, or its resource is no workload.
pub fn asked(spec: &ResourceBindingSpec) -> Option<Duration> {
    let seconds = spec.cluster_failover()?.fencing.as_ref()?.after_seconds;
    let seconds = u32::try_from(seconds).ok().filter(|seconds| *seconds > 0)?;
    let is_subject = match Kind::of(&spec.resource.api_version, &spec.resource.kind) {
        Kind::Scaled | Kind::Suspended | Kind::Deleted => true,
        Kind::Custom => spec.is_workload(),
        Kind::NoWorkload => false,
    };
    is_subject.then(|| Duration::from_secs(seconds.into()))
}

/// Returns whether the old copy of a workload goes before a new one is made: its policy asks for
/// fencing, or replicated data follows it, which no two copies may use.
pub fn runs_alone(spec: &ResourceBindingSpec) -> bool {
    asked(spec).is_some() || spec.has_data_roles()
}

/// Returns why the data of a workload keeps it in a cluster that is silent; `None` where its
/// copy is fenced, or the data may be promoted elsewhere all the same.
pub fn keeps_data(spec: &ResourceBindingSpec) -> Option<String> {
    let mut roles = spec.data_replication.iter().flat_map(|it| &it.roles);
    let role = roles.find(|it| !it.promotes_unreachable())?;
    asked(spec).is_none().then(|| {
        format!(
            "{} there cannot be demoted, and may be primary: its policy has neither failover.cluster.fencing nor \
             dataReplication.roles.whenUnreachable: Promote",
            role.object
        )
    })
}

/// Returns the orders for an object of a workload; `None` if it is not fenced.
///
/// # Errors
/// The rule for the replicas of its kind gives no answer. It is not deleted in place of that.
pub fn orders(
    spec: &ResourceBindingSpec,
    manifest: &Value,
    interpreters: &Interpreters,
) -> Result<Option<Orders>, muster_interpreter::Error> {
    let Some(after) = asked(spec) else {
        return Ok(None);
    };
    let stop = match Kind::of(&spec.resource.api_version, &spec.resource.kind) {
        Kind::Scaled => {
            let none = json!({ "spec": { "replicas": 0 } });
            Some(with_claims_kept(none, manifest))
        }
        // Kueue has the Jobs of a CronJob in its queues, and no CronJob.
        Kind::Suspended if is_queued(manifest) && spec.resource.kind == "Job" => None,
        Kind::Custom if is_suspendable(manifest) && is_queued(manifest) => None,
        Kind::Suspended => Some(json!({ "spec": { "suspend": true } })),
        Kind::Custom if is_suspendable(manifest) => Some(json!({ "spec": { "suspend": true } })),
        Kind::Custom if interpreters.has_for(manifest, Operation::ReviseReplica) => {
            let none = interpreters.revise_replica(manifest.clone(), 0)?;
            match merge::difference(manifest, &none) {
                Some(patch) => Some(with_claims_kept(patch, manifest)),
                // One that has no replicas is stopped already. Of one that has some, the rule
                // changes nothing, and would stop nothing.
                None => has_none(manifest, interpreters)?.then(|| json!({})),
            }
        }
        Kind::Deleted | Kind::NoWorkload | Kind::Custom => None,
    };
    Ok(Some(Orders {
        after_seconds: u32::try_from(after.as_secs()).unwrap_or(u32::MAX),
        grace_seconds: grace(manifest).unwrap_or(GRACE_SECONDS),
        stop,
    }))
}

/// Returns a patch that scales an object to zero so that its claims for storage stay where they
/// would go with its replicas: the copy that is stopped may run again, with its data.
fn with_claims_kept(mut patch: Value, manifest: &Value) -> Value {
    const POLICY: &str = "persistentVolumeClaimRetentionPolicy";
    if manifest["spec"][POLICY]["whenScaled"] == "Delete" {
        // What a rule answers may have anything in these places.
        let kept = json!({ "spec": { POLICY: { "whenScaled": "Retain" } } });
        merge::apply(&mut patch, &kept);
    }
    patch
}

/// Returns whether a custom resource can be suspended, which shows in its having the field of Jobs.
fn is_suspendable(manifest: &Value) -> bool {
    manifest["spec"]["suspend"].is_boolean()
}

fn has_none(
    manifest: &Value,
    interpreters: &Interpreters,
) -> Result<bool, muster_interpreter::Error> {
    let replicas = interpreters.replicas(manifest)?;
    Ok(replicas.is_some_and(|replicas| replicas.replicas == 0))
}

/// Returns the longest `terminationGracePeriodSeconds` anywhere in a manifest, so that pod
/// templates of custom resources count wherever they are.
fn grace(manifest: &Value) -> Option<u32> {
    match manifest {
        Value::Object(fields) => {
            let own = fields.get("terminationGracePeriodSeconds");
            let own = own.and_then(Value::as_u64);
            let own = own.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX));
            fields.values().filter_map(grace).chain(own).max()
        }
        Value::Array(items) => items.iter().filter_map(grace).max(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(api_version: &str, kind: &str, replicas: i32, fencing: &Value) -> ResourceBindingSpec {
        serde_json::from_value(json!({
            "resource": { "apiVersion": api_version, "kind": kind, "name": "a" },
            "replicas": replicas,
            "failover": { "cluster": { "fencing": fencing } },
        }))
        .unwrap()
    }

    #[test]
    fn workloads_are_fenced_and_nothing_else() {
        let fencing = json!({ "afterSeconds": 60 });
        for (api_version, kind, replicas, expected) in [
            ("apps/v1", "Deployment", 3, Some(60)),
            ("apps/v1", "Deployment", 0, Some(60)),
            ("apps/v1", "StatefulSet", 3, Some(60)),
            ("apps/v1", "DaemonSet", 0, Some(60)),
            ("batch/v1", "Job", 1, Some(60)),
            ("batch/v1", "CronJob", 0, Some(60)),
            ("v1", "Pod", 1, Some(60)),
            ("flink.apache.org/v1beta1", "FlinkDeployment", 3, Some(60)),
            (
                "sparkoperator.k8s.io/v1beta2",
                "SparkApplication",
                3,
                Some(60),
            ),
            ("jobset.x-k8s.io/v1alpha2", "JobSet", 3, Some(60)),
            ("cert-manager.io/v1", "Certificate", 0, None),
            ("v1", "ConfigMap", 0, None),
            ("v1", "Secret", 0, None),
            ("v1", "Service", 0, None),
            ("v1", "PersistentVolumeClaim", 0, None),
            ("networking.k8s.io/v1", "Ingress", 0, None),
            ("rbac.authorization.k8s.io/v1", "Role", 0, None),
        ] {
            let after = asked(&spec(api_version, kind, replicas, &fencing));
            assert_eq!(after.map(|after| after.as_secs()), expected, "{kind}");
        }
        for fencing in [
            Value::Null,
            json!({ "afterSeconds": 0 }),
            json!({ "afterSeconds": -1 }),
        ] {
            assert_eq!(
                asked(&spec("apps/v1", "Deployment", 3, &fencing)),
                None,
                "{fencing}"
            );
        }
    }

    #[test]
    fn data_keeps_a_workload_that_is_not_fenced_unless_it_may_be_promoted() {
        let fencing = json!({ "afterSeconds": 60 });
        for (fencing, when, expected) in [
            (&Value::Null, Some("Wait"), true),
            (&Value::Null, Some("Promote"), false),
            (&fencing, Some("Wait"), false),
            (&Value::Null, None, false),
        ] {
            let mut spec = spec("apps/v1", "StatefulSet", 1, fencing);
            let roles = when.map(|when| json!({ "roles": [{ "whenUnreachable": when }] }));
            spec.data_replication = serde_json::from_value(json!(roles)).unwrap();
            assert_eq!(keeps_data(&spec).is_some(), expected, "{fencing} {when:?}");
            let runs_alone = when.is_some() || !fencing.is_null();
            assert_eq!(runs_alone, super::runs_alone(&spec), "{fencing} {when:?}");
        }
    }

    #[test]
    fn each_kind_is_stopped_in_its_way() {
        let fencing = json!({ "afterSeconds": 60 });
        let (scale, suspend) = (
            json!({ "spec": { "replicas": 0 } }),
            json!({ "spec": { "suspend": true } }),
        );
        for (api_version, kind, expected) in [
            ("apps/v1", "Deployment", Some(&scale)),
            ("apps/v1", "ReplicaSet", Some(&scale)),
            ("batch/v1", "Job", Some(&suspend)),
            ("batch/v1", "CronJob", Some(&suspend)),
            ("apps/v1", "DaemonSet", None),
            ("example.com/v1", "Unruled", None),
        ] {
            let spec = spec(api_version, kind, 3, &fencing);
            let manifest =
                json!({ "apiVersion": api_version, "kind": kind, "spec": { "replicas": 3 } });
            let orders = orders(&spec, &manifest, &Interpreters::default());
            let orders = orders.ok().flatten().unwrap();
            assert_eq!(orders.stop.as_ref(), expected, "{kind}");
            assert_eq!((orders.after_seconds, orders.grace_seconds), (60, 30));
        }
    }

    #[test]
    fn storage_that_goes_with_replicas_stays_where_its_copy_is_stopped() {
        let fencing = json!({ "afterSeconds": 60 });
        let scale = json!({ "spec": { "replicas": 0 } });
        let mut keep = scale.clone();
        keep["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({ "whenScaled": "Retain" });
        for (deleted, scaled, expected) in [
            ("Retain", json!("Delete"), &keep),
            ("Delete", json!("Delete"), &keep),
            ("Delete", json!("Retain"), &scale),
            ("Delete", Value::Null, &scale),
        ] {
            let spec = spec("apps/v1", "StatefulSet", 3, &fencing);
            let policy = json!({ "whenDeleted": deleted, "whenScaled": scaled });
            let manifest = json!({
                "apiVersion": "apps/v1", "kind": "StatefulSet",
                "spec": { "replicas": 3, "persistentVolumeClaimRetentionPolicy": policy },
            });
            let orders = orders(&spec, &manifest, &Interpreters::default());
            let stop = orders.ok().flatten().unwrap().stop;
            assert_eq!(stop.as_ref(), Some(expected), "{policy}");
        }
    }

    #[test]
    fn storage_stays_whatever_a_rule_makes_of_the_object() {
        let policy = "persistentVolumeClaimRetentionPolicy";
        let manifest = json!({ "spec": { policy: { "whenScaled": "Delete" } } });
        for patch in [
            json!({ "spec": { "size": 0 } }),
            json!({ "spec": { policy: null } }),
            json!({ "spec": { policy: 1 } }),
            json!({ "spec": "none" }),
        ] {
            let kept = with_claims_kept(patch.clone(), &manifest);
            assert_eq!(kept["spec"][policy]["whenScaled"], "Retain", "{patch}");
        }
    }

    #[test]
    fn a_custom_resource_is_suspended_if_it_can_be() {
        let fencing = json!({ "afterSeconds": 60 });
        let spec = spec("jobset.x-k8s.io/v1alpha2", "JobSet", 3, &fencing);
        for (suspend, expected) in [
            (json!(false), Some(json!({ "spec": { "suspend": true } }))),
            (json!(true), Some(json!({ "spec": { "suspend": true } }))),
            (json!({ "when": "night" }), None),
            (Value::Null, None),
        ] {
            let manifest = json!({
                "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": { "suspend": suspend },
            });
            let orders = orders(&spec, &manifest, &Interpreters::default());
            assert_eq!(orders.ok().flatten().unwrap().stop, expected, "{suspend}");
        }
    }

    #[test]
    fn what_a_queue_would_start_again_is_deleted() {
        let fencing = json!({ "afterSeconds": 60 });
        let suspend = json!({ "spec": { "suspend": true } });
        for (api_version, kind, expected) in [
            ("batch/v1", "Job", None),
            ("jobset.x-k8s.io/v1alpha2", "JobSet", None),
            ("batch/v1", "CronJob", Some(suspend)),
        ] {
            let spec = spec(api_version, kind, 3, &fencing);
            let manifest = json!({
                "apiVersion": api_version, "kind": kind,
                "metadata": { "labels": { "kueue.x-k8s.io/queue-name": "team" } },
                "spec": { "suspend": false },
            });
            let orders = orders(&spec, &manifest, &Interpreters::default());
            assert_eq!(orders.ok().flatten().unwrap().stop, expected, "{kind}");
        }
    }

    #[test]
    fn only_custom_resources_are_workloads_by_a_rule_for_their_replicas() {
        for (api_version, kind, expected) in [
            ("example.com/v1", "Widget", true),
            ("apps/v1", "Deployment", false),
            ("apps/v1", "ControllerRevision", false),
            ("batch/v1", "Job", false),
            ("v1", "Service", false),
            ("policy/v1", "PodDisruptionBudget", false),
            ("autoscaling/v2", "HorizontalPodAutoscaler", false),
        ] {
            assert_eq!(needs_rule(api_version, kind), expected, "{kind}");
            let spec = spec(api_version, kind, 3, &json!({ "afterSeconds": 60 }));
            let is_fenced = expected || matches!(kind, "Deployment" | "Job");
            assert_eq!(asked(&spec).is_some(), is_fenced, "{kind}");
        }
    }

    #[test]
    fn a_custom_resource_with_a_rule_is_scaled_down_and_not_deleted() {
        let spec = spec(
            "example.com/v1",
            "Widget",
            3,
            &json!({ "afterSeconds": 60 }),
        );
        let scaled = "function ReviseReplica(o, n) o.spec.size = n return o end
            function GetReplicas(o) return o.spec.size or 0 end";
        let stuck = "function ReviseReplica(o, n) return o end
            function GetReplicas(o) return o.spec.size or 0 end";
        for (script, size, expected) in [
            (Some(scaled), 3, Some(json!({ "spec": { "size": 0 } }))),
            (Some(scaled), 0, Some(json!({}))),
            (Some(stuck), 3, None),
            (None, 3, None),
        ] {
            let scripts = script.into_iter().flat_map(|script| {
                [Operation::ReviseReplica, Operation::InterpretReplica]
                    .map(|operation| (operation, script.to_owned()))
            });
            let interpreters = Interpreters::of(&[muster_interpreter::lua::Customization {
                name: "w".to_owned(),
                api_version: "example.com/v1".to_owned(),
                kind: "Widget".to_owned(),
                scripts: scripts.collect(),
            }]);
            let manifest = json!({ "apiVersion": "example.com/v1", "kind": "Widget", "spec": { "size": size } });
            let orders = orders(&spec, &manifest, &interpreters);
            assert_eq!(
                orders.ok().flatten().unwrap().stop,
                expected,
                "{script:?} {size}"
            );
        }
    }

    #[test]
    fn the_longest_grace_of_any_pod_template_counts() {
        let template = |seconds| json!({ "spec": { "terminationGracePeriodSeconds": seconds } });
        let manifest = json!({ "spec": { "tasks": [{ "template": template(5) }, { "template": template(90) }] } });
        assert_eq!(grace(&manifest), Some(90));
        assert_eq!(grace(&json!({ "spec": { "replicas": 3 } })), None);
    }
}
