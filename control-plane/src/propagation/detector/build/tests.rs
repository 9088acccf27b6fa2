use muster_shared::api::any_binding::AnyBinding;

use super::*;
use crate::fleet::policy::PolicyKey;
use crate::fleet::testing::template_key;

fn key() -> TemplateKey {
    template_key("apps/v1", "Deployment", "web")
}

fn template(version: &str, image: &str, ready: i64) -> Template {
    Template::new(json!({
        "metadata": { "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": version },
        "spec": { "replicas": 2, "template": { "spec": { "containers": [{ "name": "c", "image": image }] } } },
        "status": { "readyReplicas": ready },
    }))
    .unwrap()
}

fn interpreters() -> Interpreters {
    Interpreters::default()
}

fn claim() -> Claim {
    Claim {
        policy: PolicyKey::new(Some("shop"), "p"),
        id: "id".into(),
    }
}

/// Calls `act` with what is wanted of the binding of a template.
fn wanted<R>(
    key: &TemplateKey,
    template: &Template,
    act: impl FnOnce(&Wanted<'_>) -> R,
) -> Result<R, Error> {
    let (claim, policy) = (claim(), PropagationSpec::default());
    let asking = (&interpreters(), false);
    Ok(act(&Wanted::new(
        key, template, &claim, &policy, None, asking,
    )?))
}

fn made_of(template: &Template) -> AnyBinding {
    let made = wanted(&key(), template, |it| it.create(Vec::new(), |_| None));
    let mut binding = made.unwrap().unwrap();
    binding.metadata.resource_version = Some("7".into());
    binding
}

fn patch(held: &AnyBinding, template: &Template) -> Result<Option<Value>, Error> {
    patch_taken_for(held, template, false)
}

fn patch_taken_for(
    held: &AnyBinding,
    template: &Template,
    changed: bool,
) -> Result<Option<Value>, Error> {
    wanted(&key(), template, |it| it.patch(held, changed))?
}

#[test]
fn a_process_that_remembers_nothing_knows_whether_the_template_changed() {
    let held = made_of(&template("1", "a:1", 0));
    assert_eq!(patch(&held, &template("1", "a:1", 0)).unwrap(), None);
    let status_alone = patch(&held, &template("2", "a:1", 2)).unwrap();
    assert_eq!(status_alone, None, "the status alone is no change");
    let changed = patch(&held, &template("3", "a:2", 2)).unwrap().unwrap();
    assert_eq!(changed["spec"]["resource"]["resourceVersion"], "3");
    let mut held = made_of(&template("1", "a:1", 0));
    held.metadata
        .annotations
        .as_mut()
        .unwrap()
        .remove(TEMPLATE_FINGERPRINT);
    let same = template("2", "a:1", 2);
    assert_eq!(
        patch(&held, &same).unwrap(),
        None,
        "from before, and not seen to change"
    );
    let first = patch_taken_for(&held, &same, true).unwrap().unwrap();
    assert_eq!(
        first["metadata"]["annotations"][TEMPLATE_FINGERPRINT],
        same.fingerprint()
    );
    assert_eq!(first["spec"]["resource"]["resourceVersion"], "2");
}

#[test]
fn a_change_that_comes_with_the_claim_is_not_lost_with_it() {
    let held = made_of(&template("1", "a:1", 0));
    let claimed = |image: &str| {
        let mut object = template("2", image, 0).object(&key().kind);
        object["metadata"]["labels"] = json!(claim().labels());
        object["metadata"]["annotations"] = json!(claim().annotations());
        Template::new(object).unwrap()
    };
    assert_eq!(patch(&held, &claimed("a:1")).unwrap(), None);
    assert!(patch(&held, &claimed("a:2")).unwrap().is_some());
}

#[test]
fn every_patch_holds_for_the_version_that_it_was_decided_upon() {
    let held = made_of(&template("1", "a:1", 0));
    let changed = patch(&held, &template("3", "a:2", 2)).unwrap().unwrap();
    assert_eq!(changed["metadata"]["resourceVersion"], "7");
    let mut unlabelled = held;
    unlabelled.metadata.labels = None;
    let labelled = patch(&unlabelled, &template("1", "a:1", 0))
        .unwrap()
        .unwrap();
    assert_eq!(labelled["metadata"]["resourceVersion"], "7");
}

#[test]
fn the_binding_of_another_object_is_reported_and_not_touched() {
    let mut held = made_of(&template("1", "a:1", 0));
    held.metadata.owner_references.as_mut().unwrap()[0].uid = "old".into();
    let reported = patch(&held, &template("2", "a:2", 0)).unwrap_err();
    assert!(
        reported.to_string().contains("a former Deployment"),
        "{reported}"
    );
    held.spec.resource.api_version = "example.com/v1".into();
    held.spec.resource.uid = Some("old".into());
    let reported = patch(&held, &template("2", "a:2", 0)).unwrap_err();
    assert!(
        reported
            .to_string()
            .contains("Deployment web of example.com/v1"),
        "{reported}"
    );
}

#[test]
fn a_template_whose_binding_no_api_server_takes_is_reported() {
    let mut key = key();
    key.name = "under_score".into();
    let reported = wanted(&key, &template("1", "a", 0), |_| ()).unwrap_err();
    assert!(
        reported.to_string().contains("under_score-deployment"),
        "{reported}"
    );
}

const FLINK: &str = "flink.apache.org/v1beta1";

#[test]
fn a_workload_with_several_pod_templates_is_counted_in_components_where_the_gate_is_on() {
    let key = template_key(FLINK, "FlinkDeployment", "web");
    let flink = json!({
        "metadata": { "name": "web", "namespace": "shop", "uid": "u" },
        "spec": {
            "jobManager": { "replicas": 1, "resource": { "cpu": 1, "memory": "2048m" } },
            "taskManager": { "replicas": 3, "resource": { "cpu": 2, "memory": "4096m" } },
        },
    });
    let template = Template::new(flink).unwrap();
    let (claim, policy) = (claim(), PropagationSpec::default());
    let spec = |by_components| {
        let asking = (&interpreters(), by_components);
        let wanted = Wanted::new(&key, &template, &claim, &policy, None, asking).unwrap();
        wanted.create(Vec::new(), |_| None).unwrap().spec
    };
    let counted = spec(true);
    let parts: Vec<_> = counted
        .components
        .iter()
        .map(|one| {
            let needs = one.replica_requirements.as_ref().unwrap();
            (
                one.name.as_str(),
                one.replicas,
                needs.resource_request["cpu"].0.as_str(),
            )
        })
        .collect();
    assert_eq!(parts, [("jobmanager", 1, "1"), ("taskmanager", 3, "2")]);
    assert_eq!((counted.replicas, counted.replica_requirements), (0, None));
    let counted = spec(false);
    assert!(counted.components.is_empty() && counted.replicas > 0);
}

#[test]
fn components_that_cannot_be_told_apart_or_stored_are_refused() {
    let named = |names: &[&str]| {
        let component = |name: &&str| Component {
            name: (*name).to_owned(),
            ..Component::default()
        };
        let all: Vec<Component> = names.iter().map(component).collect();
        check_names(&all).is_ok()
    };
    let long = "x".repeat(LONGEST_COMPONENT + 1);
    for (names, expected) in [
        (&["a", "b"][..], true),
        (&[], true),
        (&["a", ""], false),
        (&["a", "b", "a"], false),
        (&[&long], false),
    ] {
        assert_eq!(named(names), expected, "{names:?}");
    }
}

#[test]
fn a_binding_is_written_anew_where_the_detector_writes_and_nowhere_else() {
    let old = made_of(&template("1", "a:1", 0));
    let changed = |change: &Value| {
        let mut object = serde_json::to_value(&old).unwrap();
        muster_shared::merge::apply(&mut object, change);
        serde_json::from_value::<AnyBinding>(object).unwrap()
    };
    for change in [
        json!({}),
        json!({"metadata": {"resourceVersion": "8", "annotations": {"a": "b"}}}),
        json!({"spec": {"clusters": [{"name": "m1", "replicas": 2}]}}),
        json!({"spec": {"gracefulEvictionTasks": [{"fromCluster": "m1", "reason": "r", "producer": "p"}]}}),
        json!({"spec": {"requiredBy": [{"namespace": "shop", "name": "w"}]}}),
        json!({"spec": {"rescheduleTriggeredAt": "2026-01-01T00:00:00Z"}}),
        json!({"status": {"schedulerObservedGeneration": 2}}),
    ] {
        assert!(!is_written_anew(&old, &changed(&change)), "{change}");
    }
    for change in [
        json!({"spec": {"suspension": {"dispatching": true}}}),
        json!({"spec": {"replicas": 3}}),
        json!({"spec": {"propagateDeps": true}}),
        json!({"spec": {"preserveResourcesOnDeletion": true}}),
        json!({"spec": {"placement": {"clusterAffinity": {"clusterNames": ["m1"]}}}}),
        json!({"metadata": {"annotations": {TEMPLATE_FINGERPRINT: "0"}}}),
        json!({"metadata": {"labels": null}}),
        json!({"metadata": {"finalizers": []}}),
        json!({"metadata": {"ownerReferences": null}}),
    ] {
        assert!(is_written_anew(&old, &changed(&change)), "{change}");
    }
}
