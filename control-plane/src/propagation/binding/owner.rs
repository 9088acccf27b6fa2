//! Decides to which binding a Work belongs.
//!
//! The name of a Work ends in a 32-bit hash of kind, namespace and name of its resource: in two
//! namespaces whose names have the same hash, all Works have the same names. A name is therefore
//! not an identity. Neither is the permanent id, which is copied when a binding is copied. The
//! binding that the Work names in its annotations counts.

use super::render::Origin;
use crate::fleet::binding::BindingKey;
use crate::fleet::works::{CachedWork, binding_of, owner_id};

/// Owner of a Work, as seen from one binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The binding itself.
    Own,
    /// Another binding, which the Work names.
    Other(BindingKey),
    /// No binding: the Work names none.
    Nobody,
}

/// Returns the owner of a Work, seen from the binding `origin` of the resource with the uid
/// `resource`.
///
/// A Work whose marks somebody took off is known by what is left: the permanent id, or the
/// Namespace that it was made for (those go to all clusters without a binding, and may have one
/// besides).
pub fn owner(work: &CachedWork, origin: &Origin, resource: Option<&str>) -> Owner {
    match binding_of(work) {
        Some(key) if key == origin.key => Owner::Own,
        Some(key) => Owner::Other(key),
        None if owner_id(work) == Some(origin.id.as_str()) => Owner::Own,
        None if is_of_namespace(work, resource) => Owner::Own,
        None => Owner::Nobody,
    }
}

fn is_of_namespace(work: &CachedWork, resource: Option<&str>) -> bool {
    let mut owners = work.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.kind == "Namespace" && Some(owner.uid.as_str()) == resource)
}

#[cfg(test)]
mod tests {
    use muster_shared::names;
    use serde_json::{Value, json};

    use super::*;

    /// Two namespaces whose names have the same FNV-1a hash of 32 bits.
    pub(super) const TWINS: [&str; 2] = ["team-y0jrs5", "team-lva3qb"];

    fn work(labels: &Value, annotations: &Value, owners: &Value) -> CachedWork {
        serde_json::from_value(json!({ "metadata": {
            "namespace": "karmada-es-m1", "name": "web-1",
            "labels": labels, "annotations": annotations, "ownerReferences": owners,
        }}))
        .unwrap()
    }

    #[test]
    fn two_namespaces_may_share_the_names_of_all_their_works() {
        let name = |namespace| names::work("Deployment", "web", namespace);
        assert_eq!(name(TWINS[0]), name(TWINS[1]));
    }

    #[test]
    fn a_work_belongs_to_the_binding_that_it_names() {
        let names = |namespace: &str, name: &str| {
            json!({
                "resourcebinding.karmada.io/namespace": namespace,
                "resourcebinding.karmada.io/name": name,
            })
        };
        let id = |id: &str| json!({ "resourcebinding.karmada.io/permanent-id": id });
        let namespace = |uid: &str| json!([{ "apiVersion": "v1", "kind": "Namespace", "name": "n", "uid": uid }]);
        let other = |namespace: Option<&str>, name: &str| {
            Owner::Other(BindingKey {
                namespace: namespace.map(str::to_owned),
                name: name.to_owned(),
            })
        };
        let none = json!({});
        for (what, work, expected) in [
            (
                "named",
                work(&id("id"), &names(TWINS[0], "web-deployment"), &json!([])),
                Owner::Own,
            ),
            (
                "named, by an id that the binding had before it was made again",
                work(
                    &id("before"),
                    &names(TWINS[0], "web-deployment"),
                    &json!([]),
                ),
                Owner::Own,
            ),
            (
                "of a namespace whose name has the same hash",
                work(
                    &id("theirs"),
                    &names(TWINS[1], "web-deployment"),
                    &json!([]),
                ),
                other(Some(TWINS[1]), "web-deployment"),
            ),
            (
                "of a binding that was copied, permanent id and all",
                work(&id("id"), &names("copies", "web-deployment"), &json!([])),
                other(Some("copies"), "web-deployment"),
            ),
            (
                "of a binding without namespace",
                work(
                    &none,
                    &json!({ "clusterresourcebinding.karmada.io/name": "web-deployment" }),
                    &json!([]),
                ),
                other(None, "web-deployment"),
            ),
            (
                "with the id alone",
                work(&id("id"), &none, &json!([])),
                Owner::Own,
            ),
            (
                "of the namespace itself",
                work(&none, &none, &namespace("uid")),
                Owner::Own,
            ),
            (
                "of another namespace",
                work(&none, &none, &namespace("else")),
                Owner::Nobody,
            ),
            (
                "without any mark",
                work(&none, &none, &json!([])),
                Owner::Nobody,
            ),
        ] {
            let origin = Origin {
                key: BindingKey {
                    namespace: Some(TWINS[0].to_owned()),
                    name: "web-deployment".to_owned(),
                },
                id: "id".to_owned(),
            };
            assert_eq!(owner(&work, &origin, Some("uid")), expected, "{what}");
        }
    }
}
