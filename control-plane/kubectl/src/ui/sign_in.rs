//! Who is let in where the page is served to others: whoever an API knows by the token of the
//! request, and allows to see the page.
//!
//! A proxy before the page, such as oauth2-proxy, has people sign in and passes their token on. The
//! API says whose it is (TokenReview) and whether they may `get` the path [`PATH`]
//! (SubjectAccessReview), so that roles of Kubernetes decide.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, StatusCode, header};
use kube::api::PostParams;
use muster_shared::client;
use muster_shared::k8s::{Api, Client};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use k8s_openapi::api::authentication::v1::{TokenReview, UserInfo};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;

use super::server::Refused;

/// Path that somebody has to be allowed to `get`.
pub(super) const PATH: &str = "/muster.io/page";
/// Time for which an answer of the API counts: a role that is taken away counts for as long.
const KNOWN: Duration = Duration::from_mins(1);
/// Answers that are remembered.
const MOST: usize = 1_000;
/// Questions to the API at a time.
const QUESTIONS: usize = 8;

/// Digest of a token: the token itself is not kept.
type Digest = Vec<u8>;
/// Whether somebody is let in.
type Answer = Result<(), Refused>;

/// Asks an API who may see the page.
pub(super) struct SignIn {
    client: Client,
    known: Mutex<HashMap<Digest, (Instant, Answer)>>,
    questions: Semaphore,
}

impl SignIn {
    /// Returns a sign-in that asks an API.
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            known: Mutex::default(),
            questions: Semaphore::new(QUESTIONS),
        }
    }

    /// Returns why a request is refused, if it is.
    pub(super) async fn admit(&self, request: &Parts) -> Answer {
        let Some(token) = bearer(&request.headers) else {
            let words = "sign in: the request has no bearer token in its header Authorization, which the proxy before this page passes on";
            return Err((StatusCode::UNAUTHORIZED, words.to_owned()));
        };
        let digest = digest(&SHA256, token.as_bytes()).as_ref().to_vec();
        if let Some(known) = self.known(&digest) {
            return known;
        }
        let Ok(_turn) = self.questions.acquire().await else {
            let words = "the page is being closed".to_owned();
            return Err((StatusCode::SERVICE_UNAVAILABLE, words));
        };
        // Somebody may have asked the same meanwhile.
        if let Some(known) = self.known(&digest) {
            return known;
        }
        let answer = self.ask(token).await.map_err(|error| {
            let words = format!(
                "the API that checks tokens could not be asked, so that nobody can sign in now: {}",
                client::brief(&error)
            );
            (StatusCode::SERVICE_UNAVAILABLE, words)
        })?;
        let mut known = self.known.lock();
        known.retain(|_, (at, _)| at.elapsed() < KNOWN);
        if known.len() >= MOST {
            // Those who are let in stay known while somebody tries wrong tokens.
            known.retain(|_, (_, answer)| answer.is_ok());
        }
        if known.len() < MOST {
            known.insert(digest, (Instant::now(), answer.clone()));
        }
        answer
    }

    fn known(&self, digest: &Digest) -> Option<Answer> {
        let known = self.known.lock();
        let (at, answer) = known.get(digest)?;
        (at.elapsed() < KNOWN).then(|| answer.clone())
    }

    /// Asks the API whose a token is, and whether they may see the page.
    async fn ask(&self, token: &str) -> Result<Answer, kube::Error> {
        let parameters = PostParams::default();
        let mut review = TokenReview::default();
        review.spec.token = Some(token.to_owned());
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let status = reviews.create(&parameters, &review).await?.status;
        let status = status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        let Some(user) = user else {
            let words = "sign in again: the API does not know the token".to_owned();
            return Ok(Err((StatusCode::UNAUTHORIZED, words)));
        };
        let name = user.username.clone().unwrap_or_default();
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let review = reviews.create(&parameters, &may_see(user)).await?;
        let is_allowed = review.status.is_some_and(|it| it.allowed);
        Ok(if is_allowed {
            Ok(())
        } else {
            let words = format!(
                "{name} may not see this page: it takes a ClusterRole that may get the path {PATH} (nonResourceURLs)"
            );
            Err((StatusCode::FORBIDDEN, words))
        })
    }
}

/// Returns the question whether a user may see the page.
fn may_see(user: UserInfo) -> SubjectAccessReview {
    let mut review = SubjectAccessReview::default();
    review.spec.user = user.username;
    review.spec.uid = user.uid;
    review.spec.groups = user.groups;
    review.spec.extra = user
        .extra
        .map(|all| all.into_iter().collect::<BTreeMap<_, _>>());
    let path = json!({"path": PATH, "verb": "get"});
    review.spec.non_resource_attributes = serde_json::from_value(path).ok();
    review
}

/// Returns the bearer token of a request, if it has exactly one.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(only), None) = (all.next(), all.next()) else {
        return None;
    };
    let (scheme, token) = only.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::Request;

    use super::*;
    use crate::fixtures;

    fn request(headers: &[&str]) -> Parts {
        let mut request = Request::get("/api/status");
        for value in headers {
            request = request.header(header::AUTHORIZATION, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    /// Returns an API that knows alice, who may see the page, and bob, who may not; it fails while
    /// the token is `trouble`. Counts its questions.
    fn sign_in() -> (SignIn, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let client = fixtures::api(move |request| {
            counted.fetch_add(1, Ordering::SeqCst);
            let mut review = request.body().clone();
            let spec = &review["spec"];
            let (code, status) = match spec["token"].as_str() {
                Some("trouble") => (500, json!({})),
                Some(name @ ("alice" | "bob")) => {
                    let user = json!({"username": name, "groups": ["ops"]});
                    (201, json!({"authenticated": true, "user": user}))
                }
                Some(_) => (201, json!({"authenticated": false})),
                None => {
                    let path = &spec["nonResourceAttributes"];
                    assert_eq!(*path, json!({"path": PATH, "verb": "get"}));
                    assert_eq!(spec["groups"], json!(["ops"]));
                    (201, json!({"allowed": spec["user"] == "alice"}))
                }
            };
            review["status"] = status;
            (code, review)
        });
        (SignIn::new(client), asked)
    }

    #[tokio::test]
    async fn only_who_the_api_knows_and_allows_is_let_in() {
        let (sign_in, _) = sign_in();
        for (headers, status) in [
            (&["Bearer alice"][..], None),
            (&["bearer  alice"], None),
            (&["Bearer bob"], Some(StatusCode::FORBIDDEN)),
            (&["Bearer mallory"], Some(StatusCode::UNAUTHORIZED)),
            (&["Bearer trouble"], Some(StatusCode::SERVICE_UNAVAILABLE)),
            (&[], Some(StatusCode::UNAUTHORIZED)),
            (&["Bearer "], Some(StatusCode::UNAUTHORIZED)),
            (&["Basic alice"], Some(StatusCode::UNAUTHORIZED)),
            // One of two may be what somebody else has put there.
            (
                &["Bearer alice", "Bearer bob"],
                Some(StatusCode::UNAUTHORIZED),
            ),
        ] {
            let refused = sign_in.admit(&request(headers)).await.err();
            assert_eq!(refused.map(|it| it.0), status, "{headers:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_for_a_minute_and_trouble_is_no_answer() {
        let (sign_in, asked) = sign_in();
        let ask = async |token: &str| {
            let before = asked.load(Ordering::SeqCst);
            let header = format!("Bearer {token}");
            _ = sign_in.admit(&request(&[&*header])).await;
            asked.load(Ordering::SeqCst) - before
        };
        assert_eq!(ask("alice").await, 2);
        assert_eq!((ask("alice").await, ask("bob").await), (0, 2));
        assert_eq!((ask("bob").await, ask("mallory").await), (0, 1));
        assert_eq!((ask("mallory").await, ask("trouble").await), (0, 1));
        assert_eq!(ask("trouble").await, 1, "it is asked again");
        tokio::time::advance(KNOWN).await;
        assert_eq!(ask("alice").await, 2);
    }

    #[tokio::test]
    async fn many_wrong_tokens_take_no_memory_without_bound() {
        let (sign_in, _) = sign_in();
        for n in 0..MOST + 10 {
            let header = format!("Bearer wrong-{n}");
            _ = sign_in.admit(&request(&[&*header])).await;
        }
        assert!(sign_in.known.lock().len() <= MOST);
        assert!(sign_in.admit(&request(&["Bearer alice"])).await.is_ok());
    }

    #[tokio::test]
    async fn who_is_let_in_is_remembered_while_others_try_wrong_tokens() {
        let (sign_in, asked) = sign_in();
        for n in 0..MOST + 10 {
            let header = format!("Bearer wrong-{n}");
            _ = sign_in.admit(&request(&[&*header])).await;
        }
        sign_in.admit(&request(&["Bearer alice"])).await.unwrap();
        let before = asked.load(Ordering::SeqCst);
        sign_in.admit(&request(&["Bearer alice"])).await.unwrap();
        let again = asked.load(Ordering::SeqCst) - before;
        assert_eq!(again, 0, "the API is asked for each request of each person");
    }
}
