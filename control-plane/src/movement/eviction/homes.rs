//! The clusters that a workload left because of a taint, and to which its policy has it return.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::failback::FailbackMode;
use muster_shared::clock::whole_second;
use muster_shared::k8s::ObjectMeta;
use muster_shared::names::annotation::HOMES;
use serde_json::{Map, Value, json};

use crate::settings::Settings;

/// Clusters that are kept in mind for a workload: the ones that it left last.
const MOST: usize = 8;
/// Time after which a workload that did not return stays where it is.
pub const LONGEST_AWAY: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Returns whether a workload is to return to clusters that it leaves. A mode that this version
/// does not know makes no workload return.
pub fn returns(spec: &ResourceBindingSpec, settings: &Settings) -> bool {
    let own = spec.cluster_failover().and_then(|it| it.failback.as_ref());
    let mode = own.map_or_else(
        || FailbackMode::from(settings.failback.clone()),
        |own| own.mode.clone(),
    );
    mode == FailbackMode::WhenHealthy
}

/// Returns the clusters that a workload left and may return to, with the time of each departure.
pub fn homes(meta: &ObjectMeta) -> BTreeMap<String, Timestamp> {
    let annotations = meta.annotations.as_ref();
    let text = annotations.and_then(|it| it.get(HOMES));
    let read: Option<BTreeMap<String, Value>> = text.and_then(|it| serde_json::from_str(it).ok());
    let all = read.into_iter().flatten();
    all.filter_map(|(name, time)| Some((name, time.as_str()?.parse().ok()?)))
        .collect()
}

/// Returns the annotations of a binding, as a merge patch, after its workload left a cluster.
/// Departures from which nothing is to return are forgotten.
pub fn departed(
    meta: &ObjectMeta,
    spec: &ResourceBindingSpec,
    cluster: &str,
    at: Timestamp,
    settings: &Settings,
) -> Map<String, Value> {
    let mut homes = homes(meta);
    if returns(spec, settings) {
        homes.insert(cluster.to_owned(), whole_second(at));
    } else {
        homes.clear();
    }
    patch(meta, homes)
}

/// Returns the same after a workload has come home to some clusters, or has given them up.
pub fn forgotten(meta: &ObjectMeta, names: &[String]) -> Map<String, Value> {
    let mut homes = homes(meta);
    homes.retain(|name, _| !names.contains(name));
    patch(meta, homes)
}

/// Returns the changes of the annotations: the newest departures, or null where none is left.
fn patch(meta: &ObjectMeta, homes: BTreeMap<String, Timestamp>) -> Map<String, Value> {
    let mut patch = Map::new();
    let mut newest: Vec<_> = homes.into_iter().collect();
    newest.sort_by_key(|(_, left)| std::cmp::Reverse(*left));
    newest.truncate(MOST);
    let kept = newest
        .into_iter()
        .map(|(name, left)| (name, json!(left.to_string())));
    let kept: Map<String, Value> = kept.collect();
    if !kept.is_empty() {
        patch.insert(HOMES.to_owned(), json!(Value::Object(kept).to_string()));
    } else if meta.annotations.iter().any(|it| it.contains_key(HOMES)) {
        patch.insert(HOMES.to_owned(), Value::Null);
    }
    patch
}

#[cfg(test)]
mod tests {
    use muster_shared::api::any_binding::AnyBinding;

    use super::*;
    use crate::fleet::testing::at;

    fn binding(annotations: &Value, mode: &str) -> AnyBinding {
        serde_json::from_value(json!({
            "metadata": { "name": "web", "annotations": annotations },
            "spec": {
                "resource": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
                "failover": { "cluster": { "failback": { "mode": mode } } },
            },
        }))
        .unwrap()
    }

    #[test]
    fn the_newest_departures_are_kept_in_one_annotation() {
        let mut annotations = json!({});
        for second in 0..12 {
            let before = binding(&annotations, "WhenHealthy");
            let cluster = format!("m{second}");
            let patch = departed(
                &before.metadata,
                &before.spec,
                &cluster,
                at(second),
                &Settings::default(),
            );
            assert_eq!(patch.len(), 1);
            annotations = Value::Object(patch);
        }
        let expected = (4..12).map(|it| (format!("m{it}"), at(it))).collect();
        let kept = binding(&annotations, "WhenHealthy");
        assert_eq!(homes(&kept.metadata), expected);
        let names: Vec<String> = expected.into_keys().collect();
        let patch = forgotten(&kept.metadata, &names[1..]);
        let rest = binding(&Value::Object(patch), "WhenHealthy");
        assert_eq!(
            homes(&rest.metadata).into_keys().collect::<Vec<_>>(),
            names[..1]
        );
        assert_eq!(
            json!(forgotten(&rest.metadata, &names)),
            json!({ HOMES: null })
        );
    }

    #[test]
    fn a_departure_is_kept_only_where_the_workload_is_to_return() {
        let settings = |flags: &[&str]| {
            let flags: Vec<String> = flags.iter().map(|it| (*it).to_owned()).collect();
            Settings::of_flags(&flags).unwrap()
        };
        let (off, on) = (settings(&[]), settings(&["--failback=WhenHealthy"]));
        let known = json!({ HOMES: r#"{"m1":"1970-01-01T00:00:09Z"}"# });
        for (mode, expected) in [
            ("Never", json!({ HOMES: null })),
            ("Unheard", json!({ HOMES: null })),
            (
                "WhenHealthy",
                json!({ HOMES: r#"{"m1":"1970-01-01T00:00:09Z","m2":"1970-01-01T00:00:20Z"}"# }),
            ),
        ] {
            let before = binding(&known, mode);
            let patch = departed(&before.metadata, &before.spec, "m2", at(20), &on);
            assert_eq!(json!(patch), expected, "{mode}");
        }
        let mut silent = binding(&json!({}), "Never");
        silent.spec.failover = None;
        assert_eq!(
            json!(departed(&silent.metadata, &silent.spec, "m2", at(20), &off)),
            json!({})
        );
        let patch = departed(&silent.metadata, &silent.spec, "m2", at(20), &on);
        assert_eq!(
            json!(patch),
            json!({ HOMES: r#"{"m2":"1970-01-01T00:00:20Z"}"# })
        );
    }

    #[test]
    fn what_cannot_be_read_is_stepped_over() {
        for (text, expected) in [
            ("nonsense", vec![]),
            (
                r#"{"m1":7,"m2":"yesterday","m3":"1970-01-01T00:00:20Z"}"#,
                vec![("m3", at(20))],
            ),
        ] {
            let found = homes(&binding(&json!({ HOMES: text }), "WhenHealthy").metadata);
            let found: Vec<_> = found.iter().map(|(name, at)| (&**name, *at)).collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
