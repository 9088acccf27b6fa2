//! Gathers the Works of a binding, and writes what they say to the binding and to the template.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::Patch;
use muster_shared::api::binding::{
    AggregatedStatusItem, Binding, ClusterResourceBinding, ResourceBinding,
};
use muster_shared::client::Rank;
use muster_shared::interpreter::{self, MemberStatus, Operation, aggregate_status, hook_enabled};
use muster_shared::merge;
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Change, Informer};
use serde_json::{Value, json};

use super::aggregate::{fully_applied, items, patch};
use crate::binding::CachedWork;
use crate::binding::kept::{BindingKey, Kept, patch_params};
use crate::binding::render::Scope;
use crate::binding::works::binding_of;
use crate::detector::{Lookup, Parked, TemplateKey};
use crate::fleet::Fleet;

/// Reports of several clusters about one binding come in bunches; one write says them all.
const GATHERING: Duration = Duration::from_millis(100);
/// How long to wait after somebody else's write.
const SOON: Duration = Duration::from_millis(200);

/// Why a status is not as it should be.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("aggregate the status: {0}")]
    Aggregate(#[from] interpreter::Error),
    #[error("write the status of {subject}: {source}")]
    Api {
        subject: String,
        source: Box<kube::Error>,
    },
}

/// Starts the controller.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    fleet.follow_templates();
    let queue = Queue::new("binding status");
    let parked = Arc::new(Parked::new(&fleet.templates, &queue));
    follow(&fleet.bindings, &queue);
    follow(&fleet.cluster_bindings, &queue);
    let reports = queue.clone();
    fleet.works.on_change(move |change| {
        let tells_nothing_new = match change {
            Change::Applied {
                old: Some(old),
                new,
            } => {
                new.reports_as(old)
                    && old.metadata.deletion_timestamp.is_some()
                        == new.metadata.deletion_timestamp.is_some()
            }
            Change::Applied { old: None, .. } | Change::Deleted { .. } => false,
        };
        if let Some(key) = binding_of(change.object()).filter(|_| !tells_nothing_new) {
            reports.add_after(key, GATHERING);
        }
    });
    let workers = fleet.settings.concurrent_work_syncs;
    fleet.work(
        tasks,
        "binding status",
        queue,
        workers,
        move |fleet, key: BindingKey| {
            let parked = Arc::clone(&parked);
            async move {
                if key.namespace.is_some() {
                    reconcile::<ResourceBinding>(&fleet, &parked, &key).await
                } else {
                    reconcile::<ClusterResourceBinding>(&fleet, &parked, &key).await
                }
            }
        },
    );
}

/// A binding whose clusters change has to be judged anew.
fn follow<B: Binding>(bindings: &Informer<B>, queue: &Queue<BindingKey>) {
    let queue = queue.clone();
    bindings.on_change(move |change| {
        if let Change::Applied { old, new } = change
            && old
                .as_ref()
                .is_none_or(|old| old.meta().generation != new.meta().generation)
        {
            queue.add_after(BindingKey::of(new.as_ref()), GATHERING);
        }
    });
}

async fn reconcile<B: Kept>(
    fleet: &Fleet,
    parked: &Parked<BindingKey>,
    key: &BindingKey,
) -> Result<Next, Error> {
    fleet.traffic.lull(Rank::Report).await;
    let Some(binding) = B::cache(fleet).get(key.namespace.as_deref(), &key.name) else {
        return Ok(Next::Done);
    };
    let Some(id) = binding
        .permanent_id()
        .filter(|_| binding.meta().deletion_timestamp.is_none())
    else {
        return Ok(Next::Done);
    };
    let (spec, status) = (binding.spec(), binding.status());
    let works = fleet.work_index.of(id);
    let reported = |work: &Arc<CachedWork>| work.is_reported();
    if status.aggregated_status.is_empty() && !works.iter().any(reported) {
        // No agent has said anything yet: there is nothing to judge, and a write less while a fleet is being filled.
        return Ok(Next::Done);
    }
    let items = items(works.iter().map(AsRef::as_ref), &spec.resource);
    let full = fully_applied(&Scope::of(spec).expected, &items);
    let version = binding.meta().resource_version.as_deref();
    if let Some(patch) = patch(status, version, &items, full, Timestamp::now()) {
        let answer = B::api(&fleet.report_client, key)
            .patch_status(&key.name, &patch_params(), &Patch::Merge(&patch))
            .await;
        match answer {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(Next::Done),
            Err(kube::Error::Api(status)) if status.is_conflict() => return Ok(Next::After(SOON)),
            Err(source) => {
                return Err(Error::Api {
                    subject: key.to_string(),
                    source: Box::new(source),
                });
            }
        }
    }
    reflect(fleet, parked, key, &TemplateKey::of(&spec.resource), &items).await
}

/// Shows the members' statuses on the template, as if its own controllers had written them.
async fn reflect(
    fleet: &Fleet,
    parked: &Parked<BindingKey>,
    of: &BindingKey,
    key: &TemplateKey,
    items: &[AggregatedStatusItem],
) -> Result<Next, Error> {
    if !hook_enabled(
        &key.kind.api_version,
        &key.kind.kind,
        Operation::AggregateStatus,
    ) {
        return Ok(Next::Done);
    }
    let template = match fleet.templates.get(key) {
        Lookup::Found(template) => template.object(&key.kind),
        Lookup::Absent => return Ok(Next::Done),
        Lookup::Unknown => return Ok(parked.wait(&key.kind, of.clone())),
    };
    let members: Vec<_> = items
        .iter()
        .map(|item| MemberStatus {
            cluster: &item.cluster_name,
            status: item.status.as_ref().map(|status| &status.0),
        })
        .collect();
    let Some(wanted) = aggregate_status(&template, &members, Timestamp::now())? else {
        return Ok(Next::Done);
    };
    let held = template.get("status").cloned().unwrap_or_else(|| json!({}));
    let Some(difference) = merge::difference(&held, &wanted) else {
        return Ok(Next::Done);
    };
    write(fleet, key, &difference).await
}

async fn write(fleet: &Fleet, key: &TemplateKey, status: &Value) -> Result<Next, Error> {
    let Some(api) = fleet.templates.api(key, &fleet.report_client) else {
        return Ok(Next::After(SOON));
    };
    match api
        .patch_status(
            &key.name,
            &patch_params(),
            &Patch::Merge(json!({ "status": status })),
        )
        .await
    {
        Ok(_) => Ok(Next::Done),
        // It is gone, or its kind has no status to write.
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Next::Done),
        Err(source) => Err(Error::Api {
            subject: key.to_string(),
            source: Box::new(source),
        }),
    }
}
