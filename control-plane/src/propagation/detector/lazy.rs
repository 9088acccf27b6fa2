//! Decides when a policy with `activationPreference: Lazy` takes effect.

use kube::core::ObjectMeta;

use crate::fleet::policy::Policy;
use crate::fleet::template::{Template, recorded_fingerprint};

/// Returns whether a lazy policy takes effect on a template: with the next change of the template
/// after that of the policy, and at once on one that came after the policy. `changed` is whether
/// this process saw a change since it was last reconciled. What the binding records of the template
/// is known after a restart too, so that a restart applies nothing that waits, and loses nothing
/// that happened meanwhile. `binding` is its metadata, and whether a policy has placed it: one
/// that only follows workloads may be made before the policy of a new template takes effect.
pub fn activates(
    policy: &Policy,
    template: &Template,
    binding: Option<(&ObjectMeta, bool)>,
    changed: bool,
) -> bool {
    let is_new = || {
        let (came, policy) = (template.metadata(), policy.metadata());
        came.creation_timestamp >= policy.creation_timestamp
    };
    let Some((binding, is_placed)) = binding else {
        return changed || is_new();
    };
    // A binding that an older version wrote has no record.
    let recorded = recorded_fingerprint(binding);
    let is_edited = recorded.map_or(changed, |recorded| recorded != template.fingerprint());
    is_edited || !is_placed && is_new()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fleet::template::TEMPLATE_FINGERPRINT;

    #[test]
    fn a_lazy_policy_takes_effect_with_the_next_change_of_a_template_whatever_was_forgotten() {
        let created = |at: u8| format!("2026-01-01T00:00:0{at}Z");
        let policy = serde_json::from_value(json!({
            "metadata": { "name": "p", "creationTimestamp": created(5) }, "spec": { "resourceSelectors": [] },
        }))
        .unwrap();
        let policy = Policy(policy);
        let template = |at: u8, colour: &str| {
            let metadata = json!({ "name": "web", "creationTimestamp": created(at) });
            Template::new(json!({ "metadata": metadata, "data": { "colour": colour } })).unwrap()
        };
        let (older, newer) = (template(1, "red"), template(9, "red"));
        let made = |of: Option<String>, is_placed: bool| {
            let metadata = ObjectMeta {
                annotations: of.map(|it| [(TEMPLATE_FINGERPRINT.to_owned(), it)].into()),
                ..ObjectMeta::default()
            };
            Some((metadata, is_placed))
        };
        let same = made(Some(older.fingerprint()), true);
        let other = made(Some(template(1, "blue").fingerprint()), true);
        let (unrecorded, nothing) = (made(None, true), None);
        let [followed, young] = [&older, &newer].map(|it| made(Some(it.fingerprint()), false));
        for (what, template, made, changed, expected) in [
            ("bound, unchanged", &older, &same, false, false),
            ("changed and changed back", &older, &same, true, false),
            ("changed while nobody looked", &older, &other, false, true),
            ("bound without a record", &older, &unrecorded, false, false),
            ("and changed", &older, &unrecorded, true, true),
            ("older than the policy", &older, &nothing, false, false),
            ("and changed", &older, &nothing, true, true),
            ("younger than the policy", &newer, &nothing, false, true),
            ("older, and attached", &older, &followed, false, false),
            ("younger, and attached first", &newer, &young, false, true),
        ] {
            let made = made.as_ref().map(|(it, is_placed)| (it, *is_placed));
            let found = activates(&policy, template, made, changed);
            assert_eq!(found, expected, "{what}");
        }
    }
}
