//! Kubernetes types that the rest of Muster uses.
//!
//! Every crate imports them from here, so that a change of `k8s-openapi` or `kube` concerns one
//! file.

pub use k8s_openapi::ByteString;
pub use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
        batch::v1::{CronJob, Job},
        certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec},
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{
            ConfigMap, Container, ContainerStatus, Event, Namespace, Node, NodeAffinity,
            NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
            ObjectReference as CoreObjectReference, PersistentVolumeClaim, Pod, PodSpec,
            PodTemplateSpec, Secret, Service, ServiceAccount, Taint, Toleration,
        },
        networking::v1::Ingress,
        policy::v1::PodDisruptionBudget,
        rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceDefinition, JSONSchemaProps,
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{
            Condition, LabelSelector, LabelSelectorRequirement, ManagedFieldsEntry, MicroTime,
            ObjectMeta, OwnerReference, Status, Time,
        },
        runtime::RawExtension,
        util::intstr::IntOrString,
        version::Info as VersionInfo,
    },
};
pub use kube::{
    Api, Client, Config, Error, Resource, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, ObjectList,
        PartialObjectMeta, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy,
        TypeMeta, WatchEvent, WatchParams,
    },
    core::{ClusterResourceScope, DynamicResourceScope, NamespaceResourceScope},
};
