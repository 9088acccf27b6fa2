//! Index of bindings by the policy that claims them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::names::label;

use crate::fleet::binding::BindingKey;
use crate::fleet::claim::Claim;
use crate::fleet::policy::PolicyKey;
use crate::fleet::sets::take;

/// The bindings of each policy: what a policy has is found without reading the bindings of
/// others.
#[derive(Debug, Default)]
pub struct Bound {
    by_id: HashMap<(Label, String), BTreeSet<Arc<BindingKey>>>,
    by_policy: HashMap<PolicyKey, BTreeSet<Arc<BindingKey>>>,
}

/// The label that holds an id.
type Label = &'static str;

const LABELS: [Label; 2] = [
    label::PROPAGATION_POLICY_ID,
    label::CLUSTER_PROPAGATION_POLICY_ID,
];

impl Bound {
    /// Takes in a change of a binding: what it was and what it is.
    pub fn change(&mut self, old: Option<&AnyBinding>, new: Option<&AnyBinding>) {
        let marks = |binding: &AnyBinding| (ids(binding), Claim::on(&binding.metadata));
        let (was, is) = (old.map(marks), new.map(marks));
        if was == is {
            return;
        }
        if let (Some(old), Some((ids, claim))) = (old, was) {
            let key = BindingKey::of(old);
            for id in ids {
                take(&mut self.by_id, &id, &key);
            }
            if let Some(claim) = claim {
                take(&mut self.by_policy, &claim.policy, &key);
            }
        }
        if let (Some(new), Some((ids, claim))) = (new, is) {
            let key = BindingKey::of(new).shared();
            for id in ids {
                self.by_id.entry(id).or_default().insert(Arc::clone(&key));
            }
            if let Some(claim) = claim {
                self.by_policy.entry(claim.policy).or_default().insert(key);
            }
        }
    }

    /// Returns the bindings that carry the id of a claim.
    pub fn by_id(&self, claim: &Claim) -> Vec<Arc<BindingKey>> {
        let label = claim.policy.scope().policy_id_label();
        let found = self.by_id.get(&(label, claim.id.clone()));
        found.into_iter().flatten().cloned().collect()
    }

    /// Returns the bindings whose claim names a policy, whatever its id.
    pub fn by_policy(&self, policy: &PolicyKey) -> Vec<Arc<BindingKey>> {
        let found = self.by_policy.get(policy);
        found.into_iter().flatten().cloned().collect()
    }
}

fn ids(binding: &AnyBinding) -> Vec<(Label, String)> {
    let labels = binding.metadata.labels.as_ref();
    LABELS
        .into_iter()
        .filter_map(|label| Some((label, labels?.get(label)?.clone())))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(number: usize) -> Claim {
        Claim {
            policy: PolicyKey::new(Some("shop"), &format!("p{number}")),
            id: format!("id-{number}"),
        }
    }

    fn binding(name: &str, claim: Option<&Claim>) -> AnyBinding {
        let mut binding: AnyBinding = serde_json::from_value(
            json!({ "metadata": { "name": name, "namespace": "shop" }, "spec": { "resource": {} } }),
        )
        .unwrap();
        binding.metadata.labels = claim.map(Claim::labels);
        binding.metadata.annotations = claim.map(Claim::annotations);
        binding
    }

    fn names(found: &[Arc<BindingKey>]) -> Vec<&str> {
        found.iter().map(|key| key.name.as_str()).collect()
    }

    #[test]
    fn a_binding_is_found_by_the_policy_that_it_carries_now() {
        let mut bound = Bound::default();
        let (first, second) = (claim(1), claim(2));
        let (before, after) = (binding("a", Some(&first)), binding("a", Some(&second)));
        bound.change(None, Some(&before));
        bound.change(None, Some(&binding("b", Some(&first))));
        assert_eq!(names(&bound.by_id(&first)), ["a", "b"]);
        bound.change(Some(&before), Some(&after));
        assert_eq!(names(&bound.by_id(&first)), ["b"]);
        assert_eq!(names(&bound.by_policy(&second.policy)), ["a"]);
        bound.change(Some(&after), Some(&binding("a", None)));
        assert!(bound.by_policy(&second.policy).is_empty());
        assert!(!bound.by_id.contains_key(&(LABELS[0], "id-2".to_owned())));
    }

    #[test]
    fn all_policies_together_visit_as_many_bindings_as_there_are() {
        let visited = |policies: usize| -> usize {
            let mut bound = Bound::default();
            for number in 0..policies {
                for copy in ["a", "b"] {
                    let name = format!("{copy}{number}");
                    bound.change(None, Some(&binding(&name, Some(&claim(number)))));
                }
            }
            (0..policies)
                .map(|number| bound.by_id(&claim(number)).len())
                .sum()
        };
        assert_eq!((visited(500), visited(1000)), (1000, 2000));
    }
}
