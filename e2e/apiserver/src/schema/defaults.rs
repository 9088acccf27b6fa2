//! Defaults of the built-in kinds. Those that hold wherever a type is used are a table that becomes
//! part of the schema; those that depend on other fields are code, in `conditional.rs`.

use serde_json::Value;

use super::node::{Node, Shape};

/// Type, field, default as JSON.
#[rustfmt::skip]
const TABLE: &[(&str, &str, &str)] = &[
    ("PodSpec", "restartPolicy", r#""Always""#),
    ("PodSpec", "dnsPolicy", r#""ClusterFirst""#),
    ("PodSpec", "schedulerName", r#""default-scheduler""#),
    ("PodSpec", "securityContext", "{}"),
    ("PodSpec", "terminationGracePeriodSeconds", "30"),
    ("Container", "terminationMessagePath", r#""/dev/termination-log""#),
    ("Container", "terminationMessagePolicy", r#""File""#),
    ("EphemeralContainer", "terminationMessagePath", r#""/dev/termination-log""#),
    ("EphemeralContainer", "terminationMessagePolicy", r#""File""#),
    ("ContainerPort", "protocol", r#""TCP""#),
    ("Probe", "timeoutSeconds", "1"),
    ("Probe", "periodSeconds", "10"),
    ("Probe", "successThreshold", "1"),
    ("Probe", "failureThreshold", "3"),
    ("HTTPGetAction", "path", r#""/""#),
    ("HTTPGetAction", "scheme", r#""HTTP""#),
    ("GRPCAction", "service", r#""""#),
    ("SecretVolumeSource", "defaultMode", "420"),
    ("ConfigMapVolumeSource", "defaultMode", "420"),
    ("DownwardAPIVolumeSource", "defaultMode", "420"),
    ("ProjectedVolumeSource", "defaultMode", "420"),
    ("ServiceAccountTokenProjection", "expirationSeconds", "3600"),
    ("HostPathVolumeSource", "type", r#""""#),
    ("ObjectFieldSelector", "apiVersion", r#""v1""#),
    ("ServicePort", "protocol", r#""TCP""#),
    ("ServiceSpec", "sessionAffinity", r#""None""#),
    ("ServiceSpec", "type", r#""ClusterIP""#),
    ("Secret", "type", r#""Opaque""#),
    ("PersistentVolumeClaimSpec", "volumeMode", r#""Filesystem""#),
    ("PersistentVolumeClaimStatus", "phase", r#""Pending""#),
    ("PersistentVolumeSpec", "volumeMode", r#""Filesystem""#),
    ("PersistentVolumeSpec", "persistentVolumeReclaimPolicy", r#""Retain""#),
    ("PersistentVolumeStatus", "phase", r#""Pending""#),
    ("ReplicationControllerSpec", "replicas", "1"),
    ("DeploymentSpec", "replicas", "1"),
    ("DeploymentSpec", "revisionHistoryLimit", "10"),
    ("DeploymentSpec", "progressDeadlineSeconds", "600"),
    ("DeploymentStrategy", "type", r#""RollingUpdate""#),
    ("RollingUpdateDeployment", "maxSurge", r#""25%""#),
    ("RollingUpdateDeployment", "maxUnavailable", r#""25%""#),
    ("ReplicaSetSpec", "replicas", "1"),
    ("DaemonSetSpec", "revisionHistoryLimit", "10"),
    ("DaemonSetUpdateStrategy", "type", r#""RollingUpdate""#),
    ("RollingUpdateDaemonSet", "maxSurge", "0"),
    ("RollingUpdateDaemonSet", "maxUnavailable", "1"),
    ("StatefulSetSpec", "replicas", "1"),
    ("StatefulSetSpec", "revisionHistoryLimit", "10"),
    ("StatefulSetSpec", "podManagementPolicy", r#""OrderedReady""#),
    ("StatefulSetSpec", "persistentVolumeClaimRetentionPolicy", "{}"),
    ("StatefulSetPersistentVolumeClaimRetentionPolicy", "whenDeleted", r#""Retain""#),
    ("StatefulSetPersistentVolumeClaimRetentionPolicy", "whenScaled", r#""Retain""#),
    ("StatefulSetUpdateStrategy", "type", r#""RollingUpdate""#),
    ("RollingUpdateStatefulSetStrategy", "partition", "0"),
    ("CronJobSpec", "concurrencyPolicy", r#""Allow""#),
    ("CronJobSpec", "suspend", "false"),
    ("CronJobSpec", "successfulJobsHistoryLimit", "3"),
    ("CronJobSpec", "failedJobsHistoryLimit", "1"),
    ("HorizontalPodAutoscalerSpec", "minReplicas", "1"),
    ("NetworkPolicyPort", "protocol", r#""TCP""#),
    ("StorageClass", "reclaimPolicy", r#""Delete""#),
    ("StorageClass", "volumeBindingMode", r#""Immediate""#),
    ("PriorityClass", "preemptionPolicy", r#""PreemptLowerPriority""#),
    ("RoleRef", "apiGroup", r#""rbac.authorization.k8s.io""#),
    ("MutatingWebhook", "failurePolicy", r#""Fail""#),
    ("MutatingWebhook", "matchPolicy", r#""Equivalent""#),
    ("MutatingWebhook", "namespaceSelector", "{}"),
    ("MutatingWebhook", "objectSelector", "{}"),
    ("MutatingWebhook", "timeoutSeconds", "10"),
    ("MutatingWebhook", "reinvocationPolicy", r#""Never""#),
    ("ValidatingWebhook", "failurePolicy", r#""Fail""#),
    ("ValidatingWebhook", "matchPolicy", r#""Equivalent""#),
    ("ValidatingWebhook", "namespaceSelector", "{}"),
    ("ValidatingWebhook", "objectSelector", "{}"),
    ("ValidatingWebhook", "timeoutSeconds", "10"),
    ("ValidatingAdmissionPolicySpec", "failurePolicy", r#""Fail""#),
    ("MatchResources", "matchPolicy", r#""Equivalent""#),
    ("MatchResources", "namespaceSelector", "{}"),
    ("MatchResources", "objectSelector", "{}"),
    ("NamedRuleWithOperations", "scope", r#""*""#),
    ("RuleWithOperations", "scope", r#""*""#),
    ("CustomResourceDefinitionSpec", "conversion", r#"{"strategy":"None"}"#),
];

/// Ports of Endpoints and EndpointSlices share a type name, but not their defaults; both default
/// the protocol.
const ENDPOINT_PORT: (&str, &str) = ("EndpointPort", "protocol");

/// Writes the table into the arena of built-in types.
pub fn install(nodes: &mut [Node]) {
    for node in nodes {
        let Some(name) = node.name.clone() else {
            continue;
        };
        let Shape::Object { fields, .. } = &mut node.shape else {
            continue;
        };
        for (_, field, default) in TABLE.iter().filter(|(owner, ..)| **owner == *name) {
            if let Some(field) = fields.get_mut(*field) {
                field.default = serde_json::from_str(default).ok();
            }
        }
        if *name == *ENDPOINT_PORT.0
            && let Some(field) = fields.get_mut(ENDPOINT_PORT.1)
        {
            field.default = Some(Value::from("TCP"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::builtin::ARENA;

    #[test]
    fn every_line_of_the_table_names_a_field_and_holds_json() {
        for (owner, field, default) in TABLE {
            let known = ARENA.nodes.iter().any(|node| {
                node.name.as_deref() == Some(*owner)
                    && matches!(&node.shape, Shape::Object { fields, .. } if fields.contains_key(*field))
            });
            assert!(known, "{owner}.{field}");
            serde_json::from_str::<Value>(default).expect(default);
        }
    }
}
