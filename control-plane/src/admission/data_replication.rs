//! Validation of `dataReplication` at admission: what its schema does not refuse.

use muster_shared::api::data_replication::{DataCheck, DataReference, DataReplication};
use muster_shared::api::policy::{PropagationSpec, SpreadFieldValue};

use super::fencing::forbid_old_copies;
use super::problem::Findings;

/// Names in a path.
const DEEPEST: usize = 10;

const AT: &str = "spec.dataReplication";

/// Adds what is wrong with the replicated data of a policy.
pub fn check(spec: &PropagationSpec, found: &mut Findings) {
    let Some(data) = &spec.data_replication else {
        return;
    };
    roles(data, found);
    gates(data, found);
    let workloads = workloads(data);
    for (at, workload) in &workloads {
        let mut selectors = spec.resource_selectors.iter();
        let is_selected = selectors.any(|it| {
            it.api_version == workload.api_version
                && it.kind == workload.kind
                && it
                    .name
                    .as_ref()
                    .is_none_or(|name| name.is_empty() || *name == workload.name)
        });
        if !is_selected {
            let detail =
                "must be a workload that spec.resourceSelectors select by its apiVersion and kind";
            found.invalid(at, &named(workload), detail);
        }
    }
    if data.roles.is_empty() {
        return;
    }
    let why = "spec.dataReplication.roles: the old copy would go on using the data";
    forbid_old_copies(spec, why, found);
    if !chooses_one(spec) {
        found.warn(
            format!("{AT}.roles"),
            "while a workload is in several clusters, no role changes and no new copy starts: choose one cluster by \
             spec.placement.spreadConstraints (spreadByField: cluster, maxGroups: 1)",
        );
    }
}

fn roles(data: &DataReplication, found: &mut Findings) {
    for (index, role) in data.roles.iter().enumerate() {
        let at = format!("{AT}.roles[{index}]");
        reference(&role.object, &format!("{at}.object"), found);
        reference(&role.follows, &format!("{at}.follows"), found);
        apart(&role.object, &role.follows, &format!("{at}.follows"), found);
        if data.roles[..index]
            .iter()
            .any(|it| it.object == role.object)
        {
            found.duplicate(format!("{at}.object"), &named(&role.object));
        }
        if data.roles.iter().any(|it| it.follows == role.object) {
            let detail = "must not be an object that another role follows";
            found.invalid(format!("{at}.object"), &named(&role.object), detail);
        }
        path(&role.path, "spec", &format!("{at}.path"), found);
        for (field, value) in [("primary", &role.primary), ("secondary", &role.secondary)] {
            if value.is_empty() {
                found.required(
                    format!("{at}.{field}"),
                    "the value of the field named by path",
                );
            }
        }
        if !role.primary.is_empty() && role.primary == role.secondary {
            let detail = "must be another value than primary";
            found.invalid(format!("{at}.secondary"), &role.secondary, detail);
        }
        statement(&role.promoted, &format!("{at}.promoted"), found);
        statement(&role.demoted, &format!("{at}.demoted"), found);
    }
}

fn gates(data: &DataReplication, found: &mut Findings) {
    for (index, gate) in data.gates.iter().enumerate() {
        let at = format!("{AT}.gates[{index}]");
        reference(&gate.workload, &format!("{at}.workload"), found);
        reference(&gate.object, &format!("{at}.object"), found);
        apart(&gate.object, &gate.workload, &format!("{at}.object"), found);
        statement(&gate.ready, &format!("{at}.ready"), found);
    }
}

/// Returns the workloads that roles and gates name, each with its field.
fn workloads(data: &DataReplication) -> Vec<(String, &DataReference)> {
    let roles = data.roles.iter().enumerate();
    let roles = roles.map(|(index, it)| (format!("{AT}.roles[{index}].follows"), &it.follows));
    let gates = data.gates.iter().enumerate();
    let gates = gates.map(|(index, it)| (format!("{AT}.gates[{index}].workload"), &it.workload));
    roles.chain(gates).collect()
}

/// Returns whether a placement chooses one cluster at most.
fn chooses_one(spec: &PropagationSpec) -> bool {
    let by_cluster =
        |field: Option<&SpreadFieldValue>| field.is_none_or(|it| *it == SpreadFieldValue::Cluster);
    let mut constraints = spec.placement.spread_constraints.iter();
    let affinity = spec.placement.cluster_affinity.as_ref();
    affinity.is_some_and(|it| it.cluster_names.len() == 1)
        || constraints.any(|it| {
            it.max_groups == 1
                && it.spread_by_label.is_none()
                && by_cluster(it.spread_by_field.as_ref())
        })
}

fn named(object: &DataReference) -> String {
    format!("{} {} {}", object.api_version, object.kind, object.name)
}

fn reference(object: &DataReference, at: &str, found: &mut Findings) {
    for (field, value) in [
        ("apiVersion", &object.api_version),
        ("kind", &object.kind),
        ("name", &object.name),
    ] {
        if value.is_empty() {
            found.required(format!("{at}.{field}"), "which template is meant");
        }
    }
}

fn apart(object: &DataReference, workload: &DataReference, at: &str, found: &mut Findings) {
    if object == workload && !object.name.is_empty() {
        found.invalid(
            at,
            &named(object),
            "must be another object than the workload itself",
        );
    }
}

fn path(text: &str, root: &str, at: &str, found: &mut Findings) {
    let is_name = |name: &str| {
        let is_part = |it: char| it.is_ascii_alphanumeric() || it == '-' || it == '_';
        !name.is_empty() && name.chars().all(is_part)
    };
    let names: Vec<_> = text.split('.').collect();
    let is_sound = names.len() > 1
        && names.len() <= DEEPEST
        && names[0] == root
        && names.iter().all(|it| is_name(it));
    if !is_sound {
        let detail = format!(
            "must be 2 to {DEEPEST} names of fields with dots between them that begin with {root}, such as {root}.state"
        );
        found.invalid(at, &text, &detail);
    }
}

fn statement(check: &DataCheck, at: &str, found: &mut Findings) {
    match (&check.condition, &check.path, &check.value) {
        (Some(condition), None, None) => {
            if condition.type_.is_empty() {
                found.required(format!("{at}.condition.type"), "the type of a condition");
            }
            let allowed = ["True", "False", "Unknown"];
            if !allowed.contains(&condition.status()) {
                found.unsupported(
                    format!("{at}.condition.status"),
                    condition.status(),
                    &allowed,
                );
            }
        }
        (Some(_), _, _) => found.forbidden(
            format!("{at}.condition"),
            "cannot be set together with path and value: only one of them is checked",
        ),
        (None, Some(text), Some(_)) => path(text, "status", &format!("{at}.path"), found),
        (None, Some(_), None) => {
            found.required(
                format!("{at}.value"),
                "the value of the field named by path",
            );
        }
        (None, None, _) => found.required(at, "either condition, or path and value"),
    }
}

#[cfg(test)]
mod tests {
    use muster_shared::merge;
    use serde_json::{Value, json};

    use super::*;

    fn workload() -> Value {
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"})
    }

    fn object(name: &str) -> Value {
        json!({"apiVersion": "r.example.com/v1", "kind": "Replication", "name": name})
    }

    fn role(edit: &Value) -> Value {
        let mut role = json!({
            "object": object("db"), "follows": workload(), "path": "spec.replicationState",
            "primary": "primary", "secondary": "secondary",
            "promoted": {"path": "status.state", "value": "Primary"},
            "demoted": {"path": "status.state", "value": "Secondary"},
        });
        merge::apply(&mut role, edit);
        role
    }

    fn gate(edit: &Value) -> Value {
        let mut gate = json!({
            "workload": workload(), "object": object("db"), "ready": {"condition": {"type": "Ready"}},
        });
        merge::apply(&mut gate, edit);
        gate
    }

    fn findings(data: &Value, more: &Value) -> Findings {
        let mut spec = json!({
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "StatefulSet"}],
            "placement": {"spreadConstraints": [{"spreadByField": "cluster", "maxGroups": 1}]},
            "dataReplication": data,
        });
        merge::apply(&mut spec, more);
        let mut found = Findings::default();
        check(&serde_json::from_value(spec).unwrap(), &mut found);
        found
    }

    fn problems(data: &Value, more: &Value) -> Vec<String> {
        let found = findings(data, more).problems.into_iter();
        found
            .map(|it| it.field.replace("spec.dataReplication.", ""))
            .collect()
    }

    #[test]
    fn what_a_role_says_is_refused_by_the_name_of_the_field() {
        let demoted = json!({"type": "Demoted", "status": "True"});
        let demoted = json!({"path": null, "value": null, "condition": demoted});
        let by_force = json!({"whenUnreachable": "Promote", "demotionSeconds": 1});
        let without_status = json!({"demoted": {"condition": {"type": "A"}}});
        for (edit, expected) in [
            (json!({}), &[][..]),
            (json!({"demoted": demoted}), &[]),
            (by_force, &[]),
            (json!({"object": {"name": ""}}), &["object.name"]),
            (json!({"object": workload()}), &["follows", "object"]),
            (json!({"follows": {"kind": "Deployment"}}), &["follows"]),
            (json!({"path": "status.state"}), &["path"]),
            (json!({"path": "spec"}), &["path"]),
            (json!({"path": "spec..state"}), &["path"]),
            (json!({"path": "spec.a[0]"}), &["path"]),
            (json!({"path": "spec.a.a.a.a.a.a.a.a.a.a"}), &["path"]),
            (json!({"primary": ""}), &["primary"]),
            (json!({"secondary": "primary"}), &["secondary"]),
            (json!({"promoted": {"path": "spec.s"}}), &["promoted.path"]),
            (json!({"promoted": {"value": null}}), &["promoted.value"]),
            (json!({"promoted": null}), &["promoted"]),
            (without_status, &["demoted.condition"]),
        ] {
            let found = problems(&json!({"roles": [role(&edit)]}), &json!({}));
            let expected: Vec<_> = expected.iter().map(|it| format!("roles[0].{it}")).collect();
            assert_eq!(found, expected, "{edit}");
        }
    }

    #[test]
    fn what_a_gate_says_is_refused_by_the_name_of_the_field() {
        let condition = |of: Value| json!({"ready": {"condition": of}});
        let status = &["ready.condition.status"];
        for (edit, expected) in [
            (json!({}), &[][..]),
            (json!({"timeoutSeconds": 86_400, "onTimeout": "Start"}), &[]),
            (json!({"workload": {"kind": "Unselected"}}), &["workload"]),
            (json!({"object": workload()}), &["object"]),
            (condition(json!({"type": ""})), &["ready.condition.type"]),
            (condition(json!({"status": "true"})), status),
            (json!({"ready": null}), &["ready"]),
        ] {
            let found = problems(&json!({"gates": [gate(&edit)]}), &json!({}));
            let expected: Vec<_> = expected.iter().map(|it| format!("gates[0].{it}")).collect();
            assert_eq!(found, expected, "{edit}");
        }
    }

    #[test]
    fn an_object_has_one_role_and_follows_none_that_follows() {
        let twice = json!({"roles": [role(&json!({})), role(&json!({"path": "spec.other"}))]});
        assert_eq!(problems(&twice, &json!({})), ["roles[1].object"]);
        let named = |name: &str| role(&json!({"object": {"name": name}}));
        let chain = json!({"roles": [named("a"), role(&json!({"object": workload(), "follows": object("b")}))]});
        let expected = ["roles[1].object", "roles[1].follows"];
        assert_eq!(problems(&chain, &json!({})), expected);
    }

    #[test]
    fn nothing_that_keeps_old_copies_goes_with_a_role_and_several_clusters_are_warned_of() {
        let data = json!({"roles": [role(&json!({}))]});
        let gates = json!({"gates": [gate(&json!({}))]});
        for (more, expected) in [
            (
                json!({"failover": {"cluster": {"purgeMode": "Never"}}}),
                "spec.failover.cluster.purgeMode",
            ),
            (
                json!({"failover": {"application": {"purgeMode": "Never"}}}),
                "spec.failover.application.purgeMode",
            ),
            (
                json!({"preserveResourcesOnDeletion": true}),
                "spec.preserveResourcesOnDeletion",
            ),
        ] {
            assert_eq!(problems(&data, &more), [expected]);
            assert!(problems(&gates, &more).is_empty(), "{more}");
        }
        for (placement, expected) in [
            (json!({}), 0),
            (json!({"spreadConstraints": null}), 1),
            (
                json!({"spreadConstraints": [{"spreadByField": "region", "maxGroups": 1}]}),
                1,
            ),
            (
                json!({"spreadConstraints": null, "clusterAffinity": {"clusterNames": ["m1"]}}),
                0,
            ),
        ] {
            let more = json!({"placement": placement});
            assert_eq!(findings(&data, &more).warnings.len(), expected, "{more}");
        }
    }
}
