//! Condition `Monitored` of a Cluster: whether anybody notices here when the member falls silent.
//!
//! A cluster of sync mode Pull is: its agent renews a lease. One of sync mode Push is as long as
//! the control plane has a connection to it ([`crate::clusters::push`]).

use jiff::Timestamp;
use kube::ResourceExt;
use muster_shared::api::cluster::Cluster;
use muster_shared::conditions;
use muster_shared::k8s::Condition;
use muster_shared::names::condition::MONITORED;
use muster_shared::queue::Next;

use super::api_call::{failed, write_if_changed};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::write::Written;
use crate::settings::PUSH_CONTROLLERS;

/// Way in which a cluster is monitored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Monitoring<'a> {
    /// By the lease of its agent.
    Lease,
    /// By requests of the control plane to the member.
    Connected,
    /// Not at all: there is no connection to the member, for this reason.
    Unconnected(&'a str),
    /// Not at all: the controllers of push clusters do not run.
    Off,
}

impl Monitoring<'_> {
    fn condition(self, now: Timestamp) -> Condition {
        let (status, reason, message) = match self {
            Self::Lease => (
                conditions::TRUE,
                "LeaseFollowed",
                "the control plane watches the lease that the agent renews".to_owned(),
            ),
            Self::Connected => (
                conditions::TRUE,
                "Connected",
                "the control plane connects to the member".to_owned(),
            ),
            Self::Unconnected(problem) => (
                conditions::FALSE,
                "NotConnected",
                format!("the control plane cannot connect to the member: {problem}"),
            ),
            Self::Off => (
                conditions::FALSE,
                "PushModeNotServed",
                format!(
                    "syncMode Push: --controllers switches off {}, so that this control plane does not notice if the cluster falls silent",
                    PUSH_CONTROLLERS.join(", ")
                ),
            ),
        };
        conditions::new(MONITORED, status, reason, &message, now)
    }
}

/// Returns the condition of a cluster; `None` if it is monitored by its lease and there was never a
/// doubt.
fn judge(cluster: &Cluster, monitoring: Monitoring<'_>, now: Timestamp) -> Option<Condition> {
    let is_plain = monitoring == Monitoring::Lease && cluster.condition(MONITORED).is_none();
    (!is_plain).then(|| monitoring.condition(now))
}

/// Writes the condition, and an event if the cluster is not monitored, where that has changed.
/// Returns when to reconcile the cluster again: soon where somebody else wrote it first.
///
/// # Errors
/// Those of the API.
pub async fn note(
    fleet: &Fleet,
    cluster: &Cluster,
    monitoring: Monitoring<'_>,
) -> Result<Next, ApiError> {
    let Some(said) = judge(cluster, monitoring, fleet.clock.now()) else {
        return Ok(Next::Done);
    };
    let written = Written::of(write_if_changed(&fleet.client, cluster, said).await);
    let written = written.map_err(failed("write the condition Monitored of", cluster))?;
    let next = written.next();
    if let Written::Done(Some(said)) = written
        && said.status == conditions::FALSE
    {
        tracing::warn!(cluster = cluster.name_any(), "{}", said.message);
        fleet.events.warn(cluster, &said.reason, said.message);
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::{Bench, REFUSALS};

    #[test]
    fn whether_a_cluster_is_monitored_is_reported_once_that_was_in_doubt() {
        let now = Timestamp::from_second(10).unwrap();
        let mut cluster = Cluster::default();
        assert_eq!(
            judge(&cluster, Monitoring::Lease, now),
            None,
            "there was never a doubt"
        );
        for (monitoring, status, reason) in [
            (Monitoring::Off, "False", "PushModeNotServed"),
            (Monitoring::Unconnected("no token"), "False", "NotConnected"),
            (
                Monitoring::Unconnected("no address"),
                "False",
                "NotConnected",
            ),
            (Monitoring::Connected, "True", "Connected"),
            (Monitoring::Lease, "True", "LeaseFollowed"),
        ] {
            let said = judge(&cluster, monitoring, now).unwrap();
            assert_eq!(
                (said.status.as_str(), said.reason.as_str()),
                (status, reason)
            );
            cluster.status.get_or_insert_default().conditions = vec![said];
        }
    }

    #[tokio::test(start_paused = true)]
    async fn that_nobody_notices_a_silence_is_an_event_and_that_somebody_does_is_none() {
        let push = json!({"metadata": {"name": "m1"}, "spec": {"syncMode": "Push"}});
        let bench = Bench::followed([("clusters", push)]).await;
        let off = [("m1".to_owned(), "PushModeNotServed".to_owned())];
        for (monitoring, reported) in [(Monitoring::Off, &off[..]), (Monitoring::Connected, &[])] {
            bench.api.forget();
            for _ in 0..2 {
                let cluster = bench.fleet.clusters.get(None, "m1").unwrap();
                note(&bench.fleet, &cluster, monitoring).await.unwrap();
                assert_eq!(bench.api.writes().len(), 1, "once: {monitoring:?}");
                assert_eq!(bench.api.reported().await, reported, "{monitoring:?}");
            }
        }
        for (code, is_usual) in REFUSALS {
            let cluster = bench.fleet.clusters.get(None, "m1").unwrap();
            let (method, path) = (Method::PATCH, "/clusters/m1/status");
            bench.api.refuse(method, path, code, "m1");
            let noted = note(&bench.fleet, &cluster, Monitoring::Off).await;
            assert_eq!(noted.is_ok(), is_usual, "{code}");
        }
    }
}
