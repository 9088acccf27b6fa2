//! The demonstration's story, as tests: what moves, what must not, and what a killed control plane
//! may not break.

mod applications;
mod history;
mod notices;
mod orders;
mod support;
mod traffic;
mod witnesses;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use muster_e2e::harness::observer::View;
use muster_e2e::harness::provider::{Ability, Forget};
use muster_e2e::harness::test_bed::awaited;
use muster_e2e::sandbox::expect::{self, Verdict};
use muster_e2e::sandbox::picture::{Picture, Workload};
use muster_e2e::sandbox::scenario::{self, VICTIM};
use muster_e2e::sandbox::story::{Failure, Story};
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::k8s::{Api, Namespace};
use muster_shared::names;
use serde_json::{Value, json};
use support::{Setting, scenario as play};

use crate::support::kubectl;

/// How long something that must not happen is waited for: longer than it takes where it may happen.
const LONG_ENOUGH: Duration = Duration::from_secs(12);

/// Plays the whole story: a member is lost, and comes back.
async fn whole_story(story: &Story) -> Result<(), Failure> {
    story.cut()?;
    story.until_unknown().await?;
    story.until_tainted().await?;
    story.until_moved().await?;
    the_rest(story).await
}

async fn the_rest(story: &Story) -> Result<(), Failure> {
    story.until_healthy_elsewhere().await?;
    story.heal()?;
    story.until_old_copies_removed().await?;
    story.until_back().await?;
    story.rest().await
}

#[tokio::test(flavor = "multi_thread")]
async fn workloads_of_a_silent_member_come_up_elsewhere_and_leave_it_when_it_returns() {
    let setting = Setting {
        members: 5,
        ..Setting::named("story")
    };
    play(setting, whole_story).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_moved_returns_when_its_member_has_been_healthy_and_each_copy_waits_for_its_successor()
{
    let setting = Setting {
        plan: |plan| {
            let flags = ["--failback=WhenHealthy", "--failback-after=5s"];
            plan.control_plane.extend(flags.map(str::to_owned));
        },
        ..Setting::named("failback")
    };
    play(setting, async |story: &Story| {
        story.cut()?;
        story.until_moved().await?;
        story.until_healthy_elsewhere().await?;
        story.heal()?;
        let at_home = |picture: &Picture| expect::unmoved(picture, story.before());
        story.until("all are at home again", at_home).await?;
        let reported = |view: &View| {
            let has_home = |it: &Arc<ResourceBinding>| {
                let annotations = it.metadata.annotations.iter().flatten();
                annotations
                    .into_iter()
                    .any(|(key, _)| *key == names::annotation::HOMES)
            };
            match view.bindings.list().iter().find(|it| has_home(it)) {
                Some(binding) => Err(format!("{} is to return", binding.name_any())),
                None => Ok(()),
            }
        };
        let observer = &story.fleet().observer;
        observer
            .await_that("nothing more returns", LONG_ENOUGH, reported)
            .await?;
        observer
            .holds_for("nothing more moves", LONG_ENOUGH, |view| {
                at_home(&Picture::of(view))
            })
            .await?;
        story.no_gaps()
    })
    .await;
}

/// Checks that `kubectl muster simulate`, asked before a member is lost, names the workloads that
/// then move, and the clusters that they then move to.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_simulation_foretells_is_what_then_happens() {
    play(Setting::named("foretold"), async |story: &Story| {
        let fleet = story.fleet();
        let asked = ["simulate", "--lost", VICTIM, "-o", "json", "--"];
        let words = [&asked[..], &scenario::CONTROL_PLANE].concat();
        let reported = kubectl::answer(&fleet.api.kubeconfig, &words).await?;
        let reported: Value = serde_json::from_str(&reported).context("the forecast")?;
        let before = Picture::of(&fleet.observer.view);
        story.cut()?;
        story.until_moved().await?;
        let after = Picture::of(&fleet.observer.view);
        let moves = reported["moves"].as_array().context("moves")?;
        let mut foretold = BTreeMap::new();
        for it in moves {
            let name = it["workload"]["name"].as_str().context("a name")?;
            let mut placed = before.workload(name).placed.context("a placement")?;
            placed.remove(it["from"].as_str().context("a cluster")?);
            for gain in it["to"].as_array().context("targets")? {
                let cluster = gain["name"].as_str().context("a target")?.to_owned();
                *placed.entry(cluster).or_default() += gain["replicas"].as_i64().unwrap_or(0);
            }
            foretold.insert(name.to_owned(), placed);
        }
        let happened: BTreeMap<String, BTreeMap<String, i64>> = after
            .workloads
            .iter()
            .filter(|(name, workload)| workload.placed != before.workload(name).placed)
            // It follows the workload that needs it.
            .filter(|(name, _)| **name != scenario::SETTINGS)
            .filter_map(|(name, workload)| Some(((*name).to_owned(), workload.placed.clone()?)))
            .collect();
        if foretold != happened || reported["stranded"] != json!([]) {
            let wrong = format!("foretold {foretold:?}, happened {happened:?}: {reported:#}");
            return Err(anyhow::anyhow!(wrong).into());
        }
        the_rest(story).await
    })
    .await;
}

fn leaving(picture: &Picture, at_least: usize) -> Verdict {
    let leaving = picture
        .workloads
        .values()
        .filter(|workload| workload.leaving.contains(VICTIM))
        .count();
    if leaving >= at_least {
        Ok(())
    } else {
        Err(format!("{leaving} workloads are leaving {VICTIM}"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_api_that_restarts_without_its_history_in_the_middle_changes_nothing() {
    let setting = Setting {
        needs: &[Ability::Restart],
        ..Setting::named("api-restart")
    };
    play(setting, async |story: &Story| {
        story.cut()?;
        story.until_tainted().await?;
        let down = Duration::from_secs(1);
        story.fleet().api.restart(Forget::History, down).await?;
        story.until_moved().await?;
        the_rest(story).await
    })
    .await;
}

/// Checks that a member that leaves does so with no copy left behind: the agent has to keep its
/// rights until the last Work is seen to. Namespaces stay, although the fleet made them: they may
/// hold what the fleet never knew of, such as volume claims of a moved workload.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_leaves_the_fleet_takes_its_copies_off_first() {
    let setting = Setting {
        needs: &[Ability::CollectGarbage],
        ..Setting::named("leaving")
    };
    play(setting, async |story: &Story| {
        let clusters: Api<Cluster> = Api::all(story.fleet().api.client.clone());
        let namespaces: Api<Namespace> = Api::all(story.fleet().api.client.clone());
        let member = story.fleet().member(VICTIM)?;
        let theirs: Api<Namespace> = Api::all(member.api.client.clone());
        let watched: Api<Namespace> = Api::all(member.api.watch_client.clone());
        let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shared}\n";
        story.fleet().apply(namespace).await?;
        awaited(&watched, "shared", "the fleet makes it", |it| it.is_some()).await?;

        let leaving = clusters.delete(VICTIM, &DeleteParams::default()).await;
        leaving.context("deleting the Cluster")?;
        story
            .until("its copies are gone", |picture| {
                let copies = |workload: &Workload| workload.copies.contains_key(VICTIM);
                if picture.workloads.values().any(copies) {
                    return Err(format!("{VICTIM} still has copies"));
                }
                Ok(())
            })
            .await?;
        let execution = names::execution_namespace(VICTIM);
        awaited(&namespaces, &execution, "it is gone", |it| it.is_none()).await?;
        let kept = theirs.get("shared").await.context("the shared namespace")?;
        let goes = kept.metadata.deletion_timestamp.is_some();
        let bound = kept.labels().contains_key(names::label::MANAGED);
        if goes || bound {
            return Err(
                anyhow::anyhow!("namespace shared is removed or still bound: {kept:?}").into(),
            );
        }
        Ok(())
    })
    .await;
}
