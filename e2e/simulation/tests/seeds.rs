//! Simulations from seeds: what happens follows from the seed, and is what it would be in the
//! world.

use std::collections::BTreeSet;

use muster_simulation::child::Child;
use muster_simulation::found;
use muster_simulation::generate::{self, Scale};
use muster_simulation::plan::{Phases, Plan};
use muster_simulation::run::Report;
use muster_simulation::scenarios;
use muster_simulation::search::{Findings, Search};
use serde_json::Value;

/// Runs a plan; returns its report and its history.
fn lived(name: &str, plan: &Plan) -> anyhow::Result<(Report, Vec<Value>)> {
    let path = std::env::temp_dir().join(format!("muster-{name}-{}", std::process::id()));
    let child = Child {
        history: Some(path.clone()),
        ..Child::new(env!("CARGO_BIN_EXE_simulate"))
    };
    let report = child.run(plan)?;
    let text = std::fs::read_to_string(&path)?;
    std::fs::remove_file(&path)?;
    let lines: Result<_, _> = text.lines().map(serde_json::from_str).collect();
    Ok((report, lines?))
}

/// Returns the committed writes of objects of a kind.
fn writes<'a>(history: &'a [Value], plural: &'a str) -> impl Iterator<Item = &'a Value> {
    let requests = history.iter().map(|entry| &entry["request"]);
    requests.filter(move |request| {
        request["outcome"] == "committed" && request["resource"]["plural"] == plural
    })
}

#[test]
fn a_workload_leaves_a_member_that_is_cut_off_and_every_promise_is_kept() {
    let (report, history) = lived("failover", &scenarios::short_failover(1)).unwrap();
    assert_eq!(report.violations, []);
    let homes: Vec<&str> = writes(&history, "works")
        .filter(|request| request["before"].is_null())
        .filter(|request| request["name"].as_str().unwrap().starts_with("web-1"))
        .filter_map(|request| request["namespace"].as_str())
        .collect();
    assert_eq!(homes, ["karmada-es-m1", "karmada-es-m2"]);
    let places: BTreeSet<&str> = writes(&history, "pods")
        .filter(|request| request["after"]["status"]["phase"] == "Running")
        .filter_map(|request| request["api"]["member"].as_str())
        .collect();
    assert_eq!(places, BTreeSet::from(["m1", "m2"]));
}

#[test]
fn replicated_data_goes_ahead_of_its_workload_whenever_the_control_plane_dies() {
    for seed in 1..=3 {
        let (report, history) = lived("data", &scenarios::moves_of_data(seed)).unwrap();
        assert_eq!(report.violations, [], "{seed}");
        let created = writes(&history, "deployments").filter(|it| it["before"].is_null());
        let members = created.filter_map(|it| it["api"]["member"].as_str());
        assert_eq!(members.collect::<Vec<_>>(), ["m1", "m2", "m1"], "{seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let plan = Plan {
        phases: Phases {
            busy: 60_000,
            calm: 0,
            rest: 0,
            fresh: 30_000,
        },
        ..generate::plan(1, Scale::FEATURES)
    };
    let (first, history) = lived("first", &plan).unwrap();
    let (again, same) = lived("again", &plan).unwrap();
    for (entry, same) in history.iter().zip(&same) {
        assert_eq!(entry, same);
    }
    assert_eq!(first, again);
}

#[test]
fn every_kind_of_fault_acts_and_breaks_no_promise() {
    let plan = scenarios::every_fault(1);
    let kinds: BTreeSet<String> = plan.faults.iter().map(|fault| fault.kind.name()).collect();
    assert_eq!(kinds.len(), 21, "a fault of every kind: {kinds:?}");
    let (report, history) = lived("faults", &plan).unwrap();
    let acted: BTreeSet<String> = report.faults.into_keys().collect();
    assert_eq!(acted, kinds);
    assert_eq!(report.violations, []);
    // What the quota refuses is missed until it ends: a copy had fewer pods than it wants.
    let is_short = |request: &&Value| {
        let after = &request["after"];
        after["status"]["readyReplicas"].as_i64() == Some(0)
            || after["status"]["unavailableReplicas"].as_i64() > Some(0)
    };
    let quota = &plan.faults[0];
    let there = writes(&history, "deployments").filter(|it| it["api"]["member"] == "m1");
    assert!(there.filter(is_short).count() > 0, "{quota:?}");
}

/// The first of the random seeds that are run with each test, and their number.
const SEEDS: (u64, u64) = (1, 16);

/// Runs so many seeds of a scale, of which none may break a promise.
fn keep(scale: Scale, (seed, count): (u64, u64)) -> Findings {
    let search = Search {
        child: Child::new(env!("CARGO_BIN_EXE_simulate")),
        scale,
        seed,
        count: Some(count),
        seconds: None,
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        attempts: 0,
        directory: None,
    };
    let findings = search.run();
    assert!(findings.failures.is_empty(), "{:?}", findings.failures);
    assert_eq!(u64::from(findings.seeds), count);
    findings
}

#[test]
fn random_fleets_keep_every_promise_whatever_people_do_and_whatever_fails() {
    keep(Scale::BRIEF, SEEDS);
}

/// The first of the seeds in which people set and unset features that are run with each test, and
/// their number. The seeds of a night meet every pair of features ten times, and during each kind
/// of fault.
const FEATURES: (u64, u64) = (2, 2);

#[test]
fn people_who_set_and_unset_features_break_no_promise() {
    keep(Scale::FEATURES, FEATURES);
}

/// The first of the seeds in which the host of the fleet API is lost, and of those in which members
/// watch each other, and the number of each that is run with each test.
const HOSTS: (u64, u64) = (1, 3);

#[test]
fn a_fleet_whose_host_is_lost_and_one_that_asks_witnesses_keep_every_promise() {
    for scale in [Scale::HOSTS, Scale::WITNESSES] {
        let findings = keep(scale, HOSTS);
        let acted = |kind: &str| findings.faults.get(kind).copied().unwrap_or_default();
        assert!(
            acted("hostLoss") == HOSTS.1 || acted("lie") > 0,
            "{:?}",
            findings.faults
        );
    }
}

#[test]
fn plans_of_bugs_that_were_fixed_keep_every_promise() {
    let plans = found::all();
    std::thread::scope(|scope| {
        let halves = plans.chunks(plans.len().div_ceil(2));
        for half in halves {
            scope.spawn(move || {
                for it in half {
                    let child = Child::new(env!("CARGO_BIN_EXE_simulate"));
                    let report = child.run(&it.plan).unwrap();
                    assert_eq!(report.violations, [], "{}", it.name);
                }
            });
        }
    });
}
