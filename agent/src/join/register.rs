//! The Cluster object, the namespaces, and the proof that nobody else bears our name.

use kube::api::PostParams;
use muster_shared::api::cluster::{
    Cluster, ClusterSpec, ClusterSyncMode, LocalSecretReference, ResourceModel,
};
use muster_shared::k8s::{Api, Client, ListParams, Namespace, ObjectMeta, ResourceExt};
use muster_shared::{conditions, names};
use serde_json::{Value, json};

use crate::apply::member::Raw;
use crate::credentials::Report;
use crate::settings::Settings;
use crate::write::{self, merge_patch, within};

/// Clusters per page when looking for one of our name or id.
const PAGE: u32 = 100;

/// Why the member could not join.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The member's own identity could not be read.
    #[error("identify the member: {0}")]
    Identify(#[source] write::Error),
    /// The namespace that identifies a cluster has no uid.
    #[error("identify the member: namespace \"kube-system\" has no uid")]
    NoIdentity,
    /// Another cluster of the fleet bears the name or the id. Only an operator can tell which is right.
    #[error("refused to join: {0}")]
    Taken(String),
    /// The fleet API refused or did not answer.
    #[error(transparent)]
    Fleet(#[from] write::Error),
}

impl Error {
    /// Whether trying again cannot help.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Taken(_))
    }

    /// Whether the member did not tell who it is.
    pub fn is_anonymity(&self) -> bool {
        matches!(self, Self::Identify(_))
    }
}

/// The identity of a cluster: the uid of its namespace `kube-system`, as in Karmada.
async fn identity(member: &Client) -> Result<String, Error> {
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

/// What a member registers with.
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
    /// Whether the kubeconfig accepts any certificate.
    pub insecure: bool,
    /// The credentials that the fleet is given.
    pub reports: Vec<Report>,
    /// Given to a Cluster that has no models.
    pub models: Vec<ResourceModel>,
}

impl Registration {
    /// Registers the member, or takes its registration over after a restart.
    pub async fn register(&self) -> Result<(), Error> {
        let id = identity(&self.member).await?;
        let name = self.settings.cluster_name.as_str();
        let api: Api<Cluster> = Api::all(self.fleet.clone());
        refuse_a_taken_name(&api, name, &id).await?;
        ensure_namespace(&self.fleet, names::CLUSTER_NAMESPACE).await?;
        let wanted = wanted(&self.settings, &id, &self.endpoint, self.insecure);
        match within("read the Cluster", api.get_opt(name)).await? {
            None => {
                let spec = ClusterSpec {
                    resource_models: self.models.clone(),
                    secret_ref: self.reference(Report::KubeCredentials),
                    impersonator_secret_ref: self.reference(Report::KubeImpersonator),
                    ..wanted
                };
                let cluster = Cluster::new(name, spec);
                within("create the Cluster", write::create(&api, name, &cluster)).await?;
                tracing::info!(cluster = name, id, "registered with the fleet");
            }
            Some(found) => {
                if let Some(problem) = twin(&found) {
                    return Err(Error::Taken(problem));
                }
                if let Some(patch) = adoption(&found.spec, &wanted, self.models.clone()) {
                    adopt(&api, name, &patch).await?;
                }
            }
        }
        Ok(ensure_namespace(&self.fleet, &names::execution_namespace(name)).await?)
    }

    /// The Secret that a new Cluster names for credentials, where they are reported. They follow when there is a Cluster that they
    /// can belong to; but the role that karmadactl gives to an agent lets it name them only now.
    fn reference(&self, report: Report) -> Option<LocalSecretReference> {
        self.reports
            .contains(&report)
            .then(|| LocalSecretReference {
                namespace: self.settings.cluster_namespace.clone(),
                name: report.secret(&self.settings.cluster_name),
            })
    }

    /// Whether the fleet has a Cluster of our name at our address: ours, by all that can be told without the member.
    pub async fn is_known(&self) -> bool {
        let api: Api<Cluster> = Api::all(self.fleet.clone());
        let wanted = wanted(&self.settings, "", &self.endpoint, self.insecure);
        match within("read the Cluster", api.get_opt(&self.settings.cluster_name)).await {
            Ok(Some(found)) => {
                found.spec.sync_mode == wanted.sync_mode
                    && found.spec.api_endpoint == wanted.api_endpoint
            }
            Ok(None) | Err(_) => false,
        }
    }
}

async fn adopt(api: &Api<Cluster>, name: &str, patch: &Value) -> Result<(), Error> {
    match within("update the Cluster", write::merge(api, name, None, patch)).await {
        Ok(_) => tracing::info!(cluster = name, %patch, "updated the registration"),
        // karmadactl's role for agents may not change its Cluster. Whoever edited it meant it, then.
        Err(error) if error.is_forbidden() => {
            tracing::warn!(%error, %patch, "the Cluster differs from the flags and stays so");
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// What the flags say about the Cluster. Fields without a flag, and flags that are empty, say nothing.
fn wanted(settings: &Settings, id: &str, endpoint: &str, insecure: bool) -> ClusterSpec {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ClusterSpec {
        id: given(id),
        sync_mode: ClusterSyncMode::Pull,
        api_endpoint: given(&settings.cluster_api_endpoint).or_else(|| given(endpoint)),
        proxy_url: given(&settings.proxy_server_address),
        provider: given(&settings.cluster_provider),
        region: given(&settings.cluster_region),
        zones: settings.cluster_zones.0.clone(),
        insecure_skip_tls_verification: insecure,
        ..ClusterSpec::default()
    }
}

/// The merge patch that brings an existing Cluster in line with the flags; what they do not mention stays.
fn adoption(
    found: &ClusterSpec,
    wanted: &ClusterSpec,
    models: Vec<ResourceModel>,
) -> Option<Value> {
    let mut wanted = wanted.clone();
    if found.resource_models.is_empty() {
        wanted.resource_models = models;
    }
    let found = serde_json::to_value(found).unwrap_or_default();
    let mut merged = found.clone();
    let wanted = serde_json::to_value(wanted).unwrap_or_default();
    if let (Some(merged), Some(wanted)) = (merged.as_object_mut(), wanted.as_object()) {
        merged.extend(wanted.clone());
        // The deprecated field and its successor exclude each other.
        if wanted.contains_key("zones") {
            merged.remove("zone");
        }
    }
    merge_patch(&found, &merged).map(|spec| json!({ "spec": spec }))
}

/// Looks through the whole fleet, page by page; through our own Cluster only where our role shows us no other. A Cluster that
/// does not parse is no reason to stay away.
async fn refuse_a_taken_name(api: &Api<Cluster>, name: &str, id: &str) -> Result<(), Error> {
    let api: Api<Raw> = Api::all_with(
        api.clone().into_client(),
        &muster_shared::k8s::ApiResource::erase::<Cluster>(&()),
    );
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let clusters = match within("list the Clusters", api.list(&page)).await {
            Ok(clusters) => clusters,
            Err(error) if error.is_forbidden() => {
                let ours = within("read the Cluster", api.get_opt(name)).await?;
                return ours.iter().try_for_each(|ours| refuse(ours, name, id));
            }
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
    let other_id = cluster.object.pointer("/spec/id").and_then(Value::as_str);
    match clash(name, id, &cluster.name_any(), other_id.unwrap_or_default()) {
        Some(problem) => Err(Error::Taken(problem)),
        None => Ok(()),
    }
}

/// What the control plane says about a Cluster of a member that has another one.
pub fn twin(cluster: &Cluster) -> Option<String> {
    let said = cluster.condition(names::condition::UNIQUE_IDENTITY)?;
    (said.status == conditions::FALSE).then(|| said.message.clone())
}

/// Whether two registrations cannot both be right. A Cluster that somebody prepared without an id may be taken.
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

/// Creates a namespace unless it exists or we may not; the control plane makes the same ones.
pub async fn ensure_namespace(fleet: &Client, name: &str) -> Result<(), write::Error> {
    let api: Api<Namespace> = Api::all(fleet.clone());
    match within("read a namespace", api.get_metadata(name)).await {
        Ok(_) => return Ok(()),
        Err(error) if error.is_not_found() || error.is_forbidden() => {}
        Err(error) => return Err(error),
    }
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([(names::label::SYSTEM.to_owned(), "true".to_owned())].into()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    match within(
        "create a namespace",
        api.create(&PostParams::default(), &namespace),
    )
    .await
    {
        Err(error) if !error.is_conflict() && !error.is_forbidden() => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
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

    fn settings(edit: impl FnOnce(&mut Settings)) -> Settings {
        let mut settings = Settings {
            cluster_name: "m1".into(),
            ..Settings::default()
        };
        edit(&mut settings);
        settings
    }

    #[test]
    fn a_registration_that_agrees_with_the_flags_is_left_alone() {
        let wanted = wanted(&settings(|_| {}), "1", "https://m1", false);
        let mut found = wanted.clone();
        found.provider = Some("aws".into());
        found.resource_models = vec![ResourceModel::default()];
        assert_eq!(
            adoption(&found, &wanted, vec![ResourceModel::default()]),
            None
        );
    }

    #[test]
    fn only_what_the_flags_say_otherwise_is_changed() {
        let settings = settings(|settings| settings.cluster_region = "eu".into());
        let wanted = wanted(&settings, "1", "https://m1", false);
        let mut found = wanted.clone();
        found.region = Some("us".into());
        found.provider = Some("aws".into());
        found.taints = vec![muster_shared::k8s::Taint::default()];
        let models = vec![ResourceModel::default()];
        let patch = adoption(&found, &wanted, models.clone()).unwrap();
        assert_eq!(
            patch,
            json!({"spec": {"region": "eu", "resourceModels": models}})
        );
    }

    #[test]
    fn the_endpoint_flag_outranks_the_kubeconfig() {
        let given = settings(|settings| settings.cluster_api_endpoint = "https://outside".into());
        let endpoint = |settings| wanted(settings, "1", "https://inside", false).api_endpoint;
        assert_eq!(endpoint(&given).as_deref(), Some("https://outside"));
        assert_eq!(
            endpoint(&settings(|_| {})).as_deref(),
            Some("https://inside")
        );
    }
}
