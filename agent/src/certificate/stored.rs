//! Decides whether the agent uses the credentials that are stored in the Secret, asks for others,
//! or leaves them alone. Applies to agents with a bootstrap kubeconfig. Pure.

use jiff::Timestamp;
use muster_shared::certificate::subject;
use muster_shared::certificate::validity::Validity;
use muster_shared::client;
use muster_shared::names::{AGENT_GROUP, AGENT_USER_PREFIX};
use muster_shared::tls;

use super::document::{self, Document};

/// Reason why stored credentials are replaced.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// Nothing is stored.
    #[error("no credentials are stored")]
    Absent,
    /// The stored text is no kubeconfig with a certificate.
    #[error("the stored credentials cannot be used: {0}")]
    Garbage(#[from] document::Error),
    /// The private key is that of another certificate.
    #[error("the stored credentials cannot be used: the private key is not the certificate's")]
    Pair,
    /// The stored kubeconfig leads to another server than the bootstrap kubeconfig.
    #[error(
        "the stored credentials are for {stored}, and the bootstrap kubeconfig leads to {wanted}"
    )]
    Moved {
        /// Server of the stored kubeconfig.
        stored: String,
        /// Server of the bootstrap kubeconfig.
        wanted: String,
    },
    /// The stored kubeconfig has no usable server, and the bootstrap kubeconfig cannot be read.
    #[error("the stored credentials cannot be used: {0}")]
    Way(client::Error),
    /// The certificate is no longer valid.
    #[error("the stored certificate expired at {0:.0}")]
    Expired(Timestamp),
    /// The fleet API does not know the certificate's authority any more.
    #[error("the fleet API refuses the stored certificate (401)")]
    Refused,
}

/// Decision about stored credentials.
#[derive(Debug)]
pub enum Verdict {
    /// The credentials are valid, and are used.
    Use(Box<Document>),
    /// The agent asks for credentials, which replace the stored ones.
    Ask(Reason),
    /// The certificate is another user's: it is neither used nor replaced.
    Leave,
}

/// Returns the subject of a certificate of a cluster's agent, in DER.
pub fn subject_of(cluster: &str) -> Vec<u8> {
    subject::of(AGENT_GROUP, &format!("{AGENT_USER_PREFIX}{cluster}"))
}

/// Returns whether the certificate of a kubeconfig is that of a cluster's agent.
pub fn is_agents(document: &Document, cluster: &str) -> bool {
    let subject = subject_of(cluster);
    let leaf = document.chain.first();
    leaf.is_some_and(|leaf| subject::are_same(&leaf.subject, &subject))
}

/// Decides about stored credentials for the agent of a cluster. `server` is the URL of the server
/// in the bootstrap kubeconfig, if that can be read, and `refused` a certificate that the fleet API
/// refuses.
pub fn judge(
    stored: Option<&[u8]>,
    cluster: &str,
    server: Option<&str>,
    refused: Option<&[u8]>,
    now: Timestamp,
) -> Verdict {
    let Some(stored) = stored.filter(|text| !text.trim_ascii().is_empty()) else {
        return Verdict::Ask(Reason::Absent);
    };
    let document = match Document::read(stored, None) {
        Ok(document) => document,
        Err(error) => return Verdict::Ask(error.into()),
    };
    if !is_agents(&document, cluster) {
        return Verdict::Leave;
    }
    if !tls::is_pair(&document.certificate, &document.key) {
        return Verdict::Ask(Reason::Pair);
    }
    if let Some(wanted) = server
        && !is_same_server(&document.server, wanted)
    {
        return Verdict::Ask(Reason::Moved {
            stored: document.server,
            wanted: wanted.to_owned(),
        });
    }
    match Validity::of(&document.chain) {
        Some(validity) if validity.until <= now => Verdict::Ask(Reason::Expired(validity.until)),
        _ if refused == Some(document.certificate.as_slice()) => Verdict::Ask(Reason::Refused),
        _ => Verdict::Use(Box::new(document)),
    }
}

/// Returns whether two URLs are those of one server.
pub(super) fn is_same_server(one: &str, other: &str) -> bool {
    let parsed = |text: &str| text.trim_end_matches('/').parse::<http::Uri>().ok();
    parsed(one).is_some() && parsed(one) == parsed(other)
}

#[cfg(test)]
mod tests;
