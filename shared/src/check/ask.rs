//! Requests of checks: each has a deadline, and an error that the checks can show.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use kube::client::Body;
use kube::core::ObjectList;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::client;
use crate::clock::calendar;
use crate::k8s::Client;

/// Objects of one page of a list.
const PAGE: u32 = 500;
/// Objects after which a list is cut: a fleet of this size is checked as far as this.
pub const MOST: usize = 20_000;

/// Reason why a fact is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The account may not read it.
    Forbidden(String),
    /// The object, or the kind, is not there.
    Absent(String),
    /// The API did not answer in time, or with an error.
    Failed(String),
}

impl Refusal {
    /// Returns whether the object or the kind is not there.
    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent(_))
    }

    pub(super) fn hint(&self) -> Option<String> {
        match self {
            Self::Forbidden(_) => {
                Some("Use the kubeconfig of somebody who may read this.".to_owned())
            }
            Self::Absent(_) | Self::Failed(_) => None,
        }
    }

    fn of(error: &kube::Error) -> Self {
        let words = client::brief(error);
        match error {
            kube::Error::Api(status) if status.is_forbidden() || status.code == 401 => {
                Self::Forbidden(words)
            }
            kube::Error::Api(status) if status.code == 404 => Self::Absent(words),
            _ => Self::Failed(words),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forbidden(words) | Self::Absent(words) | Self::Failed(words) => {
                f.write_str(words)
            }
        }
    }
}

/// A fact, or the reason why it is not known.
pub type Answer<T> = Result<T, Refusal>;

/// Asks one API.
#[derive(Clone)]
pub struct Asker {
    client: Client,
    deadline: Duration,
}

impl Asker {
    /// Makes one whose requests may each take so long.
    pub const fn new(client: Client, deadline: Duration) -> Self {
        Self { client, deadline }
    }

    /// Returns the client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Reads what is at a path.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Answer<T> {
        self.request("GET", path, Vec::new()).await
    }

    /// Sends an object to a path.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Answer<T> {
        let body = serde_json::to_vec(body).map_err(|it| Refusal::Failed(it.to_string()))?;
        self.request("POST", path, body).await
    }

    /// Asks whether a user with groups has a right, or the caller where none is named. The right
    /// is one of `resourceAttributes`.
    pub async fn may(&self, who: Option<(&str, &[&str])>, right: &Value) -> Answer<bool> {
        let (kind, who) = match who {
            Some((user, groups)) => (
                "SubjectAccessReview",
                json!({"user": user, "groups": groups}),
            ),
            None => ("SelfSubjectAccessReview", json!({})),
        };
        let mut review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": who,
        });
        review["spec"]["resourceAttributes"] = right.clone();
        let path = format!("/apis/authorization.k8s.io/v1/{}s", kind.to_lowercase());
        let answer: Value = self.post(&path, &review).await?;
        Ok(answer["status"]["allowed"] == true)
    }

    /// Reads all objects of a list, page by page, up to [`MOST`]. What does not parse is left out.
    pub async fn list<T: DeserializeOwned>(&self, path: &str, query: &str) -> Answer<Vec<T>> {
        let mut found = Vec::new();
        let mut more = String::new();
        loop {
            let page = format!("{path}?limit={PAGE}{query}{more}");
            let page: ObjectList<Value> = self.get(&page).await?;
            let items = page.items.into_iter();
            found.extend(items.filter_map(|it| serde_json::from_value(it).ok()));
            match page.metadata.continue_.filter(|it| !it.is_empty()) {
                Some(token) if found.len() < MOST => more = format!("&continue={token}"),
                _ => return Ok(found),
            }
        }
    }

    /// Reads the time of the server's clock, to the second, and the time of this machine's.
    pub async fn clocks(&self) -> Answer<Clocks> {
        let before = calendar();
        let request = http::Request::get("/version").body(Body::empty());
        let request = request.map_err(|it| Refusal::Failed(it.to_string()))?;
        let response = timeout(self.deadline, self.client.send(request)).await;
        let response = response.map_err(|_| self.late())?;
        let response = response.map_err(|it| Refusal::of(&it))?;
        let after = calendar();
        let server = crate::clock::date(response.headers());
        let unread = || Refusal::Absent("it gives no Date, or none that can be read".to_owned());
        let server = server.ok_or_else(unread)?;
        Ok(Clocks {
            server,
            before,
            after,
        })
    }

    async fn request<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Vec<u8>,
    ) -> Answer<T> {
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header(http::header::CONTENT_TYPE, "application/json");
        let request = request.body(body);
        let request = request.map_err(|it| Refusal::Failed(it.to_string()))?;
        let answer = timeout(self.deadline, self.client.request(request)).await;
        answer
            .map_err(|_| self.late())?
            .map_err(|it| Refusal::of(&it))
    }

    fn late(&self) -> Refusal {
        Refusal::Failed(format!("no answer within {:?}", self.deadline))
    }
}

/// Clock of a server, between two readings of this machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// Time that the server gave, without fractions of a second.
    pub server: Timestamp,
    /// Time here before the request was sent.
    pub before: Timestamp,
    /// Time here when the answer had come.
    pub after: Timestamp,
}

impl Clocks {
    /// Returns the least number of seconds by which the server's clock is ahead of this machine's;
    /// negative if it is behind, 0 if the two agree as far as can be seen.
    pub fn ahead(&self) -> i64 {
        let seconds = |it: jiff::SignedDuration| it.as_secs();
        let least = seconds(self.server.duration_since(self.after));
        // A server that cuts fractions off is up to a second later than it says.
        let most = seconds(self.server.duration_since(self.before)) + 1;
        match (least > 0, most < 0) {
            (true, _) => least,
            (_, true) => most,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_of_clocks_is_no_more_than_what_is_certain() {
        let at = |text: &str| -> Timestamp { text.parse().unwrap() };
        for (server, before, after, expected) in [
            ("00:00:10Z", "00:00:10.9Z", "00:00:10.95Z", 0),
            ("00:00:10Z", "00:00:05Z", "00:00:12Z", 0),
            ("00:00:10Z", "00:00:05Z", "00:00:06Z", 4),
            ("00:00:10Z", "00:00:20Z", "00:00:21Z", -9),
        ] {
            let day = |time: &str| at(&format!("2030-01-01T{time}"));
            let clocks = Clocks {
                server: day(server),
                before: day(before),
                after: day(after),
            };
            assert_eq!(clocks.ahead(), expected, "{clocks:?}");
        }
    }
}
