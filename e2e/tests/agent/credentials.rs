//! Credentials that run out and are replaced on disk while the agent runs.

use std::time::Duration;

use tokio::time::sleep;

use crate::agent::bench::{AGENT, AGENTS, Bench};
use crate::agent::meter::Meter;

const VALIDITY: &str = "muster_client_certificate_remaining_seconds";

#[tokio::test(start_paused = true)]
async fn an_expired_certificate_is_reported_and_its_replacement_is_taken_up_without_a_restart() {
    let meter = Meter::install();
    let bench = Bench::start().await;
    let expired = bench.fleet.expired_kubeconfig(AGENT, &[AGENTS]);
    let mut path = None;
    let agent = bench.agent_in(&[AGENTS], |settings| {
        let file = settings.karmada_kubeconfig.clone().unwrap();
        std::fs::write(&file, serde_saphyr::to_string(&expired.unwrap()).unwrap()).unwrap();
        path = Some(file);
    });
    sleep(Duration::from_mins(10)).await;
    let remaining = meter.sum(VALIDITY, &["api=\"fleet\""]);
    assert!((-3700.0..=-3600.0).contains(&remaining), "{remaining}");
    assert!(meter.sum(VALIDITY, &["api=\"member\""]) > 0.0);
    assert!(!agent.is_finished(), "it goes on trying");

    let path = path.unwrap();
    let valid = bench.fleet.kubeconfig(AGENT, &[AGENTS]).unwrap();
    // Half of a file first, as an editor or a slow copy leaves it for a moment.
    let text = serde_saphyr::to_string(&valid).unwrap();
    std::fs::write(&path, &text[..text.len() / 2]).unwrap();
    sleep(Duration::from_secs(30)).await;
    std::fs::write(&path, text).unwrap();
    bench.joined().await;
    assert!(meter.sum(VALIDITY, &["api=\"fleet\""]) > 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_replaced_token_is_used_for_what_comes_next_and_for_the_watches() {
    let bench = Bench::start().await;
    let mut path = None;
    let first = bench.fleet.token_kubeconfig(AGENT, &[AGENTS]);
    let _agent = bench.agent_in(&[AGENTS], |settings| {
        let file = settings.karmada_kubeconfig.clone().unwrap();
        std::fs::write(&file, serde_saphyr::to_string(&first.unwrap()).unwrap()).unwrap();
        path = Some(file);
    });
    bench.joined().await;
    bench.create_work("a", |_| {}).await;
    bench.applied("a", "True").await;
    let second = bench.fleet.token_kubeconfig("somebody-new", &[AGENTS]);
    let second = serde_saphyr::to_string(&second.unwrap()).unwrap();
    std::fs::write(path.unwrap(), second).unwrap();
    sleep(Duration::from_mins(2)).await;
    // The first user is locked out: only what uses the second token goes on.
    let first_user = muster_e2e::apiserver::faults::Scope::user(AGENT);
    bench.fleet.faults().inject_for(
        first_user,
        muster_e2e::apiserver::faults::Effect::Answer(http::StatusCode::UNAUTHORIZED),
    );
    bench.create_work("b", |_| {}).await;
    bench.applied("b", "True").await;
}
