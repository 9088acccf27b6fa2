//! The agent as a process: what a signal does to it, and what it shows on its ports.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use muster_e2e::harness::metrics::scrape;
use muster_e2e::harness::process::{Program, free_ports};
use muster_e2e::harness::test_bed::eventually;
use muster_shared::k8s::{Api, Lease};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

use crate::agent::bench::{AGENTS, Bench, MEMBER, renewed};

/// Kubernetes kills what has not ended by then.
const GRACE: Duration = Duration::from_secs(30);

struct Started {
    child: Child,
    log: PathBuf,
    port: u16,
}

impl Started {
    fn new(bench: &Bench, name: &str) -> Self {
        Self::with(bench, name, &[])
    }

    fn with(bench: &Bench, name: &str, more: &[String]) -> Self {
        let log = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.log"));
        let file = std::fs::File::create(&log).unwrap();
        let [port] = free_ports().unwrap();
        let kubeconfigs = bench.kubeconfigs(&[AGENTS]);
        let child = Command::new(env!("CARGO_BIN_EXE_sandbox"))
            .arg(Program::Agent.name())
            .arg(format!("--cluster-name={MEMBER}"))
            .arg("--report-secrets=None")
            .arg(format!("--karmada-kubeconfig={}", kubeconfigs.0.display()))
            .arg(format!("--kubeconfig={}", kubeconfigs.1.display()))
            .arg(format!("--metrics-bind-address=127.0.0.1:{port}"))
            .arg("--health-probe-bind-address=0")
            .arg("--log-format=json")
            .arg("--log-filter=info,muster_shared=debug")
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self { child, log, port }
    }

    /// Sends SIGTERM and waits for the end: the exit code and how long it took.
    async fn terminate(mut self) -> (Option<i32>, Duration) {
        let id = self.child.id().unwrap().to_string();
        // Its standard input stays open: the end of that would end it, too.
        let _input = self.child.stdin.take();
        let begun = Instant::now();
        let sent = Command::new("kill").args(["-TERM", &id]).status().await;
        assert!(sent.unwrap().success());
        let ended = timeout(GRACE, self.child.wait()).await;
        let log = std::fs::read_to_string(&self.log).unwrap();
        let status = ended
            .unwrap_or_else(|_| panic!("it does not end\n{log}"))
            .unwrap();
        for line in log.lines() {
            let parsed: Result<serde_json::Value, _> = serde_json::from_str(line);
            assert!(parsed.is_ok(), "a line of the log is no JSON: {line}");
        }
        (status.code(), begun.elapsed())
    }
}

#[tokio::test]
async fn sigterm_ends_the_agent_at_once_and_its_successor_need_not_wait() {
    let bench = Bench::start().await;
    let agent = Started::new(&bench, "sigterm");
    bench.joined().await;
    bench.create_work("a", |_| {}).await;
    bench.applied("a", "True").await;
    let (code, took) = agent.terminate().await;
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(10), "{took:?}");
    let leases: Api<Lease> = Api::namespaced(bench.fleet_client.clone(), "karmada-system");
    let election = leases
        .get(&format!("karmada-agent-{MEMBER}"))
        .await
        .unwrap();
    let holder = election.spec.unwrap().holder_identity.unwrap_or_default();
    assert_eq!(holder, "", "the leadership was given up");
}

/// Returns the flags of the election as the chart sets them.
fn elected_as_by_the_chart() -> Vec<String> {
    let values = include_str!("../../../charts/agent/values.yaml");
    let values: serde_json::Value = serde_saphyr::from_str(values).unwrap();
    let replicas = values["replicas"].as_u64().unwrap();
    assert!(replicas >= 2, "the chart runs {replicas}");
    let flags = [
        ("lease-duration", "leaseDuration"),
        ("renew-deadline", "renewDeadline"),
        ("retry-period", "retryPeriod"),
    ];
    let flags = flags.map(|(flag, key)| {
        let value = values["leaderElection"][key].as_str().unwrap();
        format!("--leader-elect-{flag}={value}")
    });
    flags.to_vec()
}

#[tokio::test]
async fn an_agent_that_dies_is_replaced_before_its_cluster_counts_as_silent() {
    /// Of the control plane, by default (`--cluster-monitor-grace-period`).
    const MONITOR_GRACE: i64 = 40;
    let bench = Bench::start().await;
    let flags = elected_as_by_the_chart();
    let first = Started::with(&bench, "killed", &flags);
    bench.joined().await;
    let second = Started::with(&bench, "successor", &flags);
    let before = bench.beats(None).await;
    let mut dead = first.child;
    dead.kill().await.unwrap();
    let last = renewed(&bench.leases().get(MEMBER).await.unwrap())
        .or_else(|| renewed(&before))
        .unwrap();
    let after = bench.beats(Some(last)).await;
    let silent = renewed(&after).unwrap().duration_since(last).as_secs();
    assert!(silent < MONITOR_GRACE / 2, "silent for {silent} s");
    drop(second);
}

#[tokio::test]
async fn a_running_agent_shows_how_each_of_its_parts_fares() {
    let bench = Bench::start().await;
    let agent = Started::new(&bench, "metrics");
    bench.joined().await;
    bench.create_work("a", |_| {}).await;
    bench.applied("a", "True").await;
    let all = [
        "cluster_ready_state{member_cluster=\"m1\"} 1",
        "work_sync_workload_duration_seconds",
        "cluster_sync_status_duration_seconds",
        "muster_task_up{task=\"leases\"} 1",
        "muster_task_up{task=\"census\"} 1",
        "muster_last_success_timestamp_seconds{step=\"lease\"}",
        "muster_last_success_timestamp_seconds{step=\"status\"}",
        "muster_last_success_timestamp_seconds{step=\"probe\"}",
        "muster_last_success_timestamp_seconds{step=\"nodes\"}",
        "muster_last_success_timestamp_seconds{step=\"pods\"}",
        "muster_queue_depth{queue=\"works\"} 0",
        "muster_api_request_duration_seconds",
        "muster_client_certificate_remaining_seconds{api=\"fleet\"}",
        "muster_objects_applied_total{kind=\"ConfigMap\",result=\"created\"} 1",
    ];
    // Each part does its first round in its own time, which nothing but the metrics shows.
    eventually("every part did its first round", async || {
        let text = scrape(agent.port).map_err(|error| error.to_string())?;
        let missing: Vec<_> = all.iter().filter(|it| !text.contains(**it)).collect();
        let there = missing.is_empty().then_some(());
        there.ok_or_else(|| format!("{missing:?} are missing in\n{text}"))
    })
    .await;
}
