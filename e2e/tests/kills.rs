//! A few of the kills of `cargo bench -p muster-e2e --bench kills`, in each run of the tests.

use muster_e2e::kills::{Options, run};

use crate::support::Place;

async fn nothing_is_lost_or_doubled(standby: bool, name: &str) {
    muster_shared::tls::install_provider();
    let directory = Place::new(&format!("kills-{name}"));
    let options = Options {
        binary: env!("CARGO_BIN_EXE_sandbox").into(),
        directory: directory.to_path_buf(),
        kills: 24,
        kills_a_round: 24,
        workloads: 8,
        standby,
        seed: u64::from(std::process::id()),
        print: |line| println!("{line}"),
    };
    let report = run(options).await.expect("a fleet that comes to rest");
    assert!(report.moved > 0, "nothing was moved: {report}");
    assert!(
        report.lost.is_empty() && report.doubled.is_empty(),
        "{report}: {:?} {:?}",
        report.lost,
        report.doubled
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_killed_in_a_failover_lose_and_double_nothing() {
    nothing_is_lost_or_doubled(false, "alone").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn control_planes_that_take_over_from_a_killed_one_lose_and_double_nothing() {
    nothing_is_lost_or_doubled(true, "standby").await;
}
