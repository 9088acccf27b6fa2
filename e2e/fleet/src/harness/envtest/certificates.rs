//! The certificates of a real API: a root, the server's, clients', and the key of service accounts'
//! tokens.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use kube::config::Kubeconfig;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType,
};
use serde_json::json;

/// The root certificate.
pub const ROOT: &str = "ca.crt";
/// Its key.
pub const ROOT_KEY: &str = "ca.key";
/// The server's certificate.
pub const SERVING: &str = "serving.crt";
/// Its key.
pub const SERVING_KEY: &str = "serving.key";
/// The key that signs the tokens of service accounts.
pub const TOKEN_KEY: &str = "tokens.key";
/// Its public half.
pub const TOKEN_PUBLIC: &str = "tokens.pub";

/// The object identifier of an organization.
const ORGANIZATION: [u64; 4] = [2, 5, 4, 10];

/// Signs for one API.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    root: String,
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = std::time::SystemTime::now();
    params.not_before = (now - Duration::from_hours(1)).into();
    params.not_after = (now + Duration::from_hours(24 * 365)).into();
    params
}

impl Authority {
    /// Returns a new root.
    pub fn new() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = named("muster-envtest");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let root = params.self_signed(&key)?.pem();
        let issuer = Issuer::new(params, key);
        Ok(Self { issuer, root })
    }

    /// Writes what the processes read, under the names above.
    pub fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let key = KeyPair::generate()?;
        let mut params = named("kube-apiserver");
        params.subject_alt_names = vec![
            SanType::IpAddress(Ipv4Addr::LOCALHOST.into()),
            SanType::DnsName("localhost".try_into()?),
            SanType::DnsName("kubernetes.default.svc".try_into()?),
        ];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let serving = params.signed_by(&key, &self.issuer)?;
        let tokens = KeyPair::generate()?;
        let public = BASE64.encode(tokens.subject_public_key_info());
        let public = format!("-----BEGIN PUBLIC KEY-----\n{public}\n-----END PUBLIC KEY-----\n");
        for (name, text) in [
            (ROOT, self.root.clone()),
            (ROOT_KEY, self.issuer.key().serialize_pem()),
            (SERVING, serving.pem()),
            (SERVING_KEY, key.serialize_pem()),
            (TOKEN_KEY, tokens.serialize_pem()),
            (TOKEN_PUBLIC, public),
        ] {
            let path = directory.join(name);
            let file = std::fs::File::options()
                .create(true)
                .write(true)
                .truncate(true)
                .mode(0o600)
                .open(&path);
            file.and_then(|mut file| file.write_all(text.as_bytes()))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// Returns a kubeconfig with a client certificate: the name is the user, the organizations are
    /// the groups.
    pub fn kubeconfig(
        &self,
        address: &str,
        user: &str,
        groups: &[&str],
    ) -> anyhow::Result<Kubeconfig> {
        let key = KeyPair::generate()?;
        let mut params = named(user);
        // rcgen keeps one value for each type of name; spelt differently, the same type gives room
        // for a second.
        let spellings = [
            DnType::OrganizationName,
            DnType::CustomDnType(ORGANIZATION.to_vec()),
        ];
        if groups.len() > spellings.len() {
            bail!("a certificate here has room for two groups, not for {groups:?}");
        }
        for (spelling, group) in spellings.into_iter().zip(groups) {
            params.distinguished_name.push(spelling, *group);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer)?;
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "envtest",
            "contexts": [{ "name": "envtest", "context": { "cluster": "envtest", "user": user } }],
            "clusters": [{ "name": "envtest", "cluster": {
                "server": address,
                "certificate-authority-data": BASE64.encode(&self.root),
            } }],
            "users": [{ "name": user, "user": {
                "client-certificate-data": BASE64.encode(certificate.pem()),
                "client-key-data": BASE64.encode(key.serialize_pem()),
            } }],
        });
        Ok(serde_json::from_value(config)?)
    }
}
