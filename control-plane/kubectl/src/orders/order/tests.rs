use std::sync::Arc;

use clap::Parser as _;
use http::{Method, Request};
use kube::client::Body;
use muster_shared::clock::calendar;
use muster_shared::taints::is_drain;
use parking_lot::Mutex;

use super::*;
use crate::fixtures::{self, member, read};
use crate::orders::taint;

fn cluster(taints: &Value, annotations: &Value) -> Cluster {
    let changes = json!({"metadata": {"annotations": annotations}, "spec": {"taints": taints}});
    member("m1", &changes)
}

#[test]
fn an_order_changes_its_own_taints_and_annotations_and_nothing_that_is_so_already() {
    let now = Timestamp::from_second(100).unwrap();
    let drain = crate::orders::drain::order(Some(&"0.5".to_owned()));
    let undrain = crate::orders::drain::undrain();
    let mine = json!({"key": "mine", "effect": "NoExecute"});
    let no = |effect| json!({"key": "failover.muster.io/drain", "effect": effect, "timeAdded": "1970-01-01T00:01:40Z"});
    let before = cluster(&json!([mine]), &json!({"a": "b"}));
    let patch = drain.patch(&before, now).unwrap();
    let taints = json!([mine, no("NoSchedule"), no("NoExecute")]);
    assert_eq!(
        patch,
        json!({
            "spec": {"taints": taints},
            "metadata": {"annotations": {"failover.muster.io/drain-rate": "0.5"}},
        })
    );
    let drained = cluster(&taints, &json!({"failover.muster.io/drain-rate": "0.5"}));
    let later = Timestamp::from_second(200).unwrap();
    assert_eq!(
        drain.patch(&drained, later),
        None,
        "no toleration starts anew"
    );
    let again = crate::orders::drain::order(None);
    assert_eq!(again.patch(&drained, later), None, "the rate stays");
    assert_eq!(
        undrain.patch(&drained, later).unwrap(),
        json!({
            "spec": {"taints": [mine]},
            "metadata": {"annotations": {"failover.muster.io/drain-rate": null}},
        })
    );
    assert_eq!(undrain.patch(&before, now), None);
    let cordoned = crate::orders::cordon().patch(&before, now).unwrap();
    let on = json!({"key": "failover.muster.io/cordon", "effect": "NoSchedule", "timeAdded": "1970-01-01T00:01:40Z"});
    assert_eq!(cordoned, json!({"spec": {"taints": [mine, on]}}));
    let both = cluster(&json!([on, no("NoExecute")]), &json!({}));
    let left = crate::orders::uncordon().patch(&both, now).unwrap();
    assert_eq!(left, json!({"spec": {"taints": [no("NoExecute")]}}));
}

/// Returns an API that has clusters, and all of them as they were after each write.
fn api(clusters: &[Value]) -> (Client, Arc<Mutex<Vec<Vec<Cluster>>>>) {
    let states: Arc<Mutex<Vec<Vec<Cluster>>>> = Arc::default();
    let (mut clusters, seen) = (clusters.to_vec(), Arc::clone(&states));
    let client = fixtures::api(move |request| {
        let name = request.uri().path().rsplit('/').next().unwrap();
        let at = |it: &&mut Value| it["metadata"]["name"] == name;
        let Some(cluster) = clusters.iter_mut().find(at) else {
            // The request for the version asks for the time of the server, which is left out.
            return (200, json!({}));
        };
        if request.method() != Method::PATCH {
            return (200, cluster.clone());
        }
        json_patch::merge(cluster, request.body());
        let answer = cluster.clone();
        seen.lock()
            .push(clusters.iter().cloned().map(read).collect());
        (200, answer)
    });
    (client, states)
}

fn names() -> Vec<String> {
    ["m1", "m2", "m3"].map(str::to_owned).to_vec()
}

fn fleet(taints: &Value) -> Vec<Value> {
    let names = ["m1", "m2", "m3"];
    let each = names.map(|name| {
        json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": name, "annotations": {}},
            "spec": {"syncMode": "Pull", "taints": taints},
        })
    });
    each.to_vec()
}

fn is_drained(cluster: &Cluster) -> bool {
    cluster.spec.taints.iter().any(is_drain)
}

fn pause(cluster: &Cluster) -> Option<Pause> {
    Pause::of_cluster(cluster)
}

#[test]
fn a_short_pause_names_a_few_clusters_of_very_many() {
    let names: Vec<String> = (0..3_500).map(|n| format!("{n:063}")).collect();
    let text = held(&names, Timestamp::UNIX_EPOCH);
    assert!(text.len() < 1_000, "each of the clusters has it: {text}");
    assert!(text.contains("and 3490 more is being written"), "{text}");
}

#[tokio::test]
async fn while_drains_of_several_end_nothing_leaves_those_that_are_still_drained() {
    let drain = json!([
        {"key": "failover.muster.io/drain", "effect": "NoSchedule"},
        {"key": "failover.muster.io/drain", "effect": "NoExecute"},
    ]);
    let (client, states) = api(&fleet(&drain));
    let undrain = crate::orders::drain::undrain();
    give(&client, &names(), &undrain, &Author::default())
        .await
        .unwrap();
    let states = states.lock();
    for state in states.iter() {
        let mut drained = state.iter().filter(|it| is_drained(it));
        let is_begun = !state.iter().all(is_drained);
        assert!(
            !is_begun || drained.all(|it| pause(it).is_some()),
            "{state:?}"
        );
        // A command that ends here leaves no pause that lasts.
        for pause in state.iter().filter_map(pause) {
            assert_eq!(pause.until, pause.since.map(|it| it + STEP));
        }
    }
    let last = states.last().unwrap();
    assert!(!last.iter().any(|it| is_drained(it) || pause(it).is_some()));
}

#[tokio::test]
async fn a_cluster_that_was_paused_stays_paused_when_its_drain_ends_with_others() {
    let drain = json!([{"key": "failover.muster.io/drain", "effect": "NoExecute"}]);
    let mut clusters = fleet(&drain);
    clusters[1]["metadata"]["annotations"][PAUSED] = json!("of a person");
    // One that is over protects nothing.
    let over = json!({"until": "2020-01-01T00:00:00Z"}).to_string();
    clusters[2]["metadata"]["annotations"][PAUSED] = json!(over);
    let (client, states) = api(&clusters);
    let undrain = crate::orders::drain::undrain();
    give(&client, &names(), &undrain, &Author::default())
        .await
        .unwrap();
    let states = states.lock();
    let held = |it: &&Cluster| pause(it).is_some_and(|it| it.holds(calendar()));
    let is_begun = |it: &&Vec<Cluster>| !it.iter().all(is_drained);
    let first = states.iter().find(is_begun).unwrap();
    assert_eq!(first.iter().filter(held).count(), 2, "{first:?}");
    let paused = states.last().unwrap().iter().map(|it| pause(it).is_some());
    assert_eq!(paused.collect::<Vec<_>>(), [false, true, false]);
}

#[tokio::test]
async fn clusters_that_are_drained_together_take_nothing_of_each_other() {
    let (client, states) = api(&fleet(&json!([])));
    let drain = crate::orders::drain::order(None);
    let author = Author {
        by: "alice".to_owned(),
        reason: "an upgrade".to_owned(),
    };
    let reported = give(&client, &names(), &drain, &author).await.unwrap();
    assert_eq!(reported.matches("Cluster m1").count(), 1, "{reported}");
    let states = states.lock();
    // Both steps are one order, and nobody who sees the first has to ask whose it is.
    for cluster in states.iter().flatten() {
        let orders = Attribution::all(&cluster.metadata).len();
        assert_eq!(orders, usize::from(!cluster.spec.taints.is_empty()));
    }
    for state in states.iter().filter(|it| it.iter().any(is_drained)) {
        let keeps_out = |it: &Cluster| it.spec.taints.iter().any(|it| it.effect == NO_SCHEDULE);
        assert!(state.iter().all(keeps_out), "{state:?}");
    }
    assert!(states.last().unwrap().iter().all(is_drained));
}

#[tokio::test]
async fn what_taints_of_several_clusters_begin_waits_until_all_are_written() {
    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: taint::Options,
    }
    let none = json!([]);
    let evicts = json!([{"key": "k", "effect": "NoExecute"}]);
    for (taints, edit, waits) in [
        (&none, "k:NoExecute", true),
        (&none, "k:PreferNoExecute", true),
        (&none, "k:NoSchedule", false),
        (&evicts, "k-", true),
        (&evicts, "k:NoExecute-", true),
    ] {
        let (client, states) = api(&fleet(taints));
        let line = Line::parse_from(["taint", "m1", "m2", "m3", edit]);
        let reported = taint::carry_out(&client, &line.options).await.unwrap();
        assert_eq!(reported.matches("Cluster m").count(), 3, "{reported}");
        let before: Vec<Taint> = serde_json::from_value(taints.clone()).unwrap();
        let is_written = |it: &Cluster| it.spec.taints != before;
        let states = states.lock();
        let is_begun = |it: &&Vec<Cluster>| it.iter().any(is_written);
        for state in states.iter().filter(is_begun) {
            let is_over = state.iter().all(is_written);
            let held = state.iter().filter(|it| pause(it).is_some()).count();
            assert!(
                is_over || held == if waits { 3 } else { 0 },
                "{edit} {state:?}"
            );
        }
        let last = states.last().unwrap();
        assert!(last.iter().all(|it| is_written(it) && pause(it).is_none()));
    }
}

#[tokio::test]
async fn an_order_is_written_with_its_author_and_a_new_reason_for_one_that_stands_as_well() {
    let (client, states) = api(&fleet(&json!([])));
    let drain = crate::orders::drain::order(None);
    let author = |reason: &str| Author {
        by: "alice".to_owned(),
        reason: reason.to_owned(),
    };
    for reason in ["", "an upgrade", ""] {
        let names = ["m1".to_owned()];
        let reported = give(&client, &names, &drain, &author(reason)).await;
        reported.unwrap();
    }
    let states = states.lock();
    let reported: Vec<String> = states
        .iter()
        .map(|it| Attribution::of_command(&it[0]).unwrap())
        .map(|it| format!("{}: {}", it.author(), it.reason))
        .collect();
    assert_eq!(reported, ["alice: ", "alice: an upgrade"]);
}

#[tokio::test]
async fn an_order_keeps_its_author_although_the_cluster_is_read_slowly() {
    // Each request takes a second by the clock of the calendar, which no test can hold or advance:
    // another second begins between any two of them.
    let (fast, states) = api(&fleet(&json!([])));
    let service = tower::service_fn(move |request: Request<Body>| {
        let fast = fast.clone();
        async move {
            tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
            fast.send(request).await
        }
    });
    let author = Author {
        by: "alice".to_owned(),
        reason: "an upgrade".to_owned(),
    };
    let client = Client::new(service, "default");
    let names = ["m1".to_owned()];
    give(&client, &names, &crate::orders::cordon(), &author)
        .await
        .unwrap();
    let states = states.lock();
    let cordoned = &states.last().unwrap()[0];
    let reported = Attribution::of_command(cordoned).map(|it| it.by);
    assert_eq!(reported.as_deref(), Some("alice"), "{cordoned:?}");
}
