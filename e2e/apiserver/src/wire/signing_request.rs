//! PKCS#10 requests for certificates, as CertificateSigningRequests carry them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

use super::x509;

/// The subject and the key of a request, as DER, with what a signer reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Subject, as it is signed.
    pub subject: Vec<u8>,
    /// Public key.
    pub key: Vec<u8>,
    /// Organizations of the subject.
    pub groups: Vec<String>,
}

/// Reads the PEM text of a request (`spec.request`) and checks that it is signed with its own key.
pub fn read(encoded: &Value) -> Result<Request, String> {
    let pem = STANDARD
        .decode(encoded.as_str().unwrap_or_default())
        .unwrap_or_default();
    let der = CertificateSigningRequestDer::from_pem_slice(&pem)
        .map_err(|_| "PEM block type must be CERTIFICATE REQUEST")?;
    let (_, csr) = X509CertificationRequest::from_der(&der)
        .map_err(|_| "asn1: syntax error: truncated tag or length")?;
    csr.verify_signature()
        .map_err(|_| "x509: signature verification failed")?;
    let info = &csr.certification_request_info;
    let text = |a: &x509_parser::x509::AttributeTypeAndValue<'_>| {
        a.as_str().unwrap_or_default().to_owned()
    };
    let name = info.subject.iter_common_name().map(text).next();
    let name = name.unwrap_or_default();
    let groups: Vec<String> = info.subject.iter_organization().map(text).collect();
    let names: Vec<&str> = groups.iter().map(String::as_str).collect();
    Ok(Request {
        subject: x509::subject(&name, &names),
        key: info.subject_pki.raw.to_vec(),
        groups,
    })
}
