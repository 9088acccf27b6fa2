//! Server-side apply by its documentation's rules.

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{ApplyError, apply, keep_times, track_update};
use crate::kinds::catalog;
use crate::schema::Schema;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).expect("a time")
}

fn builtin(api_version: &str, kind: &str) -> Schema {
    Schema::builtin(catalog::of_object(api_version, kind).expect("a built-in kind"))
}

/// An object that several managers write to, one step after the other.
struct Story {
    schema: Schema,
    api_version: &'static str,
    object: Option<Value>,
    clock: i64,
}

impl Story {
    fn new(schema: Schema, api_version: &'static str) -> Self {
        Self {
            schema,
            api_version,
            object: None,
            clock: 0,
        }
    }

    fn try_apply(&mut self, manager: &str, config: &Value, force: bool) -> Result<(), ApplyError> {
        self.clock += 1;
        let live = self.object.as_ref();
        let mut object = apply(
            live,
            config,
            manager,
            self.api_version,
            "",
            force,
            &self.schema,
            at(self.clock),
        )?;
        self.schema.decode(&mut object).expect("decodes");
        self.schema.default(&mut object);
        object["metadata"]["uid"] = json!("u");
        self.object = Some(object);
        Ok(())
    }

    fn apply(&mut self, manager: &str, config: &Value) {
        self.try_apply(manager, config, false).expect("no conflict");
    }

    fn conflicts(&mut self, manager: &str, config: &Value) -> String {
        self.try_apply(manager, config, false)
            .expect_err("a conflict")
            .to_string()
    }

    fn update(&mut self, manager: &str, subresource: &str, change: impl FnOnce(&mut Value)) {
        self.clock += 1;
        let old = self.object.clone();
        let mut new = old
            .clone()
            .unwrap_or_else(|| json!({"apiVersion": self.api_version, "metadata": {}}));
        change(&mut new);
        self.schema.decode(&mut new).expect("decodes");
        self.schema.default(&mut new);
        track_update(
            old.as_ref(),
            &mut new,
            manager,
            self.api_version,
            subresource,
            &self.schema,
            at(self.clock),
        );
        self.object = Some(new);
    }

    fn object(&self) -> &Value {
        self.object.as_ref().expect("an object")
    }

    /// The fields of one manager; null where it owns nothing.
    fn fields(&self, manager: &str, operation: &str) -> Value {
        let entries = self.object()["metadata"]["managedFields"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let found = entries
            .iter()
            .find(|e| e["manager"] == manager && e["operation"] == operation);
        found.map_or(Value::Null, |entry| entry["fieldsV1"].clone())
    }
}

fn config_map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}, "data": data})
}

fn config_maps() -> Story {
    Story::new(builtin("v1", "ConfigMap"), "v1")
}

fn deployment(spec: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"}, "spec": spec})
}

fn deployments() -> Story {
    Story::new(builtin("apps/v1", "Deployment"), "apps/v1")
}

fn nginx(replicas: Option<i64>) -> Value {
    let mut spec = json!({"selector": {"matchLabels": {"app": "nginx"}}, "template": {
        "metadata": {"labels": {"app": "nginx"}},
        "spec": {"containers": [{"name": "nginx", "image": "nginx:1.14.2", "ports": [{"containerPort": 80}]}]}}});
    if let Some(replicas) = replicas {
        spec["replicas"] = json!(replicas);
    }
    deployment(&spec)
}

#[test]
fn an_applier_owns_what_it_says_and_nothing_else() {
    let mut story = deployments();
    story.apply("me", &nginx(Some(3)));
    assert_eq!(
        story.fields("me", "Apply"),
        json!({"f:spec": {
            "f:replicas": {},
            "f:selector": {},
            "f:template": {
                "f:metadata": {"f:labels": {"f:app": {}}},
                "f:spec": {"f:containers": {"k:{\"name\":\"nginx\"}": {
                    ".": {}, "f:name": {}, "f:image": {},
                    "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
                }}},
            },
        }})
    );
    let entry = &story.object()["metadata"]["managedFields"][0];
    assert_eq!(entry["operation"], "Apply");
    assert_eq!(entry["apiVersion"], "apps/v1");
    assert_eq!(entry["time"], "2023-11-14T22:13:21Z");
    assert_eq!(entry["fieldsType"], "FieldsV1");
}

#[test]
fn a_creation_owns_what_it_and_the_defaults_added() {
    let mut story = deployments();
    story.update("kubectl-create", "", |object| *object = nginx(None));
    assert_eq!(
        story.fields("kubectl-create", "Update"),
        json!({"f:spec": {
            "f:progressDeadlineSeconds": {}, "f:replicas": {}, "f:revisionHistoryLimit": {}, "f:selector": {},
            "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}, "f:maxUnavailable": {}}, "f:type": {}},
            "f:template": {
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                "f:spec": {
                    "f:containers": {"k:{\"name\":\"nginx\"}": {
                        ".": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {},
                        "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}":
                            {".": {}, "f:containerPort": {}, "f:protocol": {}}},
                        "f:resources": {}, "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {},
                    }},
                    "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {},
                    "f:terminationGracePeriodSeconds": {},
                },
            },
        }})
    );
}

#[test]
fn replicas_are_handed_over_to_an_autoscaler_without_being_reset() {
    // The worked example of Kubernetes' page on server-side apply, "transferring ownership".
    let mut story = deployments();
    story.apply("kubectl", &nginx(Some(3)));
    story.update("kube-controller-manager", "scale", |object| {
        object["spec"]["replicas"] = json!(5);
    });
    assert_eq!(
        story.fields("kube-controller-manager", "Update"),
        json!({"f:spec": {"f:replicas": {}}})
    );
    assert!(
        story.fields("kubectl", "Apply")["f:spec"]
            .get("f:replicas")
            .is_none()
    );
    let message = story.conflicts("kubectl", &nginx(Some(3)));
    assert_eq!(
        message,
        "Apply failed with 1 conflict: conflict with \"kube-controller-manager\" with subresource \"scale\" using apps/v1: .spec.replicas"
    );
    story.apply("kubectl", &nginx(None));
    assert_eq!(story.object()["spec"]["replicas"], 5);
}

#[test]
fn forcing_takes_the_fields_over() {
    let mut story = config_maps();
    story.apply("one", &config_map(&json!({"a": "1", "b": "1"})));
    let message = story.conflicts("two", &config_map(&json!({"a": "2", "b": "2"})));
    assert_eq!(
        message,
        "Apply failed with 2 conflicts: conflicts with \"one\":\n- .data.a\n- .data.b"
    );
    let Err(ApplyError::Conflicts { conflicts, .. }) =
        story.try_apply("two", &config_map(&json!({"a": "2"})), false)
    else {
        panic!("a conflict");
    };
    assert_eq!(conflicts[0].message, "conflict with \"one\"");
    assert_eq!(conflicts[0].field, ".data.a");
    story
        .try_apply("two", &config_map(&json!({"a": "2"})), true)
        .expect("forced");
    assert_eq!(story.object()["data"], json!({"a": "2", "b": "1"}));
    assert_eq!(story.fields("one", "Apply"), json!({"f:data": {"f:b": {}}}));
    assert_eq!(story.fields("two", "Apply"), json!({"f:data": {"f:a": {}}}));
}

#[test]
fn the_same_value_is_shared_and_stays_until_the_last_owner_lets_go() {
    let mut story = config_maps();
    story.apply("one", &config_map(&json!({"a": "1", "b": "1"})));
    story.apply("two", &config_map(&json!({"a": "1"})));
    story.apply("one", &config_map(&json!({"b": "1"})));
    assert_eq!(
        story.object()["data"],
        json!({"a": "1", "b": "1"}),
        "two still owns a"
    );
    story.apply("two", &config_map(&json!({})));
    assert_eq!(story.object()["data"], json!({"b": "1"}));
    assert_eq!(
        story.fields("two", "Apply"),
        json!({"f:data": {}}),
        "an empty map is said, hence owned"
    );
}

#[test]
fn what_is_no_longer_said_is_removed_down_to_the_last_trace() {
    let mut story = deployments();
    let mut config = nginx(Some(1));
    config["metadata"]["annotations"] = json!({"a": "b"});
    config["spec"]["template"]["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "side", "image": "side:1"}));
    story.apply("me", &config);
    story.apply("me", &nginx(Some(1)));
    assert!(story.object()["metadata"].get("annotations").is_none());
    let containers = story.object()["spec"]["template"]["spec"]["containers"]
        .as_array()
        .unwrap();
    assert_eq!(containers.len(), 1, "{containers:?}");
    assert_eq!(containers[0]["name"], "nginx");
}

#[test]
fn what_others_added_to_my_list_survives_my_next_apply() {
    let mut story = deployments();
    story.apply("me", &nginx(None));
    story.update("injector", "", |object| {
        let containers = object["spec"]["template"]["spec"]["containers"]
            .as_array_mut()
            .unwrap();
        containers.insert(0, json!({"name": "proxy", "image": "proxy:1"}));
        containers[1]["env"] = json!([{"name": "A", "value": "b"}]);
    });
    let mut changed = nginx(None);
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = json!("nginx:1.15");
    story.apply("me", &changed);
    let containers = &story.object()["spec"]["template"]["spec"]["containers"];
    assert_eq!(containers[0]["name"], "proxy");
    assert_eq!(containers[1]["image"], "nginx:1.15");
    assert_eq!(containers[1]["env"][0]["value"], "b");
}

#[test]
fn an_object_from_before_belongs_to_before_first_apply() {
    let mut story = config_maps();
    story.update("kubectl-create", "", |object| {
        *object = config_map(&json!({"a": "1"}));
    });
    story.object.as_mut().unwrap()["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("managedFields");
    story.apply("me", &config_map(&json!({"b": "2"})));
    assert_eq!(
        story.fields("before-first-apply", "Update"),
        json!({"f:data": {".": {}, "f:a": {}}})
    );
    let message = story.conflicts("me", &config_map(&json!({"a": "9"})));
    assert!(
        message.contains("conflict with \"before-first-apply\" using v1: .data.a"),
        "{message}"
    );
}

#[test]
fn time_moves_only_when_the_object_changes() {
    let mut story = config_maps();
    story.apply("me", &config_map(&json!({"a": "1"})));
    let before = story.object().clone();
    story.apply("me", &config_map(&json!({"a": "1"})));
    assert_eq!(
        story.object(),
        &before,
        "applying the same changes nothing, not even the time"
    );
    story.update("other", "", |object| {
        object["metadata"]["resourceVersion"] = json!("7");
    });
    assert_eq!(story.fields("other", "Update"), Value::Null);
}

#[test]
fn times_alone_are_no_difference() {
    let object = |time: &str, value: &str| json!({"metadata": {"managedFields": [{"manager": "m", "time": time}]}, "data": {"a": value}});
    let old = object("1", "x");
    for (new, kept) in [(object("2", "x"), true), (object("2", "y"), false)] {
        let mut settled = new.clone();
        keep_times(&old, &mut settled);
        assert_eq!(settled == old, kept, "{new}");
        assert_eq!(settled == new, !kept, "{new}");
    }
}

#[test]
fn status_is_owned_through_its_subresource_alone() {
    let mut story = deployments();
    story.apply("me", &nginx(Some(1)));
    story.update("controller", "status", |object| {
        object["status"]["replicas"] = json!(1);
        object["spec"]["replicas"] = json!(1);
    });
    assert_eq!(
        story.fields("controller", "Update"),
        json!({"f:status": {"f:replicas": {}}})
    );
    let mut sneaky = nginx(Some(1));
    sneaky["status"] = json!({"replicas": 1});
    story.apply("me", &sneaky);
    assert!(story.fields("me", "Apply").get("f:status").is_none());
}

#[test]
fn finalizers_are_a_set_and_selectors_are_one_value() {
    let mut story = deployments();
    let mut config = nginx(None);
    config["metadata"]["finalizers"] = json!(["a.b/c"]);
    story.apply("one", &config);
    config["metadata"]["finalizers"] = json!(["d.e/f"]);
    story.apply("two", &config);
    assert_eq!(
        story.object()["metadata"]["finalizers"],
        json!(["a.b/c", "d.e/f"])
    );
    assert_eq!(
        story.fields("two", "Apply")["f:metadata"]["f:finalizers"],
        json!({"v:\"d.e/f\"": {}})
    );
    config["spec"]["selector"]["matchLabels"] = json!({"other": "x"});
    let message = story.conflicts("three", &config);
    assert!(message.contains(".spec.selector"), "{message}");
}

#[test]
fn configurations_that_do_not_fit_are_refused_in_the_words_of_the_server() {
    let mut story = deployments();
    let mut case = |change: &dyn Fn(&mut Value), message: &str| {
        let mut config = nginx(Some(1));
        change(&mut config);
        assert_eq!(story.conflicts("me", &config), message);
    };
    let prefix = "failed to create typed patch object (default/web; apps/v1, Kind=Deployment): ";
    case(
        &|c| c["spec"]["foo"] = json!(1),
        &format!("{prefix}.spec.foo: field not declared in schema"),
    );
    case(
        &|c| c["spec"]["replicas"] = json!("x"),
        &format!("{prefix}.spec.replicas: expected numeric (int or float), got string"),
    );
    case(
        &|c| {
            let containers = c["spec"]["template"]["spec"]["containers"]
                .as_array_mut()
                .unwrap();
            containers.push(json!({"name": "nginx"}));
        },
        &format!(
            "{prefix}.spec.template.spec.containers: duplicate entries for key [name=\"nginx\"]"
        ),
    );
    case(
        &|c| c["metadata"]["managedFields"] = json!([]),
        "metadata.managedFields must be nil",
    );
    case(
        &|c| c["apiVersion"] = json!("apps/v1beta1"),
        "Incorrect version specified in apply patch. Specified patch version: apps/v1beta1, expected: apps/v1",
    );
}

#[test]
fn kubectl_may_take_what_it_applied_from_the_client_before() {
    let mut story = config_maps();
    let last = config_map(&json!({"a": "1"}));
    story.update("kubectl-client-side-apply", "", |object| {
        *object = last.clone();
        object["metadata"]["annotations"] =
            json!({"kubectl.kubernetes.io/last-applied-configuration": last.to_string()});
    });
    story.apply("kubectl", &config_map(&json!({"a": "2"})));
    assert_eq!(story.object()["data"]["a"], "2");
    let annotation = &story.object()["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
    let renewed: Value = serde_json::from_str(annotation.as_str().unwrap()).expect("JSON");
    assert_eq!(renewed["data"]["a"], "2");
}

#[test]
fn owners_can_be_forgotten_and_are_not_lost_by_clients_that_drop_them() {
    let mut story = config_maps();
    story.apply("me", &config_map(&json!({"a": "1"})));
    story.update("other", "", |object| {
        object["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("managedFields");
        object["data"]["b"] = json!("2");
    });
    assert_eq!(story.fields("me", "Apply"), json!({"f:data": {"f:a": {}}}));
    assert_eq!(
        story.fields("other", "Update"),
        json!({"f:data": {"f:b": {}}})
    );
    story.update("other", "", |object| {
        object["metadata"]["managedFields"] = json!([{}]);
    });
    assert!(story.object()["metadata"].get("managedFields").is_none());
}

#[test]
fn no_more_than_ten_updaters_are_kept_apart() {
    let mut story = config_maps();
    story.update("m00", "", |object| {
        *object = config_map(&json!({"k00": "x"}));
    });
    for n in 1..14 {
        story.update(&format!("m{n:02}"), "", |object| {
            object["data"][format!("k{n:02}")] = json!("x");
        });
    }
    let entries = story.object()["metadata"]["managedFields"]
        .as_array()
        .unwrap();
    assert_eq!(entries.len(), 10);
    let ancient = story.fields("ancient-changes", "Update");
    assert!(ancient["f:data"].get("f:k00").is_some() && ancient["f:data"].get("f:k04").is_some());
}

fn custom() -> Schema {
    let crd = json!({"spec": {"versions": [{"name": "v1", "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {
    "type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
            "atomicMap": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "atomic": {"type": "array", "items": {"type": "string"}},
            "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"],
                "items": {"type": "object", "properties": {"a": {"type": "string"},
                    "b": {"type": "integer", "default": 1}, "v": {"type": "string"}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }},
        "status": {"type": "object", "properties": {"n": {"type": "integer"}}},
    }}}}]}});
    Schema::of_crd(&crd, "v1").expect("a schema")
}

fn widget(spec: &Value) -> Value {
    json!({"apiVersion": "a.b/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec})
}

#[test]
fn custom_kinds_are_owned_by_the_list_types_of_their_schema() {
    let mut story = Story::new(custom(), "a.b/v1");
    story.apply(
        "one",
        &widget(
            &json!({"map": {"x": "1"}, "atomicMap": {"x": "1"}, "set": ["p"], "atomic": ["p", "q"],
        "keyed": [{"a": "k", "v": "1"}], "free": {"deep": {"er": [1]}}}),
        ),
    );
    assert_eq!(
        story.fields("one", "Apply"),
        json!({"f:spec": {
            "f:map": {"f:x": {}}, "f:atomicMap": {}, "f:set": {"v:\"p\"": {}}, "f:atomic": {},
            "f:keyed": {"k:{\"a\":\"k\",\"b\":1}": {".": {}, "f:a": {}, "f:v": {}}},
            "f:free": {"f:deep": {".": {}, "f:er": {}}},
        }})
    );
    story.apply(
        "two",
        &widget(&json!({"set": ["q"], "keyed": [{"a": "k", "b": 2, "v": "2"}]})),
    );
    assert_eq!(story.object()["spec"]["set"], json!(["p", "q"]));
    assert_eq!(story.object()["spec"]["keyed"].as_array().unwrap().len(), 2);
    story.apply("one", &widget(&json!({"map": {"x": "1"}})));
    assert_eq!(
        story.object()["spec"],
        json!({"map": {"x": "1"}, "set": ["q"], "keyed": [{"a": "k", "b": 2, "v": "2"}]})
    );
}

#[test]
fn creating_a_custom_object_owns_its_structs_too() {
    let mut story = Story::new(custom(), "a.b/v1");
    story.update("creator", "", |object| {
        *object = widget(&json!({"map": {"x": "1"}}));
    });
    assert_eq!(
        story.fields("creator", "Update"),
        json!({"f:spec": {".": {}, "f:map": {".": {}, "f:x": {}}}})
    );
}

/// Specs of the custom kind, small enough to collide. Keyed lists and sets are never empty: an
/// empty one owns nothing, not even itself, which is a gap of the specification that we share.
fn spec() -> impl Strategy<Value = Value> {
    let text = || prop::sample::select(vec!["p", "q"]);
    let map = prop::option::of(prop::collection::btree_map("[xy]", text(), 0..3));
    let set = prop::option::of(prop::collection::btree_set(text(), 1..3));
    let keyed = prop::option::of(prop::collection::btree_map(text(), text(), 1..3));
    let atomic = prop::option::of(prop::collection::vec(text(), 0..3));
    (map, set, keyed, atomic).prop_map(|(map, set, keyed, atomic)| {
        let mut spec = json!({});
        if let Some(map) = map {
            spec["map"] = json!(map);
        }
        if let Some(set) = set {
            spec["set"] = json!(set);
        }
        if let Some(keyed) = keyed {
            let items: Vec<Value> = keyed
                .iter()
                .map(|(a, v)| json!({"a": a, "b": 1, "v": v}))
                .collect();
            spec["keyed"] = json!(items);
        }
        if let Some(atomic) = atomic {
            spec["atomic"] = json!(atomic);
        }
        spec
    })
}

proptest! {
    // Failures are reported, not kept in files beside the sources.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn applying_twice_is_applying_once(first in spec(), second in spec(), mine in spec()) {
        let mut story = Story::new(custom(), "a.b/v1");
        story.try_apply("one", &widget(&first), true).unwrap();
        story.try_apply("two", &widget(&second), true).unwrap();
        story.try_apply("one", &widget(&mine), true).unwrap();
        let once = story.object().clone();
        story.try_apply("one", &widget(&mine), true).unwrap();
        prop_assert_eq!(story.object(), &once);
    }

    #[test]
    fn a_lone_applier_gets_exactly_what_it_says(first in spec(), second in spec()) {
        let mut story = Story::new(custom(), "a.b/v1");
        story.try_apply("one", &widget(&first), false).unwrap();
        story.try_apply("one", &widget(&second), false).unwrap();
        let mut alone = Story::new(custom(), "a.b/v1");
        alone.try_apply("one", &widget(&second), false).unwrap();
        prop_assert_eq!(story.fields("one", "Apply"), alone.fields("one", "Apply"));
        for list in ["set", "keyed", "atomic", "map"] {
            let hollow = |v: &Value| v.as_array().is_none_or(Vec::is_empty) && v.as_object().is_none_or(serde_json::Map::is_empty);
            let (got, wanted) = (&story.object()["spec"][list], &second[list]);
            prop_assert!(got == wanted || hollow(got) && hollow(wanted), "{}: {} is not {}", list, got, wanted);
        }
    }

    #[test]
    fn nobody_loses_without_force(first in spec(), second in spec()) {
        let mut story = Story::new(custom(), "a.b/v1");
        story.try_apply("one", &widget(&first), false).unwrap();
        let before = story.fields("one", "Apply");
        if story.try_apply("two", &widget(&second), false).is_ok() {
            prop_assert_eq!(story.fields("one", "Apply"), before);
        }
    }
}
