//! A signing request of the agent, and its answer.

use std::time::Duration;

use muster_shared::certificate::answer::{self, Answer, Useless};
use muster_shared::certificate::request::{NewKey, NoKey};
use muster_shared::client;
use muster_shared::k8s::{Api, CertificateSigningRequest, ResourceExt};
use muster_shared::queue::doubled;
use muster_shared::tls::Certificate;
use muster_shared::write::post_params;
use tokio::time::Instant;

use crate::write::{self, FIELD_MANAGER, within};

/// Interval at which a request is read until it has an answer. Karmada's role for agents lets them
/// read requests and not watch them.
pub const ASK: Duration = Duration::from_secs(1);
/// Time without an answer after which that is reported, and the request is read less often. Karmada
/// then makes another request, and another, each with a new key.
pub const PATIENCE: Duration = Duration::from_mins(5);
/// The longest pause after a refusal.
pub const LONGEST: Duration = Duration::from_hours(1);

/// Reason why a signing request did not yield a certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The fleet API rejected a call or did not answer.
    #[error(transparent)]
    Call(#[from] write::Error),
    /// No key could be made.
    #[error(transparent)]
    NoKey(#[from] NoKey),
    /// An approver denied the request, or the signer failed. The second text is the reason.
    #[error("signing request {0:?} was refused: {1}")]
    Refused(String, String),
    /// The request was removed before it had an answer.
    #[error("signing request {0:?} went without an answer")]
    Gone(String),
    /// The issued certificate does not match the request.
    #[error("the certificate for signing request {0:?} cannot be used: {1}")]
    Useless(String, Useless),
}

impl Error {
    /// Returns whether the request is over: another has to be made.
    pub fn ends(&self) -> bool {
        matches!(self, Self::Refused(..) | Self::Gone(_) | Self::Useless(..))
    }

    /// Returns the name of the request that is over.
    pub fn request(&self) -> Option<&str> {
        match self {
            Self::Refused(name, _) | Self::Gone(name) | Self::Useless(name, _) => Some(name),
            Self::Call(_) | Self::NoKey(_) => None,
        }
    }

    /// Returns whether the API rejected the agent's credentials (401).
    pub fn is_unknown_user(&self) -> bool {
        matches!(self, Self::Call(error) if error.is_unauthorized())
    }
}

/// Returns the pause after a number of consecutive refusals: `first`, doubled with each.
pub fn after_refusal(first: Duration, refusals: u32) -> Duration {
    doubled((first, LONGEST.max(first)), refusals.saturating_sub(1))
}

/// A signing request without an answer yet.
pub struct Asked {
    /// Name of the request.
    pub name: String,
    /// Time of the request.
    pub since: Instant,
    key: Box<NewKey>,
}

impl Asked {
    /// Makes a new key, and creates a signing request for it.
    pub async fn ask(
        api: &Api<CertificateSigningRequest>,
        cluster: &str,
        subject: &[u8],
        life: Duration,
    ) -> Result<Self, Error> {
        let key = NewKey::generate()?;
        let request = key.asking(cluster, subject, life)?;
        let name = request.name_any();
        let params = post_params(FIELD_MANAGER);
        within("create a signing request", api.create(&params, &request)).await?;
        tracing::info!(request = name, "asked for a certificate for the fleet API");
        Ok(Self {
            name,
            key: Box::new(key),
            since: Instant::now(),
        })
    }

    /// Reads the request. Returns the issued certificate, which has to be better than the old one,
    /// or `None` while there is no answer.
    pub async fn answer(
        &self,
        api: &Api<CertificateSigningRequest>,
        old: &[Certificate],
    ) -> Result<Option<Vec<u8>>, Error> {
        let name = || self.name.clone();
        let found = within("read the signing request", client::get_opt(api, &self.name)).await?;
        // Kubernetes removes requests without an answer after a day.
        let request = found.ok_or_else(|| Error::Gone(name()))?;
        match answer::answer(&request) {
            Answer::Pending => Ok(None),
            Answer::Refused(why) => Err(Error::Refused(name(), why)),
            Answer::Issued(certificate) => {
                answer::check(&certificate, &self.key.public(), old)
                    .map_err(|useless| Error::Useless(name(), useless))?;
                Ok(Some(certificate))
            }
        }
    }

    /// Returns the private key as PEM text.
    pub fn key(&self) -> String {
        self.key.pem()
    }
}
