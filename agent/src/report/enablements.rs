//! Kinds that the member serves, as the status of the Cluster lists them. Pure.

use jiff::Timestamp;
use muster_shared::api::cluster::{APIEnablement, APIResource};
use muster_shared::conditions::{self, FALSE, TRUE};
use muster_shared::k8s::Condition;
use muster_shared::names::condition::COMPLETE_API_ENABLEMENTS;

use crate::discovery::catalog::{Catalog, Completeness};

/// Returns the kinds of a catalog as the status lists them, and how complete that is, in Karmada's
/// words. A group version that did not answer keeps what `known`, the list that was reported
/// before, has of it: an agent that has just started remembers nothing else.
pub fn enablements(
    catalog: &Catalog,
    known: &[APIEnablement],
    now: Timestamp,
) -> (Vec<APIEnablement>, Condition) {
    let mut listed: Vec<APIEnablement> = catalog
        .versions()
        .map(|(group_version, served)| APIEnablement {
            group_version: group_version.to_owned(),
            resources: served
                .iter()
                .map(|served| APIResource {
                    name: served.name.clone(),
                    kind: served.kind.clone(),
                })
                .collect(),
        })
        .collect();
    for unread in catalog.unread() {
        let known = known.iter().find(|known| known.group_version == unread);
        match (
            listed.iter_mut().find(|it| it.group_version == unread),
            known,
        ) {
            (Some(listed), Some(known)) if listed.resources.is_empty() => {
                listed.resources.clone_from(&known.resources);
            }
            (None, Some(known)) => listed.push(known.clone()),
            _ => {}
        }
    }
    listed.sort_by(|one, other| one.group_version.cmp(&other.group_version));
    let (status, reason, message) = match catalog.completeness() {
        Completeness::Complete => (
            TRUE,
            "Complete",
            "collected complete APIEnablements from the cluster".to_owned(),
        ),
        Completeness::Partial => (
            FALSE,
            "Partial",
            format!(
                "might collect partial APIEnablements({}) from the cluster",
                listed.len()
            ),
        ),
        Completeness::Empty => (
            FALSE,
            "Empty",
            "collected empty APIEnablements from the cluster".to_owned(),
        ),
    };
    (
        listed,
        conditions::new(COMPLETE_API_ENABLEMENTS, status, reason, &message, now),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_does_not_answer_an_agent_that_has_just_started_stays_in_the_list() {
        let enablement = |version: &str, kind: &str| APIEnablement {
            group_version: version.into(),
            resources: vec![APIResource {
                name: kind.to_lowercase(),
                kind: kind.into(),
            }],
        };
        let known = [
            enablement("metrics.k8s.io/v1beta1", "PodMetrics"),
            enablement("removed.io/v1", "Thing"),
            enablement("v1", "Pod"),
        ];
        let mut catalog = Catalog::default();
        let secret = crate::discovery::catalog::Served {
            name: "secret".into(),
            kind: "Secret".into(),
            namespaced: true,
            watchable: true,
        };
        catalog.insert("v1".into(), vec![secret]);
        catalog.insert_unread("metrics.k8s.io/v1beta1".into());
        catalog.insert_unread("never.seen.io/v1".into());
        let (listed, complete) = enablements(&catalog, &known, Timestamp::UNIX_EPOCH);
        assert_eq!(complete.status, "False");
        let expected = [
            enablement("metrics.k8s.io/v1beta1", "PodMetrics"),
            enablement("v1", "Secret"),
        ];
        assert_eq!(listed, expected);
    }
}
