//! Who may be who: the server's own certificate authority, client certificates, and bearer tokens.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType, SigningKey,
};
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The extension that carries all groups after the first: rcgen writes an organization once only.
const GROUPS: [u64; 9] = [1, 3, 6, 1, 4, 1, 57264, 99, 1];
const GROUPS_TEXT: &str = "1.3.6.1.4.1.57264.99.1";

/// Somebody who makes requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    /// Name, `system:serviceaccount:ns:name` for service accounts.
    pub name: String,
    /// Identity, for service accounts.
    pub uid: String,
    /// Groups, `system:authenticated` or `system:unauthenticated` among them.
    pub groups: Vec<String>,
    /// Whatever else the authenticator knows, by key.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Somebody who showed nothing.
    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            uid: String::new(),
            groups: vec!["system:unauthenticated".to_owned()],
            extra: BTreeMap::new(),
        }
    }

    /// Somebody who showed who they are.
    pub fn authenticated(name: &str, groups: &[&str]) -> Self {
        let mut groups: Vec<String> = groups.iter().map(|&g| g.to_owned()).collect();
        groups.push("system:authenticated".to_owned());
        Self {
            name: name.to_owned(),
            uid: String::new(),
            groups,
            extra: BTreeMap::new(),
        }
    }

    /// The server itself.
    pub fn server() -> Self {
        Self::authenticated("system:apiserver", &["system:masters"])
    }

    /// Whether the user is in the group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}

/// A certificate with its key, both as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Certificate.
    pub certificate: String,
    /// Private key.
    pub key: String,
}

/// Signs certificates and knows tokens.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
    tokens: RwLock<HashMap<String, User>>,
    /// Signs the tokens of service accounts.
    signer: KeyPair,
}

fn common(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = std::time::SystemTime::now();
    // Clocks of test machines differ; a day of grace before costs nothing.
    params.not_before = (now - Duration::from_hours(24)).into();
    params.not_after = (now + Duration::from_hours(24 * 365)).into();
    params
}

impl Authority {
    /// A new authority with its own root.
    pub fn new() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = common("muster-embedded-api");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let certificate = params.self_signed(&key)?;
        Ok(Self {
            pem: certificate.pem(),
            certificate: certificate.der().clone(),
            issuer: Issuer::new(params, key),
            tokens: RwLock::default(),
            signer: KeyPair::generate_for(&rcgen::PKCS_ED25519)?,
        })
    }

    /// A JSON web token with these claims.
    pub fn sign(&self, claims: &serde_json::Value) -> Result<String, rcgen::Error> {
        let head = BASE64.encode(br#"{"alg":"EdDSA","kid":"embedded"}"#);
        let text = format!("{head}.{}", BASE64.encode(claims.to_string()));
        let signature = self.signer.sign(text.as_bytes())?;
        Ok(format!("{text}.{}", BASE64.encode(signature)))
    }

    /// Whether a token was signed here. The signature scheme is deterministic, so signing again tells.
    pub fn signed(&self, token: &str) -> bool {
        let Some((text, signature)) = token.rsplit_once('.') else {
            return false;
        };
        self.signer
            .sign(text.as_bytes())
            .is_ok_and(|again| BASE64.encode(again) == signature)
    }

    /// The root certificate as PEM.
    pub fn root(&self) -> &str {
        &self.pem
    }

    /// A client certificate for a user.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<Credentials, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = common(user);
        if let Some((first, others)) = groups.split_first() {
            params
                .distinguished_name
                .push(DnType::OrganizationName, *first);
            if !others.is_empty() {
                let content = others.join("\n").into_bytes();
                params
                    .custom_extensions
                    .push(CustomExtension::from_oid_content(&GROUPS, content));
            }
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Credentials {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }

    /// Lets a bearer token stand for a user.
    pub fn allow_token(&self, token: &str, user: User) {
        self.tokens
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(token.to_owned(), user);
    }

    /// Who a bearer token stands for.
    pub fn user_of_token(&self, token: &str) -> Option<User> {
        self.tokens
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(token)
            .cloned()
    }

    /// TLS for the server: its certificate for loopback names, and client certificates asked for but not demanded.
    pub fn server_tls(&self) -> Result<rustls::ServerConfig, TlsError> {
        let key = KeyPair::generate()?;
        let mut params = common("kube-apiserver");
        for name in [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
        ] {
            params
                .subject_alt_names
                .push(SanType::DnsName(name.try_into()?));
        }
        params
            .subject_alt_names
            .push(SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into()));
        params
            .subject_alt_names
            .push(SanType::IpAddress(std::net::Ipv6Addr::LOCALHOST.into()));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&key, &self.issuer)?;
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone())?;
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .allow_unauthenticated()
                .build()?;
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(TlsError::Key)?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate.der().clone()], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A certificate could not be made.
    #[error("making a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// rustls refused a certificate or a key.
    #[error("configuring tls: {0}")]
    Config(#[from] rustls::Error),
    /// The verifier of client certificates could not be built.
    #[error("verifying client certificates: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    /// The private key was of an unknown form.
    #[error("reading the private key: {0}")]
    Key(&'static str),
}

/// The user that a (verified) client certificate names: CN is the name, O are the groups.
pub fn user_of_certificate(der: &[u8]) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?;
    let mut groups: Vec<&str> = subject
        .iter_organization()
        .filter_map(|o| o.as_str().ok())
        .collect();
    let ours = certificate
        .extensions()
        .iter()
        .find(|e| e.oid.to_id_string() == GROUPS_TEXT);
    if let Some(text) = ours.and_then(|e| std::str::from_utf8(e.value).ok()) {
        groups.extend(text.split('\n'));
    }
    Some(User::authenticated(name, &groups))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::pem::PemObject;

    #[test]
    fn certificates_carry_name_and_groups() {
        let authority = Authority::new().expect("authority");
        let made = authority
            .client("jane", &["dev", "ops"])
            .expect("certificate");
        let der = CertificateDer::from_pem_slice(made.certificate.as_bytes()).expect("pem");
        let user = user_of_certificate(&der).expect("user");
        assert_eq!(user, User::authenticated("jane", &["dev", "ops"]));
        assert!(user.is_in("system:authenticated"));
    }

    #[test]
    fn unknown_tokens_stand_for_nobody() {
        let authority = Authority::new().expect("authority");
        authority.allow_token("t", User::authenticated("a", &[]));
        assert!(authority.user_of_token("t").is_some());
        assert!(authority.user_of_token("u").is_none());
    }
}
