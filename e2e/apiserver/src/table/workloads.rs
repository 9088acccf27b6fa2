//! Cells of workloads: what is wanted, what is there, and what it runs.

use serde_json::Value;

use super::{
    AGE, CONTAINERS, IMAGES, NAME, Printer, Row, SELECTOR, age, boolean, joined, labels, number,
    pods, selector, services, text,
};
use crate::kinds::catalog::Kind;

/// Returns the printer of `kind`, if it is a workload or serves one.
pub fn printer(kind: &Kind) -> Option<&'static Printer> {
    Some(match (kind.group, kind.kind) {
        ("", "Pod") => &pods::PODS,
        ("", "Service") => &services::SERVICES,
        ("apps", "Deployment") => &DEPLOYMENTS,
        ("apps", "ReplicaSet") => &REPLICA_SETS,
        ("apps", "StatefulSet") => &STATEFUL_SETS,
        ("apps", "DaemonSet") => &DAEMON_SETS,
        ("batch", "Job") => &JOBS,
        ("batch", "CronJob") => &CRON_JOBS,
        _ => return None,
    })
}

const TEMPLATE: &str = "/spec/template/spec/containers";

/// Names and images of the containers at `pointer`.
fn containers(row: &Row<'_>, pointer: &str) -> [Value; 2] {
    let list = row.list(pointer);
    [
        joined(list.iter().map(|c| &c["name"])).into(),
        joined(list.iter().map(|c| &c["image"])).into(),
    ]
}

static DEPLOYMENTS: Printer = Printer {
    columns: &[
        NAME,
        text("Ready"),
        text("Up-to-date"),
        text("Available"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |row| {
        let [names, images] = containers(row, TEMPLATE);
        vec![
            row.name(),
            format!(
                "{}/{}",
                row.number("/status/readyReplicas"),
                row.number("/spec/replicas")
            )
            .into(),
            row.number("/status/updatedReplicas").into(),
            row.number("/status/availableReplicas").into(),
            row.age(),
            names,
            images,
            selector(&row.object["spec"]["selector"]).into(),
        ]
    },
};

static REPLICA_SETS: Printer = Printer {
    columns: &[
        NAME,
        number("Desired"),
        number("Current"),
        number("Ready"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |row| {
        let [names, images] = containers(row, TEMPLATE);
        vec![
            row.name(),
            row.number("/spec/replicas").into(),
            row.number("/status/replicas").into(),
            row.number("/status/readyReplicas").into(),
            row.age(),
            names,
            images,
            selector(&row.object["spec"]["selector"]).into(),
        ]
    },
};

static STATEFUL_SETS: Printer = Printer {
    columns: &[NAME, text("Ready"), AGE, CONTAINERS, IMAGES],
    cells: |row| {
        let [names, images] = containers(row, TEMPLATE);
        let ready = format!(
            "{}/{}",
            row.number("/status/readyReplicas"),
            row.number("/spec/replicas")
        );
        vec![row.name(), ready.into(), row.age(), names, images]
    },
};

static DAEMON_SETS: Printer = Printer {
    columns: &[
        NAME,
        number("Desired"),
        number("Current"),
        number("Ready"),
        number("Up-to-date"),
        number("Available"),
        text("Node Selector"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |row| {
        let [names, images] = containers(row, TEMPLATE);
        vec![
            row.name(),
            row.number("/status/desiredNumberScheduled").into(),
            row.number("/status/currentNumberScheduled").into(),
            row.number("/status/numberReady").into(),
            row.number("/status/updatedNumberScheduled").into(),
            row.number("/status/numberAvailable").into(),
            labels(&row.object["spec"]["template"]["spec"]["nodeSelector"]).into(),
            row.age(),
            names,
            images,
            selector(&row.object["spec"]["selector"]).into(),
        ]
    },
};

static JOBS: Printer = Printer {
    columns: &[
        NAME,
        text("Status"),
        text("Completions"),
        text("Duration"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |row| {
        let [names, images] = containers(row, TEMPLATE);
        let spec = &row.object["spec"];
        let succeeded = row.number("/status/succeeded");
        let completions = match (spec["completions"].as_i64(), spec["parallelism"].as_i64()) {
            (Some(wanted), _) => format!("{succeeded}/{wanted}"),
            (None, Some(parallelism)) if parallelism > 1 => {
                format!("{succeeded}/1 of {parallelism}")
            }
            _ => format!("{succeeded}/1"),
        };
        let started = &row.object["status"]["startTime"];
        let duration = match age::between(started, &row.object["status"]["completionTime"]) {
            Some(seconds) => age::human(seconds),
            None if started.is_string() => age::since(started, row.now),
            None => String::new(),
        };
        vec![
            row.name(),
            job_status(row).into(),
            completions.into(),
            duration.into(),
            row.age(),
            names,
            images,
            selector(&spec["selector"]).into(),
        ]
    },
};

fn job_status(row: &Row<'_>) -> &'static str {
    let met = |kind: &str| {
        row.list("/status/conditions")
            .iter()
            .any(|c| c["type"] == kind && c["status"] == "True")
    };
    if met("Complete") {
        "Complete"
    } else if met("Failed") {
        "Failed"
    } else if row.object["metadata"]["deletionTimestamp"].is_string() {
        "Terminating"
    } else if met("Suspended") {
        "Suspended"
    } else if met("FailureTarget") {
        "FailureTarget"
    } else if met("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

static CRON_JOBS: Printer = Printer {
    columns: &[
        NAME,
        text("Schedule"),
        text("Timezone"),
        boolean("Suspend"),
        number("Active"),
        text("Last Schedule"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |row| {
        let [names, images] = containers(row, "/spec/jobTemplate/spec/template/spec/containers");
        let spec = &row.object["spec"];
        let suspend = match spec["suspend"].as_bool() {
            Some(true) => "True",
            Some(false) => "False",
            None => "<unset>",
        };
        let last = &row.object["status"]["lastScheduleTime"];
        let last = if last.is_string() {
            age::since(last, row.now)
        } else {
            "<none>".to_owned()
        };
        vec![
            row.name(),
            spec["schedule"].clone(),
            row.text_or("/spec/timeZone", "<none>").into(),
            suspend.into(),
            row.list("/status/active").len().into(),
            last.into(),
            row.age(),
            names,
            images,
            selector(&spec["jobTemplate"]["spec"]["selector"]).into(),
        ]
    },
};
