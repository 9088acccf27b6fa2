//! Decides when a policy with `activationPreference: Lazy` takes effect.

use kube::core::ObjectMeta;

use crate::fleet::policy::Policy;
use crate::fleet::template::{Template, recorded_fingerprint};

/// State of the template from which its binding was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made<'a> {
    /// There is no binding.
    Nothing,
    /// The binding has no record, because an older version wrote it.
    Unrecorded,
    /// Fingerprint of the template.
    Of(&'a str),
}

impl<'a> Made<'a> {
    /// Returns what a binding records of the template that it was made of, if there is a binding.
    pub fn of(binding: Option<&'a ObjectMeta>) -> Self {
        match binding {
            None => Self::Nothing,
            Some(binding) => recorded_fingerprint(binding).map_or(Self::Unrecorded, Self::Of),
        }
    }
}

/// Returns whether a lazy policy takes effect on a template: with the next change of the template
/// after that of the policy, and at once on one that came after the policy. `changed` is whether
/// this process saw a change since it last looked. What the binding records is known after a
/// restart too, so that a restart applies nothing that waits, and loses nothing that happened
/// meanwhile.
pub fn activates(policy: &Policy, template: &Template, made: Made<'_>, changed: bool) -> bool {
    match made {
        Made::Of(recorded) => recorded != template.fingerprint(),
        Made::Unrecorded => changed,
        Made::Nothing => {
            let (came, policy) = (template.metadata(), policy.metadata());
            changed || came.creation_timestamp >= policy.creation_timestamp
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        let (same, other) = (older.fingerprint(), template(1, "blue").fingerprint());
        for (what, template, made, changed, expected) in [
            ("bound, unchanged", &older, Made::Of(&same), false, false),
            (
                "bound, changed and changed back",
                &older,
                Made::Of(&same),
                true,
                false,
            ),
            (
                "bound, changed while nobody looked",
                &older,
                Made::Of(&other),
                false,
                true,
            ),
            (
                "bound before there were records",
                &older,
                Made::Unrecorded,
                false,
                false,
            ),
            (
                "bound before there were records, changed",
                &older,
                Made::Unrecorded,
                true,
                true,
            ),
            (
                "older than the policy, not bound",
                &older,
                Made::Nothing,
                false,
                false,
            ),
            (
                "older than the policy, not bound, changed",
                &older,
                Made::Nothing,
                true,
                true,
            ),
            (
                "younger than the policy, not bound",
                &newer,
                Made::Nothing,
                false,
                true,
            ),
        ] {
            assert_eq!(
                activates(&policy, template, made, changed),
                expected,
                "{what}"
            );
        }
    }
}
