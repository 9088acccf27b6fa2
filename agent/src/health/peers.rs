//! Watches the API servers of other clusters, as the control plane asks in an annotation of the
//! agent's own Cluster.
//!
//! A TLS handshake shows that a peer lives; nothing else is sent to it. Decisions are in
//! [`muster_shared::peers`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use muster_shared::api::cluster::Cluster;
use muster_shared::client::Gateway;
use muster_shared::https::handshake;
use muster_shared::k8s::{Condition, ResourceExt};
use muster_shared::lease::Leadership;
use muster_shared::peers::{self, PEERS, Peer, REACHES, Sight};
use muster_shared::queue::{jittered, wait_until};
use muster_shared::watch::Informer;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Deadline of a handshake. A healthy API server needs three round trips.
const DEADLINE: Duration = Duration::from_secs(5);
/// Pause before an agent that does not lead checks whether it does.
const NOT_LEADING: Duration = Duration::from_secs(5);

/// States of the peers, by their names.
pub type Sights = BTreeMap<String, Sight>;

/// Returns the peers that a Cluster names.
fn asked(cluster: &Cluster) -> Vec<Peer> {
    peers::read(cluster.annotations().get(PEERS).map(String::as_str))
}

fn reports(cluster: &Cluster) -> &[Condition] {
    let status = cluster.status.as_ref();
    status.map_or(&[], |status| &status.conditions)
}

/// Returns the conditions to report about the peers, and the types of those to take back: reports
/// about peers that the Cluster does not name any more.
pub fn conditions(
    cluster: &Cluster,
    sights: &Sights,
    now: Timestamp,
) -> (Vec<Condition>, Vec<String>) {
    let asked = asked(cluster);
    let current = asked.iter().filter_map(|peer| {
        let sight = sights.get(&peer.name)?;
        let is_current = sight.address == peer.address;
        is_current.then(|| sight.condition(&peer.name, now))?
    });
    let kinds = reports(cluster).iter().map(|it| &it.type_);
    let is_stale = |kind: &&String| {
        let peer = kind.strip_prefix(REACHES);
        peer.is_some_and(|name| asked.iter().all(|peer| peer.name != name))
    };
    (current.collect(), kinds.filter(is_stale).cloned().collect())
}

/// The peers, and when each is called next.
#[derive(Default)]
struct Calls {
    sights: Sights,
    due: BTreeMap<String, Instant>,
}

impl Calls {
    /// Follows what the Cluster asks for: forgets peers, and calls new ones now.
    fn follow(&mut self, cluster: Option<&Cluster>, now: Instant) {
        let asked = cluster.map(asked).unwrap_or_default();
        let is_asked = |name: &String, sight: &Sight| {
            let mut asked = asked.iter();
            asked.any(|it| it.name == *name && it.address == sight.address)
        };
        self.sights.retain(|name, sight| is_asked(name, sight));
        let known = &self.sights;
        self.due.retain(|name, _| known.contains_key(name));
        for peer in &asked {
            if !self.sights.contains_key(&peer.name) {
                let sight = Sight::begin(peer, cluster.map_or(&[], reports));
                self.sights.insert(peer.name.clone(), sight);
                self.due.insert(peer.name.clone(), now);
            }
        }
    }

    /// Calls the peers that are due, all at the same time.
    async fn call(&mut self, member: &Gateway) {
        let now = Instant::now();
        let due = self.due.iter().filter(|(_, at)| **at <= now);
        let calls = due.filter_map(|(name, _)| {
            let address = self.sights.get(name)?.address.clone();
            Some(async move { (name.clone(), call(member, &address).await) })
        });
        let answers = join_all(calls).await;
        for (name, answer) in answers {
            let Some(sight) = self.sights.get_mut(&name) else {
                continue;
            };
            let before = sight.reach;
            sight.note(answer.is_ok());
            if before != sight.reach {
                let why = answer.err().unwrap_or_default();
                tracing::info!(peer = name, address = sight.address, reach = ?sight.reach, why, "peer");
            }
            let pause = jittered(sight.pause());
            self.due.insert(name, Instant::now() + pause);
        }
    }
}

/// Makes a handshake from where the member is.
async fn call(member: &Gateway, address: &str) -> Result<(), String> {
    let (host, port) = peers::endpoint(address)?;
    let Some(network) = member.network() else {
        return handshake(&host, port, DEADLINE).await;
    };
    let answer = timeout(DEADLINE, network.handshake(&host, port)).await;
    answer.unwrap_or_else(|_| Err(format!("makes no TLS handshake within {DEADLINE:?}")))
}

/// Calls the peers of a Cluster until shutdown, while this agent leads, and publishes what is known
/// of them. Without peers it waits for a change of the Cluster.
pub fn watch(
    name: String,
    member: Arc<Gateway>,
    clusters: Informer<Cluster>,
    leadership: Leadership,
    publish: watch::Sender<Sights>,
    shutdown: CancellationToken,
) -> impl Future<Output = ()> {
    let changed = Arc::new(Notify::new());
    clusters.on_change({
        let changed = Arc::clone(&changed);
        move |_| changed.notify_one()
    });
    let watches = async move {
        let mut calls = Calls::default();
        loop {
            let cluster = clusters.get(None, &name);
            calls.follow(cluster.as_deref(), Instant::now());
            let next = calls.due.values().min().copied();
            let next = if leadership.is_current() {
                next
            } else {
                next.map(|_| Instant::now() + NOT_LEADING)
            };
            tokio::select! {
                () = changed.notified() => continue,
                () = wait_until(next) => {}
            }
            if leadership.is_current() {
                calls.call(&member).await;
                publish.send_if_modified(|known| {
                    let is_update = *known != calls.sights;
                    known.clone_from(&calls.sights);
                    is_update
                });
            }
        }
    };
    async move {
        shutdown.run_until_cancelled(watches).await;
    }
}

#[cfg(test)]
mod tests {
    use muster_shared::peers::Reach;
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    /// Returns a Cluster that names peers, each with its address, and has reports.
    fn cluster(peers: &[(&str, &str)], conditions: &[Condition]) -> Cluster {
        let peers: Vec<Peer> = peers
            .iter()
            .map(|(name, address)| Peer {
                name: (*name).to_owned(),
                address: (*address).to_owned(),
            })
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": "m1", "annotations": {PEERS: peers::write(&peers)}},
            "spec": {"syncMode": "Pull"},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    fn followed(cluster: &Cluster) -> Calls {
        let mut calls = Calls::default();
        calls.follow(Some(cluster), Instant::now());
        calls
    }

    #[tokio::test]
    async fn an_agent_reports_about_the_peers_that_it_is_asked_to_watch_and_about_no_others() {
        let asked = cluster(&[("m2", "https://a"), ("m3", "https://b")], &[]);
        let mut calls = followed(&asked);
        assert_eq!(
            conditions(&asked, &calls.sights, NOW),
            (vec![], vec![]),
            "not called yet"
        );
        calls.sights.get_mut("m2").unwrap().note(true);
        let (reported, stale) = conditions(&asked, &calls.sights, NOW);
        assert_eq!(
            Reach::reported(&reported, "m2"),
            Some((Reach::Reached, NOW))
        );
        assert_eq!((reported.len(), stale.len()), (1, 0));
        // The control plane asks for another one.
        let asked = cluster(&[("m3", "https://b")], &reported);
        calls.follow(Some(&asked), Instant::now());
        let (reported, stale) = conditions(&asked, &calls.sights, NOW);
        assert_eq!(
            (reported, stale),
            (vec![], vec!["reaches.muster.io/m2".to_owned()])
        );
        assert_eq!(calls.due.len(), 1);
    }

    #[tokio::test]
    async fn an_address_that_changes_is_another_one() {
        let before = cluster(&[("m2", "https://a")], &[]);
        let mut calls = followed(&before);
        calls.sights.get_mut("m2").unwrap().note(true);
        let after = cluster(&[("m2", "https://b")], &[]);
        assert_eq!(
            conditions(&after, &calls.sights, NOW).0,
            [],
            "of the former address"
        );
        calls.follow(Some(&after), Instant::now());
        assert_eq!(calls.sights["m2"].reach, None);
        calls.follow(None, Instant::now());
        assert!(
            calls.sights.is_empty() && calls.due.is_empty(),
            "the Cluster is gone"
        );
    }

    #[tokio::test]
    async fn a_peer_is_called_when_its_time_has_come_and_then_after_a_pause() {
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("https://{}", nobody.local_addr().unwrap());
        drop(nobody);
        let mut calls = followed(&cluster(&[("m2", &address), ("m3", "ftp://x")], &[]));
        let begun = Instant::now();
        let member = Gateway::given("member", kube::Config::new("http://m1".parse().unwrap()));
        calls.call(&member).await;
        for peer in ["m2", "m3"] {
            assert_eq!(calls.sights[peer].reach, Some(Reach::Never), "{peer}");
            assert!(calls.due[peer] > begun + Duration::from_secs(19), "{peer}");
        }
    }
}
