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
    const TWINS: [&str; 2] = ["team-y0jrs5", "team-lva3qb"];

    /// Returns a Work with this permanent id, and of the Namespace with this uid.
    fn work(id: Option<&str>, annotations: &Value, uid: Option<&str>) -> CachedWork {
        let labels = id.map(|id| json!({ "resourcebinding.karmada.io/permanent-id": id }));
        let owners = uid.map(
            |uid| json!([{ "apiVersion": "v1", "kind": "Namespace", "name": "n", "uid": uid }]),
        );
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
        use Owner::{Nobody, Own};
        let names = |namespace: &str| {
            json!({
                "resourcebinding.karmada.io/namespace": namespace,
                "resourcebinding.karmada.io/name": "web-deployment",
            })
        };
        let key = |namespace: Option<&str>| BindingKey {
            namespace: namespace.map(str::to_owned),
            name: "web-deployment".to_owned(),
        };
        let other = |namespace| Owner::Other(key(Some(namespace)));
        let wide = json!({ "clusterresourcebinding.karmada.io/name": "web-deployment" });
        let none = json!({});
        let [ours, theirs] = TWINS;
        let id = Some("id");
        for (what, id, annotations, uid, expected) in [
            ("named", id, &names(ours), None, Own),
            // It had that id before it was made again.
            ("of another id", Some("before"), &names(ours), None, Own),
            // Of a namespace whose name has the same hash.
            ("twin's", Some("x"), &names(theirs), None, other(theirs)),
            // Permanent id and all.
            ("copied", id, &names("copies"), None, other("copies")),
            ("of the fleet", None, &wide, None, Owner::Other(key(None))),
            ("with the id alone", id, &none, None, Own),
            ("of the namespace itself", None, &none, Some("uid"), Own),
            ("of another namespace", None, &none, Some("else"), Nobody),
            ("without any mark", None, &none, None, Nobody),
        ] {
            let origin = Origin {
                key: key(Some(ours)),
                id: "id".to_owned(),
            };
            let work = work(id, annotations, uid);
            assert_eq!(owner(&work, &origin, Some("uid")), expected, "{what}");
        }
    }
}
