//! Keeps the budget informed of the clusters.

use std::sync::Arc;
use std::time::Duration;

use kube::api::Api;
use muster_shared::api::cluster::Cluster;
use muster_shared::client::{Head, says_absent};
use muster_shared::controller::Controller;
use muster_shared::queue::Next;
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Fate, Presence};
use tokio::time::Instant;

use super::pace::Pace;
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;

/// Time after which a cluster that the API has and the cache lacks is asked for again. When it can
/// be seen, the watch shows it.
const AGAIN: Duration = Duration::from_mins(1);

/// Returns the budget that the settings give to a control plane; it is informed of every cluster
/// from now on. Call it before the listeners of those who pay are installed, so that they find it
/// up to date.
pub fn budget(fleet: &Arc<Fleet>, tasks: &mut Tasks) -> Pace {
    let pace = Pace::of(&fleet.settings);
    let following = Controller::<String, Fleet>::new(fleet, "lost clusters");
    fleet.clusters.on_fate({
        let (pace, queue) = (pace.clone(), following.queue().clone());
        move |fate| match fate {
            Fate::Applied(new) => pace.observe(new, Instant::now()),
            Fate::Gone(name) => pace.gone(name, Instant::now()),
            Fate::Lost(name) => {
                pace.lost(name, Instant::now());
                queue.add(name.to_owned());
            }
        }
    });
    following.run(tasks, 1, pace.clone(), |fleet, pace, name| async move {
        read(&fleet, &pace, name).await
    });
    pace
}

/// Asks the API for a cluster that counts as failed although the cache lacks it.
async fn read(fleet: &Fleet, pace: &Pace, name: String) -> Result<Next, ApiError> {
    let is_lost = || matches!(fleet.clusters.presence(None, &name), Presence::Unknown(_));
    if !is_lost() || !pace.has_failed(&name) {
        return Ok(Next::Done);
    }
    let clusters: Api<Head<Cluster>> = Api::all(fleet.client.clone());
    match clusters.get(&name).await {
        Ok(_) => Ok(Next::After(AGAIN)),
        // The cluster was made again after the API had said that there is none.
        Err(error) if says_absent(&error, &name) && !is_lost() => Ok(Next::Done),
        Err(error) if says_absent(&error, &name) => {
            tracing::info!(
                cluster = name,
                "the API does not have the cluster any more: it does not count as failed"
            );
            pace.gone(&name, Instant::now());
            Ok(Next::Done)
        }
        Err(error) => {
            let object = format!("cluster {name}, which counts as failed");
            Err(ApiError::of("look for", &object)(error))
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::{Bench, pass, refusal};

    const GONE: (u16, &str) = (404, "NotFound");

    /// Asks for `m1`. Returns the next step, the number of requests, and whether the cluster
    /// counts as failed afterwards.
    async fn check(
        bench: &Bench,
        has_failed: bool,
        (code, reason): (u16, &str),
    ) -> (Option<Next>, usize, bool) {
        let pace = Pace::of(&bench.fleet.settings);
        pace.put("m1", has_failed, Instant::now());
        let answer = if code == 200 {
            json!({"metadata": {"name": "m1"}})
        } else {
            refusal(code, reason, "m1")
        };
        bench.api.answer(Method::GET, "/clusters/m1", code, answer);
        bench.api.forget();
        let next = read(&bench.fleet, &pace, "m1".to_owned()).await;
        (next.ok(), bench.api.asked().len(), pace.has_failed("m1"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_cluster_counts_as_failed_until_the_api_says_that_there_is_none() {
        let bench = Bench::followed([]).await;
        let again = Some(Next::After(AGAIN));
        for (has_failed, answer, expected) in [
            (true, (200, ""), (again, 1, true)),
            (true, GONE, (Some(Next::Done), 1, false)),
            (true, (403, "Forbidden"), (None, 1, true)),
            (false, GONE, (Some(Next::Done), 0, false)),
        ] {
            let found = check(&bench, has_failed, answer).await;
            assert_eq!(found, expected, "{has_failed} {answer:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_can_be_seen_or_was_deleted_is_not_asked_for() {
        let there = json!({"metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"}});
        let bench = Bench::followed([("clusters", there)]).await;
        let nothing = (Some(Next::Done), 0, true);
        assert_eq!(check(&bench, true, GONE).await, nothing, "it is there");
        bench.api.delete("clusters", "", "m1");
        pass(5).await;
        assert_eq!(check(&bench, true, GONE).await, nothing, "it is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_is_made_again_while_the_api_is_asked_for_it_counts_as_failed() {
        let tainted = json!({
            "metadata": {"name": "m1", "finalizers": ["karmada.io/cluster-controller"]},
            "spec": {"syncMode": "Pull", "taints": [{"key": "down", "effect": "NoExecute"}]},
        });
        let mut bench = Bench::new([("clusters", tainted.clone())]);
        let pace = budget(&Arc::clone(&bench.fleet), &mut bench.tasks);
        bench.follow_for(5).await;
        bench
            .api
            .delay(Method::GET, "/clusters/m1", Duration::from_secs(5));
        bench.api.lose("clusters", "", "m1");
        let asked = || bench.api.asked().into_iter();
        while !asked().any(|it| it.path.ends_with("/clusters/m1")) {
            pass(1).await;
        }
        bench.api.put("clusters", tainted);
        pass(60).await;
        assert!(bench.fleet.clusters.get(None, "m1").is_some());
        assert!(pace.has_failed("m1"));
    }
}
