//! Replays recorded cases of Karmada's cluster monitor: the taints of one cluster after each pass.
//!
//! A `restart` in a case loses the memory of the monitor only: the leases have been watched since
//! second
//! 0. (A real restart begins a new watch, and gives clusters that never reported a new start-up
//!    grace period; `tracker` tests that.)

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use muster_shared::conditions;
use muster_shared::names::condition::READY;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::monitor::{Graces, Liveness, Verdict};
use crate::clusters::taint::condition_taints;
use crate::deviations::DEVIATIONS;
use crate::settings::Settings;

fn replay(input: &Value) -> Value {
    let second = |name: &str| input[name].as_u64().unwrap_or(0);
    let graces = Graces {
        monitor: Duration::from_secs(second("graceSeconds")),
        startup: Duration::from_secs(second("startupGraceSeconds")),
    };
    let pull = input["syncMode"] == "Pull";
    let created = Instant::now();
    let (mut liveness, mut ready, mut renewed): (
        Option<Liveness>,
        Option<Condition>,
        Option<Timestamp>,
    ) = (None, None, None);
    let mut present: Vec<Taint> = Vec::new();
    let settings = Settings::default();
    let mut out = Vec::new();
    for step in input["steps"].as_array().unwrap() {
        let at = step["at"].as_u64().unwrap();
        let (now, wall) = (
            created + Duration::from_secs(at),
            Timestamp::from_second(at.cast_signed()).unwrap(),
        );
        if step["restart"] == true {
            liveness = None;
        }
        match step["posted"].as_str() {
            Some("") => ready = None,
            Some(status) => {
                let unchanged = ready.as_ref().filter(|r| r.status == status);
                let since = unchanged.map_or(wall, |r| r.last_transition_time.0);
                ready = Some(conditions::new(READY, status, "Posted", "posted", since));
            }
            None => {}
        }
        if step["leaseRenewed"] == true {
            renewed = Some(wall);
        }
        if step["leaseDeleted"] == true {
            renewed = None;
        }
        if step["monitor"] == true && pull {
            let liveness =
                liveness.get_or_insert_with(|| Liveness::new(ready.as_ref(), created, now));
            liveness.ready(ready.as_ref(), now);
            liveness.lease(renewed, now);
            if let Verdict::Silent(silence) = liveness.judge(graces, now) {
                let condition = silence.condition(wall);
                liveness.wrote(condition.clone());
                ready = Some(condition);
            }
        }
        present =
            condition_taints::wanted(&present, ready.as_ref(), false, &settings, |_| false, wall)
                .taints
                .unwrap_or(present);
        let shown = ready.as_ref().map(|r| {
            json!({"status": r.status, "reason": r.reason, "message": r.message, "since": r.last_transition_time.0.as_second()})
        });
        let list: Vec<Value> = present
            .iter()
            .map(|t| json!({"key": t.key, "effect": t.effect, "since": t.time_added.as_ref().unwrap().0.as_second()}))
            .collect();
        out.push(json!({"ready": shown, "taints": list}));
    }
    json!({ "steps": out })
}

#[test]
fn recorded_monitor_cases() {
    let own = Path::new("tests");
    muster_vectors::replay("cluster_monitor", own, DEVIATIONS, |case| {
        muster_vectors::same(&case.output, &replay(&case.input))
    })
    .unwrap();
}
