//! Reads X.509 certificates: validity, subject, key and issuer.

use jiff::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Reason why a certificate could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not PEM with a certificate.
    #[error("cannot read the certificate as PEM: {0}")]
    Pem(rustls::pki_types::pem::Error),
    /// The content is not an X.509 certificate.
    #[error("cannot read the certificate as X.509: {0}")]
    X509(String),
}

/// Returns the time from which the first certificate of a PEM text is no longer valid.
pub fn not_after(pem: &[u8]) -> Result<Timestamp, Error> {
    let der = CertificateDer::from_pem_slice(pem).map_err(Error::Pem)?;
    Ok(read(&der)?.not_after)
}

/// Fields of a certificate that a renewal needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Start of validity.
    pub not_before: Timestamp,
    /// Last second of validity.
    pub not_after: Timestamp,
    /// Subject in DER.
    pub subject: Vec<u8>,
    /// Public key as `SubjectPublicKeyInfo` in DER.
    pub key: Vec<u8>,
}

/// Returns the certificates of a PEM text, in their order; never an empty list.
pub fn certificates(pem: &[u8]) -> Result<Vec<Certificate>, Error> {
    let list = CertificateDer::pem_slice_iter(pem).map(|der| read(&der.map_err(Error::Pem)?));
    let list = list.collect::<Result<Vec<_>, _>>()?;
    if list.is_empty() {
        return Err(Error::Pem(rustls::pki_types::pem::Error::NoItemsFound));
    }
    Ok(list)
}

fn read(der: &[u8]) -> Result<Certificate, Error> {
    let x509 = |error: &dyn std::fmt::Display| Error::X509(error.to_string());
    let time = |seconds| Timestamp::from_second(seconds).map_err(|error| x509(&error));
    let (_, read) = x509_parser::parse_x509_certificate(der).map_err(|error| x509(&error))?;
    Ok(Certificate {
        not_before: time(read.validity().not_before.timestamp())?,
        not_after: time(read.validity().not_after.timestamp())?,
        subject: read.subject().as_raw().to_vec(),
        key: read.public_key().raw.to_vec(),
    })
}

/// Returns the certificates of a PEM text in DER; none for a text that has none.
pub fn authorities(pem: &[u8]) -> Vec<Vec<u8>> {
    let read = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
    read.map(|der| der.to_vec()).collect()
}

/// Returns the certificates of a PEM text, each as a text of its own; what is between them, and
/// what is none, is left out.
pub fn blocks(text: &str) -> impl Iterator<Item = &str> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let texts = text.split_inclusive(END);
    let blocks = texts.filter_map(|text| Some(&text[text.rfind(BEGIN)?..]));
    blocks.filter(|block| CertificateDer::from_pem_slice(block.as_bytes()).is_ok())
}

/// Returns whether a private key is that of the first certificate (PEM texts).
pub fn is_pair(certificate: &[u8], key: &[u8]) -> bool {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let (Ok(chain), Ok(key)) = (chain, PrivateKeyDer::from_pem_slice(key)) else {
        return false;
    };
    let provider = rustls::crypto::ring::default_provider();
    !chain.is_empty() && rustls::sign::CertifiedKey::from_der(chain, key, &provider).is_ok()
}

/// Returns whether the first certificate of one PEM text bears the signature of the first of
/// another. Neither's validity is checked.
pub fn is_signed_by(certificate: &[u8], authority: &[u8]) -> bool {
    let octets = |pem| CertificateDer::from_pem_slice(pem).ok();
    let (Some(certificate), Some(authority)) = (octets(certificate), octets(authority)) else {
        return false;
    };
    let read = |der| x509_parser::parse_x509_certificate(der).map(|(_, read)| read);
    match (read(&certificate), read(&authority)) {
        (Ok(certificate), Ok(authority)) => certificate
            .verify_signature(Some(authority.public_key()))
            .is_ok(),
        _ => false,
    }
}

/// Makes ring the process's TLS provider. Call it first in `main`: with no provider installed
/// rustls panics at first use.
pub fn install_provider() {
    // An error means that somebody installed one before us, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
