//! A replication engine in a member: what is ordered to be primary becomes so after a while, and
//! what is ordered to be secondary once no pods are left that use its data.

use std::time::Duration;

use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use muster_shared::k8s::Pod;
use muster_shared::watch::{Change, Informer, Selection};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::plan::Plan;
use crate::replication::DEFINITION;

/// Time that a step takes.
const SLOW: Duration = Duration::from_secs(4);

/// Starts the engine, in a plan that has its kind.
pub(super) fn start(plan: &Plan, (write, watch): (Client, Client), stop: &CancellationToken) {
    let has_kind = plan
        .everywhere
        .iter()
        .any(|it| it["metadata"]["name"] == DEFINITION);
    if !has_kind {
        return;
    }
    let kind = GroupVersionKind::gvk("data.example.com", "v1", "Replication");
    let kind = ApiResource::from_gvk(&kind);
    let all = Api::all_with(watch, &kind);
    let informer: Informer<DynamicObject> = Informer::new(all, Selection::everything());
    informer.on_change(move |change| {
        let Change::Applied { old, new } = change else {
            return;
        };
        let generation = new.metadata.generation;
        if old
            .as_ref()
            .is_none_or(|old| old.metadata.generation != generation)
        {
            let namespace = new.namespace().unwrap_or_default();
            let objects = Api::namespaced_with(write.clone(), &namespace, &kind);
            let pods = Api::namespaced(write.clone(), &namespace);
            tokio::spawn(act(objects, pods, (**new).clone()));
        }
    });
    tokio::spawn(informer.run(stop.clone()));
}

async fn act(objects: Api<DynamicObject>, pods: Api<Pod>, object: DynamicObject) {
    let (name, generation) = (object.name_any(), object.metadata.generation);
    let is_primary = object.data["spec"]["state"] == "primary";
    let used = ListParams::default().labels(&format!("app={name}"));
    loop {
        tokio::time::sleep(SLOW).await;
        let found = pods.list(&used).await;
        if !is_primary && found.is_ok_and(|it| !it.items.is_empty()) {
            continue;
        }
        let now = match objects.get_opt(&name).await {
            Ok(Some(now)) => now,
            Ok(None) => return,
            // Its API is down: it goes on once that is back.
            Err(_) => continue,
        };
        if now.metadata.generation != generation {
            return;
        }
        let state = if is_primary { "Primary" } else { "Secondary" };
        let status = json!({
            "metadata": {"resourceVersion": now.metadata.resource_version},
            "status": {
                "state": state, "observedGeneration": generation,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        let (params, patch) = (PatchParams::default(), Patch::Merge(&status));
        if objects.patch_status(&name, &params, &patch).await.is_ok() {
            return;
        }
    }
}
