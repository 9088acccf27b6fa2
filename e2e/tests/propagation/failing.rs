//! An application that fails while its cluster is well, and a control plane that starts anew.

use muster_e2e::harness::test_bed::until;
use muster_shared::api::binding::ResourceBinding;
use muster_shared::conditions;
use serde_json::{Value, json};

use crate::propagation::bench::{Bench, shares};

const HISTORY: &str = "failover.muster.io/record";

async fn fails(bench: &Bench, member: &str) {
    let status = json!({ "replicas": 4, "readyReplicas": 0 });
    bench.report_that(member, "web", "Unhealthy", status).await;
}

async fn binding(
    bench: &Bench,
    what: &str,
    holds: impl Fn(&ResourceBinding) -> bool,
) -> ResourceBinding {
    until(&bench.here(), "web-deployment", what, holds).await
}

fn is_in(binding: &ResourceBinding, cluster: &str) -> bool {
    matches!(shares(binding)[..], [(name, 4)] if name == cluster)
}

/// Returns what the binding says of its failover: whether it is pending, why, and in a sentence.
fn reported(binding: &ResourceBinding) -> Option<(&str, &str, &str)> {
    let condition = conditions::get(&binding.status().conditions, "ApplicationFailoverPending")?;
    Some((&condition.status, &condition.reason, &condition.message))
}

/// Waits until the binding says so of its failover, and returns it.
async fn said(bench: &Bench, pending: &str, reason: &str) -> ResourceBinding {
    binding(bench, &format!("it says {pending} {reason}"), |binding| {
        reported(binding).is_some_and(|(status, why, _)| (status, why) == (pending, reason))
    })
    .await
}

#[tokio::test]
async fn a_restart_does_not_start_the_clock_anew() {
    let bench = Bench::start().await;
    let control_plane = bench.control_plane();
    let application = json!({ "decisionConditions": { "tolerationSeconds": 8 } });
    let more = json!({ "propagateDeps": true, "failover": { "application": application } });
    let (here, there) = bench.in_one_cluster(more).await;
    fails(&bench, here).await;
    let since = |binding: &ResourceBinding| -> Option<String> {
        let history: Value =
            serde_json::from_str(binding.metadata.annotations.as_ref()?.get(HISTORY)?).ok()?;
        Some(history["unhealthySince"][here].as_str()?.to_owned())
    };
    let noted = binding(&bench, "the time is written down", |binding| {
        since(binding).is_some()
    })
    .await;
    let noted = since(&noted).unwrap();
    control_plane.stop().await.unwrap();
    let _control_plane = bench.control_plane();
    binding(&bench, "it leaves", |binding| is_in(binding, there)).await;
    let reported_of = said(&bench, "False", "ApplicationMoved").await;
    // To the second, as it is reported.
    let second = noted.split(['.', 'Z']).next().unwrap();
    let message = reported(&reported_of).unwrap().2;
    assert!(message.contains(second), "{message} does not say {noted}");
}
