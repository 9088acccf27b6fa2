use std::sync::atomic::{AtomicBool, Ordering};

use muster_shared::k8s::Client;
use parking_lot::Mutex;

use super::super::desired::desired;
use super::*;
use crate::discovery::Discovery;
use crate::testing::{self, group};

/// The Work of all objects here.
const WORK: Origin<'static> = Origin {
    namespace: "es",
    name: "w",
};

/// The fleet of all objects here.
static FLEET: FleetId = FleetId::Unknown(String::new());

fn service(spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec})
}

/// Returns a refusal by its code, its reason, and its message.
fn refused((code, reason, message): (u16, &str, &str)) -> (u16, Value) {
    let status = json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason,
        "message": message});
    (code, status)
}

/// Returns a member without objects that answers an apply with a version by this refusal, as
/// Kubernetes before 1.23 does for Services.
fn old_member(refusal: (u16, &'static str, &'static str)) -> Objects {
    let services = group("", &[("services", "Service")]);
    objects(testing::member(vec![services], move |head, body| {
        if head.method == http::Method::GET {
            return testing::not_found(&json!({"name": "a", "kind": "services"}));
        }
        let applied: Value = serde_json::from_slice(body).unwrap();
        if applied.pointer("/metadata/resourceVersion").is_none() {
            return (201, applied);
        }
        refused(refusal)
    }))
}

/// Returns a member with this API, into which the agent may write.
fn objects(client: Client) -> Objects {
    Objects {
        cluster: "m1".to_owned(),
        member: Member::new(client.clone(), Discovery::new(client), || true),
        drift: Arc::new(Drift::new(false, Arc::default())),
    }
}

/// Applies the object that is wanted.
async fn apply(objects: &Objects, wanted: &Value) -> Result<Applied, Error> {
    let key = ObjectKey::of(wanted, 0).unwrap();
    objects.ensure_applied(&key, wanted, &FLEET).await
}

/// Returns the removal of an object of Work `w`.
fn removal(wanted: &[ObjectKey], preserve: bool) -> Removal<'_> {
    Removal {
        waits: true,
        user: &|_| None,
        work: WORK,
        wanted,
        preserve,
        fleet: &FLEET,
    }
}

#[tokio::test]
async fn an_object_is_made_where_no_version_may_be_named_with_it() {
    let wanted = service(&json!({"type": "ClusterIP"}));
    let not_set = "resourceVersion should not be set on objects to be created";
    for refusal in [
        (500, "InternalError", not_set),
        (409, "Conflict", "there is no object of this version"),
    ] {
        let objects = old_member(refusal);
        let made = apply(&objects, &wanted).await.unwrap();
        let expected = (Change::Created, wanted.clone());
        assert_eq!((made.change, made.object), expected, "{refusal:?}");
    }
}

/// Returns a member that serves ingresses in two groups. The ingress `web` is one object with a uid
/// for each group, and what is written is noted.
fn two_groups(uids: [&'static str; 2], writes: &Arc<Mutex<Vec<String>>>) -> Objects {
    let writes = Arc::clone(writes);
    let groups = ["extensions", "networking.k8s.io"];
    let groups = groups.map(|name| group(name, &[("ingresses", "Ingress")]));
    objects(testing::member(Vec::from(groups), move |head, _| {
        let path = head.uri.path();
        if head.method != http::Method::GET {
            writes.lock().push(path.to_owned());
        }
        let uid = uids[usize::from(path.contains("networking"))];
        let api_version = path.split('/').nth(2).unwrap_or_default();
        let object = json!({"apiVersion": format!("{api_version}/v1"), "kind": "Ingress",
            "metadata": {"name": "web", "namespace": "shop"}});
        let mut object = desired(&object, WORK, None);
        object["metadata"]["uid"] = json!(uid);
        (200, object)
    }))
}

#[tokio::test]
async fn an_object_that_is_wanted_in_another_group_is_not_removed_in_the_former_one() {
    let key = |group: &str| {
        let manifest = json!({"apiVersion": format!("{group}/v1"), "kind": "Ingress",
            "metadata": {"name": "web", "namespace": "shop"}});
        ObjectKey::of(&manifest, 0).unwrap()
    };
    for (what, uids, wanted, removed) in [
        ("one object in two groups", ["u", "u"], true, 0),
        ("two objects of one name", ["u", "v"], true, 1),
        ("one object that is not wanted", ["u", "u"], false, 1),
    ] {
        for preserve in [false, true] {
            let writes = Arc::default();
            let objects = two_groups(uids, &writes);
            let others = wanted.then(|| key("networking.k8s.io"));
            let former = key("extensions");
            let removal = removal(others.as_slice(), preserve);
            objects.remove(&former, &removal).await.unwrap();
            let writes = writes.lock();
            assert_eq!(writes.len(), removed, "{what}: {writes:?}");
            assert!(writes.iter().all(|path| path.contains("/extensions/")));
        }
    }
}

#[tokio::test]
async fn what_the_server_made_of_an_object_is_forgotten_with_it() {
    let objects = two_groups(["u", "u"], &Arc::default());
    for number in 0..1_000 {
        let wanted = json!({"apiVersion": "extensions/v1", "kind": "Ingress",
            "metadata": {"name": format!("web{number}"), "namespace": "shop"}, "spec": {"timeout": "60s"}});
        let key = ObjectKey::of(&wanted, 0).unwrap();
        let mut answer = wanted.clone();
        answer["spec"]["timeout"] = json!("1m0s");
        objects.drift.applied(&key, &wanted, &answer);
        assert_eq!(objects.drift.remembered(), 1);
        objects.remove(&key, &removal(&[], false)).await.unwrap();
    }
    assert_eq!(objects.drift.remembered(), 0);
}

/// Returns a member with a stopped CronJob and a stopped Job of it; what is written is noted.
fn stopped_cron_job(writes: &Arc<Mutex<Vec<(String, Value)>>>) -> Objects {
    let writes = Arc::clone(writes);
    let batch = group("batch", &[("cronjobs", "CronJob"), ("jobs", "Job")]);
    objects(testing::member(vec![batch], move |head, body| {
        let path = head.uri.path();
        if head.method != http::Method::GET {
            let body = serde_json::from_slice(body).unwrap();
            writes.lock().push((path.to_owned(), body));
        }
        let stopped = json!({annotation::STOPPED: json!({"spec": {"suspend": null}}).to_string()});
        if path.ends_with("/jobs") {
            let job = json!({"metadata": {"name": "job", "namespace": "shop", "annotations": stopped,
                "ownerReferences": [{"uid": "u", "controller": true}]}, "spec": {"suspend": true}});
            return (200, json!({"metadata": {}, "items": [job]}));
        }
        let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob",
            "metadata": {"name": "cron", "namespace": "shop", "annotations": stopped}, "spec": {"suspend": true}});
        let mut cron = desired(&cron, WORK, None);
        cron["metadata"]["uid"] = json!("u");
        (200, cron)
    }))
}

#[tokio::test]
async fn what_was_stopped_with_an_object_runs_again_when_that_is_released() {
    let writes = Arc::default();
    let objects = stopped_cron_job(&writes);
    let manifest = json!({"apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": "cron", "namespace": "shop"}});
    let key = ObjectKey::of(&manifest, 0).unwrap();
    objects.remove(&key, &removal(&[], true)).await.unwrap();
    let writes = writes.lock();
    let places = writes.iter().map(|(path, _)| path.rsplit('/').next());
    assert_eq!(places.collect::<Vec<_>>(), [Some("job"), Some("cron")]);
    for (path, patch) in &*writes {
        assert_eq!(patch["spec"], json!({"suspend": null}), "{path}");
        let mark = &patch["metadata"]["annotations"][annotation::STOPPED];
        assert!(mark.is_null(), "{path}");
    }
}

/// Returns a member with one object of a kind, in which each patch is stored as it is. With
/// `refuses` its admission refuses each apply.
fn member_of(stored: &Arc<Mutex<Value>>, plural: &'static str, refuses: bool) -> Objects {
    let (stored, first) = (Arc::clone(stored), stored.lock().clone());
    let api_version = first["apiVersion"].as_str().unwrap();
    let (name, version) = api_version.split_once('/').unwrap();
    let mut served = group(name, &[(plural, first["kind"].as_str().unwrap())]);
    served["versions"][0]["version"] = json!(version);
    objects(testing::member(vec![served], move |head, body| {
        let kind = head.headers.get(http::header::CONTENT_TYPE);
        let is_apply = kind.is_some_and(|kind| kind == "application/apply-patch+yaml");
        if refuses && is_apply {
            let denied = "admission webhook \"images.example.com\" denied the request";
            return refused((403, "Forbidden", denied));
        }
        let mut object = stored.lock();
        if head.method == http::Method::PATCH {
            let patch: Value = serde_json::from_slice(body).unwrap();
            muster_shared::merge::apply(&mut object, &patch);
            if patch["spec"]["replicas"].is_number() {
                let manager = "muster-agent";
                object["metadata"]["managedFields"] = json!([{"manager": manager, "operation": "Update",
                    "fieldsV1": {"f:spec": {"f:replicas": {}}}}]);
            }
        }
        (200, object.clone())
    }))
}

#[tokio::test]
async fn a_number_that_was_left_to_an_autoscaler_is_left_to_it_after_a_stop() {
    let manifest = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "shop", "name": "web"}, "spec": {"replicas": 2}});
    let wanted = desired(&manifest, WORK, None);
    let mut stopped = wanted.clone();
    // An autoscaler had set 10. The agent has stopped the object, by which the API server took the
    // number from whoever had set it.
    stopped["spec"]["replicas"] = json!(0);
    let annotations = &mut stopped["metadata"]["annotations"];
    annotations[annotation::STOPPED] = json!(json!({"spec": {"replicas": 10}}).to_string());
    annotations[annotation::LEFT_TO_AUTOSCALER] = json!(json!({".spec.replicas": 2}).to_string());
    stopped["metadata"]["uid"] = json!("u");
    stopped["metadata"]["resourceVersion"] = json!("7");
    stopped["metadata"]["managedFields"] = json!([{
        "manager": "muster-agent-fencing", "operation": "Update",
        "fieldsV1": {"f:spec": {"f:replicas": {}}},
    }]);
    let stored = Arc::new(Mutex::new(stopped));
    let objects = member_of(&stored, "deployments", false);
    apply(&objects, &wanted).await.unwrap();
    let object = stored.lock();
    assert!(object["metadata"]["annotations"][annotation::STOPPED].is_null());
    assert_eq!(object["spec"]["replicas"], 10, "as it was before the cut");
}

#[tokio::test]
async fn what_was_written_without_an_apply_is_applied_before_an_apply_that_lacks_it() {
    let manifest = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "shop", "name": "web"}, "spec": {"minReadySeconds": 1}});
    let wanted = desired(&manifest, WORK, None);
    let entry = |operation: &str, field: &str| {
        json!({"manager": "muster-agent", "operation": operation, "apiVersion": "apps/v1",
            "fieldsV1": {"f:spec": {(field): {}}}})
    };
    let mut held = wanted.clone();
    held["spec"]["paused"] = json!(true);
    held["metadata"]["resourceVersion"] = json!("7");
    held["metadata"]["managedFields"] = json!([
        entry("Apply", "f:minReadySeconds"),
        entry("Update", "f:paused")
    ]);
    let stored = Arc::new(Mutex::new(held));
    let objects = member_of(&stored, "deployments", false);
    apply(&objects, &wanted).await.unwrap();
    let object = stored.lock();
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let fields: Vec<_> = entries.iter().map(|it| &it["fieldsV1"]["f:spec"]).collect();
    assert_eq!(fields, [&json!({"f:minReadySeconds": {}, "f:paused": {}})]);
}

/// Returns an object as the agent has stopped it.
fn stopped(wanted: &Value, order: &Value) -> Arc<Mutex<Value>> {
    let mut object = wanted.clone();
    testing::stop(&mut object, order);
    object["metadata"]["uid"] = json!("u");
    object["metadata"]["resourceVersion"] = json!("7");
    Arc::new(Mutex::new(object))
}

#[tokio::test]
async fn what_was_stopped_runs_again_where_a_rule_retains_the_field_that_stopped_it() {
    let manifest = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
        "metadata": {"namespace": "shop", "name": "etl"}, "spec": {"suspend": false}});
    let wanted = desired(&manifest, WORK, None);
    let stored = stopped(&wanted, &json!({"spec": {"suspend": true}}));
    let objects = member_of(&stored, "workflows", false);
    apply(&objects, &wanted).await.unwrap();
    let object = stored.lock();
    assert!(object["metadata"]["annotations"][annotation::STOPPED].is_null());
    assert_eq!(object["spec"]["suspend"], false);
}

#[tokio::test]
async fn what_was_stopped_runs_again_although_the_member_refuses_its_new_manifest() {
    let manifest = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "shop", "name": "web"}, "spec": {"replicas": 3}});
    let wanted = desired(&manifest, WORK, None);
    let stored = stopped(&wanted, &json!({"spec": {"replicas": 0}}));
    let objects = member_of(&stored, "deployments", true);
    assert!(apply(&objects, &wanted).await.is_err());
    assert_eq!(stored.lock()["spec"]["replicas"], 3);
}

#[tokio::test]
async fn data_never_has_its_former_role_again_while_it_is_released() {
    let mut manifest = json!({"apiVersion": "replication.storage.openshift.io/v1alpha1",
        "kind": "VolumeReplication", "metadata": {"namespace": "shop", "name": "db", "labels": {},
            "annotations": {annotation::DATA_ROLE: "1"}}, "spec": {"state": "primary"}});
    manifest["metadata"]["labels"][label::RETAIN_REPLICAS] = json!("true");
    let mut wanted = desired(&manifest, WORK, None);
    let stored = stopped(&wanted, &json!({"spec": {"state": "secondary"}}));
    wanted["spec"]["state"] = json!("secondary");
    let objects = member_of(&stored, "volumereplications", true);
    assert!(apply(&objects, &wanted).await.is_err());
    assert_eq!(stored.lock()["spec"]["state"], "secondary");
}

/// Returns a member with an object that somebody changed, which refuses an apply for a cause as
/// long as that somebody owns a field of it.
fn edited(
    object: &Value,
    fields: &Value,
    (owned, cause): (&'static str, Value),
    patches: &Arc<Mutex<Vec<Value>>>,
) -> Objects {
    let entry = json!({
        "manager": "kubectl-edit", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    });
    let refusal = move |entries: &[Value]| {
        let is_theirs = entries
            .iter()
            .any(|it| it["manager"] == "kubectl-edit" && it["fieldsV1"].pointer(owned).is_some());
        is_theirs.then(|| {
            let status = json!({
                "kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422,
                "message": "", "details": {"causes": [cause]},
            });
            (422, status)
        })
    };
    refusing(object, &entry, refusal, patches)
}

/// Returns a member with an object that has one entry in its record of fields. The member refuses
/// an apply as a function says for the record, and notes the patches of the record.
fn refusing(
    object: &Value,
    entry: &Value,
    refusal: impl Fn(&[Value]) -> Option<(u16, Value)> + Send + Sync + 'static,
    patches: &Arc<Mutex<Vec<Value>>>,
) -> Objects {
    let mut held = desired(object, WORK, None);
    held["metadata"]["resourceVersion"] = json!("7");
    held["metadata"]["managedFields"] = json!([entry]);
    let (held, patches) = (Mutex::new(held), Arc::clone(patches));
    let controllers = ("replicationcontrollers", "ReplicationController");
    let core = group("", &[("services", "Service"), controllers]);
    objects(testing::member(vec![core], move |head, body| {
        let mut held = held.lock();
        if head.method == http::Method::GET {
            return (200, held.clone());
        }
        let sent: Value = serde_json::from_slice(body).unwrap();
        let kind = head.headers.get(http::header::CONTENT_TYPE);
        if kind.is_some_and(|kind| kind == "application/merge-patch+json") {
            held["metadata"]["managedFields"] = sent["metadata"]["managedFields"].clone();
            held["metadata"]["resourceVersion"] = json!("8");
            patches.lock().push(sent);
            return (200, held.clone());
        }
        let entries = held["metadata"]["managedFields"].as_array().unwrap();
        if let Some(refused) = refusal(entries) {
            return refused;
        }
        assert_eq!(sent["metadata"]["resourceVersion"], "8");
        held["spec"] = sent["spec"].clone();
        (200, held.clone())
    }))
}

#[tokio::test]
async fn a_port_that_somebody_renumbered_in_the_member_is_set_back() {
    let patches = Arc::default();
    let http = |port: u16| service(&json!({"ports": [{"name": "http", "port": port}]}));
    let fields = json!({"f:spec": {
        "f:externalTrafficPolicy": {}, "f:ports": {"k:{\"port\":8080}": {".": {}}},
    }});
    let cause = json!({"reason": "FieldValueDuplicate", "field": "spec.ports[1].name"});
    let objects = edited(&http(8080), &fields, ("/f:spec/f:ports", cause), &patches);
    let manifest = desired(&http(80), WORK, None);
    let applied = apply(&objects, &manifest).await;
    let ports = applied.unwrap().object["spec"]["ports"].clone();
    assert_eq!(ports, json!([{"name": "http", "port": 80}]));
    let patches = patches.lock();
    assert_eq!(patches.len(), 1);
    let mut managers = patches[0]["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter();
    let ours = managers.find(|it| it["manager"] == member::FIELD_MANAGER);
    let ours = &ours.unwrap()["fieldsV1"]["f:spec"];
    assert!(ours["f:ports"].is_object());
    // The other writer's field excludes none that is applied, and stays that writer's.
    assert!(ours["f:externalTrafficPolicy"].is_null());
}

fn controller(containers: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "a"},
        "spec": {"template": {"spec": {"containers": containers}}}})
}

/// Place of the containers in the fields of a controller.
const CONTAINERS: &str = "/f:spec/f:template/f:spec/f:containers";

#[tokio::test]
async fn a_container_that_the_template_drops_goes_although_somebody_changed_it_in_the_member() {
    let (web, old) = (
        json!({"name": "web", "image": "web:1"}),
        json!({"name": "old", "image": "old:1", "resources": {"limits": {"cpu": "1"}}}),
    );
    let fields = json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {
        "k:{\"name\":\"old\"}": {"f:resources": {"f:limits": {"f:cpu": {}}}},
    }}}}});
    for (what, containers, adoptions) in [
        ("it is dropped", json!([web]), 1),
        ("the template's own has none", json!([{"name": "web"}]), 0),
    ] {
        let patches = Arc::default();
        let field = "spec.template.spec.containers[1].image";
        let cause = json!({"reason": "FieldValueRequired", "field": field});
        let before = controller(&json!([web, old]));
        let objects = edited(&before, &fields, (CONTAINERS, cause), &patches);
        let manifest = desired(&controller(&containers), WORK, None);
        let applied = apply(&objects, &manifest).await;
        assert_eq!(patches.lock().len(), adoptions, "{what}");
        let after = applied.map(|it| it.object["spec"]["template"]["spec"].clone());
        let is_applied = after.is_ok_and(|after| after["containers"] == containers);
        assert_eq!(is_applied, adoptions > 0, "{what}");
    }
}

#[tokio::test]
async fn an_object_whose_record_names_a_version_that_is_gone_is_applied() {
    let entry = json!({
        "manager": "operator", "operation": "Update", "apiVersion": "example.io/v1alpha1",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:type": {}}},
    });
    let refusal = |entries: &[Value]| {
        let version = entries[0]["apiVersion"].as_str().unwrap();
        (version != "v1").then(|| {
            let message = format!("request to convert CR to an invalid group/version: {version}");
            refused((500, "InternalError", &message))
        })
    };
    let before = service(&json!({"ports": []}));
    let objects = refusing(&before, &entry, refusal, &Arc::default());
    let manifest = desired(&service(&json!({"ports": [{"port": 80}]})), WORK, None);
    let applied = apply(&objects, &manifest).await;
    let after = applied.unwrap().object;
    assert_eq!(after["spec"]["ports"], json!([{"port": 80}]));
    let kept = &after["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
    assert_eq!(*kept, json!({"f:type": {}}), "its fields stay its own");
}

const UNKNOWN: &str = ".spec.trafficDistribution: field not declared in schema";

/// Returns a member that does not know the distribution of the traffic of a Service until it is
/// upgraded.
fn older(before: Option<Value>, is_upgraded: &Arc<AtomicBool>) -> Objects {
    let (held, is_upgraded) = (Mutex::new(before), Arc::clone(is_upgraded));
    let services = group("", &[("services", "Service")]);
    objects(testing::member(vec![services], move |head, body| {
        let mut held = held.lock();
        if head.method == http::Method::GET {
            let gone = || testing::not_found(&json!({"name": "a", "kind": "services"}));
            return held.clone().map_or_else(gone, |held| (200, held));
        }
        let knows = is_upgraded.load(Ordering::Relaxed);
        let kind = head.headers.get(http::header::CONTENT_TYPE);
        if !knows && kind.is_some_and(|kind| kind == "application/apply-patch+yaml") {
            let message = format!("failed to create typed patch object (a): {UNKNOWN}");
            return refused((500, "InternalError", &message));
        }
        let before = held.clone().unwrap_or_default();
        let mut after = before.clone();
        muster_shared::merge::apply(&mut after, &serde_json::from_slice(body).unwrap());
        if !knows {
            let fields = after["spec"].as_object_mut().unwrap();
            fields.remove("trafficDistribution");
        }
        assert_ne!(before["spec"], after["spec"], "a write for nothing");
        after["metadata"]["resourceVersion"] = json!("8");
        *held = Some(after.clone());
        (200, after)
    }))
}

#[tokio::test(start_paused = true)]
async fn an_object_is_applied_without_the_fields_that_its_member_does_not_know_until_it_does() {
    let spec = json!({"type": "ClusterIP", "trafficDistribution": "PreferClose"});
    let wanted = desired(&service(&spec), WORK, None);
    let key = ObjectKey::of(&wanted, 0).unwrap();
    let mut before = desired(&service(&json!({"type": "NodePort"})), WORK, None);
    before["metadata"]["resourceVersion"] = json!("7");
    for (before, change) in [(None, Change::Created), (Some(before), Change::Updated)] {
        let is_upgraded = Arc::default();
        let objects = older(before, &is_upgraded);
        let apply = async || apply(&objects, &wanted).await.unwrap();
        let applied = apply().await;
        assert_eq!(applied.change, change);
        assert_eq!(applied.object["spec"], json!({"type": "ClusterIP"}));
        let left_out = applied.left_out.as_deref();
        assert!(left_out.is_some_and(|it| it.ends_with(UNKNOWN)));
        for upgraded in [false, true] {
            is_upgraded.store(upgraded, Ordering::Relaxed);
            let applied = apply().await;
            assert_eq!(applied.change, Change::None, "it is at rest");
            let pause = objects.drift.tries_again(&key).unwrap();
            tokio::time::advance(pause).await;
            let applied = apply().await;
            let has_it = !applied.object["spec"]["trafficDistribution"].is_null();
            let is_changed = applied.change == Change::Updated;
            assert_eq!((has_it, is_changed), (upgraded, upgraded));
            assert_eq!(applied.left_out, None, "it is reported once");
        }
        assert_eq!(objects.drift.tries_again(&key), None);
    }
}
