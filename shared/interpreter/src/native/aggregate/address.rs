//! Aggregates the addresses of Services of type LoadBalancer and of Ingresses: all addresses of all
//! members.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Collected, Error};
use crate::read::{list, text};

/// Returns whether a Service has addresses from outside; of others no status is shown.
pub(super) fn is_load_balancer(template: &Value) -> Result<bool, Error> {
    Ok(text(template, &["spec", "type"])? == Some("LoadBalancer"))
}

/// Returns all addresses, each once, with the ports that any member serves there.
pub(super) fn balancer(collected: &[Collected<'_>]) -> Result<Option<Value>, Error> {
    let mut addresses: BTreeMap<Key, (Value, Vec<Value>)> = BTreeMap::new();
    for member in collected {
        for address in member.blame(list(member.status, &["loadBalancer", "ingress"]))? {
            let (_, ports) = addresses
                .entry(member.blame(key(address))?)
                .or_insert_with(|| (address.clone(), Vec::new()));
            ports.extend_from_slice(member.blame(list(address, &["ports"]))?);
        }
    }
    let ingress: Vec<Value> = addresses
        .into_values()
        .map(|(mut address, mut ports)| {
            ports.sort_by_cached_key(port_order);
            ports.dedup();
            if let Some(address) = address.as_object_mut() {
                address.remove("ports");
                if !ports.is_empty() {
                    address.insert("ports".to_owned(), Value::Array(ports));
                }
            }
            address
        })
        .collect();
    Ok(Some(if ingress.is_empty() {
        json!({ "loadBalancer": {} })
    } else {
        json!({ "loadBalancer": { "ingress": ingress } })
    }))
}

/// Identity and order of an address: those with a host name first, by name, then by address, then
/// by mode, those without one last.
type Key = (bool, String, String, bool, String);

fn key(address: &Value) -> Result<Key, Error> {
    let part = |key: &str| Ok::<_, Error>(text(address, &[key])?.unwrap_or_default().to_owned());
    let (host, ip, mode) = (part("hostname")?, part("ip")?, part("ipMode")?);
    Ok((host.is_empty(), host, ip, mode.is_empty(), mode))
}

fn port_order(port: &Value) -> (i64, String, String) {
    let text = |key: &str| port[key].as_str().unwrap_or_default().to_owned();
    (
        port["port"].as_i64().unwrap_or(0),
        text("protocol"),
        text("error"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(ingress: &[Value]) -> Value {
        let statuses: Vec<Value> = ingress
            .iter()
            .map(|ingress| json!({ "loadBalancer": { "ingress": ingress } }))
            .collect();
        let collected: Vec<Collected<'_>> = statuses
            .iter()
            .map(|status| Collected {
                cluster: "m",
                status,
            })
            .collect();
        balancer(&collected).unwrap().unwrap()["loadBalancer"]["ingress"].clone()
    }

    #[test]
    fn an_address_is_named_once_with_the_ports_of_all() {
        let port = |port: i64| json!({ "port": port, "protocol": "TCP" });
        let broken = json!({ "port": 80, "protocol": "TCP", "error": "Taken" });
        let merged = merged(&[
            json!([{ "ip": "10.0.0.1", "ports": [port(443), port(80)] }, { "ip": "10.0.0.2", "ipMode": "Proxy" }]),
            json!([{ "ip": "10.0.0.1", "ports": [broken, port(80)] }, { "ip": "10.0.0.2" }]),
            json!([{ "hostname": "a.example", "ip": "10.0.0.1" }, { "ip": "10.0.0.2", "ipMode": "VIP" }]),
        ]);
        assert_eq!(
            merged,
            json!([
                { "hostname": "a.example", "ip": "10.0.0.1" },
                { "ip": "10.0.0.1", "ports": [port(80), broken, port(443)] },
                { "ip": "10.0.0.2", "ipMode": "Proxy" },
                { "ip": "10.0.0.2", "ipMode": "VIP" },
                { "ip": "10.0.0.2" },
            ])
        );
    }
}
