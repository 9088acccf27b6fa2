//! Asks agents to watch clusters, and writes into Clusters whether their peers see them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::Api;
use muster_shared::api::cluster::Cluster;
use muster_shared::client::Head;
use muster_shared::conditions::{self, FALSE, TRUE, UNKNOWN};
use muster_shared::controller::Controller;
use muster_shared::k8s::Condition;
use muster_shared::names::condition::{READY, UNIQUE_IDENTITY};
use muster_shared::peers::{
    Endpoint, PEER_ADDRESS, PEERS, Peer, REACHES, Reach, SEEN_BY_PEERS, endpoint, read, write,
};
use muster_shared::queue::{Next, until};
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;
use parking_lot::Mutex;
use serde_json::json;

use super::choose::{Candidate, Choice, choose};
use super::judge::{Verdict, Witness, judge, troubled_since};
use crate::clusters::cluster::{failed, write_if_changed};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::availability::readiness;
use crate::fleet::write::{Written, merge};

/// Time for which changes of the fleet are gathered before peers are chosen anew.
const GATHERED: Duration = Duration::from_secs(5);
/// Interval at which it is checked whether a peer lives of a witness that has lost all of them.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// State of the fleet as a whole, as far as it is known.
#[derive(Default)]
struct Known {
    /// Choice of the clusters that each cluster watches.
    choice: Choice,
    /// Places at which more than one cluster is said to be.
    shared: BTreeSet<Endpoint>,
}

impl Known {
    fn of(fleet: &Fleet) -> Self {
        let clusters = fleet.clusters.list();
        let candidates = clusters.iter().filter_map(|it| Candidate::of(it));
        let mut candidates: Vec<Candidate> = candidates.collect();
        candidates.sort();
        let stays = clusters
            .iter()
            .filter(|it| it.metadata.deletion_timestamp.is_none());
        let addresses = stays.filter_map(|it| own_address(it).ok());
        let (mut places, mut shared) = (BTreeSet::new(), BTreeSet::new());
        for place in addresses.filter_map(|it| endpoint(it).ok()) {
            if !places.insert(place.clone()) {
                shared.insert(place);
            }
        }
        Self {
            choice: choose(&candidates, fleet.settings.peers_per_cluster),
            shared,
        }
    }
}

/// The fleet as a whole, found out once for each change that concerns who watches whom.
#[derive(Default)]
struct Memory(Mutex<Option<Arc<Known>>>);

impl Memory {
    fn known(&self, fleet: &Fleet) -> Arc<Known> {
        let mut known = self.0.lock();
        Arc::clone(known.get_or_insert_with(|| Arc::new(Known::of(fleet))))
    }

    fn forget(&self) {
        *self.0.lock() = None;
    }
}

/// Starts the controller. With `--peers-per-cluster=0` it takes back what was written before, and
/// does nothing else.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    let workers = fleet.settings.concurrent_cluster_syncs;
    let memory = Arc::<Memory>::default();
    let outdated = Arc::clone(&memory);
    Controller::new(fleet, "peers")
        .resyncs_on(&fleet.clusters, move |fleet, change| {
            let is_another = is_on(fleet) && is_another_fleet(change);
            if is_another {
                outdated.forget();
            }
            is_another
        })
        .watches(&fleet.clusters, concerned)
        .resyncs(tasks, GATHERED, Fleet::cluster_names)
        .run(
            tasks,
            workers,
            memory,
            |fleet, memory, name: String| async move { attend(&fleet, &memory, &name).await },
        );
}

fn is_on(fleet: &Fleet) -> bool {
    fleet.settings.peers_per_cluster > 0
}

/// Returns whether a change can change who watches whom, or at which address.
fn is_another_fleet(change: &Change<Cluster>) -> bool {
    let said = |it: &Cluster| (Candidate::of(it), own_address(it).map(str::to_owned));
    change.differs(|old, new| said(old) != said(new))
}

/// Returns the clusters that a change concerns: the changed one, and those that its agent watches.
fn concerned(fleet: &Fleet, change: &Change<Cluster>) -> Vec<String> {
    let Change::Applied { old, new } = change else {
        return Vec::new();
    };
    if !is_on(fleet) {
        return has_remains(new)
            .then(|| new.name_any())
            .into_iter()
            .collect();
    }
    let mut concerned = Vec::new();
    let differs = |is_wanted: fn(&str) -> bool| {
        let is_same = |old: &Cluster| said(old, is_wanted).eq(said(new, is_wanted));
        !old.as_deref().is_some_and(is_same)
    };
    let heard = differs(|kind| kind == READY || kind == UNIQUE_IDENTITY);
    let reported = differs(|kind| kind.starts_with(REACHES));
    let seen = differs(|kind| kind == SEEN_BY_PEERS);
    let peers = |it: &Cluster| it.annotations().get(PEERS).cloned();
    let asked = old.as_ref().is_none_or(|old| peers(old) != peers(new));
    if heard || seen || asked {
        concerned.push(new.name_any());
    }
    if heard || reported || asked {
        // Clusters that the agent is not asked to watch any more have a witness less.
        let all = old.iter().map(|it| &**it).chain([&**new]);
        concerned.extend(all.flat_map(asked_of).map(|peer| peer.name));
    }
    concerned
}

/// Returns type, status and message of the conditions of these types.
fn said(
    cluster: &Cluster,
    is_wanted: fn(&str) -> bool,
) -> impl Iterator<Item = (&str, &str, &str)> {
    let wanted = cluster
        .conditions()
        .iter()
        .filter(move |it| is_wanted(&it.type_));
    wanted.map(|it| (&*it.type_, &*it.status, &*it.message))
}

fn asked_of(cluster: &Cluster) -> Vec<Peer> {
    read(cluster.annotations().get(PEERS).map(String::as_str))
}

/// Returns whether a cluster has something that this controller wrote.
fn has_remains(cluster: &Cluster) -> bool {
    let is_reported = |it: &Condition| it.status != UNKNOWN || it.reason != "Off";
    cluster.annotations().contains_key(PEERS)
        || cluster.condition(SEEN_BY_PEERS).is_some_and(is_reported)
}

/// Returns the address at which others see whether a cluster lives: the one that its operator
/// names, or that of its API server.
///
/// # Errors
/// A sentence that names the field which has no address that can be used.
fn own_address(cluster: &Cluster) -> Result<&str, String> {
    let named = cluster.annotations().get(PEER_ADDRESS);
    let field = named.map_or("spec.apiEndpoint", |_| PEER_ADDRESS);
    let address = named.or(cluster.spec.api_endpoint.as_ref());
    let address = address.map_or("", String::as_str);
    match endpoint(address) {
        Ok((host, _)) if is_local(&host) => Err(format!(
            "{field} {address} has another meaning in each cluster: name an address that other clusters reach in {PEER_ADDRESS}"
        )),
        Ok(_) => Ok(address),
        Err(_) if address.is_empty() => Err(format!("{field} is empty: peers need an https URL")),
        Err(fault) => Err(format!("{field} {fault}: peers need an https URL")),
    }
}

/// Returns whether a name is that of a Service, which every cluster resolves to one of its own.
fn is_local(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let own = ["kubernetes", "kubernetes.default"].contains(&&*host);
    own || matches!(host.rsplit_once('.'), Some((_, "svc"))) || host.ends_with(".cluster.local")
}

/// Returns the address of a cluster that leads to it from all others.
///
/// # Errors
/// As [`own_address`], and when another cluster has the same.
fn address<'a>(known: &Known, cluster: &'a Cluster) -> Result<&'a str, String> {
    let address = own_address(cluster)?;
    if endpoint(address).is_ok_and(|it| known.shared.contains(&it)) {
        return Err(format!(
            "another cluster has the address {address}, too, as the one of the Service kubernetes inside of each: name an \
             address that leads to this cluster alone in {PEER_ADDRESS}"
        ));
    }
    Ok(address)
}

async fn attend(fleet: &Fleet, memory: &Memory, name: &str) -> Result<Next, ApiError> {
    let Some(cluster) = fleet.clusters.get(None, name) else {
        return Ok(Next::Done);
    };
    if cluster.metadata.deletion_timestamp.is_some() || !is_on(fleet) && !has_remains(&cluster) {
        return Ok(Next::Done);
    }
    let known = is_on(fleet).then(|| memory.known(fleet));
    let asked = known.as_ref().and_then(|it| wanted(fleet, it, name));
    let (step, answer) = if cluster.annotations().get(PEERS) == asked.as_ref() {
        let shown = match &known {
            Some(known) => report(fleet, &cluster, known).await,
            None => take_back(fleet, &cluster).await,
        };
        ("write the condition SeenByPeers of", shown)
    } else {
        // The version that the write makes is reconciled next.
        let answer = ask(fleet, &cluster, asked.as_deref()).await;
        ("write the peers of", answer.map(|()| Next::Done))
    };
    Ok(match Written::of(answer).map_err(failed(step, &cluster))? {
        Written::Done(next) => next,
        late => late.next(),
    })
}

/// Returns the annotation that asks an agent to watch clusters.
fn wanted(fleet: &Fleet, known: &Known, agent: &str) -> Option<String> {
    let watched = known.choice.watched.get(agent);
    let peers = watched.into_iter().flatten().filter_map(|name| {
        let cluster = fleet.clusters.get(None, name)?;
        let address = address(known, &cluster).ok()?.to_owned();
        let name = name.clone();
        Some(Peer { name, address })
    });
    write(&peers.collect::<Vec<_>>())
}

async fn ask(fleet: &Fleet, cluster: &Cluster, asked: Option<&str>) -> Result<(), kube::Error> {
    let patch = json!({"metadata": {
        "resourceVersion": cluster.metadata.resource_version,
        "annotations": {PEERS: asked},
    }});
    let api = Api::<Head<Cluster>>::all(fleet.client.clone());
    merge(&api, &cluster.name_any(), &patch).await?;
    Ok(())
}

/// Writes what the witnesses of a cluster see, where that has changed.
async fn report(fleet: &Fleet, cluster: &Cluster, known: &Known) -> Result<Next, kube::Error> {
    let (name, now) = (cluster.name_any(), fleet.clock.now());
    if let Err(why) = address(known, cluster) {
        let said = conditions::new(SEEN_BY_PEERS, UNKNOWN, "NoAddress", &why, now);
        note(fleet, cluster, said).await?;
        return Ok(Next::Done);
    }
    // An agent that was not asked yet knows nothing.
    let is_asked = |it: &Cluster| asked_of(it).iter().any(|peer| peer.name == name);
    let all = known.choice.witnesses.get(&name).into_iter().flatten();
    let all = all.filter_map(|it| fleet.clusters.get(None, it));
    let witnesses: Vec<Witness> = all
        .filter(|it| is_asked(it))
        .map(|it| Witness::of(&it, &name, |peer| lives(fleet, known, peer)))
        .collect();
    let Verdict { condition, again } = judge(&witnesses, troubled_since(cluster), now);
    note(fleet, cluster, condition).await?;
    // Whether its other peers live is no change of this cluster.
    if witnesses.iter().any(|it| it.has_lost_all) {
        return Ok(Next::After(CHECK_EVERY));
    }
    Ok(again.map_or(Next::Done, |due| Next::After(until(due, now))))
}

/// Returns whether a cluster lives: its agent says that it is ready, or another one that is ready
/// reaches it.
fn lives(fleet: &Fleet, known: &Known, name: &str) -> bool {
    let ready = |name: &str| {
        let cluster = fleet.clusters.get(None, name);
        cluster.filter(|it| readiness(it) == TRUE)
    };
    let reaches = |witness: &Cluster| {
        let report = Reach::reported(witness.conditions(), name);
        report.is_some_and(|(reach, _)| reach == Reach::Reached)
    };
    let mut witnesses = known.choice.witnesses.get(name).into_iter().flatten();
    ready(name).is_some() || witnesses.any(|it| ready(it).is_some_and(|it| reaches(&it)))
}

/// Takes the condition back: nobody may act on what witnesses said once.
async fn take_back(fleet: &Fleet, cluster: &Cluster) -> Result<Next, kube::Error> {
    let message = "clusters do not watch each other: --peers-per-cluster is 0";
    let now = fleet.clock.now();
    note(
        fleet,
        cluster,
        conditions::new(SEEN_BY_PEERS, UNKNOWN, "Off", message, now),
    )
    .await?;
    Ok(Next::Done)
}

async fn note(fleet: &Fleet, cluster: &Cluster, said: Condition) -> Result<(), kube::Error> {
    let known = cluster.condition(SEEN_BY_PEERS);
    let was_lost = known.is_some_and(|it| it.status == FALSE);
    let Some(written) = write_if_changed(&fleet.client, cluster, said).await? else {
        return Ok(());
    };
    let (name, message) = (cluster.name_any(), written.message);
    if written.status == FALSE && !was_lost {
        tracing::warn!(cluster = name, "no peer sees the cluster: {message}");
        fleet.events.warn(cluster, "LostByPeers", message);
    } else if was_lost && written.status == TRUE {
        tracing::info!(cluster = name, "peers see the cluster: {message}");
        fleet.events.inform(cluster, "SeenByPeers", message);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
