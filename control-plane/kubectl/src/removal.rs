//! Removal of a Cluster, in either sync mode.

use anyhow::ensure;
use clap::Args;
use kube::api::ListParams;
use muster_control_plane::fleet::works::is_of_namespace;
use muster_interpreter::{Interpreters, Operation};
use muster_shared::api::cluster::Cluster;
use muster_shared::api::work::{Manifest, Work};
use muster_shared::client;
use muster_shared::finished::{self, Finish};
use muster_shared::k8s::{Api, Client, ResourceExt};
use muster_shared::names::execution_namespace;
use muster_shared::settings::Duration;
use muster_shared::write::delete_params;
use serde_json::Value;
use tokio::time::Instant;

use super::request::{call, delete};

/// Works that are named when a Cluster cannot go.
const NAMED: usize = 5;
/// Works in a page of a list.
const PAGE: u32 = 100;
/// Pause between two checks whether the Cluster is gone.
const PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

/// Options of the removal of a Cluster, in either sync mode.
#[derive(Debug, Args)]
pub(super) struct Removal {
    /// Name of the Cluster.
    #[arg(value_name = "NAME", value_parser = super::chosen::name)]
    pub cluster: String,
    /// Go on although workloads are placed there. Their copies are removed from the member if it
    /// answers, and stay there if it does not.
    #[arg(long)]
    force: bool,
    /// For how long the Cluster's end is waited for.
    #[arg(long, default_value = "60s", value_name = "DURATION")]
    wait: Duration,
}

/// Deletes the Cluster and waits until the control plane has let it go.
pub(super) async fn remove_cluster(
    fleet: &Client,
    clusters: &Api<Cluster>,
    cluster: &Cluster,
    options: &Removal,
) -> anyhow::Result<()> {
    let name = options.cluster.as_str();
    let works: Api<Work> = Api::namespaced(fleet.clone(), &execution_namespace(name));
    let names = workloads(&works).await?;
    let (some, more) = names.split_at(names.len().min(NAMED));
    ensure!(
        names.is_empty() || options.force,
        "workloads are placed in {name:?} (Works {some:?}{}): move them first (kubectl muster drain {name}, or their policies), or give --force",
        if more.is_empty() { "" } else { " and more" }
    );
    let params = delete_params(cluster.uid(), None);
    let step = format!("delete Cluster {name:?}");
    delete(&step, clusters.delete(name, &params)).await?;
    let deadline = Instant::now() + *options.wait;
    while let Some(there) = call("look for the Cluster", client::get_opt(clusters, name)).await? {
        ensure!(
            there.uid() == cluster.uid(),
            "Cluster {name:?} is back: something made it again, such as an agent that still runs (stop it: helm uninstall)"
        );
        ensure!(
            Instant::now() < deadline,
            "Cluster {name:?} is not gone after {:?}: `kubectl describe cluster {name}` says what it waits for. Run this again when it is gone; nothing else was removed",
            *options.wait
        );
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Names of Works that hold what would be missed: the first few of them. Namespaces stay in the
/// member, and a Job or another task that has completed has nothing left to do there.
async fn workloads(works: &Api<Work>) -> anyhow::Result<Vec<String>> {
    let rules = Interpreters::of(&[]);
    let mut names = Vec::new();
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = call("look for its Works", works.list(&page)).await?;
        names.extend(
            list.iter()
                .filter(|work| is_missed(work, &rules))
                .map(ResourceExt::name_any),
        );
        match list.metadata.continue_ {
            Some(token) if !token.is_empty() && names.len() <= NAMED => {
                page = page.continue_token(&token);
            }
            _ => return Ok(names),
        }
    }
}

/// Returns whether something would be missed if the objects of a Work were removed from the member.
/// `rules` interpret the kinds.
fn is_missed(work: &Work, rules: &Interpreters) -> bool {
    if is_of_namespace(&work.metadata) {
        return false;
    }
    let statuses = work
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.manifest_statuses);
    let completed = |(ordinal, manifest): (usize, &Manifest)| {
        let Manifest(object) = manifest;
        let of_it = statuses
            .iter()
            .find(|it| usize::try_from(it.identifier.ordinal) == Ok(ordinal));
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let kind = object["kind"].as_str().unwrap_or_default();
        let has_succeeded =
            |status: &Value| finished::finish(api_version, kind, status) == Some(Finish::Succeeded);
        // Once the reports of the member are gone, the template alone says so, and without a rule
        // it says nothing: the task would run again.
        rules.has(api_version, kind, Operation::AggregateStatus)
            && of_it
                .and_then(|it| it.status.as_ref())
                .is_some_and(|status| has_succeeded(&status.0))
    };
    let manifests = &work.spec.workload.manifests;
    manifests.is_empty() || !manifests.iter().enumerate().all(completed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn work(owner: &str, manifests: &Value, statuses: &Value) -> Work {
        serde_json::from_value(json!({
            "metadata": {"name": "w", "ownerReferences": [{
                "apiVersion": "v1", "kind": owner, "name": "o", "uid": "u",
            }]},
            "spec": {"workload": {"manifests": manifests}},
            "status": {"manifestStatuses": statuses},
        }))
        .unwrap()
    }

    #[test]
    fn namespaces_and_completed_tasks_hold_no_member_back() {
        let job = json!({"apiVersion": "batch/v1", "kind": "Job"});
        let web = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        let reported = |ordinal: i64, kind: &str| {
            json!({
                "identifier": {"ordinal": ordinal, "version": "v1", "kind": "Job", "resource": "jobs", "name": "j"},
                "status": {"conditions": [{"type": kind, "status": "True"}]},
            })
        };
        let complete = json!([reported(0, "Complete")]);
        let job_set = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"});
        let completed = json!([reported(0, "Completed")]);
        let training = json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"});
        let succeeded = json!([reported(0, "Succeeded")]);
        let rules = Interpreters::of(&[]);
        for (owner, manifests, statuses, missed) in [
            (
                "Namespace",
                json!([{"kind": "Namespace"}]),
                json!([]),
                false,
            ),
            ("ResourceBinding", json!([job]), complete.clone(), false),
            (
                "ResourceBinding",
                json!([job]),
                json!([reported(0, "Failed")]),
                true,
            ),
            ("ResourceBinding", json!([job]), json!([]), true),
            ("ResourceBinding", json!([training]), succeeded, false),
            // Nothing puts its status together on its template.
            ("ResourceBinding", json!([job_set]), completed, true),
            ("ResourceBinding", json!([web]), complete.clone(), true),
            ("ResourceBinding", json!([job, job]), complete, true),
            ("ResourceBinding", json!([]), json!([]), true),
        ] {
            let work = work(owner, &manifests, &statuses);
            assert_eq!(
                is_missed(&work, &rules),
                missed,
                "{owner} {manifests} {statuses}"
            );
        }
    }
}
