//! Members: an API server, what runs its workloads, and its agent.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use kube::Client;
use kube::api::{Api as KubeApi, Patch, PatchParams};
use muster_shared::api::cluster::Cluster;
use muster_shared::client::Profile;
use muster_test_fleet::harness::access;
use muster_test_fleet::member::{Machines, Member as Kubelets, Shape};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::process::{self, Supervised};
use super::{administrator, start_server, steps};
use crate::history::{Actor, Api};
use crate::network::{Line, Network, config};
use crate::oracle::objects;
use crate::people::Site;
use crate::plan::Plan;
use crate::recorder::Recorder;

/// Seconds within which a member joins an undisturbed fleet.
const JOINED_WITHIN: u32 = 300;

/// A member that was started.
pub(super) struct Started {
    /// Its agent; a member of sync mode Push has none.
    pub agent: Option<Supervised>,
    /// What can be done to its nodes.
    pub machines: Machines,
}

/// Starts a member with its agent.
pub(super) async fn start(
    network: &Arc<Network>,
    setup: &Line,
    site: &Site,
    plan: &Plan,
    shutdown: &CancellationToken,
) -> anyhow::Result<Started> {
    let api = Api::Member(site.name.clone());
    network.serve(
        &api,
        start_server(&site.name, false, &plan.everywhere).await?,
    );
    let kubelets = Line::new(network, Actor::Workloads, administrator("kubelets"));
    let clients = (
        kubelets.client(&api, Profile::Write)?,
        kubelets.client(&api, Profile::Watch)?,
    );
    super::engine::start(plan, clients.clone(), shutdown);
    let shape = Shape {
        nodes: site.nodes,
        cpu: site.cpu.to_string(),
        ..Shape::default()
    };
    let kubelets = Kubelets::start(&site.name, clients, &shape, shutdown.child_token()).await?;
    let machines = kubelets.machines().clone();
    let fleet = setup.client(&Api::Fleet, Profile::Write)?;
    if site.push {
        for object in pushed(site) {
            steps::apply(&fleet, &object).await?;
        }
        return Ok(Started {
            agent: None,
            machines,
        });
    }
    let at_fleet = access::admit_member(&fleet, &site.name).await?;
    let at_member = access::admit_agent(&setup.client(&api, Profile::Write)?).await?;
    let agent = process::agent(network, site, (&at_fleet, &at_member), plan)?;
    Ok(Started {
        agent: Some(agent),
        machines,
    })
}

/// Waits until a member is ready, and labels its Cluster.
pub(super) async fn joined(recorder: &Recorder, fleet: &Client, site: &Site) -> anyhow::Result<()> {
    let cluster = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": { "name": site.name, "labels": site.labels },
    });
    let is_ready = |cluster: &Value| {
        objects::items(cluster, "/status/conditions")
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    };
    let key = objects::referent(&Api::Fleet, &cluster);
    for _ in 0..JOINED_WITHIN {
        let there = key.as_ref().and_then(|key| recorder.object(key));
        if there.is_some_and(|cluster| is_ready(&cluster)) {
            let clusters: KubeApi<Cluster> = KubeApi::all(fleet.clone());
            let labels = Patch::Merge(&cluster);
            let params = PatchParams::default();
            clusters.patch(&site.name, &params, &labels).await?;
            return Ok(());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    bail!("{} has not joined within {JOINED_WITHIN} s", site.name)
}

/// Returns the objects that make the control plane connect to a member.
fn pushed(site: &Site) -> [Value; 3] {
    let name = &site.name;
    let url = config(&Api::Member(name.clone())).cluster_url.to_string();
    [
        json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": "karmada-cluster" },
        }),
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "namespace": "karmada-cluster", "name": name },
            "stringData": { "token": "simulation" },
        }),
        json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": { "name": name },
            "spec": {
                "syncMode": "Push", "apiEndpoint": url,
                "secretRef": { "namespace": "karmada-cluster", "name": name },
                "provider": site.provider, "region": site.region, "zones": [site.zone],
            },
        }),
    ]
}
