use http::Method;
use muster_shared::watch::Selection;
use serde_json::Value;

use super::super::testing::Server;
use super::*;
use crate::fleet::testing::Bench;

fn record(name: &str, held: u32) -> Value {
    json!({
        "metadata": { "name": name, "uid": format!("uid-{name}") },
        "spec": { "cluster": name, "subject": "Cluster", "startTime": "2024-01-01T00:00:00Z" },
        "status": {
            "state": "Active",
            "cause": { "type": "ClusterUnreachable" },
            "times": { "tainted": "2024-01-01T00:00:05Z" },
            "workloads": { "affected": 3, "held": held, "heldNow": held },
        },
    })
}

/// Makes an outlet whose cache has the records of an API.
async fn outlet(bench: &mut Bench, server: &Server, more: &Value) -> Arc<Outlet> {
    let api = Api::all(bench.fleet.watch_client.clone());
    let records = Informer::new(api, Selection::everything());
    let watch = records.clone().run(bench.fleet.shutdown.clone());
    bench.tasks.spawn("records", watch);
    records.synced().await;
    Arc::new(Outlet::new(&bench.fleet, &records, server.receiver(more)))
}

fn reported(bench: &Bench, name: &str) -> Value {
    let object = bench.api.object("failovers", "", name).unwrap();
    let text = &object["metadata"]["annotations"]["notices.failover.muster.io/a"];
    text.as_str()
        .map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
}

#[tokio::test]
async fn what_was_reported_is_in_the_record_and_is_not_reported_again_by_the_next_process() {
    let server = Server::start().await;
    let mut bench = Bench::new([("failovers", record("m1", 2))]);
    let first = outlet(&mut bench, &server, &json!({})).await;
    assert_eq!(first.reconcile("m1").await.unwrap(), Next::Done);
    assert_eq!(server.ids(), ["uid-m1-began-1", "uid-m1-held-1"]);
    assert_eq!(first.reconcile("m1").await.unwrap(), Next::Done);
    let kept = reported(&bench, "m1");
    assert_eq!((&kept["began"], &kept["held"]), (&json!(1), &json!(1)));
    let next = outlet(&mut bench, &server, &json!({})).await;
    assert_eq!(next.reconcile("m1").await.unwrap(), Next::Done);
    assert_eq!(server.ids(), [""; 0], "neither process repeats it");
}

#[tokio::test]
async fn what_could_not_be_noted_is_noted_later_and_not_sent_twice_by_one_process() {
    let server = Server::start().await;
    let mut bench = Bench::new([("failovers", record("m1", 0))]);
    let outlet = outlet(&mut bench, &server, &json!({})).await;
    bench.api.refuse(Method::PATCH, "/failovers/m1", 503, "");
    outlet.reconcile("m1").await.unwrap_err();
    assert_eq!(reported(&bench, "m1"), Value::Null);
    bench.api.answer_truly();
    outlet.reconcile("m1").await.unwrap();
    assert_eq!(server.ids(), ["uid-m1-began-1"]);
    assert_eq!(reported(&bench, "m1")["began"], 1);
}

#[tokio::test]
async fn what_is_not_taken_waits_with_its_time_and_its_identity() {
    let server = Server::start().await;
    let mut bench = Bench::new([("failovers", record("m1", 0))]);
    let outlet = outlet(&mut bench, &server, &json!({})).await;
    server.next(500, "retry-after", "600");
    let Next::After(pause) = outlet.reconcile("m1").await.unwrap() else {
        panic!("it is tried again")
    };
    assert!(pause.as_secs() >= 599, "{pause:?}");
    assert_eq!(server.ids(), ["uid-m1-began-1"]);
    let again = outlet.reconcile("m1").await.unwrap();
    assert!(matches!(again, Next::After(_)), "{again:?}");
    assert_eq!(server.ids(), [""; 0], "nothing is sent before that");
    assert_eq!(reported(&bench, "m1"), Value::Null);
    outlet.pacing.lock().taken();
    assert_eq!(outlet.reconcile("m1").await.unwrap(), Next::Done);
    assert_eq!(server.ids(), ["uid-m1-began-1"]);
}

#[tokio::test]
async fn a_receiver_that_is_gone_is_sent_nothing_more() {
    let server = Server::start().await;
    let records = ["m1", "m2"].map(|it| ("failovers", record(it, 0)));
    let mut bench = Bench::new(records);
    let outlet = outlet(&mut bench, &server, &json!({})).await;
    server.next(410, "x", "");
    for name in ["m1", "m2", "m1"] {
        assert_eq!(outlet.reconcile(name).await.unwrap(), Next::Done);
    }
    assert_eq!(server.ids(), ["uid-m1-began-1"]);
}

#[tokio::test]
async fn phases_and_severities_that_a_receiver_does_not_want_are_not_sent() {
    let server = Server::start().await;
    let records = [("m1", 0), ("m2", 1)].map(|(it, held)| ("failovers", record(it, held)));
    let mut bench = Bench::new(records);
    let wishes = json!({ "phases": ["held"], "minimumSeverity": "critical" });
    let outlet = outlet(&mut bench, &server, &wishes).await;
    for name in ["m1", "m2"] {
        assert_eq!(outlet.reconcile(name).await.unwrap(), Next::Done);
    }
    assert_eq!(server.ids(), ["uid-m2-held-1"]);
    assert_eq!(
        reported(&bench, "m1"),
        Value::Null,
        "it may become critical"
    );
}

/// Returns a receiver that takes no more, after three failovers have begun and are held, and was
/// notified of the first.
async fn crowded() -> (Server, Bench, Arc<Outlet>) {
    let server = Server::start().await;
    let names = ["m1", "m2", "m3"];
    let records = names.map(|it| ("failovers", record(it, 1)));
    let mut bench = Bench::new(records);
    let outlet = outlet(&mut bench, &server, &json!({ "perMinute": 2 })).await;
    for name in names {
        assert_eq!(outlet.reconcile(name).await.unwrap(), Next::Done);
    }
    assert_eq!(server.ids(), ["uid-m1-began-1", "uid-m1-held-1"]);
    (server, bench, outlet)
}

#[tokio::test]
async fn many_failovers_at_a_time_are_reported_in_one_notice() {
    let (server, bench, outlet) = crowded().await;
    server.next(500, "x", "");
    let failed = outlet.reconcile(LEFT_OUT).await.unwrap();
    assert!(matches!(failed, Next::After(_)), "{failed:?}");
    assert_eq!(
        reported(&bench, "m2"),
        Value::Null,
        "nobody was notified of it"
    );
    let before = server.ids();
    outlet.pacing.lock().taken();
    assert_eq!(outlet.reconcile(LEFT_OUT).await.unwrap(), Next::Done);
    let [(headers, body)] = &server.take()[..] else {
        panic!("one request")
    };
    let event: Value = serde_json::from_slice(body).unwrap();
    assert_eq!(event["type"], "com.muster.failover.left-out");
    assert_eq!(event["data"]["clusters"], json!(["m2", "m3"]));
    assert_eq!(headers["webhook-id"], before[0], "the same notice");
    for name in ["m2", "m3"] {
        assert_eq!(reported(&bench, name)["held"], 1);
        assert_eq!(outlet.reconcile(name).await.unwrap(), Next::Done);
    }
    outlet.reconcile(LEFT_OUT).await.unwrap();
    assert_eq!(server.ids(), [""; 0], "it is reported once");
}

#[tokio::test]
async fn what_was_reported_in_one_notice_is_not_reported_again_where_one_record_cannot_be_written()
{
    let (server, bench, outlet) = crowded().await;
    // The API has too much to do when what was sent of m2 is to be noted.
    bench.api.refuse(Method::PATCH, "/failovers/m2", 503, "");
    _ = outlet.reconcile(LEFT_OUT).await;
    assert_eq!(server.take().len(), 1, "m2 and m3 are reported in one");
    bench.api.answer_truly();
    _ = outlet.reconcile(LEFT_OUT).await;
    outlet.pacing.lock().taken();
    *outlet.pacing.lock() = Pacing::default();
    for name in ["m2", "m3"] {
        outlet.reconcile(name).await.unwrap();
        assert_eq!(server.ids(), [""; 0], "{name}: it is reported once");
        assert_eq!(reported(&bench, name)["held"], 1, "{name}");
    }
}
