//! Asks servers of the fleet API for their stores, and informs older ones of the newest epoch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use futures::stream::FuturesOrdered;
use muster_shared::client::{Gateway, Head, Route};
use muster_shared::k8s::{Api, Client, Lease, Namespace};
use muster_shared::names::CLUSTER_NAMESPACE;
use muster_shared::names::annotation::SEEN_EPOCH;
use serde_json::json;
use tokio::time::Instant;

use super::decide::{Candidate, Refusal, Said};
use crate::write::{merge, within};

/// Interval at which the newest epoch is written to an older store again.
const REPORT_AGAIN: Duration = Duration::from_mins(10);

/// The servers of one fleet, as the agent of a cluster asks them. Its gate holds no such request.
pub(super) struct Servers {
    /// Name of the Cluster.
    pub(super) cluster: String,
    /// The connection to the fleet API, whose credentials are shown.
    pub(super) fleet: Arc<Gateway>,
    /// Times at which older stores were informed of an epoch, by address.
    pub(super) reported: BTreeMap<String, (u64, Instant)>,
}

impl Servers {
    /// Reads what a server says of its store. `seen` is the highest epoch that is known.
    pub(super) async fn ask(&self, candidate: &Candidate, seen: u64) -> Result<Said, String> {
        ask(&self.fleet, &self.cluster, candidate, seen).await
    }

    /// Asks servers at once, so that several silent ones take no longer than one. The answers come
    /// in the order of the servers.
    pub(super) fn ask_all(
        &self,
        candidates: Vec<Candidate>,
        seen: u64,
    ) -> impl Stream<Item = (Candidate, Result<Said, String>)> + use<> {
        let asked = candidates.into_iter().map(|candidate| {
            let (fleet, cluster) = (Arc::clone(&self.fleet), self.cluster.clone());
            async move {
                let said = ask(&fleet, &cluster, &candidate, seen).await;
                (candidate, said)
            }
        });
        asked.collect::<FuturesOrdered<_>>()
    }

    /// Writes the newest epoch onto the lease of the member in an older store, without renewing the
    /// lease, so that the control plane there learns that it is no longer obeyed.
    pub(super) async fn report(&mut self, candidate: &Candidate, refusal: &Refusal) {
        let Refusal::Older { seen, .. } = refusal else {
            return;
        };
        let address = candidate.server.address().to_owned();
        let reported = self.reported.get(&address);
        if reported.is_some_and(|(epoch, at)| epoch == seen && at.elapsed() < REPORT_AGAIN) {
            return;
        }
        let Ok(client) = client(&self.fleet, candidate) else {
            return;
        };
        let api: Api<Lease> = Api::namespaced(client, CLUSTER_NAMESPACE);
        let patch = json!({"metadata": {"annotations": {SEEN_EPOCH: seen.to_string()}}});
        let write = merge(&api, &self.cluster, None, &patch);
        match within("write the newest epoch to an older store", write).await {
            Ok(_) => {
                tracing::warn!(
                    server = address,
                    seen,
                    "an older store of the fleet answers; the newest epoch was written to it for its control plane"
                );
                self.reported.insert(address, (*seen, Instant::now()));
            }
            Err(error) => {
                tracing::debug!(%error, server = address, "the newest epoch could not be written to the older store");
            }
        }
    }
}

async fn ask(
    fleet: &Gateway,
    cluster: &str,
    candidate: &Candidate,
    seen: u64,
) -> Result<Said, String> {
    let api: Api<Head<Namespace>> = Api::all(client(fleet, candidate)?);
    // Only an answer that names the namespace says that it is missing: a proxy whose server is gone
    // may answer with the same code.
    let read = Head::get_opt(&api, CLUSTER_NAMESPACE);
    match within("read namespace karmada-cluster", read).await {
        Ok(found) => Ok(Said::of(found.as_ref().map(|it| &it.metadata))),
        // An API of Karmada alone grants no such right, and has no epoch. A restored store does not
        // know the rights of clusters that joined later.
        Err(error) if error.is_forbidden() && seen == 0 && candidate.is_own => Ok(Said::default()),
        Err(error) if error.is_forbidden() => Err(format!(
            "{error}; the store does not know the rights of this agent, for instance because its cluster joined after the \
             snapshot: kubectl muster token create --cluster-name {cluster} grants them anew (the token need not be used)"
        )),
        Err(error) => Err(error.to_string()),
    }
}

fn client(fleet: &Gateway, candidate: &Candidate) -> Result<Client, String> {
    let route = route(candidate)?;
    let client = fleet.client_of(route.as_ref());
    client.map_err(|error| error.to_string())
}

/// Returns the way to a server; `None` for that of the kubeconfig with its authority.
pub(super) fn route(candidate: &Candidate) -> Result<Option<Route>, String> {
    let server = &candidate.server;
    let authorities = server.authorities()?;
    if candidate.is_own && authorities.is_none() {
        return Ok(None);
    }
    let address = server.server.parse();
    let address = address.map_err(|error| format!("{:?} is no URL: {error}", server.server))?;
    Ok(Some(Route {
        server: address,
        authorities,
    }))
}
