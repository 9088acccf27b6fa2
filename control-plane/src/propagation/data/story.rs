//! Says what becomes of the data when a workload moves, before it does. Pure.

use muster_shared::api::binding::ResourceBindingSpec;

use super::check::Words;

/// Returns the steps between the removal of the old copy of a workload and the start of the new
/// one, in sentences; none where no data follows it.
pub fn steps(spec: &ResourceBindingSpec) -> Vec<String> {
    let Some(data) = &spec.data_replication else {
        return Vec::new();
    };
    let roles = data.roles.iter().map(|role| {
        let (demoted, promoted) = (Words(&role.demoted), Words(&role.promoted));
        format!(
            "{object} gets {path}={secondary} where the workload was, and, when that says {demoted}, {path}={primary} in the new \
             cluster, until it says {promoted}",
            object = role.object,
            path = role.path,
            secondary = role.secondary,
            primary = role.primary,
        )
    });
    let gates = data.gates.iter().map(|gate| {
        let (object, seconds) = (&gate.object, gate.timeout_seconds());
        let then = if gate.starts_on_timeout() {
            "is created without"
        } else {
            "is reported as stuck"
        };
        format!(
            "a new copy is created when {object} in its cluster says {}; after {seconds} s it {then}",
            Words(&gate.ready)
        )
    });
    roles.chain(gates).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_steps_of_a_move_are_reported_in_their_order() {
        let (workload, object) = (
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"}),
            json!({"apiVersion": "r.example.com/v1", "kind": "Replication", "name": "data"}),
        );
        let spec = json!({
            "resource": workload,
            "dataReplication": {
                "roles": [{
                    "object": object, "follows": workload, "path": "spec.state",
                    "primary": "rw", "secondary": "ro",
                    "promoted": {"path": "status.state", "value": "RW"},
                    "demoted": {"condition": {"type": "Demoted"}},
                }],
                "gates": [{
                    "workload": workload, "object": object, "onTimeout": "Start",
                    "ready": {"condition": {"type": "Stale", "status": "False"}},
                }],
            },
        });
        let spec: ResourceBindingSpec = serde_json::from_value(spec).unwrap();
        let expected = [
            "Replication data gets spec.state=ro where the workload was, and, when that says condition Demoted=True, spec.state=rw in the \
             new cluster, until it says status.state=RW",
            "a new copy is created when Replication data in its cluster says condition Stale=False; after 600 s it is created without",
        ];
        assert_eq!(steps(&spec), expected);
        assert!(steps(&ResourceBindingSpec::default()).is_empty());
    }
}
