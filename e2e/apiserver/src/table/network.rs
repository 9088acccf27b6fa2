//! Cells of what connects workloads, and of storage.

use serde_json::Value;

use super::{AGE, NAME, Printer, Row, SELECTOR, joined, labels, selector, text, wide};
use crate::kinds::catalog::Kind;

/// The printer of `kind`, if it is about networks or storage.
pub fn printer(kind: &Kind) -> Option<&'static Printer> {
    Some(match kind.kind {
        "Service" => &SERVICES,
        "Endpoints" => &ENDPOINTS,
        "EndpointSlice" => &ENDPOINT_SLICES,
        "Ingress" => &INGRESSES,
        "IngressClass" => &INGRESS_CLASSES,
        "NetworkPolicy" => &NETWORK_POLICIES,
        "PersistentVolume" => &VOLUMES,
        "PersistentVolumeClaim" => &CLAIMS,
        "StorageClass" => &STORAGE_CLASSES,
        _ => return None,
    })
}

static SERVICES: Printer = Printer {
    columns: &[
        NAME,
        text("Type"),
        text("Cluster-IP"),
        text("External-IP"),
        text("Port(s)"),
        AGE,
        SELECTOR,
    ],
    cells: |row| {
        vec![
            row.name(),
            row.text("/spec/type").into(),
            row.text_or("/spec/clusterIP", "<none>").into(),
            external(row).into(),
            ports(row).into(),
            row.age(),
            labels(&row.object["spec"]["selector"]).into(),
        ]
    },
};

fn external(row: &Row<'_>) -> String {
    let addresses = joined(row.list("/spec/externalIPs").iter());
    let balancer = balancers(row);
    match row.text("/spec/type") {
        "ExternalName" => row.text("/spec/externalName").to_owned(),
        "LoadBalancer" => match (balancer.is_empty(), addresses.is_empty()) {
            (true, true) => "<pending>".to_owned(),
            (true, false) => addresses,
            (false, true) => balancer,
            (false, false) => format!("{balancer},{addresses}"),
        },
        _ if addresses.is_empty() => "<none>".to_owned(),
        _ => addresses,
    }
}

fn balancers(row: &Row<'_>) -> String {
    let ingress = row.list("/status/loadBalancer/ingress").iter();
    joined(ingress.map(|i| {
        if i["ip"].is_string() {
            &i["ip"]
        } else {
            &i["hostname"]
        }
    }))
}

fn ports(row: &Row<'_>) -> String {
    let shown: Vec<String> = row
        .list("/spec/ports")
        .iter()
        .map(|port| {
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            match port["nodePort"].as_i64() {
                Some(node) if node > 0 => format!("{}:{node}/{protocol}", port["port"]),
                _ => format!("{}/{protocol}", port["port"]),
            }
        })
        .collect();
    if shown.is_empty() {
        "<none>".to_owned()
    } else {
        shown.join(",")
    }
}

static ENDPOINTS: Printer = Printer {
    columns: &[NAME, text("Endpoints"), AGE],
    cells: |row| vec![row.name(), endpoints(row).into(), row.age()],
};

fn endpoints(row: &Row<'_>) -> String {
    let mut all = Vec::new();
    for subset in row.list("/subsets") {
        let addresses = subset["addresses"].as_array().into_iter().flatten();
        let ports = subset["ports"].as_array().map_or(&[][..], Vec::as_slice);
        for ip in addresses.filter_map(|address| address["ip"].as_str()) {
            if ports.is_empty() {
                all.push(ip.to_owned());
            }
            all.extend(ports.iter().map(|port| format!("{ip}:{}", port["port"])));
        }
    }
    abridged(&all)
}

/// The first three, and how many more there are.
fn abridged(all: &[String]) -> String {
    match all.len() {
        0 => "<none>".to_owned(),
        n if n > 3 => format!("{} + {} more...", all[..3].join(","), n - 3),
        _ => all.join(","),
    }
}

static ENDPOINT_SLICES: Printer = Printer {
    columns: &[
        NAME,
        text("AddressType"),
        text("Ports"),
        text("Endpoints"),
        AGE,
    ],
    cells: |row| {
        let ports: Vec<String> = row
            .list("/ports")
            .iter()
            .map(|port| {
                port["port"]
                    .as_i64()
                    .map_or_else(|| "*".to_owned(), |p| p.to_string())
            })
            .collect();
        let addresses: Vec<String> = row
            .list("/endpoints")
            .iter()
            .flat_map(|endpoint| endpoint["addresses"].as_array().into_iter().flatten())
            .filter_map(|address| address.as_str().map(str::to_owned))
            .collect();
        let unset = |text: String| {
            if text == "<none>" {
                "<unset>".to_owned()
            } else {
                text
            }
        };
        vec![
            row.name(),
            row.text("/addressType").into(),
            unset(abridged(&ports)).into(),
            unset(abridged(&addresses)).into(),
            row.age(),
        ]
    },
};

static INGRESSES: Printer = Printer {
    columns: &[
        NAME,
        text("Class"),
        text("Hosts"),
        text("Address"),
        text("Ports"),
        AGE,
    ],
    cells: |row| {
        let hosts: Vec<&str> = row
            .list("/spec/rules")
            .iter()
            .filter_map(|rule| rule["host"].as_str())
            .collect();
        let hosts = match hosts.len() {
            0 => "*".to_owned(),
            n if n > 3 => format!("{} + {} more...", hosts[..3].join(","), n - 3),
            _ => hosts.join(","),
        };
        let ports = if row.list("/spec/tls").is_empty() {
            "80"
        } else {
            "80, 443"
        };
        vec![
            row.name(),
            row.text_or("/spec/ingressClassName", "<none>").into(),
            hosts.into(),
            balancers(row).into(),
            ports.into(),
            row.age(),
        ]
    },
};

static INGRESS_CLASSES: Printer = Printer {
    columns: &[NAME, text("Controller"), text("Parameters"), AGE],
    cells: |row| {
        let parameters = &row.object["spec"]["parameters"];
        let text = |name: &str| parameters[name].as_str().unwrap_or_default();
        let shown = if parameters.is_object() {
            let group = text("apiGroup");
            let dot = if group.is_empty() { "" } else { "." };
            format!("{}{dot}{group}/{}", text("kind"), text("name"))
        } else {
            "<none>".to_owned()
        };
        vec![
            row.name(),
            row.text("/spec/controller").into(),
            shown.into(),
            row.age(),
        ]
    },
};

static NETWORK_POLICIES: Printer = Printer {
    columns: &[NAME, text("Pod-Selector"), AGE],
    cells: |row| {
        vec![
            row.name(),
            selector(&row.object["spec"]["podSelector"]).into(),
            row.age(),
        ]
    },
};

/// `RWO,ROX`.
fn access_modes(row: &Row<'_>, pointer: &str) -> String {
    let short = |mode: &str| match mode {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        _ => "",
    };
    let modes = row.list(pointer).iter().filter_map(Value::as_str);
    modes
        .map(short)
        .filter(|m| !m.is_empty())
        .collect::<Vec<_>>()
        .join(",")
}

static VOLUMES: Printer = Printer {
    columns: &[
        NAME,
        text("Capacity"),
        text("Access Modes"),
        text("Reclaim Policy"),
        text("Status"),
        text("Claim"),
        text("StorageClass"),
        text("VolumeAttributesClass"),
        text("Reason"),
        AGE,
        wide("VolumeMode"),
    ],
    cells: |row| {
        let claim = &row.object["spec"]["claimRef"];
        let claim = match (claim["namespace"].as_str(), claim["name"].as_str()) {
            (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
            _ => String::new(),
        };
        vec![
            row.name(),
            row.text("/spec/capacity/storage").into(),
            access_modes(row, "/spec/accessModes").into(),
            row.text("/spec/persistentVolumeReclaimPolicy").into(),
            phase(row).into(),
            claim.into(),
            row.text("/spec/storageClassName").into(),
            row.text_or("/spec/volumeAttributesClassName", "<unset>")
                .into(),
            row.text("/status/reason").into(),
            row.age(),
            row.text_or("/spec/volumeMode", "<unset>").into(),
        ]
    },
};

static CLAIMS: Printer = Printer {
    columns: &[
        NAME,
        text("Status"),
        text("Volume"),
        text("Capacity"),
        text("Access Modes"),
        text("StorageClass"),
        text("VolumeAttributesClass"),
        AGE,
        wide("VolumeMode"),
    ],
    cells: |row| {
        let bound = !row.text("/spec/volumeName").is_empty();
        let (modes, capacity) = if bound {
            (
                access_modes(row, "/status/accessModes"),
                row.text("/status/capacity/storage"),
            )
        } else {
            (String::new(), "")
        };
        vec![
            row.name(),
            phase(row).into(),
            row.text("/spec/volumeName").into(),
            capacity.into(),
            modes.into(),
            row.text("/spec/storageClassName").into(),
            row.text_or("/spec/volumeAttributesClassName", "<unset>")
                .into(),
            row.age(),
            row.text_or("/spec/volumeMode", "<unset>").into(),
        ]
    },
};

fn phase<'a>(row: &Row<'a>) -> &'a str {
    if row.object["metadata"]["deletionTimestamp"].is_string() {
        "Terminating"
    } else {
        row.text("/status/phase")
    }
}

static STORAGE_CLASSES: Printer = Printer {
    columns: &[
        NAME,
        text("Provisioner"),
        text("ReclaimPolicy"),
        text("VolumeBindingMode"),
        text("AllowVolumeExpansion"),
        AGE,
    ],
    cells: |row| {
        let default = row
            .text("/metadata/annotations/storageclass.kubernetes.io~1is-default-class")
            == "true";
        let name = row.text("/metadata/name");
        let name = if default {
            format!("{name} (default)")
        } else {
            name.to_owned()
        };
        vec![
            name.into(),
            row.text("/provisioner").into(),
            row.text_or("/reclaimPolicy", "Delete").into(),
            row.text_or("/volumeBindingMode", "Immediate").into(),
            (row.object["allowVolumeExpansion"] == true).into(),
            row.age(),
        ]
    },
};
