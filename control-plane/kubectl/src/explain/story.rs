//! What a schedule does not show: which policy places a workload, where it was before, and what
//! would have to change for it to run where it cannot now.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use muster_control_plane::fleet::claim::Claim;
use muster_control_plane::movement::application_failover::explain::CONDITION as APPLICATION;
use muster_control_plane::movement::application_failover::history::{self, History};
use muster_control_plane::movement::eviction::explain::CONDITION as EVICTION;
use muster_control_plane::movement::eviction::record::Record;
use muster_control_plane::propagation::binding::references;
use muster_control_plane::scheduler::core::Plugin;
use muster_control_plane::scheduler::core::explain::{Explanation, Fate};
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::check::listed;
use muster_shared::conditions;
use muster_shared::k8s::{Condition, ResourceExt as _};
use muster_shared::names::{is_cluster_name, namespaced_key};

use crate::install::SWITCH_ON;

/// Clusters that a line names at most.
const MOST_NAMED: usize = 5;

/// Returns the policy that places a workload, or the workloads that it follows.
pub(super) fn placed_by(binding: &AnyBinding) -> Option<String> {
    let claim = Claim::on(&binding.metadata).map(|claim| claim.policy.to_string());
    claim.or_else(|| {
        let needed = binding.spec.required_by.iter().map(|by| {
            let namespace = by.namespace.as_deref().unwrap_or_default();
            namespaced_key(namespace, &by.name)
        });
        let needed: Vec<String> = needed.collect();
        (!needed.is_empty()).then(|| format!("the binding that needs it: {}", needed.join(", ")))
    })
}

/// Returns the sentences about the moves that a binding remembers, and whether it has returned
/// since.
pub(super) fn moves(binding: &AnyBinding) -> Vec<String> {
    let by_taint = Record::read(Some(binding.annotations()))
        .map(|record| (record.at, record.from, record.to, record.mode, record.cause));
    let history = binding.annotations().get(history::ANNOTATION);
    let history = history.map(|text| History::read(Some(text)));
    let by_failure = history.and_then(|history| {
        let last = history.last?;
        let cause = format!(
            "the application had been unhealthy there since {:.0}",
            last.since
        );
        Some((history.last_move?, last.from, last.to, last.mode, cause))
    });
    let mut moves: Vec<_> = by_taint.into_iter().chain(by_failure).collect();
    moves.sort();
    let reported = moves.into_iter().map(|(at, from, to, mode, cause)| {
        let mut text = format!("{at:.0}: left {from}, then placed on {to} ({mode}): {cause}");
        if binding.spec.has_copy(&from) {
            let _ = write!(text, ". It has returned to {from} since");
        }
        text
    });
    reported.collect()
}

/// Returns what would have to change for a workload that has to leave and cannot, or that has no
/// place.
pub(super) fn remedies(
    policy: Option<&str>,
    reported: &[Condition],
    attempts: &[Explanation],
) -> Vec<String> {
    let pending = |kind: &str| {
        let condition = conditions::get(reported, kind)?;
        (condition.status == conditions::TRUE).then_some(condition)
    };
    // A reason that keeps a workload although a taint would move it is shown as not pending.
    let kept = conditions::get(reported, EVICTION);
    let lacks = pending(references::CONDITION);
    let is_scoped = lacks.is_some_and(|it| it.message.ends_with(references::OWN_POLICY));
    let found = [pending(EVICTION), pending(APPLICATION), kept, lacks];
    let policy = policy.unwrap_or("its policy");
    let mut remedies: Vec<String> = Vec::new();
    for condition in found.into_iter().flatten() {
        let remedy = match condition.reason.as_str() {
            "FailoverOff" => {
                let cluster = condition.message.split_once(" has ").map(|it| it.0);
                let cluster = cluster.filter(|it| is_cluster_name(it)).unwrap_or("CLUSTER");
                format!("switch failover on, in the host cluster: {SWITCH_ON}; or empty the cluster now: kubectl muster drain {cluster}")
            }
            "NoExecuteEvictionOff" => "start the control plane with --enable-no-execute-taint-eviction=true".to_owned(),
            "FailoverNotRequested" => format!("set spec.failover.cluster in {policy}, without which a taint of effect PreferNoExecute moves nothing"),
            "StoppedByThreshold" => "bring clusters back: nothing moves while more of them have failed than --unhealthy-cluster-threshold allows".to_owned(),
            "WaitingForRate" => "nothing: it is in the queue, which --resource-eviction-rate empties".to_owned(),
            "MovedLately" => "repair the application: it failed in each cluster that it was in, and is moved less and less often".to_owned(),
            "Paused" => format!("end the pause: kubectl muster resume{}", paused(&condition.message)),
            "NotFenced" => "see to it that its old copy is stopped when its cluster is cut off: an agent that fences, or another purge mode than Directly".to_owned(),
            "GracefulEvictionDisabled" => "switch the feature gate GracefulEviction on, or choose another purge mode".to_owned(),
            references::NOT_PLACED if is_scoped => "place what the workload refers to where it is, by a policy of its own: it lies in no namespace, and propagateDeps does not take it along".to_owned(),
            references::NOT_PLACED => format!("set propagateDeps: true in {policy}: what the workload refers to in its namespace then goes where it goes"),
            "StateNotPreserved" => format!("correct the rules of statePreservation in {policy}: the condition says which one finds nothing"),
            _ => continue,
        };
        if !remedies.contains(&remedy) {
            remedies.push(remedy);
        }
    }
    let mut found = [pending(EVICTION), pending(APPLICATION)]
        .into_iter()
        .flatten();
    let is_stranded = found.any(|it| it.reason == "NowhereToGo");
    let fails = attempts.iter().all(|attempt| attempt.failure.is_some());
    if is_stranded || (fails && !attempts.is_empty()) {
        remedies.extend(openings(attempts));
    }
    remedies
}

/// Returns the cluster that a condition reports to be paused by itself, behind a blank; nothing
/// where the whole fleet is.
fn paused(message: &str) -> String {
    let begins = [
        "it stays, because movement out of ",
        "has to leave and stays: movement out of ",
    ];
    let mut rest = begins.into_iter().filter_map(|it| message.split_once(it));
    let cluster = rest
        .next()
        .and_then(|(_, rest)| rest.split_once(" is paused"));
    let cluster = cluster.filter(|it| is_cluster_name(it.0));
    cluster.map_or_else(String::new, |it| format!(" {}", it.0))
}

/// Returns what would let clusters take the workload, derived from what refuses it there.
fn openings(attempts: &[Explanation]) -> Vec<String> {
    let mut clusters: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let lines = attempts.iter().flat_map(|attempt| &attempt.clusters);
    for line in lines {
        let refused_by: Vec<&str> = match &line.fate {
            Fate::Refused { by } => by.iter().map(|it| it.filter).collect(),
            Fate::Fits(fit) if fit.closed => fit.closed_by.iter().map(|it| it.filter).collect(),
            Fate::Fits(fit) if fit.capacity == Some(0) => vec![ROOM],
            Fate::Deleting | Fate::Fits(_) => continue,
        };
        for filter in refused_by {
            let names = clusters.entry(filter).or_default();
            if !names.contains(&line.name) {
                names.push(line.name.clone());
            }
        }
    }
    let reported = clusters.into_iter().map(|(filter, names)| {
        let what = REMEDIES.iter().find(|(name, _)| *name == filter);
        let what = what.map_or("fix what the table shows", |(_, what)| what);
        format!("{}: {what}", listed(&names, MOST_NAMED))
    });
    reported.collect()
}

/// Stands for a filter where a cluster has no room.
const ROOM: &str = "room";

/// What opens a cluster, by the filter that refuses the workload there.
const REMEDIES: [(&str, &str); 6] = [
    (
        Plugin::TaintToleration.name(),
        "end what put the taint there, or tolerate it in placement.clusterTolerations",
    ),
    (
        Plugin::ClusterAffinity.name(),
        "allow the cluster in placement.clusterAffinity",
    ),
    (
        Plugin::ApiEnablement.name(),
        "install the kind in the member, or see why its agent does not report it",
    ),
    (
        Plugin::SpreadConstraint.name(),
        "give the cluster the field that placement.spreadConstraints spreads by",
    ),
    (
        Plugin::ClusterEviction.name(),
        "wait: the workload is leaving it just now",
    ),
    (ROOM, "make room for one replica more, or ask for less"),
];

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use muster_control_plane::fleet::pause::Pause;
    use muster_control_plane::movement::eviction::explain::{EvictionState, Note};
    use muster_control_plane::scheduler::core::explain::{ClusterLine, Refusal};
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures;

    fn binding(annotations: &Value, spec: &Value) -> Arc<AnyBinding> {
        let labels = json!({"propagationpolicy.karmada.io/permanent-id": "u"});
        let metadata = json!({"annotations": annotations, "labels": labels});
        fixtures::binding("shop", "c", &json!({"metadata": metadata, "spec": spec}))
    }

    #[test]
    fn a_workload_is_placed_by_its_policy_or_by_what_needs_it() {
        let claimed = json!({
            "propagationpolicy.karmada.io/namespace": "shop",
            "propagationpolicy.karmada.io/name": "web",
        });
        let needed = json!({"requiredBy": [{"namespace": "shop", "name": "web-deployment"}]});
        let none = json!({});
        let by_other = "the binding that needs it: shop/web-deployment";
        for (annotations, more, expected) in [
            (&claimed, &none, Some("PropagationPolicy shop/web")),
            (&none, &needed, Some(by_other)),
            (&none, &none, None),
        ] {
            let found = placed_by(&binding(annotations, more));
            assert_eq!(found.as_deref(), expected);
        }
    }

    #[test]
    fn moves_are_reported_in_their_order_and_so_is_a_return() {
        let at = |second| jiff::Timestamp::from_second(second).unwrap();
        let by_taint = Record::new("m1", "m2", "Gracefully", "taint x:NoExecute", at(20));
        let by_failure = r#"{"moves": 1, "lastMove": "1970-01-01T00:00:10Z", "last":
            {"from": "m3", "since": "1970-01-01T00:00:05Z", "to": "m1", "mode": "Directly"}}"#;
        let annotations = json!({
            muster_shared::names::annotation::LAST_EVICTION: by_taint.write(),
            history::ANNOTATION: by_failure,
        });
        let placed = json!({"clusters": [{"name": "m1"}]});
        assert_eq!(
            moves(&binding(&annotations, &placed)),
            [
                "1970-01-01T00:00:10Z: left m3, then placed on m1 (Directly): the application had \
                 been unhealthy there since 1970-01-01T00:00:05Z",
                "1970-01-01T00:00:20Z: left m1, then placed on m2 (Gracefully): taint x:NoExecute. \
                 It has returned to m1 since",
            ]
        );
        assert_eq!(moves(&binding(&json!({}), &placed)), [""; 0]);
        let shares = json!([{"name": "m1", "replicas": 0}, {"name": "m2", "replicas": 2}]);
        let away = binding(&annotations, &json!({"replicas": 2, "clusters": shares}));
        let reported = moves(&away).join("\n");
        assert!(
            !reported.contains("returned"),
            "a share of zero is none: {reported}"
        );
    }

    #[test]
    fn a_pause_is_ended_where_it_was_ordered() {
        let own = Pause {
            cluster: Some("m1".to_owned()),
            ..Pause::default()
        };
        let evicted = |pause: &Pause| {
            let why = pause.to_string();
            let state = EvictionState::Paused {
                cause: "taint x:NoExecute".to_owned(),
                why,
            };
            let cluster = "m1".to_owned();
            Note { cluster, state }.message()
        };
        let fails =
            format!("the application has been unhealthy in m1, has to leave and stays: {own}");
        for (kind, message, expected) in [
            (EVICTION, evicted(&Pause::default()), "resume"),
            (EVICTION, evicted(&own), "resume m1"),
            (APPLICATION, fails, "resume m1"),
        ] {
            let since = jiff::Timestamp::UNIX_EPOCH;
            let reported = [conditions::new(kind, "True", "Paused", &message, since)];
            let found = remedies(None, &reported, &[]);
            assert_eq!(found, [format!("end the pause: kubectl muster {expected}")]);
        }
    }

    #[test]
    fn what_would_have_to_change_follows_from_the_reason_and_from_what_refuses() {
        use references::{CONDITION, NOT_PLACED, PLACED};

        let condition = |kind: &str, status: &str, reason: &str| -> Condition {
            conditions::new(kind, status, reason, "", jiff::Timestamp::UNIX_EPOCH)
        };
        let refused = |name: &str, by: &[&'static str]| ClusterLine {
            name: name.to_owned(),
            fate: Fate::Refused {
                by: by
                    .iter()
                    .map(|filter| Refusal {
                        filter,
                        reason: String::new(),
                    })
                    .collect(),
            },
        };
        let attempt = Explanation {
            group: String::new(),
            clusters: vec![
                refused("m1", &["TaintToleration"]),
                refused("m2", &["TaintToleration", "ClusterAffinity"]),
            ],
            failure: None,
        };
        let attempts = [attempt];
        let open = &["m2: allow", "m1, m2: end what"];
        let ask = &["spec.failover.cluster in PropagationPolicy a/b"];
        let bring = &["bring clusters back"];
        let take_along = &["set propagateDeps: true in PropagationPolicy a/b"];
        for (kind, status, reason, parts) in [
            (EVICTION, "True", "NowhereToGo", &open[..]),
            (APPLICATION, "True", "NowhereToGo", open),
            (EVICTION, "False", "FailoverOff", &["switch failover on"]),
            (EVICTION, "False", "FailoverNotRequested", ask),
            (EVICTION, "True", "StoppedByThreshold", bring),
            (EVICTION, "True", "Paused", &["kubectl muster resume"]),
            (EVICTION, "False", "Evicted", &[]),
            (CONDITION, "True", NOT_PLACED, take_along),
            (CONDITION, "False", PLACED, &[]),
            ("Scheduled", "True", "Success", &[]),
        ] {
            let reported = [condition(kind, status, reason)];
            let found = remedies(Some("PropagationPolicy a/b"), &reported, &attempts);
            assert_eq!(found.len(), parts.len(), "{reason}: {found:?}");
            for (found, part) in found.iter().zip(parts) {
                assert!(found.contains(part), "{reason}: {found:?}");
            }
        }
        // propagateDeps takes nothing along that lies in no namespace.
        let mut lacks = condition(CONDITION, "True", NOT_PLACED);
        lacks.message = format!(
            "ClusterRole r is not placed in m1: {}",
            references::OWN_POLICY
        );
        let found = remedies(Some("PropagationPolicy a/b"), &[lacks], &attempts);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("by a policy of its own"), "{found:?}");
    }
}
