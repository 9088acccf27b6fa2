//! Removes Works whose binding does not exist.
//!
//! A binding that is missing in the cache may exist: the list may have been short, or the object
//! may not decode. A Work is removed only if the API reports twice, with a pause, that the binding
//! does not exist, also where it was seen being deleted: it may be about to be made again, or was,
//! and a short list lacks the new one. What an ordinary deletion removes is gone before that. While
//! a policy claims the template of the binding, or a workload needs it, the Works stay: the binding
//! is made again. So they do while it is not known whether that is so.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use muster_shared::queue::Next;

use super::error::Error;
use super::namespaces;
use super::removal::{self, Reason};
use super::write::{doomed, remove};
use crate::fleet::Fleet;
use crate::fleet::binding::BindingKey;
use crate::fleet::claim::Claim;
use crate::fleet::memory::Since;
use crate::fleet::template::{Kind, Template, TemplateKey};
use crate::fleet::template_event::{KindState, Lookup};
use crate::fleet::works::CachedWork;

/// How long the API has to go on saying that there is no such binding before its Works are removed.
const CONFIRMED: Duration = Duration::from_secs(10);

/// Group of the kinds whose objects may have names that no binding can have.
const RBAC: &str = "rbac.authorization.k8s.io";

/// Returns whether a binding that does not exist is to be made again: a policy claims its template,
/// or a workload needs it. How long that takes depends on the API, which may refuse it for a while.
/// True, too, while it is not known whether there is such a template.
pub fn is_made_again(fleet: &Fleet, key: &BindingKey) -> bool {
    let needed = fleet.dependencies.get();
    let is_wanted = |key: &TemplateKey, it: &Template| {
        let is_needed = || needed.is_some_and(|needed| needed.has(key, it));
        !it.is_deleting() && (Claim::on(it).is_some() || is_needed())
    };
    let has_wanted = |kind: &Arc<Kind>| {
        let suffix = format!("-{}", kind.kind.to_lowercase());
        let Some(name) = key.name.strip_suffix(&suffix) else {
            return false;
        };
        let namesake = TemplateKey {
            kind: Arc::clone(kind),
            namespace: key.namespace.clone(),
            name: name.to_owned(),
        };
        match fleet.templates.get(&namesake) {
            Lookup::Found(it) if is_wanted(&namesake, &it) => return true,
            // The API says of a kind that it does not have that there is none.
            Lookup::Unknown => return fleet.templates.kind_state(kind) != KindState::Missing,
            Lookup::Found(_) | Lookup::Absent => {}
        }
        if kind.group() != RBAC {
            return false;
        }
        let all = fleet.templates.list(kind, key.namespace.as_deref());
        let mut all = all.into_iter().flatten();
        all.any(|it| {
            let template = TemplateKey::of_template(kind, &it);
            BindingKey::for_template(&template) == *key && is_wanted(&template, &it)
        })
    };
    fleet.templates.kinds().iter().any(has_wanted)
}

/// Removes the Works of a binding that is not in the cache, once it is certain that it does not
/// exist.
pub async fn sweep(
    fleet: &Fleet,
    client: &Client,
    missing: &Since<BindingKey>,
    key: &BindingKey,
) -> Result<Next, Error> {
    let works = fleet.work_index.of(key);
    // Works that are being deleted already are not decided about anew.
    if works.iter().all(|work| doomed(work, false).is_none()) {
        missing.forget(key);
        return Ok(Next::Done);
    }
    if is_made_again(fleet, key) {
        missing.forget(key);
        // One whose deletion failed stays, too, for whoever is to delete it next.
        for work in &works {
            fleet.deleted_works.stays(client, work).await?;
        }
        return Ok(Next::After(CONFIRMED));
    }
    if key.exists(fleet).await? {
        missing.forget(key);
        return Ok(Next::Done);
    }
    if let Some(rest) = missing.rest(key, (), CONFIRMED) {
        return Ok(Next::After(rest));
    }
    let needed = fleet.dependencies.get().zip(key.namespace.as_deref());
    if needed.is_some_and(|(needed, namespace)| needed.is_open(namespace)) {
        return Ok(Next::After(CONFIRMED));
    }
    tracing::info!(binding = %key, works = works.len(), "the binding of these works does not exist: they go");
    let is_kept = |work: &CachedWork| {
        let preserves = work.preserve_resources_on_deletion.unwrap_or(false);
        removal::stays(work.role, Reason::Unbound, preserves)
    };
    let staying = works.iter().filter(|work| is_kept(work));
    let members = staying.filter_map(|work| work.metadata.namespace.as_deref());
    let members: Vec<&str> = members.collect();
    namespaces::keep(fleet, key, None, &members).await?;
    let doomed = works.iter().filter_map(|work| doomed(work, is_kept(work)));
    remove(fleet, client, doomed.collect()).await?;
    missing.forget(key);
    Ok(Next::Done)
}

#[cfg(test)]
mod tests {
    use muster_shared::watch::Presence;
    use serde_json::json;

    use super::*;
    use crate::fleet::testing;

    #[tokio::test(start_paused = true)]
    async fn works_stay_where_a_binding_that_left_was_made_again_unseen() {
        for is_there in [true, false] {
            let mut leaving = testing::deleting(testing::binding());
            leaving["metadata"]["finalizers"] = json!(["example.com/kept"]);
            let bench = testing::Bench::followed([
                ("clusters", testing::cluster("m1")),
                ("resourcebindings", leaving),
                ("works", testing::work("m1", "Healthy")),
            ])
            .await;
            let cached = bench.binding("web-deployment").unwrap();
            let key = BindingKey::of(cached.as_ref());
            let (plural, namespace) = ("resourcebindings", "shop");
            if is_there {
                bench.api.hide(plural, namespace, &key.name);
                bench.api.put(plural, testing::binding());
            } else {
                bench.api.lose(plural, namespace, &key.name);
            }
            testing::pass(60).await;
            assert_eq!(bench.fleet.bindings.presence(&key), Presence::Gone);
            bench.api.forget();
            let fleet = &bench.fleet;
            let missing = Since::default();
            let sweep = async || sweep(fleet, &fleet.client, &missing, &key).await.unwrap();
            let first = if is_there {
                Next::Done
            } else {
                Next::After(CONFIRMED)
            };
            assert_eq!(sweep().await, first);
            assert_eq!(bench.api.writes(), []);
            tokio::time::advance(CONFIRMED).await;
            assert_eq!(sweep().await, Next::Done);
            assert_eq!(bench.api.writes().is_empty(), is_there);
        }
    }
}
