//! `Cluster` (`cluster.karmada.io/v1alpha1`): a member cluster of the fleet.
//!
//! Karmada serves this kind from an aggregated API server. Here it is a CustomResourceDefinition,
//! so the schema carries the validation.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::Taint,
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Condition},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    absent,
    definition::{Column, Rule},
    macros::{open_enum, resource},
    nullable, quantities, quantity, schema,
};

resource! {
    /// A member cluster of the fleet: its address, location and taints, and the health and capacity
    /// that its agent reports.
    Cluster {
        group: "cluster.karmada.io",
        version: "v1alpha1",
        plural: "clusters",
        scope: Cluster,
        spec: ClusterSpec,
        status: ClusterStatus,
        columns: [
            Column::text("Version", ".status.kubernetesVersion"),
            Column::text("Mode", ".spec.syncMode"),
            Column::text("Ready", r#".status.conditions[?(@.type=="Ready")].status"#),
            Column::text("Reason", r#".status.conditions[?(@.type=="Ready")].reason"#),
            Column::date("Since", r#".status.conditions[?(@.type=="Ready")].lastTransitionTime"#),
            Column::age("Age"),
            // What a silent cluster reported last stays in its status, so that the titles say so.
            Column::integer("Nodes-Reported", ".status.nodeSummary.totalNum").wide(),
            Column::integer("Reported-Ready", ".status.nodeSummary.readyNum").wide(),
            // A column shows only the first match of a path with `[*]`, but a list whole.
            Column::text("Taints", ".spec.taints").wide(),
            Column::text("Zones", ".spec.zones").wide(),
            Column::text("Region", ".spec.region").wide(),
            Column::text("Provider", ".spec.provider").wide(),
            Column::text("API-Endpoint", ".spec.apiEndpoint").wide(),
            Column::text("Proxy-URL", ".spec.proxyURL").wide(),
        ],
        rules: [
            Rule {
                rule: "self.metadata.name.size() <= 48 && !self.metadata.name.contains('.')",
                message: "the name of a cluster is a DNS label of at most 48 characters, because namespaces are named after it",
            },
        ],
    }
}

open_enum! {
    /// Component that writes objects into the member.
    ClusterSyncMode {
        /// The control plane connects to the member with the credentials of `secretRef`
        /// (controllers `clusterStatus`, `execution` and `workStatus`).
        Push = "Push",
        /// An agent in the member connects to the control plane.
        Pull = "Pull",
    }
}

/// Desired state of a member cluster: identity, address, location, taints and resource models.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend(
    "required" = ["syncMode"],
    "x-kubernetes-validations" = [{
        "rule": "!(has(self.zone) && has(self.zones))",
        "message": "zone is deprecated and cannot be set together with zones",
    }, {
        "rule": "!has(oldSelf.id) || oldSelf.id == '' || (has(self.id) && self.id == oldSelf.id)",
        "message": "the id of a cluster is set once: a member with another id is another cluster",
    }],
))]
pub struct ClusterSpec {
    /// Identifier of the member: the UID of its namespace `kube-system`. Set by the agent when it
    /// registers the member, and immutable from then on. A second Cluster with the same identifier
    /// gets the condition `UniqueIdentity`=False and no new workloads.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("maxLength" = 128_000))]
    pub id: Option<String>,

    /// Component that writes objects into the member.
    ///
    /// - `Pull`: an agent in the member, which reads Works from the fleet API.
    /// - `Push`: the control plane, which connects to the member at `apiEndpoint` with the
    ///   credentials of `secretRef`. The condition `Monitored` says whether it is connected.
    pub sync_mode: ClusterSyncMode,

    /// URL of the member's API server, for example `https://10.0.0.1:6443`. Set by the agent from
    /// `--cluster-api-endpoint` or from its kubeconfig. Required for `syncMode` Push, in which the
    /// control plane connects to it.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("maxLength" = 2048, "x-kubernetes-validations" = [{
        "rule": "self == '' || (isURL(self) && url(self).getHost() != '' && !self.contains('@') && !self.contains('#') && !self.contains('?'))",
        "message": "an API endpoint is a URL with a host, without user, query and fragment",
    }]))]
    pub api_endpoint: Option<String>,

    /// Secret with credentials for the member: `token`, and `caBundle` with the certificates (PEM)
    /// of its authority. Required for `syncMode` Push: the Secret must have the name of the Cluster
    /// in the namespace `karmada-cluster`, or the label `failover.muster.io/cluster` with that
    /// name. A bound service account token in it is renewed at half of its life. In `syncMode`
    /// Pull the agent writes it with `--report-secrets=KubeCredentials`, for Karmada's components.
    #[serde(skip_serializing_if = "absent")]
    pub secret_ref: Option<LocalSecretReference>,

    /// Secret with the `token` of an account that may impersonate users in the member. Written by
    /// the agent with `--report-secrets=KubeImpersonator`, for Karmada's components; Muster does
    /// not read it.
    #[serde(skip_serializing_if = "absent")]
    pub impersonator_secret_ref: Option<LocalSecretReference>,

    /// If true, clients accept any certificate that the member's API server presents. Set by the
    /// agent if its kubeconfig says so. The control plane obeys it in `syncMode` Push. Absent means
    /// false.
    #[serde(rename = "insecureSkipTLSVerification", skip_serializing_if = "absent")]
    pub insecure_skip_tls_verification: bool,

    /// URL of the proxy through which the member's API server is reached; the scheme is `http`,
    /// `https` or `socks5`. Set by the agent from `--proxy-server-address`. The control plane uses
    /// it in `syncMode` Push. If absent, the member is reached directly.
    #[serde(rename = "proxyURL", skip_serializing_if = "absent")]
    #[schemars(extend("pattern" = "^((http|https|socks5)://.*)?$"))]
    pub proxy_url: Option<String>,

    /// HTTP headers that are sent to the proxy, by name; multiple values of one header are
    /// separated by commas. Muster does not act on it.
    #[serde(skip_serializing_if = "absent")]
    pub proxy_header: BTreeMap<String, String>,

    /// Name of the cloud provider; must be a valid label value. Used by field selectors and spread
    /// constraints. Set by the agent from `--cluster-provider`.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("maxLength" = 63, "pattern" = schema::LABEL_VALUE))]
    pub provider: Option<String>,

    /// Region of the member; must be a valid label value. Used by field selectors and spread
    /// constraints. Set by the agent from `--cluster-region`.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("maxLength" = 63, "pattern" = schema::LABEL_VALUE))]
    pub region: Option<String>,

    /// Deprecated: use `zones`. Zone of the member; counts as the only entry of `zones`. Excludes
    /// `zones`.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("maxLength" = 63, "pattern" = schema::LABEL_VALUE))]
    pub zone: Option<String>,

    /// Zones that the member's nodes are in; each must be a valid label value. Used by field
    /// selectors and spread constraints. Set by the agent from `--cluster-zones`.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::label_values")]
    pub zones: Vec<String>,

    /// Taints of the cluster. At most one taint has a given key and effect.
    ///
    /// - `NoSchedule`: keeps out new resources that do not tolerate the taint.
    /// - `NoExecute`: keeps out new resources that do not tolerate the taint and, if the feature
    ///   gate `Failover` is on, evicts those that are there.
    /// - `PreferNoExecute`: keeps out new resources, whatever they tolerate, and, if the feature
    ///   gate `Failover` is on, evicts those that have `failover.cluster`.
    /// - `PreferNoSchedule`: another cluster is chosen, if one fits, for a new resource that does
    ///   not tolerate the taint.
    ///
    /// Written by the cluster controller (`cluster.karmada.io/not-ready` and
    /// `cluster.karmada.io/unreachable`), by ClusterTaintPolicies and by users.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::taints")]
    pub taints: Vec<Taint>,

    /// Grades by which the agent counts nodes according to their free resources, and by which the
    /// scheduler estimates how many replicas fit (`--node-grades`). Grades must be contiguous: the
    /// first begins at 0, the last ends at 9223372036854775807. A new Cluster without grades is
    /// given nine default ones by CPU and memory. If empty, the scheduler estimates from
    /// `status.resourceSummary` alone.
    #[serde(skip_serializing_if = "absent")]
    pub resource_models: Vec<ResourceModel>,
}

/// Reference to a Secret in the fleet API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name", "namespace"]))]
pub struct LocalSecretReference {
    /// Namespace of the referenced Secret.
    #[schemars(length(min = 1))]
    pub namespace: String,
    /// Name of the referenced Secret.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// One grade of nodes, defined by ranges of free resources.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["grade", "ranges"]))]
pub struct ResourceModel {
    /// Number of the grade, from 0; unique in the list. A higher grade has more free resources.
    pub grade: u64,
    /// Ranges of free resources that a node of this grade has. All grades list the same resources
    /// in the same order. A node is of the lowest grade that any of its resources is in.
    #[serde(deserialize_with = "nullable")]
    pub ranges: Vec<ResourceModelRange>,
}

/// Range of the free amount of one resource. `min` belongs to the range, `max` does not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["max", "min", "name"]))]
pub struct ResourceModelRange {
    /// Name of the resource, such as `cpu` or `memory`.
    pub name: String,
    /// Lower end of the range, inclusive. Must be 0 in the first grade, and the `max` of the grade
    /// before in the others.
    #[serde(deserialize_with = "quantity")]
    #[schemars(schema_with = "schema::quantity")]
    pub min: Quantity,
    /// Upper end of the range, exclusive. Must be greater than `min`, and 9223372036854775807 in
    /// the last grade.
    #[serde(deserialize_with = "quantity")]
    #[schemars(schema_with = "schema::quantity")]
    pub max: Quantity,
}

/// Observed state of a member cluster, as its agent last reported it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterStatus {
    /// Version of the member's API server, such as `v1.33.1`.
    #[serde(skip_serializing_if = "absent")]
    pub kubernetes_version: Option<String>,

    /// Kinds that the member serves. The scheduler places a resource only in clusters that list its
    /// kind, or that have it already. If discovery was incomplete, the condition
    /// `CompleteAPIEnablements` is not True.
    #[serde(skip_serializing_if = "absent")]
    pub api_enablements: Vec<APIEnablement>,

    /// Conditions of the cluster. ClusterTaintPolicies can match every type, including those that
    /// other controllers add.
    ///
    /// - `Ready`: the member's API server answers and is healthy. Unknown if the agent has stopped
    ///   renewing its lease.
    /// - `CompleteAPIEnablements`: `apiEnablements` is complete.
    /// - `StatusUpToDate`: how old the rest of the status is, and why.
    /// - `WorksUpToDate`: the agent can read the Works for this member.
    /// - `NodesReady` and `ServiceDomainNameResolutionReady`: only if the agent's flags ask for
    ///   them.
    /// - `APIServerResponsive` and `EgressReady`: likewise.
    /// - `SeenByPeers` and `WorkloadsHealthy`: agents of other clusters reach this one; workloads
    ///   that are healthy elsewhere are healthy here. Only if the control plane's flags ask for
    ///   them.
    /// - `reaches.muster.io/` and the name of another cluster: the agent reaches that one.
    /// - `UniqueIdentity`: no other Cluster is the same member. Set if there was a doubt.
    /// - `Monitored`: the control plane watches the cluster's lease. Set if it does not.
    #[serde(
        skip_serializing_if = "absent",
        deserialize_with = "super::conditions::decoded"
    )]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Number of nodes of the member. Absent if the agent does not collect it.
    #[serde(skip_serializing_if = "absent")]
    pub node_summary: Option<NodeSummary>,

    /// Total resources of the member's nodes and pods. Absent if the agent does not collect them
    /// (`--enable-cluster-resource-modeling=false`).
    #[serde(skip_serializing_if = "absent")]
    pub resource_summary: Option<ResourceSummary>,

    /// Actions that Karmada's remedy controller asks for. Muster neither writes nor acts on them.
    #[serde(skip_serializing_if = "absent")]
    pub remedy_actions: Vec<String>,
}

/// Kinds of one API group and version that the member serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["groupVersion"]))]
pub struct APIEnablement {
    /// API group and version, such as `apps/v1`; `v1` for the core group.
    pub group_version: String,
    /// Kinds in this group and version, without subresources.
    #[serde(skip_serializing_if = "absent")]
    pub resources: Vec<APIResource>,
}

/// Kind that the member serves.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["kind", "name"]))]
pub struct APIResource {
    /// Plural name of the kind, such as `deployments`.
    pub name: String,
    /// Kind as in manifests, such as `Deployment`.
    pub kind: String,
}

/// Number of nodes of the member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSummary {
    /// Number of all nodes. Absent means 0.
    #[serde(skip_serializing_if = "absent")]
    pub total_num: i32,
    /// Number of nodes whose condition `Ready` is True. Absent means 0.
    #[serde(skip_serializing_if = "absent")]
    pub ready_num: i32,
}

/// Totals over the nodes and pods of the member, by resource name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSummary {
    /// Resources that nodes offer to pods. Of a node that takes no new pods (cordoned or not ready)
    /// only what its pods use is counted, so that `allocatable` minus `allocated` is free.
    #[serde(skip_serializing_if = "absent", deserialize_with = "quantities")]
    #[schemars(schema_with = "schema::resource_list")]
    pub allocatable: BTreeMap<String, Quantity>,

    /// Resources requested by pods that have no node yet.
    #[serde(skip_serializing_if = "absent", deserialize_with = "quantities")]
    #[schemars(schema_with = "schema::resource_list")]
    pub allocating: BTreeMap<String, Quantity>,

    /// Resources requested by pods that have a node and have not finished.
    #[serde(skip_serializing_if = "absent", deserialize_with = "quantities")]
    #[schemars(schema_with = "schema::resource_list")]
    pub allocated: BTreeMap<String, Quantity>,

    /// Number of nodes of each grade of `spec.resourceModels`, by their free resources. Empty if
    /// there are no grades.
    #[serde(skip_serializing_if = "absent")]
    pub allocatable_modelings: Vec<AllocatableModeling>,
}

/// Number of nodes of one grade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["count", "grade"]))]
pub struct AllocatableModeling {
    /// Number of the grade, as in `spec.resourceModels`.
    pub grade: u64,
    /// Number of nodes of this grade that take new pods.
    pub count: i64,
}

/// Whether a member serves a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum APIEnablementStatus {
    /// The member serves the kind.
    Enabled,
    /// The member does not serve the kind, and discovery was complete.
    Disabled,
    /// The kind is not listed, and discovery was incomplete.
    Unknown,
}

impl Cluster {
    /// Returns the conditions of the cluster; none before the first are reported.
    pub fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |it| &it.conditions)
    }

    /// Returns the condition of a type, if the cluster has it.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions().iter().find(|it| it.type_ == kind)
    }

    /// Returns the status of the condition of a type, if the cluster has it.
    pub fn condition_status(&self, kind: &str) -> Option<&str> {
        Some(&self.condition(kind)?.status)
    }

    /// Returns whether the cluster has the condition of a type, and that is True.
    pub fn is_true(&self, kind: &str) -> bool {
        self.condition_status(kind) == Some("True")
    }

    /// Returns the kinds that the cluster reports to serve.
    pub fn enablements(&self) -> &[APIEnablement] {
        let status = self.status.as_ref();
        status.map_or(&[], |status| &status.api_enablements)
    }

    /// Returns the zones of the cluster, including the deprecated `zone`, which Karmada moves to
    /// `zones` when it writes.
    pub fn zones(&self) -> impl Iterator<Item = &str> {
        let single = self.spec.zone.iter().filter(|_| self.spec.zones.is_empty());
        self.spec
            .zones
            .iter()
            .chain(single)
            .map(String::as_str)
            .filter(|zone| !zone.is_empty())
    }

    /// Returns whether the member serves a kind. A kind that is not listed counts as disabled only
    /// if discovery was complete.
    pub fn api_enablement(&self, api_version: &str, kind: &str) -> APIEnablementStatus {
        let listed = self.status.as_ref().is_some_and(|status| {
            status.api_enablements.iter().any(|enablement| {
                enablement.group_version == api_version
                    && enablement
                        .resources
                        .iter()
                        .any(|resource| resource.kind == kind)
            })
        });
        let complete = || {
            self.condition("CompleteAPIEnablements")
                .is_some_and(|condition| condition.status == "True")
        };
        if listed {
            APIEnablementStatus::Enabled
        } else if complete() {
            APIEnablementStatus::Disabled
        } else {
            APIEnablementStatus::Unknown
        }
    }
}
