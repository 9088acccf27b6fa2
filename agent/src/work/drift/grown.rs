//! Storage of a claim that was enlarged in the member. Pure.
//!
//! A claim never becomes smaller: an API server refuses that. Whoever enlarges one in the member, a
//! person or a controller that watches its use, would make each later change of the template fail.

use std::borrow::Cow;

use muster_shared::quantity::Quantity;
use serde_json::Value;

const STORAGE: &str = "/spec/resources/requests/storage";

/// Returns the desired state with the storage that a PersistentVolumeClaim requests in the member,
/// if that is more than its template requests.
pub fn with_grown<'a>(desired: Cow<'a, Value>, observed: &Value) -> Cow<'a, Value> {
    if desired["kind"] != "PersistentVolumeClaim" || desired["apiVersion"] != "v1" {
        return desired;
    }
    let amount =
        |claim: &Value| -> Option<Quantity> { claim.pointer(STORAGE)?.as_str()?.parse().ok() };
    let Some((wanted, there)) = amount(&desired).zip(amount(observed)) else {
        return desired;
    };
    if there.nano() <= wanted.nano() {
        return desired;
    }
    let mut grown = desired.into_owned();
    if let Some(storage) = grown.pointer_mut(STORAGE) {
        storage.clone_from(&observed["spec"]["resources"]["requests"]["storage"]);
    }
    Cow::Owned(grown)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_that_was_enlarged_in_the_member_stays_as_large() {
        for (kind, wanted, there, expected) in [
            ("PersistentVolumeClaim", json!("1Gi"), json!("2Gi"), "2Gi"),
            ("PersistentVolumeClaim", json!("3Gi"), json!("2Gi"), "3Gi"),
            (
                "PersistentVolumeClaim",
                json!("1024Mi"),
                json!("1Gi"),
                "1024Mi",
            ),
            ("PersistentVolumeClaim", json!("1Gi"), json!(null), "1Gi"),
            ("PersistentVolumeClaim", json!("many"), json!("2Gi"), "many"),
            ("Other", json!("1Gi"), json!("2Gi"), "1Gi"),
        ] {
            let claim = |storage: &Value| {
                json!({
                    "apiVersion": "v1", "kind": kind,
                    "spec": {"resources": {"requests": {"storage": storage}}},
                })
            };
            let (desired, observed) = (claim(&wanted), claim(&there));
            let after = with_grown(Cow::Borrowed(&desired), &observed);
            assert_eq!(*after, claim(&json!(expected)), "{kind} {wanted} {there}");
        }
    }
}
