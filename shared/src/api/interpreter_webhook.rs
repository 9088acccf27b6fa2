//! `ResourceInterpreterWebhookConfiguration` (`config.karmada.io/v1alpha1`): webhooks that
//! interpret kinds of resources.
//!
//! The fields are beside `metadata` instead of in a `spec`, as in the configurations of admission
//! webhooks. Karmada's agent does not start until this kind is served.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    absent,
    definition::Column,
    macros::{open_enum, resource},
    nullable,
};

resource! {
    /// Webhooks that interpret kinds of resources: their replicas, health, status and dependencies.
    ///
    /// A webhook is asked after the customizations for its kinds and before the built-in rules.
    /// While it gives no answer, everything stays as it was and the health of the kind is unknown:
    /// an event `InterpretFailed` on the object says why.
    ResourceInterpreterWebhookConfiguration {
        group: "config.karmada.io",
        version: "v1alpha1",
        plural: "resourceinterpreterwebhookconfigurations",
        scope: Cluster,
        #[serde(deserialize_with = "nullable")]
        webhooks: Vec<ResourceInterpreterWebhook> as Fields,
        categories: ["karmada-io"],
        columns: [Column::age("AGE")],
    }
}

/// The fields beside `metadata`.
#[derive(JsonSchema)]
#[allow(dead_code)] // Only its schema is used.
#[schemars(extend("required" = ["webhooks"]))]
struct Fields {
    /// Webhooks of this configuration. Of all that match, the first one is asked, ordered by the
    /// name of the configuration and then of the webhook.
    webhooks: Vec<ResourceInterpreterWebhook>,
}

/// Webhook and the operations and kinds that it interprets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["clientConfig", "interpreterContextVersions", "name"]))]
pub struct ResourceInterpreterWebhook {
    /// Name of the webhook: a DNS name such as `workloads.example.com`, unique in the
    /// configuration.
    pub name: String,

    /// Address of the webhook and the certificate authority that signs its certificate.
    pub client_config: InterpreterClientConfig,

    /// Operations and kinds that the webhook interprets. One matching rule is enough; without rules
    /// nothing matches.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    pub rules: Vec<InterpreterRule>,

    /// Seconds after which a request to the webhook fails; 1 to 30. Default: 10.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(range(min = 1, max = 30))]
    pub timeout_seconds: Option<i32>,

    /// Versions of `ResourceInterpreterContext` that the webhook understands, the preferred one
    /// first. `v1alpha1` is the only one.
    #[serde(deserialize_with = "nullable")]
    pub interpreter_context_versions: Vec<String>,
}

/// Address of a webhook. If both `url` and `service` are given, `service` takes precedence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct InterpreterClientConfig {
    /// URL of the webhook, as `https://HOST:PORT/PATH`, without user information, query or
    /// fragment.
    #[serde(skip_serializing_if = "absent")]
    pub url: Option<String>,

    /// Service of the webhook, reached by its DNS name `NAME.NAMESPACE.svc` from where the control
    /// plane, or the agent, runs. Agents in other clusters need a URL.
    #[serde(skip_serializing_if = "absent")]
    pub service: Option<InterpreterService>,

    /// Certificate authorities that sign the webhook's certificate: PEM, encoded in base64. If
    /// absent, the authorities of the system are trusted.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("format" = "byte"))]
    pub ca_bundle: Option<String>,
}

/// Service of a webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name", "namespace"]))]
pub struct InterpreterService {
    /// Namespace of the webhook's Service.
    pub namespace: String,
    /// Name of the webhook's Service.
    pub name: String,
    /// URL path of the requests. If absent, requests go to the root.
    #[serde(skip_serializing_if = "absent")]
    pub path: Option<String>,
    /// Port of the Service. Default: 443.
    #[serde(skip_serializing_if = "absent")]
    pub port: Option<i32>,
}

/// Operations on kinds. In each list, `*` matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["apiGroups", "apiVersions", "kinds", "operations"]))]
pub struct InterpreterRule {
    /// Operations that the rule matches.
    #[serde(deserialize_with = "nullable")]
    pub operations: Vec<InterpreterOperation>,
    /// API groups that the rule matches; the empty string is the core group.
    #[serde(deserialize_with = "nullable")]
    pub api_groups: Vec<String>,
    /// API versions that the rule matches, without their group.
    #[serde(deserialize_with = "nullable")]
    pub api_versions: Vec<String>,
    /// Kinds that the rule matches.
    #[serde(deserialize_with = "nullable")]
    pub kinds: Vec<String>,
}

open_enum! {
    /// Operation of a resource interpreter.
    InterpreterOperation {
        /// Every operation.
        All = "*",
        /// Returns the number of replicas and the requirements of one replica.
        InterpretReplica = "InterpretReplica",
        /// Returns the components of a resource with more than one pod template.
        InterpretComponent = "InterpretComponent",
        /// Returns the object with another number of replicas.
        ReviseReplica = "ReviseReplica",
        /// Returns the part of the status that is reported to the fleet.
        InterpretStatus = "InterpretStatus",
        /// Returns the object without the fields that concern the fleet API only.
        Prune = "Prune",
        /// Returns the desired object with the fields that the member sets.
        Retain = "Retain",
        /// Returns the template with the combined status of all members.
        AggregateStatus = "AggregateStatus",
        /// Returns whether the object is healthy.
        InterpretHealth = "InterpretHealth",
        /// Returns references to the objects that the resource depends on.
        InterpretDependency = "InterpretDependency",
    }
}
