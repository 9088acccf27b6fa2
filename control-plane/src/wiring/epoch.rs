//! Leads a store only while no newer one of the fleet is known: after a standby was promoted, the
//! control plane of the former store moves nothing.
//!
//! A newer epoch is known from the other addresses of the fleet (`--fleet-servers`), which are
//! asked, and from agents, which write the newest epoch that they have seen onto their leases.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use kube::ResourceExt;
use kube::api::Api;
use muster_shared::client::Route;
use muster_shared::fleet_epoch;
use muster_shared::fleet_id::FleetId;
use muster_shared::fleet_servers::FleetServer;
use muster_shared::k8s::{Namespace, ObjectMeta};
use muster_shared::names::CLUSTER_NAMESPACE;
use muster_shared::serve::Health;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::fleet::Fleet;

/// Interval at which the other addresses of the fleet are asked.
const ASK: Duration = Duration::from_secs(15);
/// Number of clusters whose agents are believed without another witness: one alone may be stolen.
const BELIEVED: usize = 2;
/// Name in `/readyz`.
const PART: &str = "fleet epoch";
/// Reason of events.
const REASON: &str = "StoreSuperseded";

/// Conclusion about the store.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// The store may be led.
    Lead,
    /// The store may be led, although an agent says that there is a newer one.
    Doubt(String),
    /// The store is older than another one of the fleet.
    Superseded(String),
}

/// Judges a store by its epoch, by the epochs that agents have seen elsewhere (by cluster), of how
/// many clusters, and by those of the other addresses.
fn judge(
    own: u64,
    seen: &BTreeMap<String, u64>,
    clusters: usize,
    elsewhere: &BTreeMap<String, u64>,
) -> Verdict {
    let newer = |all: &BTreeMap<String, u64>| {
        let newer = all.iter().filter(|(_, epoch)| **epoch > own);
        newer
            .map(|(name, epoch)| (name.clone(), *epoch))
            .collect::<Vec<_>>()
    };
    let advice = format!(
        "this store has epoch {own}. A standby was promoted: leave this one alone, or bring it back as the standby of the promoted \
         one. Where this store is the one to go on with, run `kubectl muster promote` against it"
    );
    if let Some((server, epoch)) = newer(elsewhere).into_iter().max_by_key(|it| it.1) {
        let words = format!("the store at {server} has epoch {epoch}, and {advice}");
        return Verdict::Superseded(words);
    }
    let witnesses = newer(seen);
    let Some((cluster, epoch)) = witnesses.iter().max_by_key(|it| it.1) else {
        return Verdict::Lead;
    };
    let others = match witnesses.len() - 1 {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    let words = format!("the agent of {cluster}{others} has seen epoch {epoch}, and {advice}");
    if witnesses.len() >= BELIEVED.min(clusters) {
        Verdict::Superseded(words)
    } else {
        Verdict::Doubt(words)
    }
}

/// The watch over the epoch of the store.
pub(super) struct Watch {
    fleet: Arc<Fleet>,
    health: Health,
    changed: Arc<Notify>,
    /// Whether this process may stand for election.
    fit: watch::Sender<bool>,
    /// Reason why the process ended.
    ended: Arc<Mutex<Option<String>>>,
}

impl Watch {
    /// Listens to the caches. Call it before they are followed.
    pub(super) fn new(fleet: &Arc<Fleet>, health: &Health) -> Self {
        let changed = Arc::new(Notify::new());
        let wake = Arc::clone(&changed);
        fleet.namespaces.on_change(move |change| {
            if change.object().name_any() == CLUSTER_NAMESPACE {
                wake.notify_one();
            }
        });
        let wake = Arc::clone(&changed);
        fleet.leases.on_change(move |change| {
            if fleet_epoch::seen(change.object()).is_some() {
                wake.notify_one();
            }
        });
        Self {
            fleet: Arc::clone(fleet),
            health: health.clone(),
            changed,
            fit: watch::Sender::new(false),
            ended: Arc::default(),
        }
    }

    /// Returns whether this process may stand for election, as it changes.
    pub(super) fn fit(&self) -> watch::Receiver<bool> {
        self.fit.subscribe()
    }

    /// Returns the place of the reason why the process ended.
    pub(super) fn ended(&self) -> Arc<Mutex<Option<String>>> {
        Arc::clone(&self.ended)
    }

    /// Watches until shutdown, and ends the process when the store is no longer the one that it
    /// began with.
    pub(super) async fn run(self) {
        let shutdown = self.fleet.shutdown.clone();
        let ended = shutdown.run_until_cancelled(self.follow()).await;
        if let Some(why) = ended {
            tracing::error!("{why}");
            *self.ended.lock() = Some(why);
            self.fleet.shutdown.cancel();
        }
    }

    /// Returns the reason to end the process, once there is one.
    async fn follow(&self) -> String {
        self.fleet.namespaces.synced().await;
        self.fleet.leases.synced().await;
        let mut begun = None;
        let mut reported = None;
        loop {
            let namespace = self.fleet.namespaces.get(None, CLUSTER_NAMESPACE);
            let metadata = namespace.as_ref().map(|it| &it.metadata);
            let own = metadata.map_or(Ok(0), fleet_epoch::of);
            let own = own.unwrap_or_else(|problem| {
                tracing::warn!(problem, "the epoch of the store counts as 0");
                0
            });
            if let Some(begun) = begun.filter(|begun| *begun != own) {
                return format!(
                    "the epoch of the store changed from {begun} to {own} while this process ran: it ends and starts again, so that \
                     every cluster gets a full grace"
                );
            }
            let leases = self.fleet.leases.list();
            let seen = leases
                .iter()
                .filter_map(|lease| Some((lease.name_any(), fleet_epoch::seen(lease)?)));
            let elsewhere = self.elsewhere(metadata).await;
            let verdict = judge(own, &seen.collect(), leases.len(), &elsewhere);
            match verdict {
                Verdict::Superseded(words) if begun.is_some() => return words,
                Verdict::Superseded(words) => {
                    self.health.ready(PART, Err(words.clone()));
                    self.report(&mut reported, &words);
                    // Without an election nothing else keeps the process from acting.
                    if !self.fleet.settings.leader_elect {
                        return words;
                    }
                }
                verdict => {
                    let doubt = match verdict {
                        Verdict::Doubt(words) => {
                            Some(format!("{words} (one agent alone is not believed)"))
                        }
                        _ => None,
                    };
                    if let Some(words) = &doubt {
                        self.report(&mut reported, words);
                    }
                    if doubt.is_some() || begun.is_none() || reported.is_some() {
                        self.health.note(PART, doubt);
                    }
                    begun = Some(own);
                    self.fit.send_replace(true);
                }
            }
            _ = tokio::time::timeout(ASK, self.changed.notified()).await;
        }
    }

    /// Publishes what is known of a newer store, unless the same was published before.
    fn report(&self, reported: &mut Option<String>, words: &str) {
        if reported.as_deref() == Some(words) {
            return;
        }
        self.fleet.warn_of_api(CLUSTER_NAMESPACE, REASON, words);
        *reported = Some(words.to_owned());
    }

    /// Asks the other addresses of the fleet for their epochs. One that does not answer, or is of
    /// another fleet, says nothing.
    async fn elsewhere(&self, namespace: Option<&ObjectMeta>) -> BTreeMap<String, u64> {
        let gateway = &self.fleet.gateway;
        let own = gateway.own_server().to_string();
        let servers = &self.fleet.settings.fleet_servers.0;
        let others = servers
            .iter()
            .filter(|it| it.address() != own.trim_end_matches('/'));
        let fleet = FleetId::of(namespace, None);
        let asked = others.map(|server| async {
            let epoch = self.ask(server, &fleet).await;
            let epoch = epoch
                .inspect_err(|why| tracing::debug!(server = server.server, why, "no epoch"))
                .ok()?;
            Some((server.server.clone(), epoch))
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    async fn ask(&self, server: &FleetServer, fleet: &FleetId) -> Result<u64, String> {
        let route = Route {
            server: server
                .server
                .parse()
                .map_err(|error| format!("it is no URL: {error}"))?,
            authorities: server.authorities()?,
        };
        let client = self.fleet.gateway.client_of(Some(&route));
        let api: Api<Namespace> = Api::all(client.map_err(|error| error.to_string())?);
        let found = api.get_metadata(CLUSTER_NAMESPACE).await;
        let found = found.map_err(|error| muster_shared::client::brief(&error))?;
        let theirs = FleetId::of(Some(&found.metadata), None);
        if fleet.mark().is_none() || fleet.mark() != theirs.mark() {
            return Err(format!("its fleet is {theirs}, and this one {fleet}"));
        }
        fleet_epoch::of(&found.metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_led_unless_another_one_or_two_agents_say_that_it_is_old() {
        for (what, own, ahead, clusters, elsewhere, expected) in [
            ("at rest", 0, 0, 3, None, "lead"),
            ("the standby is idle", 1, 0, 3, Some(1), "lead"),
            ("the standby is an older copy", 2, 0, 3, Some(1), "lead"),
            ("the standby was promoted", 1, 0, 3, Some(2), "superseded"),
            ("an agent was elsewhere", 1, 1, 3, None, "doubt"),
            ("two agents were elsewhere", 1, 2, 3, None, "superseded"),
            ("the only agent was there", 1, 1, 1, None, "superseded"),
            ("promoted again since", 3, 2, 3, Some(2), "lead"),
            ("a store without clusters", 0, 0, 0, None, "lead"),
        ] {
            let seen: BTreeMap<_, _> = (1..=ahead).map(|n| (format!("m{n}"), 2)).collect();
            let elsewhere = elsewhere.map(|epoch| ("https://b".to_owned(), epoch));
            let elsewhere: BTreeMap<_, _> = elsewhere.into_iter().collect();
            let verdict = judge(own, &seen, clusters, &elsewhere);
            let found = match &verdict {
                Verdict::Lead => "lead",
                Verdict::Doubt(_) => "doubt",
                Verdict::Superseded(words) => {
                    assert!(words.contains(&format!("epoch {own}")), "{words}");
                    "superseded"
                }
            };
            assert_eq!(found, expected, "{what}: {verdict:?}");
        }
    }
}
