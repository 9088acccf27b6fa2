use muster_shared::api::policy::{ClusterFailoverBehavior, FailoverBehavior};
use muster_shared::k8s::Time;

use super::*;
use crate::fleet::testing::at;
use muster_shared::names::taint::DRAIN;
use muster_shared::taints::NO_SCHEDULE;
use serde_json::json;

fn switches() -> Switches {
    Switches {
        failover: true,
        no_execute: true,
        purge_mode: PurgeMode::Gracefully,
        tolerations: DefaultTolerations::default(),
    }
}

fn taint(key: &str, effect: &str, added: Option<i64>) -> Taint {
    Taint {
        key: key.into(),
        effect: effect.into(),
        value: None,
        time_added: added.map(|s| Time(at(s))),
    }
}

fn exists(key: &str, seconds: Option<i64>) -> Toleration {
    Toleration {
        key: Some(key.into()),
        operator: Some("Exists".into()),
        toleration_seconds: seconds,
        ..Toleration::default()
    }
}

#[expect(clippy::unnecessary_wraps)] // a policy may have none
fn failover(seconds: Option<i32>, mode: Option<&str>) -> Option<FailoverBehavior> {
    let cluster = ClusterFailoverBehavior {
        toleration_seconds: seconds,
        purge_mode: mode.map(PurgeMode::from),
        ..ClusterFailoverBehavior::default()
    };
    Some(FailoverBehavior {
        cluster: Some(cluster),
        ..FailoverBehavior::default()
    })
}

fn judged(
    taints: &[Taint],
    tolerations: Vec<Toleration>,
    failover: Option<FailoverBehavior>,
    switches: &Switches,
) -> Judgement {
    let spec = ResourceBindingSpec {
        failover,
        ..ResourceBindingSpec::default()
    };
    let placement = Placement {
        cluster_tolerations: tolerations,
        ..Placement::default()
    };
    judge(taints, &spec, Some(&placement), switches, at(1_000))
}

/// Returns when the workload has to leave, or why it stays.
fn outcome(
    taints: &[Taint],
    tolerations: Vec<Toleration>,
    failover: Option<FailoverBehavior>,
    switches: &Switches,
) -> Result<i64, Stay> {
    match judged(taints, tolerations, failover, switches) {
        Judgement::Leave { due, .. } => Ok(due.as_second()),
        Judgement::Stay(stay) => Err(stay),
    }
}

fn cause(key: &str) -> Cause {
    Cause {
        taint: taint(key, NO_EXECUTE, None),
        rule: Rule::Untolerated,
    }
}

#[test]
fn each_effect_moves_what_it_is_meant_to_move() {
    let asked = |seconds| failover(Some(seconds), None);
    let tolerated = |seconds| vec![exists("k", seconds)];
    let cases = [
        (NO_SCHEDULE, vec![], None, Err(Stay::NoTaint)),
        (NO_SCHEDULE, vec![], asked(0), Err(Stay::NoTaint)),
        (NO_EXECUTE, vec![], None, Ok(900)),
        (NO_EXECUTE, vec![], asked(5_000), Ok(900)),
        (NO_EXECUTE, tolerated(None), None, Err(Stay::Tolerated)),
        (NO_EXECUTE, tolerated(None), asked(0), Err(Stay::Tolerated)),
        (NO_EXECUTE, tolerated(Some(300)), None, Ok(1_200)),
        (NO_EXECUTE, tolerated(Some(100)), None, Ok(1_000)),
        (NO_EXECUTE, vec![exists("other", None)], None, Ok(900)),
        (PREFER_NO_EXECUTE, vec![], None, Err(Stay::NotAsked)),
        (PREFER_NO_EXECUTE, vec![], asked(100), Ok(1_000)),
        (PREFER_NO_EXECUTE, vec![], failover(None, None), Ok(1_200)),
        (PREFER_NO_EXECUTE, tolerated(None), asked(0), Ok(900)),
    ];
    for (n, (effect, tolerations, failover, expected)) in cases.into_iter().enumerate() {
        let taints = [taint("k", effect, Some(900))];
        let found = outcome(&taints, tolerations, failover, &switches());
        assert_eq!(found, expected, "case {n}");
    }
}

#[test]
fn a_share_of_zero_replicas_leaves_by_a_drain_alone_and_when_that_is_not_tolerated_any_more() {
    let spec = json!({ "replicas": 2, "replicaRequirements": {}, "clusters": [
        { "name": "m1", "replicas": 0 }, { "name": "m2", "replicas": 2 },
    ] });
    let spec: ResourceBindingSpec = serde_json::from_value(spec).unwrap();
    let tainted = taint("k", NO_EXECUTE, Some(900));
    let drained = taint(DRAIN, NO_EXECUTE, Some(900));
    let failed = [tainted.clone()];
    let both = [tainted, drained];
    for (cluster, taints, tolerated, expected) in [
        ("m1", &failed[..], None, Err(Stay::Empty)),
        ("m2", &failed, None, Ok(900)),
        ("m1", &both[1..], None, Ok(900)),
        ("m1", &both, None, Ok(900)),
        ("m1", &both, Some(300), Ok(1_200)),
        ("m2", &both, Some(300), Ok(900)),
        ("m1", &[], None, Err(Stay::NoTaint)),
    ] {
        let tolerations = tolerated.map(|seconds| exists(DRAIN, Some(seconds)));
        let placement = Placement {
            cluster_tolerations: tolerations.into_iter().collect(),
            ..Placement::default()
        };
        let found = judge_copy(
            cluster,
            taints,
            &spec,
            Some(&placement),
            &switches(),
            at(1_000),
        );
        let found = match found {
            Judgement::Leave { due, .. } => Ok(due.as_second()),
            Judgement::Stay(stay) => Err(stay),
        };
        assert_eq!(found, expected, "{cluster} {taints:?} {tolerated:?}");
    }
}

#[test]
fn with_the_gate_off_nothing_moves_whoever_set_the_taint() {
    let off = Switches {
        failover: false,
        ..switches()
    };
    for key in [
        "mine",
        "cluster.karmada.io/terminating",
        "cluster.karmada.io/unreachable",
    ] {
        for effect in [NO_EXECUTE, PREFER_NO_EXECUTE, NO_SCHEDULE] {
            let taints = [taint(key, effect, Some(0))];
            assert_eq!(
                outcome(&taints, vec![], failover(Some(0), None), &off),
                Err(Stay::SwitchedOff)
            );
        }
    }
}

#[test]
fn a_drain_moves_whatever_is_switched_off_and_asks_tolerations_like_any_taint() {
    let drain = taint(DRAIN, NO_EXECUTE, Some(900));
    let other = taint("other", NO_EXECUTE, Some(900));
    let soft = taint("other", PREFER_NO_EXECUTE, Some(900));
    for (failover_gate, no_execute) in [(true, true), (true, false), (false, true), (false, false)]
    {
        let switches = Switches {
            failover: failover_gate,
            no_execute,
            ..switches()
        };
        let with = |taints: &[&Taint], tolerations| {
            let taints: Vec<Taint> = taints.iter().map(|it| (*it).clone()).collect();
            outcome(&taints, tolerations, failover(Some(0), None), &switches)
        };
        assert_eq!(with(&[&drain], vec![]), Ok(900));
        assert_eq!(
            with(&[&other, &drain], vec![exists("other", None)]),
            Ok(900)
        );
        let tolerant = vec![exists(DRAIN, None), exists("other", None)];
        assert_eq!(with(&[&drain, &other], tolerant), Err(Stay::Tolerated));
        assert_eq!(with(&[&drain], vec![exists(DRAIN, Some(300))]), Ok(1_200));
        // What the gate stops is stopped beside a drain, too.
        let kept = with(&[&drain, &soft], vec![exists(DRAIN, None)]);
        let expected = if failover_gate {
            Ok(900)
        } else {
            Err(Stay::Tolerated)
        };
        assert_eq!(kept, expected);
        let cordoned = taint(DRAIN, NO_SCHEDULE, Some(900));
        assert!(with(&[&cordoned], vec![]).is_err());
    }
}

#[test]
fn no_execute_can_be_switched_off_by_itself() {
    let some = Switches {
        no_execute: false,
        ..switches()
    };
    let both = [
        taint("k", NO_EXECUTE, Some(0)),
        taint("k", PREFER_NO_EXECUTE, Some(900)),
    ];
    assert_eq!(outcome(&both, vec![], None, &some), Err(Stay::NotAsked));
    assert_eq!(
        outcome(&both[..1], vec![], None, &some),
        Err(Stay::NoExecuteOff),
        "the taint is there, and the flag is why it moves nothing"
    );
    assert_eq!(
        outcome(&both, vec![], failover(Some(1), None), &some),
        Ok(901)
    );
}

#[test]
fn of_several_taints_the_earliest_counts_each_by_its_own_toleration() {
    let on = switches();
    let taints = [
        taint("a", NO_EXECUTE, Some(941)),
        taint("b", NO_EXECUTE, Some(1_000)),
    ];
    let tolerations = vec![
        exists("a", None),
        Toleration {
            operator: Some("Exists".into()),
            toleration_seconds: Some(60),
            ..Toleration::default()
        },
    ];
    assert_eq!(
        outcome(&taints, tolerations, None, &on),
        Ok(1_060),
        "a is tolerated for ever whatever else matches it"
    );
    let both = [
        taint("a", NO_EXECUTE, Some(950)),
        taint("b", PREFER_NO_EXECUTE, Some(900)),
    ];
    assert_eq!(
        outcome(
            &both,
            vec![exists("a", Some(100))],
            failover(Some(10), None),
            &on
        ),
        Ok(910)
    );
}

#[test]
fn a_taint_without_a_time_counts_from_now() {
    let asked = |seconds| failover(Some(seconds), None);
    for (effect, tolerations, failover, expected) in [
        (NO_EXECUTE, vec![], None, 1_000),
        (NO_EXECUTE, vec![exists("k", Some(5))], None, 1_005),
        (PREFER_NO_EXECUTE, vec![], asked(5), 1_005),
        (PREFER_NO_EXECUTE, vec![], asked(0), 1_000),
    ] {
        let taints = [taint("k", effect, None)];
        let found = outcome(&taints, tolerations, failover, &switches());
        assert_eq!(found, Ok(expected), "{effect}");
    }
}

#[test]
fn the_placement_of_the_spec_counts_before_the_one_that_was_applied_last() {
    let tolerating = json!({"clusterTolerations": [{"operator": "Exists"}]});
    let plain = json!({});
    for (own, applied, stays) in [
        (Some(&tolerating), Some(&plain), true),
        (Some(&plain), Some(&tolerating), false),
        (None, Some(&tolerating), true),
        (None, Some(&plain), false),
        (Some(&tolerating), None, true),
    ] {
        let spec: ResourceBindingSpec = serde_json::from_value(json!({"placement": own})).unwrap();
        let applied = applied.map(ToString::to_string);
        let counts = placement(&spec, applied.as_deref()).unwrap();
        let judgement = judge(
            &[taint("k", NO_EXECUTE, Some(0))],
            &spec,
            Some(&counts),
            &switches(),
            at(10),
        );
        let got = judgement == Judgement::Stay(Stay::Tolerated);
        assert_eq!(got, stays, "own {own:?}, applied {applied:?}");
    }
    let nothing = ResourceBindingSpec::default();
    for unreadable in [None, Some(""), Some("{")] {
        assert_eq!(placement(&nothing, unreadable), None, "{unreadable:?}");
    }
}

#[test]
fn a_fenced_copy_goes_first_unless_it_is_to_stay() {
    for (mode, fenced, expected) in [
        ("Gracefully", true, PurgeMode::Directly),
        ("Gracefully", false, PurgeMode::Gracefully),
        ("Sometimes", true, PurgeMode::Directly),
        ("Directly", true, PurgeMode::Directly),
        ("Never", true, PurgeMode::Never),
    ] {
        let fencing = fenced.then(|| json!({"afterSeconds": 100}));
        let spec: ResourceBindingSpec = serde_json::from_value(json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "failover": {"cluster": {"purgeMode": mode, "fencing": fencing}},
        }))
        .unwrap();
        let found = purge_mode(&spec, &switches(), &cause("k"));
        assert_eq!(found, expected, "{mode} {fenced}");
    }
}

#[test]
fn purge_modes_mean_the_same_in_both_spellings() {
    use PurgeMode::{Directly, Gracefully, Never};
    let said = |mode| failover(None, Some(mode));
    for (said, flag, expected) in [
        (None, Gracefully, Gracefully),
        (None, Directly, Directly),
        (failover(None, None), Directly, Gracefully),
        (said("Directly"), Gracefully, Directly),
        (said("Immediately"), Gracefully, Directly),
        (said("Gracefully"), Directly, Gracefully),
        (said("Graciously"), Directly, Gracefully),
        (said("Never"), Directly, Never),
        (said("Sometimes"), Directly, Gracefully),
    ] {
        // The command line speaks of failures.
        let drained = said.as_ref().map_or(Gracefully, |_| expected.clone());
        let what = format!("{said:?}");
        let spec = ResourceBindingSpec {
            failover: said,
            ..ResourceBindingSpec::default()
        };
        let switches = Switches {
            purge_mode: flag,
            ..switches()
        };
        for (key, expected) in [("k", expected), (DRAIN, drained)] {
            let found = purge_mode(&spec, &switches, &cause(key));
            assert_eq!(found, expected, "{what} {key}");
        }
    }
}

#[test]
fn the_default_tolerations_count_where_the_policy_says_nothing_of_the_taint() {
    use muster_shared::names::taint::{NOT_READY, UNREACHABLE};
    let defaults = Switches::of(&Settings {
        feature_gates: "Failover=true".parse().unwrap(),
        enable_no_execute_taint_eviction: true,
        default_not_ready_toleration_seconds: Some(300),
        ..Settings::default()
    });
    let failed = |key: &str| [taint(key, "NoExecute", Some(10))];
    for (what, key, own, expected) in [
        ("the default", NOT_READY, vec![], 310),
        (
            "the policy's word",
            NOT_READY,
            vec![exists(NOT_READY, Some(5))],
            15,
        ),
        ("no default", UNREACHABLE, vec![], 10),
    ] {
        let found = outcome(&failed(key), own, None, &defaults);
        assert_eq!(found, Ok(expected), "{what}");
    }
}

#[test]
fn an_order_to_empty_the_cluster_is_the_cause_beside_other_taints() {
    let drain = || taint(DRAIN, NO_EXECUTE, Some(900));
    let broken = || taint("broken", NO_EXECUTE, Some(100));
    let slow = || taint("slow", PREFER_NO_EXECUTE, Some(0));
    for (taints, tolerations, expected, due) in [
        (vec![broken(), drain()], vec![], DRAIN, 100),
        (vec![slow(), drain()], vec![], DRAIN, 10),
        (
            vec![broken(), drain()],
            vec![exists(DRAIN, None)],
            "broken",
            100,
        ),
        (
            vec![broken(), drain()],
            vec![exists(DRAIN, Some(50))],
            DRAIN,
            100,
        ),
        (
            vec![broken(), drain()],
            vec![exists(DRAIN, Some(500))],
            "broken",
            100,
        ),
        (vec![broken()], vec![], "broken", 100),
    ] {
        let what = format!("{taints:?} {tolerations:?}");
        let failover = failover(Some(10), None);
        let judgement = judged(&taints, tolerations, failover, &switches());
        let Judgement::Leave { due: when, cause } = judgement else {
            panic!("it stays: {what}")
        };
        assert_eq!((&*cause.taint.key, when), (expected, at(due)), "{what}");
    }
}
