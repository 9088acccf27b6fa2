use serde_json::{Value, json};

use super::*;
use crate::testing;

/// Returns a member that answers these paths, and nothing else.
fn member(answers: Vec<(&'static str, u16, Value)>) -> Discovery {
    Discovery::new(testing::api(move |head, _| {
        let mut answers = answers.iter();
        let answer = answers.find(|(path, ..)| *path == head.uri.path());
        let not_found = || (404, json!("404 page not found"));
        answer.map_or_else(not_found, |(_, code, body)| (*code, body.clone()))
    }))
}

fn core() -> Value {
    json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": ""}, "versions": [
        {"version": "v1", "freshness": "Current", "resources": []}]}]})
}

/// Returns a group `policy` in these versions, and one whose server is down.
fn groups(versions: &[&str]) -> Value {
    let budgets = json!([{"resource": "poddisruptionbudgets", "scope": "Namespaced", "verbs": ["get", "watch"],
        "responseKind": {"group": "policy", "version": "", "kind": "PodDisruptionBudget"}}]);
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| json!({"version": version, "freshness": "Current", "resources": budgets}))
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "items": [
        {"metadata": {"name": "policy"}, "versions": versions},
        {"metadata": {"name": "metrics.k8s.io"}, "versions": [{"version": "v1beta1", "freshness": "Stale", "resources": []}]}]})
}

fn group(name: &str) -> Value {
    let version = format!("{name}/v1");
    json!({"kind": "APIGroup", "name": name, "versions": [{"groupVersion": version, "version": "v1"}]})
}

fn resources(kind: &str) -> Value {
    let resource = json!({"name": "things", "kind": kind, "namespaced": true, "verbs": ["get"]});
    json!({"kind": "APIResourceList", "resources": [resource]})
}

#[tokio::test]
async fn a_kind_is_missing_only_when_its_own_group_says_so() {
    let down = json!({"kind": "Status", "code": 503});
    let of_group = |code, body| ("/apis/example.io", code, body);
    let of_version = |code, body| ("/apis/example.io/v1", code, body);
    let with = |it| vec![of_group(200, group("example.io")), it];
    let others = with(of_version(200, resources("Other")));
    let left_out = with(of_version(200, resources("PodDisruptionBudget")));
    let silent = with(of_version(503, down.clone()));
    let unknown = vec![of_group(503, down)];
    let name = "example.io";
    for (what, more, group_name, expected) in [
        ("the group is unknown", vec![], name, Ok(None)),
        ("the group has other kinds", others, name, Ok(None)),
        ("the whole list left it out", left_out, name, Ok(Some("v1"))),
        ("the group does not answer", silent, name, Err(())),
        ("nobody knows of the group", unknown, name, Err(())),
        ("another version of it", vec![], "policy", Ok(Some("v1"))),
    ] {
        let mut answers = vec![("/api", 200, core()), ("/apis", 200, groups(&["v1"]))];
        answers.extend(more);
        let discovery = member(answers);
        let kind = GroupVersionKind::gvk(group_name, "v1beta1", "PodDisruptionBudget");
        let found = discovery.version_of(&kind).await;
        let completeness = discovery.catalog().completeness();
        assert_eq!(completeness, Completeness::Partial, "{what}");
        let found = found.map_err(|_| ());
        let expected = expected.map(|it: Option<&str>| it.map(str::to_owned));
        assert_eq!(found, expected, "{what}");
    }
}
