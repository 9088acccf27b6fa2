//! Clusters that watch each other, with real agents: the network of a member, and its death.

use std::time::Duration;

use muster_e2e::harness::observer::View;
use muster_e2e::harness::route::Condition;
use muster_e2e::sandbox::scenario::VICTIM;
use muster_e2e::sandbox::story::Story;

use super::support::{Setting, scenario as play, unhurried};
use super::{LONG_ENOUGH, the_rest};

/// Time in which every witness has called twice, on a busy machine.
const CALLED: Duration = Duration::from_mins(2);

/// Has the policy require that no peer sees the cluster, too.
fn with_witnesses(manifest: &str) -> String {
    let ready = r#"        - "True"
"#;
    let witnesses = r#"        - "True"
    - conditionType: SeenByPeers
      operator: In
      statusValues:
        - "False"
"#;
    unhurried(manifest).replacen(ready, witnesses, 1)
}

fn seen(status: &'static str) -> impl FnMut(&View) -> Result<(), String> {
    move |view| {
        let victim = view.clusters.get(None, VICTIM);
        let reported = victim.and_then(|it| it.condition("SeenByPeers").cloned());
        match reported {
            Some(reported) if reported.status == status => Ok(()),
            other => Err(format!("{other:?}, not {status}")),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workloads_stay_in_a_member_that_peers_still_see_and_leave_it_when_none_does() {
    let setting = Setting {
        plan: |plan| plan.control_plane.push("--peers-per-cluster=2".to_owned()),
        manifest: with_witnesses,
        ..Setting::named("witnesses-of-agents")
    };
    play(setting, async |story: &Story| {
        let fleet = story.fleet();
        let observer = &fleet.observer;
        observer
            .await_that("peers see it", CALLED, seen("True"))
            .await?;
        story.cut()?;
        story.until_unknown().await?;
        story.nothing_moves_for(LONG_ENOUGH).await?;
        fleet.member(VICTIM)?.to_member.set(Condition::Silent);
        observer
            .await_that("peers lose it", CALLED, seen("False"))
            .await?;
        story.until_moved().await?;
        the_rest(story).await
    })
    .await;
}
