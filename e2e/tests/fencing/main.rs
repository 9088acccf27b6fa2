//! Fencing: of a workload that must not run twice, no second copy is made before the first one is
//! stopped, whatever becomes of network, processes and clocks.

#![allow(clippy::panic, clippy::expect_used)] // how a test says that it failed

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use jiff::SignedDuration;
use muster_e2e::harness::dump::dump;
use muster_e2e::harness::fleet::Fleet;
use muster_e2e::harness::observer::View;
use muster_e2e::harness::provider;
use muster_e2e::sandbox::scenario;
use muster_shared::api::binding::{Binding as _, ResourceBinding};
use muster_shared::api::cluster::Cluster;
use muster_shared::conditions;
use muster_shared::k8s::Deployment;
use muster_shared::names::{self, condition};

/// Longest time for a step.
const SOON: Duration = Duration::from_mins(1);
/// `afterSeconds` of the policy.
const AFTER: Duration = Duration::from_secs(15);
/// What passes from the last renewal to the new copy: `afterSeconds`, a hundredth of it, the grace
/// period of the pods, and the margin.
const MOVED_AFTER: Duration = Duration::from_millis(15_000 + 150 + 1_000 + 5_000);

const MANIFESTS: &str = r#"
apiVersion: policy.karmada.io/v1alpha1
kind: ClusterTaintPolicy
metadata:
  name: failed-clusters
spec:
  matchConditions:
    - conditionType: Ready
      operator: NotIn
      statusValues: ["True"]
  taintsToAdd:
    - key: example.com/failed
      effect: NoExecute
      addOnMatchSeconds: 1
      removeOnMismatchSeconds: 5
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: ledger
  namespace: default
spec:
  replicas: 2
  selector:
    matchLabels: {app: ledger}
  template:
    metadata:
      labels: {app: ledger}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: ledger
          image: ledger:1
---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata:
  name: ledger
  namespace: default
spec:
  resourceSelectors:
    - apiVersion: apps/v1
      kind: Deployment
      name: ledger
  placement:
    clusterTolerations:
      - key: example.com/failed
        operator: Exists
        effect: NoExecute
        tolerationSeconds: 0
    spreadConstraints:
      - spreadByField: cluster
        maxGroups: 1
        minGroups: 1
  failover:
    cluster:
      purgeMode: Directly
      fencing:
        afterSeconds: 15
"#;

/// What was seen of the copies: each set of members with a copy, in order, with its time.
type Seen = Arc<Mutex<Vec<(Instant, BTreeSet<String>)>>>;

struct Scene {
    fleet: Arc<Fleet>,
    /// The member in which the workload began.
    victim: String,
    seen: Seen,
}

fn ledger(view: &View, member: &str) -> Option<Arc<Deployment>> {
    view.members
        .get(member)?
        .deployments
        .get(Some("default"), "ledger")
}

/// Replicas that are asked for, and those that there are.
fn replicas(deployment: &Deployment) -> (i32, i32) {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    let there = deployment
        .status
        .as_ref()
        .and_then(|status| status.replicas);
    (wanted.unwrap_or(1), there.unwrap_or(0))
}

fn running(view: &View) -> BTreeSet<String> {
    let runs = |member: &&String| {
        ledger(view, member).is_some_and(|deployment| replicas(&deployment) != (0, 0))
    };
    view.members.keys().filter(runs).cloned().collect()
}

fn note(seen: &Seen, view: &View) {
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let now = running(view);
    if seen.last().is_none_or(|(_, last)| *last != now) {
        seen.push((Instant::now(), now));
    }
}

fn binding(view: &View) -> Option<Arc<ResourceBinding>> {
    view.bindings.get(Some("default"), "ledger-deployment")
}

fn placed(view: &View) -> Option<String> {
    let binding = binding(view)?;
    Some(binding.spec.clusters.first()?.name.clone())
}

/// The reason of a condition of the binding, while that is true.
fn reason(view: &View, kind: &str) -> Option<String> {
    let binding = binding(view)?;
    let found = conditions::get(&binding.status().conditions, kind)?;
    (found.status == conditions::TRUE).then(|| found.reason.clone())
}

fn readiness(cluster: &Cluster) -> &str {
    cluster
        .condition(condition::READY)
        .map_or("", |ready| ready.status.as_str())
}

impl Scene {
    async fn until(&self, what: &str, condition: impl Fn(&View) -> bool) -> anyhow::Result<()> {
        let patience = SOON * self.fleet.patience;
        let ask = |view: &View| {
            // The change that ends the wait may be told to the other listener later.
            note(&self.seen, view);
            if condition(view) {
                return Ok(());
            }
            let (runs, placed) = (running(view), placed(view));
            Err(format!("it runs in {runs:?} and is placed in {placed:?}"))
        };
        Ok(self.fleet.observer.await_that(what, patience, ask).await?)
    }

    async fn stays(
        &self,
        what: &str,
        time: Duration,
        condition: impl Fn(&View) -> bool,
    ) -> anyhow::Result<()> {
        let ask = |view: &View| {
            if condition(view) {
                Ok(())
            } else {
                Err(format!("it runs in {:?}", running(view)))
            }
        };
        Ok(self.fleet.observer.holds_for(what, time, ask).await?)
    }

    async fn until_unknown(&self) -> anyhow::Result<()> {
        self.until("the cluster is silent", |view| {
            let cluster = view.clusters.get(None, &self.victim);
            cluster.is_some_and(|cluster| readiness(&cluster) == "Unknown")
        })
        .await
    }

    async fn until_stopped(&self) -> anyhow::Result<()> {
        self.until("the copy is stopped in its member", |view| {
            let stopped = ledger(view, &self.victim);
            stopped.is_some_and(|deployment| replicas(&deployment) == (0, 0))
        })
        .await
    }

    async fn until_moved(&self) -> anyhow::Result<()> {
        self.until("a copy runs elsewhere", |view| {
            running(view).iter().any(|member| *member != self.victim)
        })
        .await
    }

    async fn until_one_copy(&self) -> anyhow::Result<()> {
        self.until(
            "one copy runs, where it is placed, and nothing is left",
            |view| {
                let work = names::work("Deployment", "ledger", "default");
                let is_there = |member: &&String| {
                    let namespace = names::execution_namespace(member);
                    ledger(view, member).is_some()
                        || view.works.get(Some(&namespace), &work).is_some()
                };
                let there: BTreeSet<String> =
                    view.members.keys().filter(is_there).cloned().collect();
                let runs = |member: &String| {
                    ledger(view, member).is_some_and(|deployment| replicas(&deployment) == (2, 2))
                };
                placed(view).is_some_and(|placed| {
                    there == BTreeSet::from([placed.clone()]) && runs(&placed)
                })
            },
        )
        .await
    }

    /// Time between the moment at which the old copy was seen stopped and that at which a new one
    /// was seen; an error if two were ever seen.
    fn gap(&self) -> anyhow::Result<Duration> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, both)) = seen.iter().find(|(_, members)| members.len() > 1) {
            anyhow::bail!("it ran in {both:?} at once: {seen:?}");
        }
        let began = seen
            .iter()
            .position(|(_, members)| members.iter().any(|member| *member != self.victim));
        let began = began.with_context(|| format!("it never ran elsewhere: {seen:?}"))?;
        let stopped = seen[..began].iter().rev();
        let stopped = stopped.take_while(|(_, members)| members.is_empty()).last();
        let (stopped, _) = stopped.context("it was not seen stopped before")?;
        Ok(seen[began].0 - *stopped)
    }

    fn never_two(&self) -> anyhow::Result<()> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let two = seen.iter().find(|(_, members)| members.len() > 1);
        anyhow::ensure!(two.is_none(), "it ran in two members at once: {seen:?}");
        Ok(())
    }
}

async fn fenced(name: &'static str, tell: impl AsyncFnOnce(&Scene) -> anyhow::Result<()>) {
    muster_shared::tls::install_provider();
    let directory = format!("fencing-{name}-{}", std::process::id());
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(directory);
    std::fs::create_dir_all(&directory).expect("a directory for the test");
    let binary = env!("CARGO_BIN_EXE_sandbox").into();
    let mut plan = scenario::plan(binary, directory.clone(), 2);
    plan.provider = provider::chosen().expect("a provider");
    plan.control_plane.push("--fencing-margin=5s".to_owned());
    let fleet = Fleet::start(plan).await.expect("a fleet on this machine");
    let outcome = async {
        let scene = begin(&fleet).await?;
        tell(&scene).await
    }
    .await;
    let dump = match &outcome {
        Ok(()) => String::new(),
        Err(_) => dump(&fleet).await,
    };
    let ended = fleet.end().await;
    if let Err(failure) = outcome {
        panic!(
            "{dump}\n{failure:#}\nlogs: {}",
            directory.join("logs").display()
        );
    }
    ended.expect("the clusters are as they were before");
    let _ = std::fs::remove_dir_all(&directory);
}

/// Has the workload run in one member, whose agent confirms that it fences it.
async fn begin(fleet: &Arc<Fleet>) -> anyhow::Result<Scene> {
    let mut scene = Scene {
        fleet: Arc::clone(fleet),
        victim: String::new(),
        seen: Seen::default(),
    };
    scene
        .until("all members are ready", |view| {
            let clusters = view.clusters.list();
            clusters.len() == 2 && clusters.iter().all(|cluster| readiness(cluster) == "True")
        })
        .await?;
    fleet.apply(MANIFESTS).await?;
    scene
        .until(
            "it runs, and its agent confirms that it fences it",
            |view| {
                let work = names::work("Deployment", "ledger", "default");
                let confirmed = placed(view).is_some_and(|member| {
                    let namespace = names::execution_namespace(&member);
                    let work = view.works.get(Some(&namespace), &work);
                    let status = work.as_ref().and_then(|work| work.status.as_ref());
                    status.is_some_and(|status| {
                        let fenced = conditions::get(&status.conditions, condition::FENCED);
                        fenced.is_some_and(|fenced| fenced.reason == "After15Grace1")
                    })
                });
                let runs = |member: &String| {
                    ledger(view, member).is_some_and(|deployment| replicas(&deployment) == (2, 2))
                };
                confirmed && placed(view).is_some_and(|member| runs(&member))
            },
        )
        .await?;
    scene.victim = placed(&fleet.observer.view).context("it is placed")?;
    let seen = Arc::clone(&scene.seen);
    fleet.observer.on_each_change(move |view| note(&seen, view));
    Ok(scene)
}

/// The victim is cut off until the workload runs elsewhere, and comes back.
async fn whole_story(scene: &Scene) -> anyhow::Result<()> {
    let cut = Instant::now();
    scene.fleet.cut(&scene.victim)?;
    scene.until_unknown().await?;
    scene
        .until("it is told what is waited for", |view| {
            reason(view, "EvictionPending").as_deref() == Some("WaitingForFence")
        })
        .await?;
    scene.until_stopped().await?;
    // The last renewal was sent up to an interval before the cut.
    let stopped = cut.elapsed();
    anyhow::ensure!(
        stopped + Duration::from_secs(2) > AFTER,
        "stopped after {stopped:?}"
    );
    scene.until_moved().await?;
    let moved = cut.elapsed();
    anyhow::ensure!(
        moved + Duration::from_secs(2) > MOVED_AFTER,
        "moved after {moved:?}"
    );
    let gap = scene.gap()?;
    anyhow::ensure!(gap > Duration::from_secs(1), "{gap:?} between the copies");
    scene.fleet.heal(&scene.victim)?;
    scene.until_one_copy().await?;
    scene.never_two()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_longer_than_the_fence_stops_the_copy_before_another_one_exists() {
    fenced("longer", whole_story).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_shorter_than_the_fence_stops_and_moves_nothing() {
    fenced("shorter", async |scene: &Scene| {
        scene.fleet.cut(&scene.victim)?;
        scene.until_unknown().await?;
        scene.fleet.heal(&scene.victim)?;
        let only_there = BTreeSet::from([scene.victim.clone()]);
        let as_before = |view: &View| {
            running(view) == only_there
                && ledger(view, &scene.victim).is_some_and(|it| replicas(&it) == (2, 2))
        };
        scene.stays("it runs on", 2 * AFTER, as_before).await?;
        scene.never_two()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_back_before_the_move_runs_its_copy_again() {
    fenced("released", async |scene: &Scene| {
        scene.fleet.cut(&scene.victim)?;
        scene.until_stopped().await?;
        scene.fleet.heal(&scene.victim)?;
        scene.until_one_copy().await?;
        // Beyond the moment at which it would have moved.
        let one = |view: &View| running(view).len() <= 1;
        scene.stays("it runs on", AFTER, one).await?;
        let placed = placed(&scene.fleet.observer.view);
        anyhow::ensure!(
            placed.as_ref() == Some(&scene.victim),
            "placed in {placed:?}"
        );
        let stopped = ledger(&scene.fleet.observer.view, &scene.victim)
            .and_then(|it| it.metadata.annotations.clone())
            .is_some_and(|it| it.contains_key(names::annotation::STOPPED));
        anyhow::ensure!(!stopped, "it is still marked as stopped");
        scene.never_two()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_back_in_the_middle_of_the_move_does_not_start_its_copy() {
    fenced("middle", async |scene: &Scene| {
        scene.fleet.cut(&scene.victim)?;
        scene
            .until("it is placed elsewhere", |view| {
                placed(view).is_some_and(|placed| placed != scene.victim)
            })
            .await?;
        scene.fleet.heal(&scene.victim)?;
        scene.until_one_copy().await?;
        scene.never_two()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_restarted_while_it_is_cut_off_goes_on_counting() {
    fenced("restarted", async |scene: &Scene| {
        let cut = Instant::now();
        scene.fleet.cut(&scene.victim)?;
        scene.until_unknown().await?;
        let agent = &scene.fleet.member(&scene.victim)?.agent;
        agent.kill().await;
        agent.resume();
        scene.until_stopped().await?;
        let stopped = cut.elapsed();
        let latest = AFTER + Duration::from_secs(5) * scene.fleet.patience;
        anyhow::ensure!(stopped < latest, "stopped after {stopped:?}");
        // It must not forget what it has stopped.
        agent.kill().await;
        agent.resume();
        scene.until_moved().await?;
        scene.gap()?;
        scene.fleet.heal(&scene.victim)?;
        scene.until_one_copy().await?;
        scene.never_two()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_clocks_of_agent_and_control_plane_change_nothing() {
    fenced("clocks", async |scene: &Scene| {
        let (ahead, behind) = (
            SignedDuration::from_mins(10),
            SignedDuration::from_mins(-10),
        );
        let member = scene.fleet.member(&scene.victim)?;
        member.to_fleet.set_clock(ahead);
        member.to_member.set_clock(ahead);
        scene.fleet.to_api.set_clock(behind);
        let as_before = |view: &View| running(view) == BTreeSet::from([scene.victim.clone()]);
        scene
            .stays("it runs on", Duration::from_secs(10), as_before)
            .await?;
        whole_story(scene).await
    })
    .await;
}

/// The field's description says so: nothing stops the copy of an agent that is dead.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_whose_agent_is_dead_goes_on_and_another_one_is_made_after_the_time() {
    fenced("dead", async |scene: &Scene| {
        let cut = Instant::now();
        let agent = &scene.fleet.member(&scene.victim)?.agent;
        agent.kill().await;
        scene.until_moved().await?;
        let moved = cut.elapsed();
        anyhow::ensure!(
            moved + Duration::from_secs(2) > MOVED_AFTER,
            "moved after {moved:?}"
        );
        anyhow::ensure!(
            running(&scene.fleet.observer.view).len() == 2,
            "the old copy goes on"
        );
        agent.resume();
        scene.until_one_copy().await
    })
    .await;
}
