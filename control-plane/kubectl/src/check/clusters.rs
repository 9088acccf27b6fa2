//! Checks of the members: ready, their agents' rights, versions, credentials and clocks.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use muster_shared::api::cluster::{Cluster, ClusterSyncMode};
use muster_shared::check::common::{TOLERATED, ends_soon, numbers, remaining, skew};
use muster_shared::check::{Category, listed};
use muster_shared::conditions::{FALSE, TRUE, UNKNOWN};
use muster_shared::k8s::{Lease, ResourceExt};
use muster_shared::names::condition::{MONITORED, READY, UNIQUE_IDENTITY, WORKS_UP_TO_DATE};
use muster_shared::self_report::AgentReport;

use super::control_plane::nobody_leads;
use super::facts::Facts;
use super::fleet_api::OWN;
use super::gather::MOST_AGENTS;
use super::rights;
use crate::leader::{is_silent, renewed};
use crate::view::{faults, is_with_last};

/// Clusters that one line names.
const MOST: usize = 5;
/// Minor versions of Kubernetes by which members may differ before it is reported: templates are of
/// one version, and deprecated APIs live for about so many.
const MINORS: u32 = 3;

pub(super) fn check(category: &mut Category, facts: &Facts) {
    let clusters = match &facts.clusters {
        Ok(clusters) => clusters,
        Err(refusal) => return category.unknown("clusters", "the clusters", refusal),
    };
    if clusters.is_empty() {
        return category.warning(
            "clusters",
            "no cluster has joined",
            "kubectl muster token create --cluster-name member1 --print-helm-command prints the command for a member.",
        );
    }
    let number = clusters.len();
    category.ok("clusters", format!("{number} in the fleet"));
    let known = clusters.iter().filter_map(|it| it.condition(READY));
    let silent = known.filter(|it| it.status == UNKNOWN);
    let times: Vec<Timestamp> = silent.map(|it| it.last_transition_time.0).collect();
    let last = times.iter().max();
    let is_last = |it: &&Timestamp| last.is_some_and(|last| is_with_last(**it, *last));
    let together = times.iter().filter(is_last).count();
    if number > 1 && times.len() == number && 2 * together > number {
        let whom = if together == number {
            "the clusters".to_owned()
        } else {
            format!("the {together} clusters that fell silent last")
        };
        category.error(
            "ready",
            format!("all {number} clusters are silent: most likely the network of the fleet API, not {whom}"),
            "Look first at its address, DNS, certificate and load balancer, as a member sees them: kubectl muster check --member",
        );
    }
    let unjudged = unjudged(facts);
    for cluster in clusters {
        let last_heard = unjudged.get(&cluster.name_any());
        ready(category, cluster, last_heard.copied());
        conditions(category, cluster);
    }
    versions_of_kubernetes(category, clusters);
    rights_of_agents(category, facts, clusters);
    match &facts.leases {
        Err(refusal) => category.unknown("agents", "the leases of the members", refusal),
        Ok(leases) => agents(category, facts, clusters, leases, &unjudged),
    }
}

/// Returns the clusters that nobody calls silent because nobody leads, each with the last renewal
/// of its lease: what the control plane said of them last is old.
fn unjudged(facts: &Facts) -> BTreeMap<String, Timestamp> {
    let (is_judged, now) = (!nobody_leads(facts), facts.fleet_time());
    let leases = facts.leases.iter().flatten();
    let silent = leases.filter(|it| !is_judged && is_silent(it, now));
    let silent = silent.filter_map(|it| Some((it.name_any(), renewed(it)?)));
    silent.collect()
}

/// Checks whether a cluster is ready. `last_heard` is the last renewal of its lease if the cluster
/// is silent, and nobody leads who would judge that.
fn ready(category: &mut Category, cluster: &Cluster, last_heard: Option<Timestamp>) {
    let name = cluster.name_any();
    let agent = cluster.spec.sync_mode == ClusterSyncMode::Pull;
    let hint = if agent {
        format!(
            "In the member: kubectl muster check --member. Here: kubectl describe cluster {name}"
        )
    } else {
        format!("kubectl describe cluster {name}: condition Monitored says whether it is connected")
    };
    match cluster.condition(READY) {
        Some(it) if it.status == TRUE => match last_heard {
            None => category.ok("ready", format!("{name} is ready")),
            Some(at) => {
                let message = format!(
                    "{name} is silent since {at:.0}, and no control plane leads that could judge that"
                );
                category.error("ready", message, hint);
            }
        },
        Some(it) => {
            let (status, message) = (&it.status, &it.message);
            let since = it.last_transition_time.0;
            category.error(
                "ready",
                format!(
                    "{name}: Ready is {status} since {since:.0} ({}): {message}",
                    it.reason
                ),
                hint,
            );
        }
        None => category.error("ready", format!("{name} has never reported"), hint),
    }
    if let Some(twin) = cluster
        .condition(UNIQUE_IDENTITY)
        .filter(|it| it.status == FALSE)
    {
        category.error(
            "unique",
            format!(
                "{name} is the same member as another Cluster: {}",
                twin.message
            ),
            "Delete the one of the two that is wrong: kubectl muster unregister NAME",
        );
    }
}

/// Checks the conditions by which a cluster that is ready needs attention all the same.
fn conditions(category: &mut Category, cluster: &Cluster) {
    let name = cluster.name_any();
    let idle = [WORKS_UP_TO_DATE, MONITORED].into_iter();
    let idle = idle.filter_map(|it| cluster.condition(it));
    let idle = idle.filter(|it| it.status == FALSE);
    // Conditions of a cluster that is not ready may be old.
    let is_ready = cluster.is_true(READY);
    for it in idle.chain(faults(cluster)).filter(|_| is_ready) {
        let (kind, status, reason, message) = (&it.type_, &it.status, &it.reason, &it.message);
        let since = it.last_transition_time.0;
        category.warning(
            "conditions",
            format!("{name}: {kind} is {status} since {since:.0} ({reason}): {message}"),
            format!("kubectl describe cluster {name} shows all its conditions."),
        );
    }
}

fn versions_of_kubernetes(category: &mut Category, clusters: &[Cluster]) {
    let version = |it: &Cluster| {
        let version = it.status.as_ref()?.kubernetes_version.as_ref()?;
        Some((numbers(version)?, format!("{} {version}", it.name_any())))
    };
    let found: BTreeSet<_> = clusters.iter().filter_map(version).collect();
    let (Some((least, oldest)), Some((most, newest))) = (found.first(), found.last()) else {
        return category.skipped("kubernetes-versions", "no member has reported its version");
    };
    if least.0 != most.0 || most.1.saturating_sub(least.1) > MINORS {
        category.warning(
            "kubernetes-versions",
            format!("the members' Kubernetes differs by more than {MINORS} versions: {oldest}, {newest}"),
            "An API that one of them no longer serves, or does not serve yet, keeps workloads away from it: upgrade the oldest.",
        );
    } else {
        category.ok("kubernetes-versions", format!("from {oldest} to {newest}"));
    }
}

fn is_ready(clusters: &[Cluster], name: &str) -> bool {
    let mut clusters = clusters.iter().filter(|it| it.name_any() == name);
    clusters.any(|it| it.is_true(READY))
}

/// Returns the clusters that have an agent.
pub(super) fn pulled(clusters: &[Cluster]) -> impl Iterator<Item = &Cluster> {
    let clusters = clusters.iter();
    clusters.filter(|it| it.spec.sync_mode == ClusterSyncMode::Pull)
}

/// Checks the rights of agents. One that reports has them, by whatever name.
fn rights_of_agents(category: &mut Category, facts: &Facts, clusters: &[Cluster]) {
    let name = "agent-rights";
    if let Some(Err(refusal)) = facts.agents.values().find(|it| it.is_err()) {
        return category.unknown(name, "the rights of the agents", refusal);
    }
    for (cluster, findings) in &facts.agents {
        let hint = format!(
            "kubectl muster token create --cluster-name {cluster} grants them (the token need not be used)."
        );
        let program = format!("the agent of {cluster}");
        let needed = rights::of_agent(cluster).len();
        let lives = is_ready(clusters, cluster);
        rights::judge(category, name, &program, (findings, needed), lives, &hint);
    }
    let more = pulled(clusters).count().saturating_sub(MOST_AGENTS);
    if more > 0 {
        category.skipped(name, format!("of {more} further agents"));
    }
}

/// Checks what agents say on their leases. `Ready` says whether they live.
fn agents(
    category: &mut Category,
    facts: &Facts,
    clusters: &[Cluster],
    leases: &[Lease],
    unjudged: &BTreeMap<String, Timestamp>,
) {
    let leases: BTreeMap<String, &Lease> = leases.iter().map(|it| (it.name_any(), it)).collect();
    let pulled: Vec<String> = pulled(clusters).map(ResourceExt::name_any).collect();
    let reports: Vec<(&String, AgentReport)> = pulled
        .iter()
        .filter_map(|name| Some((name, AgentReport::of(leases.get(name)?)?)))
        .collect();
    versions(category, facts, &reports, pulled.len());
    credentials(category, facts, &reports);
    clocks(category, facts, &pulled, &leases, |name| {
        is_ready(clusters, name) && !unjudged.contains_key(name)
    });
}

fn versions(
    category: &mut Category,
    facts: &Facts,
    reports: &[(&String, AgentReport)],
    all: usize,
) {
    let expected = facts
        .leader_report()
        .map_or_else(|| OWN.to_owned(), |it| it.version);
    let other = reports.iter().filter(|(_, it)| it.version != expected);
    let other: Vec<String> = other
        .map(|(name, it)| format!("{name} ({})", it.version))
        .collect();
    if !other.is_empty() {
        category.warning(
            "agent-versions",
            format!("agents of another version than the control plane ({expected}): {}", listed(&other, MOST)),
            "Upgrade the control plane first, then the agents, one version at a time: helm upgrade muster-agent ... --reset-then-reuse-values",
        );
    } else if reports.is_empty() {
        category.skipped("agent-versions", "no agent says its version");
    } else {
        let silent = all - reports.len();
        let more = if silent == 0 {
            String::new()
        } else {
            format!("; {silent} do not say")
        };
        let message = format!("{} of version {expected}{more}", reports.len());
        category.ok("agent-versions", message);
    }
}

fn credentials(category: &mut Category, facts: &Facts, reports: &[(&String, AgentReport)]) {
    let lives = reports
        .iter()
        .filter_map(|(name, it)| Some((name, it.credentials?)));
    let mut lives: Vec<_> = lives.collect();
    lives.sort_by_key(|(_, life)| life.end);
    let words = |(name, life): &(&&String, muster_shared::client::Life)| {
        let left = life.end.duration_since(facts.now).as_secs();
        format!("{name} {}", remaining(left))
    };
    let soon = lives.iter().filter(|(_, life)| ends_soon(*life, facts.now));
    let soon: Vec<String> = soon.map(words).collect();
    let hint = "Renewal is on with fleet.bootstrapSecret, fleet.server or certRotation.enabled of charts/agent; events RotateCertificate... of the Cluster say\n\
                why it fails. By hand: replace the kubeconfig in the Secret of the agent; no restart is needed.";
    if !soon.is_empty() {
        let message = format!("end soon: {}", listed(&soon, MOST));
        category.warning("agent-credentials", message, hint);
    } else if let Some(first) = lives.first() {
        category.ok(
            "agent-credentials",
            format!("the first to end: {}", words(first)),
        );
    } else {
        category.skipped(
            "agent-credentials",
            "no agent says when its credentials end",
        );
    }
}

/// Compares the clocks of the agents with that of the fleet API, as far as their leases show.
fn clocks(
    category: &mut Category,
    facts: &Facts,
    pulled: &[String],
    leases: &BTreeMap<String, &Lease>,
    is_ready: impl Fn(&str) -> bool,
) {
    let mut agreeing = 0;
    for name in pulled.iter().filter(|it| is_ready(it)) {
        let spec = leases.get(name).and_then(|it| it.spec.as_ref());
        let Some((spec, renewed)) = spec.and_then(|it| Some((it, it.renew_time.as_ref()?.0)))
        else {
            continue;
        };
        let duration = i64::from(spec.lease_duration_seconds.unwrap_or(0));
        let age = facts.fleet_time().duration_since(renewed).as_secs();
        let ahead = match age {
            ..0 => -age,
            // The cluster is ready, so the lease was renewed within its duration.
            _ if age > duration => duration - age,
            _ => 0,
        };
        if ahead.abs() <= TOLERATED {
            agreeing += 1;
        } else {
            skew(
                category,
                "agent-clocks",
                &format!("the agent of {name}"),
                "the fleet API",
                ahead,
            );
        }
    }
    if agreeing > 0 {
        let message = format!("{agreeing} agree with that of the fleet API");
        category.ok("agent-clocks", message);
    }
}
