//! What becomes of the credentials that are stored in the Secret, for an agent that can ask for
//! others. Pure.

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
    /// What is stored is no kubeconfig with a certificate.
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
    /// The stored kubeconfig does not say where the fleet API is, and nothing else does.
    #[error("the stored credentials cannot be used: {0}")]
    Way(client::Error),
    /// The certificate is no longer valid.
    #[error("the stored certificate expired at {0:.0}")]
    Expired(Timestamp),
}

/// What to do with stored credentials.
#[derive(Debug)]
pub enum Verdict {
    /// They are good.
    Use(Box<Document>),
    /// Others are asked for, and take their place.
    Ask(Reason),
    /// They are somebody else's: neither used nor replaced.
    Leave,
}

/// The name and group of a cluster's agent in a certificate, in DER.
pub fn subject_of(cluster: &str) -> Vec<u8> {
    subject::of(AGENT_GROUP, &format!("{AGENT_USER_PREFIX}{cluster}"))
}

/// Judges stored credentials for the agent of a cluster. `server` is where the bootstrap kubeconfig
/// leads, if that is known.
pub fn judge(
    stored: Option<&[u8]>,
    context: Option<&str>,
    cluster: &str,
    server: Option<&str>,
    now: Timestamp,
) -> Verdict {
    let Some(stored) = stored.filter(|text| !text.trim_ascii().is_empty()) else {
        return Verdict::Ask(Reason::Absent);
    };
    let document = match Document::read(stored, context) {
        Ok(document) => document,
        Err(error) => return Verdict::Ask(error.into()),
    };
    let ours = subject_of(cluster);
    let is_ours = |leaf: &tls::Certificate| subject::are_same(&leaf.subject, &ours);
    if !document.chain.first().is_some_and(is_ours) {
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
