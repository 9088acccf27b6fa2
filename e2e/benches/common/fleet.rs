//! A fleet API with what an installation brings, and a control plane process against it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use muster_e2e::apiserver::Running;
use muster_e2e::harness::process::{Launch, Process, Program, last_lines};
use muster_e2e::harness::test_bed::fleet_api;
use muster_e2e::harness::{heartbeat_fleet, kubeconfig};
use serde_json::{Value, json};

use super::Scratch;

/// Starts a fleet API with our kinds and the namespaces of an installation.
pub async fn start() -> anyhow::Result<Running> {
    let fleet = fleet_api().await?;
    let namespaces = fleet.seeds("", "v1", "namespaces")?;
    for name in ["karmada-system", "karmada-cluster"] {
        namespaces
            .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))?;
    }
    Ok(fleet)
}

/// Starts the control plane (the one inside this program, or the binary that is given); warnings
/// only go to its log, `control-plane.log` in the scratch directory.
pub fn control_plane(
    scratch: &Scratch,
    fleet: &Running,
    given: Option<&Path>,
    flags: impl IntoIterator<Item = String>,
) -> anyhow::Result<Process> {
    let path = scratch.path().join("fleet.kubeconfig");
    let access = fleet.kubeconfig("muster-control-plane", &["system:masters"])?;
    kubeconfig::write(&access, &path).context("writing the control plane's kubeconfig")?;
    let mut arguments = vec![
        format!("--kubeconfig={}", path.display()),
        "--leader-elect=false".to_owned(),
        "--health-probe-bind-address=0".to_owned(),
        "--log-filter=warn".to_owned(),
    ];
    arguments.extend(flags);
    Process::start(Launch {
        binary: super::binary(scratch, given)?,
        program: Program::ControlPlane,
        arguments,
        log: scratch.path().join("control-plane.log"),
    })
}

/// Returns the result of a measurement. Prints the last lines of the log where it failed.
///
/// # Errors
/// That of the measurement, or that the control plane ended by itself.
pub fn checked<T>(
    scratch: &Scratch,
    control_plane: &Process,
    result: anyhow::Result<T>,
) -> anyhow::Result<T> {
    if result.is_err() {
        let lines = last_lines(&scratch.path().join("control-plane.log"), 20).join("\n");
        eprintln!("{lines}");
    }
    let lost = control_plane.lost();
    anyhow::ensure!(
        lost.is_empty(),
        "the control plane ended by itself: {lost:?}"
    );
    result
}

/// Returns a ready Pull cluster that serves Deployments and has plenty of room.
pub fn cluster(name: &str) -> Value {
    let mut cluster = heartbeat_fleet::cluster(name);
    cluster["metadata"]["finalizers"] = json!(["karmada.io/cluster-controller"]);
    cluster["status"] = heartbeat_fleet::ready_with(&json!({
        "allocatable": {"cpu": "100000", "memory": "400000Gi", "pods": "1000000"},
        "allocated": {"cpu": "1"},
    }));
    cluster
}

/// Time without a write after which a control plane is done. Its slowest writers pause for less.
const QUIET: Duration = Duration::from_secs(4);

/// Waits until nothing has been written for a while.
pub async fn quiet(fleet: &Running, patience: Duration) -> anyhow::Result<()> {
    let mut last = (fleet.store().version(), Instant::now());
    let is_quiet = || {
        let version = fleet.store().version();
        if version != last.0 {
            last = (version, Instant::now());
        }
        last.1.elapsed() >= QUIET
    };
    let pause = Duration::from_millis(200);
    super::until("nothing is written any more", patience, pause, is_quiet).await?;
    Ok(())
}

/// Returns a policy that places each Deployment with a label in one of some clusters.
pub fn load_policy(name: &str, (key, value): (&str, &str), clusters: &[String]) -> Value {
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": name, "namespace": "default", "generation": 1},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "labelSelector": {"matchLabels": {key: value}}}],
            "placement": {
                "clusterAffinity": {"clusterNames": clusters},
                "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}],
                "replicaScheduling": {
                    "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                    "weightPreference": {"dynamicWeight": "AvailableReplicas"},
                },
            },
        },
    })
}

/// Returns a Deployment of two small pods with a label.
pub fn load_deployment(name: &str, (key, value): (&str, &str)) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "generation": 1, "labels": {key: value}},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}]},
            },
        },
    })
}
