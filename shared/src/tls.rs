//! Reading certificates: how long credentials are still good.

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Why a certificate could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not PEM with a certificate in it.
    #[error("cannot read the certificate as PEM: {0}")]
    Pem(rustls::pki_types::pem::Error),
    /// It is not an X.509 certificate.
    #[error("cannot read the certificate as X.509: {0}")]
    X509(String),
}

/// The time from which the first certificate of a PEM text is no longer valid.
pub fn not_after(pem: &[u8]) -> Result<Timestamp, Error> {
    let certificate = CertificateDer::from_pem_slice(pem).map_err(Error::Pem)?;
    let (_, certificate) = x509_parser::parse_x509_certificate(&certificate)
        .map_err(|error| Error::X509(error.to_string()))?;
    Timestamp::from_second(certificate.validity().not_after.timestamp())
        .map_err(|error| Error::X509(error.to_string()))
}

/// Makes ring the process's TLS provider. Call it first in `main`: with no provider installed rustls panics at first use.
pub fn install_provider() {
    // An error means that somebody installed one before us, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
