//! Workloads by the labels of their templates, which bindings do not have.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt as _;
use kube::api::{DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::discovery::pinned_kind;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::k8s::{Api, Client};

use crate::output::warn;
use crate::request::call;

/// Namespace and name of a template.
type Place = (Option<String>, String);

/// Returns the bindings whose templates a selector matches, by the API's own judgement; all are of
/// one namespace, if one is given.
pub(super) async fn selected(
    client: &Client,
    namespace: Option<&str>,
    bindings: Vec<Arc<AnyBinding>>,
    selector: &str,
) -> anyhow::Result<Vec<Arc<AnyBinding>>> {
    let mut found: BTreeMap<(String, String), BTreeSet<Place>> = BTreeMap::new();
    for binding in &bindings {
        if let Entry::Vacant(kind) = found.entry(kind_of(binding)) {
            let places = places(client, namespace, kind.key(), selector).await;
            // One kind that may not be listed hides no other.
            kind.insert(places.unwrap_or_else(|error| {
                warn(&format_args!("workloads are left out: {error:#}"));
                BTreeSet::new()
            }));
        }
    }
    let is_selected = |it: &Arc<AnyBinding>| {
        let resource = &it.spec.resource;
        let namespace = resource.namespace.clone().filter(|it| !it.is_empty());
        let place = (namespace, resource.name.clone());
        found
            .get(&kind_of(it))
            .is_some_and(|places| places.contains(&place))
    };
    Ok(bindings.into_iter().filter(is_selected).collect())
}

fn kind_of(binding: &AnyBinding) -> (String, String) {
    let resource = &binding.spec.resource;
    (resource.api_version.clone(), resource.kind.clone())
}

/// Returns the objects of a kind that a selector matches.
async fn places(
    client: &Client,
    namespace: Option<&str>,
    (version, kind): &(String, String),
    selector: &str,
) -> anyhow::Result<BTreeSet<Place>> {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let known = GroupVersionKind::gvk(group, version, kind);
    let looked_up = pinned_kind(client, &known);
    let (resource, _) = call(&format!("look up kind {kind}"), looked_up).await?;
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let these = ListParams::default().labels(selector);
    let listed = api.list_metadata(&these);
    let listed = call(&format!("list {}", resource.plural), listed).await?;
    let places = listed.items.iter();
    Ok(places.map(|it| (it.namespace(), it.name_any())).collect())
}
