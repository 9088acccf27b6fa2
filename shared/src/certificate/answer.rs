//! Result of a signing request, and validation of the issued certificate. Pure.

use crate::k8s::CertificateSigningRequest;
use crate::tls::{self, Certificate};

use super::subject;
use super::validity::Validity;

/// State of a signing request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Neither approved nor denied.
    Pending,
    /// Denied or failed, with the reason.
    Refused(String),
    /// Certificate as PEM text.
    Issued(Vec<u8>),
}

/// Reads the state of a signing request. If there are a certificate and a denial, the certificate
/// counts.
pub fn answer(request: &CertificateSigningRequest) -> Answer {
    let Some(status) = &request.status else {
        return Answer::Pending;
    };
    if let Some(certificate) = status.certificate.as_ref().filter(|it| !it.0.is_empty()) {
        return Answer::Issued(certificate.0.clone());
    }
    let conditions = status.conditions.iter().flatten();
    let mut refusals = conditions.filter(|it| it.status == "True" && it.type_ != "Approved");
    match refusals.find(|it| it.type_ == "Denied" || it.type_ == "Failed") {
        Some(refusal) => {
            let said = [&refusal.reason, &refusal.message];
            let said: Vec<&str> = said.into_iter().flatten().map(String::as_str).collect();
            Answer::Refused(format!("{}: {}", refusal.type_, said.join(": ")))
        }
        None => Answer::Pending,
    }
}

/// Reason why an issued certificate is not used.
#[derive(Debug, thiserror::Error)]
pub enum Useless {
    /// The certificate cannot be parsed.
    #[error(transparent)]
    Unreadable(#[from] tls::Error),
    /// The certificate is for another key.
    #[error("it is for another key than ours")]
    Key,
    /// The certificate has another subject.
    #[error("it is for another subject than the old one's")]
    Subject,
    /// The certificate does not last longer than the present one.
    #[error("it ends at {0}, no later than the old one")]
    Short(jiff::Timestamp),
}

/// Validates an issued certificate before it replaces the present one.
pub fn check(issued: &[u8], key: &[u8], old: &[Certificate]) -> Result<Validity, Useless> {
    let chain = tls::certificates(issued)?;
    let leaf = chain.first().filter(|leaf| leaf.key == key);
    let leaf = leaf.ok_or(Useless::Key)?;
    let is_same = |old: &Certificate| subject::are_same(&old.subject, &leaf.subject);
    if !old.first().is_none_or(is_same) {
        return Err(Useless::Subject);
    }
    let until = |chain: &[Certificate]| Validity::of(chain).map(|validity| validity.until);
    match Validity::of(&chain) {
        Some(validity) if Some(validity.until) > until(old) => Ok(validity),
        _ => Err(Useless::Short(leaf.not_after)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_none_a_refusal_or_a_certificate() {
        let denied = json!({"conditions": [{"type": "Denied", "status": "True", "reason": "No", "message": "who are you"}]});
        let failed = json!({"conditions": [{"type": "Approved", "status": "True"},
            {"type": "Failed", "status": "True", "message": "usage"}]});
        for (status, expected) in [
            (json!(null), Answer::Pending),
            (json!({}), Answer::Pending),
            (
                json!({"conditions": [{"type": "Approved", "status": "True"}]}),
                Answer::Pending,
            ),
            (denied, Answer::Refused("Denied: No: who are you".into())),
            (failed, Answer::Refused("Failed: usage".into())),
            (
                json!({"certificate": "Yw=="}),
                Answer::Issued(b"c".to_vec()),
            ),
            (json!({"certificate": ""}), Answer::Pending),
        ] {
            let request = json!({"metadata": {}, "status": status,
                "spec": {"request": "", "signerName": "s"}});
            let request: CertificateSigningRequest = serde_json::from_value(request).unwrap();
            assert_eq!(answer(&request), expected, "{status}");
        }
    }
}
