//! What the control plane would make of clusters that are lost or drained: their conditions and
//! taints, and when they would come.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use muster_control_plane::clusters::taint::condition_taints;
use muster_control_plane::clusters::taint::decide::{Outcome, Scene, decide};
use muster_control_plane::clusters::taint::record::{ANNOTATION, Record};
use muster_control_plane::clusters::witnesses::{Witness, judge, troubled_since};
use muster_control_plane::settings::Settings;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::taint_policy::ClusterTaintPolicy;
use muster_shared::clock::later;
use muster_shared::conditions;
use muster_shared::k8s::{Condition, Taint};
use muster_shared::names::condition::READY;
use muster_shared::names::taint::DRAIN;
use muster_shared::peers::{PEERS, Reach, SEEN_BY_PEERS, read};
use muster_shared::selectors::matches_affinity;
use muster_shared::taints::{NO_EXECUTE, NO_SCHEDULE, is_of_command, put_on};

/// Decides on a cluster until nothing more is due. Each decision ends a window at least, and a
/// cluster has few of them.
const ROUNDS: usize = 64;

/// A taint that a cluster would get.
#[derive(Clone, Debug, PartialEq)]
pub struct Coming {
    /// The taint.
    pub taint: Taint,
    /// Time from the loss, or from the command to drain.
    pub after: SignedDuration,
}

/// A cluster after the disaster, with all taints that would ever come.
#[derive(Clone, Debug)]
pub struct Struck {
    /// The cluster.
    pub cluster: Cluster,
    /// The taints that it did not have before.
    pub coming: Vec<Coming>,
    /// The taints that it has from a moment on, each time that one comes.
    pub stages: Vec<(Timestamp, Vec<Taint>)>,
}

/// Clusters whose agents check others, by the names of these.
pub type Watchers<'a> = BTreeMap<String, Vec<&'a Cluster>>;

/// Returns who checks whom in a fleet.
pub fn watchers(fleet: &[Cluster]) -> Watchers<'_> {
    let mut watchers = Watchers::new();
    for it in fleet {
        let peers = read(it.annotations().get(PEERS).map(String::as_str));
        let names: BTreeSet<String> = peers.into_iter().map(|peer| peer.name).collect();
        for name in names {
            watchers.entry(name).or_default().push(it);
        }
    }
    watchers
}

/// Returns a cluster that dies at `now`, together with others of its fleet, and stays dead.
pub fn lose(
    cluster: &Cluster,
    (watchers, together): (&Watchers<'_>, &BTreeSet<String>),
    policies: &[&ClusterTaintPolicy],
    settings: &Settings,
    now: Timestamp,
) -> Struck {
    let mut lost = cluster.clone();
    let noticed = later(now, *settings.cluster_monitor_grace_period);
    let silent = conditions::new(
        READY,
        conditions::UNKNOWN,
        "ClusterStatusUnknown",
        "the cluster is lost, in this simulation",
        noticed,
    );
    let unseen = unseen(cluster, watchers, together, noticed);
    let known = &mut lost.status.get_or_insert_default().conditions;
    for said in [silent].into_iter().chain(unseen) {
        if conditions::status(known, &said.type_) != Some(said.status.as_str()) {
            conditions::set(known, said);
        }
    }
    taint(&mut lost, policies, settings, noticed);
    struck(cluster, lost, now)
}

/// Returns what the peers of a cluster that dies make of it: those that reached it, and are not
/// lost with it, lose it at about the time at which it is noticed. `None` if they do not know it
/// now, which its death does not change.
fn unseen(
    cluster: &Cluster,
    watchers: &Watchers<'_>,
    together: &BTreeSet<String>,
    noticed: Timestamp,
) -> Option<Condition> {
    let seen = cluster.condition(SEEN_BY_PEERS);
    seen.filter(|it| it.status != conditions::UNKNOWN)?;
    let name = cluster.name_any();
    let witness = |it: &&Cluster| {
        let known = Witness::of(it, &name, |_| false);
        let report = known.report.map(|(reach, since)| match reach {
            Reach::Reached => (Reach::Lost, noticed),
            other => (other, since),
        });
        Witness {
            is_reporting: known.is_reporting && !together.contains(&known.name),
            report,
            ..known
        }
    };
    let watchers = watchers.get(&name).into_iter().flatten();
    let witnesses: Vec<Witness> = watchers.map(witness).collect();
    let since = troubled_since(cluster).unwrap_or(noticed);
    Some(judge(&witnesses, Some(since), noticed).condition)
}

/// Returns the taints that a cluster gets if it stays as it is.
pub fn due(
    cluster: &Cluster,
    policies: &[&ClusterTaintPolicy],
    settings: &Settings,
    now: Timestamp,
) -> Vec<Coming> {
    let mut after = cluster.clone();
    taint(&mut after, policies, settings, now);
    struck(cluster, after, now).coming
}

/// Returns the time after which a cluster that stays as it is has no taint but those of commands;
/// `None` if one stays.
pub fn untainted(
    cluster: &Cluster,
    policies: &[&ClusterTaintPolicy],
    settings: &Settings,
    now: Timestamp,
) -> Option<SignedDuration> {
    let mut end = None;
    let after = &mut cluster.clone();
    advance(after, policies, settings, now, |cluster, moment| {
        let is_free = cluster.spec.taints.iter().all(is_of_command);
        end = is_free.then_some(moment);
        is_free
    });
    Some(end?.duration_since(now))
}

/// Puts all taints on a cluster that it gets from a moment on if it stays as it is.
fn taint(
    cluster: &mut Cluster,
    policies: &[&ClusterTaintPolicy],
    settings: &Settings,
    moment: Timestamp,
) {
    advance(cluster, policies, settings, moment, |_, _| false);
}

/// Puts taints on a cluster that stays as it is from a moment on, and takes them off, each when it
/// is due, until `is_last` says so of the cluster at such a time, or nothing more is due.
fn advance(
    cluster: &mut Cluster,
    policies: &[&ClusterTaintPolicy],
    settings: &Settings,
    mut moment: Timestamp,
    mut is_last: impl FnMut(&Cluster, Timestamp) -> bool,
) {
    for _ in 0..ROUNDS {
        let by_condition = mark(cluster, settings, moment);
        let by_policy = follow(cluster, policies, settings, moment);
        if is_last(cluster, moment) {
            break;
        }
        let next = [by_condition, by_policy].into_iter().flatten().min();
        match next.filter(|next| *next > moment) {
            Some(next) => moment = next,
            None => break,
        }
    }
}

/// Returns a cluster that is drained from `now` on.
pub fn drain(cluster: &Cluster, now: Timestamp) -> Struck {
    let mut drained = cluster.clone();
    for effect in [NO_SCHEDULE, NO_EXECUTE] {
        let taint = Taint {
            key: DRAIN.to_owned(),
            effect: effect.to_owned(),
            ..Taint::default()
        };
        put_on(&mut drained.spec.taints, taint, now);
    }
    struck(cluster, drained, now)
}

/// Puts the taints on that follow from the condition; the time of the next one.
fn mark(cluster: &mut Cluster, settings: &Settings, now: Timestamp) -> Option<Timestamp> {
    let ready = cluster.condition(READY);
    let record = Record::on(cluster);
    let owned = |taint: &Taint| {
        record
            .as_ref()
            .is_some_and(|record| record.answers_for(taint))
    };
    let wanted = condition_taints::wanted(&cluster.spec.taints, ready, false, settings, owned, now);
    let again = wanted.again;
    if let Some(taints) = wanted.taints {
        cluster.spec.taints = taints;
    }
    again
}

/// Puts the taints on that the policies ask for; the time at which the next window ends.
fn follow(
    cluster: &mut Cluster,
    policies: &[&ClusterTaintPolicy],
    settings: &Settings,
    now: Timestamp,
) -> Option<Timestamp> {
    let Outcome {
        taints,
        record,
        again,
        ..
    } = decide(
        &Scene {
            cluster,
            record: Record::on(cluster),
            policies,
            selects: &|affinity| matches_affinity(affinity, cluster),
            is_gone: &|_| false,
            lacks_some: false,
            is_refused: &|_| false,
            is_first: false,
            reserves: settings.condition_taints,
        },
        now,
    );
    if let Some(taints) = taints {
        cluster.spec.taints = taints;
    }
    if let Some(record) = record {
        cluster
            .annotations_mut()
            .insert(ANNOTATION.to_owned(), record.write());
    }
    again
}

fn struck(before: &Cluster, after: Cluster, now: Timestamp) -> Struck {
    let is_new = |taint: &&Taint| {
        let mut old = before.spec.taints.iter();
        !old.any(|old| (&old.key, &old.effect) == (&taint.key, &taint.effect))
    };
    let coming = after.spec.taints.iter().filter(is_new).map(|taint| Coming {
        taint: taint.clone(),
        after: taint
            .time_added
            .as_ref()
            .map_or(SignedDuration::ZERO, |added| added.0.duration_since(now)),
    });
    let coming: Vec<Coming> = coming.collect();
    Struck {
        stages: stages(&after.spec.taints, &coming, now),
        coming,
        cluster: after,
    }
}

/// Returns the taints of a cluster at `now`, and each time that one comes.
fn stages(taints: &[Taint], coming: &[Coming], now: Timestamp) -> Vec<(Timestamp, Vec<Taint>)> {
    let moments = coming.iter().map(|it| it.after.max(SignedDuration::ZERO));
    let moments: BTreeSet<SignedDuration> = moments.chain([SignedDuration::ZERO]).collect();
    let is_there = |taint: &Taint, moment: SignedDuration| {
        let mut coming = coming.iter();
        coming
            .find(|it| (&it.taint.key, &it.taint.effect) == (&taint.key, &taint.effect))
            .is_none_or(|it| it.after <= moment)
    };
    let stage = |moment: SignedDuration| {
        let there = taints.iter().filter(|it| is_there(it, moment)).cloned();
        let at = later(now, moment);
        (at, there.collect())
    };
    moments.into_iter().map(stage).collect()
}
