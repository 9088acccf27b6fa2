//! Certificates for a server on loopback, in files as a mounted secret has them, and who trusts
//! them.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::{Client, Config};
use rcgen::{CertificateParams, KeyPair};

/// A certificate that is its own authority.
pub struct SelfSigned {
    pem: String,
    der: Vec<u8>,
    key: String,
}

impl SelfSigned {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self {
            pem: certificate.pem(),
            der: certificate.der().to_vec(),
            key: key.serialize_pem(),
        }
    }

    /// Puts it where `--cert-dir` finds it.
    pub fn write(&self, directory: &Path) {
        std::fs::write(directory.join("tls.crt"), &self.pem).unwrap();
        std::fs::write(directory.join("tls.key"), &self.key).unwrap();
    }

    /// Returns the authority, as a webhook configuration has it.
    pub fn bundle(&self) -> String {
        STANDARD.encode(&self.pem)
    }

    /// Returns the certificate itself.
    pub fn der(&self) -> Vec<u8> {
        self.der.clone()
    }

    /// Returns a client that trusts this certificate alone.
    pub fn client(&self, port: u16) -> Client {
        let address = format!("https://127.0.0.1:{port}").parse().unwrap();
        let mut config = Config::new(address);
        config.root_cert = Some(vec![self.der.clone()]);
        config.try_into().unwrap()
    }
}
