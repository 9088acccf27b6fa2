//! Connections to a Kubernetes API, with deadlines that suit their use.
//!
//! kube's defaults would hurt a failure detector: no read timeout (a server that accepts and then stalls is waited for
//! for ever) and up to fifteen hidden retries of 429, 503 and 504 in one call. Here every profile has deadlines and none
//! retries by itself: whoever calls decides what a failure means.

mod connection;
mod reload;
mod service;
mod traffic;

use std::path::Path;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

pub use self::reload::{Gateway, Pool, Source};
pub use self::service::Limits;
pub use self::traffic::{Rank, Traffic};

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Reads and writes of single objects: an answer within 15 s.
    Write,
    /// Lists and watches: no read deadline of the connection's own, because a quiet watch is a healthy one;
    /// [`watch`](crate::watch) keeps the time.
    Watch,
    /// Health questions: an answer within 5 s. The caller's own deadline is usually shorter.
    Probe,
}

/// Why no connection could be prepared.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig is missing, unreadable or incomplete.
    #[error("cannot use kubeconfig {path:?}: {source}")]
    Kubeconfig {
        /// The file as given.
        path: String,
        /// What kube says.
        source: Box<kube::config::KubeconfigError>,
    },
    /// Neither in-cluster credentials nor a default kubeconfig are there.
    #[error(
        "found no way to reach a Kubernetes API: give --kubeconfig, set KUBECONFIG, or run in a pod ({0})"
    )]
    Infer(Box<kube::config::InferConfigError>),
    /// Certificates or addresses in the configuration cannot be used.
    #[error("cannot prepare a connection to {server}: {source}")]
    Connect {
        /// The server's address.
        server: String,
        /// What kube says.
        source: Box<kube::Error>,
    },
}

/// Loads the configuration of a Kubernetes API: from a kubeconfig file (and context), or without one from `KUBECONFIG`,
/// the home directory or the pod's service account, as every Kubernetes client does.
pub async fn kubeconfig(path: Option<&Path>, context: Option<&str>) -> Result<Config, Error> {
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let named = |path: &Path, source: kube::config::KubeconfigError| Error::Kubeconfig {
        path: path.display().to_string(),
        source: Box::new(source),
    };
    match path {
        Some(path) => {
            let file = Kubeconfig::read_from(path).map_err(|source| named(path, source))?;
            Config::from_custom_kubeconfig(file, &options)
                .await
                .map_err(|source| named(path, source))
        }
        None if context.is_some() => Config::from_kubeconfig(&options)
            .await
            .map_err(|source| named(Path::new("$KUBECONFIG or ~/.kube/config"), source)),
        None => Config::infer()
            .await
            .map_err(|source| Error::Infer(Box::new(source))),
    }
}

/// Prepares a client with the deadlines of a profile. Nothing is sent yet.
pub fn connect(config: &Config, profile: Profile) -> Result<Client, Error> {
    let mut config = config.clone();
    config.default_retry = false;
    config.connect_timeout = Some(match profile {
        Profile::Probe => Duration::from_secs(3),
        Profile::Write | Profile::Watch => Duration::from_secs(5),
    });
    config.read_timeout = match profile {
        Profile::Write => Some(Duration::from_secs(15)),
        Profile::Probe => Some(Duration::from_secs(5)),
        Profile::Watch => None,
    };
    config.write_timeout = Some(Duration::from_secs(15));
    // Otherwise the time that a pooled connection sat idle counts against the next answer.
    config.reset_reader_on_write = true;
    let server = config.cluster_url.to_string();
    connection::client(config).map_err(|source| Error::Connect {
        server,
        source: Box::new(source),
    })
}

/// Whether an error of a call means that the object is not there.
pub fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

/// Whether an error of a call means that somebody else wrote the object meanwhile (or created it first).
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict() || status.is_already_exists())
}

/// What an API says that does not serve the kind that it was asked for; its own words are "404 page not found".
const UNSERVED: &str = "this API does not serve that kind (404): is it the right kubeconfig, and are the definitions installed \
    (`muster-control-plane crds | kubectl apply --server-side -f -`)?";

/// Whether an API does not know the path at all: kinds that it knows answer 404 with a status object.
fn is_unserved(status: &kube::core::Status) -> bool {
    status.code == 404 && status.message.trim() == "404 page not found"
}

/// An error of a call in one short line: kube's own text for an API error is the whole status object.
pub fn brief(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if is_unserved(status) => UNSERVED.to_owned(),
        kube::Error::Api(status) if !status.message.is_empty() => {
            format!("{} ({} {})", status.message, status.code, status.reason)
        }
        other => {
            let mut text = other.to_string();
            let mut source = std::error::Error::source(other);
            while let Some(cause) = source {
                let cause_text = cause.to_string();
                if !text.contains(&cause_text) {
                    text = format!("{text}: {cause_text}");
                }
                source = cause.source();
            }
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_that_does_not_know_a_kind_says_what_to_do() {
        let error = |message: &str, reason: &str| {
            let status = serde_json::json!({"code": 404, "message": message, "reason": reason});
            kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
        };
        let unserved = brief(&error("404 page not found\n", "Failed to parse error data"));
        assert!(
            unserved.contains("definitions") && unserved.contains("kubeconfig"),
            "{unserved}"
        );
        let missing = brief(&error("clusters \"a\" not found", "NotFound"));
        assert_eq!(missing, "clusters \"a\" not found (404 NotFound)");
    }
}
