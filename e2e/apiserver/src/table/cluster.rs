//! Cells of the cluster's own objects: nodes, namespaces, configuration, identity, events.

use serde_json::{Value, json};

use super::{AGE, Column, NAME, Printer, Row, age, boolean, joined, number, text, wide};
use crate::kinds::catalog::Kind;

/// The printer of `kind`, if it has one here.
pub fn printer(kind: &Kind) -> Option<&'static Printer> {
    Some(match (kind.group, kind.kind) {
        (_, "Node") => &NODES,
        (_, "Namespace") => &NAMESPACES,
        (_, "ConfigMap") => &CONFIG_MAPS,
        (_, "Secret") => &SECRETS,
        (_, "ServiceAccount") => &SERVICE_ACCOUNTS,
        (_, "ResourceQuota") => &QUOTAS,
        ("", "Event") => &EVENTS,
        ("events.k8s.io", "Event") => &NEW_EVENTS,
        (_, "RoleBinding" | "ClusterRoleBinding") => &BINDINGS,
        (_, "Lease") => &LEASES,
        (_, "PriorityClass") => &PRIORITY_CLASSES,
        (_, "CertificateSigningRequest") => &SIGNING_REQUESTS,
        (_, "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => &WEBHOOKS,
        (_, "APIService") => &API_SERVICES,
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

static SERVICE_ACCOUNTS: Printer = Printer {
    columns: &[NAME, AGE],
    cells: |row| vec![row.name(), row.age()],
};

static QUOTAS: Printer = Printer {
    columns: &[NAME, text("Request"), text("Limit"), AGE],
    cells: |row| {
        let (mut requests, mut limits) = (Vec::new(), Vec::new());
        for (resource, hard) in row.object["status"]["hard"]
            .as_object()
            .into_iter()
            .flatten()
        {
            let used = row.object["status"]["used"][resource]
                .as_str()
                .unwrap_or("0");
            let shown = format!("{resource}: {used}/{}", hard.as_str().unwrap_or_default());
            if resource.starts_with("limits") {
                &mut limits
            } else {
                &mut requests
            }
            .push(shown);
        }
        vec![
            row.name(),
            requests.join(", ").into(),
            limits.join(", ").into(),
            row.age(),
        ]
    },
};

const EVENT_COLUMNS: &[Column] = &[
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
];

static EVENTS: Printer = Printer {
    columns: EVENT_COLUMNS,
    cells: |row| event(row, "involvedObject", "message", ""),
};

static NEW_EVENTS: Printer = Printer {
    columns: EVENT_COLUMNS,
    cells: |row| event(row, "regarding", "note", "deprecated"),
};

/// The two kinds of events differ in the names of their fields: the newer one calls the old ones
/// deprecated.
fn event(row: &Row<'_>, object: &str, message: &str, prefix: &str) -> Vec<Value> {
    let field = |name: &str| {
        if prefix.is_empty() {
            return &row.object[name];
        }
        let mut letters = name.chars();
        let capital: String = letters
            .next()
            .into_iter()
            .flat_map(char::to_uppercase)
            .chain(letters)
            .collect();
        &row.object[format!("{prefix}{capital}")]
    };
    let series = &row.object["series"];
    let either = |first: &'_ Value, second: &Value| {
        let time = if first.is_string() { first } else { second };
        age::since(time, row.now)
    };
    let first_seen = either(field("firstTimestamp"), &row.object["eventTime"]);
    let last_seen = if series["lastObservedTime"].is_string() {
        age::since(&series["lastObservedTime"], row.now)
    } else {
        either(field("lastTimestamp"), &row.object["eventTime"])
    };
    let count = series["count"]
        .as_i64()
        .or_else(|| field("count").as_i64())
        .filter(|n| *n > 0)
        .unwrap_or(1);
    let about = &row.object[object];
    let part = |name: &str| about[name].as_str().unwrap_or_default();
    let source = field("source");
    let component = source["component"].as_str().filter(|c| !c.is_empty());
    let component = component.unwrap_or_else(|| row.text("/reportingController"));
    let host = source["host"].as_str().filter(|h| !h.is_empty());
    let source = host.map_or_else(
        || component.to_owned(),
        |host| format!("{component}, {host}"),
    );
    vec![
        last_seen.into(),
        row.text("/type").into(),
        row.text("/reason").into(),
        format!("{}/{}", part("kind").to_lowercase(), part("name")).into(),
        part("fieldPath").into(),
        source.into(),
        row.object[message]
            .as_str()
            .unwrap_or_default()
            .trim()
            .into(),
        first_seen.into(),
        count.into(),
        row.name(),
    ]
}

static BINDINGS: Printer = Printer {
    columns: &[
        NAME,
        text("Role"),
        AGE,
        wide("Users"),
        wide("Groups"),
        wide("ServiceAccounts"),
    ],
    cells: |row| {
        let subjects = |kind: &str| {
            let of_kind = row.list("/subjects").iter().filter(|s| s["kind"] == kind);
            if kind == "ServiceAccount" {
                let names = of_kind.map(|s| {
                    let text = |name: &str| s[name].as_str().unwrap_or_default();
                    format!("{}/{}", text("namespace"), text("name"))
                });
                return names.collect::<Vec<_>>().join(", ");
            }
            of_kind
                .filter_map(|s| s["name"].as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        vec![
            row.name(),
            format!(
                "{}/{}",
                row.text("/roleRef/kind"),
                row.text("/roleRef/name")
            )
            .into(),
            row.age(),
            subjects("User").into(),
            subjects("Group").into(),
            subjects("ServiceAccount").into(),
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

static PRIORITY_CLASSES: Printer = Printer {
    columns: &[
        NAME,
        number("Value"),
        boolean("Global-Default"),
        AGE,
        text("PreemptionPolicy"),
    ],
    cells: |row| {
        vec![
            row.name(),
            row.number("/value").into(),
            (row.object["globalDefault"] == true).into(),
            row.age(),
            row.text("/preemptionPolicy").into(),
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

static WEBHOOKS: Printer = Printer {
    columns: &[NAME, number("Webhooks"), AGE],
    cells: |row| vec![row.name(), row.list("/webhooks").len().into(), row.age()],
};

static API_SERVICES: Printer = Printer {
    columns: &[NAME, text("Service"), text("Available"), AGE],
    cells: |row| {
        let service = &row.object["spec"]["service"];
        let service = match (service["namespace"].as_str(), service["name"].as_str()) {
            (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
            _ => "Local".to_owned(),
        };
        let available = row
            .list("/status/conditions")
            .iter()
            .find(|c| c["type"] == "Available");
        let available = joined(available.iter().map(|c| &c["status"]));
        vec![row.name(), service.into(), available.into(), row.age()]
    },
};
