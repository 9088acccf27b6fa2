//! Ports and IP families that the fleet's API server gave a Service by itself. Each member
//! allocates its own: sent to members, one server's choice would collide with what others have
//! there, or name a family that they do not have.

use serde_json::{Map, Value, json};

/// Fields of a Service by which its server says what kinds of addresses it gave it.
const FAMILIES: [&str; 2] = ["ipFamilies", "ipFamilyPolicy"];

/// Field of a Service for the port at which load balancers ask for its health.
const HEALTH: &str = "healthCheckNodePort";

/// Takes the values of node ports and IP families that nobody wrote: those that no manager of the
/// object's fields owns, because the server filled them in. The fields stay, as null: an override
/// may replace or remove them. An object that does not say who manages its spec keeps them.
/// Returns the IP families: fingerprints that are recorded of templates have them.
pub fn blank_allocated(object: &mut Value) -> Map<String, Value> {
    let mut families = Map::new();
    let has_node_port = |port: &Value| port["nodePort"].is_number();
    let ports = object["spec"]["ports"].as_array().map(Vec::as_slice);
    let health = &object["spec"][HEALTH];
    let has_families = object["spec"]["clusterIP"].is_string()
        && FAMILIES.iter().any(|it| !object["spec"][*it].is_null());
    let has_ports = ports.is_some_and(|it| it.iter().any(has_node_port)) || health.is_number();
    if !has_ports && !has_families {
        return families;
    }
    let managers = object["metadata"]["managedFields"].as_array();
    let managers = managers.into_iter().flatten();
    let specs = managers.map(|manager| manager["fieldsV1"]["f:spec"].clone());
    let specs: Vec<Value> = specs.filter(Value::is_object).collect();
    if specs.is_empty() {
        return families;
    }
    let ports = object["spec"]["ports"].as_array_mut();
    for port in ports.into_iter().flatten() {
        let is_written = specs.iter().any(|spec| owns_node_port(spec, port));
        if let Some(number) = port.get_mut("nodePort").filter(|_| !is_written) {
            number.take();
        }
    }
    let owns = |field: &str| {
        specs
            .iter()
            .any(|spec| spec.get(format!("f:{field}")).is_some())
    };
    let Some(spec) = object["spec"].as_object_mut() else {
        return families;
    };
    for field in FAMILIES.iter().filter(|it| has_families && !owns(it)) {
        if let Some(value) = spec.get_mut(*field) {
            families.insert((*field).to_owned(), value.take());
        }
    }
    if let Some(number) = spec.get_mut(HEALTH).filter(|_| !owns(HEALTH)) {
        number.take();
    }
    families
}

/// Removes the node ports and IP families that have no value: those that nobody wrote and no
/// override gave one.
pub fn drop_blank(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    spec.retain(|field, value| {
        !value.is_null() || (field != HEALTH && !FAMILIES.contains(&field.as_str()))
    });
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten() {
        if let Some(port) = port.as_object_mut() {
            port.retain(|field, value| !value.is_null() || field != "nodePort");
        }
    }
}

/// Returns whether a field manager owns the node port of a port. `spec` is what it manages of the
/// spec, where ports are named by number and protocol.
fn owns_node_port(spec: &Value, port: &Value) -> bool {
    let tcp = json!("TCP");
    let of = |of: &Value| {
        let protocol = of.get("protocol").unwrap_or(&tcp).clone();
        (of["port"].as_i64(), protocol)
    };
    let owned = spec["f:ports"].as_object().into_iter().flatten();
    let mut owned = owned.filter(|(_, fields)| !fields["f:nodePort"].is_null());
    owned.any(|(key, _)| {
        let key = key.strip_prefix("k:").unwrap_or_default();
        let key: Result<Value, _> = serde_json::from_str(key);
        key.is_ok_and(|key| of(&key) == of(port))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a Service of two ports with these managed fields.
    fn service(managed: &Value) -> Value {
        let mut service = json!({
            "metadata": {"name": "web", "managedFields": managed},
            "spec": {
                "type": "LoadBalancer", "healthCheckNodePort": 31000,
                "ports": [
                    {"port": 80, "protocol": "TCP", "nodePort": 30080},
                    {"port": 53, "protocol": "UDP", "nodePort": 30053},
                ],
            },
        });
        blank_allocated(&mut service);
        drop_blank(&mut service);
        service
    }

    fn kept(service: &Value) -> [Option<i64>; 3] {
        let spec = &service["spec"];
        [
            spec["ports"][0]["nodePort"].as_i64(),
            spec["ports"][1]["nodePort"].as_i64(),
            spec["healthCheckNodePort"].as_i64(),
        ]
    }

    #[test]
    fn a_node_port_that_its_author_wrote_is_kept_and_one_that_the_server_gave_is_not() {
        let author = |spec: Value| {
            let status = json!({"f:status": {"f:loadBalancer": {}}});
            json!([
                {"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": spec}},
                {"manager": "c", "subresource": "status", "fieldsV1": status},
            ])
        };
        let port = |number: i64, protocol: &str, fields: Value| {
            let key = json!({"port": number, "protocol": protocol});
            json!({"f:ports": {(format!("k:{key}")): fields}})
        };
        let wrote = json!({".": {}, "f:port": {}, "f:nodePort": {}});
        let alone = port(80, "TCP", json!({"f:port": {}}));
        let one = port(80, "TCP", wrote.clone());
        let health = json!({"f:healthCheckNodePort": {}});
        for (what, spec, expected) in [
            ("nothing", json!({"f:type": {}}), [None; 3]),
            ("a port alone", alone, [None; 3]),
            ("one node port", one, [Some(30080), None, None]),
            ("another protocol's", port(53, "TCP", wrote), [None; 3]),
            ("the one for health", health, [None, None, Some(31000)]),
        ] {
            let service = service(&author(spec));
            assert_eq!(kept(&service), expected, "{what}");
            assert_eq!(service["spec"]["ports"][1]["port"], 53, "{what}");
        }
    }

    #[test]
    fn ip_families_that_its_author_wrote_are_kept_and_those_that_the_server_gave_are_not() {
        let kept = |spec: Value| {
            let mut service = json!({
                "metadata": {"name": "web", "managedFields": [
                    {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": spec}},
                ]},
                "spec": {
                    "type": "ClusterIP", "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"],
                    "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
                    "ports": [{"port": 80, "protocol": "TCP"}],
                },
            });
            blank_allocated(&mut service);
            drop_blank(&mut service);
            ["ipFamilies", "ipFamilyPolicy"].map(|field| service["spec"].get(field).is_some())
        };
        for (what, spec, expected) in [
            ("nothing", json!({"f:type": {}}), [false, false]),
            ("the policy", json!({"f:ipFamilyPolicy": {}}), [false, true]),
            (
                "both",
                json!({"f:ipFamilyPolicy": {}, "f:ipFamilies": {}}),
                [true, true],
            ),
        ] {
            assert_eq!(kept(spec), expected, "{what}");
        }
    }

    #[test]
    fn where_nobody_says_who_wrote_the_spec_all_node_ports_are_kept() {
        let all = [Some(30080), Some(30053), Some(31000)];
        for managed in [
            json!(null),
            json!([]),
            json!([{"manager": "a", "fieldsV1": {"f:metadata": {}}}]),
        ] {
            assert_eq!(kept(&service(&managed)), all, "{managed}");
        }
    }
}
