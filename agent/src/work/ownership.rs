//! Labels and annotations that tie an object in the member to its Work, and the rules for changing
//! or deleting an object with them.

use muster_shared::fencing;
use muster_shared::merge::object_in;
use muster_shared::names::{self, annotation as annotations, label as labels};
use serde_json::{Map, Value, json};

/// Labels that go when an object is released to the member.
const RELEASED_LABELS: [&str; 5] = [
    labels::FENCED,
    labels::MANAGED,
    labels::RESOURCE_BINDING_ID,
    labels::WORK_ID,
    labels::CLUSTER_RESOURCE_BINDING_ID,
];
/// Annotations that go when an object is released to the member.
/// The uid of the template stays: by it a former copy is known again.
const RELEASED_ANNOTATIONS: [&str; 13] = [
    annotations::FENCING,
    annotations::FLEET,
    annotations::LEFT_TO_AUTOSCALER,
    annotations::MANAGED_ANNOTATIONS,
    annotations::MANAGED_LABELS,
    annotations::RESOURCE_BINDING_NAMESPACE,
    annotations::RESOURCE_BINDING_NAME,
    annotations::STOPPED,
    annotations::TEMPLATE_GENERATION,
    annotations::WORK_NAME,
    annotations::WORK_NAMESPACE,
    annotations::CLUSTER_RESOURCE_BINDING_NAME,
    annotations::CONFLICT_RESOLUTION,
];
/// Prefixes of the marks of the policy that claimed the template; they have no meaning once the
/// object is released.
const CLAIM_PREFIXES: [&str; 2] = [
    "propagationpolicy.karmada.io/",
    "clusterpropagationpolicy.karmada.io/",
];

/// The Work that an object comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'a> {
    /// Namespace of the Work.
    pub namespace: &'a str,
    /// Name of the Work.
    pub name: &'a str,
}

/// Returns whether the object carries the label of managed objects.
pub fn is_managed(object: &Value) -> bool {
    label(object, labels::MANAGED) == Some("true")
}

/// Returns whether an object in the member has the marks of another one, which controls it:
/// operators copy labels and annotations to what they make. The Work of a template is named by the
/// object that it is for.
pub fn has_copied_marks(kind: &str, object: &Value) -> bool {
    let metadata = &object["metadata"];
    let owners = metadata["ownerReferences"].as_array();
    let is_controlled = owners
        .into_iter()
        .flatten()
        .any(|it| it["controller"] == true);
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    let own = || names::work(kind, text("name"), text("namespace"));
    is_controlled && annotation(object, annotations::WORK_NAME) != Some(&*own())
}

/// Returns whether an object that exists in the member and that a desired state names is the
/// fleet's: it is managed, and the marks are its own. Those of the same Work always are.
pub fn is_managed_for(desired: &Value, observed: &Value) -> bool {
    let work = annotation(desired, annotations::WORK_NAME);
    let is_same = work.is_some() && annotation(observed, annotations::WORK_NAME) == work;
    let kind = desired["kind"].as_str().unwrap_or_default();
    is_managed(observed) && (is_same || !has_copied_marks(kind, observed))
}

/// Returns whether an object that exists in the member may be changed for this desired state.
pub fn may_update(desired: &Value, observed: &Value) -> bool {
    is_managed_for(desired, observed)
        || is_former_copy(desired, observed)
        || annotation(desired, annotations::CONFLICT_RESOLUTION) == Some("overwrite")
}

/// Returns whether an object was made from the template of a desired state and then released to the
/// member, and is no other Work's by now.
fn is_former_copy(desired: &Value, observed: &Value) -> bool {
    let uid = annotation(desired, annotations::TEMPLATE_UID).filter(|uid| !uid.is_empty());
    let marks = [annotations::WORK_NAMESPACE, annotations::WORK_NAME];
    uid.is_some()
        && uid == annotation(observed, annotations::TEMPLATE_UID)
        && marks.iter().all(|key| annotation(observed, key).is_none())
}

/// Returns whether an object in the member may be deleted (or released) on behalf of a Work: it is
/// managed, and no other Work has taken it over in the meantime. Karmada checks the label only, so
/// that a stale Work deletes its successor's object.
pub fn may_remove(observed: &Value, work: Origin<'_>) -> bool {
    let names = |key, work| annotation(observed, key).is_none_or(|found| found == work);
    is_managed(observed)
        && names(annotations::WORK_NAMESPACE, work.namespace)
        && names(annotations::WORK_NAME, work.name)
}

/// Returns the id of the fleet in the annotation of an object.
pub fn fleet(observed: &Value) -> Option<&str> {
    annotation(observed, annotations::FLEET)
}

/// Returns the Work that an object in the member comes from.
pub fn work_of(observed: &Value) -> Option<Origin<'_>> {
    if !is_managed(observed) {
        return None;
    }
    Some(Origin {
        namespace: annotation(observed, annotations::WORK_NAMESPACE)?,
        name: annotation(observed, annotations::WORK_NAME)?,
    })
}

/// Returns whether an object is data whose role follows a workload.
pub fn has_role(object: &Value) -> bool {
    annotation(object, annotations::DATA_ROLE).is_some()
}

/// Returns the merge patch that releases an object to the member: it starts the object again if the
/// agent has stopped it, and removes the marks of the fleet; `None` when there is nothing to do.
/// Data stays demoted: another cluster may have its role.
pub fn released(observed: &Value) -> Option<Value> {
    let marks = without_marks(observed);
    let undo = fencing::release(observed, &json!({}), |_| true);
    let Some(mut patch) = undo.filter(|_| !has_role(observed)) else {
        return marks;
    };
    for field in ["labels", "annotations"] {
        let gone = marks.as_ref().map(|marks| &marks["metadata"][field]);
        let Some(gone) = gone.and_then(Value::as_object) else {
            continue;
        };
        let changed = object_in(&mut patch["metadata"], field);
        for (key, value) in gone {
            changed[key] = value.clone();
        }
    }
    Some(patch)
}

/// Returns the merge patch that removes the marks of the fleet; `None` when there are none.
fn without_marks(observed: &Value) -> Option<Value> {
    let claimed = |key: &str| CLAIM_PREFIXES.iter().any(|prefix| key.starts_with(prefix));
    removal(observed, |field, key| {
        let released = match field {
            "labels" => &RELEASED_LABELS[..],
            _ => &RELEASED_ANNOTATIONS[..],
        };
        released.contains(&key) || claimed(key)
    })
}

/// Returns the merge patch that removes labels and annotations which Karmada's agent had set and
/// which are no longer wanted. Objects of Karmada's agent list these in an annotation; a
/// server-side apply removes this agent's own.
pub fn leftovers(desired: &Value, observed: &Value) -> Option<Value> {
    removal(observed, |field, key| {
        let list = match field {
            "labels" => annotations::MANAGED_LABELS,
            _ => annotations::MANAGED_ANNOTATIONS,
        };
        let mut listed = annotation(observed, list).unwrap_or_default().split(',');
        listed.any(|it| it == key) && value(desired, field, key).is_none()
    })
}

/// Returns an annotation of an object.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    value(object, "annotations", key)
}

fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    value(object, "labels", key)
}

fn value<'a>(object: &'a Value, field: &str, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get(field)?.get(key)?.as_str()
}

/// Returns the merge patch that removes labels and annotations, by their field and key; `None` when
/// there is nothing to remove.
fn removal(object: &Value, is_unwanted: impl Fn(&str, &str) -> bool) -> Option<Value> {
    let mut metadata = Map::new();
    for field in ["labels", "annotations"] {
        let held = object["metadata"][field].as_object();
        let gone = held.into_iter().flat_map(Map::keys);
        let gone = gone.filter(|key| is_unwanted(field, key));
        let gone: Map<_, _> = gone.map(|key| (key.clone(), Value::Null)).collect();
        if !gone.is_empty() {
            metadata.insert(field.into(), Value::Object(gone));
        }
    }
    (!metadata.is_empty()).then(|| json!({ "metadata": metadata }))
}

#[cfg(test)]
mod tests {
    use muster_shared::merge;

    use super::*;
    use crate::testing;

    fn object(marks: &Value, notes: &Value) -> Value {
        json!({"metadata": {"labels": marks, "annotations": notes}})
    }

    #[test]
    fn an_unmanaged_object_is_changed_only_when_the_policy_says_overwrite() {
        let managed = object(&json!({labels::MANAGED: "true"}), &json!({}));
        let foreign = object(&json!({}), &json!({}));
        let says = |word: &str| json!({annotations::CONFLICT_RESOLUTION: word});
        for (marks, on_managed, on_foreign) in [
            (json!({}), true, false),
            (says("abort"), true, false),
            (says("overwrite"), true, true),
        ] {
            let desired = object(&json!({}), &marks);
            assert_eq!(may_update(&desired, &managed), on_managed, "{marks}");
            assert_eq!(may_update(&desired, &foreign), on_foreign, "{marks}");
        }
    }

    #[test]
    fn an_object_with_the_marks_of_its_owner_is_not_taken_over_as_the_fleets() {
        let work = names::work("Secret", "tls", "shop");
        let owner = |controls: bool| json!([{"kind": "Thing", "uid": "u", "controller": controls}]);
        for (what, wanted, marked, owners, expected) in [
            ("made by a Work", &*work, &*work, json!([]), true),
            ("of another Work", "mine", "other", json!([]), true),
            ("and controlled", &*work, &*work, owner(true), true),
            ("of a Work made by hand", "mine", "mine", owner(true), true),
            ("with copied marks", &*work, "thing-5d", owner(true), false),
            (
                "of an owner without control",
                &*work,
                "thing-5d",
                owner(false),
                true,
            ),
        ] {
            let marks = json!({labels::MANAGED: "true"});
            let mut observed = object(&marks, &json!({annotations::WORK_NAME: marked}));
            observed["metadata"]["name"] = json!("tls");
            observed["metadata"]["namespace"] = json!("shop");
            observed["metadata"]["ownerReferences"] = owners;
            let mut desired = object(&json!({}), &json!({annotations::WORK_NAME: wanted}));
            desired["kind"] = json!("Secret");
            assert_eq!(may_update(&desired, &observed), expected, "{what}");
        }
    }

    #[test]
    fn a_copy_of_the_same_template_that_was_released_is_taken_back() {
        let none = json!({});
        let copy = |uid: &str, mark: &str| {
            object(&none, &json!({annotations::TEMPLATE_UID: uid, mark: "x"}))
        };
        let of_another = copy("u", annotations::WORK_NAME);
        for (what, wanted, found, expected) in [
            ("released", "u", copy("u", "note"), true),
            ("another template's", "u", copy("v", "note"), false),
            ("of another Work", "u", of_another, false),
            ("never the fleet's", "", object(&none, &none), false),
            ("of no template", "", copy("", "note"), false),
        ] {
            let desired = object(
                &json!({}),
                &json!({annotations::TEMPLATE_UID: wanted, annotations::CONFLICT_RESOLUTION: "abort"}),
            );
            assert_eq!(may_update(&desired, &found), expected, "{what}");
        }
    }

    #[test]
    fn an_object_is_removed_only_by_the_work_it_comes_from() {
        let managed = json!({labels::MANAGED: "true"});
        let work = Origin {
            namespace: "es",
            name: "a",
        };
        let none = json!({});
        let of = |namespace: &str, name: &str| {
            let (within, work) = (annotations::WORK_NAMESPACE, annotations::WORK_NAME);
            json!({within: namespace, work: name})
        };
        for (marks, notes, expected) in [
            (&none, of("es", "a"), false),
            (&managed, of("es", "a"), true),
            (&managed, of("es", "b"), false),
            (&managed, of("other", "a"), false),
            (&managed, none.clone(), true),
        ] {
            let observed = object(marks, &notes);
            assert_eq!(may_remove(&observed, work), expected, "{notes}");
        }
    }

    #[test]
    fn a_released_object_keeps_only_what_is_the_members_own() {
        let observed = object(
            &json!({labels::MANAGED: "true", "app": "web", "propagationpolicy.karmada.io/permanent-id": "1"}),
            &json!({annotations::WORK_NAME: "a", annotations::FLEET: "f", annotations::TEMPLATE_UID: "u", "note": "x"}),
        );
        assert_eq!(
            released(&observed),
            Some(json!({"metadata": {
                "labels": {labels::MANAGED: null, "propagationpolicy.karmada.io/permanent-id": null},
                "annotations": {annotations::FLEET: null, annotations::WORK_NAME: null}}}))
        );
        assert_eq!(
            released(&object(&json!({"app": "web"}), &Value::Null)),
            None
        );
    }

    #[test]
    fn a_released_object_that_was_stopped_runs_again_and_is_never_stopped_later() {
        let mut object = object(
            &json!({labels::MANAGED: "true", "app": "web"}),
            &json!({annotations::WORK_NAME: "a"}),
        );
        object["spec"] = json!({"replicas": 3});
        let order = json!({"spec": {"replicas": 0}});
        testing::fence(&mut object, Some(order.clone()));
        for is_stopped in [false, true] {
            let mut now = object.clone();
            if is_stopped {
                testing::stop(&mut now, &order);
            }
            let patch = released(&now).unwrap();
            merge::apply(&mut now, &patch);
            let expected = json!({"metadata": {"labels": {"app": "web"}, "annotations": {}},
                "spec": {"replicas": 3}});
            assert_eq!(now, expected, "{is_stopped}");
        }
    }

    #[test]
    fn data_that_was_demoted_during_a_cut_stays_demoted_when_it_is_released() {
        let mut now = object(
            &json!({labels::MANAGED: "true"}),
            &json!({annotations::DATA_ROLE: "1"}),
        );
        now["spec"] = json!({"state": "primary"});
        let order = json!({"spec": {"state": "secondary"}});
        testing::stop(&mut now, &order);
        let patch = released(&now).unwrap();
        merge::apply(&mut now, &patch);
        assert_eq!(fencing::stopped(&now), None);
        assert_eq!(now["spec"], order["spec"]);
    }

    #[test]
    fn what_karmadas_agent_had_set_and_nobody_wants_any_more_goes() {
        let observed = object(
            &json!({"old": "1", "kept": "1", "theirs": "1"}),
            &json!({annotations::MANAGED_LABELS: "kept,old"}),
        );
        let desired = object(&json!({"kept": "1"}), &json!({}));
        assert_eq!(
            leftovers(&desired, &observed),
            Some(json!({"metadata": {"labels": {"old": null}}}))
        );
    }
}
