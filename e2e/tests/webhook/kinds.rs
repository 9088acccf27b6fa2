//! Every kind of the chart's webhook configurations goes the whole way: the fleet API asks, the
//! control plane answers, and the answer counts. Configurations that ignore failures would hide a
//! wrong path.

use std::collections::BTreeSet;

use muster_e2e::harness::apply::objects;
use serde_json::{Value, json};

use super::{CLUSTERS, CONFIGURATIONS, POLICIES, Stage, TAINT_POLICIES, graceful, taint_policy};

/// A kind that admission knows.
struct Admitted {
    path: &'static str,
    sound: Value,
    /// A field that admission fills in, as a JSON pointer, and its value.
    filled: Option<(&'static str, Value)>,
    /// Changes to the spec, or to an object that has none, that make it unsound, and a part of the
    /// refusal.
    unsound: (Value, &'static str),
}

impl Admitted {
    fn resource(&self) -> &'static str {
        self.path.rsplit('/').next().unwrap()
    }
}

fn object(api_version: &str, kind: &str, spec: &Value) -> Value {
    json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": "x" }, "spec": spec })
}

fn binding(kind: &str) -> Value {
    let resource = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
    object(
        "work.karmada.io/v1alpha2",
        kind,
        &json!({ "resource": resource }),
    )
}

fn tasks(clusters: &[&str]) -> Value {
    let task = |cluster| json!({ "fromCluster": cluster, "reason": "Test", "producer": "test" });
    let tasks: Vec<Value> = clusters.iter().map(task).collect();
    json!({ "gracefulEvictionTasks": tasks })
}

const TWICE: &str = r#"spec.gracefulEvictionTasks[1].fromCluster: Duplicate value: "m1""#;
const BINDINGS: &str = "/apis/work.karmada.io/v1alpha2/namespaces/default/resourcebindings";

fn policies() -> [Admitted; 5] {
    const GROUP: &str = "policy.karmada.io/v1alpha1";
    let lt = json!({ "placement": { "clusterTolerations": [{ "key": "a", "operator": "Lt" }] } });
    let mut wide = graceful("Gracefully");
    wide["kind"] = json!("ClusterPropagationPolicy");
    let selectors = json!([{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" }]);
    let overrides = json!({ "resourceSelectors": selectors, "overrideRules": [] });
    let rule = json!({ "overriders": {} });
    let plaintext =
        json!({ "plaintext": [{ "path": "/spec/replicas", "operator": "add", "value": 1 }] });
    let both = json!({ "overrideRules": [rule], "overriders": plaintext });
    let excluded = "spec.overrideRules: Forbidden";
    [
        Admitted {
            path: POLICIES,
            sound: graceful("Gracefully"),
            filled: Some(("/spec/failover/application/gracePeriodSeconds", json!(600))),
            unsound: (lt.clone(), "clusterTolerations[0].operator"),
        },
        Admitted {
            path: "/apis/policy.karmada.io/v1alpha1/clusterpropagationpolicies",
            sound: wide,
            filled: Some(("/spec/failover/application/gracePeriodSeconds", json!(600))),
            unsound: (lt, "clusterTolerations[0].operator"),
        },
        Admitted {
            path: "/apis/policy.karmada.io/v1alpha1/namespaces/default/overridepolicies",
            sound: object(GROUP, "OverridePolicy", &overrides),
            filled: Some(("/spec/resourceSelectors/0/namespace", json!("default"))),
            unsound: (both.clone(), excluded),
        },
        Admitted {
            path: "/apis/policy.karmada.io/v1alpha1/clusteroverridepolicies",
            sound: object(GROUP, "ClusterOverridePolicy", &overrides),
            filled: None,
            unsound: (both, excluded),
        },
        Admitted {
            path: TAINT_POLICIES,
            sound: taint_policy("NoSchedule"),
            filled: None,
            unsound: (
                taint_policy("NoExecute")["spec"].clone(),
                "spec.taintsToAdd[0]: Forbidden",
            ),
        },
    ]
}

fn others() -> [Admitted; 5] {
    let grade = json!({ "grade": 1, "ranges": [{ "name": "cpu", "min": "0", "max": "2" }] });
    let script = |text: &str| json!({ "healthInterpretation": { "luaScript": text } });
    let customization = json!({
        "target": { "apiVersion": "example.com/v1", "kind": "Widget" },
        "customizations": script("function InterpretHealth(o) return true end"),
    });
    let hook = json!({
        "name": "hook.example.com",
        "clientConfig": { "url": "https://hook.example.com/p" },
        "rules": [{
            "operations": ["InterpretHealth"], "apiGroups": ["example.com"],
            "apiVersions": ["v1"], "kinds": ["Widget"],
        }],
        "interpreterContextVersions": ["v9"],
    });
    [
        Admitted {
            path: "/apis/config.karmada.io/v1alpha1/resourceinterpreterwebhookconfigurations",
            sound: json!({
                "apiVersion": "config.karmada.io/v1alpha1",
                "kind": "ResourceInterpreterWebhookConfiguration",
                "metadata": { "name": "x" }, "webhooks": [],
            }),
            filled: None,
            unsound: (
                json!({ "webhooks": [hook] }),
                "webhooks[0].interpreterContextVersions",
            ),
        },
        Admitted {
            path: CLUSTERS,
            sound: super::cluster("x"),
            filled: Some(("/spec/resourceModels/8/grade", json!(8))),
            unsound: (
                json!({ "resourceModels": [grade, grade] }),
                "grade 1 is there twice",
            ),
        },
        Admitted {
            path: BINDINGS,
            sound: binding("ResourceBinding"),
            filled: Some((
                "/metadata/labels/resourcebinding.karmada.io~1permanent-id",
                Value::Null,
            )),
            unsound: (tasks(&["m1", "m1"]), TWICE),
        },
        Admitted {
            path: "/apis/work.karmada.io/v1alpha2/clusterresourcebindings",
            sound: binding("ClusterResourceBinding"),
            filled: Some((
                "/metadata/labels/clusterresourcebinding.karmada.io~1permanent-id",
                Value::Null,
            )),
            unsound: (tasks(&["m1", "m1"]), TWICE),
        },
        Admitted {
            path: "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations",
            sound: object(
                "config.karmada.io/v1alpha1",
                "ResourceInterpreterCustomization",
                &customization,
            ),
            filled: None,
            unsound: (
                json!({ "customizations": script("?") }),
                "customizations.healthInterpretation.luaScript",
            ),
        },
    ]
}

/// Resources that the chart's configurations of a kind name.
fn configured(kind: &str) -> BTreeSet<String> {
    let configurations = objects(CONFIGURATIONS).unwrap();
    let of_kind = configurations
        .iter()
        .filter(|it| it.types.as_ref().is_some_and(|types| types.kind == kind));
    let rules = of_kind
        .flat_map(|it| it.data["webhooks"].as_array().unwrap())
        .flat_map(|webhook| webhook["rules"].as_array().unwrap());
    rules
        .flat_map(|rule| rule["resources"].as_array().unwrap())
        .map(|resource| resource.as_str().unwrap().to_owned())
        .collect()
}

fn names<'a>(all: impl Iterator<Item = &'a Admitted>) -> BTreeSet<String> {
    all.map(|it| it.resource().to_owned()).collect()
}

#[tokio::test]
async fn every_kind_is_filled_in_and_refused_through_the_fleet_api() {
    let all: Vec<Admitted> = policies().into_iter().chain(others()).collect();
    let filled = all.iter().filter(|it| it.filled.is_some());
    assert_eq!(names(filled), configured("MutatingWebhookConfiguration"));
    assert_eq!(
        names(all.iter()),
        configured("ValidatingWebhookConfiguration")
    );

    let stage = Stage::set("webhook-kinds").await;
    let _control_plane = stage.answering().await;
    for it in all {
        let path = format!("{}?dryRun=All", it.path);
        let made = stage.send("POST", &path, &it.sound).await;
        assert_ne!(made["kind"], "Status", "{made}");
        if let Some((field, value)) = &it.filled {
            let found = made.pointer(field).unwrap_or(&Value::Null);
            let is_there = found == value || value.is_null() && found.is_string();
            assert!(is_there, "{field} of {made}");
        }
        let mut unsound = it.sound.clone();
        let (changes, part) = it.unsound;
        let place = if it.sound["spec"].is_null() {
            &mut unsound
        } else {
            &mut unsound["spec"]
        };
        for (field, value) in changes.as_object().unwrap() {
            place[field] = value.clone();
        }
        let refused = stage.send("POST", &path, &unsound).await;
        let message = refused["message"].as_str().unwrap_or_default();
        assert!(
            message.starts_with("admission webhook ") && message.contains(part),
            "{}: {refused}",
            it.path
        );
    }
}
