//! Rules for kinds of other projects, in Lua: Kruise, Argo Workflows, Volcano, Flink, Flux,
//! Kubeflow, Kyverno, Ray and Spark.
//!
//! They answer as the customizations that Karmada ships (replayed in `tests/third_party.rs`; the
//! differences are declared there). A script has the functions of several operations; which ones,
//! the table says.

use std::sync::LazyLock;

use crate::lua::customization::{Customization, Rules};
use crate::operation::Operation::{
    self, AggregateStatus, InterpretComponent, InterpretDependency, InterpretHealth,
    InterpretReplica, InterpretStatus, Retain, ReviseReplica,
};

/// Functions that the rules share, module `rules`.
pub(crate) const COMMON: &str = include_str!("rules.lua");

/// Rules of one kind.
struct Kind {
    api_version: &'static str,
    name: &'static str,
    script: &'static str,
    operations: &'static [Operation],
}

const fn kind(
    api_version: &'static str,
    name: &'static str,
    script: &'static str,
    operations: &'static [Operation],
) -> Kind {
    Kind {
        api_version,
        name,
        script,
        operations,
    }
}

const KRUISE: &str = "apps.kruise.io/v1alpha1";
const FLUX_SOURCE: &str = "source.toolkit.fluxcd.io/v1beta2";
const SOURCE: &str = include_str!("flux/source.lua");
const POLICY: &str = include_str!("kyverno/policy.lua");

const OF_SOURCES: &[Operation] = &[
    Retain,
    InterpretStatus,
    AggregateStatus,
    InterpretHealth,
    InterpretDependency,
];
const OF_POLICIES: &[Operation] = &[InterpretStatus, AggregateStatus, InterpretHealth];
const OF_WORKLOADS: &[Operation] = &[
    InterpretReplica,
    ReviseReplica,
    InterpretStatus,
    AggregateStatus,
    InterpretHealth,
    InterpretDependency,
];

const KINDS: &[Kind] = &[
    kind(
        KRUISE,
        "AdvancedCronJob",
        include_str!("kruise/advanced_cron_job.lua"),
        &[AggregateStatus, InterpretDependency],
    ),
    kind(
        KRUISE,
        "BroadcastJob",
        include_str!("kruise/broadcast_job.lua"),
        &[
            InterpretReplica,
            ReviseReplica,
            Retain,
            InterpretStatus,
            AggregateStatus,
            InterpretHealth,
            InterpretDependency,
        ],
    ),
    kind(
        KRUISE,
        "CloneSet",
        include_str!("kruise/clone_set.lua"),
        OF_WORKLOADS,
    ),
    kind(
        KRUISE,
        "DaemonSet",
        include_str!("kruise/daemon_set.lua"),
        &[
            InterpretStatus,
            AggregateStatus,
            InterpretHealth,
            InterpretDependency,
        ],
    ),
    kind(
        KRUISE,
        "SidecarSet",
        include_str!("kruise/sidecar_set.lua"),
        &[
            InterpretReplica,
            Retain,
            InterpretStatus,
            AggregateStatus,
            InterpretHealth,
            InterpretDependency,
        ],
    ),
    kind(
        KRUISE,
        "UnitedDeployment",
        include_str!("kruise/united_deployment.lua"),
        OF_WORKLOADS,
    ),
    kind(
        "apps.kruise.io/v1beta1",
        "StatefulSet",
        include_str!("kruise/stateful_set.lua"),
        OF_WORKLOADS,
    ),
    kind(
        "argoproj.io/v1alpha1",
        "Workflow",
        include_str!("argo/workflow.lua"),
        &[
            InterpretReplica,
            ReviseReplica,
            Retain,
            InterpretHealth,
            InterpretDependency,
        ],
    ),
    kind(
        "batch.volcano.sh/v1alpha1",
        "Job",
        include_str!("volcano/job.lua"),
        &[
            InterpretComponent,
            InterpretStatus,
            AggregateStatus,
            InterpretHealth,
        ],
    ),
    kind(
        "flink.apache.org/v1beta1",
        "FlinkDeployment",
        include_str!("flink/flink_deployment.lua"),
        &[
            InterpretReplica,
            InterpretComponent,
            InterpretStatus,
            AggregateStatus,
            InterpretHealth,
        ],
    ),
    kind(
        "helm.toolkit.fluxcd.io/v2beta1",
        "HelmRelease",
        include_str!("flux/helm_release.lua"),
        OF_SOURCES,
    ),
    kind(
        "kubeflow.org/v1",
        "Notebook",
        include_str!("kubeflow/notebook.lua"),
        &[
            InterpretReplica,
            InterpretStatus,
            AggregateStatus,
            InterpretHealth,
        ],
    ),
    kind(
        "kubeflow.org/v1",
        "PyTorchJob",
        include_str!("kubeflow/py_torch_job.lua"),
        &[
            InterpretComponent,
            AggregateStatus,
            InterpretHealth,
            InterpretDependency,
        ],
    ),
    kind(
        "kubeflow.org/v1",
        "TFJob",
        include_str!("kubeflow/tf_job.lua"),
        &[
            InterpretComponent,
            AggregateStatus,
            InterpretHealth,
            InterpretDependency,
        ],
    ),
    kind(
        "kubeflow.org/v2beta1",
        "MPIJob",
        include_str!("kubeflow/mpi_job.lua"),
        &[
            InterpretComponent,
            InterpretStatus,
            AggregateStatus,
            InterpretHealth,
        ],
    ),
    kind(
        "kustomize.toolkit.fluxcd.io/v1",
        "Kustomization",
        include_str!("flux/kustomization.lua"),
        OF_SOURCES,
    ),
    kind("kyverno.io/v1", "ClusterPolicy", POLICY, OF_POLICIES),
    kind("kyverno.io/v1", "Policy", POLICY, OF_POLICIES),
    kind(
        "ray.io/v1",
        "RayCluster",
        include_str!("ray/ray_cluster.lua"),
        &[InterpretComponent, AggregateStatus, InterpretHealth],
    ),
    kind(
        "ray.io/v1",
        "RayJob",
        include_str!("ray/ray_job.lua"),
        &[
            InterpretComponent,
            AggregateStatus,
            InterpretHealth,
            InterpretDependency,
        ],
    ),
    kind(
        "ray.io/v1",
        "RayService",
        include_str!("ray/ray_service.lua"),
        &[
            InterpretReplica,
            ReviseReplica,
            AggregateStatus,
            InterpretHealth,
            InterpretDependency,
        ],
    ),
    kind(
        "source.toolkit.fluxcd.io/v1",
        "GitRepository",
        SOURCE,
        OF_SOURCES,
    ),
    kind(FLUX_SOURCE, "Bucket", SOURCE, OF_SOURCES),
    kind(FLUX_SOURCE, "HelmChart", SOURCE, OF_SOURCES),
    kind(FLUX_SOURCE, "HelmRepository", SOURCE, OF_SOURCES),
    kind(FLUX_SOURCE, "OCIRepository", SOURCE, OF_SOURCES),
    kind(
        "sparkoperator.k8s.io/v1beta2",
        "SparkApplication",
        include_str!("spark/spark_application.lua"),
        &[
            InterpretComponent,
            InterpretStatus,
            AggregateStatus,
            InterpretHealth,
        ],
    ),
];

/// Returns the built-in rules.
pub fn rules() -> &'static Rules {
    static RULES: LazyLock<Rules> = LazyLock::new(|| {
        let customizations: Vec<Customization> = KINDS.iter().map(customization).collect();
        Rules::made(&customizations, &Rules::default(), true)
    });
    &RULES
}

fn customization(kind: &Kind) -> Customization {
    let scripts = kind.operations.iter();
    Customization {
        name: String::new(),
        api_version: kind.api_version.to_owned(),
        kind: kind.name.to_owned(),
        scripts: scripts
            .map(|operation| (*operation, kind.script.to_owned()))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lua::engine::Engine;

    #[test]
    fn every_rule_defines_the_functions_of_its_operations() {
        let engine = Engine::default();
        for (api_version, kind) in rules().kinds() {
            for operation in Operation::ALL {
                for script in rules().scripts(api_version, kind, operation) {
                    assert_eq!(engine.define(script), Ok(()));
                }
            }
        }
    }

    #[test]
    fn every_kind_has_rules_once() {
        assert_eq!((rules().kinds().len(), KINDS.len()), (27, 27));
    }
}
