//! Identity of the member, and the Clusters of the fleet that contradict it.

use muster_shared::api::cluster::{Cluster, ClusterSyncMode};
use muster_shared::client;
use muster_shared::k8s::{Api, Client, ListParams, Namespace, ResourceExt};
use muster_shared::{conditions, names};
use serde_json::Value;

use super::error::Error;
use crate::work::member::Raw;
use crate::write::within;

/// Clusters per page of the list that is searched for the name and the id.
const PAGE: u32 = 100;

/// Returns the identity of a cluster: the uid of its namespace `kube-system`, as in Karmada.
pub(super) async fn identity(member: &Client) -> Result<String, Error> {
    let api: Api<Namespace> = Api::all(member.clone());
    let namespace = within(
        "read namespace \"kube-system\"",
        api.get_metadata("kube-system"),
    )
    .await
    .map_err(Error::Identify)?;
    namespace
        .uid()
        .filter(|uid| !uid.is_empty())
        .ok_or(Error::NoIdentity)
}

/// Returns whether a Cluster is certainly this member's, and this agent's: it has the id, and is
/// neither refused as a second registration nor managed by the control plane.
pub(super) fn is_recognised(found: &Cluster, id: &str) -> bool {
    let is_refused = twin(found).is_some() || pushed(found).is_some();
    found.spec.id.as_deref() == Some(id) && !is_refused
}

/// Returns whether the member of this id is the fleet API: by the fleet's id if that is known, else
/// by the addresses.
pub(super) fn is_itself(id: &str, fleet: Option<&str>, same_server: bool) -> bool {
    fleet.map_or(same_server, |fleet| fleet == id)
}

/// Refuses the registration if another Cluster of the fleet has the id, or the Cluster of this name
/// has another id. Only the Cluster of this name is read if the role permits no list, or if the
/// Cluster has the id already: the control plane decides about others with the same id. A Cluster
/// that does not parse is ignored.
pub(super) async fn refuse_a_taken_name(
    api: &Api<Cluster>,
    name: &str,
    id: &str,
) -> Result<(), Error> {
    let api: Api<Raw> = Api::all_with(
        api.clone().into_client(),
        &muster_shared::k8s::ApiResource::erase::<Cluster>(&()),
    );
    let ours = within("read the Cluster", client::get_opt(&api, name)).await?;
    if let Some(ours) = &ours {
        refuse(ours, name, id)?;
        if other_id(ours) == id {
            return Ok(());
        }
    }
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let clusters = match within("list the Clusters", api.list(&page)).await {
            Ok(clusters) => clusters,
            Err(error) if error.is_forbidden() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for cluster in &clusters.items {
            refuse(cluster, name, id)?;
        }
        match clusters.metadata.continue_ {
            Some(token) if !token.is_empty() => page = page.continue_token(&token),
            _ => return Ok(()),
        }
    }
}

fn refuse(cluster: &Raw, name: &str, id: &str) -> Result<(), Error> {
    match clash(name, id, &cluster.name_any(), other_id(cluster)) {
        Some(problem) => Err(Error::Taken(problem)),
        None => Ok(()),
    }
}

/// Returns the id of a Cluster; empty for none.
fn other_id(cluster: &Raw) -> &str {
    let id = cluster.object.pointer("/spec/id").and_then(Value::as_str);
    id.unwrap_or_default()
}

/// Returns the message of the control plane about a Cluster whose member is registered under
/// another name, or `None`.
pub(super) fn twin(cluster: &Cluster) -> Option<String> {
    let said = cluster.condition(names::condition::UNIQUE_IDENTITY)?;
    (said.status == conditions::FALSE).then(|| said.message.clone())
}

/// Returns why no agent acts for the member of a Cluster: the control plane does, as the Cluster is
/// of sync mode Push; `None` for others.
pub(super) fn pushed(cluster: &Cluster) -> Option<String> {
    let is_pushed = cluster.spec.sync_mode == ClusterSyncMode::Push;
    is_pushed.then(|| {
        format!(
            "Cluster {:?} has syncMode Push, so that the control plane itself applies the Works of the member and reports its \
             status: set spec.syncMode to Pull to have the agent do so, or uninstall the agent",
            cluster.name_any()
        )
    })
}

/// Returns a message if two registrations contradict each other. A Cluster without an id was
/// prepared by an operator and may be taken.
fn clash(name: &str, id: &str, other: &str, other_id: &str) -> Option<String> {
    if other_id.is_empty() || (name == other) == (id == other_id) {
        return None;
    }
    Some(if name == other {
        format!(
            "the name {name:?} belongs to a cluster with id {other_id:?}, this one has id {id:?}"
        )
    } else {
        format!("this cluster (id {id:?}) is registered already, under the name {other:?}")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_restart_is_welcome_and_an_impostor_is_not() {
        for (other, other_id, welcome) in [
            ("m1", "1", true),
            ("m1", "", true),
            ("m2", "2", true),
            ("m1", "2", false),
            ("m2", "1", false),
        ] {
            assert_eq!(
                clash("m1", "1", other, other_id).is_none(),
                welcome,
                "{other} {other_id}"
            );
        }
    }

    #[test]
    fn a_member_is_recognised_by_its_id_unless_it_is_reported_that_it_is_the_wrong_one() {
        let cluster_of = |mode: &str, id: Option<&str>, unique: Option<&str>| {
            let conditions: Vec<Value> = unique
                .map(|status| json!({"type": "UniqueIdentity", "status": status, "reason": "x", "message": "y", "lastTransitionTime": "2026-01-01T00:00:00Z"}))
                .into_iter()
                .collect();
            let cluster = json!({"metadata": {"name": "m1"}, "spec": {"syncMode": mode, "id": id}, "status": {"conditions": conditions}});
            serde_json::from_value::<Cluster>(cluster).unwrap()
        };
        let cluster = |id, unique| cluster_of("Pull", id, unique);
        for (found, expected) in [
            (cluster(Some("1"), None), true),
            (cluster_of("Push", Some("1"), None), false),
            (cluster(Some("1"), Some("True")), true),
            (cluster(Some("1"), Some("False")), false),
            (cluster(Some("2"), None), false),
            (cluster(None, None), false),
        ] {
            assert_eq!(is_recognised(&found, "1"), expected, "{:?}", found.spec.id);
        }
    }

    #[test]
    fn a_fleet_is_no_member_of_itself() {
        for (fleet, same_server, refused) in [
            (Some("1"), false, true),
            (Some("1"), true, true),
            (Some("2"), true, false),
            (Some("2"), false, false),
            (None, true, true),
            (None, false, false),
        ] {
            assert_eq!(
                is_itself("1", fleet, same_server),
                refused,
                "{fleet:?} {same_server}"
            );
        }
    }

    /// Checks that the description of the field agrees with the code: no other property of the
    /// member is used.
    #[test]
    fn a_cluster_is_identified_by_what_its_definition_says() {
        let definitions = muster_shared::api::crds();
        let is_cluster = |name: &str| name == "clusters.cluster.karmada.io";
        let definition = definitions
            .iter()
            .map(|it| serde_json::to_value(it).unwrap())
            .find(|it| it["metadata"]["name"].as_str().is_some_and(is_cluster))
            .unwrap();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let says = schema["properties"]["spec"]["properties"]["id"]["description"]
            .as_str()
            .unwrap();
        assert!(
            says.to_lowercase().contains("uid") && says.contains("`kube-system`"),
            "{says}"
        );
        assert!(!says.contains("ClusterProperty"), "{says}");
    }
}
