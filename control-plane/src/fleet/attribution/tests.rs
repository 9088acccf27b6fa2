use serde_json::Value;

use super::*;
use crate::fleet::testing::at;

fn given(order: &str, by: &str, second: i64) -> Attribution {
    Attribution {
        order: order.to_owned(),
        by: by.to_owned(),
        at: Some(at(second)),
        ..Attribution::default()
    }
}

fn metadata(annotation: Option<&str>) -> ObjectMeta {
    serde_json::from_value(json!({"annotations": annotation.map(|it| json!({ORDERED_BY: it}))}))
        .unwrap()
}

fn with<T: Serialize>(orders: &[T]) -> ObjectMeta {
    metadata(Some(&json!(orders).to_string()))
}

fn cluster(taints: &Value, metadata: &ObjectMeta) -> Cluster {
    serde_json::from_value(json!({
        "metadata": metadata, "spec": {"syncMode": "Pull", "taints": taints},
    }))
    .unwrap()
}

#[test]
fn what_cannot_be_read_is_left_out_and_texts_and_numbers_are_bounded() {
    for text in ["", "{", "{}", "null", "[1, \"x\", null]"] {
        assert_eq!(Attribution::all(&metadata(Some(text))), [], "{text}");
    }
    assert_eq!(Attribution::all(&metadata(None)), []);
    let mixed = r#"[{"order":"drain","by":7},{"order":"cordon","by":"alice","at":"1970-01-01T00:00:05Z","more":1}]"#;
    assert_eq!(
        Attribution::all(&metadata(Some(mixed))),
        [given("cordon", "alice", 5)]
    );
    let long = |second: i64| Attribution {
        reason: "ü".repeat(1_000),
        ..given("drain", "alice", second)
    };
    let mut held = ObjectMeta::default();
    for second in 0..20 {
        held = metadata(Some(&Attribution::added(&held, long(second))));
    }
    let all = Attribution::all(&held);
    assert_eq!(all.len(), KEPT);
    assert_eq!(all[0].reason, "ü".repeat(LONGEST));
}

#[test]
fn the_author_of_an_order_is_the_one_who_gave_the_order_that_stands() {
    let taint = |key: &str, second: i64| json!({"key": key, "effect": "NoExecute", "timeAdded": at(second)});
    let (drain, undrain) = (given("drain", "alice", 10), given("undrain", "bob", 20));
    let cordon = given("cordon", "carol", 5);
    let (drained, cordoned) = (taint(DRAIN, 10), taint(CORDON, 5));
    for (taints, orders, expected) in [
        (json!([]), &[&drain][..], None),
        (json!([drained]), &[&drain], Some("alice")),
        (json!([drained]), &[], None),
        (json!([drained]), &[&drain, &undrain], None),
        // Somebody drained the cluster in another way since.
        (json!([taint(DRAIN, 30)]), &[&drain], None),
        (
            json!([cordoned, drained]),
            &[&cordon, &drain],
            Some("alice"),
        ),
        (json!([cordoned]), &[&cordon, &undrain], Some("carol")),
    ] {
        let cluster = cluster(&taints, &with(orders));
        let found = Attribution::of_command(&cluster);
        let by = found.as_ref().map(Attribution::author);
        assert_eq!(by, expected, "{taints} {orders:?}");
    }
}

#[test]
fn the_author_of_a_taint_is_the_one_who_put_it_on_last() {
    let order = |change: &str, second: i64| Attribution {
        change: change.to_owned(),
        ..given("taint", "alice", second)
    };
    let put = order("tainted a=1:NoExecute", 10);
    let several = order("untainted b, tainted a=1:NoExecute", 10);
    let another = order("tainted a=1:NoSchedule, tainted aa=1:NoExecute", 20);
    let (off, all_off) = (order("untainted a:NoExecute", 20), order("untainted a", 20));
    let drain = given("drain", "bob", 20);
    for (orders, added, expected) in [
        (&[&put][..], 10, Some("alice")),
        (&[], 10, None),
        // A command about many clusters takes a while.
        (&[&put], 70, Some("alice")),
        (&[&several], 10, Some("alice")),
        (&[&put, &another, &drain], 10, Some("alice")),
        (&[&another], 20, None),
        // Somebody put it on in another way since.
        (&[&put, &off], 30, None),
        (&[&put, &all_off], 30, None),
        (&[&put], 10_000, None),
        (&[&put, &off, &put], 10, Some("alice")),
    ] {
        let taint = serde_json::from_value(json!({
            "key": "a", "value": "1", "effect": "NoExecute", "timeAdded": at(added),
        }));
        let found = Attribution::of_taint(&with(orders), &taint.unwrap());
        let by = found.as_ref().map(Attribution::author);
        assert_eq!(by, expected, "{orders:?} {added}");
    }
}

#[test]
fn a_taint_without_a_record_is_reported_by_the_program_that_wrote_it() {
    let written = |manager: &str| -> ObjectMeta {
        let managed = json!({
            "manager": manager, "operation": "Update", "time": at(10),
            "fieldsV1": {"f:spec": {"f:taints": {}}},
        });
        serde_json::from_value(json!({"managedFields": [managed]})).unwrap()
    };
    for (manager, added, expected) in [
        ("kubectl-edit", Some(10), Some("somebody with kubectl-edit")),
        // The program wrote another taint later.
        ("kubectl-edit", Some(0), None),
        ("kubectl-edit", None, None),
        ("muster-control-plane", Some(10), None),
    ] {
        let taint = serde_json::from_value(json!({
            "key": "a", "effect": "NoExecute", "timeAdded": added.map(at),
        }));
        let found = Attribution::of_taint(&written(manager), &taint.unwrap());
        let by = found.as_ref().map(Attribution::author);
        assert_eq!(by, expected, "{manager} {added:?}");
    }
}

#[test]
fn admission_attributes_each_new_order_to_the_user_who_writes() {
    let drained = json!([{"key": DRAIN, "effect": "NoExecute"}]);
    let none = json!([]);
    let (alice, lie) = (given("drain", "alice", 10), given("drain", "root", 30));
    let (early, bob) = (given("drain", "bob", 30), given("drain", "bob", 50));
    let undrain = given("undrain", "bob", 50);
    let idle = (&none, &[][..]);
    let (known, ended) = ((&drained, &[&alice][..]), (&none, &[&alice][..]));
    for (what, before, after, expected) in [
        ("by another program", idle, (&drained, &[][..]), &[&bob][..]),
        ("in another's name", idle, (&drained, &[&lie]), &[&early]),
        ("by the command", idle, (&drained, &[&early]), &[]),
        ("a write that orders nothing", known, known, &[]),
        ("the end of an order", known, ended, &[&alice, &undrain]),
        ("a known order", known, (&drained, &[&lie]), &[&early]),
    ] {
        let (old, new) = (with(before.1), with(after.1));
        let standing = |metadata: &ObjectMeta, taints: &Value| {
            of_cluster(metadata, &cluster(taints, metadata).spec.taints, at(50))
        };
        let standing = (standing(&old, before.0), standing(&new, after.0));
        let written = attribute(&new, &old, standing, "bob", at(50));
        let written = written.map(|text| Attribution::all(&metadata(Some(&text))));
        assert_eq!(written.is_none(), expected.is_empty(), "{what}");
        let written: Vec<_> = written.iter().flatten().collect();
        assert_eq!(written, expected, "{what}");
    }
}

#[test]
fn a_pause_that_is_a_step_of_another_order_has_no_author_of_its_own() {
    let paused = |by: &str, until: i64| -> ObjectMeta {
        let text = json!({"by": by, "reason": "r", "until": at(until)}).to_string();
        serde_json::from_value(json!({"annotations": {"failover.muster.io/paused": text}})).unwrap()
    };
    let none = ObjectMeta::default();
    for (by, until, expected) in [
        ("alice", 61, Some("pause")),
        (COMMAND, 61, None),
        // Nobody hides a pause in its name.
        (COMMAND, 6_000, Some("pause")),
    ] {
        let paused = paused(by, until);
        let standing = [&none, &paused].map(|it| of_cluster(it, &[], at(1)));
        let written = attribute(&paused, &none, standing.into(), "bob", at(1));
        let written = written.map(|text| Attribution::all(&metadata(Some(&text))));
        let order = written.map(|all| all[0].order.clone());
        assert_eq!(order.as_deref(), expected, "{by} until {until}");
    }
}

#[test]
fn a_program_that_wrote_a_field_is_reported_where_nobody_else_is_known() {
    let writer = |manager: &str, second: i64, fields: Value| json!({"manager": manager, "operation": "Update", "time": at(second), "fieldsV1": fields});
    let taints = json!({"f:spec": {"f:taints": {}}});
    let program = |managed: Value| {
        let metadata: ObjectMeta =
            serde_json::from_value(json!({"managedFields": managed})).unwrap();
        let found = Attribution::by_program(&metadata, "drain", &["spec", "taints"])?;
        Some(found.to_string())
    };
    assert_eq!(
        program(json!([
            writer("kubectl-edit", 5, taints.clone()),
            writer("argocd", 9, json!({"f:metadata": {}})),
            // The control plane adds the time to taints that people write.
            writer("muster-control-plane", 9, taints.clone()),
        ])),
        Some("by somebody with kubectl-edit at 1970-01-01T00:00:05Z".to_owned())
    );
    for managed in [
        json!([]),
        json!([writer("argocd", 9, json!({"f:spec": {"f:taint": {}}}))]),
        json!([writer("muster-control-plane", 9, taints)]),
    ] {
        assert_eq!(program(managed.clone()), None, "{managed}");
    }
}

#[test]
fn the_steps_of_one_order_are_recorded_once_whatever_its_reason_and_whoever_knows_its_author() {
    for (by, reason) in [
        ("alice", "an upgrade".to_owned()),
        ("alice", "ü".repeat(LONGEST + 1)),
        ("alice", "two\nlines".to_owned()),
        // `kubectl muster` could not ask who gives the order; admission knows.
        ("", "an upgrade".to_owned()),
    ] {
        let order = Attribution {
            reason: reason.clone(),
            ..given("drain", by, 10)
        };
        let mut held = ObjectMeta::default();
        for _step in 0..2 {
            let new = metadata(Some(&Attribution::added(&held, order.clone())));
            let none = || of_cluster(&ObjectMeta::default(), &[], at(10));
            let written = attribute(&new, &held, (none(), none()), "alice", at(10));
            held = written.map_or(new, |text| metadata(Some(&text)));
        }
        let all = Attribution::all(&held);
        assert_eq!(all.len(), 1, "by {by:?}, {reason:?}: {all:?}");
    }
}

#[test]
fn an_order_about_many_clusters_that_takes_longer_than_minutes_is_reported_as_given_by_its_author()
{
    // All its steps have one time. The last cluster is written six minutes later.
    let order = given("drain", "alice", 0);
    let new = metadata(Some(&Attribution::added(&ObjectMeta::default(), order)));
    let taints = json!([{"key": DRAIN, "effect": "NoExecute", "timeAdded": at(0)}]);
    let drained = cluster(&taints, &new);
    let none = ObjectMeta::default();
    let standing = (
        of_cluster(&none, &[], at(360)),
        of_cluster(&new, &drained.spec.taints, at(360)),
    );
    let written = attribute(&new, &none, standing, "alice", at(360));
    let all = Attribution::all(&written.map_or(new, |text| metadata(Some(&text))));
    let reported: Vec<&str> = all.iter().map(|it| it.by.as_str()).collect();
    assert_eq!(
        reported,
        ["alice"],
        "one order, which nobody brought from elsewhere"
    );
}
