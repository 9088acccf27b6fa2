//! Reports why the agent has no credentials, and when it has got some: log, `/readyz`, events in
//! the member.

use std::path::PathBuf;
use std::time::Duration;

use muster_shared::certificate::hash::Hash;
use muster_shared::certificate::validity::Validity;
use muster_shared::client;
use muster_shared::clock::calendar;
use muster_shared::events::EventType;
use muster_shared::k8s::CoreObjectReference;
use muster_shared::queue::backoff;
use muster_shared::tls;
use tokio::time::Instant;

use super::super::asking::{self, ASK, Asked, PATIENCE, after_refusal};
use super::super::stored::Reason;
use super::{Bootstrap, CHECK_EVERY, PART};
use crate::write;

/// First pause after a request was refused.
const REFUSED: Duration = Duration::from_mins(5);
/// Time without an approval after which that is reported.
const WORTH_REPORTING: Duration = Duration::from_secs(30);
/// Interval at which a lasting failure is reported again.
const REPORT_AGAIN: Duration = Duration::from_hours(1);

/// Reason why there are no credentials yet.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Member(#[from] write::Error),
    #[error("{0}; read the bootstrap kubeconfig: {1}")]
    Kubeconfig(Reason, #[source] client::Error),
    #[error(
        "{why}; the fleet API refuses the bootstrap credentials of {file:?} (401): the token has expired or was deleted. \
         Run what `kubectl muster token create --cluster-name {cluster} --print-helm-command` prints, with another token; or \
         replace the Secret from which the file comes by what --print-bootstrap-kubeconfig prints"
    )]
    Token {
        why: Reason,
        file: PathBuf,
        cluster: String,
    },
    #[error(transparent)]
    Stranger(#[from] Stranger),
    #[error("{0}; ask for a certificate: {1}")]
    Asking(Reason, #[source] asking::Error),
    #[error(
        "{why}; signing request {name:?} waits for its approval: `kubectl describe csr {name}` at the fleet API says why"
    )]
    Waits { why: Reason, name: String },
    #[error(
        "Secret {0:?} has the certificate of another user than the agent of cluster {1:?}: neither used nor replaced. Delete it, \
         or name another with --karmada-kubeconfig-secret"
    )]
    Foreign(String, String),
    #[error("the kubeconfig cannot be written: {0}")]
    Write(String),
}

impl Error {
    /// Returns the name of the signing request of the error.
    fn request(&self) -> Option<&str> {
        match self {
            Self::Waits { name, .. } => Some(name),
            Self::Asking(_, error) => error.request(),
            _ => None,
        }
    }
}

/// An authority of the fleet API that is not pinned.
#[derive(Debug, thiserror::Error)]
#[error(
    "the authority of {server:?} in the bootstrap kubeconfig is not the expected one: none of {found:?} is among \
     {expected:?} (--discovery-token-ca-cert-hash, chart value fleet.caHash). The token was not sent. Either the hash is an \
     old one, and `kubectl muster token create --print-helm-command` prints the present one, or another server answers in \
     place of the fleet API (a proxy, or an attacker)"
)]
pub(super) struct Stranger {
    pub(super) server: String,
    pub(super) expected: Vec<Hash>,
    pub(super) found: Vec<Hash>,
}

/// Consecutive failures, and their last report.
#[derive(Default)]
pub(super) struct Trouble {
    failures: u32,
    refusals: u32,
    said: String,
    reported: Option<Instant>,
}

impl Bootstrap {
    /// Reports why there are no credentials, and returns the pause before the next attempt.
    pub(super) fn note(
        &self,
        trouble: &mut Trouble,
        error: &Error,
        asked: Option<&Asked>,
    ) -> Duration {
        let words = error.to_string();
        self.health.ready(PART, Err(words.clone()));
        // The name of the request, which differs each time, does not make the message new.
        let said = match error.request() {
            Some(name) => words.replace(name, "*"),
            None => words.clone(),
        };
        let is_new = trouble.said != said;
        let is_due = trouble
            .reported
            .is_none_or(|at| at.elapsed() >= REPORT_AGAIN);
        // An approval usually takes a second or two.
        let waited = asked.is_none_or(|it| it.since.elapsed() >= WORTH_REPORTING);
        if waited && (is_new || is_due) {
            // The log has the words of /readyz, from where they are reported once.
            tracing::debug!(error = words, "no credentials for the fleet API");
            self.publish(EventType::Warning, "NoFleetCredentials", &words);
            (trouble.said, trouble.reported) = (said, Some(Instant::now()));
        }
        match error {
            Error::Waits { .. } if asked.is_none_or(|it| it.since.elapsed() < PATIENCE) => {
                trouble.failures = 0;
                ASK
            }
            Error::Waits { .. } => {
                trouble.refusals = 0;
                CHECK_EVERY
            }
            Error::Asking(_, asking) if asking.ends() => {
                trouble.refusals += 1;
                after_refusal(REFUSED, trouble.refusals)
            }
            _ => {
                trouble.failures += 1;
                backoff(trouble.failures)
            }
        }
    }

    pub(super) fn report_success(&self, certificate: &[u8]) {
        let result = "bootstrapped";
        metrics::counter!("muster_certificate_rotations_total", "result" => result).increment(1);
        let chain = tls::certificates(certificate).unwrap_or_default();
        let until = Validity::of(&chain).map(|it| it.until);
        let words = match until {
            Some(until) if until <= calendar() => format!(
                "The fleet issued a certificate that ended at {until:.0} by this machine's clock: one of the two clocks is wrong."
            ),
            Some(until) => {
                format!("The fleet issued the agent's certificate, valid until {until:.0}.")
            }
            None => return,
        };
        tracing::info!("{words}");
        self.publish(EventType::Normal, "FleetCredentialsIssued", &words);
    }

    /// Publishes an event about the Secret, which may not be there yet.
    fn publish(&self, kind: EventType, reason: &str, words: &str) {
        let secret = CoreObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Secret".to_owned()),
            namespace: Some(self.place.namespace.clone()),
            name: Some(self.place.name.clone()),
            ..CoreObjectReference::default()
        };
        self.events.publish_about(secret, kind, reason, words);
    }
}
