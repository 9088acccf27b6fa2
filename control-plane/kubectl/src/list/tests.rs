use std::sync::Arc;

use muster_shared::api::cluster::Cluster;
use serde_json::{Value, json};

use super::*;
use crate::fixtures;

/// Returns an API that gives these answers one after the other, and what was asked of it.
fn api(answers: Vec<(u16, Value)>) -> (Api<Cluster>, Arc<parking_lot::Mutex<Vec<String>>>) {
    let asked: Arc<parking_lot::Mutex<Vec<String>>> = Arc::default();
    let seen = asked.clone();
    let mut answers = answers.into_iter();
    let client = fixtures::api(move |request| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        seen.lock().push(query);
        answers.next().unwrap()
    });
    (Api::all(client), asked)
}

fn page(names: &[&str], more: &str) -> (u16, Value) {
    let items: Vec<Value> = names
        .iter()
        .map(|name| json!({"metadata": {"name": name}, "spec": {"syncMode": "Pull"}}))
        .collect();
    let list = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "ClusterList",
        "metadata": {"continue": more}, "items": items,
    });
    (200, list)
}

fn refusal(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure",
        "code": code, "reason": reason, "message": reason,
    });
    (code, status)
}

fn names(found: &[Cluster]) -> Vec<&str> {
    found
        .iter()
        .filter_map(|it| it.metadata.name.as_deref())
        .collect()
}

#[tokio::test]
async fn every_page_is_read() {
    let (api, asked) = api(vec![page(&["a", "b"], "next"), page(&["c"], "")]);
    assert_eq!(names(&all(api).await.unwrap()), ["a", "b", "c"]);
    let asked = asked.lock();
    assert!(asked[1].contains("continue=next"), "{asked:?}");
}

#[tokio::test]
async fn a_list_that_the_server_has_forgotten_is_read_anew_and_no_object_comes_twice() {
    let (api, asked) = api(vec![
        page(&["a", "b"], "next"),
        refusal(410, "Expired"),
        page(&["a", "b", "c"], ""),
    ]);
    assert_eq!(names(&all(api).await.unwrap()), ["a", "b", "c"]);
    assert!(!asked.lock()[2].contains("limit="));
}

#[tokio::test]
async fn a_refused_list_is_reported_by_its_name() {
    let (api, _) = api(vec![refusal(403, "Forbidden")]);
    let error = all(api).await.unwrap_err();
    assert!(error.starts_with("list clusters: "), "{error}");
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_reported_and_the_others_are_there() {
    let (code, mut list) = page(&["a", "b"], "");
    list["items"][0]["spec"]["taints"] = json!([
        {"key": "a", "effect": "NoSchedule", "timeAdded": "9999-12-31T23:59:59Z"},
    ]);
    let (api, _) = api(vec![(code, list)]);
    let (found, unreadable) = readable(api, &(), Part::Whole).await.unwrap();
    assert_eq!(names(&found), ["b"]);
    let [reported] = &unreadable[..] else {
        panic!("{unreadable:?}");
    };
    let begins = "Cluster a cannot be read and is left out here: ";
    assert!(reported.starts_with(begins), "{reported}");
}
