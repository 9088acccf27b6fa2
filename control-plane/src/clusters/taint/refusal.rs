//! Taints that the fleet API refuses to put on a cluster.
//!
//! All taints of a cluster are written at once, so that one that the API refuses would keep all
//! others from coming and going. Beside Karmada it refuses `PreferNoSchedule` and
//! `PreferNoExecute`, which its policies take. What was refused is left out for a while.

use std::time::Duration;

use muster_shared::k8s::Taint;
use muster_shared::taints::{NO_EXECUTE, NO_SCHEDULE};

use crate::fleet::memory::Recent;

/// Time after which a refused taint is tried again: the definition of Cluster may have been
/// replaced.
const AGAIN: Duration = Duration::from_hours(1);

/// Key, value and effect of a taint.
type Identity = (String, Option<String>, String);

/// Remembers the taints that the API refused a short time ago.
#[derive(Debug)]
pub struct Refusals(Recent<Identity>);

impl Default for Refusals {
    fn default() -> Self {
        Self(Recent::lasting(AGAIN))
    }
}

impl Refusals {
    /// Notes that a taint was refused.
    pub fn add(&self, taint: &Taint) {
        self.0.note(identity(taint), ());
    }

    /// Returns whether a taint was refused a short time ago.
    pub fn has(&self, taint: &Taint) -> bool {
        self.0.get(&identity(taint)).is_some()
    }
}

fn identity(taint: &Taint) -> Identity {
    (taint.key.clone(), taint.value.clone(), taint.effect.clone())
}

/// Returns which of the taints that were to come make the API refuse the list `written`. Where the
/// answer names fields, it is those; otherwise the ones with effects that not every API knows.
/// There are none if the list was refused for another reason.
pub fn culprits<'a>(
    error: &kube::Error,
    written: &[Taint],
    coming: &[&'a Taint],
) -> Vec<&'a Taint> {
    let kube::Error::Api(status) = error else {
        return Vec::new();
    };
    if status.code != 422 {
        return Vec::new();
    }
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let named: Vec<&Taint> = causes
        .filter_map(|cause| written.get(place(&cause.field)?))
        .collect();
    let is_culprit = |taint: &&&Taint| {
        if named.is_empty() {
            taint.effect != NO_SCHEDULE && taint.effect != NO_EXECUTE
        } else {
            let same = |it: &&Taint| it.key == taint.key && it.effect == taint.effect;
            named.iter().any(same)
        }
    };
    coming.iter().filter(is_culprit).copied().collect()
}

/// Returns the place in the list of taints that a field is about, such as `spec.taints[2].effect`.
fn place(field: &str) -> Option<usize> {
    let (place, _) = field.strip_prefix("spec.taints[")?.split_once(']')?;
    place.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fleet::testing::taint;

    fn refusal(code: u16, fields: &[&str]) -> kube::Error {
        let causes: Vec<Value> = fields.iter().map(|it| json!({ "field": it })).collect();
        let status = json!({ "code": code, "reason": "Invalid", "details": { "causes": causes } });
        kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
    }

    #[test]
    fn the_taints_that_an_answer_names_are_left_out_or_those_that_not_every_api_knows() {
        let written = [
            taint("there", "PreferNoSchedule"),
            taint("a", "NoExecute"),
            taint("b", "PreferNoSchedule"),
            taint("c", "PreferNoExecute"),
        ];
        let coming: Vec<&Taint> = written[1..].iter().collect();
        for (code, fields, expected) in [
            (422, &["spec.taints[2].effect"][..], &["b"][..]),
            (
                422,
                &["spec.taints[1].key", "spec.taints[3].effect"],
                &["a", "c"],
            ),
            (422, &["spec.taints[2]"], &["b"]),
            // Somebody else's.
            (422, &["spec.taints[0].effect"], &[]),
            // A field that names none of the taints.
            (422, &["spec.taints"], &["b", "c"]),
            (422, &[], &["b", "c"]),
            (
                422,
                &["spec.taints[x].effect", "spec.taints[9].effect"],
                &["b", "c"],
            ),
            (409, &["spec.taints[2].effect"], &[]),
            (500, &[], &[]),
        ] {
            let culprits = culprits(&refusal(code, fields), &written, &coming);
            let keys: Vec<&str> = culprits.iter().map(|it| it.key.as_str()).collect();
            assert_eq!(keys, expected, "{code} {fields:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_refused_taint_is_left_out_for_a_while() {
        let refusals = Refusals::default();
        let (first, second) = (
            taint("a", "PreferNoSchedule"),
            taint("b", "PreferNoSchedule"),
        );
        refusals.add(&first);
        tokio::time::advance(AGAIN / 2).await;
        refusals.add(&second);
        assert!(refusals.has(&first) && refusals.has(&second));
        assert!(!refusals.has(&taint("a", "NoSchedule")), "another effect");
        tokio::time::advance(AGAIN / 2).await;
        assert!(!refusals.has(&first), "it is tried again");
        assert!(refusals.has(&second));
    }
}
