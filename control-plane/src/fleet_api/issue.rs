//! Makes authorities, certificates and the key of service accounts' tokens.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use muster_shared::certificate::pem;
use muster_shared::clock::later;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData as _,
};

use super::plan::Leaf;

/// Time before its creation from which a certificate is valid: clocks of other machines may be
/// behind. At most the lifetime itself.
const GRACE: Duration = Duration::from_hours(1);

/// A certificate and its private key, as PEM texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// The certificate.
    pub certificate: String,
    /// Its private key (PKCS#8).
    pub key: String,
}

/// Makes a certificate authority.
///
/// # Errors
/// When the system has no randomness.
pub(super) fn authority(name: &str, now: Timestamp, life: Duration) -> Result<Pair, rcgen::Error> {
    let mut params = params(Vec::new(), name, now, life, None)?;
    // It signs certificates of servers and clients, and no further authority.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(Pair {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

/// Makes a certificate that an authority signs. It does not outlive the authority (`until`).
///
/// # Errors
/// When a name is no DNS name, the authority cannot be used, or the system has no randomness.
pub(super) fn leaf(
    leaf: &Leaf,
    authority: &Pair,
    until: Timestamp,
    now: Timestamp,
    life: Duration,
) -> Result<Pair, rcgen::Error> {
    let mut params = params(leaf.names.clone(), &leaf.user, now, life, Some(until))?;
    if let Some(group) = &leaf.group {
        let name = &mut params.distinguished_name;
        name.push(DnType::OrganizationName, group.as_str());
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let usages = [
        (leaf.serves, ExtendedKeyUsagePurpose::ServerAuth),
        (leaf.asks, ExtendedKeyUsagePurpose::ClientAuth),
    ];
    let usages = usages
        .into_iter()
        .filter_map(|(is, usage)| is.then_some(usage));
    params.extended_key_usages = usages.collect();
    params.use_authority_key_identifier_extension = true;
    let issuer =
        Issuer::from_ca_cert_pem(&authority.certificate, KeyPair::from_pem(&authority.key)?)?;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(Pair {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

/// Makes the key that signs tokens of service accounts: the private half (PKCS#8) and the public
/// one, as PEM texts.
///
/// # Errors
/// When the system has no randomness.
pub(super) fn token_key() -> Result<[String; 2], rcgen::Error> {
    let key = KeyPair::generate()?;
    let public = pem("PUBLIC KEY", &key.subject_public_key_info());
    Ok([key.serialize_pem(), public])
}

/// Returns the parameters that each certificate has: its names (DNS names or IP addresses), its
/// subject, and its lifetime, which ends at the limit at the latest, if there is one.
///
/// # Errors
/// When a name is neither a DNS name nor an IP address.
pub(crate) fn params(
    names: Vec<String>,
    common_name: &str,
    now: Timestamp,
    life: Duration,
    limit: Option<Timestamp>,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    let end = later(now, life).min(limit.unwrap_or(Timestamp::MAX));
    params.not_before = (SystemTime::from(now) - GRACE.min(life)).into();
    params.not_after = SystemTime::from(end).into();
    Ok(params)
}
