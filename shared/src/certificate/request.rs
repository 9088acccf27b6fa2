//! A new key and the signing request for its certificate (PKCS #10, RFC 2986). The request is
//! encoded by hand, because its subject must be byte for byte that of the old certificate:
//! otherwise the approver does not recognise the agent.

use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};

use super::der::{pem, tlv};
use crate::k8s::{
    ByteString, CertificateSigningRequest, CertificateSigningRequestSpec, ObjectMeta,
};

/// Signs certificates by which clients of an API are known.
pub const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// What Karmada's approver wants such a certificate to be for, all of it and nothing else.
pub const USAGES: [&str; 3] = ["digital signature", "key encipherment", "client auth"];
/// Kubernetes refuses requests for a shorter life.
const SHORTEST: Duration = Duration::from_mins(10);
/// Letters that make no words, as Kubernetes ends generated names with.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// `SubjectPublicKeyInfo` of a P-256 key up to the point itself (RFC 5480).
const P256: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// ecdsa-with-SHA256 as an algorithm (RFC 5758).
const ECDSA_SHA256: [u8; 12] = [
    0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02,
];

/// Error: the system provided no randomness, or no key could be made from it.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a new key")]
pub struct NoKey;

/// Key without a certificate.
pub struct NewKey {
    pair: EcdsaKeyPair,
    document: Vec<u8>,
    random: SystemRandom,
}

impl NewKey {
    /// Generates a P-256 key, as Karmada does.
    pub fn generate() -> Result<Self, NoKey> {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).map_err(|_| NoKey)?;
        let document = document.as_ref().to_vec();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, &document, &random).map_err(|_| NoKey)?;
        Ok(Self {
            pair,
            document,
            random,
        })
    }

    /// Returns the private key as PEM text (PKCS #8).
    pub fn pem(&self) -> String {
        pem("PRIVATE KEY", &self.document)
    }

    /// Returns the public key as `SubjectPublicKeyInfo` in DER.
    pub fn public(&self) -> Vec<u8> {
        [&P256[..], self.pair.public_key().as_ref()].concat()
    }

    /// Returns the signing request with this subject (DER) as PEM text.
    pub fn request(&self, subject: &[u8]) -> Result<String, NoKey> {
        // Version 0 and no attributes.
        let info = [&[0x02, 0x01, 0x00], subject, &self.public(), &[0xa0, 0x00]].concat();
        let info = tlv(0x30, &info);
        let signature = self.pair.sign(&self.random, &info).map_err(|_| NoKey)?;
        let bits = tlv(0x03, &[&[0], signature.as_ref()].concat());
        let request = tlv(0x30, &[&info[..], &ECDSA_SHA256, &bits].concat());
        Ok(pem("CERTIFICATE REQUEST", &request))
    }

    /// Returns the CertificateSigningRequest object, named after the cluster; `life` is the
    /// requested lifetime.
    pub fn asking(
        &self,
        cluster: &str,
        subject: &[u8],
        life: Duration,
    ) -> Result<CertificateSigningRequest, NoKey> {
        let mut ending = [0; 5];
        self.random.fill(&mut ending).map_err(|_| NoKey)?;
        let letter = |byte: &u8| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]);
        let ending: String = ending.iter().map(letter).collect();
        let life = life.max(SHORTEST).as_secs();
        Ok(CertificateSigningRequest {
            metadata: ObjectMeta {
                name: Some(format!("{cluster}-{ending}")),
                ..ObjectMeta::default()
            },
            spec: CertificateSigningRequestSpec {
                request: ByteString(self.request(subject)?.into_bytes()),
                signer_name: SIGNER.to_owned(),
                usages: Some(USAGES.map(str::to_owned).to_vec()),
                expiration_seconds: Some(i32::try_from(life).unwrap_or(i32::MAX)),
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use x509_parser::certification_request::X509CertificationRequest;
    use x509_parser::prelude::FromDer;

    use super::*;

    fn name(organizations: usize) -> Vec<u8> {
        let attribute = |oid: u8, text: &str| {
            let id = tlv(0x06, &[0x55, 0x04, oid]);
            let pair = [id, tlv(0x0c, text.as_bytes())].concat();
            tlv(0x31, &tlv(0x30, &pair))
        };
        let mut parts = vec![attribute(0x03, "system:karmada:agent:m1")];
        parts.extend((0..organizations).map(|it| attribute(0x0a, &format!("group-{it}"))));
        tlv(0x30, &parts.concat())
    }

    #[test]
    fn a_request_bears_the_old_subject_and_is_signed_with_the_new_key() {
        for organizations in [0, 1, 5, 40] {
            let (key, subject) = (NewKey::generate().unwrap(), name(organizations));
            let text = key.request(&subject).unwrap();
            let (_, der) = x509_parser::pem::parse_x509_pem(text.as_bytes()).unwrap();
            let (rest, request) = X509CertificationRequest::from_der(&der.contents).unwrap();
            assert!(rest.is_empty());
            request.verify_signature().unwrap();
            let info = &request.certification_request_info;
            assert_eq!(info.subject.as_raw(), subject, "{organizations}");
            assert_eq!(info.subject_pki.raw, key.public());
        }
    }

    #[test]
    fn a_request_asks_for_the_old_life_and_for_what_the_approver_allows() {
        let key = NewKey::generate().unwrap();
        for (life, seconds) in [(3600, 3600), (1, 600), (u64::MAX, i32::MAX)] {
            let life = Duration::from_secs(life);
            let request = key.asking("m1", &name(1), life).unwrap();
            let ending = request.metadata.name.unwrap();
            let ending = ending.strip_prefix("m1-").unwrap();
            assert!(ending.len() == 5 && ending.bytes().all(|it| LETTERS.contains(&it)));
            assert_eq!(request.spec.expiration_seconds, Some(seconds));
            assert_eq!(request.spec.signer_name, SIGNER);
        }
    }
}
