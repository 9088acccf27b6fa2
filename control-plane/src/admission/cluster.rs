//! Admission of Cluster: the part of Karmada's aggregated API server that the definition cannot do.
//!
//! The definition validates name, addresses, labels and taints. Left are the resource models, whose
//! grades have to fit each other, the times of taints, the rate of a drain, and the address for
//! peers. The deprecated `zone` is not moved to `zones` as in Karmada, because a second apply of
//! the same manifest would then fail.

use jiff::Timestamp;
use muster_shared::api::cluster::ClusterSpec;
use muster_shared::capacity::{default_models, standardize, validate, validate_resources};
use muster_shared::k8s::Time;
use muster_shared::names::annotation::DRAIN_RATE;
use muster_shared::peers::{PEER_ADDRESS, endpoint};
use muster_shared::taints;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Object;
use super::problem::Findings;
use crate::movement::eviction::drain;
use crate::movement::eviction::fleet_view::evicts;

/// A cluster.
pub type Cluster = Object<ClusterSpec>;

/// Returns everything that is wrong with a cluster. Of resource models it is the first fault: those
/// behind it would be its consequences.
pub fn check(cluster: &Cluster) -> Findings {
    let mut found = Findings::default();
    let models = &cluster.spec.resource_models;
    if let Err(fault) = validate(models).and_then(|()| validate_resources(models)) {
        found.invalid("spec.resourceModels", models, &fault.to_string());
    }
    let annotations = cluster.metadata.annotations.as_ref();
    if let Some(text) = annotations.and_then(|all| all.get(DRAIN_RATE))
        && let Err(fault) = drain::parse(text)
    {
        let field = format!("metadata.annotations[{DRAIN_RATE}]");
        found.invalid(field, text, &fault.to_string());
    }
    if let Some(address) = annotations.and_then(|all| all.get(PEER_ADDRESS))
        && let Err(fault) = endpoint(address)
    {
        let field = format!("metadata.annotations[{PEER_ADDRESS}]");
        let fault = format!("{fault}: use an address such as https://vip.example.com:443");
        found.invalid(field, address, &fault);
    }
    found
}

/// Writes what a cluster gets: grades (nine default ones for a new cluster without any, when
/// `modeling` is on), and `now` as the time of taints that drive out and have none. A taint that
/// was there before keeps the time it had.
///
/// Taints and grades that are as they were before stay so, whatever they lack: the author of an
/// update answers for what it changes, and the policies for agents refuse one that changes these.
pub fn default(cluster: &mut Value, old: Option<&Cluster>, modeling: bool, now: Timestamp) {
    let Ok(Cluster { mut spec, .. }) = Cluster::deserialize(&*cluster) else {
        // The schema refuses it in a moment, and says why.
        return;
    };
    let stays = old.is_some_and(|old| old.spec.resource_models == spec.resource_models);
    if modeling && !stays {
        let stated = spec.resource_models.clone();
        if stated.is_empty() && old.is_none() {
            spec.resource_models = default_models();
        }
        standardize(&mut spec.resource_models);
        if spec.resource_models != stated {
            cluster["spec"]["resourceModels"] = json!(spec.resource_models);
        }
    }
    for (index, taint) in spec.taints.iter().enumerate() {
        if evicts(taint) && taint.time_added.is_none() {
            let before =
                old.and_then(|old| taints::find(&old.spec.taints, &taint.key, &taint.effect));
            if before == Some(taint) {
                continue;
            }
            let time = before.and_then(|taint| taint.time_added.clone());
            let time = time.unwrap_or(Time(now));
            cluster["spec"]["taints"][index]["timeAdded"] = json!(time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-11-20T12:00:00Z".parse().unwrap()
    }

    fn range(min: &str, max: &str) -> Value {
        json!([{ "name": "cpu", "min": min, "max": max }])
    }

    fn defaulted(spec: &Value, old: Option<&Value>, modeling: bool) -> Value {
        let old = old.map(|spec| Cluster::deserialize(&json!({ "spec": spec })).unwrap());
        let mut cluster = json!({ "spec": spec });
        default(&mut cluster, old.as_ref(), modeling, now());
        cluster["spec"].take()
    }

    #[test]
    fn the_address_for_peers_is_an_https_url() {
        for (address, expected) in [
            ("https://vip.example.com", None),
            ("tcp://vip", Some("does not begin with https://")),
        ] {
            let annotations = json!({PEER_ADDRESS: address});
            let cluster = json!({"metadata": {"annotations": annotations}});
            let refused = check(&Cluster::deserialize(&cluster).unwrap()).refusal();
            assert_eq!(refused.is_some(), expected.is_some(), "{refused:?}");
            let words = [expected.unwrap_or_default(), PEER_ADDRESS];
            let text = refused.unwrap_or_else(|| PEER_ADDRESS.to_owned());
            assert!(words.iter().all(|it| text.contains(it)), "{text}");
        }
    }

    #[test]
    fn a_new_cluster_gets_nine_grades_and_one_that_gave_them_up_does_not() {
        assert_eq!(
            defaulted(&json!({}), None, true)["resourceModels"]
                .as_array()
                .unwrap()
                .len(),
            9
        );
        assert_eq!(defaulted(&json!({}), None, false), json!({}));
        assert_eq!(defaulted(&json!({}), Some(&json!({})), true), json!({}));
    }

    #[test]
    fn grades_are_sorted_and_have_no_ends() {
        let stated = json!({ "resourceModels": [{ "grade": 2, "ranges": range("2", "4") }, { "grade": 1, "ranges": range("1", "2") }] });
        let standard = json!([{ "grade": 1, "ranges": range("0", "2") }, { "grade": 2, "ranges": range("2", "9223372036854775807") }]);
        let written = defaulted(&stated, None, true);
        assert_eq!(written["resourceModels"], standard);
        assert_eq!(defaulted(&written, Some(&stated), true), written);
        assert_eq!(defaulted(&stated, Some(&stated), true), stated, "as it was");
    }

    #[test]
    fn a_taint_that_drives_out_gets_the_time_it_came() {
        let drives = json!({ "key": "a", "effect": "NoExecute" });
        let keeps = json!({ "key": "a", "effect": "NoSchedule" });
        let valued = json!({ "key": "a", "effect": "NoExecute", "value": "v" });
        let (before, today) = ("2026-01-01T00:00:00Z", "2026-11-20T12:00:00Z");
        let since = |taint: &Value, time: &str| {
            let mut dated = taint.clone();
            dated["timeAdded"] = json!(time);
            dated
        };
        let (old, new) = (since(&drives, before), since(&drives, today));
        for (stated, held, expected) in [
            (&drives, json!([]), &new),
            (&drives, json!([old]), &old),
            (&drives, json!([since(&keeps, before)]), &new),
            (&old, json!([]), &old),
            (&keeps, json!([]), &keeps),
            (&drives, json!([drives]), &drives),
            (&valued, json!([drives]), &since(&valued, today)),
        ] {
            let spec = json!({ "taints": [stated] });
            let written = defaulted(&spec, Some(&json!({ "taints": held })), true);
            assert_eq!(written["taints"], json!([expected]), "{stated} {held}");
        }
    }

    fn refusal(spec: &Value) -> String {
        let cluster = Cluster::deserialize(&json!({ "spec": spec })).unwrap();
        check(&cluster).refusal().unwrap()
    }

    #[test]
    fn a_grade_that_is_there_twice_is_refused_wherever_it_stands() {
        let stated = json!({ "resourceModels": [
            { "grade": 0, "ranges": range("0", "1") },
            { "grade": 1, "ranges": range("1", "2") },
            { "grade": 0, "ranges": range("2", "9223372036854775807") },
        ] });
        let written = defaulted(&stated, None, true);
        let refusal = refusal(&written);
        assert!(refusal.contains("grade 0 is there twice"), "{refusal}");
    }

    #[test]
    fn grades_that_do_not_fit_are_refused() {
        let models = json!([{ "grade": 0, "ranges": range("0", "2") }, { "grade": 1, "ranges": range("3", "9223372036854775807") }]);
        let reported = refusal(&json!({ "resourceModels": models }));
        let at = "spec.resourceModels: Invalid value: [{";
        let why = r#"grade 1: min of "cpu" must be the max of the grade before"#;
        assert!(
            reported.starts_with(at) && reported.ends_with(why),
            "{reported}"
        );
        let models = json!([{ "grade": 0, "ranges": [{ "name": "nvidia.com/gpu", "min": "0", "max": "9223372036854775807" }] }]);
        let reported = refusal(&json!({ "resourceModels": models }));
        let why = r#"grade 0: "nvidia.com/gpu" is none of cpu, memory, storage, ephemeral-storage"#;
        assert!(reported.ends_with(why), "{reported}");
        assert_eq!(check(&Cluster::default()).refusal(), None);
    }
}
