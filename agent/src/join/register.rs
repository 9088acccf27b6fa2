//! Creates the Cluster object and the namespaces, after checking that no other agent is registered
//! under this name.

use muster_shared::api::cluster::{Cluster, ClusterSpec, LocalSecretReference, ResourceModel};
use muster_shared::client;
use muster_shared::k8s::{Api, Client, ResourceExt};
use muster_shared::names;
use serde_json::{Value, json};

use super::adoption::{adoption, wanted};
use super::error::Error;
use super::identity::{identity, is_itself, is_recognised, pushed, refuse_a_taken_name, twin};
use super::namespace::ensure_namespace;
use crate::accounts::Report;
use crate::settings::Settings;
use crate::write::{self, within};

/// Parameters of the registration of a member.
#[derive(Clone)]
pub struct Registration {
    /// The fleet API.
    pub fleet: Client,
    /// The member's API.
    pub member: Client,
    /// The operator's flags.
    pub settings: Settings,
    /// Address of the member's API in its kubeconfig.
    pub endpoint: String,
    /// Whether both kubeconfigs lead to the same server.
    pub same_server: bool,
    /// Whether the kubeconfig accepts any certificate.
    pub insecure: bool,
    /// Credentials that are reported to the fleet.
    pub reports: Vec<Report>,
    /// Resource models for a Cluster without any.
    pub models: Vec<ResourceModel>,
}

impl Registration {
    /// Refuses what [`register`](Self::register) would refuse for good, before this agent leads:
    /// the agent of another cluster must not stand by, as if it were a replica, behind that of the
    /// cluster whose name it was given.
    pub async fn challenge(&self) -> Result<(), Error> {
        let id = identity(&self.member).await?;
        self.refuse_the_fleet_itself(&id).await?;
        let api: Api<Cluster> = Api::all(self.fleet.clone());
        refuse_a_taken_name(&api, &self.settings.cluster_name, &id).await
    }

    /// Registers the member, or takes its registration over after a restart. `recognised` is called
    /// as soon as the fleet is seen to have a Cluster of this name and id, even if a later step
    /// fails.
    pub async fn register(&self, recognised: impl Fn()) -> Result<(), Error> {
        let id = identity(&self.member).await?;
        self.refuse_the_fleet_itself(&id).await?;
        let name = self.settings.cluster_name.as_str();
        let api: Api<Cluster> = Api::all(self.fleet.clone());
        let known = within("read the Cluster", client::get_opt(&api, name)).await?;
        if known.is_some_and(|known| is_recognised(&known, &id)) {
            recognised();
        }
        refuse_a_taken_name(&api, name, &id).await?;
        ensure_namespace(&self.fleet, names::CLUSTER_NAMESPACE).await?;
        let wanted = wanted(&self.settings, &id, &self.endpoint, self.insecure);
        match within("read the Cluster", client::get_opt(&api, name)).await? {
            None => {
                let spec = ClusterSpec {
                    resource_models: self.models.clone(),
                    secret_ref: self.reference(Report::KubeCredentials),
                    impersonator_secret_ref: self.reference(Report::KubeImpersonator),
                    ..wanted
                };
                let cluster = Cluster::new(name, spec);
                let manager = founder(&id);
                let call = muster_shared::write::create(&api, name, &cluster, &manager);
                within("create the Cluster", call).await?;
                tracing::info!(cluster = name, id, "registered with the fleet");
            }
            Some(found) => {
                if let Some(problem) = twin(&found) {
                    return Err(Error::Twin(problem));
                }
                if let Some(problem) = pushed(&found) {
                    return Err(Error::Pushed(problem));
                }
                if let Some(mut patch) = adoption(&found.spec, &wanted, self.models.clone()) {
                    if found.spec.id.as_deref().is_none_or(str::is_empty) {
                        // With the version, the second of two members that take a prepared Cluster
                        // at once gets a conflict.
                        patch["metadata"] = json!({ "resourceVersion": found.resource_version() });
                    }
                    adopt(&api, name, &patch).await?;
                }
            }
        }
        Ok(ensure_namespace(&self.fleet, &names::execution_namespace(name)).await?)
    }

    /// Compares the identities of the two APIs, or their addresses if the fleet's identity may not
    /// be read.
    async fn refuse_the_fleet_itself(&self, id: &str) -> Result<(), Error> {
        let fleet = identity(&self.fleet).await.ok();
        if is_itself(id, fleet.as_deref(), self.same_server) {
            return Err(Error::Itself(format!("{}, id {id:?}", self.endpoint)));
        }
        Ok(())
    }

    /// Returns the Secret that a new Cluster names for credentials, if they are reported. The
    /// Secret is written later, when there is a Cluster that can own it, but karmadactl's role for
    /// agents lets them name it only at the creation of the Cluster.
    fn reference(&self, report: Report) -> Option<LocalSecretReference> {
        self.reports
            .contains(&report)
            .then(|| LocalSecretReference {
                namespace: self.settings.cluster_namespace.clone(),
                name: report.secret(&self.settings.cluster_name),
            })
    }

    /// Returns whether the fleet has a Cluster of this name at this address. Without an answer of
    /// the member nothing more is known of its identity. One that the control plane manages has the
    /// address by which that reaches the member, and its agent renews the lease, too.
    pub async fn is_known(&self) -> bool {
        let api: Api<Cluster> = Api::all(self.fleet.clone());
        let wanted = wanted(&self.settings, "", &self.endpoint, self.insecure);
        match within(
            "read the Cluster",
            client::get_opt(&api, &self.settings.cluster_name),
        )
        .await
        {
            Ok(Some(found)) => {
                pushed(&found).is_some() || found.spec.api_endpoint == wanted.api_endpoint
            }
            Ok(None) | Err(_) => false,
        }
    }
}

/// Returns the field manager with which a member creates its Cluster. Every member has its own, so
/// that the second of two that create one of the same name at once gets a conflict instead of
/// overwriting the id.
fn founder(id: &str) -> String {
    // The name of a field manager may have 128 characters.
    let id: String = id.chars().take(64).collect();
    format!("{}-{id}", write::FIELD_MANAGER)
}

async fn adopt(api: &Api<Cluster>, name: &str, patch: &Value) -> Result<(), Error> {
    match within("update the Cluster", write::merge(api, name, None, patch)).await {
        Ok(_) => tracing::info!(cluster = name, %patch, "updated the registration"),
        // karmadactl's role for agents may not change its Cluster, so the difference stays.
        Err(error) if error.is_forbidden() => {
            tracing::warn!(%error, %patch, "the Cluster differs from the flags and stays so");
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Method;
    use parking_lot::Mutex;

    use super::*;
    use crate::testing;

    /// Returns an API with namespaces of this uid, and the Cluster if given; it records writes.
    fn api(id: &str, cluster: Option<&Value>, writes: &Arc<Mutex<Vec<(String, Value)>>>) -> Client {
        let (id, cluster, writes) = (id.to_owned(), cluster.cloned(), Arc::clone(writes));
        testing::api(move |head, body| {
            let path = head.uri.path();
            if head.method != Method::GET {
                let query = head.uri.query().unwrap_or_default().to_owned();
                let body = serde_json::from_slice(body).unwrap();
                writes.lock().push((query, body));
                let made = || json!({"metadata": {"name": "m1"}, "spec": {}});
                return (200, cluster.clone().unwrap_or_else(made));
            }
            if path.contains("/namespaces/") {
                return (200, json!({"metadata": {"name": "kube-system", "uid": id}}));
            }
            if path.ends_with("/clusters") {
                return (200, json!({"metadata": {}, "items": []}));
            }
            let name = path.rsplit('/').next();
            let missing = || crate::testing::not_found(&json!({ "name": name }));
            cluster.clone().map_or_else(missing, |it| (200, it))
        })
    }

    /// Returns the registration of a member of this id in a fleet with this Cluster of its name.
    fn registration(
        id: &str,
        cluster: Option<&Value>,
        writes: &Arc<Mutex<Vec<(String, Value)>>>,
    ) -> Registration {
        Registration {
            fleet: api("the-fleet", cluster, writes),
            member: api(id, None, &Arc::default()),
            settings: Settings {
                cluster_name: "m1".into(),
                ..Settings::default()
            },
            endpoint: "https://m1".into(),
            same_server: false,
            insecure: false,
            reports: Vec::new(),
            models: Vec::new(),
        }
    }

    /// Returns the writes of a member of this id that joins a fleet with this Cluster of its name.
    async fn writes(id: &str, cluster: Option<Value>) -> Vec<(String, Value)> {
        let writes = Arc::default();
        let registration = registration(id, cluster.as_ref(), &writes);
        registration.register(|| {}).await.unwrap();
        let writes = writes.lock();
        writes.clone()
    }

    #[tokio::test]
    async fn a_member_that_does_not_answer_is_known_by_the_address_of_its_cluster() {
        for (mode, address, expected) in [
            ("Pull", "https://m1", true),
            ("Push", "https://m1", true),
            ("Push", "https://other", true),
            ("Pull", "https://other", false),
        ] {
            let spec = json!({"syncMode": mode, "apiEndpoint": address});
            let cluster = json!({"metadata": {"name": "m1"}, "spec": spec});
            let registration = registration("1", Some(&cluster), &Arc::default());
            assert_eq!(registration.is_known().await, expected, "{mode} {address}");
        }
        let nobody = registration("1", None, &Arc::default());
        assert!(!nobody.is_known().await, "there is no Cluster");
    }

    #[tokio::test]
    async fn of_two_members_that_claim_a_name_at_once_the_second_conflicts() {
        let (one, other) = (writes("1", None).await, writes("2", None).await);
        for (writes, manager) in [(&one, "muster-agent-1"), (&other, "muster-agent-2")] {
            let query = &writes[0].0;
            let named = query
                .split('&')
                .any(|it| it == format!("fieldManager={manager}"));
            assert!(named, "{query}");
        }
        assert!(!one[0].0.contains("force=true"), "{}", one[0].0);

        let prepared = json!({"metadata": {"name": "m1", "resourceVersion": "5"}, "spec": {"syncMode": "Pull"}});
        let taken = writes("1", Some(prepared)).await;
        assert_eq!(taken[0].1["metadata"]["resourceVersion"], "5");
        assert_eq!(taken[0].1["spec"]["id"], "1");
    }
}
