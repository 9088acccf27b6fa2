//! Schemas of the built-in kinds: structure and descriptions from k8s-openapi, list types and zero
//! values from `builtin.facts`, defaults from `defaults.rs`.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use k8s_openapi::api::{
    admissionregistration::v1 as admission, apps::v1 as apps, authentication::v1 as authentication,
    authorization::v1 as authorization, autoscaling::v1 as autoscaling_v1,
    autoscaling::v2 as autoscaling, batch::v1 as batch, certificates::v1 as certificates,
    coordination::v1 as coordination, core::v1 as core, discovery::v1 as discovery,
    flowcontrol::v1 as flowcontrol, networking::v1 as networking, policy::v1 as policy,
    rbac::v1 as rbac, scheduling::v1 as scheduling, storage::v1 as storage,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration;
use schemars::SchemaGenerator;
use serde_json::{Map, Value};

use super::build::{Builder, OBJECT_META};
use super::node::{Id, Node};
use crate::catalog::{self, Kind};

/// OpenAPI definitions of the built-in kinds and all they refer to, by full type name; references
/// read `#/$defs/NAME`.
pub static DEFINITIONS: LazyLock<Map<String, Value>> = LazyLock::new(definitions);

/// All built-in types in one arena.
pub static ARENA: LazyLock<Builtins> = LazyLock::new(|| {
    let mut builder = Builder::new(&DEFINITIONS);
    // Metadata first: the overlay recognises the fields that hold it.
    builder.definition(OBJECT_META);
    for kind in catalog::all() {
        builder.definition(&definition_name(kind));
    }
    for name in SUBRESOURCES {
        builder.definition(name);
    }
    let (mut nodes, names) = builder.finish();
    if let Some(nodes) = Arc::get_mut(&mut nodes) {
        super::defaults::install(nodes);
    }
    Builtins { nodes, names }
});

/// Kinds that only subresources speak.
const SUBRESOURCES: &[&str] = &[
    "io.k8s.api.autoscaling.v1.Scale",
    "io.k8s.api.authentication.v1.TokenRequest",
];

/// The arena and where each type starts.
pub struct Builtins {
    /// The arena.
    pub nodes: Arc<[Node]>,
    names: HashMap<String, Id>,
}

impl Builtins {
    /// Returns where the type with this full name starts, if a kind of ours reaches it.
    pub fn root(&self, name: &str) -> Option<Id> {
        self.names.get(name).copied()
    }
}

/// Returns the full name of a kind's type: `io.k8s.api.apps.v1.Deployment`.
pub fn definition_name(kind: &Kind) -> String {
    definition_of(kind.group, kind.version, kind.kind)
}

/// Returns the full name of the type of a group, version and kind.
pub fn definition_of(group: &str, version: &str, kind: &str) -> String {
    let package = match group {
        "" => "api.core".to_owned(),
        "apiextensions.k8s.io" => "apiextensions-apiserver.pkg.apis.apiextensions".to_owned(),
        "apiregistration.k8s.io" => "kube-aggregator.pkg.apis.apiregistration".to_owned(),
        _ => format!("api.{}", group.split('.').next().unwrap_or(group)),
    };
    format!("io.k8s.{package}.{version}.{kind}")
}

fn definitions() -> Map<String, Value> {
    let mut generator = SchemaGenerator::default();
    macro_rules! generate {
        ($($package:ident: $($kind:ident)*;)*) => {
            $($(generator.subschema_for::<$package::$kind>();)*)*
        };
    }
    generate! {
        core: ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolumeClaim PersistentVolume Pod PodTemplate
            ReplicationController ResourceQuota Secret ServiceAccount Service;
        apps: ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet;
        authentication: SelfSubjectReview TokenReview TokenRequest;
        authorization: SelfSubjectAccessReview SubjectAccessReview;
        autoscaling: HorizontalPodAutoscaler;
        autoscaling_v1: Scale;
        batch: CronJob Job;
        certificates: CertificateSigningRequest;
        networking: IngressClass Ingress NetworkPolicy;
        policy: PodDisruptionBudget;
        rbac: ClusterRoleBinding ClusterRole RoleBinding Role;
        storage: StorageClass;
        admission: MutatingWebhookConfiguration ValidatingWebhookConfiguration ValidatingAdmissionPolicy
            ValidatingAdmissionPolicyBinding;
        apiextensions: CustomResourceDefinition;
        apiregistration: APIService;
        scheduling: PriorityClass;
        flowcontrol: FlowSchema;
        coordination: Lease;
        discovery: EndpointSlice;
    }
    generator.take_definitions(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::facts::FACTS;

    #[test]
    fn every_kind_has_a_definition() {
        for kind in catalog::all() {
            let name = definition_name(kind);
            assert!(DEFINITIONS.contains_key(&name), "{name}");
            assert!(ARENA.root(&name).is_some(), "{name}");
        }
    }

    #[test]
    fn every_type_with_facts_exists() {
        let missing: Vec<_> = FACTS
            .keys()
            .filter(|name| !DEFINITIONS.contains_key(*name))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
