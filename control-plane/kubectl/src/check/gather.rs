//! Reads the facts about a fleet. A request that fails costs what it would have shown, and nothing
//! else.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use kube::Config;
use muster_control_plane::clusters::registration::token::{self, Entry};
use muster_control_plane::fleet::pause::NAME;
use muster_shared::api::cluster::{Cluster, ClusterSyncMode};
use muster_shared::certificate::pem;
use muster_shared::check::{Answer, Asker, Refusal};
use muster_shared::client::{self, Life};
use muster_shared::clock::calendar;
use muster_shared::k8s::{ConfigMap, CustomResourceDefinition, Lease, ResourceExt, Secret};
use muster_shared::names::{CLUSTER_NAMESPACE, SYSTEM_NAMESPACE};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::clusters::pulled;
use super::facts::{Admission, Facts, Leader};
use super::fleet_api;
use super::rights::{self, Findings};
use crate::leader;
use crate::running::Running;

/// Group and version of the policies.
const POLICIES: &str = "policy.karmada.io/v1alpha1";
/// Definitions and members that are answers about at once.
const AT_ONCE: usize = 8;
/// Members whose agents' rights are answers for: each takes some requests.
pub(super) const MOST_AGENTS: usize = 100;
/// Pause between two readings of a lease that seems to have expired: a leader renews it every 2 s.
const CHECK_AGAIN: Duration = Duration::from_secs(5);

/// Reads everything. `flags` are those of the control plane that the command line has; without
/// any, the settings are those that the leader publishes.
///
/// # Errors
/// When the flags are refused.
pub(super) async fn gather(
    asker: &Asker,
    config: &Config,
    flags: &[String],
) -> anyhow::Result<Facts> {
    let given = Running::of(flags, None)?;
    let version = asker.get("/version").await;
    let clocks = asker.clocks().await;
    let definitions = definitions(asker).await;
    let served = served(asker).await;
    let clusters: Answer<Vec<Cluster>> = asker
        .list("/apis/cluster.karmada.io/v1alpha1/clusters", "")
        .await;
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{CLUSTER_NAMESPACE}/leases");
    let mut facts = Facts {
        settings: given.settings,
        server: client::address(config),
        verified: config.cluster_url.scheme_str() == Some("https") && !config.accept_invalid_certs,
        now: calendar(),
        credentials: client::credentials(config),
        authority: authority(config),
        version,
        clocks,
        unfit: fleet_api::unfitness(asker).await,
        definitions,
        served,
        leader: Err(Refusal::Absent(String::new())),
        control_plane: rights::ask(
            asker,
            &rights::accounts_of_control_plane(),
            &rights::of_control_plane(),
        )
        .await,
        agents: agents(asker, clusters.as_deref().unwrap_or_default()).await,
        leases: asker.list(&leases, "").await,
        pause: pause(asker).await,
        tokens: tokens(asker).await,
        push_tokens: push_tokens(asker, clusters.as_deref().unwrap_or_default()).await,
        admission: admission(asker).await,
        taint_policies: asker
            .list(&format!("/apis/{POLICIES}/clustertaintpolicies"), "")
            .await,
        policies: of_both_scopes(asker, POLICIES, "propagationpolicies").await,
        bindings: of_both_scopes(asker, "work.karmada.io/v1alpha2", "resourcebindings").await,
        clusters,
    };
    facts.leader = leader(asker, &facts).await;
    let lease = facts.leader.as_ref().ok().map(|it| &it.lease);
    let running = Running::of(flags, lease)?;
    (facts.settings, _) = running.with_failover()?;
    Ok(facts)
}

/// Reads all objects of two kinds with one spec: in namespaces, and of the fleet.
async fn of_both_scopes<T: DeserializeOwned>(
    asker: &Asker,
    version: &str,
    plural: &str,
) -> Answer<Vec<T>> {
    let path = |plural: &str| format!("/apis/{version}/{plural}");
    let mut all: Vec<T> = asker.list(&path(plural), "").await?;
    let of_fleet = path(&format!("cluster{plural}"));
    all.extend(asker.list::<T>(&of_fleet, "").await?);
    Ok(all)
}

async fn pause(asker: &Asker) -> Answer<Option<ConfigMap>> {
    let path = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/{NAME}");
    match asker.get(&path).await {
        Err(Refusal::Absent(_)) => Ok(None),
        record => record.map(Some),
    }
}

/// Returns the life of the authority that ends first.
fn authority(config: &Config) -> Option<Life> {
    let roots = config.root_cert.iter().flatten();
    let lives = roots.filter_map(|der| Life::of_certificate(pem("CERTIFICATE", der).as_bytes()));
    lives.min_by_key(|it| it.end)
}

async fn definitions(asker: &Asker) -> BTreeMap<String, Answer<CustomResourceDefinition>> {
    let kinds = muster_shared::api::crds();
    let names: Vec<String> = kinds.iter().map(ResourceExt::name_any).collect();
    let answers = stream::iter(names).map(|name| async move {
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        (name, asker.get(&path).await)
    });
    answers.buffered(AT_ONCE).collect().await
}

async fn served(asker: &Asker) -> BTreeMap<String, Answer<Vec<String>>> {
    let kinds = muster_shared::api::crds();
    let mut versions: Vec<String> = kinds
        .iter()
        .flat_map(|it| {
            let versions = it.spec.versions.iter();
            versions.map(|version| format!("{}/{}", it.spec.group, version.name))
        })
        .collect();
    versions.sort();
    versions.dedup();
    let answers = stream::iter(versions).map(|version| async move {
        let list: Answer<Value> = asker.get(&format!("/apis/{version}")).await;
        let names = list.map(|list| {
            let resources = list["resources"].as_array().into_iter().flatten();
            let names = resources.filter_map(|it| it["name"].as_str().map(str::to_owned));
            names.collect()
        });
        (version, names)
    });
    answers.buffered(AT_ONCE).collect().await
}

/// Reads the lease of the control plane. One that has expired by the clocks is read twice,
/// because its time is another machine's.
async fn leader(asker: &Asker, facts: &Facts) -> Answer<Leader> {
    let settings = &facts.settings;
    let (namespace, name) = (
        &settings.leader_elect_resource_namespace,
        &settings.leader_elect_resource_name,
    );
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
    let lease: Lease = asker.get(&path).await?;
    let held = leader::Leader::of(&Ok(Some(lease.clone())), facts.fleet_time());
    if held.holder.is_none() || held.acts {
        return Ok(Leader {
            lease,
            renewed: None,
        });
    }
    tokio::time::sleep(CHECK_AGAIN).await;
    let again: Lease = asker.get(&path).await?;
    let renewed = again.metadata.resource_version != lease.metadata.resource_version;
    Ok(Leader {
        lease: again,
        renewed: Some(renewed),
    })
}

async fn agents(asker: &Asker, clusters: &[Cluster]) -> BTreeMap<String, Findings> {
    let names = pulled(clusters).map(ResourceExt::name_any);
    let names: Vec<String> = names.take(MOST_AGENTS).collect();
    let answers = stream::iter(names).map(|name| async move {
        let accounts = rights::accounts_of_agent(&name);
        let findings = rights::ask(asker, &accounts, &rights::of_agent(&name)).await;
        (name, findings)
    });
    answers.buffered(AT_ONCE).collect().await
}

async fn tokens(asker: &Asker) -> Answer<Vec<Entry>> {
    let path = format!("/api/v1/namespaces/{}/secrets", token::NAMESPACE);
    let of_tokens = format!("&fieldSelector=type%3D{}", token::SECRET_TYPE);
    let secrets: Vec<Secret> = asker.list(&path, &of_tokens).await?;
    Ok(secrets.iter().filter_map(Entry::read).collect())
}

async fn push_tokens(
    asker: &Asker,
    clusters: &[Cluster],
) -> Answer<BTreeMap<String, Option<Life>>> {
    let mut lives = BTreeMap::new();
    for cluster in clusters {
        let reference = cluster.spec.secret_ref.as_ref();
        let Some(reference) = reference.filter(|_| cluster.spec.sync_mode == ClusterSyncMode::Push)
        else {
            continue;
        };
        let path = format!(
            "/api/v1/namespaces/{}/secrets/{}",
            reference.namespace, reference.name
        );
        let secret: Secret = asker.get(&path).await?;
        let data = secret.data.unwrap_or_default();
        let token = data
            .get("token")
            .and_then(|it| std::str::from_utf8(&it.0).ok());
        lives.insert(cluster.name_any(), token.and_then(Life::of_token));
    }
    Ok(lives)
}

/// Reads how admission is configured, and tries it with a policy that is refused: its taint key is
/// none. Nothing is stored.
async fn admission(asker: &Asker) -> Answer<Admission> {
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/muster";
    let configuration = asker.get(path).await?;
    let taint = json!({"key": "not a key", "effect": "NoSchedule"});
    let policy = json!({
        "apiVersion": POLICIES,
        "kind": "ClusterTaintPolicy",
        "metadata": {"name": "muster-check"},
        "spec": {"taints": [taint]},
    });
    let path = format!("/apis/{POLICIES}/clustertaintpolicies?dryRun=All");
    Ok(Admission {
        configuration,
        trial: asker.post(&path, &policy).await,
    })
}
