//! `kubectl muster explain`: the steps of the scheduler for one binding, as it would be decided
//! now.

mod failback;
mod print;
mod story;

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::Args;
use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ListParams};
use muster_control_plane::fleet::availability::{Workload, can_hold};
use muster_control_plane::fleet::binding::BindingKey;
use muster_control_plane::fleet::completion::is_divided_job;
use muster_control_plane::fleet::copy::WorkState;
use muster_control_plane::fleet::followers::objects_of;
use muster_control_plane::fleet::pause::Pause;
use muster_control_plane::fleet::place_state::PlaceState;
use muster_control_plane::movement::eviction::explain::{CONDITION as EVICTION, STAYING};
use muster_control_plane::movement::eviction::judge::{Switches, placement};
use muster_control_plane::movement::graceful_eviction::assess::{Facts, counts_replicas, missing};
use muster_control_plane::propagation::binding::render::Scope;
use muster_control_plane::propagation::data::story::steps;
use muster_control_plane::scheduler::core::explain::{Explanation, Fate, explain};
use muster_control_plane::scheduler::core::need::need;
use muster_control_plane::scheduler::core::record::record;
use muster_control_plane::scheduler::core::{self, ClusterInfo, DataPlaces, Snapshot};
use muster_control_plane::settings::evict_plugin::EvictPlugins;
use muster_control_plane::settings::grade_rule::GradeRule;
use muster_control_plane::settings::{Settings, names_scheduler};
use muster_interpreter::{Interpreters, Operation};
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::TargetCluster;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::work::Work;
use muster_shared::client;
use muster_shared::clock::calendar;
use muster_shared::k8s::{Condition, ObjectMeta, ResourceExt, Time};
use muster_shared::names::DEFAULT_SCHEDULER;
use muster_shared::settings::Words;
use muster_shared::taints::evicts;
use muster_shared::watch::Presence;
use serde::Serialize;

use super::leader::Leader;
use super::output::Format;
use super::running::{self, Running};
use super::subject::{self, Subject};
use super::{list, old_copies, suspension, view};

#[derive(Debug, Args)]
pub(super) struct Options {
    /// A template as `deployment/web`, or a binding as `rb/web-deployment` (`crb` for a
    /// cluster-scoped one).
    #[arg(value_name = "KIND/NAME")]
    what: String,
    /// The name, if it does not follow the kind after a slash.
    name: Option<String>,
    /// Format of the answer.
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
    /// The filters and scores in force, in place of those of the running control plane.
    #[arg(long, value_name = "LIST")]
    plugins: Option<Words>,
    /// What a node of a grade is taken to hold, in place of the rule of the running control plane.
    #[arg(long, value_name = "RULE")]
    node_grades: Option<GradeRule>,
}

impl Options {
    /// Changes the settings of the running control plane as far as that is asked for.
    fn change(&self, settings: &mut Settings) -> anyhow::Result<()> {
        if let Some(plugins) = &self.plugins {
            settings.plugins = plugins.clone();
        }
        settings.node_grades = self.node_grades.unwrap_or(settings.node_grades);
        settings.check()?;
        Ok(())
    }
}

/// Words for what keeps the old copy of a part of a divided Job, whatever the grace period of its
/// eviction task.
const UNDONE: &str = "other clusters have to take over the completions that this part has not done, whatever the grace period of the policy says";

/// Explains an object, by the settings of the running control plane.
pub(super) async fn carry_out(
    client: Client,
    namespace: &str,
    options: &Options,
) -> anyhow::Result<String> {
    let subject = Subject::of(&options.what, options.name.as_deref())?;
    let mut settings = Running::read(&client, &[]).await?.settings;
    options.change(&mut settings)?;
    let rules = core::Options::of(&settings);
    let binding = subject::find(&client, namespace, &subject).await?;
    let answer = asked(client, &binding, &settings, &rules).await?;
    answer.print(options.output)
}

async fn asked(
    client: Client,
    binding: &AnyBinding,
    settings: &Settings,
    rules: &core::Options,
) -> anyhow::Result<Answer> {
    let clusters = list::all::<Cluster>(Api::all(client.clone())).await;
    let clusters = clusters.map_err(anyhow::Error::msg)?;
    let (record, pause_unread) = view::pause_if_read(&client).await;
    let lease = running::lease(&client, settings).await;
    let now = calendar();
    let pauses: Vec<Pause> = Pause::all(record.as_ref(), &clusters, now).collect();
    let is_on = |name: &str| binding.spec.target(name).is_some();
    let its_own = pause_of(&pauses, is_on).map(ToString::to_string);
    let data = DataPlaces::among(&data(&client, binding).await);
    let snapshot = Snapshot::new(clusters.into_iter().map(Arc::new)).with_data(data);
    let old_copies = match works(&client, binding).await {
        Ok(works) => old_copies(&works, binding, &snapshot),
        Err(error) => vec![format!("not known: works cannot be listed: {error}")],
    };
    let answer = Answer::about(binding, &snapshot, rules);
    let returns = failback::sentences(binding, &snapshot, settings, now);
    let suspended = suspension::describe(&client, binding).await;
    let answer = Answer {
        old_copies,
        nobody_leads: Leader::of(&lease, now).missing(),
        paused: its_own,
        pauses,
        pause_unread,
        suspended,
        returns,
        ..answer
    };
    Ok(answer.waiting(binding, &snapshot, settings, now))
}

/// Returns the first pause that holds for the fleet or for a cluster that is meant.
fn pause_of(pauses: &[Pause], is_meant: impl Fn(&str) -> bool) -> Option<&Pause> {
    let mut pauses = pauses.iter();
    pauses.find(|it| it.cluster.as_deref().is_none_or(&is_meant))
}

/// Reads the bindings of the objects that are data of a workload, with its own, as far as they may
/// be read.
async fn data(client: &Client, binding: &AnyBinding) -> Vec<Arc<AnyBinding>> {
    let mut found = vec![Arc::new(binding.clone())];
    for key in objects_of(binding) {
        let object = client::get_opt(&key.api(client), &key.name).await;
        found.extend(object.ok().flatten().map(Arc::new));
    }
    found
}

/// Reads the Works of a binding.
async fn works(client: &Client, binding: &AnyBinding) -> kube::Result<Vec<ObjectMeta>> {
    let Some(id) = binding.permanent_id() else {
        return Ok(Vec::new());
    };
    let works: Api<Work> = Api::all(client.clone());
    let own = ListParams::default().labels(&format!("{}={id}", binding.scope().binding_id_label()));
    let works = works.list_metadata(&own).await?.items;
    Ok(works.into_iter().map(|it| it.metadata).collect())
}

/// Returns the sentences about where old copies of a workload may still run.
fn old_copies(works: &[ObjectMeta], binding: &AnyBinding, snapshot: &Snapshot) -> Vec<String> {
    let clusters = old_copies::of_one(works, &BindingKey::of(binding), &binding.spec);
    let reported = clusters.into_iter().map(|name| {
        let cluster = snapshot.get(name).map(ClusterInfo::cluster);
        let state = old_copies::state_of(cluster).unwrap_or("being removed");
        format!("not confirmed gone in {name} ({state}), where it may still run")
    });
    reported.collect()
}

/// Explanation of one binding: its clusters, and those that the scheduler would choose.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    /// Kind and name of what is placed.
    workload: String,
    /// Absent for what is not counted in replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<i32>,
    /// Priority by which it is scheduled, and leaves a failed cluster, before others; absent if it
    /// has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i32>,
    clusters: Vec<TargetCluster>,
    /// Clusters that it is placed on and that cannot hold it now, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unavailable: Vec<Unavailable>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    leaving: Vec<Leaving>,
    /// Clusters that it has left, where its old copy may still run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    old_copies: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Condition>,
    /// The policy that places it, or what it follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    placed_by: Option<String>,
    /// The moves that it remembers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    moves: Vec<String>,
    /// Changes by which the workload could run in clusters that do not fit now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    would_help: Vec<String>,
    /// Sentence that nobody leads, so that nothing of what is said below is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    nobody_leads: Option<String>,
    /// The pause that keeps it where it is, whatever is said below.
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<String>,
    /// The pauses that hold, that of the fleet first.
    #[serde(skip)]
    pauses: Vec<Pause>,
    /// A sentence if it is not known whether movement is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pause_unread: Option<String>,
    /// Clusters in which its copies are neither created nor changed, and who ordered that.
    #[serde(skip_serializing_if = "Option::is_none")]
    suspended: Option<String>,
    /// Conditions for its return to clusters that it left.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    returns: Vec<String>,
    /// Steps of its data in each move; the condition `DataPending` says which one is waited for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    data: Vec<String>,
    /// Reason why this control plane does not schedule it, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_back: Option<String>,
    /// Why the scheduler would schedule it now; absent when it is where it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    need: Option<String>,
    /// Whether scheduling it now would change nothing.
    settled: bool,
    /// Sentence before the attempts that says what will become of the workload.
    verdict: String,
    /// What would come of it, for each affinity group that would be tried. Empty without a
    /// placement.
    attempts: Vec<Explanation>,
}

#[derive(Debug, Serialize)]
struct Unavailable {
    cluster: String,
    reason: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Leaving {
    cluster: String,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Time>,
    /// Conditions for the removal of the old copy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waits_for: Vec<String>,
}

impl Answer {
    fn about(binding: &AnyBinding, snapshot: &Snapshot, rules: &core::Options) -> Self {
        let (spec, status) = (&binding.spec, binding.status());
        let applied = binding.applied_placement();
        let leaving = spec.graceful_eviction_tasks.iter().map(|task| Leaving {
            cluster: task.from_cluster.clone(),
            reason: task.reason.clone(),
            replicas: task.replicas,
            since: task.creation_timestamp.clone(),
            waits_for: Vec::new(),
        });
        let placement = placement(spec, applied);
        let workload = Workload::of(spec, placement.as_deref());
        let unavailable = spec.clusters.iter().filter_map(|target| {
            let cluster = snapshot.get(&target.name).map(ClusterInfo::cluster);
            let reason = can_hold(cluster, &workload).err()?;
            Some(Unavailable {
                cluster: target.name.clone(),
                reason: reason.to_string(),
            })
        });
        let attempts = explain(spec, status, snapshot, rules);
        let placed_by = story::placed_by(binding);
        let conditions = true_now(binding, snapshot);
        let mut answer = Self {
            kind: binding.scope().binding_kind().to_owned(),
            namespace: binding.namespace(),
            name: binding.name_any(),
            workload: format!("{} {}", spec.resource.kind, spec.resource.name),
            replicas: spec.is_workload().then_some(spec.replicas),
            priority: Some(spec.priority()).filter(|it| *it != 0),
            // An object that follows others is placed where they are.
            clusters: Scope::of(spec).targets,
            unavailable: unavailable.collect(),
            leaving: leaving.collect(),
            moves: story::moves(binding),
            would_help: story::remedies(placed_by.as_deref(), &conditions, &attempts),
            conditions,
            placed_by,
            data: steps(spec),
            held_back: held_back(binding),
            need: need(spec, status, applied, &record(spec), snapshot).map(|need| need.to_string()),
            settled: attempts
                .last()
                .is_some_and(|used| comes_to(used, &spec.clusters)),
            attempts,
            ..Self::default()
        };
        answer.verdict = answer.judged();
        answer
    }

    /// Adds to the answer what each graceful task waits for.
    fn waiting(
        mut self,
        binding: &AnyBinding,
        snapshot: &Snapshot,
        settings: &Settings,
        now: Timestamp,
    ) -> Self {
        let (spec, status) = (&binding.spec, binding.status());
        let placement = placement(spec, binding.applied_placement());
        let switches = Switches::of(settings);
        let workload = Workload::of(spec, placement.as_deref());
        let workload = workload.under(switches.failover, switches.no_execute);
        let standing = |name: &str| match snapshot.get(name) {
            Some(it) => {
                let cluster = Arc::new(it.cluster().clone());
                PlaceState::of(&Presence::There(cluster), &workload)
            }
            None => PlaceState::Gone,
        };
        // Works are not read for this: the binding says whether they were applied.
        let work = |cluster: &str| match status.report(cluster) {
            Some(report) if report.applied => WorkState::Applied,
            Some(_) => WorkState::Refused,
            None => WorkState::Absent,
        };
        let scheduled = binding.metadata.generation == Some(status.scheduler_observed_generation);
        let restores = !settings.schedules(spec.scheduler_name.as_deref());
        let resource = &spec.resource;
        // The kinds of Kubernetes and what is shipped: customizations of users are not asked.
        let has_rule = Interpreters::of(&[]).has(
            &resource.api_version,
            &resource.kind,
            Operation::InterpretHealth,
        );
        let facts = Facts {
            clusters: &spec.clusters,
            reports: &status.aggregated_status,
            work: &work,
            // Only who ends a task asks for it.
            awaits: &|_| false,
            scheduled,
            cluster: &standing,
            plugins: EvictPlugins::parse(&settings.evict_plugins).unwrap_or_default(),
            least: &|_, share| share,
            has_rule,
            counts_replicas: counts_replicas(spec, &status.aggregated_status),
            // Such a task ends within seconds.
            is_over: &|_| false,
            asks_for_none: spec.is_scaled_to_zero(),
            restores,
        };
        for (leaving, task) in self.leaving.iter_mut().zip(&spec.graceful_eviction_tasks) {
            leaving.waits_for = missing(task, &facts, now);
            // Each part is shown: Works, which say what is left to do, are not read here.
            if is_divided_job(spec) {
                leaving.waits_for.push(UNDONE.to_owned());
            }
            // The pause of another cluster keeps no copy there.
            let pause = pause_of(&self.pauses, |name| name == task.from_cluster);
            leaving.waits_for.extend(pause.map(ToString::to_string));
        }
        self
    }

    /// Returns the answer as text in this format.
    pub fn print(&self, format: Format) -> anyhow::Result<String> {
        format.print(|| self, self)
    }
}

/// Returns the conditions of a binding without the one that it stays in spite of taints, where no
/// cluster of it has such a taint any more: nothing writes that anew when the taint goes.
fn true_now(binding: &AnyBinding, snapshot: &Snapshot) -> Vec<Condition> {
    let is_tainted = |target: &TargetCluster| {
        // A cluster that is not known may have any taint.
        snapshot.get(&target.name).is_none_or(|it| {
            let mut taints = it.cluster().spec.taints.iter();
            taints.any(|taint| evicts(&taint.effect))
        })
    };
    let is_over = !binding.spec.clusters.iter().any(is_tainted);
    let mut conditions = binding.status().conditions.clone();
    conditions
        .retain(|it| !(is_over && it.type_ == EVICTION && STAYING.contains(&it.reason.as_str())));
    conditions
}

/// Returns whether the attempt was successful and gives the clusters what they have already.
fn comes_to(used: &Explanation, clusters: &[TargetCluster]) -> bool {
    let given = used.clusters.iter().filter_map(|line| match &line.fate {
        Fate::Fits(fit) => Some((line.name.as_str(), fit.given?)),
        _ => None,
    });
    let has = clusters
        .iter()
        .map(|target| (target.name.as_str(), i64::from(target.replicas)));
    used.failure.is_none() && given.collect::<BTreeMap<_, _>>() == has.collect()
}

/// Returns why our scheduler leaves a binding alone. The name of our scheduler is a flag of the
/// control plane, so that a name other than the usual one is shown and not judged.
fn held_back(binding: &AnyBinding) -> Option<String> {
    let spec = &binding.spec;
    let scheduler = spec.scheduler_name.as_deref().unwrap_or_default();
    if binding.metadata.deletion_timestamp.is_some() {
        Some("it is being deleted".to_owned())
    } else if spec.scheduling_suspended() {
        Some("spec.suspension.scheduling is true".to_owned())
    } else if names_scheduler(Some(scheduler), DEFAULT_SCHEDULER) {
        None
    } else {
        Some(format!(
            "its scheduler is {scheduler:?}, unless that is this control plane's --scheduler-name"
        ))
    }
}

#[cfg(test)]
mod tests;
