use muster_shared::api::override_policy::OverrideSpec;

use super::*;

fn cluster(name: &str, region: &str) -> Cluster {
    let mut cluster = Cluster::new(
        name,
        serde_json::from_value(json!({ "region": region })).unwrap(),
    );
    cluster.metadata.name = Some(name.to_owned());
    cluster
}

fn web() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "web", "namespace": "shop" },
        "spec": { "replicas": 1, "template": { "spec": { "containers": [{ "name": "a", "image": "web:v1" }] } } },
    })
}

fn selected<'a>(name: &str, namespace: Option<&str>, spec: &'a OverrideSpec) -> Selected<'a> {
    Selected {
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
        spec,
    }
}

fn spec(text: Value) -> OverrideSpec {
    serde_json::from_value(text).unwrap()
}

#[test]
fn each_cluster_gets_the_rules_that_name_it_and_the_last_policy_has_the_last_word() {
    let registry =
        |value: &str| json!({ "component": "Registry", "operator": "replace", "value": value });
    let regions = spec(json!({ "overrideRules": [
        {
            "targetCluster": { "fieldSelector": { "matchExpressions": [
                { "key": "region", "operator": "In", "values": ["eu"] },
            ] } },
            "overriders": { "imageOverrider": [registry("eu.io")] },
        },
        { "overriders": { "labelsOverrider": [{ "operator": "add", "value": { "all": "yes" } }] } },
    ] }));
    // The deprecated pair of fields is one rule.
    let single = spec(json!({
        "targetCluster": { "clusterNames": ["m2"] },
        "overriders": {
            "plaintext": [{ "path": "/spec/replicas", "operator": "replace", "value": 3 }],
            "imageOverrider": [registry("near.io")],
        },
    }));
    let policies = [
        selected("regions", None, &regions),
        selected("single", Some("shop"), &single),
    ];
    for (name, region, image, replicas, keys) in [
        (
            "m1",
            "eu",
            "eu.io/web:v1",
            1,
            vec![annotation::APPLIED_CLUSTER_OVERRIDES],
        ),
        (
            "m2",
            "us",
            "near.io/web:v1",
            3,
            vec![
                annotation::APPLIED_CLUSTER_OVERRIDES,
                annotation::APPLIED_OVERRIDES,
            ],
        ),
    ] {
        let mut manifest = web();
        let applied = apply(&mut manifest, &policies, &cluster(name, region)).unwrap();
        let pod = &manifest["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["image"], image);
        assert_eq!(manifest["spec"]["replicas"], replicas);
        assert_eq!(manifest["metadata"]["labels"]["all"], "yes");
        let found: Vec<_> = applied
            .annotations()
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        assert_eq!(found, keys);
    }
    let mut manifest = web();
    let applied = apply(&mut manifest, &policies, &cluster("m2", "us")).unwrap();
    let (_, text) = applied.annotations().remove(1);
    let read: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        read,
        json!([{ "policyName": "single", "overriders": {
            "plaintext": [{ "path": "/spec/replicas", "operator": "replace", "value": 3 }],
            "imageOverrider": [registry("near.io")],
        } }])
    );
}

#[test]
fn a_rule_that_changes_nothing_is_reported_where_it_applies() {
    for (rules, expected) in [
        (json!([]), Some(1)),
        (json!([{ "overriders": {} }]), Some(1)),
        (json!([{ "overriders": {} }, {}]), Some(2)),
        (
            json!([{ "targetCluster": { "clusterNames": ["m2"] } }]),
            None,
        ),
    ] {
        let spec = spec(json!({ "overrideRules": rules }));
        let policies = [selected("p", Some("shop"), &spec)];
        let mut manifest = web();
        let applied = apply(&mut manifest, &policies, &cluster("m1", "eu")).unwrap();
        let annotations = applied.annotations().into_iter();
        let reported: Vec<_> = annotations
            .map(|(_, text)| serde_json::from_str::<Value>(&text).unwrap())
            .collect();
        let item = json!({ "policyName": "p", "overriders": {} });
        let expected: Vec<_> = expected
            .map(|of| json!(vec![item; of]))
            .into_iter()
            .collect();
        assert_eq!(reported, expected, "{rules}");
        assert_eq!(manifest, web());
    }
}

#[test]
fn what_cannot_be_changed_is_reported_with_policy_cluster_and_field() {
    for (overriders, reason) in [
        (
            json!({ "plaintext": [{ "path": "/metadata/name", "operator": "replace", "value": "x" }] }),
            "cannot be overridden",
        ),
        (
            json!({ "plaintext": [{ "path": "/x/y", "operator": "remove" }] }),
            "plaintext: ",
        ),
        (
            json!({ "imageOverrider": [{ "component": "Tag", "operator": "move" }] }),
            "operator \"move\"",
        ),
        (
            json!({ "fieldOverrider": [{ "fieldPath": "/data/a" }] }),
            "fieldOverrider: ",
        ),
    ] {
        let spec = spec(json!({ "overrideRules": [{ "overriders": overriders }] }));
        let policy = selected("p", Some("shop"), &spec);
        let text = apply(&mut web(), &[policy], &cluster("m1", "eu")).unwrap_err();
        assert!(text.contains(reason), "{text}");
        assert!(
            text.starts_with("OverridePolicy shop/p cannot be applied for cluster m1: "),
            "{text}"
        );
    }
}

fn refused(rules: &Value) -> String {
    let spec = spec(json!({ "overrideRules": rules }));
    let policies = [selected("p", None, &spec)];
    let mut manifest = web();
    let error = apply(&mut manifest, &policies, &cluster("m1", "eu")).unwrap_err();
    let size = muster_shared::work_status::length(&manifest);
    assert!(size < 4_000_000, "{size} bytes");
    error
}

#[test]
fn no_rule_makes_a_manifest_too_deep_for_the_stack() {
    let below = |at: usize| "/a".repeat(at);
    let chain = move |steps: usize| -> Vec<Value> {
        (1..steps)
            .map(|at| json!({ "path": below(at), "operator": "add", "value": {} }))
            .collect()
    };
    let deep = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({ "a": inner }));
    let add = move |at: usize, value: Value| json!({ "path": below(at), "operator": "add", "value": value });
    let thread = std::thread::Builder::new().stack_size(2 * 1024 * 1024);
    let attempts = thread.spawn(move || {
        let plaintext = |list: Vec<Value>| json!({ "overriders": { "plaintext": list } });
        let long = refused(&json!([plaintext(chain(5000))]));
        assert!(long.contains("levels that fit into a work"), "{long}");
        let mut steps = chain(100);
        steps.push(add(100, deep(110)));
        let levels = refused(&json!([plaintext(steps)]));
        assert!(levels.contains("levels deep"), "{levels}");
        let by_rules = chain(100).into_iter().chain([add(100, json!({}))]);
        let rules: Vec<_> = by_rules.map(|step| plaintext(vec![step])).collect();
        let levels = refused(&json!(rules));
        assert!(levels.contains("101 levels deep"), "{levels}");
    });
    attempts.unwrap().join().unwrap();
}

#[test]
fn no_rule_makes_a_manifest_too_large() {
    let long = "x".repeat(800_000);
    let label = |key: &str| {
        json!({ "overriders": { "annotationsOverrider": [
        { "operator": "add", "value": { key: long } },
    ] } })
    };
    let error = refused(&json!([label("a"), label("b")]));
    assert!(error.contains("bytes large"), "{error}");
}

#[test]
fn no_policies_go_through_a_large_manifest_without_end() {
    let step = json!({ "path": "/data/a", "operator": "replace", "value": "b" });
    let image = json!({ "component": "Tag", "operator": "replace", "value": "v2" });
    let args = json!({ "containerName": "app", "operator": "remove", "value": ["--a"] });
    let overriders = |field: &str, entry: &Value, count: usize| {
        let entries = vec![entry; count];
        spec(json!({ "overrideRules": [{ "overriders": { field: entries } }] }))
    };
    for (field, entry) in [
        ("plaintext", step),
        ("imageOverrider", image),
        ("argsOverrider", args),
    ] {
        for (count, is_refused) in [(450, false), (550, true)] {
            let half = overriders(field, &entry, count);
            let policies = [
                selected("a", None, &half),
                selected("b", Some("shop"), &half),
            ];
            let mut manifest = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c" },
                "data": { "a": "", "long": "x".repeat(1_000_000) },
            });
            let applied = apply(&mut manifest, &policies, &cluster("m1", "eu"));
            let error = applied.err();
            let is_reported = |text: &String| text.contains("shop/b") && text.contains("too often");
            assert_eq!(
                error.as_ref().map(is_reported),
                is_refused.then_some(true),
                "{field}"
            );
        }
    }
}

#[test]
fn long_changes_are_not_reported_in_the_annotations() {
    let long = |bytes: usize| {
        spec(json!({ "overrideRules": [
        { "overriders": { "annotationsOverrider": [{ "operator": "add", "value": { "a": "x".repeat(bytes) } }] } },
        { "overriders": { "labelsOverrider": [{ "operator": "add", "value": { "a": "b" } }] } },
    ] }))
    };
    for (bytes, is_reported) in [(7_000, true), (9_000, false)] {
        let spec = long(bytes);
        let policies = [
            selected("wide", None, &spec),
            selected("near", Some("shop"), &spec),
        ];
        let mut manifest = web();
        let applied = apply(&mut manifest, &policies, &cluster("m1", "eu")).unwrap();
        let annotations = applied.annotations();
        assert_eq!(annotations.len(), 2);
        for ((_, text), name) in annotations.iter().zip(["wide", "near"]) {
            let read: Value = serde_json::from_str(text).unwrap();
            assert_eq!(read[0]["policyName"], name);
            assert_eq!(read[0].get("overriders").is_some(), is_reported, "{bytes}");
            assert_eq!(
                read.as_array().unwrap().len(),
                if is_reported { 2 } else { 1 }
            );
        }
    }
}

#[test]
fn no_error_shows_a_value_of_the_resource() {
    for overriders in [
        json!({ "imageOverrider": [{ "component": "Tag", "operator": "replace", "value": "v", "predicate": { "path": "/data/password" } }] }),
        json!({ "fieldOverrider": [{ "fieldPath": "/data/password", "json": [{ "subPath": "/a", "operator": "remove" }] }] }),
        json!({ "fieldOverrider": [{ "fieldPath": "/data/password", "yaml": [{ "subPath": "/a", "operator": "remove" }] }] }),
        json!({ "plaintext": [{ "path": "/data/password/a", "operator": "remove" }] }),
        json!({ "plaintext": [{ "path": "/data/password/a", "operator": "add", "value": "SECRET" }] }),
    ] {
        let spec = spec(json!({ "overrideRules": [{ "overriders": overriders }] }));
        for text in ["SECRET", "{SECRET", "a: [SECRET", "- SECRET: {", "\"SECRET"] {
            let mut secret = json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" },
                "data": { "password": text },
            });
            let policies = [selected("p", None, &spec)];
            let error = apply(&mut secret, &policies, &cluster("m1", "eu")).unwrap_err();
            assert!(!error.contains("SECRET"), "{error}");
        }
    }
}
