//! The workloads that must survive, and what the fleet shows of them.

use std::collections::{BTreeMap, BTreeSet};

use muster_sandbox::picture::{self, ClusterView, Picture, Workload};
use muster_shared::names;
use muster_test_fleet::harness::observer::View;

/// How a workload is spread over the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spread {
    /// Replicas divided over all members with room.
    Divided,
    /// All replicas in one member.
    Single,
    /// All replicas in each of two members.
    Pair,
    /// A ConfigMap in two members.
    Settings,
}

impl Spread {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Divided, Self::Single, Self::Pair, Self::Settings];

    /// Returns the value of the label by which the policy selects these workloads.
    const fn label(self) -> &'static str {
        match self {
            Self::Divided => "divided",
            Self::Single => "single",
            Self::Pair => "pair",
            Self::Settings => "settings",
        }
    }

    /// Returns the kind of these workloads.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Settings => "ConfigMap",
            Self::Divided | Self::Single | Self::Pair => "Deployment",
        }
    }

    /// Replicas of the template.
    pub const fn replicas(self) -> i64 {
        match self {
            Self::Divided => 4,
            Self::Single | Self::Pair => 2,
            Self::Settings => 1,
        }
    }

    /// Members that have a complete copy; `None`: the replicas are shared by any number of members.
    pub const fn copies(self) -> Option<usize> {
        match self {
            Self::Divided => None,
            Self::Single => Some(1),
            Self::Pair | Self::Settings => Some(2),
        }
    }

    fn placement(self) -> &'static str {
        match self {
            Self::Divided => {
                "    replicaScheduling:
      replicaSchedulingType: Divided
      replicaDivisionPreference: Weighted
      weightPreference:
        dynamicWeight: AvailableReplicas
"
            }
            Self::Single => {
                "    spreadConstraints:
      - spreadByField: cluster
        minGroups: 1
        maxGroups: 1
    replicaScheduling:
      replicaSchedulingType: Divided
      replicaDivisionPreference: Weighted
      weightPreference:
        dynamicWeight: AvailableReplicas
"
            }
            Self::Pair | Self::Settings => {
                "    spreadConstraints:
      - spreadByField: cluster
        minGroups: 2
        maxGroups: 2
    replicaScheduling:
      replicaSchedulingType: Duplicated
"
            }
        }
    }

    fn policy(self) -> String {
        let (label, placement) = (self.label(), self.placement());
        let version = match self.kind() {
            "ConfigMap" => "v1",
            _ => "apps/v1",
        };
        format!(
            "apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata:
  name: {label}
  namespace: default
spec:
  resourceSelectors:
    - apiVersion: {version}
      kind: {kind}
      labelSelector:
        matchLabels:
          spread: {label}
  placement:
    clusterTolerations:
      - key: example.com/failed
        operator: Exists
        effect: NoExecute
        tolerationSeconds: 1
{placement}---
",
            kind = self.kind()
        )
    }
}

/// A workload: its spread and its name.
pub type Key = (Spread, String);

/// Returns so many workloads, each of the next spread in turn.
pub fn workloads(count: usize) -> Vec<Key> {
    let spreads = Spread::ALL.into_iter().cycle();
    (0..count)
        .zip(spreads)
        .map(|(number, spread)| (spread, format!("{}-{number}", spread.label())))
        .collect()
}

/// Returns the manifests of workloads, and of the policies that place them.
pub fn manifests(workloads: &[Key]) -> String {
    let policies = Spread::ALL.into_iter().map(Spread::policy);
    let templates = workloads.iter().map(|(spread, name)| {
        let label = spread.label();
        match spread.kind() {
            "ConfigMap" => format!(
                "apiVersion: v1
kind: ConfigMap
metadata:
  name: {name}
  namespace: default
  labels: {{spread: {label}}}
data:
  GREETING: hello
---
"
            ),
            _ => format!(
                "apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
  namespace: default
  labels: {{spread: {label}}}
spec:
  replicas: {replicas}
  selector:
    matchLabels: {{app: {name}}}
  template:
    metadata:
      labels: {{app: {name}}}
    spec:
      containers:
        - name: nginx
          image: nginx:1.29
          resources:
            requests: {{cpu: 50m, memory: 64Mi}}
---
",
                replicas = spread.replicas()
            ),
        }
    });
    policies.chain(templates).collect()
}

/// The fleet at one moment.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    /// The clusters by name.
    pub clusters: BTreeMap<String, ClusterView>,
    /// The workloads.
    pub workloads: BTreeMap<Key, Workload>,
    /// Workloads (kind and name) for which a cluster has a Work.
    pub works: BTreeMap<String, BTreeSet<(String, String)>>,
}

impl Scene {
    /// Takes the workloads out of what was observed.
    pub fn of(view: &View, workloads: &[Key]) -> Self {
        let seen = workloads.iter().map(|key| {
            let (spread, name) = key;
            (key.clone(), picture::workload(view, spread.kind(), name))
        });
        let mut works: BTreeMap<String, BTreeSet<(String, String)>> = BTreeMap::new();
        for work in view.works.list() {
            let namespace = work.metadata.namespace.as_deref().unwrap_or_default();
            let Some(cluster) = names::cluster_of_execution_namespace(namespace) else {
                continue;
            };
            let manifests = work.spec.workload.manifests.iter();
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            works.entry(cluster.to_owned()).or_default().extend(
                manifests
                    .map(|object| (text(&object.0["kind"]), text(&object.0["metadata"]["name"]))),
            );
        }
        Self {
            clusters: Picture::of(view).clusters,
            workloads: seen.collect(),
            works,
        }
    }

    /// Workloads that are placed on a cluster.
    pub fn placed_on(&self, cluster: &str) -> usize {
        let placed = |workload: &&Workload| {
            workload
                .placed
                .as_ref()
                .is_some_and(|placed| placed.contains_key(cluster))
        };
        self.workloads.values().filter(placed).count()
    }
}
