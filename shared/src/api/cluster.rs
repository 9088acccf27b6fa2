//! `Cluster` (`cluster.karmada.io/v1alpha1`): a member of the fleet, how to reach it, what it reported.
//!
//! Karmada serves this kind from an aggregated API server; here it is a CustomResourceDefinition, so its
//! admission rules stand in the schema.

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
    /// A member cluster: how to reach it, which taints keep work away from it, and what it reported last.
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
            Column::text("Taints", ".spec.taints[*].key").wide(),
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
    /// Who carries objects into the member.
    ClusterSyncMode {
        /// The control plane connects to the member. Muster's does not do so yet: such a cluster is Karmada's to carry, and says so in an event.
        Push = "Push",
        /// An agent in the member connects to the control plane.
        Pull = "Pull",
    }
}

/// How to reach a member cluster, and what it offers.
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
    /// Identifies the cluster wherever it is registered: the uid of its namespace `kube-system`. Set once, it stays.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("maxLength" = 128_000))]
    pub id: Option<String>,

    /// Who carries objects into the member: `Pull`, an agent in the member, or `Push`, Karmada's control plane beside Muster's, which
    /// itself carries nothing into such a cluster.
    pub sync_mode: ClusterSyncMode,

    /// Address of the member's API server, for instance `https://10.0.0.1:6443`.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("maxLength" = 2048, "x-kubernetes-validations" = [{
        "rule": "self == '' || (isURL(self) && url(self).getHost() != '' && !self.contains('@') && !self.contains('#') && !self.contains('?'))",
        "message": "an API endpoint is a URL with a host, without user, query and fragment",
    }]))]
    pub api_endpoint: Option<String>,

    /// Secret with the credentials for the member: `token` and `caBundle`.
    #[serde(skip_serializing_if = "absent")]
    pub secret_ref: Option<LocalSecretReference>,

    /// Secret with the `token` of an account that may impersonate users in the member.
    #[serde(skip_serializing_if = "absent")]
    pub impersonator_secret_ref: Option<LocalSecretReference>,

    /// Accept whatever certificate the member shows.
    #[serde(rename = "insecureSkipTLSVerification", skip_serializing_if = "absent")]
    pub insecure_skip_tls_verification: bool,

    /// Proxy in front of the member: `http`, `https` or `socks5`.
    #[serde(rename = "proxyURL", skip_serializing_if = "absent")]
    #[schemars(extend("pattern" = "^((http|https|socks5)://.*)?$"))]
    pub proxy_url: Option<String>,

    /// Headers for the proxy; several values of one header are separated by commas.
    #[serde(skip_serializing_if = "absent")]
    pub proxy_header: BTreeMap<String, String>,

    /// Cloud provider. A label value, as are region and zones.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("maxLength" = 63, "pattern" = schema::LABEL_VALUE))]
    pub provider: Option<String>,

    /// Region.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("maxLength" = 63, "pattern" = schema::LABEL_VALUE))]
    pub region: Option<String>,

    /// Zone. Deprecated: use `zones`.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("maxLength" = 63, "pattern" = schema::LABEL_VALUE))]
    pub zone: Option<String>,

    /// Zones.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::label_values")]
    pub zones: Vec<String>,

    /// Taints. `NoSchedule` keeps new workloads away, `NoExecute` drives out those that do not tolerate it,
    /// `PreferNoExecute` drives out those that asked for it with `failover.cluster`.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::taints")]
    pub taints: Vec<Taint>,

    /// Grades by which the free capacity of nodes is counted. Empty on creation: nine default grades.
    #[serde(skip_serializing_if = "absent")]
    pub resource_models: Vec<ResourceModel>,
}

/// A secret in a named namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name", "namespace"]))]
pub struct LocalSecretReference {
    /// Namespace of the secret.
    #[schemars(length(min = 1))]
    pub namespace: String,
    /// Name of the secret.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// One grade: the ranges of free resources that a node of this grade has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["grade", "ranges"]))]
pub struct ResourceModel {
    /// Index of the grade; a higher grade has more free resources.
    pub grade: u64,
    /// One range per resource; every grade lists the same resources in the same order.
    #[serde(deserialize_with = "nullable")]
    pub ranges: Vec<ResourceModelRange>,
}

/// A half-open range of a resource: `min` belongs to it, `max` does not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["max", "min", "name"]))]
pub struct ResourceModelRange {
    /// Resource name, such as `cpu`.
    pub name: String,
    /// Lower end; zero in the first grade.
    #[serde(deserialize_with = "quantity")]
    #[schemars(schema_with = "schema::quantity")]
    pub min: Quantity,
    /// Upper end; 9223372036854775807 in the last grade.
    #[serde(deserialize_with = "quantity")]
    #[schemars(schema_with = "schema::quantity")]
    pub max: Quantity,
}

/// What the member reported last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterStatus {
    /// Version of the member's API server.
    #[serde(skip_serializing_if = "absent")]
    pub kubernetes_version: Option<String>,

    /// The kinds that the member serves.
    #[serde(skip_serializing_if = "absent")]
    pub api_enablements: Vec<APIEnablement>,

    /// Judgements about the member; `Ready` decides about taints.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Counts of nodes.
    #[serde(skip_serializing_if = "absent")]
    pub node_summary: Option<NodeSummary>,

    /// Sums of resources.
    #[serde(skip_serializing_if = "absent")]
    pub resource_summary: Option<ResourceSummary>,

    /// What should be done about the member; written by remedy controllers, left alone by us.
    #[serde(skip_serializing_if = "absent")]
    pub remedy_actions: Vec<String>,
}

/// The kinds of one group version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["groupVersion"]))]
pub struct APIEnablement {
    /// Group and version, such as `apps/v1`.
    pub group_version: String,
    /// The kinds in it, subresources left out.
    #[serde(skip_serializing_if = "absent")]
    pub resources: Vec<APIResource>,
}

/// One kind that a member serves.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["kind", "name"]))]
pub struct APIResource {
    /// Plural name.
    pub name: String,
    /// Kind.
    pub kind: String,
}

/// Counts of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSummary {
    /// All nodes.
    #[serde(skip_serializing_if = "absent")]
    pub total_num: i32,
    /// Nodes whose condition Ready is True.
    #[serde(skip_serializing_if = "absent")]
    pub ready_num: i32,
}

/// Sums of resources over all nodes and pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSummary {
    /// What nodes offer to pods.
    #[serde(skip_serializing_if = "absent", deserialize_with = "quantities")]
    #[schemars(schema_with = "schema::resource_list")]
    pub allocatable: BTreeMap<String, Quantity>,

    /// What pods ask for that no node has been found for yet.
    #[serde(skip_serializing_if = "absent", deserialize_with = "quantities")]
    #[schemars(schema_with = "schema::resource_list")]
    pub allocating: BTreeMap<String, Quantity>,

    /// What pods on nodes ask for.
    #[serde(skip_serializing_if = "absent", deserialize_with = "quantities")]
    #[schemars(schema_with = "schema::resource_list")]
    pub allocated: BTreeMap<String, Quantity>,

    /// Nodes by grade of what is free on them.
    #[serde(skip_serializing_if = "absent")]
    pub allocatable_modelings: Vec<AllocatableModeling>,
}

/// How many nodes are of a grade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["count", "grade"]))]
pub struct AllocatableModeling {
    /// Index of the grade.
    pub grade: u64,
    /// Nodes of the grade.
    pub count: i64,
}

/// Whether a member serves a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum APIEnablementStatus {
    /// It does.
    Enabled,
    /// It does not.
    Disabled,
    /// Discovery was incomplete, so nobody knows.
    Unknown,
}

impl Cluster {
    /// The condition of a type, if the member reported one.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status
            .as_ref()?
            .conditions
            .iter()
            .find(|condition| condition.type_ == kind)
    }

    /// Zones of the cluster, the deprecated single `zone` included (Karmada moves it on write).
    pub fn zones(&self) -> impl Iterator<Item = &str> {
        let single = self.spec.zone.iter().filter(|_| self.spec.zones.is_empty());
        self.spec
            .zones
            .iter()
            .chain(single)
            .map(String::as_str)
            .filter(|zone| !zone.is_empty())
    }

    /// Whether the member serves a kind. A missing kind counts as disabled only when discovery was complete.
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
