//! `OverridePolicy` and `ClusterOverridePolicy` (`policy.karmada.io/v1alpha1`): changes that a
//! resource gets on its way to certain clusters. Both kinds have the same spec.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    absent,
    definition::Column,
    macros::{open_enum, resource},
    nullable,
    policy::{ClusterAffinity, ResourceSelector},
    schema,
};

resource! {
    /// Changes resources of its namespace on their way to member clusters: images, arguments,
    /// labels, annotations or any other field, by cluster.
    ///
    /// ClusterOverridePolicies are applied first. Policies of one kind are applied from the least
    /// to the most specific selector, and among equally specific ones by name, so that the most
    /// specific policy has the last word.
    OverridePolicy {
        group: "policy.karmada.io",
        version: "v1alpha1",
        plural: "overridepolicies",
        scope: Namespaced,
        spec: OverrideSpec,
        short_names: ["op"],
        categories: ["karmada-io"],
        columns: [Column::age("AGE")],
    }
}

resource! {
    /// Changes resources of any namespace, and cluster-scoped resources, on their way to member
    /// clusters: images, arguments, labels, annotations or any other field, by cluster.
    ///
    /// ClusterOverridePolicies are applied before OverridePolicies. They are applied from the least
    /// to the most specific selector, and among equally specific ones by name, so that the most
    /// specific policy has the last word.
    ClusterOverridePolicy {
        group: "policy.karmada.io",
        version: "v1alpha1",
        plural: "clusteroverridepolicies",
        scope: Cluster,
        spec: OverrideSpec,
        short_names: ["cop"],
        categories: ["karmada-io"],
        columns: [Column::age("AGE")],
    }
}

/// Resources, clusters and changes of the policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OverrideSpec {
    /// Resources that the policy changes. If absent or empty, every resource that is propagated
    /// from the namespace of the policy or, for a ClusterOverridePolicy, from the fleet.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    pub resource_selectors: Vec<ResourceSelector>,

    /// Changes by cluster. Every rule whose `targetCluster` matches is applied, in the order of
    /// this list.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    pub override_rules: Vec<RuleWithCluster>,

    /// Deprecated: use `overrideRules`. Clusters of `overriders` beside this field. Ignored if
    /// there are `overrideRules`.
    #[serde(skip_serializing_if = "absent")]
    pub target_cluster: Option<ClusterAffinity>,

    /// Deprecated: use `overrideRules`. Changes for the clusters of `targetCluster` beside this
    /// field. Ignored if there are `overrideRules`.
    #[serde(skip_serializing_if = "absent")]
    pub overriders: Overriders,
}

/// Changes for certain clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["overriders"]))]
pub struct RuleWithCluster {
    /// Clusters that the rule applies to. If absent, every cluster.
    #[serde(skip_serializing_if = "absent")]
    pub target_cluster: Option<ClusterAffinity>,

    /// Changes of the rule. They are applied by type: images, commands, arguments, labels,
    /// annotations, embedded documents, then plain patches.
    pub overriders: Overriders,
}

/// Changes of a resource, by type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Overriders {
    /// Changes of any field, as operations of one JSON patch (RFC 6902) on the whole object.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    pub plaintext: Vec<PlaintextOverrider>,

    /// Changes of a part of image references.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    pub image_overrider: Vec<ImageOverrider>,

    /// Changes of the commands of containers.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    pub command_overrider: Vec<CommandArgsOverrider>,

    /// Changes of the arguments of containers.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    pub args_overrider: Vec<CommandArgsOverrider>,

    /// Changes of the labels of the object.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    pub labels_overrider: Vec<LabelAnnotationOverrider>,

    /// Changes of the annotations of the object.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    pub annotations_overrider: Vec<LabelAnnotationOverrider>,

    /// Changes inside a JSON or YAML document that the object holds as a string, such as a file of
    /// a ConfigMap.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    pub field_overrider: Vec<FieldOverrider>,
}

open_enum! {
    /// Operation of a change.
    OverriderOperator {
        /// Adds a value.
        Add = "add",
        /// Removes a value.
        Remove = "remove",
        /// Replaces a value.
        Replace = "replace",
    }
}

open_enum! {
    /// Operation of a change of a command or of arguments.
    ListOperator {
        /// Appends values.
        Add = "add",
        /// Removes values.
        Remove = "remove",
    }
}

open_enum! {
    /// Part of an image reference.
    ImageComponent {
        /// Host and port of the registry.
        Registry = "Registry",
        /// Path of the image in the registry.
        Repository = "Repository",
        /// Tag or digest.
        Tag = "Tag",
    }
}

/// Operation of a JSON patch on the object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["operator", "path"]))]
pub struct PlaintextOverrider {
    /// JSON pointer (RFC 6901) to the changed field, such as `/spec/replicas`.
    pub path: String,
    /// Operation on the field at `path`, as in RFC 6902: `add`, `remove` or `replace`.
    pub operator: OverriderOperator,
    /// New value of the field at `path`: any JSON. Must be absent for `remove`.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "any")]
    #[schemars(schema_with = "schema::any")]
    pub value: Option<Value>,
}

/// Change of one part of image references.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["component", "operator"]))]
pub struct ImageOverrider {
    /// Field that holds the image reference. If absent, the images of all containers (not of init
    /// containers) of a Pod, Deployment, ReplicaSet, DaemonSet, StatefulSet or Job are changed, and
    /// no other kind is.
    #[serde(skip_serializing_if = "absent")]
    pub predicate: Option<ImagePredicate>,

    /// Part of the reference `[registry[:port]/]repository[:tag][@digest]` that is changed:
    /// `Registry`, `Repository` or `Tag`.
    pub component: ImageComponent,

    /// Operation on that part of the reference.
    ///
    /// - `add`: `value` is appended to the part.
    /// - `replace`: the part becomes `value`.
    /// - `remove`: the part is removed.
    pub operator: OverriderOperator,

    /// Text that is appended to the part, or takes its place. Must not be empty for `add` and
    /// `replace`; ignored for `remove`.
    #[serde(skip_serializing_if = "absent")]
    pub value: String,
}

/// Field that holds an image reference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["path"]))]
pub struct ImagePredicate {
    /// JSON pointer to the string, such as `/spec/template/spec/initContainers/0/image`.
    pub path: String,
}

/// Change of the command or the arguments of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["containerName", "operator"]))]
pub struct CommandArgsOverrider {
    /// Name of the container, which is no init container, of a Pod, Deployment, ReplicaSet,
    /// DaemonSet, StatefulSet or Job.
    pub container_name: String,

    /// Operation on the list.
    ///
    /// - `add`: `value` is appended.
    /// - `remove`: every element that is in `value` is removed.
    pub operator: ListOperator,

    /// Elements that are appended or removed.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    pub value: Vec<String>,
}

/// Change of labels or annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["operator", "value"]))]
pub struct LabelAnnotationOverrider {
    /// Operation on the keys of `value`.
    ///
    /// - `add`: the keys are set, whether they exist or not.
    /// - `replace`: the keys that exist are set.
    /// - `remove`: the keys that exist are removed; their values in `value` do not matter.
    pub operator: OverriderOperator,

    /// Keys with their new values.
    #[serde(deserialize_with = "nullable")]
    pub value: BTreeMap<String, String>,
}

/// Changes inside a document that a string field holds. Exactly one of `json` and `yaml` is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["fieldPath"]))]
pub struct FieldOverrider {
    /// JSON pointer to the string that holds the document, such as `/data/config.yaml`.
    pub field_path: String,

    /// Operations on a JSON document. Excludes `yaml`.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    pub json: Vec<FieldOperation>,

    /// Operations on a YAML document. Excludes `json`. Comments of the document are lost.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    pub yaml: Vec<FieldOperation>,
}

/// Operation on an embedded document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["operator", "subPath"]))]
pub struct FieldOperation {
    /// JSON pointer inside the document, such as `/server/port`.
    pub sub_path: String,
    /// Operation on the value at `subPath`, as in RFC 6902: `add`, `remove` or `replace`.
    pub operator: OverriderOperator,
    /// New value at `subPath`: any JSON. Must be absent for `remove`.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "any")]
    #[schemars(schema_with = "schema::any")]
    pub value: Option<Value>,
}

impl OverrideSpec {
    /// Returns the rules in the order in which they are applied: `overrideRules`, or the deprecated
    /// pair as one rule if there are none.
    pub fn rules(&self) -> impl Iterator<Item = (Option<&ClusterAffinity>, &Overriders)> {
        let single = self
            .override_rules
            .is_empty()
            .then_some((self.target_cluster.as_ref(), &self.overriders));
        let rules = self.override_rules.iter();
        rules
            .map(|rule| (rule.target_cluster.as_ref(), &rule.overriders))
            .chain(single)
    }
}

impl Overriders {
    /// Returns whether there is no change of any type.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Reads a value that may be `null`, which differs from an absent one.
fn any<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}
