//! Rules for kinds of other projects, in Lua: Kruise, Argo Workflows, Volcano, Flink, Flux,
//! Kubeflow, Kyverno, Ray and Spark.
//!
//! They answer as the customizations that Karmada ships (replayed in `tests/third_party.rs`; the
//! differences are declared there). A script answers the operations whose functions it defines.

use std::sync::LazyLock;

use crate::lua::customization::{Customization, Rules};
use crate::operation::Operation;

/// Functions that the rules share, module `rules`.
pub(crate) const COMMON: &str = include_str!("rules.lua");

const KRUISE: &str = "apps.kruise.io/v1alpha1";
const FLUX_SOURCE: &str = "source.toolkit.fluxcd.io/v1beta2";
const SOURCE: &str = include_str!("flux/source.lua");
const POLICY: &str = include_str!("kyverno/policy.lua");

/// Kinds by API version and name, each with its script.
const KINDS: [(&str, &str, &str); 27] = [
    (
        KRUISE,
        "AdvancedCronJob",
        include_str!("kruise/advanced_cron_job.lua"),
    ),
    (
        KRUISE,
        "BroadcastJob",
        include_str!("kruise/broadcast_job.lua"),
    ),
    (KRUISE, "CloneSet", include_str!("kruise/clone_set.lua")),
    (KRUISE, "DaemonSet", include_str!("kruise/daemon_set.lua")),
    (KRUISE, "SidecarSet", include_str!("kruise/sidecar_set.lua")),
    (
        KRUISE,
        "UnitedDeployment",
        include_str!("kruise/united_deployment.lua"),
    ),
    (
        "apps.kruise.io/v1beta1",
        "StatefulSet",
        include_str!("kruise/stateful_set.lua"),
    ),
    (
        "argoproj.io/v1alpha1",
        "Workflow",
        include_str!("argo/workflow.lua"),
    ),
    (
        "batch.volcano.sh/v1alpha1",
        "Job",
        include_str!("volcano/job.lua"),
    ),
    (
        "flink.apache.org/v1beta1",
        "FlinkDeployment",
        include_str!("flink/flink_deployment.lua"),
    ),
    (
        "helm.toolkit.fluxcd.io/v2beta1",
        "HelmRelease",
        include_str!("flux/helm_release.lua"),
    ),
    (
        "kubeflow.org/v1",
        "Notebook",
        include_str!("kubeflow/notebook.lua"),
    ),
    (
        "kubeflow.org/v1",
        "PyTorchJob",
        include_str!("kubeflow/py_torch_job.lua"),
    ),
    (
        "kubeflow.org/v1",
        "TFJob",
        include_str!("kubeflow/tf_job.lua"),
    ),
    (
        "kubeflow.org/v2beta1",
        "MPIJob",
        include_str!("kubeflow/mpi_job.lua"),
    ),
    (
        "kustomize.toolkit.fluxcd.io/v1",
        "Kustomization",
        include_str!("flux/kustomization.lua"),
    ),
    ("kyverno.io/v1", "ClusterPolicy", POLICY),
    ("kyverno.io/v1", "Policy", POLICY),
    (
        "ray.io/v1",
        "RayCluster",
        include_str!("ray/ray_cluster.lua"),
    ),
    ("ray.io/v1", "RayJob", include_str!("ray/ray_job.lua")),
    (
        "ray.io/v1",
        "RayService",
        include_str!("ray/ray_service.lua"),
    ),
    ("source.toolkit.fluxcd.io/v1", "GitRepository", SOURCE),
    (FLUX_SOURCE, "Bucket", SOURCE),
    (FLUX_SOURCE, "HelmChart", SOURCE),
    (FLUX_SOURCE, "HelmRepository", SOURCE),
    (FLUX_SOURCE, "OCIRepository", SOURCE),
    (
        "sparkoperator.k8s.io/v1beta2",
        "SparkApplication",
        include_str!("spark/spark_application.lua"),
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

fn customization(&(api_version, kind, script): &(&str, &str, &str)) -> Customization {
    let defines = |operation: &Operation| {
        let function = format!("function {}(", operation.function());
        script.contains(&function)
    };
    let operations = Operation::ALL.into_iter().filter(defines);
    let scripts: Vec<_> = operations.map(|it| (it, script)).collect();
    Customization::new("", (api_version, kind), &scripts)
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
        let answered = KINDS.iter().map(|it| customization(it).scripts.len());
        assert_eq!(answered.sum::<usize>(), 124);
    }
}
