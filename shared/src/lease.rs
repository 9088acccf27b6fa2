//! Leader election over a Lease: of several processes that could act, one does.
//!
//! The rule is client-go's: a lease counts as expired when *we* have seen no change of it for its duration on our own
//! monotonic clock; the times written in it, which come from another machine's clock, decide nothing. The leader gives up
//! acting before others may take over: `renew_deadline` after the last renewal that it knows to have succeeded.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::Api;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::client;
use crate::write::{self, Verbs};

/// Time limits of an election. Defaults are client-go's and Karmada's.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How long others wait after our last renewal before they take over.
    pub lease_duration: Duration,
    /// How long after our last successful renewal we may still act. Shorter than `lease_duration`.
    pub renew_deadline: Duration,
    /// Pause between attempts to take or renew the lease.
    pub retry_period: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Who stands for election, and for what.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Unique name of this process.
    pub identity: String,
    /// The time limits.
    pub timing: Timing,
}

/// A name that no other process has: the host (in a pod, the pod's name; the component where the host has none), the process
/// and the time of its start.
pub fn identity(component: &str) -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| component.to_owned());
    format!(
        "{host}_{}_{}",
        std::process::id(),
        Timestamp::now().as_millisecond()
    )
}

/// Whether this process may act. Ask at each act, never remember the answer. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Leadership {
    /// Until when we may act; `None` before the first success and after a loss.
    until: Arc<watch::Sender<Option<Instant>>>,
    always: bool,
}

impl Leadership {
    /// Leadership without an election, for a process that is alone by construction.
    pub fn always() -> Self {
        Self {
            until: Arc::new(watch::Sender::new(None)),
            always: true,
        }
    }

    /// Leadership that an election grants; see [`campaign`].
    pub fn elected() -> Self {
        Self {
            until: Arc::new(watch::Sender::new(None)),
            always: false,
        }
    }

    /// Whether this process may act now.
    pub fn is_current(&self) -> bool {
        self.always
            || self
                .until
                .borrow()
                .is_some_and(|until| Instant::now() < until)
    }

    /// Waits until this process may act.
    pub async fn acquired(&self) {
        if !self.always {
            // The sender lives in `self`: waiting cannot fail.
            let _ = self.until.subscribe().wait_for(Option::is_some).await;
        }
    }
}

/// How a campaign ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Shutdown was asked for; the lease was released if it was ours.
    Stopped,
    /// We led and no longer may: the process should end and start again as a follower.
    Lost,
}

/// Stands for election until shutdown or loss.
pub async fn campaign(
    client: Client,
    candidate: Candidate,
    leadership: Leadership,
    shutdown: CancellationToken,
) -> Outcome {
    let api: Api<Lease> = Api::namespaced(client, &candidate.namespace);
    let mut observed = Observed::default();
    let outcome = loop {
        let asked = Instant::now();
        let timing = candidate.timing;
        let until = *leadership.until.borrow();
        // A leader has the rest of its time for a renewal, and no more.
        let patience = until.map_or(timing.renew_deadline, |until| {
            until.saturating_duration_since(asked)
        });
        let ours = match timeout(patience, attempt(&api, &candidate, &mut observed, asked)).await {
            Ok(Ok(ours)) => Some(ours),
            Ok(Err(error)) => {
                tracing::warn!(
                    lease = candidate.name,
                    error = client::brief(&error),
                    "could not take or renew the lease"
                );
                None
            }
            Err(_) => {
                tracing::warn!(lease = candidate.name, "no answer about the lease in time");
                None
            }
        };
        match judge(until, ours, Instant::now()) {
            Standing::Leader => {
                // Counted from before the request: whoever saw the renewal saw it later.
                leadership
                    .until
                    .send_replace(Some(asked + timing.renew_deadline));
                if until.is_none() {
                    tracing::info!(
                        lease = candidate.name,
                        identity = candidate.identity,
                        "became the leader"
                    );
                }
            }
            Standing::Unchanged => {}
            Standing::Lost => break Outcome::Lost,
        }
        tokio::select! {
            () = shutdown.cancelled() => break Outcome::Stopped,
            () = tokio::time::sleep(crate::queue::jittered(timing.retry_period)) => {}
        }
    };
    let held = leadership.is_current();
    leadership.until.send_replace(None);
    if outcome == Outcome::Lost {
        tracing::error!(lease = candidate.name, "no longer the leader");
    } else if held {
        release(&api, &candidate, &observed.verbs).await;
    }
    outcome
}

/// What an attempt means for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// We lead, from now on or still.
    Leader,
    /// As before: a follower, or a leader with time left.
    Unchanged,
    /// We led and no longer may.
    Lost,
}

/// Judges the answer (`None`: there was none) of an attempt that ended at `now`, for somebody who may act `until` then.
///
/// A renewal that comes too late is a loss although the lease is ours: in between [`Leadership::is_current`] has said no, and
/// work was put down in the belief that somebody else would take it up. Once it says no it never says yes again in a campaign.
fn judge(until: Option<Instant>, ours: Option<bool>, now: Instant) -> Standing {
    match (until, ours) {
        (Some(until), _) if now >= until => Standing::Lost,
        (Some(_), Some(false)) => Standing::Lost,
        (_, Some(true)) => Standing::Leader,
        (None, Some(false)) | (_, None) => Standing::Unchanged,
    }
}

/// What we know of the lease: what we last saw, and when it last changed before our eyes.
#[derive(Default)]
struct Observed {
    version: Option<String>,
    changed: Option<Instant>,
    /// How we may write it.
    verbs: Verbs,
}

/// One attempt to take or renew the lease; `true` when it is ours.
async fn attempt(
    api: &Api<Lease>,
    candidate: &Candidate,
    observed: &mut Observed,
    now: Instant,
) -> Result<bool, kube::Error> {
    let Some(lease) = api.get_opt(&candidate.name).await? else {
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(candidate.name.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(claim(candidate, None)),
        };
        // Every candidate creates in a name of its own: of two that do it at once the second conflicts with what the first said.
        let manager = manager(&candidate.identity);
        return match write::create(api, &candidate.name, &lease, &manager).await {
            Ok(_) => Ok(true),
            Err(error) if client::is_conflict(&error) => Ok(false),
            Err(error) => Err(error),
        };
    };
    if observed.version != lease.metadata.resource_version {
        observed
            .version
            .clone_from(&lease.metadata.resource_version);
        observed.changed = Some(now);
    }
    let spec = lease.spec.as_ref();
    let holder = spec
        .and_then(|spec| spec.holder_identity.as_deref())
        .unwrap_or_default();
    let duration = spec
        .and_then(|spec| spec.lease_duration_seconds)
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map_or(candidate.timing.lease_duration, Duration::from_secs);
    let expired = observed
        .changed
        .is_none_or(|changed| now.duration_since(changed) >= duration);
    if !holder.is_empty() && holder != candidate.identity && !expired {
        return Ok(false);
    }
    // The precondition makes two takers at once impossible.
    let patch = json!({
        "metadata": { "resourceVersion": lease.metadata.resource_version },
        "spec": claim(candidate, spec),
    });
    let renewed = observed
        .verbs
        .merge(api, &candidate.name, None, &patch, None)
        .await;
    match renewed {
        Ok(renewed) => {
            observed.version = renewed.metadata.resource_version;
            observed.changed = Some(now);
            Ok(true)
        }
        Err(error) if client::is_conflict(&error) => Ok(holder == candidate.identity && !expired),
        Err(error) => Err(error),
    }
}

/// The identity as the name of a field manager, which may have 128 characters.
fn manager(identity: &str) -> String {
    let skipped = identity.chars().count().saturating_sub(128);
    identity.chars().skip(skipped).collect()
}

fn claim(candidate: &Candidate, current: Option<&LeaseSpec>) -> LeaseSpec {
    let now = MicroTime(Timestamp::now());
    let ours =
        current.is_some_and(|spec| spec.holder_identity.as_ref() == Some(&candidate.identity));
    let transitions = current.and_then(|spec| spec.lease_transitions).unwrap_or(0);
    LeaseSpec {
        holder_identity: Some(candidate.identity.clone()),
        lease_duration_seconds: Some(
            i32::try_from(candidate.timing.lease_duration.as_secs()).unwrap_or(i32::MAX),
        ),
        renew_time: Some(now.clone()),
        acquire_time: match current {
            Some(spec) if ours => spec.acquire_time.clone(),
            _ => Some(now),
        },
        lease_transitions: Some(if ours {
            transitions
        } else {
            transitions + i32::from(current.is_some())
        }),
        ..LeaseSpec::default()
    }
}

/// Gives the lease up, so that a successor need not wait for it to expire.
async fn release(api: &Api<Lease>, candidate: &Candidate, verbs: &Verbs) {
    let given_up = async {
        let lease = api.get(&candidate.name).await?;
        let ours = lease
            .spec
            .as_ref()
            .and_then(|spec| spec.holder_identity.as_ref())
            == Some(&candidate.identity);
        if ours {
            let patch = json!({
                "metadata": { "resourceVersion": lease.metadata.resource_version },
                // Absent rather than empty, as client-go does it.
                "spec": { "holderIdentity": null, "leaseDurationSeconds": 1 },
            });
            verbs
                .merge(api, &candidate.name, None, &patch, None)
                .await?;
        }
        Ok::<_, kube::Error>(())
    };
    match timeout(Duration::from_secs(3), given_up).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::debug!(error = client::brief(&error), "could not release the lease");
        }
        Err(_) => tracing::debug!("no answer when releasing the lease"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_that_comes_too_late_is_a_loss() {
        let now = Instant::now();
        let (past, future) = (Some(now), Some(now + Duration::from_secs(1)));
        let cases = [
            (
                "a follower gets the lease",
                None,
                Some(true),
                Standing::Leader,
            ),
            (
                "a follower does not get it",
                None,
                Some(false),
                Standing::Unchanged,
            ),
            ("a follower hears nothing", None, None, Standing::Unchanged),
            ("a leader renews", future, Some(true), Standing::Leader),
            (
                "a leader hears nothing and has time",
                future,
                None,
                Standing::Unchanged,
            ),
            (
                "a leader hears nothing until its time is over",
                past,
                None,
                Standing::Lost,
            ),
            (
                "a leader renews when its time is over",
                past,
                Some(true),
                Standing::Lost,
            ),
            (
                "somebody else took the lease",
                future,
                Some(false),
                Standing::Lost,
            ),
        ];
        for (what, until, ours, expected) in cases {
            assert_eq!(judge(until, ours, now), expected, "{what}");
        }
    }
}
