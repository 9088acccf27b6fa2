//! Annotation with the placement of the last schedule.

use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::policy::Placement;

/// Bytes of a placement that the annotation keeps. All annotations of an object hold 256 KiB, and
/// static weights may name thousands of clusters: with a text that does not fit, neither a result
/// nor an eviction could be written.
const LONGEST_RECORD: usize = 128 * 1024;
/// The beginning of what is kept of a longer one. A text in quotes is no placement, so that whoever
/// expects one sees that it is none.
const DIGEST: &str = "\"placement too long for an annotation, sha256:";

/// Returns the placement as the annotation keeps it: its text, or, where that is too long, a digest
/// of it, which says whether it changed but not in which part.
///
/// # Panics
/// Never: a placement has text keys, which always serialise.
pub fn record(spec: &ResourceBindingSpec) -> String {
    let text = serde_json::to_string(&spec.placement)
        .expect("a placement has text keys: invariant of its type");
    if text.len() <= LONGEST_RECORD {
        return text;
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let digits = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
    format!("{DIGEST}{}\"", digits.collect::<String>())
}

/// Returns the placement as the annotation is to keep it, given what it has: another text of the
/// same placement stays. Karmada writes the keys in another order, and a control plane that takes
/// its place has no reason to write each binding.
pub(super) fn annotation_text(spec: &ResourceBindingSpec, applied: Option<&str>) -> String {
    let text = record(spec);
    let is_same = |applied: &&str| {
        let read = |text| serde_json::from_str::<Option<Placement>>(text).ok();
        *applied != text && read(applied).is_some_and(|it| it.as_ref() == spec.placement.as_deref())
    };
    match applied.filter(is_same) {
        Some(applied) => applied.to_owned(),
        None => text,
    }
}

/// Returns whether an annotation keeps a digest in place of the placement.
pub(crate) fn is_digest(record: &str) -> bool {
    record.starts_with(DIGEST)
}

#[cfg(test)]
mod tests {
    use muster_shared::api::binding::ResourceBindingStatus;

    use super::*;
    use crate::scheduler::core::need::{Need, need};
    use crate::scheduler::tests::fixtures::{
        cluster, deployment, dynamic, placed, snapshot, static_weights,
    };

    #[test]
    fn another_text_of_the_same_placement_stays_and_any_other_is_replaced() {
        let spec = deployment(2, &dynamic());
        let text = record(&spec);
        let keys: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
        let fields = keys
            .iter()
            .rev()
            .map(|(key, value)| format!("{key:?}: {value}"));
        let turned = format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "));
        assert_ne!(turned, text);
        for (applied, stays) in [
            (Some(&*turned), true),
            (Some(&*text), true),
            (Some("{}"), false),
            (Some("null"), false),
            (Some("nonsense"), false),
            (Some(""), false),
            (None, false),
        ] {
            let expected = applied.filter(|_| stays).unwrap_or(&text);
            assert_eq!(annotation_text(&spec, applied), expected, "{applied:?}");
        }
    }

    #[test]
    fn a_placement_too_long_for_an_annotation_is_kept_as_a_digest_that_shows_a_change() {
        let names: Vec<String> = (0..3_500)
            .map(|number| format!("member-{number}"))
            .collect();
        let weighted = |weight: i64| {
            let weights: Vec<(&str, i64)> =
                names.iter().map(|name| (name.as_str(), weight)).collect();
            placed(deployment(2, &static_weights(&weights)), &[("member-1", 2)])
        };
        let (spec, other) = (weighted(1), weighted(2));
        let (applied, changed) = (record(&spec), record(&other));
        assert!(applied.len() < 200 && is_digest(&applied));
        assert_ne!(applied, changed);
        let clusters = snapshot(&[cluster("member-1", 10)]);
        let status = ResourceBindingStatus::default();
        let needs = |spec: &ResourceBindingSpec| {
            need(spec, &status, Some(&applied), &record(spec), &clusters)
        };
        assert_eq!(needs(&spec), None);
        assert_eq!(needs(&other), Some(Need::PlacementChanged));
        // What fits is kept whole.
        assert!(!is_digest(&record(&deployment(2, &dynamic()))));
    }
}
