//! Waits until a kind of the fleet API can be read.
//!
//! The API may answer that it does not serve the kind (404) or that the process may not read it
//! (403). Then it counts as one without objects, the reason is told once, and the question is asked
//! again every minute. Any other answer says nothing.

use std::fmt::Debug;
use std::time::Duration;

use kube::api::{Api, ListParams};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

/// Pause before objects that cannot be read are asked for again.
const ASK_AGAIN: Duration = Duration::from_mins(1);
/// Pause after a request that was not answered, or by an error of the server.
const RETRY: Duration = Duration::from_secs(2);
/// Time for which the API must have refused a list until it counts as one of nothing.
const LASTING: Duration = Duration::from_secs(15);
/// Time for the answer to one request.
const DEADLINE: Duration = Duration::from_secs(10);

/// Waits until the objects can be listed. `refused` is told once why they cannot, `none` is called
/// each time that they count as absent.
pub(crate) async fn until_readable<K: Clone + Debug + DeserializeOwned>(
    api: &Api<K>,
    what: &str,
    refused: impl Fn(&str),
    none: impl Fn(),
) {
    let one = ListParams::default().limit(1);
    let mut is_told = false;
    let mut refused_since = None;
    loop {
        let answer = tokio::time::timeout(DEADLINE, api.list(&one)).await;
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
                        "{what} cannot be read, so that the built-in rules count: {}",
                        status.message
                    ));
                }
                none();
                ASK_AGAIN
            }
            Ok(Err(error)) => {
                refused_since = None;
                tracing::warn!(%error, what, "cannot list yet");
                RETRY
            }
            Err(_) => {
                tracing::warn!(what, "listing took too long");
                RETRY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::api::interpreter::ResourceInterpreterCustomization;

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
            let client = Client::new(server, "default");
            let api: Api<ResourceInterpreterCustomization> = Api::all(client);
            let told: Arc<Mutex<Vec<String>>> = Arc::default();
            let none = Arc::new(tokio::sync::Notify::new());
            let (to, counts) = (Arc::clone(&told), Arc::clone(&none));
            let begun = Instant::now();
            let running = tokio::spawn(async move {
                let refused = |reason: &str| to.lock().unwrap().push(reason.to_owned());
                until_readable(&api, "these", refused, || counts.notify_one()).await;
            });
            none.notified().await;
            // A server that has just started may refuse for a moment.
            assert!(begun.elapsed() >= LASTING, "{code}");
            let before = asked.load(Ordering::Relaxed);
            none.notified().await;
            assert!(asked.load(Ordering::Relaxed) > before);
            let told = told.lock().unwrap().clone();
            assert_eq!(
                told,
                ["these cannot be read, so that the built-in rules count: no"]
            );
            running.abort();
        }
    }
}
