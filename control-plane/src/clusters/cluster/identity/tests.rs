use serde_json::json;

use super::*;
use crate::fleet::testing::at;

fn cluster(name: &str, identity: Option<&str>) -> Cluster {
    let conditions: Vec<_> = identity
        .map(|status| conditions::new(UNIQUE_IDENTITY, status, "r", "m", at(0)))
        .into_iter()
        .collect();
    serde_json::from_value(json!({"metadata": {"name": name},
        "spec": {"syncMode": "Pull", "id": "1"}, "status": {"conditions": conditions}}))
    .unwrap()
}

/// Builds claims from a name, whether it was refused before, since when it claims, and its age.
fn claims(list: &[(&str, bool, u64, i64)]) -> Vec<Claim> {
    let claim = |&(name, refused, since, created): &(&str, bool, u64, i64)| Claim {
        unrecorded: true,
        refused,
        since,
        created: Some(at(created)),
        name: name.to_owned(),
    };
    list.iter().map(claim).collect()
}

#[test]
fn a_claim_says_whether_it_was_refused() {
    for (identity, refused) in [
        (None, false),
        (Some("True"), false),
        (Some("Unknown"), false),
        (Some("False"), true),
    ] {
        let claim = claim(&cluster("m", identity), None, 1);
        assert_eq!(claim.refused, refused, "{identity:?}");
    }
}

#[test]
fn the_later_registration_is_the_wrong_one() {
    let a = |since, created| ("a", false, since, created);
    let b = |since, created| ("b", false, since, created);
    let (a_refused, b_refused) = (("a", true, 0, 1), ("b", true, 0, 5));
    for (list, before, expected) in [
        (&[b(0, 5)][..], None, None),
        (&[], None, None),
        // Seen by us, whatever their ages.
        (&[a(0, 9), b(1, 5)], None, Some(FALSE)),
        (&[a(2, 1), b(1, 5)], None, None),
        // Both were there before us: by age, then by name.
        (&[a(0, 1), b(0, 5)], None, Some(FALSE)),
        (&[a(0, 9), b(0, 5)], None, None),
        (&[a(0, 5), b(0, 5)], None, Some(FALSE)),
        // A cluster that was refused stays refused as long as the other one is there.
        (&[a(0, 9), b_refused], Some(FALSE), Some(FALSE)),
        (&[a_refused, b(0, 5)], None, None),
        (&[b_refused], Some(FALSE), Some(TRUE)),
    ] {
        let list = claims(list);
        let said = judge(&cluster("b", before), &list, at(10));
        let status = said.as_ref().map(|said| said.status.as_str());
        assert_eq!(status, expected, "{list:?}");
        if status == Some(FALSE) {
            assert!(said.unwrap().message.contains("\"a\""));
        }
    }
}

fn namespace(id: Option<&str>) -> Namespace {
    let annotations = id.map(|id| json!({ RECORD: id }));
    serde_json::from_value(json!({"metadata": {"name": "n", "annotations": annotations}})).unwrap()
}

#[test]
fn an_older_cluster_that_takes_an_id_on_while_no_process_runs_does_not_get_it() {
    // The attacker is older, and has removed from its own status what was written there.
    let mut attacker = cluster("a", None);
    attacker.metadata.creation_timestamp = Some(muster_shared::k8s::Time(at(1)));
    let mut victim = cluster("v", None);
    victim.metadata.creation_timestamp = Some(muster_shared::k8s::Time(at(5)));
    let (own, none) = (namespace(Some("1")), namespace(None));
    for (of_attacker, of_victim, wrong) in [
        (Some(&none), Some(&own), "a"),
        (None, Some(&own), "a"),
        // The record of another id counts for nothing.
        (Some(&namespace(Some("2"))), Some(&own), "a"),
        // Nothing is recorded: the older is the first.
        (Some(&none), Some(&none), "v"),
    ] {
        let claims = [
            claim(&attacker, of_attacker, 0),
            claim(&victim, of_victim, 0),
        ];
        for cluster in [&attacker, &victim] {
            let said = judge(cluster, &claims, at(10));
            let refused = said.is_some_and(|said| said.status == FALSE);
            assert_eq!(refused, cluster.name_any() == wrong, "{claims:?}");
        }
    }
}

#[test]
fn a_second_registration_does_not_get_the_id_while_the_first_cannot_be_read() {
    let (own, none) = (namespace(Some("1")), namespace(None));
    let mut second = cluster("a", None);
    second.metadata.creation_timestamp = Some(muster_shared::k8s::Time(at(5)));
    for (of_first, since, is_refused) in [(&own, 3, true), (&none, 1, true), (&none, 3, false)] {
        let claims = [
            claim(&second, Some(&none), 2),
            unread_claim("v", Some("1"), Some(of_first), since),
        ];
        let said = judge(&second, &claims, at(10));
        let refused = said.is_some_and(|said| said.status == FALSE);
        assert_eq!(refused, is_refused, "{claims:?}");
        assert_eq!(
            is_to_be_recorded(&second, &claims, &none),
            !is_refused,
            "{claims:?}"
        );
    }
}

#[test]
fn the_first_holder_alone_is_recorded_and_once() {
    let (a, b) = (cluster("a", None), cluster("b", None));
    let both = claims(&[("a", false, 0, 1), ("b", false, 1, 5)]);
    assert!(is_to_be_recorded(&a, &both, &namespace(None)));
    assert!(is_to_be_recorded(&a, &both, &namespace(Some("0"))));
    assert!(!is_to_be_recorded(&a, &both, &namespace(Some("1"))));
    assert!(!is_to_be_recorded(&b, &both, &namespace(None)));
    assert!(!is_to_be_recorded(&b, &[], &namespace(None)));
    let mut nobody = cluster("a", None);
    nobody.spec.id = None;
    assert!(!is_to_be_recorded(&nobody, &both, &namespace(None)));
}

#[test]
fn nothing_is_said_twice() {
    let list = claims(&[("a", false, 0, 1), ("b", false, 1, 5)]);
    let mut cluster = cluster("b", None);
    let said = judge(&cluster, &list, at(10)).unwrap();
    cluster.status.as_mut().unwrap().conditions.push(said);
    assert_eq!(judge(&cluster, &list, at(20)), None);
}

#[test]
fn whoever_is_concerned_by_a_change_is_reconciled() {
    let identities = Identities::default();
    let note = |name: &str, id: Option<&str>| identities.note(name, id, false);
    assert!(note("a", Some("1")).is_empty());
    assert!(note("b", Some("2")).is_empty());
    assert!(note("c", None).is_empty() && note("d", Some("")).is_empty());
    assert_eq!(note("c", Some("1")), ["a"]);
    assert!(note("c", Some("1")).is_empty(), "known");
    assert_eq!(identities.holders("a"), [("a".into(), 1), ("c".into(), 3)]);
    assert_eq!(note("c", Some("2")), ["a", "b"], "both cases change");
    assert_eq!(identities.holders("a"), [("a".into(), 1)]);
    assert_eq!(note("c", None), ["b"]);
    assert!(identities.holders("c").is_empty());
    identities.note("e", Some("9"), true);
    assert_eq!(identities.holders("e"), [("e".into(), 0)]);
}

#[test]
fn what_is_recorded_counts_for_a_cluster_that_was_never_read() {
    let identities = Identities::default();
    assert!(identities.note_record("first", Some("1")).is_empty());
    assert!(identities.note("second", Some("1"), true).is_empty());
    let both = [("first".to_owned(), 0), ("second".to_owned(), 0)];
    assert_eq!(identities.holders("second"), both);
    // The member's identity is read at last, and differs: the record does not count any more.
    assert!(identities.note("first", Some("2"), false).is_empty());
    assert_eq!(identities.holders("second"), both[1..]);
    identities.note("first", None, false);
    assert_eq!(identities.holders("second"), both);
    for change in [
        identities.note_departure("first"),
        identities.note_record("first", Some("3")),
        identities.note_record("first", Some("1")),
        identities.note_record("first", None),
    ] {
        assert_eq!(change, ["second"]);
    }
    assert_eq!(identities.holders("second"), both[1..]);
    assert!(
        identities.note_record("second", Some("1")).is_empty(),
        "its own"
    );
    assert_eq!(identities.holders("second"), both[1..]);
}
