//! `kubectl muster explain`: the scheduler's own steps, told for one binding as it would be decided now.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use anyhow::Context;
use clap::ValueEnum;
use kube::Client;
use kube::api::{Api, ListParams};
use muster_shared::api::binding::{
    Binding, ClusterResourceBinding, ResourceBinding, TargetCluster,
};
use muster_shared::api::cluster::Cluster;
use muster_shared::client;
use muster_shared::k8s::{Condition, ResourceExt, Time};
use muster_shared::names::DEFAULT_SCHEDULER;
use muster_shared::names::annotation::APPLIED_PLACEMENT;
use serde::Serialize;

use crate::scheduler::explain::{Explanation, Fate, explain};
use crate::scheduler::need::need;
use crate::scheduler::outcome::record;
use crate::scheduler::{Options, Snapshot};

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum Format {
    /// A table for people.
    #[default]
    Table,
    /// JSON, for programs.
    Json,
    /// The same as YAML.
    Yaml,
}

/// Explains a ResourceBinding.
pub(super) async fn binding(
    client: Client,
    namespace: &str,
    name: &str,
    options: &Options,
) -> anyhow::Result<Answer> {
    let api: Api<ResourceBinding> = Api::namespaced(client.clone(), namespace);
    asked(client, api, name, options).await
}

/// Explains a ClusterResourceBinding.
pub(super) async fn cluster_binding(
    client: Client,
    name: &str,
    options: &Options,
) -> anyhow::Result<Answer> {
    let api: Api<ClusterResourceBinding> = Api::all(client.clone());
    asked(client, api, name, options).await
}

async fn asked<B: Binding>(
    client: Client,
    api: Api<B>,
    name: &str,
    options: &Options,
) -> anyhow::Result<Answer> {
    let said = |error: kube::Error| anyhow::anyhow!(client::brief(&error));
    let binding = api
        .get(name)
        .await
        .map_err(said)
        .with_context(|| format!("cannot read {} {name}", B::kind(&())))?;
    let clusters: Api<Cluster> = Api::all(client);
    let clusters = clusters
        .list(&ListParams::default())
        .await
        .map_err(said)
        .context("cannot list clusters")?;
    let snapshot = Snapshot::new(clusters.items.into_iter().map(Arc::new));
    Ok(Answer::about(&binding, &snapshot, options))
}

/// Where a binding is, and where it would go.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    /// Kind and name of what is placed.
    workload: String,
    /// Absent for what is not counted in replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<i32>,
    clusters: Vec<TargetCluster>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    leaving: Vec<Leaving>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Condition>,
    /// Why nobody here schedules it, whatever is said below.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_back: Option<String>,
    /// Why the scheduler would schedule it now; absent when it is where it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    need: Option<String>,
    /// Whether scheduling it now would change nothing.
    settled: bool,
    /// What would come of it, for each affinity group that would be tried. Empty without a placement.
    attempts: Vec<Explanation>,
}

#[derive(Debug, Serialize)]
struct Leaving {
    cluster: String,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Time>,
}

impl Answer {
    fn about<B: Binding>(binding: &B, snapshot: &Snapshot, options: &Options) -> Self {
        let (spec, status) = (binding.spec(), binding.status());
        let annotations = binding.annotations();
        let applied = annotations.get(APPLIED_PLACEMENT).map(String::as_str);
        let leaving = spec.graceful_eviction_tasks.iter().map(|task| Leaving {
            cluster: task.from_cluster.clone(),
            reason: task.reason.clone(),
            replicas: task.replicas,
            since: task.creation_timestamp.clone(),
        });
        let attempts = explain(spec, status, snapshot, options);
        Self {
            kind: B::kind(&()).into_owned(),
            namespace: binding.namespace(),
            name: binding.name_any(),
            workload: format!("{} {}", spec.resource.kind, spec.resource.name),
            replicas: spec.is_workload().then_some(spec.replicas),
            clusters: spec.clusters.clone(),
            leaving: leaving.collect(),
            conditions: status.conditions.clone(),
            held_back: held_back(binding),
            need: need(spec, status, applied, &record(spec), snapshot).map(|need| need.to_string()),
            settled: attempts
                .last()
                .is_some_and(|used| comes_to(used, &spec.clusters)),
            attempts,
        }
    }

    /// The answer as text.
    pub fn print(&self, format: Format) -> anyhow::Result<String> {
        Ok(match format {
            Format::Table => self.to_string(),
            Format::Json => format!("{}\n", serde_json::to_string_pretty(self)?),
            Format::Yaml => serde_saphyr::to_string(self)?,
        })
    }
}

/// Whether the group is used, and gives what the clusters have already.
fn comes_to(used: &Explanation, clusters: &[TargetCluster]) -> bool {
    let given = used.clusters.iter().filter_map(|line| match &line.fate {
        Fate::Fits(fit) => Some((line.name.as_str(), fit.given?)),
        _ => None,
    });
    let has = clusters
        .iter()
        .map(|target| (target.name.as_str(), i64::from(target.replicas)));
    used.failure.is_none() && given.collect::<BTreeMap<_, _>>() == has.collect()
}

impl fmt::Display for Leaving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.cluster, self.reason)?;
        if let Some(replicas) = self.replicas {
            write!(f, ", {replicas} replicas")?;
        }
        if let Some(since) = &self.since {
            write!(f, ", since {}", since.0)?;
        }
        f.write_str(")")
    }
}

/// Why our scheduler leaves a binding alone. Which name it goes by is a flag of the control plane, so that another one than the
/// usual is told and not judged.
fn held_back<B: Binding>(binding: &B) -> Option<String> {
    let spec = binding.spec();
    let scheduler = spec.scheduler_name.as_deref().unwrap_or_default();
    if binding.meta().deletion_timestamp.is_some() {
        Some("it is being deleted".to_owned())
    } else if spec.scheduling_suspended() {
        Some("spec.suspension.scheduling is true".to_owned())
    } else if scheduler.is_empty() || scheduler == DEFAULT_SCHEDULER {
        None
    } else {
        Some(format!(
            "its scheduler is {scheduler:?}, unless that is this control plane's --scheduler-name"
        ))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.namespace.iter().map(|it| format!("{it}/"));
        let name: String = namespace.chain([self.name.clone()]).collect();
        write!(f, "{} {name}: {}", self.kind, self.workload)?;
        match self.replicas {
            Some(replicas) => writeln!(f, ", {replicas} replicas")?,
            None => writeln!(f)?,
        }
        let each = self.clusters.iter().map(|it| match self.replicas {
            Some(_) => format!("{} ({})", it.name, it.replicas),
            None => it.name.clone(),
        });
        let each: Vec<String> = each.collect();
        let placed = if each.is_empty() {
            "no cluster".to_owned()
        } else {
            each.join(", ")
        };
        writeln!(f, "Placed on: {placed}")?;
        for leaving in &self.leaving {
            writeln!(f, "Leaving: {leaving}")?;
        }
        for condition in &self.conditions {
            let Condition {
                type_,
                status,
                reason,
                message,
                last_transition_time,
                ..
            } = condition;
            let since = last_transition_time.0;
            writeln!(f, "{type_}={status} since {since}: {reason} {message}")?;
        }
        if let Some(held_back) = &self.held_back {
            writeln!(f, "Not scheduled here: {held_back}")?;
        }
        if self.attempts.is_empty() {
            return writeln!(
                f,
                "\nIt has no placement: no policy has been applied to it yet."
            );
        }
        match &self.need {
            None => writeln!(
                f,
                "It is where it should be. A new schedule would come to this:"
            )?,
            Some(_) if self.settled => writeln!(
                f,
                "It is where it should be: a new schedule would change nothing."
            )?,
            Some(need) => writeln!(f, "To be scheduled: {need}")?,
        }
        for attempt in &self.attempts {
            let group = &attempt.group;
            if !group.is_empty() {
                write!(f, "\nAffinity group {group}:")?;
            }
            write!(f, "\n{attempt}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cluster(name: &str, cores: &str) -> Value {
        json!({
            "metadata": { "name": name },
            "spec": {},
            "status": {
                "apiEnablements": [
                    { "groupVersion": "apps/v1", "resources": [{ "name": "deployments", "kind": "Deployment" }] },
                ],
                "resourceSummary": { "allocatable": { "cpu": cores, "pods": "1000" } },
            },
        })
    }

    /// A workload in the middle of a failover, over clusters of every fate.
    fn answer() -> Answer {
        let binding: ResourceBinding = serde_json::from_value(json!({
            "metadata": { "name": "web-deployment", "namespace": "shop" },
            "spec": {
                "resource": { "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web" },
                "replicas": 6,
                "replicaRequirements": { "resourceRequest": { "cpu": "1" } },
                "clusters": [{ "name": "m1", "replicas": 2 }, { "name": "m5", "replicas": 1 }],
                "gracefulEvictionTasks": [{
                    "fromCluster": "m4", "reason": "TaintUntolerated", "producer": "TaintManager", "replicas": 3,
                    "creationTimestamp": "2024-01-01T00:02:00Z",
                }],
                "suspension": { "scheduling": true },
                "placement": {
                    "clusterAffinity": { "exclude": ["m3"] },
                    "replicaScheduling": {
                        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
                    },
                },
            },
            "status": { "conditions": [{
                "type": "Scheduled", "status": "True", "reason": "Success", "message": "Binding has been scheduled successfully.",
                "lastTransitionTime": "2024-01-01T00:00:00Z",
            }] },
        }))
        .unwrap();
        let mut clusters = ["m1", "m2", "m3", "m4", "m5", "m6"].map(|name| cluster(name, "10"));
        clusters[3]["spec"]["taints"] = json!([{ "key": "x", "effect": "NoExecute" }]);
        clusters[3]["status"]["apiEnablements"] = json!([]);
        clusters[4]["spec"]["taints"] = json!([{ "key": "x", "effect": "NoSchedule" }]);
        clusters[5]["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
        let clusters = clusters.map(|it| Arc::new(serde_json::from_value(it).unwrap()));
        Answer::about(&binding, &Snapshot::new(clusters), &Options::default())
    }

    #[test]
    fn people_get_a_table_of_all_clusters() {
        let expected = "\
ResourceBinding shop/web-deployment: Deployment web, 6 replicas
Placed on: m1 (2), m5 (1)
Leaving: m4 (TaintUntolerated, 3 replicas, since 2024-01-01T00:02:00Z)
Scheduled=True since 2024-01-01T00:00:00Z: Success Binding has been scheduled successfully.
Not scheduled here: spec.suspension.scheduling is true
To be scheduled: its placement is not the one that was applied last

CLUSTER  FITS  SCORE  CAPACITY  HOLDS  GIVEN  WHY
m1       yes   100    10        2      5
m2       yes   0      10        -      -      not needed
m3       no    -      -         -      -      ClusterAffinity: cluster(s) did not match the placement cluster affinity constraint
m4       no    -      -         -      -      APIEnablement: cluster(s) did not have the API resource; \
TaintToleration: cluster(s) had untolerated taint {x:NoExecute}; ClusterEviction: cluster(s) is in the process of eviction
m5       yes   100    0         1      1      keeps what it holds, admits no more: cluster(s) had untolerated taint {x:NoSchedule}
m6       no    -      -         -      -      is being deleted
";
        assert_eq!(answer().print(Format::Table).unwrap(), expected);
    }

    #[test]
    fn programs_get_the_same_as_json_and_yaml() {
        let json: Value = serde_json::from_str(&answer().print(Format::Json).unwrap()).unwrap();
        assert_eq!(json["kind"], "ResourceBinding");
        assert_eq!(json["clusters"][0], json!({ "name": "m1", "replicas": 2 }));
        let clusters = &json["attempts"][0]["clusters"];
        assert_eq!(
            clusters[0],
            json!({
                "name": "m1", "fate": "fits", "score": 100, "tier": 0, "capacity": 10, "holds": 2,
                "closed": false, "selected": true, "given": 5,
            })
        );
        assert_eq!(
            clusters[2],
            json!({ "name": "m3", "fate": "refused", "by": [{
                "filter": "ClusterAffinity",
                "reason": "cluster(s) did not match the placement cluster affinity constraint",
            }] })
        );
        assert_eq!(clusters[5], json!({ "name": "m6", "fate": "deleting" }));
        let yaml: Value = serde_saphyr::from_str(&answer().print(Format::Yaml).unwrap()).unwrap();
        assert_eq!(yaml, json);
    }

    #[test]
    fn what_a_new_schedule_would_not_change_is_said_to_be_settled() {
        let clusters = [cluster("m1", "10"), cluster("m2", "10")];
        let clusters = clusters.map(|it| Arc::new(serde_json::from_value(it).unwrap()));
        let snapshot = Snapshot::new(clusters);
        for (targets, expected) in [
            (
                json!([{ "name": "m2", "replicas": 2 }, { "name": "m1", "replicas": 2 }]),
                "It is where it should be: a new schedule would change nothing.",
            ),
            (
                json!([{ "name": "m1", "replicas": 2 }]),
                "To be scheduled: it is not divided, so each change may concern it",
            ),
        ] {
            let binding: ResourceBinding = serde_json::from_value(json!({
                "metadata": { "annotations": { "policy.karmada.io/applied-placement": "{}" } },
                "spec": {
                    "resource": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
                    "replicas": 2, "clusters": targets, "placement": {},
                },
            }))
            .unwrap();
            let answer = Answer::about(&binding, &snapshot, &Options::default());
            assert!(answer.to_string().contains(expected), "{answer}");
        }
    }
}
