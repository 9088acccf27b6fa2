//! The id of a fleet. It distinguishes two fleets that have a cluster of one name in one member:
//! whatever an agent makes there bears the id of its fleet, and what bears another id is left
//! alone.
//!
//! The id is the uid of the namespace `kube-system` of the fleet API, which lives as long as the
//! store of that API. The control plane writes it upon the namespace `karmada-cluster`, which every
//! agent may read and none may write, and from which it comes back with a backup of objects. It has
//! nothing to do with the Clusters: one that is registered anew finds its objects again.

use std::collections::{BTreeMap, BTreeSet};

use kube::{Api, Client};

use crate::client::Head;
use crate::k8s::{Namespace, ObjectMeta};
use crate::names::CLUSTER_NAMESPACE;
use crate::names::annotation::{FLEET_ID, FORMER_FLEET_IDS};

/// The namespace whose uid is the id of an API server's store, as for members.
pub const SYSTEM_NAMESPACE: &str = "kube-system";

/// Id of a fleet, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetId {
    /// The id is known.
    Known {
        /// The id.
        id: String,
        /// Whether it is written upon the namespace `karmada-cluster`.
        published: bool,
        /// All ids whose objects are this fleet's; `id` is among them.
        accepted: BTreeSet<String>,
    },
    /// The id is not known, for this reason.
    Unknown(String),
}

/// Owner of an object in a member, by the id that it bears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The object bears no id: an agent that knows of none made it, Karmada's for instance.
    Unmarked,
    /// This fleet's.
    Ours,
    /// The object belongs to another fleet.
    Other,
    /// The object bears an id, and that of this fleet is not known.
    Unclear,
}

impl FleetId {
    /// Finds the id in the metadata of the two namespaces that say it; `None` for one that is
    /// missing or may not be read.
    pub fn of(cluster_namespace: Option<&ObjectMeta>, system: Option<&ObjectMeta>) -> Self {
        let empty = BTreeMap::new();
        let annotations = cluster_namespace
            .and_then(|it| it.annotations.as_ref())
            .unwrap_or(&empty);
        let uid = system.and_then(|it| it.uid.as_deref());
        let given = |text: &str| Some(text.trim().to_owned()).filter(|it| !it.is_empty());
        let published = annotations.get(FLEET_ID).and_then(|it| given(it));
        let uid = uid.and_then(given);
        let former = annotations.get(FORMER_FLEET_IDS).map(String::as_str);
        let former = former.unwrap_or_default().split(',').filter_map(given);
        let Some(id) = published.clone().or_else(|| uid.clone()) else {
            return Self::Unknown(format!(
                "namespace {CLUSTER_NAMESPACE:?} of the fleet API has no annotation {FLEET_ID:?}, and namespace {SYSTEM_NAMESPACE:?}, \
                 whose uid is the id, may not be read"
            ));
        };
        Self::Known {
            published: published.is_some(),
            accepted: former.chain(uid).chain([id.clone()]).collect(),
            id,
        }
    }

    /// Returns what this fleet's objects are marked with, if it is known.
    pub fn mark(&self) -> Option<&str> {
        match self {
            Self::Known { id, .. } => Some(id),
            Self::Unknown(_) => None,
        }
    }

    /// Returns to whom an object belongs that bears this id.
    pub fn owner(&self, mark: Option<&str>) -> Owner {
        match (mark, self) {
            (None, _) => Owner::Unmarked,
            (Some(mark), Self::Known { accepted, .. }) if accepted.contains(mark) => Owner::Ours,
            (Some(_), Self::Known { .. }) => Owner::Other,
            (Some(_), Self::Unknown(_)) => Owner::Unclear,
        }
    }
}

impl std::fmt::Display for FleetId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Known { id, .. } => write!(f, "{id:?}"),
            Self::Unknown(why) => write!(f, "not known: {why}"),
        }
    }
}

/// Reads the id at the fleet API. A namespace that may not be read says nothing.
///
/// # Errors
/// Those of the API. A "not found" that does not name the namespace is one of them: a namespace
/// that only seems to be missing would give another id.
pub async fn read(fleet: &Client) -> Result<FleetId, kube::Error> {
    let namespaces: Api<Head<Namespace>> = Api::all(fleet.clone());
    let mut found = Vec::new();
    for name in [CLUSTER_NAMESPACE, SYSTEM_NAMESPACE] {
        found.push(match Head::get_opt(&namespaces, name).await {
            Ok(namespace) => namespace.map(|it| it.metadata),
            Err(kube::Error::Api(status)) if status.is_forbidden() => None,
            Err(error) => return Err(error),
        });
    }
    Ok(FleetId::of(found[0].as_ref(), found[1].as_ref()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn namespace(metadata: &Value) -> ObjectMeta {
        serde_json::from_value(metadata.clone()).unwrap()
    }

    #[tokio::test]
    async fn a_namespace_of_which_a_proxy_says_not_found_gives_no_other_id() {
        for (what, details, expected) in [
            ("the API", json!({"name": CLUSTER_NAMESPACE}), Some("s")),
            ("a proxy", json!({}), None),
        ] {
            let refusal = json!({
                "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound",
                "message": "not found", "details": details,
            });
            let api = crate::testing::api(move |uri| {
                let is_system = uri.path().ends_with(SYSTEM_NAMESPACE);
                let system = json!({"metadata": {"uid": "s"}});
                let (code, answer) = if is_system {
                    (200, &system)
                } else {
                    (404, &refusal)
                };
                (code, answer.to_string())
            });
            let found = read(&api).await.ok();
            let id = found.as_ref().and_then(FleetId::mark);
            assert_eq!(id, expected, "{what}");
        }
    }

    #[test]
    fn the_id_is_what_is_published_and_else_the_uid_of_the_system_namespace() {
        let annotated = |id: &str| json!({"uid": "c", "annotations": {FLEET_ID: id}});
        let unmarked = || json!({"uid": "c"});
        for (cluster, system, id) in [
            (Some(annotated("p")), Some(json!({"uid": "s"})), Some("p")),
            (Some(annotated(" p ")), None, Some("p")),
            (Some(annotated("")), Some(json!({"uid": "s"})), Some("s")),
            (Some(unmarked()), Some(json!({"uid": "s"})), Some("s")),
            (None, Some(json!({"uid": "s"})), Some("s")),
            (Some(unmarked()), None, None),
            (None, Some(json!({})), None),
            (None, None, None),
        ] {
            let [cluster, system] = [&cluster, &system].map(|it| it.as_ref().map(namespace));
            let found = FleetId::of(cluster.as_ref(), system.as_ref());
            assert_eq!(found.mark(), id, "{cluster:?} {system:?}");
        }
    }

    #[test]
    fn objects_of_this_fleet_under_any_of_its_ids_are_its_own_and_others_are_not() {
        let annotations = json!({FLEET_ID: "p", FORMER_FLEET_IDS: "f, g,,"});
        let cluster = namespace(&json!({ "annotations": annotations }));
        let system = namespace(&json!({"uid": "s"}));
        let known = FleetId::of(Some(&cluster), Some(&system));
        let unknown = FleetId::of(None, None);
        for (mark, by_known, by_unknown) in [
            (None, Owner::Unmarked, Owner::Unmarked),
            (Some("p"), Owner::Ours, Owner::Unclear),
            (Some("s"), Owner::Ours, Owner::Unclear),
            (Some("f"), Owner::Ours, Owner::Unclear),
            (Some("g"), Owner::Ours, Owner::Unclear),
            (Some(""), Owner::Other, Owner::Unclear),
            (Some("x"), Owner::Other, Owner::Unclear),
        ] {
            assert_eq!(known.owner(mark), by_known, "{mark:?}");
            assert_eq!(unknown.owner(mark), by_unknown, "{mark:?}");
        }
    }
}
