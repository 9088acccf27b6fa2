//! Follows the ResourceInterpreterCustomizations of the fleet API and feeds [`Interpreters`].
//!
//! Answers of the interpreters count only once it is known which customizations there are: from
//! the first complete list on, or since the fleet API answered that it does not serve the kind
//! (404) or that the process may not read it (403). In these two cases the built-in rules count,
//! the reason is told once, and the question is asked again every minute. While the fleet API gives
//! another answer or none, nothing is interpreted.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Api, ListParams};
use kube::{Client, Resource, ResourceExt};
use muster_interpreter::{Customization, Operation, Rules};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::interpreter::{LuaScript, ResourceInterpreterCustomization};
use crate::events::{EventType, Events};
use crate::interpreter::{Error, Interpreters};
use crate::watch::{Informer, Selection};

/// Reason of the event on a customization whose script gives no answer.
pub const FAILED: &str = "InterpretFailed";

/// Pause before customizations that cannot be read are asked for again.
const ASK_AGAIN: Duration = Duration::from_mins(1);
/// Pause after a request that was not answered, or by an error of the server.
const RETRY: Duration = Duration::from_secs(2);
/// Time for which the API must have refused a list until it counts as one of nothing.
const LASTING: Duration = Duration::from_secs(15);
/// Time for the answer to one request.
const DEADLINE: Duration = Duration::from_secs(10);

/// The customizations of the fleet API. Cheap to clone.
#[derive(Clone)]
pub struct Customizations {
    informer: Informer<ResourceInterpreterCustomization>,
    interpreters: Arc<Interpreters>,
}

impl Customizations {
    /// Prepares to follow them; nothing is sent before [`run`](Self::run).
    pub fn new(client: Client, interpreters: Arc<Interpreters>) -> Self {
        Self {
            informer: Informer::new(Api::all(client), Selection::everything()),
            interpreters,
        }
    }

    /// Returns the cache of the objects.
    pub fn informer(&self) -> &Informer<ResourceInterpreterCustomization> {
        &self.informer
    }

    /// Has failures of scripts told by an event on their customization.
    pub fn tell_failures(&self, events: &Events) {
        let (informer, events) = (self.informer.clone(), events.clone());
        self.interpreters.on_failure(move |error| {
            let name = &error.source_of_script().customization;
            let about = match informer.get(None, name) {
                Some(customization) => customization.object_ref(&()),
                None => reference(name),
            };
            let note = Error::Script(error.clone()).to_string();
            tracing::warn!(customization = name, note, "a script gives no answer");
            events.publish_about(about, EventType::Warning, FAILED, note);
        });
    }

    /// Feeds the interpreters until shutdown. `refused` is told once why customizations cannot be
    /// read, if they cannot.
    pub async fn run(self, refused: impl Fn(&str) + Send, shutdown: CancellationToken) {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = self.until_readable(refused) => {}
        }
        let changed = Arc::new(Notify::new());
        let to = Arc::clone(&changed);
        self.informer.on_change(move |_| to.notify_one());
        let feed = async {
            self.informer.synced().await;
            loop {
                self.feed();
                changed.notified().await;
            }
        };
        tokio::select! {
            () = self.informer.clone().run(shutdown) => {}
            () = feed => {}
        }
    }

    async fn until_readable(&self, refused: impl Fn(&str)) {
        let one = ListParams::default().limit(1);
        let mut is_told = false;
        let mut refused_since = None;
        loop {
            let answer = tokio::time::timeout(DEADLINE, self.informer.api().list(&one)).await;
            let pause = match answer {
                // One that does not decode is stepped over by the informer.
                Ok(Ok(_) | Err(kube::Error::SerdeError(_))) => return,
                // An API server that has just started may refuse what it permits a moment later.
                Ok(Err(kube::Error::Api(status)))
                    if matches!(status.code, 403 | 404)
                        && refused_since.get_or_insert_with(Instant::now).elapsed() < LASTING =>
                {
                    RETRY
                }
                Ok(Err(kube::Error::Api(status))) if matches!(status.code, 403 | 404) => {
                    if !is_told {
                        is_told = true;
                        refused(&format!(
                            "customizations of interpreters cannot be read, so that the built-in rules count: {}",
                            status.message
                        ));
                    }
                    self.interpreters.set(Rules::default());
                    ASK_AGAIN
                }
                Ok(Err(error)) => {
                    refused_since = None;
                    tracing::warn!(%error, "cannot list customizations of interpreters yet");
                    RETRY
                }
                Err(_) => {
                    tracing::warn!("listing customizations of interpreters took too long");
                    RETRY
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    fn feed(&self) {
        let objects = self.informer.list();
        let customizations: Vec<Customization> = objects.iter().map(|it| scripts(it)).collect();
        let rules = self.interpreters.customized().renewed(&customizations);
        self.interpreters.set(rules);
    }
}

/// Returns the scripts of a customization.
pub fn scripts(object: &ResourceInterpreterCustomization) -> Customization {
    let all = &object.spec.customizations;
    let of = |operation| -> &Option<LuaScript> {
        match operation {
            Operation::InterpretReplica => &all.replica_resource,
            Operation::InterpretComponent => &all.component_resource,
            Operation::ReviseReplica => &all.replica_revision,
            Operation::Retain => &all.retention,
            Operation::AggregateStatus => &all.status_aggregation,
            Operation::InterpretDependency => &all.dependency_interpretation,
            Operation::InterpretStatus => &all.status_reflection,
            Operation::InterpretHealth => &all.health_interpretation,
        }
    };
    let script = |operation| Some((operation, of(operation).as_ref()?.lua_script.clone()));
    Customization {
        name: object.name_any(),
        api_version: object.spec.target.api_version.clone(),
        kind: object.spec.target.kind.clone(),
        scripts: Operation::ALL.into_iter().filter_map(script).collect(),
    }
}

fn reference(name: &str) -> ObjectReference {
    ObjectReference {
        name: Some(name.to_owned()),
        ..ResourceInterpreterCustomization::default().object_ref(&())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_script_of_a_customization_is_read() {
        let field = |operation: Operation| {
            let script = json!({ "luaScript": operation.to_string() });
            (operation.field().to_owned(), script)
        };
        let all: serde_json::Map<_, _> = Operation::ALL.into_iter().map(field).collect();
        let object = json!({ "metadata": { "name": "w" }, "spec": {
            "target": { "apiVersion": "example.com/v1", "kind": "Widget" }, "customizations": all } });
        let typed = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(Ok(scripts(&typed)), Customization::from_object(&object));
        assert_eq!(scripts(&typed).scripts.len(), Operation::ALL.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_is_not_served_or_must_not_be_read_is_told_once_and_asked_for_again() {
        for code in [404_u16, 403] {
            let asked = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&asked);
            let server = tower::service_fn(move |_: Request<Body>| {
                // The first answer is an error of the server, which says nothing.
                let code = match count.fetch_add(1, Ordering::Relaxed) {
                    0 => 500,
                    _ => code,
                };
                let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "message": "no", "reason": "No", "code": code });
                async move {
                    let response = Response::builder().status(code);
                    Ok::<_, std::io::Error>(
                        response
                            .body(Body::from(status.to_string().into_bytes()))
                            .unwrap(),
                    )
                }
            });
            let interpreters = Arc::new(Interpreters::default());
            let all =
                Customizations::new(Client::new(server, "default"), Arc::clone(&interpreters));
            let told: Arc<Mutex<Vec<String>>> = Arc::default();
            let (to, shutdown) = (Arc::clone(&told), CancellationToken::new());
            let refused = move |reason: &str| to.lock().unwrap().push(reason.to_owned());
            let begun = Instant::now();
            let running = tokio::spawn(all.run(refused, shutdown.clone()));
            interpreters.known().await;
            // A server that has just started may refuse for a moment.
            assert!(begun.elapsed() >= LASTING, "{code}");
            let before = asked.load(Ordering::Relaxed);
            while asked.load(Ordering::Relaxed) < before + 2 {
                tokio::time::advance(Duration::from_secs(30)).await;
                tokio::task::yield_now().await;
            }
            assert_eq!(told.lock().unwrap().len(), 1);
            shutdown.cancel();
            running.await.unwrap();
        }
    }
}
