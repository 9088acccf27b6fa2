#![allow(
    clippy::unnecessary_wraps,
    clippy::needless_pass_by_value,
    clippy::too_many_lines
)] // facts as they are gathered

use jiff::Timestamp;
use muster_shared::check::{Answer, Clocks, Status};
use muster_shared::client::Life;
use muster_shared::k8s::{Deployment, VersionInfo};
use serde_json::{Value, json};

use super::super::{Flags, Way};
use super::*;

const NOW: &str = "2030-01-01T00:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn version(text: &str) -> Answer<VersionInfo> {
    Ok(VersionInfo {
        git_version: text.to_owned(),
        ..VersionInfo::default()
    })
}

fn clocks() -> Answer<Clocks> {
    Ok(Clocks {
        server: at(NOW),
        before: at(NOW),
        after: at(NOW),
    })
}

fn deployment(ready: i32) -> Deployment {
    let text = json!({"metadata": {"name": "muster-agent"}, "spec": {"replicas": 2, "selector": {}, "template": {}}, "status": {"readyReplicas": ready}});
    serde_json::from_value(text).unwrap()
}

fn cluster(id: &str, conditions: Value) -> Answer<muster_shared::api::cluster::Cluster> {
    let text = json!({"metadata": {"name": "m1"}, "spec": {"syncMode": "Pull", "id": id}, "status": {"conditions": conditions}});
    Ok(serde_json::from_value(text).unwrap())
}

fn condition(kind: &str, status: &str) -> Value {
    json!({"type": kind, "status": status, "reason": "R", "message": "words", "lastTransitionTime": NOW})
}

fn sound() -> Facts {
    Facts {
        server: "https://member".to_owned(),
        now: at(NOW),
        namespace: "muster-system".to_owned(),
        version: version("v1.35.0"),
        clocks: clocks(),
        id: Ok("1".to_owned()),
        agents: Ok(vec![deployment(2)]),
        flags: Flags {
            cluster: "m1".to_owned(),
            registers: true,
        },
        lacking: Some(Ok(Vec::new())),
        way: Ok(Way {
            server: "https://fleet".to_owned(),
            credentials: None,
            config: kube::Config::new("https://fleet".parse().unwrap()),
        }),
        fleet: Some(Fleet {
            version: version("v1.35.0"),
            clocks: clocks(),
            id: Ok("0".to_owned()),
            cluster: cluster("1", json!([condition("Ready", "True")])),
            lease: Ok(muster_shared::k8s::Lease::default()),
        }),
    }
}

#[test]
fn a_sound_member_is_all_green() {
    let verdicts = check(&sound());
    let bad: Vec<_> = verdicts
        .iter()
        .filter(|it| it.status != Status::Ok)
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn each_broken_part_of_a_member_has_its_line() {
    use Status::{Error, Warning};
    fn fleet(facts: &mut Facts) -> &mut Fleet {
        facts.fleet.as_mut().unwrap()
    }
    fn reported(name: &str, status: Status, words: &str, break_it: impl FnOnce(&mut Facts)) {
        let mut facts = sound();
        break_it(&mut facts);
        let verdicts = check(&facts);
        let found = verdicts
            .iter()
            .find(|it| it.name == name && it.status == status);
        let found = found.unwrap_or_else(|| panic!("{name}: {verdicts:#?}"));
        assert!(found.message.contains(words), "{found:?}");
    }
    reported("answers", Error, "refused", |it| {
        it.version = Err(Refusal::Failed("refused".to_owned()));
    });
    reported("version", Error, "older than 1.25", |it| {
        it.version = version("v1.20.0");
    });
    reported("agent", Error, "no agent is installed", |it| {
        it.agents = Ok(Vec::new());
    });
    reported("agent", Error, "none of 2", |it| {
        it.agents = Ok(vec![deployment(0)]);
    });
    reported("agent", Warning, "one replica", |it| {
        it.agents = Ok(vec![deployment(1)]);
    });
    reported("single-agent", Warning, "several", |it| {
        it.agents = Ok(vec![deployment(2), deployment(2)]);
    });
    reported("agent", Warning, "cannot be checked", |it| {
        it.agents = Err(Refusal::Forbidden("no".to_owned()));
    });
    reported("agent-rights", Error, "may not list pods", |it| {
        it.lacking = Some(Ok(vec!["list pods"]));
    });
    reported(
        "fleet-credentials",
        Error,
        "not got its certificate yet",
        |it| it.way = Err(Refusal::Absent("no Secret".to_owned())),
    );
    reported("fleet-credentials", Warning, "cannot be checked", |it| {
        it.way = Err(Refusal::Forbidden("no".to_owned()));
    });
    reported("fleet-credentials", Error, "expired 24 h ago", |it| {
        it.way
            .as_mut()
            .unwrap_or_else(|_| unreachable!())
            .credentials = Some(Life {
            begin: None,
            end: at("2029-12-31T00:00:00Z"),
        });
    });
    reported("answers", Error, "https://fleet: refused", |it| {
        fleet(it).version = Err(Refusal::Failed("refused".to_owned()));
    });
    reported("another-cluster", Error, "the same cluster", |it| {
        fleet(it).id = Ok("1".to_owned());
    });
    reported("registered", Error, "no Cluster \"m1\"", |it| {
        fleet(it).cluster = Err(Refusal::Absent("not found".to_owned()));
    });
    reported("registered", Error, "that of another cluster", |it| {
        fleet(it).cluster = cluster("2", json!([]));
    });
    reported(
        "ready",
        Error,
        "Ready is Unknown since 2030-01-01T00:00:00Z (R): words",
        |it| fleet(it).cluster = cluster("1", json!([condition("Ready", "Unknown")])),
    );
    reported("heartbeat", Error, "no lease", |it| {
        fleet(it).lease = Err(Refusal::Absent("not found".to_owned()));
    });
}
