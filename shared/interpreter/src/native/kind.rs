//! Kinds with native rules, and the operations that each supports.

use serde_json::Value;

use super::Error;
use crate::Operation;

/// Kind with native rules. Group and version must match exactly: `apps/v1beta1` has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Deployment,
    StatefulSet,
    ReplicaSet,
    DaemonSet,
    Job,
    CronJob,
    Pod,
    Service,
    Ingress,
    ServiceAccount,
    Secret,
    PersistentVolumeClaim,
    PersistentVolume,
    PodDisruptionBudget,
    HorizontalPodAutoscaler,
    ServiceImport,
}

impl Kind {
    /// Returns the kind of an object, if it has native rules.
    pub(super) fn of(object: &Value) -> Option<Self> {
        Self::named(
            object.get("apiVersion")?.as_str()?,
            object.get("kind")?.as_str()?,
        )
    }

    fn named(api_version: &str, kind: &str) -> Option<Self> {
        Some(match (api_version, kind) {
            ("apps/v1", "Deployment") => Self::Deployment,
            ("apps/v1", "StatefulSet") => Self::StatefulSet,
            ("apps/v1", "ReplicaSet") => Self::ReplicaSet,
            ("apps/v1", "DaemonSet") => Self::DaemonSet,
            ("batch/v1", "Job") => Self::Job,
            ("batch/v1", "CronJob") => Self::CronJob,
            ("v1", "Pod") => Self::Pod,
            ("v1", "Service") => Self::Service,
            ("networking.k8s.io/v1", "Ingress") => Self::Ingress,
            ("v1", "ServiceAccount") => Self::ServiceAccount,
            ("v1", "Secret") => Self::Secret,
            ("v1", "PersistentVolumeClaim") => Self::PersistentVolumeClaim,
            ("v1", "PersistentVolume") => Self::PersistentVolume,
            ("policy/v1", "PodDisruptionBudget") => Self::PodDisruptionBudget,
            ("autoscaling/v2", "HorizontalPodAutoscaler") => Self::HorizontalPodAutoscaler,
            ("multicluster.x-k8s.io/v1alpha1", "ServiceImport") => Self::ServiceImport,
            _ => return None,
        })
    }

    pub(super) fn has(self, operation: Operation) -> bool {
        use Kind::{
            CronJob, DaemonSet, Deployment, Ingress, Job, PersistentVolume, PersistentVolumeClaim,
            Pod, PodDisruptionBudget, ReplicaSet, Secret, Service, ServiceAccount, ServiceImport,
            StatefulSet,
        };
        match operation {
            Operation::InterpretReplica => {
                matches!(self, Deployment | StatefulSet | ReplicaSet | Job | Pod)
            }
            Operation::InterpretComponent => false,
            Operation::ReviseReplica => matches!(self, Deployment | StatefulSet | ReplicaSet | Job),
            Operation::Retain => matches!(
                self,
                Deployment
                    | Job
                    | Pod
                    | Service
                    | ServiceAccount
                    | Secret
                    | PersistentVolumeClaim
                    | PersistentVolume
            ),
            Operation::AggregateStatus => !matches!(self, ServiceAccount | Secret | ServiceImport),
            Operation::InterpretDependency => matches!(
                self,
                Deployment
                    | StatefulSet
                    | ReplicaSet
                    | DaemonSet
                    | Job
                    | CronJob
                    | Pod
                    | Ingress
                    | ServiceImport
            ),
            Operation::InterpretStatus => true,
            Operation::InterpretHealth => matches!(
                self,
                Deployment
                    | StatefulSet
                    | ReplicaSet
                    | DaemonSet
                    | Pod
                    | Service
                    | Ingress
                    | PersistentVolumeClaim
                    | PodDisruptionBudget
            ),
        }
    }
}

/// Makes the error for an operation that the kind of an object has no rule for.
pub(crate) fn unsupported(operation: Operation, object: &Value) -> Error {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    Error::Unsupported {
        operation,
        kind: format!("{} {}", text("apiVersion"), text("kind")),
    }
}

/// Returns whether the kind has a rule for this operation. Every kind has its status reflected.
pub fn hook_enabled(api_version: &str, kind: &str, operation: Operation) -> bool {
    operation == Operation::InterpretStatus
        || Kind::named(api_version, kind).is_some_and(|kind| kind.has(operation))
}
