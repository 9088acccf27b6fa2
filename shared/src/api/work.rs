//! `Work` (`work.karmada.io/v1alpha1`): objects for one member, and their state there. A Work is in
//! the execution namespace of its member.

use k8s_openapi::apimachinery::pkg::{apis::meta::v1::Condition, runtime::RawExtension};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::{
    absent, binding::ResourceHealth, definition::Column, macros::resource, nullable, schema,
};

resource! {
    /// Objects that an agent applies to one member cluster, and their state there.
    ///
    /// A Work is in the namespace `karmada-es-<cluster>` of its member. The control plane writes
    /// the spec; the member's agent applies the objects by server-side apply and writes the status.
    Work {
        group: "work.karmada.io",
        version: "v1alpha1",
        plural: "works",
        scope: Namespaced,
        spec: WorkSpec,
        status: WorkStatus,
        short_names: ["wk"],
        categories: ["karmada-io"],
        columns: [
            Column::text("WORKLOAD-KIND", ".spec.workload.manifests[*].kind"),
            Column::text("APPLIED", r#".status.conditions[?(@.type=="Applied")].status"#),
            Column::age("AGE"),
        ],
    }
}

/// Objects to apply to the member, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkSpec {
    /// Objects to apply to the member.
    #[serde(skip_serializing_if = "absent")]
    pub workload: WorkloadTemplate,

    /// If true, the agent creates and updates nothing. Deletion is not suspended. Set from
    /// `suspension` of the binding. Absent means false.
    #[serde(skip_serializing_if = "absent")]
    pub suspend_dispatching: Option<bool>,

    /// If true, the agent keeps objects in the member when the Work is deleted or drops them, and
    /// removes only the fleet's labels and annotations. Absent means false: the objects are
    /// deleted.
    #[serde(skip_serializing_if = "absent")]
    pub preserve_resources_on_deletion: Option<bool>,
}

/// Objects of a Work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadTemplate {
    /// Manifests of the objects. The control plane writes one manifest per Work. Of two manifests
    /// for the same object, the second is rejected.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    pub manifests: Vec<Manifest>,
}

/// Manifest of an object, with `apiVersion` and `kind`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Manifest(pub serde_json::Value);

impl JsonSchema for Manifest {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Manifest".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        schema::raw_extension(generator)
    }
}

/// State of the objects in the member, as its agent last reported it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkStatus {
    /// Conditions of the Work. Other controllers may add their own.
    ///
    /// - `Applied`: all objects were applied, and all dropped objects removed. The message names
    ///   failures.
    /// - `Dispatching`: False while `suspendDispatching` is true.
    /// - `Contended`: another field manager keeps changing the objects; the message names it. Set
    ///   if there was such a conflict.
    /// - `Fenced`: the agent stops the objects when the member is cut off. The reason has the
    ///   seconds after which it does, and those that their pods may take (`After60Grace30`). Set if
    ///   `failover.cluster.fencing` asks for that.
    #[serde(
        skip_serializing_if = "absent",
        deserialize_with = "super::conditions::decoded"
    )]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// State of each object in the member.
    #[serde(skip_serializing_if = "absent")]
    pub manifest_statuses: Vec<ManifestStatus>,
}

/// State of one object in the member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["identifier"]))]
pub struct ManifestStatus {
    /// Object that the state belongs to.
    pub identifier: ResourceIdentifier,

    /// Status of the object in the member; for kinds with a rule, reduced to the fields that are
    /// aggregated. Absent if the object has none, or if it is larger than 64 KiB or deeper than 64
    /// levels.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::raw_extension")]
    pub status: Option<RawExtension>,

    /// Health of the object in the member.
    ///
    /// - `Healthy`: healthy by the rule of its kind.
    /// - `Unhealthy`: unhealthy, being deleted or missing.
    /// - `Unknown`: the kind has no rule, or the object was not seen.
    #[serde(skip_serializing_if = "absent")]
    pub health: Option<ResourceHealth>,
}

/// Reference to one object of a Work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["kind", "name", "ordinal", "resource", "version"]))]
pub struct ResourceIdentifier {
    /// Position of the object in `spec.workload.manifests`, from 0. Negative if the object is no
    /// longer in the list.
    pub ordinal: i64,
    /// API group of the object; absent for the core group.
    #[serde(skip_serializing_if = "absent")]
    pub group: Option<String>,
    /// API version of the object, without the group.
    pub version: String,
    /// Kind of the object, such as `Deployment`.
    pub kind: String,
    /// Plural name of the kind. Karmada and Muster leave it empty.
    pub resource: String,
    /// Namespace of the object; absent for a cluster-scoped object.
    #[serde(skip_serializing_if = "absent")]
    pub namespace: Option<String>,
    /// Name of the object in the member.
    pub name: String,
}
