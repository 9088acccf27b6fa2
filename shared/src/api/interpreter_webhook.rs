//! `ResourceInterpreterWebhookConfiguration` (`config.karmada.io/v1alpha1`): web services that say what a kind of resource means.
//!
//! Its fields stand beside `metadata` and not in a `spec`, as in the configurations of admission webhooks. Karmada's agent waits for this kind
//! to be served before it does anything.

use std::borrow::Cow;

use kube::core::{ClusterResourceScope, ObjectMeta};
use schemars::JsonSchema;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};

use super::{
    absent,
    definition::{Body, Column, Defined, Definition, schema_of},
    macros::open_enum,
    nullable,
};

const GROUP: &str = "config.karmada.io";
const VERSION: &str = "v1alpha1";
const KIND: &str = "ResourceInterpreterWebhookConfiguration";
const PLURAL: &str = "resourceinterpreterwebhookconfigurations";

/// Web services that are asked what a kind of resource means: its replicas, health, status and dependencies.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ResourceInterpreterWebhookConfiguration {
    /// Standard object metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The web services.
    #[serde(default, deserialize_with = "nullable")]
    pub webhooks: Vec<ResourceInterpreterWebhook>,
}

/// The fields of the object beside its metadata.
#[derive(JsonSchema)]
#[allow(dead_code)] // Only its schema is used.
#[schemars(extend("required" = ["webhooks"]))]
struct Fields {
    /// Web services, asked in the order of the configuration's name and then of their own.
    webhooks: Vec<ResourceInterpreterWebhook>,
}

/// A web service and what it is asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["clientConfig", "interpreterContextVersions", "name"]))]
pub struct ResourceInterpreterWebhook {
    /// Name of the web service, a DNS name such as `workloads.example.com`, unique in the configuration.
    pub name: String,

    /// Address of the web service, and the authority of its certificate.
    pub client_config: InterpreterClientConfig,

    /// Operations and kinds that the web service is asked about; one rule that matches is enough.
    #[serde(skip_serializing_if = "absent", deserialize_with = "nullable")]
    pub rules: Vec<InterpreterRule>,

    /// Seconds after which an unanswered request fails, 1 to 30.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(range(min = 1, max = 30))]
    pub timeout_seconds: Option<i32>,

    /// Versions of `ResourceInterpreterContext` that the web service understands, the preferred one first. `v1alpha1` is the only one.
    #[serde(deserialize_with = "nullable")]
    pub interpreter_context_versions: Vec<String>,
}

/// Address of a web service. `service` wins where both are given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct InterpreterClientConfig {
    /// Address as `https://HOST:PORT/PATH`, without user, query and fragment.
    #[serde(skip_serializing_if = "absent")]
    pub url: Option<String>,

    /// Service that is looked for in the fleet API, and otherwise reached by its name in the host cluster.
    #[serde(skip_serializing_if = "absent")]
    pub service: Option<InterpreterService>,

    /// Certificates of the authority that signed the web service's certificate: PEM, in base64. The system's authorities where absent.
    #[serde(skip_serializing_if = "absent")]
    #[schemars(extend("format" = "byte"))]
    pub ca_bundle: Option<String>,
}

/// A Service that a web service stands behind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name", "namespace"]))]
pub struct InterpreterService {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub name: String,
    /// Path of the requests.
    #[serde(skip_serializing_if = "absent")]
    pub path: Option<String>,
    /// Port of the Service; 443 where absent.
    #[serde(skip_serializing_if = "absent")]
    pub port: Option<i32>,
}

/// Operations on kinds. `*` alone in a list is everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["apiGroups", "apiVersions", "kinds", "operations"]))]
pub struct InterpreterRule {
    /// Operations that the web service is asked for.
    #[serde(deserialize_with = "nullable")]
    pub operations: Vec<InterpreterOperation>,
    /// API groups; the empty text is the core group.
    #[serde(deserialize_with = "nullable")]
    pub api_groups: Vec<String>,
    /// API versions, without their group.
    #[serde(deserialize_with = "nullable")]
    pub api_versions: Vec<String>,
    /// Kinds.
    #[serde(deserialize_with = "nullable")]
    pub kinds: Vec<String>,
}

open_enum! {
    /// A question about a resource.
    InterpreterOperation {
        /// Every question.
        All = "*",
        /// The number of replicas, and what one of them needs.
        InterpretReplica = "InterpretReplica",
        /// The parts of a resource with several kinds of pods.
        InterpretComponent = "InterpretComponent",
        /// The object with another number of replicas.
        ReviseReplica = "ReviseReplica",
        /// The part of the status that is reported.
        InterpretStatus = "InterpretStatus",
        /// The object without what belongs to the fleet API alone.
        Prune = "Prune",
        /// The desired object with what belongs to the member.
        Retain = "Retain",
        /// The template with the status of all members together.
        AggregateStatus = "AggregateStatus",
        /// Whether the resource works.
        InterpretHealth = "InterpretHealth",
        /// The objects that the resource refers to.
        InterpretDependency = "InterpretDependency",
    }
}

impl Serialize for ResourceInterpreterWebhookConfiguration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct(KIND, 4)?;
        object.serialize_field("apiVersion", &format!("{GROUP}/{VERSION}"))?;
        object.serialize_field("kind", KIND)?;
        object.serialize_field("metadata", &self.metadata)?;
        object.serialize_field("webhooks", &self.webhooks)?;
        object.end()
    }
}

impl kube::Resource for ResourceInterpreterWebhookConfiguration {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        KIND.into()
    }
    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }
    fn version((): &()) -> Cow<'_, str> {
        VERSION.into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        PLURAL.into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Defined for ResourceInterpreterWebhookConfiguration {
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: KIND,
        plural: PLURAL,
        scope: "Cluster",
        description: "Web services that are asked what a kind of resource means: its replicas, health, status and dependencies.",
        body: Body::Fields,
        spec: schema_of::<Fields>,
        status: None,
        short_names: &[],
        categories: &["karmada-io"],
        columns: &[Column::age("AGE")],
        rules: &[],
    };
}
