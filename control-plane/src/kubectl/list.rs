//! Every object of a kind, read in pages.

use std::fmt::Debug;
use std::sync::Arc;

use futures::future::join;
use kube::api::ListParams;
use muster_shared::api::binding::{ClusterResourceBinding, ResourceBinding};
use muster_shared::client;
use muster_shared::k8s::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::eviction::any_binding::AnyBinding;

/// Objects in a page of a list.
const PAGE: u32 = 500;

/// Every object of an API. The error says which list failed and why.
///
/// A server forgets a list that is read in pages after some minutes (410); the list is then read
/// anew in one page, as client-go's pager does it.
pub(super) async fn all<K>(api: Api<K>) -> Result<Vec<K>, String>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let failed = |error: kube::Error| format!("list {}: {}", K::plural(&()), client::brief(&error));
    let mut page = ListParams::default().limit(PAGE);
    let mut found = Vec::new();
    loop {
        let list = match api.list(&page).await {
            Err(kube::Error::Api(status)) if status.code == 410 && !found.is_empty() => {
                let whole = api.list(&ListParams::default()).await;
                return Ok(whole.map_err(failed)?.items);
            }
            list => list.map_err(failed)?,
        };
        found.extend(list.items);
        match list.metadata.continue_ {
            Some(token) if !token.is_empty() => page = page.continue_token(&token),
            _ => return Ok(found),
        }
    }
}

/// The binding of every workload.
pub(super) async fn bindings(client: &Client) -> Result<Vec<AnyBinding>, String> {
    let (namespaced, cluster_wide) = join(
        all::<ResourceBinding>(Api::all(client.clone())),
        all::<ClusterResourceBinding>(Api::all(client.clone())),
    )
    .await;
    let namespaced = namespaced?
        .into_iter()
        .map(|it| AnyBinding::from(Arc::new(it)));
    let cluster_wide = cluster_wide?
        .into_iter()
        .map(|it| AnyBinding::from(Arc::new(it)));
    Ok(namespaced.chain(cluster_wide).collect())
}

#[cfg(test)]
mod tests;
