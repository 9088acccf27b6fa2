//! Objects of a test: writing them, and reading what is reported about them. Each of these fails
//! the test when the API refuses.

use std::any::type_name;
use std::fmt::{Debug, Display};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Event;
use kube::api::{
    Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::test_bed::{PATIENCE, failed};

/// Creates an object, and returns it as the API keeps it.
pub async fn create<K>(api: &Api<K>, object: impl Serialize) -> K
where
    K: Clone + Debug + DeserializeOwned + Serialize,
{
    let object = typed(object);
    let created = api.create(&PostParams::default(), &object).await;
    granted::<K, _>("creating", "", created)
}

/// Changes an object by a merge patch, and returns it as it is then.
pub async fn merge<K>(api: &Api<K>, name: &str, patch: impl Serialize + Debug) -> K
where
    K: Clone + Debug + DeserializeOwned,
{
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    let patched = api.patch(name, &params, &patch).await;
    granted::<K, _>("changing", name, patched)
}

/// Changes the status of an object by a merge patch, and returns the object as it is then.
pub async fn merge_status<K>(api: &Api<K>, name: &str, patch: impl Serialize + Debug) -> K
where
    K: Clone + Debug + DeserializeOwned,
{
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    let patched = api.patch_status(name, &params, &patch).await;
    granted::<K, _>("changing the status of", name, patched)
}

/// Deletes an object; it may be there until its finalizers are gone.
pub async fn delete<K>(api: &Api<K>, name: &str)
where
    K: Clone + Debug + DeserializeOwned,
{
    let deleted = api.delete(name, &DeleteParams::default()).await;
    granted::<K, _>("deleting", name, deleted);
}

/// Returns all objects that there are.
pub async fn list<K>(api: &Api<K>) -> Vec<K>
where
    K: Clone + Debug + DeserializeOwned,
{
    let listed = api.list(&ListParams::default()).await;
    granted::<K, _>("listing", "", listed).items
}

/// Returns the first event of those that a field selector selects whose message contains a text, as
/// soon as it is there.
pub async fn event(events: &Api<Event>, selector: &str, part: &str) -> Event {
    let selected = WatchParams::default().fields(selector);
    let reported = granted::<Event, _>("watching", "", events.watch(&selected, "0").await);
    let mut reported = reported.boxed();
    let what = format!("an event with {selector} that says {part:?}");
    let first = async {
        loop {
            match reported.next().await {
                Some(Ok(WatchEvent::Added(event) | WatchEvent::Modified(event))) => {
                    if event.message.as_deref().unwrap_or_default().contains(part) {
                        return event;
                    }
                }
                Some(Ok(WatchEvent::Bookmark(_) | WatchEvent::Deleted(_))) => {}
                other => failed(&format!("expected {what}, got {other:?}")),
            }
        }
    };
    let first = timeout(PATIENCE, first).await;
    first.unwrap_or_else(|_| failed(&format!("there is not {what}")))
}

/// Reads a document as an object of a kind.
pub fn typed<K: DeserializeOwned>(object: impl Serialize) -> K {
    let object = serde_json::to_value(object).and_then(serde_json::from_value);
    granted::<K, _>("reading", "", object)
}

/// Returns the answer to a request about an object of kind `K`.
fn granted<K, T>(doing: &str, name: &str, answer: Result<T, impl Display>) -> T {
    answer.unwrap_or_else(|error| failed(&format!("{doing} {} {name}: {error}", type_name::<K>())))
}
