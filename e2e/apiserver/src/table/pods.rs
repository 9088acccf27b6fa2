//! Cells of pods: how many containers are ready, and the one word that says how the pod does.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{AGE, NAME, Printer, Row, age, text, wide};

/// `kubectl get pods`.
pub static PODS: Printer = Printer {
    columns: &[
        NAME,
        text("Ready"),
        text("Status"),
        text("Restarts"),
        AGE,
        wide("IP"),
        wide("Node"),
        wide("Nominated Node"),
        wide("Readiness Gates"),
    ],
    cells: |row| {
        let summary = Summary::of(row);
        vec![
            row.name(),
            format!("{}/{}", summary.ready, summary.total).into(),
            summary.status.into(),
            summary.restarts.into(),
            row.age(),
            row.text_or("/status/podIP", "<none>").into(),
            row.text_or("/spec/nodeName", "<none>").into(),
            row.text_or("/status/nominatedNodeName", "<none>").into(),
            readiness_gates(row).into(),
        ]
    },
};

/// Tells clients that the pod is over, so that they may hide its row.
pub fn completion(pod: &Value) -> Option<Value> {
    let phase = pod["status"]["phase"].as_str()?;
    let message = match phase {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": phase, "message": message}))
}

struct Summary {
    ready: usize,
    total: usize,
    status: String,
    restarts: String,
}

/// What the walk over containers keeps in mind.
struct Tally {
    status: String,
    ready: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl Summary {
    fn of(row: &Row<'_>) -> Self {
        let restartable: Vec<&str> = row
            .list("/spec/initContainers")
            .iter()
            .filter(|c| c["restartPolicy"] == "Always")
            .filter_map(|c| c["name"].as_str())
            .collect();
        let phase = row.text("/status/phase");
        let mut tally = Tally {
            status: row.text_or("/status/reason", phase).to_owned(),
            ready: 0,
            restarts: 0,
            last_restart: None,
        };
        let gated = row
            .list("/status/conditions")
            .iter()
            .any(|c| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated");
        if gated {
            "SchedulingGated".clone_into(&mut tally.status);
        }
        let initializing = tally.init_containers(row, &restartable);
        if !initializing || initialized(row) {
            tally.containers(row);
        }
        if row.object["metadata"]["deletionTimestamp"].is_string() {
            let lost = row.text("/status/reason") == "NodeLost";
            if lost {
                "Unknown".clone_into(&mut tally.status);
            } else if !matches!(phase, "Succeeded" | "Failed") {
                "Terminating".clone_into(&mut tally.status);
            }
        }
        let mut restarts = tally.restarts.to_string();
        if let Some(last) = tally.last_restart.filter(|_| tally.restarts != 0) {
            let ago = age::human(row.now.as_second() - last.as_second());
            restarts = format!("{restarts} ({ago} ago)");
        }
        Self {
            ready: tally.ready,
            total: row.list("/spec/containers").len() + restartable.len(),
            status: tally.status,
            restarts,
        }
    }
}

impl Tally {
    /// Walks the init containers up to the first that isn't done; says whether there is one.
    fn init_containers(&mut self, row: &Row<'_>, restartable: &[&str]) -> bool {
        let total = row.list("/spec/initContainers").len();
        for (index, container) in row.list("/status/initContainerStatuses").iter().enumerate() {
            self.restarted(container);
            let sidecar = container["name"]
                .as_str()
                .is_some_and(|name| restartable.contains(&name));
            let state = &container["state"];
            if state["terminated"]["exitCode"] == 0 {
                continue;
            }
            if sidecar && container["started"] == true {
                self.ready += usize::from(container["ready"] == true);
                continue;
            }
            let waiting = state["waiting"]["reason"].as_str().unwrap_or_default();
            self.status = if state["terminated"].is_object() {
                format!("Init:{}", ending(&state["terminated"]))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{index}/{total}")
            };
            return true;
        }
        false
    }

    fn containers(&mut self, row: &Row<'_>) {
        let mut running = false;
        self.restarts = 0;
        for container in row.list("/status/containerStatuses").iter().rev() {
            self.restarted(container);
            let state = &container["state"];
            let waiting = state["waiting"]["reason"].as_str().unwrap_or_default();
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.status);
            } else if state["terminated"].is_object() {
                self.status = ending(&state["terminated"]);
            } else if container["ready"] == true && state["running"].is_object() {
                running = true;
                self.ready += 1;
            }
        }
        if self.status == "Completed" && running {
            let ready = row
                .list("/status/conditions")
                .iter()
                .any(|c| c["type"] == "Ready" && c["status"] == "True");
            if ready { "Running" } else { "NotReady" }.clone_into(&mut self.status);
        }
    }

    fn restarted(&mut self, container: &Value) {
        self.restarts += container["restartCount"].as_i64().unwrap_or(0);
        let finished = container["lastState"]["terminated"]["finishedAt"].as_str();
        let finished = finished.and_then(|time| time.parse::<Timestamp>().ok());
        self.last_restart = self.last_restart.max(finished);
    }
}

fn ending(terminated: &Value) -> String {
    let number = |name: &str| terminated[name].as_i64().unwrap_or(0);
    match terminated["reason"].as_str() {
        Some(reason) if !reason.is_empty() => reason.to_owned(),
        _ if number("signal") != 0 => format!("Signal:{}", number("signal")),
        _ => format!("ExitCode:{}", number("exitCode")),
    }
}

fn initialized(row: &Row<'_>) -> bool {
    row.list("/status/conditions")
        .iter()
        .any(|c| c["type"] == "Initialized" && c["status"] == "True")
}

fn readiness_gates(row: &Row<'_>) -> String {
    let gates = row.list("/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let conditions = row.list("/status/conditions");
    let met = gates
        .iter()
        .filter(|gate| {
            conditions
                .iter()
                .any(|c| c["type"] == gate["conditionType"] && c["status"] == "True")
        })
        .count();
    format!("{met}/{}", gates.len())
}
