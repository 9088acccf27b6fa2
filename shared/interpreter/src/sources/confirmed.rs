//! Objects of which one that a list lacks counts as gone only once the API says so by its name.
//!
//! A list may be short: an API server may answer from a cache that is not complete, and a proxy
//! before it with a 404 that is about no object. Where the rules for a kind vanish with an object,
//! another rule counts at once, and may call healthy what is not.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::Api;
use muster_shared::client;
use serde::de::DeserializeOwned;

/// Time for the answer to one request.
const DEADLINE: Duration = Duration::from_secs(10);
/// Time after which objects are asked for again that a list lacks and the API has, or of which it
/// does not say.
const AGAIN: Duration = Duration::from_secs(30);

/// The objects of a kind without namespaces, by name.
pub(crate) struct Confirmed<K> {
    known: BTreeMap<String, Arc<K>>,
}

impl<K> Default for Confirmed<K> {
    fn default() -> Self {
        Self {
            known: BTreeMap::new(),
        }
    }
}

impl<K: ResourceExt + Clone + Debug + DeserializeOwned> Confirmed<K> {
    /// Takes over a list, and asks for each object that it lacks, unless it `was_deleted` before
    /// the eyes of a watch. Returns the time after which that is to be done again.
    pub(crate) async fn update(
        &mut self,
        api: &Api<K>,
        listed: Vec<Arc<K>>,
        was_deleted: impl Fn(&str) -> bool,
    ) -> Option<Duration> {
        let listed = listed.into_iter().map(|object| (object.name_any(), object));
        let mut present: BTreeMap<String, Arc<K>> = listed.collect();
        let mut again = None;
        let mut answers = true;
        for (name, object) in std::mem::take(&mut self.known) {
            if present.contains_key(&name) || was_deleted(&name) {
                continue;
            }
            let found = if answers {
                tokio::time::timeout(DEADLINE, client::get_opt(api, &name))
                    .await
                    .ok()
            } else {
                None
            };
            let kept = match found {
                Some(Ok(None)) => continue,
                // Who may list and not read has nothing else.
                Some(Err(kube::Error::Api(status))) if status.code == 403 => continue,
                Some(Ok(Some(found))) => {
                    tracing::warn!(name, "a list lacks an object that is there");
                    Arc::new(found)
                }
                Some(Err(error)) => {
                    tracing::warn!(name, %error, "an object that a list lacks counts on");
                    object
                }
                // The others are asked for the next time.
                None => {
                    answers = false;
                    object
                }
            };
            present.insert(name, kept);
            again = Some(AGAIN);
        }
        self.known = present;
        again
    }

    /// Returns the objects.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &K> {
        self.known.values().map(AsRef::as_ref)
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;
    use muster_shared::api::interpreter::ResourceInterpreterCustomization;

    fn customization(name: &str, kind: &str) -> Value {
        json!({ "apiVersion": "config.karmada.io/v1alpha1",
            "kind": "ResourceInterpreterCustomization", "metadata": { "name": name },
            "spec": { "target": { "apiVersion": "v1", "kind": kind }, "customizations": {} } })
    }

    /// Returns an API that has some of the objects.
    fn api() -> Api<ResourceInterpreterCustomization> {
        let server = tower::service_fn(|request: Request<Body>| {
            let name = request.uri().path().rsplit('/').next().unwrap_or_default();
            let code = match name {
                "there" => 200,
                "gone" | "unserved" | "deleted" => 404,
                "forbidden" => 403,
                _ => 500,
            };
            let mut body = match code {
                200 => customization(name, "Newer"),
                code => json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "message": "no", "reason": "No", "code": code }),
            };
            if name == "gone" {
                body["reason"] = json!("NotFound");
                body["details"] = json!({ "name": name });
            }
            let is_silent = name == "silent";
            async move {
                if is_silent {
                    std::future::pending::<()>().await;
                }
                let body = Body::from(body.to_string().into_bytes());
                let response = Response::builder().status(code);
                Ok::<_, std::io::Error>(response.body(body).unwrap())
            }
        });
        Api::all(Client::new(server, "default"))
    }

    fn listed(names: &[&str]) -> Vec<Arc<ResourceInterpreterCustomization>> {
        let one =
            |name: &&str| Arc::new(serde_json::from_value(customization(name, "Older")).unwrap());
        names.iter().map(one).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_a_list_lacks_is_gone_once_the_api_says_so() {
        let names = |confirmed: &Confirmed<ResourceInterpreterCustomization>| -> Vec<String> {
            let one = |it: &ResourceInterpreterCustomization| {
                format!("{} {}", it.name_any(), it.spec.target.kind)
            };
            confirmed.objects().map(one).collect()
        };
        for (name, expected) in [
            ("gone", None),
            // The kind is not served any more, and the watch showed the deletion.
            ("deleted", None),
            ("unserved", Some("unserved Older")),
            ("forbidden", None),
            ("there", Some("there Newer")),
            ("failing", Some("failing Older")),
            ("silent", Some("silent Older")),
        ] {
            let mut confirmed = Confirmed::default();
            let was_deleted = |name: &str| name == "deleted";
            let both = listed(&["a", name]);
            let first = confirmed.update(&api(), both.clone(), was_deleted).await;
            assert_eq!(first, None);
            let again = confirmed.update(&api(), listed(&["a"]), was_deleted).await;
            assert_eq!(again.is_some(), expected.is_some(), "{name}");
            let mut all = vec!["a Older".to_owned()];
            all.extend(expected.map(str::to_owned));
            assert_eq!(names(&confirmed), all);
            // It is asked for again, and what is listed counts.
            confirmed.update(&api(), both, was_deleted).await;
            let listed = format!("{name} Older");
            assert_eq!(names(&confirmed), ["a Older".to_owned(), listed]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_that_does_not_answer_is_waited_for_once() {
        let mut confirmed = Confirmed::default();
        let all = listed(&["silent", "silent-too", "there"]);
        confirmed.update(&api(), all, |_| false).await;
        let begun = tokio::time::Instant::now();
        confirmed.update(&api(), Vec::new(), |_| false).await;
        assert_eq!(confirmed.objects().count(), 3);
        assert_eq!(begun.elapsed(), DEADLINE);
    }
}
