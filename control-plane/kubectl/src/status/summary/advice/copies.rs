//! What the summary advises about old copies that somebody may have to stop.

use std::collections::BTreeMap;

use super::{Advice, NAMED};
use crate::old_copies::{InCluster, NOT_IN_FLEET};
use crate::status::decide::Report;
use crate::status::summary::either;
use crate::table::argument;

/// Returns how to stop the old copies that their clusters do not remove by themselves now. The
/// commands delete nothing whose kind can be stopped in another way.
pub(in super::super) fn stop(report: &Report) -> Option<Advice> {
    let old = report.old_copies.iter().flatten();
    let old: Vec<&InCluster> = old.filter(|it| it.state.is_some()).collect();
    let copies: usize = old.iter().map(|it| it.copies).sum();
    let names = old
        .iter()
        .flat_map(|it| it.names.iter().map(String::as_str));
    let names: Vec<&str> = names.collect();
    let (whom, these) = (either(copies, "it", "them"), either(copies, "it", "these"));
    let (place, removes) = match old.len() {
        0 => return None,
        1 => (
            "the cluster",
            format!("The cluster removes {whom} itself when it is back"),
        ),
        _ => (
            "the clusters",
            format!("The clusters remove {whom} themselves when they are back"),
        ),
    };
    let stop = if copies > NAMED {
        format!(
            "cut {place} off from what the copies write to (network, storage), since these are too many to stop one by one; that ends the service of what has no copy elsewhere, too"
        )
    } else {
        format!(
            "stop {these} with direct access to {place}{}, and nothing else there, which may be the only copy",
            caveats(&names)
        )
    };
    let words = format!("{removes}. Only if two copies at once do harm until then, {stop}");
    // One that was deleted is known by the name of its binding alone.
    let is_named = names.len() == copies && names.iter().all(|it| it.contains(' '));
    if is_named && copies <= NAMED {
        let each = old.iter().flat_map(|it| commands(&it.cluster, &it.names));
        return Some(Advice::new(words, each.collect::<Vec<_>>().join("; ")));
    }
    let known = old.iter().find(|it| it.state != Some(NOT_IN_FLEET));
    Some(match known.map(|it| &it.cluster) {
        Some(cluster) => Advice::new(
            format!("{words}; what is placed in {cluster} or leaves it"),
            format!("kubectl muster get workloads -A --cluster {cluster}"),
        ),
        None => Advice {
            words,
            command: None,
        },
    })
}

/// Returns the commands that stop copies in a cluster, one for all of a namespace that are stopped
/// alike.
fn commands(cluster: &str, workloads: &[String]) -> Vec<String> {
    let mut alike: BTreeMap<(&str, String, &str), Vec<String>> = BTreeMap::new();
    for workload in workloads {
        let argument = argument(workload);
        let end = argument.find(" -n ").unwrap_or(argument.len());
        let (name, place) = argument.split_at(end);
        let (verb, how) = stopped(kind(workload));
        let names = alike.entry((verb, place.to_owned(), how)).or_default();
        names.push(name.to_owned());
    }
    let commands = alike.into_iter().map(|((verb, place, how), names)| {
        let names = names.join(" ");
        format!("kubectl --kubeconfig '<kubeconfig of {cluster}>' {verb} {names}{place}{how}")
    });
    commands.collect()
}

/// Returns what else has to be known of workloads before their copies are stopped by hand.
fn caveats(workloads: &[&str]) -> String {
    let kinds: Vec<&str> = workloads.iter().map(|it| kind(it)).collect();
    let mut caveats = String::new();
    // An agent that is cut off leaves alone what somebody scales, and puts right all else.
    if !kinds.iter().all(|it| is_scaled(it)) {
        caveats.push_str(", and first the agent there, which starts again what is not scaled");
    }
    if kinds.contains(&"StatefulSet") {
        caveats.push_str(" (a StatefulSet with whenScaled: Delete loses its claims by that)");
    }
    caveats
}

/// Returns the kind of a workload that is named as `Deployment default/web`.
fn kind(workload: &str) -> &str {
    workload.split(' ').next().unwrap_or_default()
}

/// Returns whether the copies of a kind are stopped by scaling them to zero.
fn is_scaled(kind: &str) -> bool {
    matches!(kind, "Deployment" | "StatefulSet" | "ReplicaSet")
}

/// Returns the verb of kubectl that stops a copy of a kind, and what the command ends with.
fn stopped(kind: &str) -> (&'static str, &'static str) {
    match kind {
        kind if is_scaled(kind) => ("scale", " --replicas=0"),
        "Job" | "CronJob" => ("patch", r#" -p '{"spec":{"suspend":true}}'"#),
        _ => ("delete", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::old_copies::SILENT;

    fn in_cluster(cluster: &str, copies: usize, names: &[&str]) -> InCluster {
        InCluster {
            cluster: cluster.to_owned(),
            copies,
            names: names.iter().map(|it| (*it).to_owned()).collect(),
            state: Some(SILENT),
        }
    }

    #[test]
    fn an_old_copy_is_stopped_and_deleted_only_where_its_kind_cannot_be_stopped() {
        for (workloads, expected) in [
            (
                &["Deployment shop/web", "StatefulSet shop/db"][..],
                &["scale deployment/web statefulset/db -n shop --replicas=0"][..],
            ),
            (
                &["Deployment shop/web", "Deployment blog/web"],
                &[
                    "scale deployment/web -n blog --replicas=0",
                    "scale deployment/web -n shop --replicas=0",
                ],
            ),
            (
                &["CronJob shop/bill"],
                &[r#"patch cronjob/bill -n shop -p '{"spec":{"suspend":true}}'"#],
            ),
            (&["DaemonSet shop/log"], &["delete daemonset/log -n shop"]),
            (&["Tenant acme"], &["delete tenant/acme"]),
        ] {
            let found = commands("m1", &in_cluster("m1", 1, workloads).names);
            let begin = "kubectl --kubeconfig '<kubeconfig of m1>' ";
            let found: Vec<&str> = found
                .iter()
                .filter_map(|it| it.strip_prefix(begin))
                .collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_command_covers_all_old_copies_or_the_advice_is_about_all_of_them() {
        let (a, b) = ("Deployment shop/a", "Deployment shop/b");
        let command = |cluster: &str, names: &str| {
            format!(
                "kubectl --kubeconfig '<kubeconfig of {cluster}>' scale {names} -n shop --replicas=0"
            )
        };
        let list = || "kubectl muster get workloads -A --cluster m1".to_owned();
        for (old, words, expected) in [
            (
                vec![in_cluster("m1", 2, &[a, b])],
                "The cluster removes them itself when it is back. Only if two copies at once do harm until then, stop these with direct access to the cluster, and nothing else there, which may be the only copy",
                Some(command("m1", "deployment/a deployment/b")),
            ),
            (
                vec![in_cluster("m1", 1, &[a]), in_cluster("m2", 1, &[b])],
                "stop these with direct access to the clusters, and nothing else there",
                Some(format!(
                    "{}; {}",
                    command("m1", "deployment/a"),
                    command("m2", "deployment/b")
                )),
            ),
            (
                vec![in_cluster("m1", 1_600, &[a, b])],
                "cut the cluster off from what the copies write to",
                Some(list()),
            ),
            (
                vec![in_cluster("m1", 1, &["shop/a-deployment"])],
                "stop it with direct access",
                Some(list()),
            ),
            (
                vec![InCluster {
                    state: Some(NOT_IN_FLEET),
                    ..in_cluster("m1", 1, &[])
                }],
                "stop it with direct access",
                None,
            ),
        ] {
            let report = Report {
                old_copies: Some(old),
                ..Report::default()
            };
            let found = stop(&report).unwrap();
            assert!(found.words.contains(words), "{found}");
            assert_eq!(found.command, expected, "{found}");
        }
        assert_eq!(stop(&Report::default()), None);
    }

    #[test]
    fn what_an_agent_starts_again_and_what_loses_its_storage_is_reported_before_it_is_stopped() {
        let (agent, claims) = ("and first the agent", "loses its claims");
        for (workloads, is_restarted, loses) in [
            ("Deployment a/web|ReplicaSet a/api", false, false),
            ("Deployment a/web|StatefulSet a/db", false, true),
            ("Deployment a/web|CronJob a/bill", true, false),
            ("StatefulSet a/db|Tenant acme", true, true),
        ] {
            let workloads: Vec<&str> = workloads.split('|').collect();
            let reported = caveats(&workloads);
            let found = (reported.contains(agent), reported.contains(claims));
            assert_eq!(found, (is_restarted, loses), "{reported}");
        }
    }
}
