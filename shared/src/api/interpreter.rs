//! `ResourceInterpreterCustomization` (`config.karmada.io/v1alpha1`): Lua scripts that interpret a
//! kind of resource.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{absent, definition::Column, macros::resource};

resource! {
    /// Lua scripts that interpret a kind of resource: its replicas, health, status and
    /// dependencies.
    ///
    /// The scripts answer before the built-in rules for the kind. Control plane and agents run them
    /// without input or output, and within limits of memory, instructions and time. One that fails
    /// gives no answer: an event `InterpretFailed` (here by the control plane, on its Cluster by an
    /// agent) and one on the resource or its Work name operation and line. Of two customizations
    /// with a script for the same operation of a kind, the first by name counts.
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

/// Kind to interpret, and the scripts for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["customizations", "target"]))]
pub struct ResourceInterpreterCustomizationSpec {
    /// Kind of resource that the scripts interpret.
    pub target: CustomizationTarget,
    /// Scripts by operation. Operations without a script follow the built-in rules.
    pub customizations: CustomizationRules,
}

/// Kind of resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["apiVersion", "kind"]))]
pub struct CustomizationTarget {
    /// API version of the kind, such as `apps.example.com/v1`.
    pub api_version: String,
    /// Name of the kind, such as `Workload`.
    pub kind: String,
}

/// One optional script for each operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CustomizationRules {
    /// Script with the function `Retain(desiredObj, observedObj)`, which returns the desired object
    /// with the fields that the member sets.
    #[serde(skip_serializing_if = "absent")]
    pub retention: Option<LuaScript>,

    /// Script with the function `GetReplicas(desiredObj)`, which returns the number of replicas and
    /// the requirements of one replica.
    #[serde(skip_serializing_if = "absent")]
    pub replica_resource: Option<LuaScript>,

    /// Script with the function `GetComponents(desiredObj)`, which returns the components of a
    /// resource with more than one pod template. Muster does not use it.
    #[serde(skip_serializing_if = "absent")]
    pub component_resource: Option<LuaScript>,

    /// Script with the function `ReviseReplica(desiredObj, desiredReplica)`, which returns the
    /// object with another number of replicas.
    #[serde(skip_serializing_if = "absent")]
    pub replica_revision: Option<LuaScript>,

    /// Script with the function `ReflectStatus(observedObj)`, which returns the part of the status
    /// that is reported to the fleet.
    #[serde(skip_serializing_if = "absent")]
    pub status_reflection: Option<LuaScript>,

    /// Script with the function `AggregateStatus(desiredObj, statusItems)`, which returns the
    /// template with the combined status of all members.
    #[serde(skip_serializing_if = "absent")]
    pub status_aggregation: Option<LuaScript>,

    /// Script with the function `InterpretHealth(observedObj)`, which returns whether the object is
    /// healthy.
    #[serde(skip_serializing_if = "absent")]
    pub health_interpretation: Option<LuaScript>,

    /// Script with the function `GetDependencies(desiredObj)`, which returns references to the
    /// objects that the resource depends on.
    #[serde(skip_serializing_if = "absent")]
    pub dependency_interpretation: Option<LuaScript>,
}

/// Script in Lua 5.1. It has the base functions, `string`, `table`, `math`, `os.time`, `os.date`
/// and `require("kube")`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["luaScript"]))]
pub struct LuaScript {
    /// Text of the Lua script.
    pub lua_script: String,
}
