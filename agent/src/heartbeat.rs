//! Renews the member's Lease, by which the control plane notices that the agent is alive.
//!
//! The renewal has a thread and a connection of its own (see `wiring`), so that long lists, a busy
//! applier, slow comparisons or a slow member do not delay it. The time in the lease is that of the
//! agent's clock; the control plane does not compare it with its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_shared::client::Gateway;
use muster_shared::clock::calendar;
use muster_shared::k8s::{Api, Client, Lease, LeaseSpec, MicroTime, ObjectMeta, OwnerReference};
use muster_shared::names::{CLUSTER_NAMESPACE, annotation};
use muster_shared::queue::jittered;
use muster_shared::remind::Reminder;
use muster_shared::self_report::AgentReport;
use muster_shared::write::Verbs;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::measures::Step;
use crate::write::{self, Error, FIELD_MANAGER, within};

/// Pause after a failed renewal: several attempts fit into one interval.
const RETRY: Duration = Duration::from_secs(1);

/// Renewal of a member's lease.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    /// Name of the cluster, of its lease and of the lease's holder.
    pub cluster: String,
    /// Duration of the lease.
    pub duration: Duration,
    /// Pause between renewals.
    pub interval: Duration,
    /// The connection to the fleet API, of whose credentials the lease says when they end.
    pub gateway: Option<Arc<Gateway>>,
}

impl Heartbeat {
    /// Renews the lease until the agent retires. Leases are always in the namespace
    /// `karmada-cluster`, whatever `--cluster-namespace` says (as in Karmada). `owner` returns the
    /// owner reference that ties the lease to its Cluster, or `None` while there is no Cluster or
    /// another agent leads; then nothing is renewed. `returned` is notified when a renewal succeeds
    /// after failures. `acknowledged` is called after each success with the time at which the
    /// renewal was sent, and whether the one before it succeeded.
    pub async fn run(
        &self,
        client: Client,
        owner: impl Fn() -> Option<OwnerReference> + Send + Sync,
        returned: Arc<Notify>,
        acknowledged: impl Fn(Instant, bool) + Send + Sync,
        retire: CancellationToken,
    ) {
        let api: Api<Lease> = Api::namespaced(client, CLUSTER_NAMESPACE);
        let verbs = Verbs::default();
        let mut failing = false;
        let mut renewed = Instant::now();
        let mut sent_before = None;
        let mut reminder = Reminder::at_once();
        loop {
            let Some(owner) = owner() else {
                // The Cluster is gone, or this agent does not lead.
                tokio::select! {
                    () = retire.cancelled() => return,
                    () = tokio::time::sleep(self.pause(false)) => continue,
                }
            };
            let sent = Instant::now();
            let outcome = timeout(self.deadline(), self.renew(&api, &owner, &verbs))
                .await
                .unwrap_or(Err(Error::Deadline {
                    step: "renew the lease",
                }));
            let pause = self.pause(outcome.is_ok());
            match outcome {
                Ok(()) => {
                    let is_consecutive =
                        sent_before.is_some_and(|before| sent < before + self.in_time());
                    acknowledged(sent, is_consecutive && !failing);
                    sent_before = Some(sent);
                    if failing {
                        returned.notify_one();
                        tracing::info!(silent_for = ?renewed.elapsed(), "the lease is renewed again");
                    }
                    failing = false;
                    reminder.over(Instant::now());
                    renewed = Instant::now();
                    Step::Lease.succeeded(calendar());
                }
                Err(error) => {
                    failing = true;
                    metrics::counter!("muster_lease_renewal_failures_total", "member_cluster" => self.cluster.clone())
                        .increment(1);
                    if reminder.trouble(Instant::now()).is_some() {
                        tracing::warn!(%error, silent_for = ?renewed.elapsed(), "could not renew the lease; trying on");
                    }
                }
            }
            tokio::select! {
                () = retire.cancelled() => return,
                () = tokio::time::sleep(jittered(pause)) => {}
            }
        }
    }

    /// Returns the pause until the next renewal. Failures are retried early, because the lease
    /// expires meanwhile.
    fn pause(&self, renewed: bool) -> Duration {
        if renewed {
            self.interval
        } else {
            (self.interval / 4).min(RETRY)
        }
    }

    /// Returns the time after the previous renewal within which the next one is in time. It is no
    /// longer than the lease, which is the shortest time after which a workload is stopped.
    fn in_time(&self) -> Duration {
        (2 * self.interval).min(self.duration)
    }

    /// Returns the deadline for one renewal. It is shorter than the interval, so that a hung
    /// connection costs one renewal and not the lease.
    fn deadline(&self) -> Duration {
        (self.interval / 2).clamp(Duration::from_millis(200), Duration::from_secs(5))
    }

    async fn renew(
        &self,
        api: &Api<Lease>,
        owner: &OwnerReference,
        verbs: &Verbs,
    ) -> Result<(), Error> {
        let spec = LeaseSpec {
            holder_identity: Some(self.cluster.clone()),
            lease_duration_seconds: Some(
                i32::try_from(self.duration.as_secs()).unwrap_or(i32::MAX),
            ),
            renew_time: Some(MicroTime(calendar())),
            ..LeaseSpec::default()
        };
        // An older agent renews the time alone, and leaves the annotation behind.
        let fences = json!(spec.renew_time)
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let report = AgentReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            credentials: self.gateway.as_ref().and_then(|it| it.credentials()),
        };
        let annotations = BTreeMap::from([
            (annotation::FENCES.to_owned(), fences),
            (annotation::AGENT.to_owned(), report.write()),
        ]);
        let patch = json!({ "metadata": { "annotations": annotations }, "spec": spec });
        let renewed = within(
            "renew the lease",
            verbs.merge(api, &self.cluster, None, &patch, Some(FIELD_MANAGER)),
        )
        .await;
        let lease = match renewed {
            Ok(lease) => lease,
            Err(error) if error.is_gone() => {
                let lease = Lease {
                    metadata: ObjectMeta {
                        name: Some(self.cluster.clone()),
                        namespace: Some(CLUSTER_NAMESPACE.into()),
                        owner_references: Some(vec![owner.clone()]),
                        annotations: Some(annotations),
                        ..ObjectMeta::default()
                    },
                    spec: Some(spec),
                };
                within(
                    "create the lease",
                    write::create(api, &self.cluster, &lease),
                )
                .await?;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if owned(&lease, owner) {
            return Ok(());
        }
        // A Cluster that was deleted and registered again has another uid; with the old one the
        // lease would be collected.
        let patch = json!({ "metadata": { "ownerReferences": [owner] } });
        within(
            "own the lease",
            verbs.merge(api, &self.cluster, None, &patch, Some(FIELD_MANAGER)),
        )
        .await?;
        Ok(())
    }
}

fn owned(lease: &Lease, owner: &OwnerReference) -> bool {
    lease
        .metadata
        .owner_references
        .iter()
        .flatten()
        .any(|known| known.uid == owner.uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heartbeat(interval: Duration) -> Heartbeat {
        Heartbeat {
            cluster: "m1".into(),
            duration: interval * 4,
            interval,
            gateway: None,
        }
    }

    #[test]
    fn several_attempts_fit_into_the_life_of_a_lease_even_if_each_hangs() {
        for millis in [500, 1_000, 10_000, 60_000] {
            let heartbeat = heartbeat(Duration::from_millis(millis));
            let one = heartbeat.deadline() + jitter_of(heartbeat.pause(false));
            let all = one * 2 + jitter_of(heartbeat.interval);
            assert!(all <= heartbeat.duration, "{millis} ms: {all:?}");
        }
    }

    #[test]
    fn a_success_waits_for_the_interval() {
        let heartbeat = heartbeat(Duration::from_secs(10));
        assert_eq!(heartbeat.pause(true), Duration::from_secs(10));
        assert_eq!(heartbeat.pause(false), RETRY);
    }

    /// Returns the longest pause that [`jittered`] makes of a pause.
    fn jitter_of(pause: Duration) -> Duration {
        pause * 6 / 5
    }
}
