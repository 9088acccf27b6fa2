//! Renews the leases of the agent's election and of the member, on a thread, a runtime and a
//! connection of their own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::future::BoxFuture;
use muster_shared::api::cluster::Cluster;
use muster_shared::client::{Gateway, Limits, Profile};
use muster_shared::k8s::{Client, OwnerReference, Resource};
use muster_shared::lease::{self, Leadership};
use muster_shared::serve::Health;
use muster_shared::tasks;
use muster_shared::watch::{Doubt, Informer, Presence};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Threads;
use super::context::Context;
use super::tasks::Made;
use crate::COMPONENT;
use crate::heartbeat::Heartbeat;
use crate::join::JoinState;
use crate::work::fencing::{Silence, heartbeat_note};

/// Interval at which the thread of the leases shows that it runs, and time without that after which
/// it counts as stuck. The kubelet restarts the agent then, so the time is long enough for a slow
/// thread.
const PULSE: Duration = Duration::from_secs(1);
const STUCK_AFTER: Duration = Duration::from_mins(1);

/// Parameters of the renewal of the leases. None of them waits for the rest of the agent: shared
/// state is read as it was last written.
struct Leases {
    fleet: Arc<Gateway>,
    heartbeat: Heartbeat,
    /// `None` where the agent leads without an election.
    candidate: Option<lease::Candidate>,
    leadership: Leadership,
    clusters: Informer<Cluster>,
    join_state: watch::Receiver<JoinState>,
    returned: Arc<Notify>,
    silence: Silence,
    shutdown: CancellationToken,
    /// Time at which the thread last showed that it runs, by a clock that all threads share.
    pulse: watch::Sender<Instant>,
    /// Ends the renewal, once the rest of the agent has ended.
    retire: CancellationToken,
}

/// Renews both leases until all other tasks have ended.
pub(super) fn leases(context: &Context) -> Made {
    let base = &context.base;
    let settings = &base.settings;
    let identity = lease::identity(COMPONENT, &base.fleet);
    let (leader, silence) = (identity.clone(), context.silence.clone());
    let candidate = lease::Candidate {
        namespace: settings.leader_elect_resource_namespace.clone(),
        name: format!("karmada-agent-{}", settings.cluster_name),
        identity,
        timing: lease::Timing {
            lease_duration: *settings.leader_elect_lease_duration,
            renew_deadline: *settings.leader_elect_renew_deadline,
            retry_period: *settings.leader_elect_retry_period,
        },
        annotations: lease::Annotations::new(move || heartbeat_note(&leader, &silence)),
    };
    let leases = Leases {
        fleet: Arc::clone(&base.fleet),
        heartbeat: Heartbeat {
            cluster: settings.cluster_name.clone(),
            duration: *settings.cluster_lease_duration,
            interval: settings.lease_interval(),
            gateway: Some(Arc::clone(&base.fleet)),
        },
        candidate: settings.leader_elect.then_some(candidate),
        leadership: base.leadership.clone(),
        clusters: context.clusters.clone(),
        join_state: context.join_state.subscribe(),
        returned: Arc::clone(&context.returned),
        silence: context.silence.clone(),
        shutdown: base.shutdown.clone(),
        pulse: context.pulse.clone(),
        retire: base.retire.clone(),
    };
    if base.threads == Threads::One {
        return Ok(Box::pin(leases.renew()));
    }
    let thread = tasks::on_own_thread("leases", move || leases.renew());
    Ok(Box::pin(
        thread.context("start the thread that renews the leases")?,
    ))
}

/// Fails liveness when the thread of the leases is stuck.
pub(super) fn pulse(context: &Context) -> BoxFuture<'static, ()> {
    let (pulse, health) = (context.pulse.subscribe(), context.base.health.clone());
    Box::pin(judge(pulse, health, context.base.shutdown.clone()))
}

impl Leases {
    /// Campaigns and renews until it has to retire. Ends earlier only if no connection can be
    /// made, and panics with its parts.
    async fn renew(self) {
        // The connection is opened here, because it lives on the runtime on which it was opened.
        let client = match self.fleet.client(Profile::Probe, Limits::NONE) {
            Ok(client) => client,
            Err(error) => {
                tracing::error!(%error, "cannot renew the leases");
                return;
            }
        };
        tokio::join!(
            self.campaign(client.clone()),
            self.beat(client),
            self.show()
        );
    }

    /// Shows that the thread runs, until it has to retire.
    async fn show(&self) {
        loop {
            self.pulse.send_replace(Instant::now());
            tokio::select! {
                () = self.retire.cancelled() => return,
                () = tokio::time::sleep(PULSE) => {}
            }
        }
    }

    /// Campaigns if `--leader-elect` is on, again after every loss.
    ///
    /// An agent that is cut off from the fleet API loses the election and keeps running: no other
    /// agent can act for the member, and every task checks leadership at each act.
    async fn campaign(&self, client: Client) {
        let Some(candidate) = &self.candidate else {
            return self.retire.cancelled().await;
        };
        loop {
            let (shutdown, retire) = (self.shutdown.clone(), self.retire.clone());
            let leadership = self.leadership.clone();
            let campaign = lease::campaign_until_retired(
                client.clone(),
                candidate.clone(),
                leadership,
                shutdown,
                retire,
            );
            if campaign.await == lease::Outcome::Stopped {
                return self.retire.cancelled().await;
            }
        }
    }

    /// Renews the member's lease once the fleet knows the member.
    async fn beat(&self, client: Client) {
        let mut reached = self.join_state.clone();
        tokio::select! {
            () = self.retire.cancelled() => return,
            Ok(_) = reached.wait_for(|reached| *reached >= JoinState::Registered) => {}
            else => return,
        }
        let name = &self.heartbeat.cluster;
        let known = Mutex::default();
        let owner = || {
            let owner = last_known(&known, self.clusters.presence(None, name));
            owner.filter(|_| self.leadership.is_current())
        };
        let (returned, retire) = (Arc::clone(&self.returned), self.retire.clone());
        let acknowledged = |sent, is_consecutive| self.silence.acknowledged(sent, is_consecutive);
        let beat = self
            .heartbeat
            .run(client, owner, returned, acknowledged, retire);
        beat.await;
    }
}

/// Fails liveness when the thread of the leases was found stuck twice in a row: after the whole
/// process was stopped for a while its threads continue in any order.
async fn judge(pulse: watch::Receiver<Instant>, health: Health, shutdown: CancellationToken) {
    let mut suspected = false;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(STUCK_AFTER / 4) => {}
        }
        let silent = pulse.borrow().elapsed();
        let stuck = silent >= STUCK_AFTER;
        if stuck && suspected {
            let reason = format!("the thread that renews them has been stuck for {silent:.0?}");
            health.broken("leases", reason);
        }
        suspected = stuck;
    }
}

/// Returns the owner reference for the next renewal. A Cluster that exists and cannot be read keeps
/// its last known reference: otherwise the member would be evacuated because of a version that its
/// agent does not understand. A missing Cluster has no lease, because the lease would be created
/// and collected again and again.
fn last_known(
    known: &Mutex<Option<OwnerReference>>,
    cluster: Presence<Arc<Cluster>>,
) -> Option<OwnerReference> {
    let mut known = known.lock();
    match cluster {
        // Without a uid it is one that cannot be read.
        Presence::There(cluster) => *known = cluster.owner_ref(&()).or_else(|| known.take()),
        Presence::Unknown(Doubt::Unreadable { .. }) => {}
        Presence::Gone | Presence::Unknown(_) => *known = None,
    }
    known.clone()
}

#[cfg(test)]
mod tests {
    use muster_shared::api::cluster::ClusterSpec;

    use super::*;
    use crate::settings::Settings;

    #[test]
    fn the_lease_is_renewed_when_a_fraction_of_its_duration_has_passed() {
        let of = |duration: &str, fraction| {
            let settings = Settings {
                cluster_lease_duration: duration.parse().unwrap(),
                cluster_lease_renew_interval_fraction: fraction,
                ..Settings::default()
            };
            settings.lease_interval().as_secs()
        };
        assert_eq!(of("40s", 0.25), 10);
        assert_eq!(of("60s", 0.5), 30);
        let by_default = Settings::default().lease_interval();
        assert_eq!(by_default, Duration::from_secs(10));
    }

    #[test]
    fn the_lease_goes_on_while_the_cluster_is_there_and_cannot_be_read() {
        let known = Mutex::default();
        let cluster = |uid: &str| {
            let mut cluster = Cluster::new("m1", ClusterSpec::default());
            cluster.metadata.uid = Some(uid.to_owned());
            Presence::There(Arc::new(cluster))
        };
        for (presence, expected) in [
            (Presence::Unknown(Doubt::Unlisted), None),
            (cluster("1"), Some("1")),
            (
                Presence::Unknown(Doubt::Unreadable { deleting: false }),
                Some("1"),
            ),
            (cluster("2"), Some("2")),
            (Presence::Gone, None),
            (
                Presence::Unknown(Doubt::Unreadable { deleting: false }),
                None,
            ),
            (cluster("3"), Some("3")),
            (Presence::Unknown(Doubt::Vanished), None),
        ] {
            let owner = last_known(&known, presence);
            assert_eq!(owner.map(|owner| owner.uid).as_deref(), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_thread_that_is_stuck_for_a_minute_is_no_longer_alive() {
        let now = Instant::now();
        for (since, alive) in [
            (now, true),
            (now.checked_sub(STUCK_AFTER).unwrap_or(now), false),
        ] {
            let (health, pulse) = (Health::default(), watch::Sender::new(since));
            let judging = judge(pulse.subscribe(), health.clone(), CancellationToken::new());
            // Paused time: the checks themselves.
            assert!(tokio::time::timeout(STUCK_AFTER, judging).await.is_err());
            assert_eq!(health.is_alive(), alive);
        }
    }
}
