//! `Work` (`work.karmada.io/v1alpha1`): the objects that one member has to have, and what became of them. It
//! lies in the execution namespace of the member.

use k8s_openapi::apimachinery::pkg::{apis::meta::v1::Condition, runtime::RawExtension};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::{
    absent, binding::ResourceHealth, definition::Column, macros::resource, nullable, schema,
};

resource! {
    /// Objects that one member has to have.
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

/// What a member has to have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkSpec {
    /// The objects.
    #[serde(skip_serializing_if = "absent")]
    pub workload: WorkloadTemplate,

    /// Whether nothing is created or updated for now.
    #[serde(skip_serializing_if = "absent")]
    pub suspend_dispatching: Option<bool>,

    /// Whether the objects stay in the member when the work is deleted.
    #[serde(skip_serializing_if = "absent")]
    pub preserve_resources_on_deletion: Option<bool>,
}

/// The objects of a work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadTemplate {
    /// The objects; Karmada makes a work of its own for each.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    pub manifests: Vec<Manifest>,
}

/// A whole object, with `apiVersion` and `kind`.
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

/// What became of the objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkStatus {
    /// Judgements: `Applied`, `Dispatching`, and others that controllers of the user's may add.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// What became of each object.
    #[serde(skip_serializing_if = "absent")]
    pub manifest_statuses: Vec<ManifestStatus>,
}

/// What became of one object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["identifier"]))]
pub struct ManifestStatus {
    /// The object.
    pub identifier: ResourceIdentifier,

    /// Its status in the member.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(schema_with = "schema::raw_extension")]
    pub status: Option<RawExtension>,

    /// Whether it works.
    #[serde(skip_serializing_if = "absent")]
    pub health: Option<ResourceHealth>,
}

/// One object of a work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["kind", "name", "ordinal", "resource", "version"]))]
pub struct ResourceIdentifier {
    /// Its place among the manifests, from zero. Negative in the status of an object that is no longer one.
    pub ordinal: i64,
    /// API group; absent for the core group.
    #[serde(skip_serializing_if = "absent")]
    pub group: Option<String>,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Plural name of the kind. Karmada leaves it empty, but its definition wants it to be there.
    pub resource: String,
    /// Namespace; absent for an object without one.
    #[serde(skip_serializing_if = "absent")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}
