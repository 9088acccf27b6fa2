//! Services.

use serde_json::{Value, json};

use super::Strategy;
use crate::context::RequestContext;

/// Fields that a change may leave out and that stay as they are then.
const KEPT: [&str; 5] = [
    "clusterIP",
    "clusterIPs",
    "ipFamilies",
    "ipFamilyPolicy",
    "internalTrafficPolicy",
];

pub(super) struct Services;

impl Strategy for Services {
    fn prepare_for_create(&self, object: &mut Value) {
        let spec = &object["spec"];
        if spec["type"] != "ExternalName" && spec["internalTrafficPolicy"].is_null() {
            object["spec"]["internalTrafficPolicy"] = "Cluster".into();
        }
    }

    fn complete_update(&self, old: &Value, new: &mut Value) {
        for field in KEPT {
            if new["spec"][field].is_null() && !old["spec"][field].is_null() {
                new["spec"][field] = old["spec"][field].clone();
            }
        }
    }

    fn complete(&self, context: &RequestContext<'_>, object: &mut Value) {
        give_address(context, object);
    }
}

/// Assigns a cluster address to a service. Cluster addresses are assigned in order; nothing
/// listens on them.
fn give_address(context: &RequestContext<'_>, object: &mut Value) {
    let spec = &mut object["spec"];
    if spec["type"] == "ExternalName" {
        return;
    }
    if spec["clusterIP"].as_str().is_none_or(str::is_empty) {
        let mut next = context.server.addresses.lock();
        *next = next.wrapping_add(1);
        let [_, _, high, low] = next.to_be_bytes();
        spec["clusterIP"] = format!("10.96.{high}.{low}").into();
    }
    if spec["clusterIPs"].is_null() {
        spec["clusterIPs"] = json!([spec["clusterIP"]]);
    }
    // Without a selector somebody else says where a headless service leads, by either family.
    let open = spec["clusterIP"] == "None" && spec["selector"].is_null();
    let (families, policy) = if open {
        (json!(["IPv4", "IPv6"]), "RequireDualStack")
    } else {
        (json!(["IPv4"]), "SingleStack")
    };
    for (field, value) in [("ipFamilies", families), ("ipFamilyPolicy", policy.into())] {
        if spec[field].is_null() {
            spec[field] = value;
        }
    }
}
