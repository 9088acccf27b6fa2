//! Every object of a kind, read in pages.

use std::fmt::Debug;
use std::sync::Arc;

use futures::future::join;
use kube::api::{ListParams, Request};
use kube::core::{ObjectList, PartialObjectMeta};
use muster_control_plane::clusters::registration::token::{self, Entry};
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::scope::ResourceScope;
use muster_shared::api::work::Work;
use muster_shared::client;
use muster_shared::k8s::{Api, Client, ObjectMeta, Resource, Secret};
use muster_shared::names::namespaced_key;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::output::warn;

/// Objects in a page of a list.
const PAGE: u32 = 500;

/// Returns every object of an API that can be read, and warns people of the others. The error says
/// which list failed and why.
///
/// A server forgets a list that is read in pages after some minutes (410); the list is then read
/// anew in one page, as client-go's pager does it.
pub(super) async fn all<K>(api: Api<K>) -> Result<Vec<K>, String>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    Ok(warn_unreadable(readable(api, &(), Part::Whole).await?))
}

/// Returns the bindings of a scope, in a namespace or in all, as [`all`] does.
pub(super) async fn bindings_of(
    api: Api<AnyBinding>,
    scope: ResourceScope,
) -> Result<Vec<AnyBinding>, String> {
    Ok(warn_unreadable(readable(api, &scope, Part::Whole).await?))
}

/// Returns the objects that can be read, and warns people of the others.
fn warn_unreadable<K>((found, unreadable): (Vec<K>, Vec<String>)) -> Vec<K> {
    for reported in unreadable {
        warn(&reported);
    }
    found
}

/// Part of the objects that is read.
#[derive(Clone, Copy, Debug)]
enum Part {
    Whole,
    Metadata,
}

/// Returns the metadata of the Works in a namespace, or of all of them: what they carry is most of
/// what a fleet API stores.
pub(super) async fn works(api: Api<PartialObjectMeta<Work>>) -> Result<Vec<ObjectMeta>, String> {
    let works = warn_unreadable(readable(api, &(), Part::Metadata).await?);
    Ok(works.into_iter().map(|it| it.metadata).collect())
}

/// Returns every object of an API that can be read, and a sentence about each of the others. A
/// member writes some objects itself, and what it writes must not keep the state of the fleet from
/// people.
async fn readable<K>(
    api: Api<K>,
    kind: &K::DynamicType,
    part: Part,
) -> Result<(Vec<K>, Vec<String>), String>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let failed =
        |error: kube::Error| format!("list {}: {}", K::plural(kind), client::brief(&error));
    let objects = pages(&api, part).await.map_err(failed)?;
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    for object in objects {
        match K::deserialize(&object) {
            Ok(object) => found.push(object),
            Err(error) => unreadable.push(left_out(&K::kind(kind), &object, &error)),
        }
    }
    Ok((found, unreadable))
}

/// Returns every object of an API as it is.
pub(super) async fn objects<K: Resource + Clone>(api: &Api<K>) -> Result<Vec<Value>, kube::Error> {
    pages(api, Part::Whole).await
}

async fn pages<K: Resource + Clone>(api: &Api<K>, part: Part) -> Result<Vec<Value>, kube::Error> {
    let mut page = ListParams::default().limit(PAGE);
    let mut objects = Vec::new();
    loop {
        let list = match request(api, &page, part).await {
            Err(kube::Error::Api(status)) if status.code == 410 && !objects.is_empty() => {
                return Ok(request(api, &ListParams::default(), part).await?.items);
            }
            list => list?,
        };
        objects.extend(list.items);
        match list.metadata.continue_ {
            Some(token) if !token.is_empty() => page = page.continue_token(&token),
            _ => return Ok(objects),
        }
    }
}

async fn request<K: Resource + Clone>(
    api: &Api<K>,
    page: &ListParams,
    part: Part,
) -> Result<ObjectList<Value>, kube::Error> {
    let request = Request::new(api.resource_url());
    let request = match part {
        Part::Whole => request.list(page),
        Part::Metadata => request.list_metadata(page),
    };
    let request = request.map_err(kube::Error::BuildRequest)?;
    api.clone().into_client().request(request).await
}

fn left_out(kind: &str, object: &Value, error: &serde_json::Error) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let name = namespaced_key(text("namespace"), text("name"));
    format!("{kind} {name} cannot be read and is left out here: {error}")
}

/// Returns the binding of every workload.
pub(super) async fn bindings(client: &Client) -> Result<Vec<Arc<AnyBinding>>, String> {
    let of = |scope| bindings_of(Api::all_with(client.clone(), &scope), scope);
    let (namespaced, cluster_wide) =
        join(of(ResourceScope::Namespaced), of(ResourceScope::Cluster)).await;
    let mut bindings = namespaced?;
    bindings.extend(cluster_wide?);
    Ok(bindings.into_iter().map(Arc::new).collect())
}

/// Reads the bootstrap tokens.
pub(super) async fn tokens(client: &Client) -> Result<Vec<Entry>, kube::Error> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), token::NAMESPACE);
    let of_tokens = ListParams::default().fields(&format!("type={}", token::SECRET_TYPE));
    let found = secrets.list(&of_tokens).await?;
    Ok(found.iter().filter_map(Entry::read).collect())
}

#[cfg(test)]
mod tests;
