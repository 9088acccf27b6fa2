//! Cells of services.

use super::{AGE, NAME, Printer, Row, SELECTOR, joined, labels, text};

/// `kubectl get services`.
pub static SERVICES: Printer = Printer {
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
