//! Claim of a policy on its templates and bindings.
//!
//! A label holds the policy's permanent id, annotations its name. A policy that is deleted and
//! created again under the same name has another id, so that an old claim is not taken for one of
//! the new policy (Karmada: `pkg/detector/claim.go`).

use std::collections::BTreeMap;

use muster_shared::names::annotation::{
    CLUSTER_PROPAGATION_POLICY_NAME as CLUSTER_POLICY_NAME, PROPAGATION_POLICY_NAME as POLICY_NAME,
    PROPAGATION_POLICY_NAMESPACE as POLICY_NAMESPACE,
};
use muster_shared::names::label::{
    CLUSTER_PROPAGATION_POLICY_ID as CLUSTER_POLICY_ID, PROPAGATION_POLICY_ID as POLICY_ID,
};
use serde_json::{Value, json};

use super::labelled::Labelled;
use super::policy::{Policy, PolicyKey};
use super::selection::given;

/// Labels or annotations.
pub type Pairs = BTreeMap<String, String>;

/// Which policy is in charge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The policy.
    pub policy: PolicyKey,
    /// Permanent id of the policy.
    pub id: String,
}

impl Claim {
    /// Returns the claim that a policy makes; `None` before it has a permanent id.
    pub fn by(policy: &Policy) -> Option<Self> {
        let id = given(policy.metadata().label(policy.scope().policy_id_label()))?;
        Some(Self {
            policy: policy.key(),
            id: id.to_owned(),
        })
    }

    /// Returns the claim on a template or binding. All parts of it must be there; a claim of a
    /// `PropagationPolicy` is searched for first.
    pub fn on(object: &impl Labelled) -> Option<Self> {
        let label = |key| given(object.label(key));
        let annotation = |key| given(object.annotation(key));
        let namespaced = || {
            let (namespace, name) = (annotation(POLICY_NAMESPACE)?, annotation(POLICY_NAME)?);
            Some(Self {
                policy: PolicyKey::new(Some(namespace), name),
                id: label(POLICY_ID)?.to_owned(),
            })
        };
        let cluster = || {
            Some(Self {
                policy: PolicyKey::new(None, annotation(CLUSTER_POLICY_NAME)?),
                id: label(CLUSTER_POLICY_ID)?.to_owned(),
            })
        };
        namespaced().or_else(cluster)
    }

    /// Returns the labels of a claimed object.
    pub fn labels(&self) -> Pairs {
        let label = self.policy.scope().policy_id_label();
        Pairs::from([(label.to_owned(), self.id.clone())])
    }

    /// Returns the annotations of a claimed object.
    pub fn annotations(&self) -> Pairs {
        let name = self.policy.name().to_owned();
        match self.policy.namespace() {
            Some(namespace) => Pairs::from([
                (POLICY_NAMESPACE.to_owned(), namespace.to_owned()),
                (POLICY_NAME.to_owned(), name),
            ]),
            None => Pairs::from([(CLUSTER_POLICY_NAME.to_owned(), name)]),
        }
    }

    /// Returns the merge patch of the metadata that makes this claim, `None` when it is made
    /// already. The claim of a namespaced policy replaces that of a cluster-wide one; a
    /// cluster-wide policy leaves what it finds.
    pub fn patch(&self, object: &impl Labelled) -> Option<Value> {
        let (label, annotation) = (
            |key: &_| object.label(key),
            |key: &_| object.annotation(key),
        );
        let mut labels = missing(label, &self.labels());
        let mut annotations = missing(annotation, &self.annotations());
        if self.policy.namespace().is_some() {
            labels.extend(present(label, &[CLUSTER_POLICY_ID]));
            annotations.extend(present(annotation, &[CLUSTER_POLICY_NAME]));
        }
        wrap(labels, annotations)
    }

    /// Returns the merge patch of the metadata that ends this claim, `None` when the object does
    /// not have it (any more). A copy of a policy may bear the id of the original: what names that
    /// one is not its own.
    pub fn release(&self, object: &impl Labelled) -> Option<Value> {
        let label = self.policy.scope().policy_id_label();
        let annotations: &[&str] = match self.policy.namespace() {
            Some(_) => &[POLICY_NAMESPACE, POLICY_NAME],
            None => &[CLUSTER_POLICY_NAME],
        };
        let is_another = |(key, value): (String, String)| {
            given(object.annotation(&key)).is_some_and(|it| it != value)
        };
        let names_another = self.annotations().into_iter().any(is_another);
        if given(object.label(label)) != Some(&*self.id) || names_another {
            return None;
        }
        wrap(
            present(|key| object.label(key), &[label]),
            present(|key| object.annotation(key), annotations),
        )
    }
}

type Changes = serde_json::Map<String, Value>;

/// Returns the changes that set the `wanted` pairs which are missing or differ; `held` returns the
/// value of a key.
pub(crate) fn missing<'a>(held: impl Fn(&str) -> Option<&'a str>, wanted: &Pairs) -> Changes {
    wanted
        .iter()
        .filter(|(key, value)| held(key) != Some(value.as_str()))
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect()
}

/// Returns the changes that remove those of `keys` that are there.
fn present<'a>(held: impl Fn(&str) -> Option<&'a str>, keys: &[&str]) -> Changes {
    keys.iter()
        .filter(|key| held(key).is_some())
        .map(|key| ((*key).to_owned(), Value::Null))
        .collect()
}

fn wrap(labels: Changes, annotations: Changes) -> Option<Value> {
    let mut metadata = Changes::new();
    for (key, changes) in [("labels", labels), ("annotations", annotations)] {
        if !changes.is_empty() {
            metadata.insert(key.to_owned(), Value::Object(changes));
        }
    }
    (!metadata.is_empty()).then_some(Value::Object(metadata))
}

#[cfg(test)]
mod tests {
    use kube::core::ObjectMeta;

    use super::*;

    fn namespaced() -> Claim {
        Claim {
            policy: PolicyKey::new(Some("default"), "pp"),
            id: "p".into(),
        }
    }

    fn cluster() -> Claim {
        Claim {
            policy: PolicyKey::new(None, "cpp"),
            id: "c".into(),
        }
    }

    fn claimed_by(claim: &Claim) -> ObjectMeta {
        ObjectMeta {
            labels: Some(claim.labels()),
            annotations: Some(claim.annotations()),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn a_claim_is_read_back_and_not_made_twice() {
        for claim in [namespaced(), cluster()] {
            assert_eq!(Claim::on(&claimed_by(&claim)), Some(claim.clone()));
            assert_eq!(claim.patch(&claimed_by(&claim)), None);
        }
    }

    #[test]
    fn a_claim_with_a_part_missing_is_none() {
        let mut metadata = claimed_by(&namespaced());
        metadata
            .annotations
            .as_mut()
            .unwrap()
            .remove(POLICY_NAMESPACE);
        assert_eq!(Claim::on(&metadata), None);
    }

    #[test]
    fn a_namespaced_policy_takes_the_place_of_a_cluster_wide_one() {
        let patch = namespaced().patch(&claimed_by(&cluster())).unwrap();
        assert_eq!(
            patch["labels"],
            json!({ POLICY_ID: "p", CLUSTER_POLICY_ID: null })
        );
        assert_eq!(
            patch["annotations"],
            json!({ POLICY_NAMESPACE: "default", POLICY_NAME: "pp", CLUSTER_POLICY_NAME: null })
        );
    }

    #[test]
    fn a_copy_of_a_policy_that_bears_its_id_releases_nothing_of_it() {
        for original in [namespaced(), cluster()] {
            let copy = Claim {
                policy: PolicyKey::new(original.policy.namespace(), "copy"),
                ..original.clone()
            };
            assert_eq!(copy.release(&claimed_by(&original)), None);
            assert!(original.release(&claimed_by(&original)).is_some());
        }
    }

    #[test]
    fn a_released_object_keeps_the_claim_of_a_successor() {
        let successor = Claim {
            id: "p2".into(),
            ..namespaced()
        };
        assert_eq!(namespaced().release(&claimed_by(&successor)), None);
        let released = namespaced().release(&claimed_by(&namespaced())).unwrap();
        assert_eq!(released["labels"], json!({ POLICY_ID: null }));
        assert_eq!(
            released["annotations"],
            json!({ POLICY_NAMESPACE: null, POLICY_NAME: null })
        );
    }
}
