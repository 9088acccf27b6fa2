use serde_json::{Value, json};

use super::*;
use crate::scheduler::tests::fixtures::{aggregated, cluster, decoded, deployment, tainted};

/// Returns who is woken when the cluster changes so.
fn helped(waiting: &Waiting<&'static str>, old: &Value, new: &Value) -> Vec<&'static str> {
    let mut helped: Vec<_> = observe(waiting, old, new).into_iter().collect();
    while let woken = waiting.next_round()
        && !woken.is_empty()
    {
        helped.extend(woken);
    }
    let mut helped: Vec<_> = helped.into_iter().map(|(key, _)| key).collect();
    helped.sort_unstable();
    helped
}

/// Returns who is woken at once.
pub(super) fn observe<K: Clone + Ord + Hash>(
    waiting: &Waiting<K>,
    old: &Value,
    new: &Value,
) -> Vec<(K, Duration)> {
    let (old, new) = (decoded(old), decoded(new));
    let changes: Vec<_> = ClusterChange::between(Some(&old), Some(&new))
        .into_iter()
        .collect();
    waiting.helped(&changes, GradeRule::Minimums)
}

/// Returns a workload of which each replica asks for so much.
pub(super) fn asking(cpu: &str) -> ResourceBindingSpec {
    let mut spec = deployment(30, &aggregated());
    spec.replica_requirements =
        serde_json::from_value(json!({ "resourceRequest": { "cpu": cpu } })).unwrap();
    spec
}

pub(super) const fn room(lacking: i64) -> Wait {
    Wait {
        wish: WaitsFor::Room,
        lacking,
    }
}

#[test]
fn who_lacks_room_is_woken_when_as_much_has_appeared_and_once_only() {
    let waiting = Waiting::default();
    let spec = deployment(30, &aggregated());
    waiting.put(&"lacks 1", Some((&spec, room(1))));
    waiting.put(&"lacks 5", Some((&spec, room(5))));
    let at = |cores| cluster("m", cores);
    assert_eq!(helped(&waiting, &at(10), &at(13)), ["lacks 1"]);
    assert!(
        helped(&waiting, &at(13), &at(14)).is_empty(),
        "1 is woken, 5 lacks one more"
    );
    assert_eq!(helped(&waiting, &at(14), &at(15)), ["lacks 5"]);
    assert!(helped(&waiting, &at(15), &at(99)).is_empty());
    // Decided in vain, it waits for as much as it lacks then.
    waiting.put(&"lacks 5", Some((&spec, room(2))));
    assert!(helped(&waiting, &at(10), &at(11)).is_empty());
    assert_eq!(helped(&waiting, &at(10), &at(11)), ["lacks 5"]);
    // One that waits no more is forgotten.
    waiting.put(&"lacks 1", Some((&spec, room(1))));
    waiting.put(&"lacks 1", None);
    waiting.put(&"lacks 5", None);
    assert!(helped(&waiting, &at(10), &at(99)).is_empty());
    let state = waiting.state.lock();
    assert!(state.choices.is_empty());
    assert_eq!(state.demands.len(), 0);
}

#[test]
fn a_set_of_components_is_woken_by_room_of_any_resource() {
    let waiting = Waiting::default();
    let mut set = deployment(0, &aggregated());
    set.replica_requirements = None;
    set.components = serde_json::from_value(json!([{
        "name": "task", "replicas": 2,
        "replicaRequirements": { "resourceRequest": { "cpu": "3" } },
    }]))
    .unwrap();
    let wait = Wait {
        wish: WaitsFor::Anything,
        lacking: 1,
    };
    waiting.put(&"set", Some((&set, wait)));
    // The number of free pods is the same.
    let at = |cores| cluster("m", cores);
    assert!(helped(&waiting, &at(5), &at(4)).is_empty());
    assert_eq!(helped(&waiting, &at(5), &at(6)), ["set"]);
    waiting.put(&"set", None);
    assert!(waiting.state.lock().choices.is_empty());
}

#[test]
fn a_cluster_that_admits_again_wakes_whoever_may_go_there_whatever_it_lacks() {
    let waiting = Waiting::default();
    let here = deployment(30, &aggregated());
    let mut elsewhere = aggregated();
    elsewhere["clusterAffinity"] = json!({ "clusterNames": ["other"] });
    let elsewhere = deployment(30, &elsewhere);
    for (key, spec, wish) in [
        ("admission", &here, WaitsFor::Admission),
        ("room", &here, WaitsFor::Room),
        ("anything", &here, WaitsFor::Anything),
        ("nothing", &here, WaitsFor::Nothing),
        ("elsewhere", &elsewhere, WaitsFor::Anything),
    ] {
        let lacking = 100;
        waiting.put(&key, Some((spec, Wait { wish, lacking })));
    }
    let ill = tainted("m", 10, "x", "NoSchedule");
    let mut woken = observe(&waiting, &ill, &cluster("m", 10));
    woken.sort_unstable();
    let at_once = |key| (key, Duration::ZERO);
    assert_eq!(woken, ["admission", "anything", "room"].map(at_once));
}

#[test]
fn a_change_during_a_decision_is_not_missed() {
    let spec = deployment(30, &aggregated());
    for wish in [WaitsFor::Room, WaitsFor::Anything] {
        let waiting = Waiting::default();
        let at = |cores| cluster("m", cores);
        let ill = tainted("m", 10, "x", "NoSchedule");
        waiting.begin("deciding");
        assert!(helped(&waiting, &at(10), &at(10)).is_empty());
        // Whom a cluster lets in counts for whatever comes of the decision.
        assert_eq!(helped(&waiting, &ill, &at(10)), ["deciding"]);
        // Room counts if it is room that is missing.
        assert!(helped(&waiting, &at(10), &at(11)).is_empty());
        let lacking = 100;
        waiting.put(&"deciding", Some((&spec, Wait { wish, lacking })));
        assert_eq!(
            waiting.next_round(),
            [("deciding", Duration::ZERO)],
            "{wish:?}"
        );
        waiting.put(&"deciding", None);
        assert!(helped(&waiting, &at(10), &at(11)).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn room_that_appears_during_a_decision_wakes_when_the_decision_has_ended() {
    let at = |cores| cluster("m", cores);
    for (now, is_helped) in [(at(10), false), (at(9), false), (at(11), true)] {
        let waiting = Waiting::default();
        waiting.begin("deciding");
        assert!(observe(&waiting, &at(10), &now).is_empty());
        let spec = deployment(30, &aggregated());
        waiting.put(&"deciding", Some((&spec, room(100))));
        let woken = Mutex::new(Vec::new());
        let wake = waiting.wake(|key, _| woken.lock().push(key));
        tokio::time::timeout(LONGEST_GATHER, wake)
            .await
            .unwrap_err();
        assert_eq!(!woken.into_inner().is_empty(), is_helped);
    }
}

#[test]
fn who_was_decided_again_and_lacks_more_is_not_woken_by_less() {
    let waiting = Waiting::default();
    let spec = deployment(30, &aggregated());
    for (key, lacking) in [("one", 1), ("other", 9), ("one", 5)] {
        waiting.put(&key, Some((&spec, room(lacking))));
        assert!(
            waiting.state.lock().wake_order.is_empty(),
            "nobody is to be woken"
        );
    }
    let at = |cores| cluster("m", cores);
    observe(&waiting, &at(10), &at(14));
    assert!(
        waiting.state.lock().wake_order.is_empty(),
        "nobody is to be woken"
    );
    assert_eq!(helped(&waiting, &at(14), &at(15)), ["one"]);
}

#[test]
fn decisions_in_vain_become_rarer() {
    let millis = |vain| pause(vain).as_millis();
    assert_eq!([millis(1), millis(2), millis(5)], [300, 600, 4_800]);
    assert_eq!(pause(u32::MAX), LONGEST_GATHER);
    // Only where it is mere room that may help.
    let waiting = Waiting::default();
    let spec = deployment(30, &aggregated());
    let wait = Wait {
        wish: WaitsFor::Anything,
        lacking: 1,
    };
    let at = |cores| cluster("m", cores);
    for after in [0, 300, 900, 2_100] {
        waiting.put(&"m", Some((&spec, wait)));
        assert!(observe(&waiting, &at(10), &at(11)).is_empty());
        assert_eq!(waiting.next_round(), [("m", Duration::from_millis(after))]);
    }
    waiting.put(&"m", Some((&spec, wait)));
    let ill = tainted("m", 10, "x", "NoSchedule");
    observe(&waiting, &at(10), &ill);
    assert_eq!(waiting.next_round(), [("m", Duration::ZERO)]);
}

#[test]
fn who_is_to_be_decided_later_is_decided_at_once_when_admission_changes() {
    let spec = deployment(30, &aggregated());
    let wait = Wait {
        wish: WaitsFor::Anything,
        lacking: 1,
    };
    let at = |cores| cluster("m", cores);
    let ill = tainted("m", 11, "x", "NoSchedule");
    let waiting = Waiting::default();
    for _ in 0..10 {
        waiting.put(&0, Some((&spec, wait)));
    }
    observe(&waiting, &at(10), &at(11));
    let later = LONGEST_GATHER.saturating_sub(GATHER_ROOM);
    assert_eq!(waiting.next_round(), [(0, later)]);
    observe(&waiting, &at(11), &ill);
    assert_eq!(waiting.next_round(), [(0, Duration::ZERO)]);
    assert!(waiting.next_round().is_empty(), "once");
    // Decided since, it waits as before.
    waiting.put(&0, Some((&spec, wait)));
    observe(&waiting, &at(11), &at(12));
    assert_eq!(waiting.next_round(), [(0, later)]);
    waiting.put(&0, None);
    observe(&waiting, &at(11), &ill);
    assert!(waiting.next_round().is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_is_woken_by_room_is_woken_in_rounds_that_grow_while_it_helps() {
    for (is_helped, expected) in [(true, [64, 128, 256]), (false, [64, 64, 64])] {
        let waiting = Waiting::default();
        let spec = deployment(30, &aggregated());
        for number in 0..1_000 {
            waiting.put(&number, Some((&spec, room(1))));
        }
        observe(&waiting, &cluster("m", 10), &cluster("m", 11));
        let woken = Mutex::new(Vec::new());
        let begun = tokio::time::Instant::now();
        let wake = waiting.wake(|key, _| {
            waiting.put(&key, (!is_helped).then_some((&spec, room(1))));
            woken.lock().push(begun.elapsed().as_millis());
        });
        tokio::time::timeout(Duration::from_mins(1), wake)
            .await
            .unwrap_err();
        let woken = woken.into_inner();
        assert_eq!(woken.len(), 1_000, "each of them once");
        for (turn, expected) in (1..).zip(expected) {
            let at = turn * GATHER_ROOM.as_millis();
            let count = woken.iter().filter(|it| **it == at).count();
            assert_eq!(count, expected, "turn {turn}, helped: {is_helped}");
        }
    }
}

#[test]
fn higher_priorities_are_woken_first_where_they_count() {
    for (ranked, expected) in [(true, "high"), (false, "low")] {
        let waiting = Waiting::ranked(ranked);
        let mut spec = deployment(30, &aggregated());
        for (key, priority) in [("low", 1), ("high", 7)] {
            spec.schedule_priority =
                serde_json::from_value(json!({ "priority": priority })).unwrap();
            // The one lacks less than the other, and would be the first.
            waiting.put(&key, Some((&spec, room(priority))));
        }
        observe(&waiting, &cluster("m", 10), &cluster("m", 99));
        let woken = waiting.next_round();
        assert_eq!(woken.len(), 2);
        assert_eq!(woken[0].0, expected, "ranked: {ranked}");
    }
}

#[test]
fn a_report_is_compared_with_few_demands_however_many_different_ones_wait() {
    for (shapes, most) in [(10, 30), (10_000, 800)] {
        let waiting = Waiting::default();
        for number in 0..10_000 {
            let spec = asking(&format!("{}m", 100 + number % shapes));
            waiting.put(&number, Some((&spec, room(1_000_000))));
        }
        for cores in 10..20 {
            let (old, new) = (
                decoded(&cluster("m", cores)),
                decoded(&cluster("m", cores + 1)),
            );
            let change = ClusterChange::between(Some(&old), Some(&new)).unwrap();
            let compared = waiting.state.lock().observe(&change, GradeRule::Minimums);
            assert!(
                compared > 0 && compared <= most,
                "{shapes} shapes: {compared}"
            );
        }
    }
}

#[test]
fn a_report_is_compared_only_with_what_may_go_to_its_cluster_where_that_is_named() {
    let waiting = Waiting::default();
    for number in 0..1_000 {
        let mut placement = aggregated();
        placement["clusterAffinity"] = json!({ "clusterNames": [format!("m{number}")] });
        waiting.put(&number, Some((&deployment(30, &placement), room(1))));
    }
    let at = |cores| decoded(&cluster("m7", cores));
    let (old, new) = (at(1), at(2));
    let change = ClusterChange::between(Some(&old), Some(&new)).unwrap();
    let compared = waiting.state.lock().observe(&change, GradeRule::Minimums);
    assert_eq!(
        compared, 3,
        "one choice of clusters, one demand, one group of it"
    );
    assert_eq!(waiting.next_round(), [(7, Duration::ZERO)]);
    let ill = decoded(&tainted("m7", 2, "x", "NoSchedule"));
    let change = ClusterChange::between(Some(&new), Some(&ill)).unwrap();
    let compared = waiting.state.lock().observe(&change, GradeRule::Minimums);
    assert_eq!(
        compared, 3,
        "its choice before and now, and one group of it"
    );
    // Long lists of names are tried like selectors.
    for (names, tried) in [(50, 0), (51, 1), (52, 1)] {
        let waiting = Waiting::default();
        let mut placement = aggregated();
        let names: Vec<_> = (0..names).map(|number| format!("m{number}")).collect();
        placement["clusterAffinity"] = json!({ "clusterNames": names });
        waiting.put(&0, Some((&deployment(30, &placement), room(1))));
        let elsewhere = decoded(&cluster("elsewhere", 1));
        let found = waiting.state.lock().choices.of(&elsewhere);
        assert_eq!(found, (Vec::new(), tried), "{} names", names.len());
    }
}

#[test]
fn a_choice_is_found_by_names_only_if_each_of_its_affinities_lists_some() {
    let named = json!({ "affinityName": "named", "clusterNames": ["m1"] });
    let selecting = json!({
        "affinityName": "selecting", "labelSelector": { "matchLabels": { "a": "b" } },
    });
    for groups in [[&named, &selecting], [&selecting, &named]] {
        let waiting = Waiting::default();
        let mut placement = aggregated();
        placement["clusterAffinities"] = json!(groups);
        waiting.put(&"it", Some((&deployment(30, &placement), room(1))));
        let at = |cores| {
            let mut cluster = cluster("m2", cores);
            cluster["metadata"]["labels"] = json!({ "a": "b" });
            cluster
        };
        assert_eq!(helped(&waiting, &at(10), &at(11)), ["it"], "{groups:?}");
    }
}

#[test]
fn what_has_a_demand_beyond_those_that_are_told_apart_is_woken_by_any_room() {
    let waiting = Waiting::new(false, 8);
    for number in 0..100 {
        let spec = asking(&format!("{}m", 1_000 + 10 * number));
        waiting.put(&number, Some((&spec, room(1))));
    }
    assert_eq!(waiting.state.lock().demands.len(), 8);
    // Of 1010 thousandths of a core two fit now, of the others as many as before.
    let mut roomier = cluster("m", 2);
    roomier["status"]["resourceSummary"]["allocatable"]["cpu"] = json!("2020m");
    observe(&waiting, &cluster("m", 2), &roomier);
    let turns = std::iter::repeat_with(|| waiting.next_round());
    let turns = turns.take_while(|turn| !turn.is_empty());
    let mut woken: Vec<i32> = turns.flatten().map(|(key, _)| key).collect();
    woken.sort_unstable();
    let expected: Vec<i32> = [1].into_iter().chain(8..100).collect();
    assert_eq!(woken, expected);
    for number in 0..100 {
        waiting.put(&number, None);
    }
    assert_eq!(waiting.state.lock().demands.len(), 0);
}

#[test]
fn who_is_known_to_be_helped_waits_for_none_whose_demands_are_not_told_apart() {
    let waiting = Waiting::new(false, 1);
    let known = asking("1");
    waiting.put(&0, Some((&known, room(1))));
    for number in 1..=100 {
        let mut placement = aggregated();
        let names = json!(["m", format!("other{number}")]);
        placement["clusterAffinity"] = json!({ "clusterNames": names });
        let mut other = deployment(30, &placement);
        other.replica_requirements = asking("2").replica_requirements;
        waiting.put(&number, Some((&other, room(1))));
    }
    // It is the last to wait.
    waiting.put(&0, Some((&known, room(1))));
    observe(&waiting, &cluster("m", 10), &cluster("m", 11));
    let first = waiting.next_round();
    assert!(first.iter().any(|(key, _)| *key == 0), "{first:?}");
}
