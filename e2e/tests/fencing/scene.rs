//! A workload that must not run twice, in a fleet of two members.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use muster_e2e::harness::fleet::Fleet;
use muster_e2e::harness::observer::View;
use muster_e2e::harness::process::{Launch, Process, Program};
use muster_e2e::harness::test_bed::until;
use muster_e2e::sandbox::scenario::AGENT;
use muster_shared::api::binding::ResourceBinding;
use muster_shared::conditions;
use muster_shared::k8s::{Api, Deployment};
use muster_shared::names::{self, condition};
use parking_lot::Mutex;

use crate::support::{pair, taint_policy};

/// Longest time for a step.
pub const SOON: Duration = Duration::from_mins(1);
/// `afterSeconds` of the policy.
pub const AFTER: Duration = Duration::from_secs(15);
/// What passes from the last renewal to the new copy: `afterSeconds`, a hundredth of it, the grace
/// period of the pods, and the margin.
pub const MOVED_AFTER: Duration = Duration::from_millis(15_000 + 150 + 1_000 + 5_000);

/// The workload that must not run twice.
const LEDGER: &str = r"
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
";

/// A Job that is placed by the same policy.
pub const JOB: &str = r"
apiVersion: batch/v1
kind: Job
metadata:
  name: sum
  namespace: default
spec:
  completions: 1000
  template:
    metadata:
      labels: {app: sum}
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers:
        - name: sum
          image: sum:1
";

/// Returns the policy by which a workload is placed in one cluster, and fenced.
pub fn policy(version: &str, kind: &str, name: &str) -> String {
    format!(
        "
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata:
  name: {name}
  namespace: default
spec:
  resourceSelectors:
    - apiVersion: {version}
      kind: {kind}
      name: {name}
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
"
    )
}

/// What was seen of the copies: each set of members with a copy, in order, with its time.
pub type Seen = Arc<Mutex<Vec<(Instant, BTreeSet<String>)>>>;

pub struct Scene {
    /// The fleet.
    pub fleet: Arc<Fleet>,
    /// The member in which the workload began.
    pub victim: String,
    seen: Seen,
}

pub fn ledger(view: &View, member: &str) -> Option<Arc<Deployment>> {
    view.members
        .get(member)?
        .deployments
        .get(Some("default"), "ledger")
}

/// Replicas that are asked for, and those that there are.
pub fn replicas(deployment: &Deployment) -> (i32, i32) {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    let there = deployment
        .status
        .as_ref()
        .and_then(|status| status.replicas);
    (wanted.unwrap_or(1), there.unwrap_or(0))
}

pub fn running(view: &View) -> BTreeSet<String> {
    let runs = |member: &&String| {
        ledger(view, member).is_some_and(|deployment| replicas(&deployment) != (0, 0))
    };
    view.members.keys().filter(runs).cloned().collect()
}

pub fn note(seen: &Seen, view: &View) {
    let mut seen = seen.lock();
    let now = running(view);
    if seen.last().is_none_or(|(_, last)| *last != now) {
        seen.push((Instant::now(), now));
    }
}

pub fn binding(view: &View) -> Option<Arc<ResourceBinding>> {
    view.bindings.get(Some("default"), "ledger-deployment")
}

pub fn placed(view: &View) -> Option<String> {
    let binding = binding(view)?;
    Some(binding.spec.clusters.first()?.name.clone())
}

/// Returns the reason of a condition of the binding, while the condition is true.
pub fn reason(view: &View, kind: &str) -> Option<String> {
    let binding = binding(view)?;
    let found = conditions::get(&binding.status().conditions, kind)?;
    (found.status == conditions::TRUE).then(|| found.reason.clone())
}

impl Scene {
    pub async fn until(&self, what: &str, condition: impl Fn(&View) -> bool) -> anyhow::Result<()> {
        let patience = SOON * self.fleet.patience;
        let ask = |view: &View| {
            // The change that ends the wait may come to the other listener later.
            note(&self.seen, view);
            if condition(view) {
                return Ok(());
            }
            let (runs, placed) = (running(view), placed(view));
            Err(format!("it runs in {runs:?} and is placed in {placed:?}"))
        };
        Ok(self.fleet.observer.await_that(what, patience, ask).await?)
    }

    pub async fn stays(
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

    /// Sees that the workload runs in the member in which it began, and nowhere else.
    pub async fn runs_on(&self, time: Duration) -> anyhow::Result<()> {
        let only_there = BTreeSet::from([self.victim.clone()]);
        let as_before = |view: &View| running(view) == only_there;
        self.stays("it runs on", time, as_before).await
    }

    pub async fn until_unknown(&self) -> anyhow::Result<()> {
        self.until("the cluster is silent", |view| {
            let cluster = view.clusters.get(None, &self.victim);
            cluster.is_some_and(|cluster| {
                cluster
                    .condition(condition::READY)
                    .is_some_and(|it| it.status == "Unknown")
            })
        })
        .await
    }

    pub async fn until_stopped(&self) -> anyhow::Result<()> {
        self.until("the copy is stopped in its member", |view| {
            let stopped = ledger(view, &self.victim);
            stopped.is_some_and(|deployment| replicas(&deployment) == (0, 0))
        })
        .await
    }

    pub async fn until_moved(&self) -> anyhow::Result<()> {
        self.until("a copy runs elsewhere", |view| {
            running(view).iter().any(|member| *member != self.victim)
        })
        .await
    }

    pub async fn until_one_copy(&self) -> anyhow::Result<()> {
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

    /// Returns the time between the moment at which the old copy was seen stopped and that at which
    /// a new one was seen; an error if two were ever seen at once.
    pub fn gap(&self) -> anyhow::Result<Duration> {
        let seen = self.seen.lock();
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

    pub fn never_two(&self) -> anyhow::Result<()> {
        let seen = self.seen.lock();
        let two = seen.iter().find(|(_, members)| members.len() > 1);
        anyhow::ensure!(two.is_none(), "it ran in two members at once: {seen:?}");
        Ok(())
    }
}

pub async fn fenced(name: &'static str, tell: impl AsyncFnOnce(&Scene) -> anyhow::Result<()>) {
    pair(&format!("fencing-{name}"), async |fleet| {
        let scene = begin(fleet).await?;
        tell(&scene).await
    })
    .await;
}

/// Has the workload run in one member, whose agent confirms that it fences it.
async fn begin(fleet: &Arc<Fleet>) -> anyhow::Result<Scene> {
    let mut scene = Scene {
        fleet: Arc::clone(fleet),
        victim: String::new(),
        seen: Seen::default(),
    };
    let (taints, policy) = (
        taint_policy(1, 5),
        policy("apps/v1", "Deployment", "ledger"),
    );
    fleet
        .apply(&format!("{taints}---{LEDGER}---{policy}"))
        .await?;
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

/// Waits until the copy of a binding is fenced; returns the cluster that has it.
pub async fn fenced_in(fleet: &Fleet, name: &str) -> anyhow::Result<String> {
    let bindings: Api<ResourceBinding> = Api::namespaced(fleet.api.watch_client.clone(), "default");
    let is_fenced = |binding: &ResourceBinding| {
        conditions::is_true(&binding.status().conditions, condition::FENCED)
    };
    let fenced = until(&bindings, name, "its copy is fenced", is_fenced).await;
    let cluster = fenced.spec.clusters.first().context("it is placed")?;
    Ok(cluster.name.clone())
}

/// Starts a second agent of the victim, which is the standby. It has the network of the first one.
pub fn stand_by(scene: &Scene) -> anyhow::Result<Process> {
    let (directory, name) = (scene.fleet.directory(), &scene.victim);
    let file = |side: &str| directory.join(format!("kube/agent-{name}-{side}.kubeconfig"));
    let mut arguments = vec![
        format!("--kubeconfig={}", file("member").display()),
        format!("--karmada-kubeconfig={}", file("fleet").display()),
        format!("--cluster-name={name}"),
        "--report-secrets=None".to_owned(),
    ];
    arguments.extend(AGENT.map(str::to_owned));
    Process::start(Launch {
        binary: env!("CARGO_BIN_EXE_sandbox").into(),
        program: Program::Agent,
        arguments,
        log: directory.join(format!("logs/agent-{name}-standby.log")),
    })
}
