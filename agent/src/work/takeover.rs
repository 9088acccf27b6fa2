//! Takes objects over from Karmada's agent, and from whoever wrote what is to be overwritten.
//!
//! Karmada's agent writes whole objects, which records its fields as updates. The server-side apply
//! of this agent would own the same fields a second time, and a field that the template drops would
//! stay in the member. The ownership record is therefore rewritten first, as `kubectl` does when it
//! changes from client-side to server-side apply: Karmada's update becomes this agent's apply.

use serde_json::{Map, Value, json};

use super::drift::{Identity, scaled_field};
use super::managed_fields::{entries, is_applied, is_of_subresource};
use super::member::{Clash, FIELD_MANAGER, Obstacle};

/// Field managers of Karmada's processes in members: the names of the binaries, as client-go
/// chooses them. This agent's own writes whole objects where an apply is refused.
const PREDECESSORS: [&str; 3] = ["karmada-agent", "karmada-controller-manager", FIELD_MANAGER];

/// Returns the merge patch that changes Karmada's record in `managedFields` to this agent's; `None`
/// when there is none, or when this agent has applied the object already.
pub fn takeover(observed: &Value) -> Option<Value> {
    let entries = entries(observed);
    if entries.iter().any(is_applied) {
        return None;
    }
    // Of several records the last one has all fields of Karmada's last write. This agent's own may
    // be of patches, and has all only where there is none of Karmada's.
    let is_karmadas = |entry: &Value| is_predecessor(entry) && entry["manager"] != FIELD_MANAGER;
    let karmadas = entries.iter().rposition(is_karmadas);
    let last = karmadas.or_else(|| entries.iter().rposition(is_predecessor))?;
    let mut rewritten = Vec::with_capacity(entries.len());
    for (position, entry) in entries.iter().enumerate() {
        if position == last {
            let mut entry = entry.clone();
            entry["manager"] = json!(FIELD_MANAGER);
            entry["operation"] = json!("Apply");
            rewritten.push(entry);
        } else if !is_predecessor(entry) {
            rewritten.push(entry.clone());
        }
    }
    with_record(observed, &rewritten)
}

/// Returns the merge patch that replaces the whole `managedFields` of an object in the version that
/// was read.
fn with_record(observed: &Value, entries: &[Value]) -> Option<Value> {
    let version = observed.pointer("/metadata/resourceVersion")?;
    Some(json!({"metadata": {"managedFields": entries, "resourceVersion": version}}))
}

/// Returns the fields that this agent applied, and the entries of all other writes. An API server
/// keeps one entry of a writer that applies, whatever its version.
fn applied_and_others(entries: &[Value]) -> (Value, Vec<&Value>) {
    let (applied, others): (Vec<_>, Vec<_>) = entries.iter().partition(|it| is_applied(it));
    let mut fields = json!({});
    for entry in applied {
        add(&mut fields, &entry["fieldsV1"]);
    }
    (fields, others)
}

/// Returns the merge patch that leaves of the `managedFields` of an object some entries, and the
/// fields that this agent applied.
fn with_applied(observed: &Value, fields: &Value, mut entries: Vec<Value>) -> Option<Value> {
    entries.push(json!({
        "manager": FIELD_MANAGER, "operation": "Apply", "apiVersion": observed["apiVersion"],
        "fieldsType": "FieldsV1", "fieldsV1": fields,
    }));
    with_record(observed, &entries)
}

/// Field managers of a cluster's own controllers, whose fields stay theirs: the volume of a claim,
/// for example.
const CONTROLLERS: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

/// Returns the merge patch that makes the fields of others in an object this agent's, so that the
/// next apply removes those that the template lacks; `None` when others own none. Metadata and
/// subresources stay with their writers. If an applied object and its clashes are given, all other
/// fields do as well.
pub fn adoption(observed: &Value, clashes: Option<(&Value, &[Clash])>) -> Option<Value> {
    let entries = entries(observed);
    let (mut fields, unapplied) = applied_and_others(entries);
    let is_left = |entry: &Value| {
        is_of_subresource(entry)
            || entry["apiVersion"] != observed["apiVersion"]
            || CONTROLLERS.iter().any(|name| entry["manager"] == *name)
    };
    let mut others = json!({});
    for entry in unapplied.iter().filter(|_| clashes.is_some()) {
        add(&mut others, &entry["fieldsV1"]);
    }
    let (mut rest, mut is_any) = (Vec::with_capacity(entries.len()), false);
    for mut entry in unapplied.into_iter().cloned() {
        if is_left(&entry) {
            rest.push(entry);
            continue;
        }
        let Some(owned) = entry["fieldsV1"].as_object_mut() else {
            continue;
        };
        let taken: Vec<_> = if let Some((applied, clashes)) = clashes {
            let place = Place {
                applied,
                observed,
                others: &others,
            };
            let parts = clashes.iter();
            let parts = parts.map(|it| take(owned, place, &it.path, &it.obstacle));
            parts.collect()
        } else {
            let metadata = owned.remove_entry("f:metadata").into_iter();
            vec![std::mem::replace(owned, metadata.collect())]
        };
        if !owned.is_empty() {
            rest.push(entry);
        }
        for taken in taken.into_iter().filter(|it| !it.is_empty()) {
            is_any = true;
            add(&mut fields, &Value::Object(taken));
        }
    }
    if !is_any {
        return None;
    }
    with_applied(observed, &fields, rest)
}

/// Returns the merge patch that makes what this agent wrote where an apply was refused a part of
/// what it applied, so that the next apply removes what is wanted no more; `None` if all of it is
/// wanted. The number of an object that is scaled stays apart: it may have been given back after a
/// stop.
pub fn folded(observed: &Value, wanted: &Value) -> Option<Value> {
    let entries = entries(observed);
    let (mut fields, unapplied) = applied_and_others(entries);
    if unapplied.len() == entries.len() {
        return None;
    }
    let number = scaled_field(wanted, observed).map(|it| format!("f:{it}"));
    let (mut rest, mut is_any) = (Vec::with_capacity(entries.len()), false);
    for mut entry in unapplied.into_iter().cloned() {
        let is_own = entry["manager"] == FIELD_MANAGER
            && entry["apiVersion"] == observed["apiVersion"]
            && !is_of_subresource(&entry);
        let mut owned = entry["fieldsV1"].clone();
        let kept = number.as_deref().and_then(|it| without(&mut owned, it));
        if !is_own || !exceeds(&owned, wanted) {
            rest.push(entry);
            continue;
        }
        is_any = true;
        add(&mut fields, &owned);
        if let Some(kept) = kept {
            entry["fieldsV1"] = kept;
            rest.push(entry);
        }
    }
    if !is_any {
        return None;
    }
    with_applied(observed, &fields, rest)
}

/// Takes a field of the spec out of a set of fields; returns it as a set.
fn without(fields: &mut Value, name: &str) -> Option<Value> {
    let spec = fields.get_mut("f:spec")?.as_object_mut()?;
    let below = spec.remove(name)?;
    if spec.is_empty() {
        fields.as_object_mut()?.remove("f:spec");
    }
    Some(json!({"f:spec": {(name): below}}))
}

/// Returns whether a set of fields names one that an object lacks.
fn exceeds(fields: &Value, object: &Value) -> bool {
    let mut fields = fields.as_object().into_iter().flatten();
    fields.any(|(name, below)| {
        let held = named(object, name);
        name != "." && (held.is_null() || exceeds(below, held))
    })
}

/// Returns the merge patch that replaces an API version which is not served any more, in the record
/// of fields of an object, by the version in which the object was read; `None` when no entry names
/// the former one.
pub fn without_version(observed: &Value, gone: &str) -> Option<Value> {
    let entries = entries(observed);
    let mut rewritten: Vec<Value> = Vec::with_capacity(entries.len());
    let mut is_any = false;
    for mut entry in entries.iter().cloned() {
        if entry["apiVersion"] == gone {
            entry["apiVersion"] = observed["apiVersion"].clone();
            is_any = true;
        }
        // Of two entries of one writer in one version an API server keeps only the last.
        match rewritten.iter_mut().find(|it| is_twin(it, &entry)) {
            Some(twin) => add(&mut twin["fieldsV1"], &entry["fieldsV1"]),
            None => rewritten.push(entry),
        }
    }
    with_record(observed, &rewritten).filter(|_| is_any)
}

/// Returns whether two entries of a record of fields are one writer's, in one version.
fn is_twin(one: &Value, other: &Value) -> bool {
    let mut keys = ["manager", "operation", "apiVersion", "subresource"].into_iter();
    keys.all(|key| one[key] == other[key])
}

/// Returns a merge patch with what is wanted that takes out what this agent wrote before and what
/// is wanted no more: a merge patch leaves what it does not name, unlike a server-side apply.
pub fn without_dropped(mut wanted: Value, observed: &Value) -> Value {
    for entry in entries(observed) {
        let is_own = entry["manager"] == FIELD_MANAGER;
        if is_own && !is_of_subresource(entry) {
            take_out(&mut wanted, &entry["fieldsV1"], observed);
        }
    }
    wanted
}

/// Has a merge patch remove those of a set of fields that are there and that it does not name.
fn take_out(patch: &mut Value, owned: &Value, observed: &Value) {
    let (Some(patch), Some(owned)) = (patch.as_object_mut(), owned.as_object()) else {
        return;
    };
    for (name, below) in owned {
        let Some(name) = name.strip_prefix("f:") else {
            continue;
        };
        let held = &observed[name];
        if held.is_null() {
            continue;
        }
        match patch.get_mut(name) {
            Some(named) => take_out(named, below, held),
            None => _ = patch.insert(name.to_owned(), Value::Null),
        }
    }
}

/// Removes from a set of fields those at the end of a path that are an obstacle to the applied
/// object, and returns them as a set. Names below which no field is left go as well.
fn take(
    fields: &mut Map<String, Value>,
    place: Place<'_>,
    path: &[String],
    obstacle: &Obstacle,
) -> Map<String, Value> {
    let mut taken = Map::new();
    for (name, mut below) in std::mem::take(fields) {
        match place.step(&name, path, obstacle) {
            Step::Take => _ = taken.insert(name, below),
            Step::Leave => _ = fields.insert(name, below),
            Step::Into(place, path) => {
                let inner = below.as_object_mut();
                let found = inner.map(|it| take(it, place, path, obstacle));
                let found = found.unwrap_or_default();
                let is_left = found.is_empty() || below != json!({});
                if !found.is_empty() {
                    taken.insert(name.clone(), Value::Object(found));
                }
                if is_left {
                    fields.insert(name, below);
                }
            }
        }
    }
    taken
}

/// Decision about one name in a set of fields of others.
enum Step<'a> {
    /// Leaves the name, with all below it, to its owner.
    Leave,
    /// Takes the name, with all below it, from its owner.
    Take,
    /// Decides about each name below this one, with the rest of the path.
    Into(Place<'a>, &'a [String]),
}

/// Place in an object.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// Value of the applied object there, or null.
    applied: &'a Value,
    /// Value of the member there, or null.
    observed: &'a Value,
    /// Set of fields that others own below the place, or null.
    others: &'a Value,
}

impl<'a> Place<'a> {
    /// Returns the place below this one that a set of fields names.
    fn below(self, name: &str) -> Self {
        Self {
            applied: named(self.applied, name),
            observed: named(self.observed, name),
            others: &self.others[name],
        }
    }

    /// Returns the decision about a name in the set of fields that one of the others owns here.
    fn step(self, name: &str, path: &'a [String], obstacle: &Obstacle) -> Step<'a> {
        let below = self.below(name);
        let is_applied = !below.applied.is_null();
        if let Value::Array(entries) = self.applied {
            let is_end = path.is_empty() && name != ".";
            return if is_applied {
                Step::Into(below, path)
            } else if is_end && below.blocks(entries, obstacle) {
                Step::Take
            } else {
                Step::Leave
            };
        }
        let Some(name) = name.strip_prefix("f:") else {
            return Step::Leave;
        };
        let is_excluded = || match obstacle {
            Obstacle::Others => true,
            Obstacle::Field(field) => field == name,
            Obstacle::Entries(_) | Obstacle::Rest(_) => false,
        };
        let is_rest =
            |path| matches!(obstacle, Obstacle::Rest(field) if below.lacks(path, field.as_deref()));
        match path.split_first() {
            Some((first, _)) if first != name => Step::Leave,
            Some((_, rest)) if is_applied => Step::Into(below, rest),
            Some((_, rest)) if is_rest(rest) => Step::Take,
            None if !is_applied && is_excluded() => Step::Take,
            _ => Step::Leave,
        }
    }

    /// Returns whether this entry, which the applied list lacks, is an obstacle to that list.
    fn blocks(self, applied: &[Value], obstacle: &Obstacle) -> bool {
        match obstacle {
            Obstacle::Entries(None) => true,
            Obstacle::Entries(Some(field)) => {
                let held = &self.observed[field];
                applied.iter().any(|it| it[field] == *held)
            }
            Obstacle::Rest(field) => self.lacks(&[], field.as_deref()),
            Obstacle::Field(_) | Obstacle::Others => false,
        }
    }

    /// Returns whether others own no field of this name below a path; true without a name.
    fn lacks(self, path: &[String], field: Option<&str>) -> bool {
        let mut held = self.others;
        for name in path.iter().map(String::as_str).chain(field) {
            held = &held[format!("f:{name}")];
        }
        field.is_none() || held.is_null()
    }
}

/// Returns the field of an object, or the entry of a list, that a name in a set of fields stands
/// for; null where there is none.
fn named<'a>(value: &'a Value, name: &str) -> &'a Value {
    match (value, name.strip_prefix("f:")) {
        (Value::Array(entries), _) => find(entries, name).unwrap_or(&Value::Null),
        (value, Some(name)) => &value[name],
        (_, None) => &Value::Null,
    }
}

/// Returns the entry of a list that a name in a set of fields stands for. A key that the entry
/// lacks is taken for a default that the server filled in.
fn find<'a>(entries: &'a [Value], name: &str) -> Option<&'a Value> {
    let keys = match Identity::read(name)? {
        Identity::Keys(keys) => keys,
        Identity::Value(value) => return entries.iter().find(|it| **it == value),
    };
    let is_it = |entry: &Value, is_open: bool| {
        let mut keys = keys.iter();
        keys.all(|(key, value)| entry[key] == *value || is_open && entry[key].is_null())
    };
    let found = entries.iter().find(|it| is_it(it, false));
    found.or_else(|| entries.iter().find(|it| is_it(it, true)))
}

/// Adds a set of fields to another one.
fn add(to: &mut Value, fields: &Value) {
    for (name, below) in fields.as_object().into_iter().flatten() {
        let held = &mut to[name];
        if held.is_null() {
            held.clone_from(below);
        } else {
            add(held, below);
        }
    }
}

fn is_predecessor(entry: &Value) -> bool {
    PREDECESSORS.iter().any(|name| entry["manager"] == *name)
        && entry["operation"] == "Update"
        && !is_of_subresource(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, field: &str) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {field: {}}}})
    }

    fn observed(entries: &[Value]) -> Value {
        json!({"metadata": {"resourceVersion": "7", "managedFields": entries}})
    }

    #[test]
    fn karmadas_update_becomes_our_apply_and_the_rest_stays() {
        let kubelet = entry("kubelet", "Update", "f:x");
        let before = observed(&[entry("karmada-agent", "Update", "f:k"), kubelet.clone()]);
        assert_eq!(
            takeover(&before),
            Some(json!({"metadata": {"resourceVersion": "7",
                "managedFields": [entry(FIELD_MANAGER, "Apply", "f:k"), kubelet]}}))
        );
    }

    #[test]
    fn of_two_predecessors_the_last_counts() {
        let before = observed(&[
            entry("karmada-controller-manager", "Update", "f:old"),
            entry("karmada-agent", "Update", "f:k"),
        ]);
        let patch = takeover(&before).unwrap();
        assert_eq!(
            patch["metadata"]["managedFields"],
            json!([entry(FIELD_MANAGER, "Apply", "f:k")])
        );
    }

    #[test]
    fn an_object_that_is_ours_or_was_never_karmadas_is_left_alone() {
        for entries in [
            vec![],
            vec![entry("kubectl", "Update", "f:k")],
            vec![
                entry(FIELD_MANAGER, "Apply", "f:k"),
                entry("karmada-agent", "Update", "f:k"),
            ],
        ] {
            assert_eq!(takeover(&observed(&entries)), None);
        }
    }

    #[test]
    fn what_karmadas_agent_wrote_is_taken_over_although_this_one_has_patched_the_object_since() {
        // The agent has started an object again that a fence had stopped, and applied nothing yet.
        let before = observed(&[
            entry("karmada-agent", "Update", "f:k"),
            entry(FIELD_MANAGER, "Update", "f:replicas"),
        ]);
        let patch = takeover(&before).unwrap();
        let after = patch["metadata"]["managedFields"].as_array().unwrap();
        let applied = after.iter().find(|it| it["operation"] == "Apply").unwrap();
        assert_eq!(applied["fieldsV1"]["f:data"]["f:k"], json!({}));
    }

    #[test]
    fn what_others_wrote_is_adopted_but_for_metadata_subresources_and_what_the_cluster_itself_wrote()
     {
        let mut kubectl = entry("kubectl", "Update", "f:k");
        kubectl["fieldsV1"]["f:metadata"] = json!({"f:labels": {"f:a": {}}});
        let mut scale = entry("autoscaler", "Update", "f:replicas");
        scale["subresource"] = json!("scale");
        let volume = entry("kube-controller-manager", "Update", "f:volumeName");
        let ours = entry(FIELD_MANAGER, "Apply", "f:x");
        let mut before = observed(&[kubectl.clone(), scale.clone(), volume.clone(), ours]);
        before["apiVersion"] = json!("v1");
        kubectl["fieldsV1"] = json!({"f:metadata": {"f:labels": {"f:a": {}}}});
        let mut adopted = entry(FIELD_MANAGER, "Apply", "f:k");
        adopted["fieldsV1"]["f:data"]["f:x"] = json!({});
        let mut after = before.clone();
        after["metadata"]["managedFields"] = json!([kubectl, scale, volume, adopted]);
        let patch = adoption(&before, None).unwrap();
        assert_eq!(patch["metadata"], after["metadata"]);
        assert_eq!(adoption(&after, None), None, "nothing of others is left");
    }

    #[test]
    fn what_was_written_without_an_apply_is_a_part_of_what_was_applied_once_some_is_dropped() {
        let (web, side) = ("k:{\"name\":\"web\"}", "k:{\"name\":\"side\"}");
        let image = |name: &str| json!({(name): {".": {}, "f:image": {}}});
        let entry = |operation: &str, spec: Value| {
            json!({"manager": FIELD_MANAGER, "operation": operation, "apiVersion": "apps/v1",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": spec}})
        };
        let applied = entry("Apply", json!({"f:containers": image(web)}));
        let replicas = json!({"f:replicas": {}});
        let mut written = replicas.clone();
        written["f:containers"] = image(side);
        let mut before = observed(&[applied.clone(), entry("Update", written)]);
        before["apiVersion"] = json!("apps/v1");
        let wanted = |names: &[&str]| {
            let containers = names.iter().map(|name| json!({"name": name, "image": "a"}));
            let containers: Vec<_> = containers.collect();
            let spec = json!({"containers": containers});
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec})
        };
        assert_eq!(folded(&before, &wanted(&["web", "side"])), None);
        let patch = folded(&before, &wanted(&["web"])).unwrap();
        let mut both = image(web);
        add(&mut both, &image(side));
        let both = entry("Apply", json!({"f:containers": both}));
        let expected = json!([entry("Update", replicas.clone()), both]);
        assert_eq!(patch["metadata"]["managedFields"], expected);
        before["metadata"]["managedFields"] = json!([applied, entry("Update", replicas)]);
        assert_eq!(folded(&before, &wanted(&["web"])), None);
    }

    /// Returns what of a set of fields below `.spec` is adopted because of a clash, and what stays.
    fn adopted(theirs: &[Value], (applied, held): (&Value, &Value), clash: Clash) -> [Value; 2] {
        let entries = theirs.iter().map(|fields| {
            json!({"manager": "kubectl-set", "operation": "Update", "apiVersion": "v1",
                "fieldsV1": {"f:spec": fields}})
        });
        let entries: Vec<_> = entries.collect();
        let observed = json!({"apiVersion": "v1", "spec": held,
            "metadata": {"resourceVersion": "7", "managedFields": entries}});
        let applied = json!({"spec": applied});
        let patch = adoption(&observed, Some((&applied, &[clash]))).unwrap_or_default();
        let (mut ours, mut left) = (json!({}), json!({}));
        let after = &patch["metadata"]["managedFields"];
        for entry in after.as_array().into_iter().flatten() {
            let to = if is_applied(entry) {
                &mut ours
            } else {
                &mut left
            };
            add(to, &entry["fieldsV1"]["f:spec"]);
        }
        [ours, left]
    }

    /// Returns a clash at a place below `.spec`.
    fn clash(path: &[&str], obstacle: Obstacle) -> Clash {
        let path = ["spec"].iter().chain(path);
        let path = path.map(|&it| it.to_owned()).collect();
        Clash { path, obstacle }
    }

    #[test]
    fn what_this_agent_applied_in_another_version_stays_its_own_beside_what_is_adopted() {
        let mut ours = entry(FIELD_MANAGER, "Apply", "f:x");
        ours["apiVersion"] = json!("v1beta1");
        let mut before = observed(&[ours, entry("kubectl", "Update", "f:k")]);
        before["apiVersion"] = json!("v1");
        let mut after = entry(FIELD_MANAGER, "Apply", "f:k");
        after["fieldsV1"]["f:data"]["f:x"] = json!({});
        let patch = adoption(&before, None).unwrap();
        assert_eq!(patch["metadata"]["managedFields"], json!([after]));
    }

    #[test]
    fn whose_fields_are_whose_stays_as_it_was_in_a_record_without_a_version_that_is_gone() {
        let entry = |manager: &str, version: &str, field: &str| {
            let mut entry = entry(manager, "Update", field);
            entry["apiVersion"] = json!(version);
            entry
        };
        let other = entry("other", "v1", "f:o");
        let mut before = observed(&[
            entry("operator", "v1alpha1", "f:a"),
            other.clone(),
            entry("operator", "v1", "f:b"),
        ]);
        before["apiVersion"] = json!("v1");
        let mut both = entry("operator", "v1", "f:a");
        both["fieldsV1"]["f:data"]["f:b"] = json!({});
        let patch = without_version(&before, "v1alpha1").unwrap();
        assert_eq!(patch["metadata"]["managedFields"], json!([both, other]));
        assert_eq!(without_version(&before, "v2"), None);
    }

    #[test]
    fn of_what_others_wrote_that_alone_is_adopted_which_clashes_with_what_is_applied() {
        let (web, side) = ("k:{\"name\":\"web\"}", "k:{\"name\":\"side\"}");
        let [port, other_port] =
            [80, 81].map(|it| format!(r#"k:{{"containerPort":{it},"protocol":"TCP"}}"#));
        let probe = json!({"f:exec": {"f:command": {}}, "f:periodSeconds": {}, "f:grpc": {}});
        let theirs = json!({"f:paused": {}, "f:containers": {
            web: {
                "f:env": {
                    "k:{\"name\":\"A\"}": {"f:value": {}},
                    "k:{\"name\":\"RELOADED\"}": {".": {}, "f:name": {}, "f:value": {}},
                },
                "f:livenessProbe": probe,
                "f:ports": {other_port.clone(): {".": {}}, port: {"f:hostIP": {}}},
            },
            side: {
                "f:livenessProbe": probe,
                "f:ports": {other_port.clone(): {".": {}}},
                "f:env": {"k:{\"name\":\"A\"}": {"f:value": {}}},
            },
        }});
        let probe = json!({"httpGet": {"port": 80}, "periodSeconds": 5});
        let applied = json!({"containers": [
            {"name": "web", "env": [{"name": "A", "valueFrom": {}}], "livenessProbe": probe,
                "ports": [{"containerPort": 80}]},
            {"name": "side"},
        ]});
        for (path, obstacle, expected) in [
            (
                "env",
                Obstacle::Others,
                json!({"k:{\"name\":\"A\"}": {"f:value": {}}}),
            ),
            (
                "livenessProbe",
                Obstacle::Others,
                json!({"f:exec": {"f:command": {}}, "f:grpc": {}}),
            ),
            (
                "livenessProbe",
                Obstacle::Field("grpc".to_owned()),
                json!({"f:grpc": {}}),
            ),
            (
                "ports",
                Obstacle::Entries(None),
                json!({other_port: {".": {}}}),
            ),
            ("volumeMounts", Obstacle::Others, Value::Null),
        ] {
            let name = format!("f:{path}");
            let clash = clash(&["containers", path], obstacle);
            let what = format!("{clash:?}");
            let [ours, left] =
                adopted(std::slice::from_ref(&theirs), (&applied, &json!({})), clash);
            let ours = &ours["f:containers"];
            assert_eq!(ours[web][name], expected, "{what}");
            assert_eq!(ours[side], Value::Null, "{what}: that container is right");
            let is_left = left["f:paused"].is_object();
            assert_eq!(is_left, !expected.is_null(), "{what}");
        }
    }

    #[test]
    fn of_a_list_that_has_something_twice_others_keep_what_is_there_once() {
        let theirs =
            json!({"f:ports": {"k:{\"port\":8080}": {".": {}}, "k:{\"port\":9090}": {".": {}}}});
        let applied = json!({"ports": [{"name": "http", "port": 80}]});
        let held = json!({"ports": [
            {"name": "http", "port": 8080}, {"name": "metrics", "port": 9090},
        ]});
        let clash = clash(&["ports"], Obstacle::Entries(Some("name".to_owned())));
        let [ours, left] = adopted(&[theirs], (&applied, &held), clash);
        let port =
            |number: u16| json!({"f:ports": {(format!("k:{{\"port\":{number}}}")): {".": {}}}});
        assert_eq!([ours, left], [port(8080), port(9090)]);
    }

    #[test]
    fn of_containers_of_others_those_stay_that_are_whole() {
        let (old, proxy) = ("k:{\"name\":\"old\"}", "k:{\"name\":\"proxy\"}");
        let limits = json!({"f:resources": {"f:limits": {"f:cpu": {}}}});
        let theirs = [
            json!({"f:containers": {old: limits, proxy: limits}}),
            json!({"f:containers": {proxy: {".": {}, "f:name": {}, "f:image": {}}}}),
        ];
        let applied = json!({"containers": [{"name": "web", "image": "web:1"}]});
        let clash = clash(&["containers"], Obstacle::Rest(Some("image".to_owned())));
        let [ours, left] = adopted(&theirs, (&applied, &json!({})), clash);
        assert_eq!(ours, json!({"f:containers": {old: limits}}));
        assert_eq!(
            left["f:containers"][proxy]["f:resources"],
            limits["f:resources"]
        );
    }
}
