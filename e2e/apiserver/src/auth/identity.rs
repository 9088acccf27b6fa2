//! Who may be who: the server's own certificate authority, client certificates, and bearer tokens.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD as BASE64};
use jiff::Timestamp;
use parking_lot::RwLock;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType, SigningKey,
};
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::wire::clock;
use crate::wire::x509;

/// How long before now certificates begin to be good: clocks of test machines differ, and a day of
/// grace costs nothing.
pub const GRACE: Duration = Duration::from_hours(24);

/// How long certificates made by the server are good.
pub const LIFE: Duration = Duration::from_hours(24 * 365);

/// What a credential's identity is called among what is known of a user.
pub const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

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
    /// Returns the user for somebody who showed no credentials.
    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            uid: String::new(),
            groups: vec!["system:unauthenticated".to_owned()],
            extra: BTreeMap::new(),
        }
    }

    /// Returns the user for somebody who showed who they are.
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

    /// Returns the user that the server itself is.
    pub fn server() -> Self {
        Self::authenticated("system:apiserver", &["system:masters"])
    }

    /// Returns whether the user may do everything, whatever roles say.
    pub fn is_unlimited(&self) -> bool {
        self.groups.iter().any(|g| g == "system:masters")
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

/// What precedes the 32 bytes of an Ed25519 key in PKCS #8 (RFC 8410, section 7).
const ED25519_HEAD: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

fn common(name: &str, now: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = SystemTime::from(now);
    params.not_before = (now - GRACE).into();
    params.not_after = (now + LIFE).into();
    params
}

impl Authority {
    /// Returns a new authority with its own root.
    pub fn new() -> Result<Self, rcgen::Error> {
        let (key, signer) = (
            KeyPair::generate()?,
            KeyPair::generate_for(&rcgen::PKCS_ED25519)?,
        );
        Self::with(key, signer, Timestamp::now())
    }

    /// Returns an authority that is the same at every start, for servers that nobody reaches over a
    /// network: everybody knows its keys. Ed25519 signs the same text the same way each time.
    pub fn well_known(now: Timestamp) -> Result<Self, rcgen::Error> {
        let key = || {
            let key = [&ED25519_HEAD[..], &[7; 32]].concat();
            KeyPair::try_from(key)
        };
        Self::with(key()?, key()?, now)
    }

    fn with(key: KeyPair, signer: KeyPair, now: Timestamp) -> Result<Self, rcgen::Error> {
        let mut params = common("muster-embedded-api", now);
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
            signer,
        })
    }

    /// Returns a JSON web token with these claims.
    pub fn sign(&self, claims: &serde_json::Value) -> Result<String, rcgen::Error> {
        let head = BASE64.encode(br#"{"alg":"EdDSA","kid":"embedded"}"#);
        let text = format!("{head}.{}", BASE64.encode(claims.to_string()));
        let signature = self.signer.sign(text.as_bytes())?;
        Ok(format!("{text}.{}", BASE64.encode(signature)))
    }

    /// Returns whether a token was signed here. The signature scheme is deterministic, so signing
    /// again shows it.
    pub fn signed(&self, token: &str) -> bool {
        let Some((text, signature)) = token.rsplit_once('.') else {
            return false;
        };
        self.signer
            .sign(text.as_bytes())
            .is_ok_and(|again| BASE64.encode(again) == signature)
    }

    /// Returns the root certificate as PEM.
    pub fn root(&self) -> &str {
        &self.pem
    }

    /// Returns a client certificate for a user that is good for so long, since [`GRACE`] before
    /// now.
    pub fn client(
        &self,
        user: &str,
        groups: &[&str],
        life: Duration,
    ) -> anyhow::Result<Credentials> {
        let key = KeyPair::generate()?;
        let subject = x509::subject(user, groups);
        let now = Timestamp::now();
        let from = now.checked_sub(GRACE).unwrap_or(now);
        let certificate = self.sign_certificate(
            &subject,
            &key.subject_public_key_info(),
            (from, life),
            false,
        )?;
        Ok(Credentials {
            certificate,
            key: key.serialize_pem(),
        })
    }

    /// Returns a client certificate as PEM for a subject and a key (both DER), good from five
    /// minutes ago, as signers have it, for this long.
    pub fn sign_client(
        &self,
        subject: &[u8],
        key: &[u8],
        (now, life): (Timestamp, Duration),
        enciphers: bool,
    ) -> anyhow::Result<String> {
        const BACKDATE: Duration = Duration::from_mins(5);
        // What lives long ends earlier by as much as it begins.
        const SHORT: Duration = Duration::from_hours(8);
        let from = now.checked_sub(BACKDATE).unwrap_or(now);
        let life = if life < SHORT { life + BACKDATE } else { life };
        self.sign_certificate(subject, key, (from, life), enciphers)
    }

    fn sign_certificate(
        &self,
        subject: &[u8],
        key: &[u8],
        (from, life): (Timestamp, Duration),
        enciphers: bool,
    ) -> anyhow::Result<String> {
        let (_, own) = X509Certificate::from_der(&self.certificate)
            .map_err(|e| anyhow!("reading the authority's certificate: {e}"))?;
        let end = own.validity().not_after.timestamp();
        let end = Timestamp::from_second(end).unwrap_or(Timestamp::MAX);
        let client = x509::Client {
            serial: clock::serial(),
            issuer: own.subject().as_raw(),
            subject,
            key,
            from,
            until: from.checked_add(life).unwrap_or(end).min(end),
            enciphers,
        };
        let tbs = client.tbs();
        let signature = self.issuer.key().sign(&tbs)?;
        let pem = pem(&x509::certificate(tbs, &signature));
        Ok(pem)
    }

    /// Lets a bearer token stand for a user.
    pub fn allow_token(&self, token: &str, user: User) {
        self.tokens.write().insert(token.to_owned(), user);
    }

    /// Returns who a bearer token stands for.
    pub fn user_of_token(&self, token: &str) -> Option<User> {
        self.tokens.read().get(token).cloned()
    }

    /// Returns the TLS configuration for the server: its certificate for loopback names, and client
    /// certificates asked for but not demanded.
    pub fn server_tls(&self) -> anyhow::Result<rustls::ServerConfig> {
        let key = KeyPair::generate()?;
        let mut params = common("kube-apiserver", Timestamp::now());
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
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate.der().clone()], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// Returns the user that a (verified) client certificate names: CN is the name, O are the groups.
pub fn user_of_certificate(der: &[u8]) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?;
    let groups: Vec<&str> = subject
        .iter_organization()
        .filter_map(|o| o.as_str().ok())
        .collect();
    let mut user = User::authenticated(name, &groups);
    let print = format!("X509SHA256={}", clock::hex(&sha256(der)));
    user.extra.insert(CREDENTIAL.to_owned(), vec![print]);
    Some(user)
}

/// Returns the digest by which a certificate is known.
fn sha256(data: &[u8]) -> Vec<u8> {
    let suite = ring::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13();
    suite.map_or_else(Vec::new, |s| {
        s.common.hash_provider.hash(data).as_ref().to_vec()
    })
}

/// Returns a certificate given as DER as PEM.
fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut out = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(64) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    out.push_str("-----END CERTIFICATE-----\n");
    out
}
