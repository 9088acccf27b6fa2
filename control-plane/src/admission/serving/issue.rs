//! Creates a certificate authority and a server certificate.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{BasicConstraints, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use crate::fleet_api::certificate_params;

/// Life of a certificate and its authority.
pub(super) const LIFE: Duration = Duration::from_hours(90 * 24);

/// A new certificate with everything that serving and trusting it takes, as PEM texts.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Issued {
    /// The authority, whose key nobody keeps: it signs this certificate and no other.
    pub authority: String,
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// Makes an authority and a certificate for the names (DNS names or IP addresses) of a server.
///
/// # Errors
/// When a name is none, or the system has no randomness.
pub(super) fn issue(names: &[String], now: Timestamp) -> Result<Issued, rcgen::Error> {
    let mut authority = certificate_params(Vec::new(), "muster-webhook-ca", now, LIFE, None)?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority_key = KeyPair::generate()?;
    let authority_certificate = authority.self_signed(&authority_key)?;
    let issuer = Issuer::new(authority, authority_key);

    let mut server = certificate_params(names.to_vec(), "muster-webhook", now, LIFE, None)?;
    server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    server.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = server.signed_by(&key, &issuer)?;
    Ok(Issued {
        authority: authority_certificate.pem(),
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}
