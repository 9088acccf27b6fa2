use super::*;
use crate::notices::due::Notice;

/// Returns an event of a failover of cluster m1 with three workloads.
pub fn began() -> Event {
    reported(Phase::Began, 1, &json!({ "affected": 3 }))
}

/// Returns an event in place of 12 others.
pub fn left_out() -> Event {
    let mut record = Failover::new("a-1", FailoverSpec::default());
    record.spec.cluster.push('a');
    let record = Arc::new(record);
    let (records, id) = (vec![record; 12], "left-out-1".to_owned());
    super::left_out(&settings(), &records, id, Timestamp::UNIX_EPOCH)
}

fn settings() -> Settings {
    Settings {
        notice_source: "fleet".to_owned(),
        notice_page_url: "https://page/".to_owned(),
        ..Settings::default()
    }
}

fn reported(phase: Phase, number: u32, workloads: &Value) -> Event {
    let time = |second: i64| Timestamp::from_second(second).unwrap();
    let record: Failover = serde_json::from_value(json!({
        "metadata": { "name": "m1-x", "uid": "uid-1" },
        "spec": { "cluster": "m1", "subject": "Cluster", "startTime": time(60).to_string() },
        "status": {
            "state": "Active",
            "cause": { "type": "ClusterUnreachable", "message": "no lease." },
            "times": {},
            "workloads": workloads,
            "targets": [
                { "cluster": "m2", "workloads": 1 },
                { "cluster": "m3", "workloads": 2 },
            ],
            "strandedReasons": [{ "reason": "NowhereToGo", "workloads": 2 }],
            "moves": vec![json!({
                "workload": { "kind": "Deployment", "namespace": "shop", "name": "web" },
                "to": "m2", "time": time(70).to_string(),
            }); 20],
        },
    }))
    .unwrap();
    let at = match phase {
        Phase::Began => Some(time(60)),
        Phase::Ended => Some(time(60 + 754)),
        _ => None,
    };
    let notice = Notice {
        phase,
        number,
        time: at,
    };
    event(&settings(), &record, &notice, time(999))
}

#[test]
fn each_notice_is_a_sentence_for_an_operator() {
    let counts = json!({ "affected": 3, "moved": 3, "healthy": 1 });
    for (phase, number, workloads, sentence) in [
        (
            Phase::Began,
            1,
            json!({ "affected": 3 }),
            "Cluster m1 is silent (no lease) since 1970-01-01T00:01:00Z. The cluster \
             has 3 workloads.",
        ),
        (
            Phase::Began,
            2,
            json!({ "affected": 1 }),
            "Cluster m1 is silent again (no lease) since 1970-01-01T00:01:00Z. The \
             cluster has 1 workload.",
        ),
        (
            Phase::Held,
            1,
            json!({ "affected": 3, "heldNow": 1, "strandedNow": 2 }),
            "3 workloads have to leave cluster m1 and cannot yet: 1 held, because too many clusters \
             have failed or movement is paused; 2 cannot leave (NowhereToGo).",
        ),
        (
            Phase::Resumed,
            1,
            json!({ "affected": 3, "moved": 1 }),
            "No workload is kept in cluster m1 any more; 1 workload of 3 has moved.",
        ),
        (
            Phase::Healed,
            1,
            counts.clone(),
            "All that moved from cluster m1 is healthy elsewhere: 3 workloads (2 m3, 1 m2).",
        ),
        (
            Phase::Recovered,
            1,
            counts.clone(),
            "Cluster m1 is well again or left the fleet; 3 workloads have moved, healthy \
             elsewhere: 1.",
        ),
        (
            Phase::Ended,
            1,
            json!({ "affected": 3, "moved": 3, "stranded": 1 }),
            "The failover of cluster m1 ended after 12 min 34 s: 3 workloads moved (2 m3, 1 m2); \
             1 workload had nowhere to go for a time.",
        ),
    ] {
        let event = reported(phase, number, &workloads);
        assert_eq!(event.text("sentence"), sentence);
        assert_eq!(event.id, format!("uid-1-{}-{number}", phase.name()));
    }
}

#[test]
fn an_event_counts_all_and_names_the_first() {
    let event = began();
    assert_eq!(event.data["moved"].as_array().unwrap().len(), MOST_NAMES);
    assert_eq!(event.data["moved"][0]["name"], "web");
    assert_eq!(event.data["link"], "https://page/#failover/m1-x");
    assert_eq!(event.data["command"], "kubectl muster history m1-x");
    let event = left_out();
    assert_eq!(event.data["clusters"].as_array().unwrap().len(), MOST_NAMES);
    assert_eq!(event.data["number"], 12);
    let names = "a, a, a, a, a, a, a, a, a, a and 2 more";
    let end = format!("than this receiver takes: {names}.");
    let begin = "Notices of 12 failovers were left out";
    let sentence = event.text("sentence");
    assert!(
        sentence.starts_with(begin) && sentence.ends_with(&end),
        "{sentence}"
    );
}

#[test]
fn a_cause_is_reported_in_the_words_of_its_kind() {
    let of = |kind: &str, command: Option<&str>, subject: &str| {
        let cause: Cause = serde_json::from_value(json!({
            "type": kind, "message": "x".repeat(400), "command": command,
        }))
        .unwrap();
        let subject: Subject = serde_json::from_value(json!(subject)).unwrap();
        super::cause(&subject, "m1", &cause, "")
    };
    for (kind, command, subject, begin) in [
        (
            "Drain",
            Some("kubectl muster drain m1"),
            "Cluster",
            "Cluster m1 is drained by `kubectl",
        ),
        ("Drain", None, "Cluster", "Cluster m1 is drained (x"),
        (
            "ClusterNotReady",
            None,
            "Cluster",
            "Cluster m1 is not ready (x",
        ),
        (
            "Taint",
            None,
            "Cluster",
            "Workloads have to leave cluster m1 because of a taint (x",
        ),
        (
            "ApplicationFailure",
            None,
            "Applications",
            "Applications in cluster m1 are unhealthy (x",
        ),
    ] {
        let found = of(kind, command, subject);
        assert!(found.starts_with(begin) && found.len() < 400, "{found}");
    }
}

#[test]
fn the_end_of_a_cause_is_reported_in_the_words_of_its_kind() {
    for (kind, expected) in [
        (
            "ClusterUnreachable",
            "Cluster m1 is well again or left the fleet",
        ),
        (
            "ClusterNotReady",
            "Cluster m1 is well again or left the fleet",
        ),
        (
            "Drain",
            "Cluster m1 is not drained any more or left the fleet",
        ),
        ("Taint", "Cluster m1 has lost its taint or left the fleet"),
        (
            "TaintPolicy",
            "Cluster m1 has lost its taint or left the fleet",
        ),
    ] {
        let kind: CauseType = serde_json::from_value(json!(kind)).unwrap();
        assert_eq!(over("m1", &kind), expected);
    }
}
