//! ReplicaSets: so many pods of one template.

use k8s_openapi::api::apps::v1::ReplicaSet;
use kube::ResourceExt as _;
use kube::api::Api;
use serde_json::json;

use super::replicas::{Plan, plan, tally, wanted};
use super::{Failed, Name, Owner, World, status};
use crate::member::pods::Key;

pub(super) async fn reconcile(world: &World, key: &Key) -> Result<(), Failed> {
    let Some(set) = world.replica_sets.get(Some(&key.0), &key.1) else {
        return Ok(());
    };
    let Some(spec) = &set.spec else {
        return Ok(());
    };
    let uid = set.uid().unwrap_or_default();
    if set.metadata.deletion_timestamp.is_none() {
        match plan(wanted(spec.replicas), &world.pods.owned_by(&uid)) {
            Plan::Keep => {}
            Plan::Create(missing) => {
                let owner = Owner::of(&*set);
                for _ in 0..missing {
                    let template = spec.template.clone().unwrap_or_default();
                    world
                        .create_pod(&owner, Name::Beginning(&set.name_any()), template, None)
                        .await?;
                }
            }
            Plan::Delete(pods) => {
                for pod in pods {
                    world.delete_pod(&pod).await?;
                }
            }
        }
    }
    let pods = world.pods.owned_by(&uid);
    let tally = tally(&pods);
    let current = status::current(set.status.as_ref());
    let wanted = json!({
        "replicas": tally.all,
        "fullyLabeledReplicas": status::count(tally.all),
        "readyReplicas": status::count(tally.ready),
        "availableReplicas": status::count(tally.ready),
        "observedGeneration": set.metadata.generation,
    });
    let api: Api<ReplicaSet> = Api::namespaced(world.client.clone(), &key.0);
    status::write(&api, &key.1, &current, &wanted).await
}
