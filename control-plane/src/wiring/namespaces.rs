//! The namespaces that the control plane itself needs: created at the start, and again, as they
//! were, when somebody deletes one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use muster_shared::client;
use muster_shared::fleet_id::SYSTEM_NAMESPACE;
use muster_shared::k8s::ObjectMeta;
use muster_shared::names::CLUSTER_NAMESPACE;
use muster_shared::names::annotation::FLEET_ID;
use muster_shared::watch::Change;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::clusters::registration::access::create_missing;
use crate::fleet::Fleet;
use crate::fleet::write::merge;
use crate::settings::Settings;

/// Time after which a request that failed is made again.
const RETRY: Duration = Duration::from_secs(2);
/// Reason of events.
const REASON: &str = "NamespaceMadeAgain";

/// Returns the namespaces of the election and of the leases.
fn wanted(settings: &Settings) -> Vec<&str> {
    let mut wanted = vec![
        settings.leader_elect_resource_namespace.as_str(),
        CLUSTER_NAMESPACE,
    ];
    wanted.dedup();
    wanted
}

/// Creates the namespaces of the election and of the leases, retrying until they exist: a fresh
/// fleet API has neither.
pub(super) async fn ensure(fleet: &Fleet) {
    let api: Api<Namespace> = Api::all(fleet.client.clone());
    for name in wanted(&fleet.settings) {
        loop {
            let refusal = match create_missing(&api, name).await {
                Ok(true) => {
                    tracing::info!(name, "created a namespace that the fleet needs");
                    break;
                }
                Ok(false) => break,
                Err(error) => error,
            };
            let why = client::brief(&refusal);
            if is_refused_for_good(&refusal) {
                // Then somebody else is to make it, and the election says what is missing.
                tracing::info!(
                    name,
                    why,
                    "a namespace that the fleet needs may not be created"
                );
                break;
            }
            // The caches say in /readyz, and in the log, that the API cannot be reached.
            tracing::info!(
                name,
                why,
                "could not create a namespace that the fleet needs"
            );
            tokio::select! {
                () = fleet.shutdown.cancelled() => return,
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }
}

/// Returns whether asking again cannot help: the API answered, and it was not a matter of load or
/// of time.
fn is_refused_for_good(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => (400..500).contains(&status.code) && status.code != 429,
        _ => false,
    }
}

/// Makes namespaces again that somebody deletes while the process runs, with the annotations that
/// they had: the id and the addresses of the fleet and the epoch of its store are among them, and
/// without its epoch a store that was promoted is led by no control plane.
pub(super) struct Keeper {
    fleet: Arc<Fleet>,
    deleted: mpsc::UnboundedReceiver<Arc<Namespace>>,
}

impl Keeper {
    /// Listens to the cache. Call it before that is followed.
    pub(super) fn new(fleet: &Arc<Fleet>) -> Self {
        let (tell, deleted) = mpsc::unbounded_channel();
        let wanted = wanted(&fleet.settings).into_iter().map(str::to_owned);
        let wanted: Vec<String> = wanted.collect();
        fleet.namespaces.on_change(move |change| {
            if let Change::Deleted { old } = change
                && wanted.contains(&old.name_any())
            {
                tell.send(Arc::clone(old)).ok();
            }
        });
        Self {
            fleet: Arc::clone(fleet),
            deleted,
        }
    }

    /// Makes them again until shutdown. It asks for no leadership: there is none without the
    /// namespace of the election.
    pub(super) async fn run(mut self) {
        let fleet = Arc::clone(&self.fleet);
        let keep = async {
            fleet.namespaces.synced().await;
            let there = |name: &&str| fleet.namespaces.get(None, name).is_some();
            if !wanted(&fleet.settings).iter().all(there) {
                // One was still terminating when the process started, and is gone since.
                ensure(&fleet).await;
            }
            let store = fleet.namespaces.get(None, SYSTEM_NAMESPACE);
            let store = store.and_then(|system| system.uid());
            while let Some(former) = self.deleted.recv().await {
                restore(&fleet, &former, store.as_deref()).await;
            }
        };
        let _: Option<()> = fleet.shutdown.run_until_cancelled(keep).await;
    }
}

/// Makes a namespace again that was deleted, retrying until it is there. `store` is the uid of
/// `kube-system`: what was written upon a namespace of one store says nothing about another.
async fn restore(fleet: &Fleet, former: &Namespace, store: Option<&str>) {
    let api: Api<Namespace> = Api::all(fleet.client.clone());
    let name = former.name_any();
    loop {
        let refusal = match make_again(&api, former, store).await {
            Ok(true) => {
                let note = format!(
                    "somebody deleted namespace {name:?} of the fleet API: it was made again with its annotations. The leases in it come back by themselves, and the roles of agents if the control plane may create roles. Secrets that were in it do not, so that members of sync mode Push have to be joined again, nor does a pause of movement"
                );
                tracing::warn!("{note}");
                fleet.warn_of_api(&name, REASON, note);
                return;
            }
            Ok(false) => return,
            Err(error) => error,
        };
        let why = client::brief(&refusal);
        let is_overtaken = client::is_conflict(&refusal) || client::is_gone(&refusal);
        if !is_overtaken && is_refused_for_good(&refusal) {
            let note = format!(
                "somebody deleted namespace {name:?} of the fleet API, and the control plane may not make it again: {why}"
            );
            tracing::warn!("{note}");
            fleet.warn_of_api(&name, "NamespaceMissing", note);
            return;
        }
        tracing::info!(name, why, "could not make a namespace again");
        tokio::time::sleep(RETRY).await;
    }
}

/// Creates a namespace that was deleted as it was, or writes what it lacks of that upon one that
/// somebody else has created since; says whether there was anything to do.
async fn make_again(
    api: &Api<Namespace>,
    former: &Namespace,
    store: Option<&str>,
) -> Result<bool, kube::Error> {
    let name = former.name_any();
    let system = client::get_metadata_opt(api, SYSTEM_NAMESPACE).await?;
    if system.and_then(|system| system.metadata.uid).as_deref() != store {
        return create_missing(api, &name).await;
    }
    let Some(found) = client::get_metadata_opt(api, &name).await? else {
        let namespace = Namespace {
            metadata: ObjectMeta {
                name: Some(name),
                labels: former.metadata.labels.clone(),
                annotations: former.metadata.annotations.clone(),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        api.create(&PostParams::default(), &namespace).await?;
        return Ok(true);
    };
    let Some(patch) = lacking(former, &found.metadata) else {
        return Ok(false);
    };
    merge(api, &name, &patch).await?;
    Ok(true)
}

/// Returns the merge patch that gives a namespace the annotations that its former one had and it
/// does not have; `None` if there is nothing to write, it is the former one, or it is being deleted
/// as well. The id of the fleet is the former one's in any case: another one may have been
/// published since.
fn lacking(former: &Namespace, found: &ObjectMeta) -> Option<Value> {
    if found.uid == former.metadata.uid || found.deletion_timestamp.is_some() {
        return None;
    }
    let held = |key: &str| found.annotations.as_ref().and_then(|it| it.get(key));
    let is_lacking = |key: &str, value: &String| match held(key) {
        Some(held) => key == FLEET_ID && held != value,
        None => true,
    };
    let annotations = former.annotations().iter();
    let lacking: BTreeMap<&String, &String> = annotations
        .filter(|(key, value)| is_lacking(key, value))
        .collect();
    (!lacking.is_empty()).then(|| {
        json!({"metadata": {
            "resourceVersion": found.resource_version,
            "annotations": lacking,
        }})
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::testing::{Stand, pass};

    const EPOCH: &str = "fleet.muster.io/epoch";

    fn namespace(uid: &str, annotations: &Value) -> Value {
        json!({"metadata": {"name": CLUSTER_NAMESPACE, "uid": uid, "annotations": annotations}})
    }

    /// Returns a fleet whose namespaces are kept.
    async fn kept() -> Stand {
        let mut stand = Stand::new([
            (
                "namespaces",
                json!({"metadata": {"name": "kube-system", "uid": "s"}}),
            ),
            (
                "namespaces",
                json!({"metadata": {"name": "karmada-system", "uid": "k"}}),
            ),
            (
                "namespaces",
                namespace("a", &json!({FLEET_ID: "former", EPOCH: "2"})),
            ),
        ]);
        let keeper = Keeper::new(&stand.fleet);
        stand.follow().await;
        stand.tasks.spawn("namespaces", keeper.run());
        pass(1).await;
        stand
    }

    fn annotations(stand: &Stand) -> Option<Value> {
        let found = stand.api.object("namespaces", "", CLUSTER_NAMESPACE);
        found.map(|it| it["metadata"]["annotations"].clone())
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_somebody_deletes_is_made_again_as_it_was() {
        let stand = kept().await;
        stand.api.delete("namespaces", "", CLUSTER_NAMESPACE);
        pass(5).await;
        let expected = json!({FLEET_ID: "former", EPOCH: "2"});
        assert_eq!(annotations(&stand), Some(expected));
        let told = [(CLUSTER_NAMESPACE.to_owned(), REASON.to_owned())];
        assert_eq!(stand.api.told().await, told);
        stand.api.delete("namespaces", "", "karmada-system");
        pass(5).await;
        let other = stand.api.object("namespaces", "", "karmada-system");
        assert!(other.is_some(), "the one of the election as well");
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_only_a_list_lacks_is_left_alone() {
        let stand = kept().await;
        stand.api.hide("namespaces", "", CLUSTER_NAMESPACE);
        pass(60).await;
        assert!(stand.api.writes().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_written_upon_a_namespace_of_another_store_is_not_written_here() {
        let stand = kept().await;
        let system = json!({"metadata": {"name": "kube-system", "uid": "other"}});
        stand.api.put_untold("namespaces", system);
        stand.api.delete("namespaces", "", CLUSTER_NAMESPACE);
        pass(5).await;
        assert_eq!(annotations(&stand), Some(Value::Null));
    }

    #[test]
    fn one_that_somebody_else_made_gets_what_it_lacks() {
        let read = |value: Value| -> Namespace { serde_json::from_value(value).unwrap() };
        let former = read(namespace("a", &json!({FLEET_ID: "former", EPOCH: "2"})));
        for (found, expected) in [
            (
                namespace("b", &json!({})),
                Some(json!({FLEET_ID: "former", EPOCH: "2"})),
            ),
            (
                namespace("b", &json!({FLEET_ID: "s", EPOCH: "3"})),
                Some(json!({FLEET_ID: "former"})),
            ),
            (
                namespace("b", &json!({FLEET_ID: "former", EPOCH: "2"})),
                None,
            ),
            (namespace("a", &json!({})), None),
        ] {
            let found = read(found).metadata;
            let patch = lacking(&former, &found);
            let written = patch.map(|it| it["metadata"]["annotations"].clone());
            assert_eq!(written, expected, "{found:?}");
        }
    }
}
