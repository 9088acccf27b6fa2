//! Creates the Cluster object and the namespaces, after checking that no other agent is registered
//! under this name.

use kube::api::PostParams;
use muster_shared::api::cluster::{
    Cluster, ClusterSpec, ClusterSyncMode, LocalSecretReference, ResourceModel,
};
use muster_shared::k8s::{Api, Client, ListParams, Namespace, ObjectMeta, ResourceExt};
use muster_shared::{conditions, merge, names};
use serde_json::{Value, json};

use crate::accounts::Report;
use crate::settings::Settings;
use crate::work::member::Raw;
use crate::write::{self, within};

/// Clusters per page of the list that is searched for the name and the id.
const PAGE: u32 = 100;

/// Reason why the registration failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The identity of the member could not be read.
    #[error("identify the member: {0}")]
    Identify(#[source] write::Error),
    /// The namespace that identifies a cluster has no UID.
    #[error("identify the member: namespace \"kube-system\" has no uid")]
    NoIdentity,
    /// Another cluster of the fleet has the name or the id. Only an operator can resolve this.
    #[error("refused to join: {0}")]
    Taken(String),
    /// The fleet API and the member are the same cluster, in which templates would be started where
    /// they are stored.
    #[error(
        "refused to join: the fleet API and the member are the same cluster ({0}); --karmada-kubeconfig must lead to the \
         fleet API, --kubeconfig to the member"
    )]
    Itself(String),
    /// The control plane says that the member is registered under another name. This may be wrong
    /// for a while, or another cluster claims this member's id: the agent keeps reporting, and
    /// applies nothing.
    #[error("not a member as long as the control plane says so: {0}")]
    Twin(String),
    /// The fleet API rejected a request or did not answer.
    #[error(transparent)]
    Fleet(#[from] write::Error),
}

impl Error {
    /// Returns whether a retry cannot help.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Taken(_) | Self::Itself(_))
    }

    /// Returns whether the control plane says that the member is registered under another name.
    pub fn is_doubt(&self) -> bool {
        matches!(self, Self::Twin(_))
    }

    /// Returns whether the identity of the member could not be read.
    pub fn is_anonymity(&self) -> bool {
        matches!(self, Self::Identify(_))
    }
}

/// Returns the identity of a cluster: the uid of its namespace `kube-system`, as in Karmada.
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
    /// Registers the member, or takes its registration over after a restart. `recognised` is called
    /// as soon as the fleet is seen to have a Cluster of this name and id, even if a later step
    /// fails.
    pub async fn register(&self, recognised: impl Fn()) -> Result<(), Error> {
        let id = identity(&self.member).await?;
        self.refuse_the_fleet_itself(&id).await?;
        let name = self.settings.cluster_name.as_str();
        let api: Api<Cluster> = Api::all(self.fleet.clone());
        let known = within("read the Cluster", api.get_opt(name)).await?;
        if known.is_some_and(|known| is_recognised(&known, &id)) {
            recognised();
        }
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
                let manager = founder(&id);
                let call = muster_shared::write::create(&api, name, &cluster, &manager);
                within("create the Cluster", call).await?;
                tracing::info!(cluster = name, id, "registered with the fleet");
            }
            Some(found) => {
                if let Some(problem) = twin(&found) {
                    return Err(Error::Twin(problem));
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
    /// the member nothing more is known of its identity.
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

/// Returns the field manager with which a member creates its Cluster. Every member has its own, so
/// that the second of two that create one of the same name at once gets a conflict instead of
/// overwriting the id.
fn founder(id: &str) -> String {
    // The name of a field manager may have 128 characters.
    let id: String = id.chars().take(64).collect();
    format!("{}-{id}", write::FIELD_MANAGER)
}

/// Returns whether a Cluster is certainly this member's: it has the id, and is not refused as a
/// second registration.
fn is_recognised(found: &Cluster, id: &str) -> bool {
    found.spec.id.as_deref() == Some(id) && twin(found).is_none()
}

/// Returns whether the member of this id is the fleet API: by the fleet's id if that is known, else
/// by the addresses.
fn is_itself(id: &str, fleet: Option<&str>, same_server: bool) -> bool {
    fleet.map_or(same_server, |fleet| fleet == id)
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

/// Returns the spec of the Cluster by the flags. Fields without a flag, and those of empty flags,
/// are empty.
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

/// Returns the merge patch that brings an existing Cluster in line with the flags; other fields
/// stay. Models are set at the first registration only: a Cluster whose models were removed later
/// has none on purpose.
fn adoption(
    found: &ClusterSpec,
    wanted: &ClusterSpec,
    models: Vec<ResourceModel>,
) -> Option<Value> {
    let mut wanted = wanted.clone();
    let is_new = found.id.as_deref().is_none_or(str::is_empty);
    if is_new && found.resource_models.is_empty() {
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
    merge::difference(&found, &merged).map(|spec| json!({ "spec": spec }))
}

/// Refuses the registration if another Cluster of the fleet has the id, or the Cluster of this name
/// has another id. Only the Cluster of this name is read if the role permits no list, or if the
/// Cluster has the id already: the control plane decides about others with the same id. A Cluster
/// that does not parse is ignored.
async fn refuse_a_taken_name(api: &Api<Cluster>, name: &str, id: &str) -> Result<(), Error> {
    let api: Api<Raw> = Api::all_with(
        api.clone().into_client(),
        &muster_shared::k8s::ApiResource::erase::<Cluster>(&()),
    );
    let ours = within("read the Cluster", api.get_opt(name)).await?;
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
pub fn twin(cluster: &Cluster) -> Option<String> {
    let said = cluster.condition(names::condition::UNIQUE_IDENTITY)?;
    (said.status == conditions::FALSE).then(|| said.message.clone())
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

/// Creates a namespace unless it exists or the right is missing; the control plane creates the same
/// ones.
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
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use http::{Method, Request, Response};
    use kube::client::Body;

    use super::*;

    /// An API with namespaces of this uid, and the Cluster if given; it records writes.
    fn api(id: &str, cluster: Option<&Value>, writes: &Arc<Mutex<Vec<(String, Value)>>>) -> Client {
        let (id, cluster, writes) = (id.to_owned(), cluster.cloned(), Arc::clone(writes));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (id, cluster, writes) = (id.clone(), cluster.clone(), Arc::clone(&writes));
            async move {
                let (head, body) = request.into_parts();
                let query = head.uri.query().unwrap_or_default().to_owned();
                let path = head.uri.path();
                let missing = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "not found"});
                let (code, answer) = if head.method != Method::GET {
                    let body: Value =
                        serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap();
                    writes.lock().unwrap().push((query, body));
                    (
                        200,
                        cluster.unwrap_or_else(|| json!({"metadata": {"name": "m1"}, "spec": {}})),
                    )
                } else if path.contains("/namespaces/") {
                    (200, json!({"metadata": {"name": "kube-system", "uid": id}}))
                } else if path.ends_with("/clusters") {
                    (200, json!({"metadata": {}, "items": []}))
                } else {
                    cluster.map_or((404, missing), |cluster| (200, cluster))
                };
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(code).body(answer).unwrap())
            }
        });
        Client::new(service, "default")
    }

    /// Returns the writes of a member of this id that joins a fleet with this Cluster of its name.
    async fn writes(id: &str, cluster: Option<Value>) -> Vec<(String, Value)> {
        let writes = Arc::default();
        let registration = Registration {
            fleet: api("the-fleet", cluster.as_ref(), &writes),
            member: api(id, None, &Arc::default()),
            settings: settings(|_| {}),
            endpoint: "https://m1".into(),
            same_server: false,
            insecure: false,
            reports: Vec::new(),
            models: Vec::new(),
        };
        registration.register(|| {}).await.unwrap();
        let writes = writes.lock().unwrap();
        writes.clone()
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
        assert_eq!(patch, json!({"spec": {"region": "eu"}}));
    }

    #[test]
    fn models_are_given_at_the_first_registration_and_never_again() {
        let wanted = wanted(&settings(|_| {}), "1", "https://m1", false);
        let models = vec![ResourceModel::default()];
        for (id, given) in [(None, true), (Some(""), true), (Some("1"), false)] {
            let mut found = wanted.clone();
            found.id = id.map(str::to_owned);
            let patch = adoption(&found, &wanted, models.clone()).unwrap_or_default();
            assert_eq!(!patch["spec"]["resourceModels"].is_null(), given, "{id:?}");
        }
    }

    #[test]
    fn a_member_is_recognised_by_its_id_unless_it_is_told_that_it_is_the_wrong_one() {
        let cluster = |id: Option<&str>, unique: Option<&str>| {
            let conditions: Vec<Value> = unique
                .map(|status| json!({"type": "UniqueIdentity", "status": status, "reason": "x", "message": "y", "lastTransitionTime": "2026-01-01T00:00:00Z"}))
                .into_iter()
                .collect();
            let cluster = json!({"metadata": {"name": "m1"}, "spec": {"syncMode": "Pull", "id": id}, "status": {"conditions": conditions}});
            serde_json::from_value::<Cluster>(cluster).unwrap()
        };
        for (found, expected) in [
            (cluster(Some("1"), None), true),
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

    /// The description of the field agrees with the code: no other property of the member is used.
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
