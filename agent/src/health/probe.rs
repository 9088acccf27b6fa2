//! Probes the member's API server.

use std::time::Duration;

use kube::client::Body;
use muster_shared::k8s::Client;
use tokio::time::timeout;

/// Result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The API server is healthy.
    Ready,
    /// The API server answered with another status than 200.
    NotReady {
        /// HTTP status of the answer.
        code: u16,
    },
    /// The API server does not take the agent's credentials, which says nothing about its health.
    Refused {
        /// HTTP status of the answer.
        code: u16,
    },
    /// The API server did not answer in time. The agent then reports `Ready`=False: the taint
    /// `unreachable` is the control plane's, for a member that is silent.
    Unreachable {
        /// Reason in words.
        cause: String,
    },
}

/// Result of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Status(u16),
    Silence(String),
}

/// Asks `/readyz`, and `/healthz` where the server is too old for it. Both must be over by
/// `deadline`: an API server that hangs is as useless to the workloads as a dead one.
pub async fn probe(client: &Client, deadline: Duration) -> Observation {
    let both = async {
        match ask(client, "/readyz").await {
            Answer::Status(404) => judge(ask(client, "/healthz").await),
            answer => judge(answer),
        }
    };
    timeout(deadline, both)
        .await
        .unwrap_or_else(|_| Observation::Unreachable {
            cause: format!("no answer within {deadline:?}"),
        })
}

async fn ask(client: &Client, path: &str) -> Answer {
    let request = match http::Request::get(path).body(Body::empty()) {
        Ok(request) => request,
        Err(error) => return Answer::Silence(error.to_string()),
    };
    match client.send(request).await {
        Ok(response) => Answer::Status(response.status().as_u16()),
        Err(error) => Answer::Silence(error.to_string()),
    }
}

/// Judges the answer of the API server. An answer other than 200 is an answer: the server is there
/// and says that it is not well. Karmada calls that "not reachable" for every status of 300 and
/// above (defect K1), which sends people to look at the network. A server that refuses the
/// credentials has not been asked for its health.
fn judge(answer: Answer) -> Observation {
    match answer {
        Answer::Status(200) => Observation::Ready,
        Answer::Status(code @ (401 | 403)) => Observation::Refused { code },
        Answer::Status(code) => Observation::NotReady { code },
        Answer::Silence(cause) => Observation::Unreachable { cause },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_explicit_ok_is_ready_and_only_silence_is_unreachable() {
        assert_eq!(judge(Answer::Status(200)), Observation::Ready);
        for code in [201, 204, 301, 404, 429, 500, 503] {
            assert_eq!(judge(Answer::Status(code)), Observation::NotReady { code });
        }
        for code in [401, 403] {
            assert_eq!(judge(Answer::Status(code)), Observation::Refused { code });
        }
        let cause = "connection refused".to_owned();
        assert_eq!(
            judge(Answer::Silence(cause.clone())),
            Observation::Unreachable { cause }
        );
    }
}
