//! Secret in the fleet API with a reported token: its desired state and the patch to reach it.
//! Pure.

use std::collections::BTreeMap;

use muster_shared::api::cluster::Cluster;
use muster_shared::k8s::{ByteString, ObjectMeta, OwnerReference, Secret};
use muster_shared::names::label;
use serde_json::{Value, json};

use crate::accounts::{self, Report};

/// A token of the member to be written to the fleet API.
#[derive(Clone, Debug)]
pub struct Delivery<'a> {
    /// Kind of the credentials.
    pub report: Report,
    /// Name of the Cluster.
    pub cluster: &'a str,
    /// Uid of the Cluster.
    pub uid: &'a str,
    /// Namespace of the fleet API for credentials.
    pub namespace: &'a str,
    /// Bearer token.
    pub token: Vec<u8>,
    /// Certificate authority of the member's API; PEM text.
    pub authority: Vec<u8>,
}

/// Next step for the Secret.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The Secret is as desired.
    Nothing,
    /// The Secret does not exist.
    Create(Box<Secret>),
    /// The Secret differs: a merge patch, with the resourceVersion that it was computed for.
    Patch(Value),
    /// The Secret belongs to another Cluster.
    Foreign(String),
}

impl Delivery<'_> {
    /// Compares the Secret with its desired state. Keys, labels and references of other writers
    /// stay.
    ///
    /// Karmada's agent never changes a Secret that exists, so that a member's new token arrives
    /// only after the Secret was deleted.
    pub fn step(&self, found: Option<&Secret>) -> Step {
        let owner = accounts::owner(self.cluster, self.uid);
        let data = self.data();
        let Some(found) = found else {
            let name = self.report.secret(self.cluster);
            return Step::Create(Box::new(Secret {
                metadata: ObjectMeta {
                    owner_references: Some(vec![owner]),
                    ..accounts::metadata(Some(self.namespace), &name)
                },
                data: Some(data),
                ..Secret::default()
            }));
        };
        let owners = found.metadata.owner_references.clone().unwrap_or_default();
        let is_cluster = |other: &OwnerReference| {
            other.kind == owner.kind && other.api_version == owner.api_version
        };
        let stranger = |other: &&OwnerReference| is_cluster(other) && other.name != owner.name;
        if let Some(other) = owners.iter().find(stranger) {
            return Step::Foreign(other.name.clone());
        }
        let mut patch = json!({});
        if !owners.contains(&owner) {
            // The reference to a deleted Cluster of the same name is replaced, because the garbage
            // collector would delete the Secret.
            let mut kept: Vec<_> = owners.into_iter().filter(|it| !is_cluster(it)).collect();
            kept.push(owner);
            patch["metadata"]["ownerReferences"] = json!(kept);
        }
        let labels = found.metadata.labels.as_ref();
        if labels
            .and_then(|labels| labels.get(label::SYSTEM))
            .is_none()
        {
            patch["metadata"]["labels"] = json!({ label::SYSTEM: "true" });
        }
        let known = found.data.as_ref();
        for (key, value) in data {
            if known.and_then(|known| known.get(&key)) != Some(&value) {
                patch["data"][key] = json!(value);
            }
        }
        if patch.as_object().is_none_or(serde_json::Map::is_empty) {
            return Step::Nothing;
        }
        patch["metadata"]["resourceVersion"] = json!(found.metadata.resource_version);
        Step::Patch(patch)
    }

    /// Returns the merge patch that makes the Cluster name the Secret, or `None` if it does.
    pub fn reference(&self, cluster: &Cluster) -> Option<Value> {
        let name = self.report.secret(self.cluster);
        if is_referenced(cluster, self.report, self.namespace, &name) {
            return None;
        }
        let reference = json!({ "namespace": self.namespace, "name": name });
        Some(json!({
            "metadata": { "resourceVersion": cluster.metadata.resource_version },
            "spec": { self.report.reference(): reference },
        }))
    }

    fn data(&self) -> BTreeMap<String, ByteString> {
        let mut data = BTreeMap::from([("token".to_owned(), ByteString(self.token.clone()))]);
        if self.report == Report::KubeCredentials {
            data.insert("caBundle".to_owned(), ByteString(self.authority.clone()));
        }
        data
    }
}

/// Returns whether a Cluster names a Secret for credentials.
pub fn is_referenced(cluster: &Cluster, report: Report, namespace: &str, name: &str) -> bool {
    let found = match report {
        Report::KubeCredentials => &cluster.spec.secret_ref,
        Report::KubeImpersonator => &cluster.spec.impersonator_secret_ref,
    };
    let found = found.as_ref();
    found.is_some_and(|it| it.namespace == namespace && it.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(report: Report) -> Delivery<'static> {
        Delivery {
            report,
            cluster: "m1",
            uid: "u1",
            namespace: "karmada-cluster",
            token: b"t".to_vec(),
            authority: b"c".to_vec(),
        }
    }

    fn created(report: Report) -> Secret {
        match delivery(report).step(None) {
            Step::Create(secret) => *secret,
            other => unreachable!("{other:?}"),
        }
    }

    fn patched(edit: impl FnOnce(&mut Secret)) -> Step {
        let mut found = created(Report::KubeCredentials);
        found.metadata.resource_version = Some("7".into());
        edit(&mut found);
        delivery(Report::KubeCredentials).step(Some(&found))
    }

    #[test]
    fn the_impersonators_secret_has_a_token_and_nothing_else() {
        let keys = |report| -> Vec<String> {
            let data = created(report).data.unwrap_or_default();
            data.into_keys().collect()
        };
        assert_eq!(keys(Report::KubeCredentials), ["caBundle", "token"]);
        assert_eq!(keys(Report::KubeImpersonator), ["token"]);
    }

    #[test]
    fn what_is_right_is_left_alone_and_what_differs_is_all_that_is_sent() {
        assert_eq!(patched(|_| {}), Step::Nothing);
        let others = |secret: &mut Secret| {
            let data = secret.data.get_or_insert_default();
            data.insert("theirs".into(), ByteString(b"x".to_vec()));
        };
        assert_eq!(patched(others), Step::Nothing);
        let token = |secret: &mut Secret| {
            let data = secret.data.get_or_insert_default();
            data.insert("token".into(), ByteString(b"old".to_vec()));
        };
        assert_eq!(
            patched(token),
            Step::Patch(json!({"metadata": {"resourceVersion": "7"}, "data": {"token": "dA=="}}))
        );
        let label = |secret: &mut Secret| secret.metadata.labels = None;
        assert_eq!(
            patched(label),
            Step::Patch(json!({"metadata": {"resourceVersion": "7",
                "labels": {"karmada.io/system": "true"}}}))
        );
    }

    #[test]
    fn a_secret_goes_with_the_cluster_that_there_is_now() {
        let references = |step: &Step| match step {
            Step::Patch(patch) => patch["metadata"]["ownerReferences"].clone(),
            other => unreachable!("{other:?}"),
        };
        let (old, own) = (accounts::owner("m1", "u0"), accounts::owner("m1", "u1"));
        let app = OwnerReference {
            kind: "Backup".into(),
            ..accounts::owner("b", "u9")
        };
        for (before, after) in [
            (None, vec![own.clone()]),
            (Some(vec![old]), vec![own.clone()]),
            (Some(vec![app.clone()]), vec![app, own]),
        ] {
            let step = patched(|secret| secret.metadata.owner_references = before);
            assert_eq!(references(&step), json!(after));
        }
    }

    #[test]
    fn another_clusters_secret_is_not_touched() {
        let theirs = |secret: &mut Secret| {
            secret.metadata.owner_references = Some(vec![accounts::owner("m2", "u2")]);
        };
        assert_eq!(patched(theirs), Step::Foreign("m2".into()));
    }

    #[test]
    fn a_cluster_that_names_another_secret_gets_the_name_of_ours() {
        let reference = |namespace: &str, name: &str| {
            let cluster = json!({"metadata": {"name": "m1", "resourceVersion": "3"},
                "spec": {"syncMode": "Pull", "secretRef": {"namespace": namespace, "name": name}}});
            let cluster: Cluster = serde_json::from_value(cluster).unwrap();
            delivery(Report::KubeCredentials).reference(&cluster)
        };
        assert_eq!(reference("karmada-cluster", "m1"), None);
        let patch = reference("elsewhere", "m1").unwrap();
        assert_eq!(
            patch,
            json!({"metadata": {"resourceVersion": "3"},
                "spec": {"secretRef": {"namespace": "karmada-cluster", "name": "m1"}}})
        );
    }
}
