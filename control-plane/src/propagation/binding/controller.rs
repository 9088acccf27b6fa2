//! Reconciles a binding: creates, updates and removes its Works.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use kube::{Client, ResourceExt};
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::policy::{ClusterAffinity, Placement};
use muster_shared::conditions;
use muster_shared::controller::Controller;
use muster_shared::finalizers;
use muster_shared::names::{
    self,
    condition::{DATA_PENDING, REMOVAL_PENDING},
};
use muster_shared::queue::{Next, Queue};
use muster_shared::selectors::matches_affinity;
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;
use serde_json::json;
use tokio::sync::OnceCell;

use super::absence;
use super::companions::Companions;
use super::definitions;
use super::deliver::deliver;
use super::error::Error;
use super::idle_overrides;
use super::keeping;
use super::namespaces;
use super::overriding;
use super::plan::{Facts, Plan, Wanted};
use super::prepare::{Prepared, prepare};
use super::removal::{self, Reason};
use super::render::{Origin, Scope, expects};
use super::suspend::suspend_others;
use super::write::{doomed, is_leaving, lead, listed, remove};
use crate::fleet::Fleet;
use crate::fleet::availability::{applies_works, is_ready};
use crate::fleet::binding::BindingKey;
use crate::fleet::copy::members_scale;
use crate::fleet::last_patches::LastPatches;
use crate::fleet::memory::{Backoff, Since};
use crate::fleet::parked::Parked;
use crate::fleet::protection::{preserves_on_deletion, protected};
use crate::fleet::template::TemplateKey;
use crate::fleet::template_event::{Lookup, TemplateEvent};
use crate::fleet::works::{CachedWork, Doomed, Role, binding_of, cluster_of};
use crate::propagation::data::facts::roles;
use crate::propagation::data::gates::keeps_copies;
use crate::propagation::data::wakes;
use crate::scheduler::core::affinity::allows_name;
use crate::scheduler::core::deselected::deselected;

/// First and longest time after which a binding is reconciled again whose policy says more than it
/// does.
const AHEAD: (Duration, Duration) = (Duration::from_secs(10), Duration::from_mins(5));

/// Time after which a target that refuses its Work counts as one that goes on refusing it.
const REFUSED: Duration = Duration::from_secs(10);

/// The conditions that this controller writes.
const OURS: [&str; 3] = [REMOVAL_PENDING, keeping::CONDITION, DATA_PENDING];

/// Starts the controller.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    fleet.follow_templates();
    let ranks = Arc::downgrade(fleet);
    let queue = Queue::ranked("binding", move |key| {
        ranks
            .upgrade()
            .map_or(0, |fleet| Urgency::of(&fleet, key) as i32)
    });
    let memory = Arc::new(Memory {
        patches: Arc::default(),
        missing: Since::default(),
        waits: Backoff::default(),
        scaling: Backoff::default(),
        unremoved: Backoff::default(),
        replacing: Arc::default(),
        refusing: Since::default(),
        outdated: Backoff::default(),
        parked: Parked::new(&fleet.templates, &queue),
        keeping: Arc::default(),
        companions: Companions::default(),
        ahead: Backoff::between(AHEAD.0, AHEAD.1),
    });
    overriding::follow(fleet, &queue);
    idle_overrides::start(fleet, tasks);
    let keeping = Arc::clone(&memory.keeping);
    let replacing = Arc::clone(&memory.replacing);
    let following = Controller::with(fleet, "binding", &queue)
        .watches(&fleet.bindings, move |_, change| {
            concerned(&keeping, change)
        })
        .watches(&*fleet.interpreters, Fleet::interpreted_anew)
        // The manifest follows the template itself. The binding names its version, and need not
        // change before the template does: the detector may be another program, or see two changes
        // as one. The binding may have been seen first, too.
        .watches(&fleet.templates, |_, change| {
            let is_there = change.event != TemplateEvent::Gone;
            is_there.then(|| BindingKey::for_template(&change.key))
        })
        .watches(&fleet.works, move |fleet, change| {
            let key = binding_of(change.object())?;
            let concerns_us = match change {
                // Somebody changed the spec, or gave the permanent id that the manifest carries; or
                // old copies wait for what the agent reports.
                Change::Applied {
                    old: Some(old),
                    new,
                } => {
                    old.metadata.generation != new.metadata.generation
                        || old.metadata.labels != new.metadata.labels
                        || replacing.has(&key) && !new.reports_as(old)
                }
                // Made while its binding moved on or went: nothing else would ever reconcile it.
                Change::Applied { old: None, new } => !is_expected(fleet, new),
                Change::Deleted { .. } => true,
            };
            concerns_us.then_some(key)
        });
    memory.companions.follow(fleet, &queue);
    wakes::follow(fleet, &queue);
    let patches = Arc::clone(&memory.patches);
    fleet.works.on_change(move |change| {
        if let Change::Deleted { old } = change
            && let Some(uid) = old.metadata.uid.as_deref()
        {
            patches.forget(uid);
        }
    });
    let workers = fleet.settings.concurrent_resourcebinding_syncs;
    let memory = (memory, Arc::new(OnceCell::new()));
    following.run(
        tasks,
        workers,
        memory,
        |fleet, (memory, settled), key| async move {
            settled.get_or_init(|| overriding::settle(&fleet)).await;
            let next = sync(&fleet, &memory, &key).await?;
            Ok::<_, Error>(memory.sooner(&fleet, &key, next))
        },
    );
}

/// What the controller remembers. May be lost.
pub(super) struct Memory {
    /// The last patch of each Work, by its uid.
    pub(super) patches: Arc<LastPatches<String>>,
    /// Bindings that the API did not have, and since when.
    missing: Since<BindingKey>,
    pub(super) waits: Backoff<BindingKey>,
    /// Bindings that may be about to say how many replicas each cluster gets.
    pub(super) scaling: Backoff<BindingKey>,
    /// Bindings whose unwanted Works could not be deleted because the API gave no answer.
    unremoved: Backoff<BindingKey>,
    /// Bindings whose unwanted Works wait for copies that take their place.
    replacing: Arc<Backoff<BindingKey>>,
    /// Targets that refuse what would take their place.
    refusing: Since<BindingKey, Vec<String>>,
    /// Bindings that are about a former object.
    pub(super) outdated: Backoff<BindingKey>,
    pub(super) parked: Parked<BindingKey>,
    /// Bindings some of whose replicas wait for others, and since when.
    pub(super) keeping: Arc<Since<BindingKey>>,
    /// Bindings some of whose Works stay because a workload of their policy may be there.
    companions: Companions,
    /// Bindings whose policy says more than they do.
    ahead: Backoff<BindingKey>,
}

impl Memory {
    /// Forgets a binding that is gone.
    fn forget(&self, key: &BindingKey) {
        let waits = [&self.waits, &self.scaling, &self.unremoved, &self.outdated];
        for waits in waits.into_iter().chain([&*self.replacing]) {
            waits.forget(key);
        }
        self.refusing.forget(key);
        self.parked.leave(key);
        self.keeping.forget(key);
    }

    /// Returns when a binding is reconciled next whose old copies wait for others, and reports them
    /// once that has lasted.
    fn due(&self, fleet: &Fleet, key: &BindingKey, binding: &AnyBinding, plan: &Plan<'_>) -> Next {
        if plan.waits.is_empty() {
            self.replacing.forget(key);
            self.refusing.forget(key);
            return Next::Done;
        }
        let next = self.replacing.next(key);
        if next.is_worth_reporting {
            report_old_copies(fleet, binding, plan);
        }
        Next::After(next.time)
    }

    /// Returns when a binding is reconciled next. A policy may protect copies by a setting that its
    /// binding does not have yet, and the Works have: if it is withdrawn before the binding was
    /// written, no change of the binding shows it.
    fn sooner(&self, fleet: &Fleet, key: &BindingKey, next: Next) -> Next {
        let binding = fleet.bindings.get(key);
        let is_ahead = binding.is_some_and(|it| matches!(protected(fleet, &it), Cow::Owned(_)));
        if !is_ahead {
            self.ahead.forget(key);
            return next;
        }
        let pause = self.ahead.next(key).time;
        match next {
            Next::Done => Next::After(pause),
            Next::After(other) => Next::After(other.min(pause)),
            next => next,
        }
    }
}

/// Returns whether a Work is where its binding wants one. False too where the binding is not known:
/// its Works are compared.
fn is_expected(fleet: &Fleet, work: &CachedWork) -> bool {
    let Some((key, cluster)) = binding_of(work).zip(cluster_of(work)) else {
        return true;
    };
    fleet.bindings.get(&key).is_some_and(|binding| {
        binding.metadata.deletion_timestamp.is_none() && expects(&binding.spec, cluster)
    })
}

/// Returns the binding of a change, but for changes of the status alone. These count where replicas
/// are kept until others are reported, and where a condition of this controller changed: while the
/// cache showed an older state, a condition that differs now may have seemed to be written already.
fn concerned(keeping: &Since<BindingKey>, change: &Change<AnyBinding>) -> Option<BindingKey> {
    let key = BindingKey::of(change.object());
    let conditions = |it: &AnyBinding| {
        let conditions = &it.status().conditions;
        OURS.map(|ours| conditions::get(conditions, ours).cloned())
    };
    // As a rule the Works of a binding that is gone went before it; without its finalizer they did
    // not.
    let is_update = change.differs(|old, new| {
        let (was, is) = (&old.metadata, &new.metadata);
        was.generation != is.generation
            || was.labels != is.labels
            || was.deletion_timestamp.is_some() != is.deletion_timestamp.is_some()
            || conditions(old) != conditions(new)
    });
    (is_update || keeping.has(&key)).then_some(key)
}

/// Urgency with which a binding is reconciled, by what its Works lack. The most urgent comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Urgency {
    /// Changes and removals of Works.
    Later,
    /// The first Works of a workload.
    New,
    /// The Work of a workload that moves.
    Moved,
}

impl Urgency {
    /// Returns the urgency of a binding by its targets, those of the workloads that it follows, and
    /// its Works: a workload that moved does not start without what it needs.
    fn of(fleet: &Fleet, key: &BindingKey) -> Self {
        let Some(binding) = fleet.bindings.get(key) else {
            return Self::Later;
        };
        let placed = fleet.work_index.clusters_of(key);
        let spec = &binding.spec;
        let followed = spec.required_by.iter().flat_map(|it| &it.clusters);
        let mut targets = spec.clusters.iter().chain(followed);
        let lacks_work = targets.any(|it| !placed.contains(&*it.name));
        let was_elsewhere = !placed.is_empty() || !spec.graceful_eviction_tasks.is_empty();
        match lacks_work && binding.metadata.deletion_timestamp.is_none() {
            false => Self::Later,
            true if was_elsewhere => Self::Moved,
            true => Self::New,
        }
    }
}

/// Returns the client for the Works of a binding. A new Work follows its decision at once, whatever
/// else is decided; changes and removals wait.
async fn writer(fleet: &Fleet, key: &BindingKey) -> Client {
    match Urgency::of(fleet, key) {
        Urgency::New | Urgency::Moved => fleet.client.clone(),
        Urgency::Later => fleet.work_writer.when_idle().await,
    }
}

async fn sync(fleet: &Fleet, memory: &Memory, key: &BindingKey) -> Result<Next, Error> {
    let client = writer(fleet, key).await;
    let Some(binding) = fleet.bindings.get(key) else {
        memory.forget(key);
        return absence::sweep(fleet, &client, &memory.missing, key).await;
    };
    memory.missing.forget(key);
    if binding.metadata.deletion_timestamp.is_some() {
        memory.keeping.forget(key);
        return finish(fleet, memory, &client, key, binding.as_ref()).await;
    }
    let Some(id) = binding.permanent_id() else {
        return identify(fleet, key, binding.as_ref()).await;
    };
    let _lock = fleet.bindings.followers().lock(key).await;
    // A setting that protects counts from the moment at which it is in the policy.
    let spec = &*protected(fleet, binding.as_ref());
    let works = fleet.work_index.of(key);
    let scope = Scope::of(spec);
    let left = works
        .iter()
        .filter(|work| cluster_of(work).is_some_and(|cluster| !scope.expected.contains(cluster)));
    let mut kept = memory.companions.kept(fleet, key, &binding, left.clone());
    let stays = keeps_copies(fleet, key, spec, &scope.targets, &left);
    if stays.is_some() {
        kept.extend(left.filter_map(|work| cluster_of(work).map(str::to_owned)));
    }
    let roles = roles(fleet, &client, &binding, &scope.targets, &works).await?;
    let with_stays = roles.as_ref().and_then(|it| it.with_stays(spec));
    let scope = with_stays.as_ref().map_or(scope, Scope::of);
    let spec = with_stays.as_ref().unwrap_or(spec);
    let of = (binding.as_ref(), spec);
    let origin = Origin {
        key: key.clone(),
        id: id.to_owned(),
    };
    let make = match &*scope.targets {
        [] => Ok(Prepared::Nothing),
        _ => prepare(fleet, memory, &origin, of, &works, roles.as_ref()),
    };
    let wanted = Wanted {
        origin: &origin,
        spec,
        scope: &scope,
        placements: placements(fleet, of, &scope, &works),
        works: &works,
        kept: &kept,
        stays: stays.as_deref(),
    };
    // A Work whose deletion this process asked for may have stayed, and is a copy then. One that
    // cannot be read is none; whoever makes it says why.
    let is_wanted = |work: &CachedWork| {
        let cluster = cluster_of(work);
        cluster.is_some_and(|it| scope.expected.contains(it) || kept.contains(it))
    };
    for work in works.iter().filter(|it| is_wanted(it)) {
        _ = fleet.deleted_works.stays(&client, work).await;
    }
    let facts = Facts {
        is_to_go: &|work| fleet.deleted_works.is_to_go(work),
        is_ready: &|cluster| is_ready(fleet, cluster),
        applies: &|cluster| applies_works(fleet, cluster),
        is_paused: &|cluster| fleet.pauses.of(cluster, fleet.clock.now()).is_some(),
        is_leaving: &|cluster| is_leaving(fleet, &names::execution_namespace(cluster)),
        selects: &|affinity, cluster| selects(fleet, affinity, cluster),
        go_on_refusing: &|clusters| {
            if clusters.is_empty() {
                memory.refusing.forget(key);
                return false;
            }
            memory.refusing.rest(key, clusters, REFUSED).is_none()
        },
        members_scale: &|| members_scale(fleet, &spec.resource),
        // The clock that tasks are dated by.
        now: fleet.clock.now(),
    };
    let plan = Plan::of(&wanted, make, &facts);
    // So may one that waits for others and is not removed any more.
    let is_waiting = |work: &Arc<CachedWork>| !is_wanted(work) && !plan.removes(work);
    for work in works.iter().filter(|it| is_waiting(it)) {
        _ = fleet.deleted_works.stays(&client, work).await;
    }
    let due = memory.due(fleet, key, &binding, &plan);
    // A Work whose deletion is refused holds no others back, unless two copies must not run at a
    // time.
    let removed = match carry_out(fleet, &client, &wanted, &plan).await {
        Err(Error::Deposed) => return Err(Error::Deposed),
        removed => removed,
    };
    let is_left = removed.is_ok() && plan.waits.is_empty();
    if removed.is_ok() {
        memory.unremoved.forget(key);
    }
    let suspended = suspend_others(fleet, &client, &wanted, &plan).await;
    let plan = (plan, roles.as_ref());
    let delivered = deliver(fleet, &client, memory, &binding, &wanted, plan, is_left).await;
    let delivered = delivered.and_then(|next| Ok(next.sooner(due).sooner(suspended?)));
    let Err(error) = removed else {
        return delivered;
    };
    report_removal(fleet, memory, key, binding.as_ref(), &error);
    delivered.and(Err(error))
}

/// Returns whether an affinity selects a cluster, as both are now. Of a cluster that is not known,
/// the name counts.
fn selects(fleet: &Fleet, affinity: &ClusterAffinity, cluster: &str) -> bool {
    let known = fleet.clusters.get(None, cluster);
    known.map_or_else(
        || allows_name(affinity, cluster),
        |known| matches_affinity(affinity, &known),
    )
}

/// Returns the placements that bring the objects of a binding into clusters, each with the clusters
/// that edits have taken from it: its own, or those of the workloads that it follows. They are
/// asked for only where a Work may go.
fn placements(
    fleet: &Fleet,
    (binding, spec): (&AnyBinding, &ResourceBindingSpec),
    scope: &Scope,
    works: &[Arc<CachedWork>],
) -> Vec<(Arc<Placement>, BTreeSet<String>)> {
    let is_left = |cluster: &str| !scope.expected.contains(cluster);
    if !works.iter().filter_map(|it| cluster_of(it)).any(is_left) {
        return Vec::new();
    }
    let taken = |it: &AnyBinding| -> BTreeSet<String> {
        let names = deselected(it);
        names.map(str::to_owned).collect()
    };
    if let Some(own) = &spec.placement {
        return vec![(Arc::clone(own), taken(binding))];
    }
    let referrers = spec.required_by.iter().map(BindingKey::of_snapshot);
    let placement = |key| {
        let referrer = fleet.bindings.get(&key)?;
        Some((referrer.spec.placement.clone()?, taken(&referrer)))
    };
    referrers.filter_map(placement).collect()
}

/// Deletes the Works that a plan removes.
async fn carry_out(
    fleet: &Fleet,
    client: &Client,
    wanted: &Wanted<'_>,
    plan: &Plan<'_>,
) -> Result<(), Error> {
    if plan.remove.is_empty() {
        return Ok(());
    }
    let preserves = wanted.spec.is_preserved_on_deletion();
    let staying = plan.remove.iter().filter(|it| it.stays);
    let staying = staying.filter(|it| preserves || namespaces::holds(it.work));
    let members = staying.filter_map(|it| it.work.metadata.namespace.as_deref());
    let members: Vec<&str> = members.collect();
    let (key, resource) = (&wanted.origin.key, Some(&wanted.spec.resource));
    namespaces::keep(fleet, key, resource, &members).await?;
    let doomed = plan
        .remove
        .iter()
        .filter_map(|it| doomed(it.work, it.stays));
    remove(fleet, client, doomed.collect()).await
}

/// Publishes an event that the API does not delete Works which are not wanted any more: at once
/// where it refuses, and after several attempts where it gives no answer, has too much to do or has
/// another version.
fn report_removal(
    fleet: &Fleet,
    memory: &Memory,
    key: &BindingKey,
    binding: &AnyBinding,
    error: &Error,
) {
    let Error::Api(failure) = error else {
        return;
    };
    if is_final(&failure.source) || memory.unremoved.next(key).is_worth_reporting {
        fleet.warn(binding, "SyncWorkFailed", error.to_string());
    }
}

/// Publishes an event that copies stay in clusters which were deselected, and what they wait for.
fn report_old_copies(fleet: &Fleet, binding: &AnyBinding, plan: &Plan<'_>) {
    let named = |clusters: &[String]| muster_shared::check::listed(clusters, MOST_NAMED);
    let cause = if !plan.lacks.is_empty() {
        format!("{} is to have applied its own", named(&plan.lacks))
    } else if !plan.paused.is_empty() {
        let paused = named(&plan.paused);
        format!("the pause of movement out of {paused} is to end")
    } else {
        "another cluster is to take its place".to_owned()
    };
    let note = format!(
        "the copy in {} stays and may run, although no policy wants it there any more: {cause}",
        named(&plan.waits)
    );
    fleet.warn(binding, "OldCopyStays", note);
}

/// Clusters that an event names at most.
const MOST_NAMED: usize = 5;

/// Returns whether the API refuses a request, and goes on refusing it unless something changes. It
/// does not where it is not reachable, does not serve the kind now, has too much to do or has
/// another version of the object, and where a webhook gives no answer.
fn is_final(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => !matches!(status.code, 404 | 409 | 429 | 502 | 503 | 504),
        _ => false,
    }
}

/// Removes the Works of a binding that is going away, then lets go of it. The Works' own finalizers
/// take care of the members.
async fn finish(
    fleet: &Fleet,
    memory: &Memory,
    client: &Client,
    key: &BindingKey,
    binding: &AnyBinding,
) -> Result<Next, Error> {
    let ours = key.scope().binding_finalizer();
    if !finalizers::has(&binding.metadata, ours) {
        return Ok(Next::Done);
    }
    let spec = &binding.spec;
    let template = TemplateKey::of(&spec.resource);
    let is_deleted = match fleet.templates.get(&template) {
        Lookup::Found(template) => template.metadata().deletion_timestamp.is_some(),
        // A deletion that nobody saw deletes no data: a list may have lacked the template.
        Lookup::Absent | Lookup::Unknown => fleet.templates.was_deleted(&template),
    };
    let reason = if is_deleted {
        Reason::TemplateDeleted
    } else {
        Reason::Unbound
    };
    if binding.permanent_id().is_some() {
        let works = listed(fleet, key).await?;
        let preserves = preserves_on_deletion(fleet, binding).await?;
        let stays = removal::stays(Role::of(&spec.resource), reason, preserves);
        // A workload that stayed in the member may need the object.
        let is_needed = |work: &Doomed| {
            let known = fleet.works.get(Some(&work.namespace), &work.name);
            known.is_some_and(|it| namespaces::holds(&it))
        };
        let staying = works.iter().filter(|it| preserves || is_needed(it));
        let members: Vec<&str> = staying.map(|work| work.namespace.as_str()).collect();
        namespaces::keep(fleet, key, Some(&spec.resource), &members).await?;
        let is_container = Role::of(&spec.resource) == Role::Container;
        // A binding marks the Works before it goes: the bindings are read first.
        let needed = definitions::preserved_of(fleet, &spec.resource);
        let doomed = works.into_iter().map(|work| async {
            let cluster = names::cluster_of_execution_namespace(&work.namespace);
            let stays = stays
                || cluster.is_some_and(|it| needed.contains(it))
                || is_needed(&work)
                || is_container && namespaces::held(fleet, &work.namespace, &work.name).await?;
            Ok::<_, Error>((work, stays))
        });
        let doomed = try_join_all(doomed).await?;
        if let Err(error) = remove(fleet, client, doomed).await {
            report_removal(fleet, memory, key, binding, &error);
            return Err(error);
        }
        memory.unremoved.forget(key);
    }
    lead(fleet)?;
    let patch = finalizers::release(&binding.metadata, ours);
    Ok(key.merge(&fleet.client, "release", &patch).await?.next())
}

/// Gives a binding that somebody else made its permanent id: its uid, unless admission gave one.
async fn identify(fleet: &Fleet, key: &BindingKey, binding: &AnyBinding) -> Result<Next, Error> {
    let patch = json!({ "metadata": { "labels": { key.scope().binding_id_label(): binding.uid() }, "resourceVersion": binding.resource_version() } });
    Ok(key.merge(&fleet.client, "identify", &patch).await?.next())
}

#[cfg(test)]
mod tests {
    use super::super::replacing_tests::to;
    use super::*;
    use crate::fleet::testing::{Bench, key, work};

    #[tokio::test(start_paused = true)]
    async fn the_work_of_a_workload_that_moves_comes_before_those_of_new_workloads() {
        let mut follower = to(&[], 1);
        let workload = json!({"namespace": "shop", "name": "web", "clusters": [{"name": "m2"}]});
        follower["spec"]["requiredBy"] = json!([workload]);
        for (binding, copy, expected) in [
            (to(&["m2"], 1), None, Urgency::New),
            (to(&["m2"], 1), Some("m1"), Urgency::Moved),
            (to(&["m2"], 1), Some("m2"), Urgency::Later),
            (follower.clone(), None, Urgency::New),
            (follower.clone(), Some("m1"), Urgency::Moved),
            (follower, Some("m2"), Urgency::Later),
        ] {
            let works = copy.map(|cluster| ("works", work(cluster, "Healthy")));
            let what = format!("{} {copy:?}", binding["spec"]["requiredBy"]);
            let objects = [("resourcebindings", binding)];
            let bench = Bench::followed(objects.into_iter().chain(works)).await;
            let found = Urgency::of(&bench.fleet, &key("web-deployment"));
            assert_eq!(found, expected, "{what}");
        }
        assert!((Urgency::Later as i32) < Urgency::New as i32);
        assert!((Urgency::New as i32) < Urgency::Moved as i32);
    }

    #[test]
    fn a_deletion_that_gets_no_answer_or_meets_a_passing_state_is_not_refused_for_good() {
        let api = |code: u16| {
            let status = json!({"code": code, "message": "no", "reason": ""});
            kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
        };
        let late = kube::Error::Service("deadline has elapsed".into());
        for (error, expected) in [
            (api(403), true),
            (api(422), true),
            (api(500), true),
            (api(409), false),
            (api(429), false),
            (api(503), false),
            (api(404), false),
            (api(502), false),
            (api(504), false),
            (late, false),
        ] {
            assert_eq!(is_final(&error), expected, "{error}");
        }
    }
}
