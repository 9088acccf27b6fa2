//! Cells of the cluster's own objects: nodes, namespaces, configuration, events, certificates.

use serde_json::{Value, json};

use super::{AGE, Column, NAME, Printer, Row, age, text, wide};
use crate::kinds::catalog::Kind;

/// Returns the printer of `kind`, if it has one here.
pub fn printer(kind: &Kind) -> Option<&'static Printer> {
    Some(match (kind.group, kind.kind) {
        (_, "Node") => &NODES,
        (_, "Namespace") => &NAMESPACES,
        (_, "ConfigMap") => &CONFIG_MAPS,
        (_, "Secret") => &SECRETS,
        ("", "Event") => &EVENTS,
        (_, "Lease") => &LEASES,
        (_, "CertificateSigningRequest") => &SIGNING_REQUESTS,
        _ => return None,
    })
}

static NODES: Printer = Printer {
    columns: &[
        NAME,
        text("Status"),
        text("Roles"),
        AGE,
        text("Version"),
        wide("Internal-IP"),
        wide("External-IP"),
        wide("OS-Image"),
        wide("Kernel-Version"),
        wide("Container-Runtime"),
    ],
    cells: |row| {
        let address = |kind: &str| {
            let found = row
                .list("/status/addresses")
                .iter()
                .find(|a| a["type"] == kind);
            found
                .and_then(|a| a["address"].as_str())
                .unwrap_or("<none>")
                .to_owned()
        };
        vec![
            row.name(),
            node_status(row).into(),
            roles(row).into(),
            row.age(),
            row.text("/status/nodeInfo/kubeletVersion").into(),
            address("InternalIP").into(),
            address("ExternalIP").into(),
            row.text_or("/status/nodeInfo/osImage", "<unknown>").into(),
            row.text_or("/status/nodeInfo/kernelVersion", "<unknown>")
                .into(),
            row.text_or("/status/nodeInfo/containerRuntimeVersion", "<unknown>")
                .into(),
        ]
    },
};

fn node_status(row: &Row<'_>) -> String {
    let ready = row
        .list("/status/conditions")
        .iter()
        .find(|c| c["type"] == "Ready");
    let mut status = match ready.map(|c| c["status"] == "True") {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if row.object["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn roles(row: &Row<'_>) -> String {
    let labels = row.object["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten();
    let mut roles: Vec<&str> = labels
        .filter_map(
            |(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                Some(role) => Some(role).filter(|role| !role.is_empty()),
                None if key == "kubernetes.io/role" => {
                    value.as_str().filter(|role| !role.is_empty())
                }
                None => None,
            },
        )
        .collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() {
        "<none>".to_owned()
    } else {
        roles.join(",")
    }
}

static NAMESPACES: Printer = Printer {
    columns: &[NAME, text("Status"), AGE],
    cells: |row| vec![row.name(), row.text("/status/phase").into(), row.age()],
};

static CONFIG_MAPS: Printer = Printer {
    columns: &[NAME, text("Data"), AGE],
    cells: |row| {
        vec![
            row.name(),
            json!(row.count("/data") + row.count("/binaryData")),
            row.age(),
        ]
    },
};

static SECRETS: Printer = Printer {
    columns: &[NAME, text("Type"), text("Data"), AGE],
    cells: |row| {
        vec![
            row.name(),
            row.text("/type").into(),
            row.count("/data").into(),
            row.age(),
        ]
    },
};

static EVENTS: Printer = Printer {
    columns: &[
        text("Last Seen"),
        text("Type"),
        text("Reason"),
        text("Object"),
        wide("Subobject"),
        wide("Source"),
        text("Message"),
        wide("First Seen"),
        wide("Count"),
        Column {
            name: "Name",
            kind: "string",
            format: "name",
            priority: 1,
        },
    ],
    cells: |row| {
        let object = row.object;
        let since = |times: &[&Value]| {
            let time = times.iter().find(|time| time.is_string());
            age::since(time.unwrap_or(&&Value::Null), row.now)
        };
        let noted = &object["eventTime"];
        let count = [&object["series"]["count"], &object["count"]];
        let count = count.iter().find_map(|it| it.as_i64()).filter(|n| *n > 0);
        let component = row.text_or("/source/component", row.text("/reportingComponent"));
        let source = match row.text("/source/host") {
            "" => component.to_owned(),
            host => format!("{component}, {host}"),
        };
        let kind = row.text("/involvedObject/kind").to_lowercase();
        let again = &object["series"]["lastObservedTime"];
        vec![
            since(&[again, &object["lastTimestamp"], noted]).into(),
            row.text("/type").into(),
            row.text("/reason").into(),
            format!("{kind}/{}", row.text("/involvedObject/name")).into(),
            row.text("/involvedObject/fieldPath").into(),
            source.into(),
            row.text("/message").trim().into(),
            since(&[&object["firstTimestamp"], noted]).into(),
            count.unwrap_or(1).into(),
            row.name(),
        ]
    },
};

static LEASES: Printer = Printer {
    columns: &[NAME, text("Holder"), AGE],
    cells: |row| {
        vec![
            row.name(),
            row.text("/spec/holderIdentity").into(),
            row.age(),
        ]
    },
};

static SIGNING_REQUESTS: Printer = Printer {
    columns: &[
        NAME,
        AGE,
        text("SignerName"),
        text("Requestor"),
        text("RequestedDuration"),
        text("Condition"),
    ],
    cells: |row| {
        let duration = row.object["spec"]["expirationSeconds"].as_i64();
        vec![
            row.name(),
            row.age(),
            row.text_or("/spec/signerName", "<none>").into(),
            row.text("/spec/username").into(),
            duration
                .map_or_else(|| "<none>".to_owned(), age::human)
                .into(),
            decision(row).into(),
        ]
    },
};

fn decision(row: &Row<'_>) -> String {
    let met = |kind: &str| {
        row.list("/status/conditions")
            .iter()
            .any(|c| c["type"] == kind)
    };
    let mut decision = match (met("Approved"), met("Denied")) {
        (_, true) => "Denied",
        (true, false) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if met("Failed") {
        decision.push_str(",Failed");
    }
    if !row.text("/status/certificate").is_empty() {
        decision.push_str(",Issued");
    }
    decision
}
