//! Services of type LoadBalancer and Ingresses: all addresses under which the members serve.

use serde_json::{Value, json};

use super::{
    super::read::{list, text},
    Collected, Error,
};

pub(super) fn service(
    template: &Value,
    collected: &[Collected<'_>],
) -> Result<Option<Value>, Error> {
    if text(template, &["spec", "type"])? != Some("LoadBalancer") {
        return Ok(None);
    }
    ingress(collected)
}

pub(super) fn ingress(collected: &[Collected<'_>]) -> Result<Option<Value>, Error> {
    let mut addresses: Vec<&Value> = Vec::new();
    for member in collected {
        for address in member.blame(list(member.status, &["loadBalancer", "ingress"]))? {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }
    addresses.sort_by_key(|address| order(address));
    Ok(Some(if addresses.is_empty() {
        json!({ "loadBalancer": {} })
    } else {
        json!({ "loadBalancer": { "ingress": addresses } })
    }))
}

/// Those with a host name first, by name, then by address.
fn order(address: &Value) -> (bool, String, String) {
    let part = |key: &str| address[key].as_str().unwrap_or_default().to_owned();
    let host = part("hostname");
    (host.is_empty(), host, part("ip"))
}
