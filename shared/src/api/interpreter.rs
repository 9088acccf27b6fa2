//! `ResourceInterpreterCustomization` (`config.karmada.io/v1alpha1`): Lua that says what a kind of resource
//! means.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{absent, definition::Column, macros::resource};

resource! {
    /// Says, in Lua, what a kind of resource means: its replicas, health, status and dependencies.
    ResourceInterpreterCustomization {
        group: "config.karmada.io",
        version: "v1alpha1",
        plural: "resourceinterpretercustomizations",
        scope: Cluster,
        spec: ResourceInterpreterCustomizationSpec,
        short_names: ["ric"],
        categories: ["karmada-io"],
        columns: [
            Column::text("TARGET-API-VERSION", ".spec.target.apiVersion"),
            Column::text("TARGET-KIND", ".spec.target.kind"),
            Column::age("AGE"),
        ],
    }
}

/// A kind and the scripts for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["customizations", "target"]))]
pub struct ResourceInterpreterCustomizationSpec {
    /// The kind.
    pub target: CustomizationTarget,
    /// The scripts.
    pub customizations: CustomizationRules,
}

/// A kind of resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["apiVersion", "kind"]))]
pub struct CustomizationTarget {
    /// API version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
}

/// One optional script per operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CustomizationRules {
    /// `Retain(desiredObj, observedObj)`: the desired object with what belongs to the member.
    #[serde(skip_serializing_if = "absent")]
    pub retention: Option<LuaScript>,

    /// `GetReplicas(desiredObj)`: how many replicas, and what one of them needs.
    #[serde(skip_serializing_if = "absent")]
    pub replica_resource: Option<LuaScript>,

    /// `GetComponents(desiredObj)`: the parts of a resource with several kinds of pods.
    #[serde(skip_serializing_if = "absent")]
    pub component_resource: Option<LuaScript>,

    /// `ReviseReplica(desiredObj, desiredReplica)`: the object with another number of replicas.
    #[serde(skip_serializing_if = "absent")]
    pub replica_revision: Option<LuaScript>,

    /// `ReflectStatus(observedObj)`: what to report of its status.
    #[serde(skip_serializing_if = "absent")]
    pub status_reflection: Option<LuaScript>,

    /// `AggregateStatus(desiredObj, statusItems)`: the object with the status of all members together.
    #[serde(skip_serializing_if = "absent")]
    pub status_aggregation: Option<LuaScript>,

    /// `InterpretHealth(observedObj)`: whether it works.
    #[serde(skip_serializing_if = "absent")]
    pub health_interpretation: Option<LuaScript>,

    /// `GetDependencies(desiredObj)`: what it refers to.
    #[serde(skip_serializing_if = "absent")]
    pub dependency_interpretation: Option<LuaScript>,
}

/// A script of Lua 5.1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["luaScript"]))]
pub struct LuaScript {
    /// The text.
    pub lua_script: String,
}
