use muster_shared::names::annotation::{FLEET_EPOCH, FLEET_ID, FORMER_FLEET_IDS};
use serde_json::{Value, json};

use super::*;

fn server(address: &str, store: &str) -> FleetServer {
    FleetServer {
        server: address.to_owned(),
        store: store.to_owned(),
        ..FleetServer::default()
    }
}

#[test]
fn the_own_server_is_the_first_unless_the_settings_name_it_elsewhere() {
    let own = "https://own:6443/";
    let (a, b, c) = ("https://a", "https://b", "https://c");
    for (configured, published, expected) in [
        (vec![], vec![], vec![("https://own:6443", "", true)]),
        (
            vec![server(a, "one"), server(b, "two")],
            vec![],
            vec![
                ("https://own:6443", "one", true),
                (a, "one", false),
                (b, "two", false),
            ],
        ),
        (
            vec![server(a, ""), server("https://own:6443", "x")],
            vec![server(c, "y"), server("https://a/", "z")],
            vec![
                (a, "", false),
                ("https://own:6443", "x", true),
                (c, "y", false),
            ],
        ),
        (
            vec![],
            vec![server("https://own:6443", "one"), server(b, "two")],
            vec![("https://own:6443", "one", true), (b, "two", false)],
        ),
    ] {
        let found = candidates(own, &configured, &published);
        let found: Vec<_> = found
            .iter()
            .map(|it| (&*it.server.server, &*it.server.store, it.is_own))
            .collect();
        assert_eq!(found, expected);
    }
}

fn said(annotations: &Value) -> Said {
    let metadata = json!({ "annotations": annotations });
    Said::of(Some(&serde_json::from_value(metadata).unwrap()))
}

/// Returns the word for a conclusion about a server of this store.
fn concluded(
    remembered: (u64, &str),
    (store, is_own): (&str, bool),
    annotations: &Value,
) -> &'static str {
    let remembered = Remembered {
        epoch: remembered.0,
        store: remembered.1.to_owned(),
        fleet: "f".to_owned(),
        servers: Vec::new(),
    };
    let candidate = Candidate {
        server: server("https://h", store),
        is_own,
    };
    match judge(&remembered, &candidate, &said(annotations)) {
        Verdict::Same => "same",
        Verdict::New => "new",
        Verdict::Refused(Refusal::Older { .. }) => "older",
        Verdict::Refused(Refusal::Standby { .. }) => "standby",
        Verdict::Refused(Refusal::OtherFleet { .. }) => "fleet",
    }
}

#[test]
fn an_older_store_and_a_standby_are_refused_and_a_promoted_one_is_obeyed() {
    let (own, other) = (|store| (store, true), |store| (store, false));
    for (what, remembered, server, epoch, expected) in [
        ("at rest", (0, ""), own(""), None, "same"),
        ("another address", (0, "a"), other("a"), None, "same"),
        ("an idle standby", (0, "a"), other("b"), None, "standby"),
        ("a promoted one", (0, "a"), other("b"), Some("1"), "new"),
        ("its second look", (1, "b"), other("b"), Some("1"), "same"),
        ("the former one is back", (1, "b"), own("a"), None, "older"),
        ("two are promoted", (1, "b"), own("a"), Some("1"), "standby"),
        ("promoted again", (1, "b"), own("a"), Some("2"), "new"),
        ("restored in place", (2, ""), own(""), Some("1"), "older"),
        ("what is no number", (2, ""), own(""), Some("x"), "older"),
    ] {
        let mut annotations = json!({ FLEET_ID: "f" });
        if let Some(epoch) = epoch {
            annotations[FLEET_EPOCH] = json!(epoch);
        }
        let found = concluded(remembered, server, &annotations);
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn another_fleet_is_obeyed_at_the_address_of_the_kubeconfig_alone() {
    let other = json!({FLEET_ID: "g"});
    let former = json!({FLEET_ID: "g", FORMER_FLEET_IDS: "f"});
    for (what, epoch, is_own, annotations, expected) in [
        ("another fleet", 0, false, &other, "fleet"),
        ("no id", 0, false, &json!({}), "fleet"),
        ("a fleet with a former id", 0, false, &former, "same"),
        ("the own address leads there", 3, true, &other, "new"),
        ("another id was published", 0, true, &other, "same"),
        ("no id was published yet", 0, true, &json!({}), "same"),
    ] {
        let found = concluded((epoch, ""), ("", is_own), annotations);
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn a_list_of_addresses_that_cannot_be_read_leaves_the_former_one() {
    let candidate = Candidate {
        server: server("https://h", "s"),
        is_own: true,
    };
    let published = [server("https://b", "two")];
    let before = Remembered::default();
    let list = json!({FLEET_SERVERS: fleet_servers::write(&published), FLEET_ID: "f"});
    let learnt = before.learn(&candidate, &said(&list));
    assert_eq!(
        (&*learnt.fleet, &*learnt.store, learnt.epoch),
        ("f", "s", 0)
    );
    assert_eq!(learnt.servers, published);
    let garbled = said(&json!({FLEET_SERVERS: "x"}));
    assert!(garbled.problems[0].contains(FLEET_SERVERS), "{garbled:?}");
    let later = learnt.learn(&candidate, &garbled);
    assert_eq!(later, learnt);
    let emptied = later.learn(&candidate, &said(&json!({FLEET_SERVERS: "[]"})));
    assert!(emptied.servers.is_empty() && emptied.fleet == "f");
}

#[test]
fn a_store_of_the_same_fleet_takes_over_once_it_was_promoted() {
    for (epoch, fleet, expected) in [
        ("2", "f", true),
        ("1", "f", false),
        ("0", "f", false),
        ("2", "g", false),
    ] {
        let remembered = Remembered {
            epoch: 1,
            fleet: "f".to_owned(),
            ..Remembered::default()
        };
        let said = said(&json!({FLEET_EPOCH: epoch, FLEET_ID: fleet}));
        assert_eq!(takes_over(&remembered, &said), expected, "{epoch} {fleet}");
    }
    let unknown = Remembered::default();
    let said = said(&json!({FLEET_EPOCH: "2", FLEET_ID: "f"}));
    assert!(!takes_over(&unknown, &said), "of no known fleet");
}

#[test]
fn a_store_whose_name_no_address_has_is_that_of_the_most_preferred_one() {
    let both = candidates(
        "https://a",
        &[server("https://a", "one"), server("https://b", "two")],
        &[],
    );
    for (store, candidates, expected) in [
        ("", &both[..], "one"),
        ("two", &both[..], "two"),
        ("renamed", &both[..], "one"),
        ("two", &[], "two"),
    ] {
        let mut remembered = Remembered {
            store: store.to_owned(),
            ..Remembered::default()
        };
        remembered.name_store(candidates);
        assert_eq!(remembered.store, expected, "{store}");
    }
}

#[test]
fn nothing_is_recorded_for_a_store_that_was_never_promoted_at_one_address() {
    let known = Remembered {
        fleet: "f".to_owned(),
        ..Remembered::default()
    };
    assert!(!known.is_needed(&[]));
    assert!(known.is_needed(&[server("https://a", "")]));
    let promoted = Remembered { epoch: 1, ..known };
    assert!(promoted.is_needed(&[]));
}

#[test]
fn the_record_of_a_later_version_keeps_its_epoch_and_the_addresses_that_are_understood() {
    let later = json!({"server": "https://b", "store": "b", "weight": 1});
    let more = json!([later, {"url": "https://c"}, 7]);
    let b = || vec![server("https://b", "b")];
    for (servers, expected) in [(json!([later]), b()), (more, b()), (json!(null), vec![])] {
        let written = json!({"epoch": 3, "store": "b", "fleet": "f", "servers": servers});
        let read: Remembered = serde_json::from_value(written).unwrap();
        assert_eq!((read.epoch, read.servers), (3, expected), "{servers}");
    }
}
