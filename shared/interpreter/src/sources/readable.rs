//! Waits until a kind of the fleet API can be read.
//!
//! An API that does not serve the kind (404) has no objects of it. One that refuses the process to
//! read it (403) may have any: then it stays unknown which there are, and what was known before
//! counts on. Either must last for a while, is reported once, and is asked again. Any other answer
//! says nothing.

use std::fmt::Debug;
use std::time::Duration;

use kube::api::{Api, ListParams};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

/// Pause before a kind that is not served is asked for again.
const ASK_AGAIN: Duration = Duration::from_mins(1);
/// Pause before a kind that must not be read is asked for again. Nothing is interpreted meanwhile.
const ASK_FOR_THE_RIGHT: Duration = Duration::from_secs(10);
/// Pause after a request that was not answered, or by an error of the server.
const RETRY: Duration = Duration::from_secs(2);
/// Time for which the API must have given the same refusal until it counts. An API server that has
/// just started may refuse what it permits a moment later.
const LASTING: Duration = Duration::from_secs(15);
/// Time for the answer to one request.
const DEADLINE: Duration = Duration::from_secs(10);

/// Reason why the objects of a kind cannot be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The API does not serve the kind: there are no objects of it.
    Unserved,
    /// The process may not read the kind: it is not known which objects there are.
    Forbidden,
}

impl Refusal {
    fn of(code: u16) -> Option<Self> {
        match code {
            404 => Some(Self::Unserved),
            403 => Some(Self::Forbidden),
            _ => None,
        }
    }

    /// Returns the sentence that is reported.
    fn words(self, what: &str, message: &str) -> String {
        match self {
            Self::Unserved => {
                format!("{what} are not served, so that the built-in rules count: {message}")
            }
            Self::Forbidden => format!(
                "{what} may not be read, so that it is not known which there are: what was known \
                 before counts, and nothing is interpreted where nothing was: {message}"
            ),
        }
    }
}

/// Waits until the objects can be listed. A refusal that lasts is passed to `refused` with its
/// reason, once until it is another one or the API gives another answer; `none` is called each time
/// that the API does not serve the kind.
pub(crate) async fn until_readable<K: Clone + Debug + DeserializeOwned>(
    api: &Api<K>,
    what: &str,
    refused: impl Fn(&str),
    none: impl Fn(),
) {
    let one = ListParams::default().limit(1);
    let mut reported = None;
    let mut since: Option<(Refusal, Instant)> = None;
    loop {
        let answer = tokio::time::timeout(DEADLINE, api.list(&one)).await;
        let status = match answer {
            // One that does not decode is stepped over by the informer.
            Ok(Ok(_) | Err(kube::Error::SerdeError(_))) => return,
            Ok(Err(kube::Error::Api(status))) if Refusal::of(status.code).is_some() => status,
            Ok(Err(error)) => {
                (since, reported) = (None, None);
                tracing::debug!(%error, what, "cannot list yet");
                tokio::time::sleep(RETRY).await;
                continue;
            }
            Err(_) => {
                tracing::debug!(what, "listing took too long");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        let Some(refusal) = Refusal::of(status.code) else {
            continue;
        };
        let begun = match since {
            Some((known, begun)) if known == refusal => begun,
            _ => Instant::now(),
        };
        since = Some((refusal, begun));
        if begun.elapsed() < LASTING {
            tokio::time::sleep(RETRY).await;
            continue;
        }
        if reported != Some(refusal) {
            reported = Some(refusal);
            refused(&refusal.words(what, &status.message));
        }
        let pause = match refusal {
            Refusal::Unserved => {
                none();
                ASK_AGAIN
            }
            Refusal::Forbidden => ASK_FOR_THE_RIGHT,
        };
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::collections::VecDeque;
    use std::sync::Arc;

    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use muster_shared::api::interpreter::ResourceInterpreterCustomization;

    /// Reports, in their order, and the number of times that the objects counted as absent.
    #[derive(Debug, Default, PartialEq)]
    struct Observed {
        reported: Vec<String>,
        none: usize,
    }

    const MINUTE: Duration = Duration::from_mins(1);

    /// Asks an API that gives these answers, each for a time, and permits the list at the end.
    async fn observed(answers: &[u16], each: Duration) -> Observed {
        let begun = Instant::now();
        let answers: Arc<VecDeque<u16>> = Arc::new(answers.iter().copied().collect());
        let server = tower::service_fn(move |_: Request<Body>| {
            let turn = usize::try_from(begun.elapsed().as_secs() / each.as_secs()).unwrap();
            let code = answers.get(turn).copied().unwrap_or(200);
            let body = match code {
                200 => json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": [] }),
                code => json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "message": "no", "reason": "No", "code": code }),
            };
            async move {
                let response = Response::builder().status(code);
                let body = Body::from(body.to_string().into_bytes());
                Ok::<_, std::io::Error>(response.body(body).unwrap())
            }
        });
        let api: Api<ResourceInterpreterCustomization> = Api::all(Client::new(server, "default"));
        let observed = Mutex::new(Observed::default());
        let refused = |reason: &str| observed.lock().reported.push(reason.to_owned());
        until_readable(&api, "these", refused, || observed.lock().none += 1).await;
        observed.into_inner()
    }

    const UNSERVED: &str = "these are not served, so that the built-in rules count: no";

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_is_not_served_has_no_objects_which_is_reported_once_and_asked_again() {
        let found = observed(&[500, 404, 404, 404], MINUTE).await;
        assert_eq!(found.reported, [UNSERVED]);
        assert!(found.none >= 2, "{found:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_must_not_be_read_is_never_one_without_objects_which_is_reported_once() {
        let found = observed(&[403; 10], MINUTE).await;
        assert_eq!(found.none, 0);
        assert_eq!(found.reported.len(), 1, "{found:?}");
        assert!(
            found.reported[0].starts_with("these may not be read"),
            "{found:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn another_refusal_is_reported_anew_and_what_was_known_is_not_taken_back() {
        let found = observed(&[404, 403, 404], MINUTE).await;
        assert_eq!(found.reported.len(), 3, "{found:?}");
        assert!(found.reported[1].contains("may not be read"), "{found:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_has_just_started_may_refuse_for_a_moment() {
        let found = observed(&[403], Duration::from_secs(10)).await;
        assert_eq!(found, Observed::default());
    }
}
