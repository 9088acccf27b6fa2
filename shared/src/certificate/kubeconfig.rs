//! Kubeconfigs with a certificate or with a bearer token. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Address of an API, and how its server is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// URL of the server.
    pub server: String,
    /// Certificates of the authority as PEM text; empty for the authorities of the system.
    pub authority: Vec<u8>,
    /// Name in the server's certificate, if it is not that of the URL.
    pub server_name: Option<String>,
    /// URL of a proxy.
    pub proxy: Option<String>,
    /// Whether the server's certificate is not verified.
    pub insecure: bool,
}

impl Way {
    /// Returns a kubeconfig with a client certificate and its key (PEM texts).
    pub fn with_certificate(&self, user: &str, certificate: &[u8], key: &[u8]) -> Value {
        let credentials = json!({
            "client-certificate-data": STANDARD.encode(certificate),
            "client-key-data": STANDARD.encode(key),
        });
        self.with(user, &credentials)
    }

    /// Returns a kubeconfig with a bearer token.
    pub fn with_token(&self, user: &str, token: &str) -> Value {
        self.with(user, &json!({ "token": token }))
    }

    fn with(&self, user: &str, credentials: &Value) -> Value {
        let mut cluster = json!({ "server": self.server });
        if !self.authority.is_empty() {
            cluster["certificate-authority-data"] = STANDARD.encode(&self.authority).into();
        }
        if let Some(name) = &self.server_name {
            cluster["tls-server-name"] = name.as_str().into();
        }
        if let Some(proxy) = &self.proxy {
            cluster["proxy-url"] = proxy.as_str().into();
        }
        if self.insecure {
            cluster["insecure-skip-tls-verify"] = true.into();
        }
        json!({
            "apiVersion": "v1", "kind": "Config",
            "clusters": [{"name": "fleet", "cluster": cluster}],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": user, "context": {"cluster": "fleet", "user": user}}],
            "current-context": user,
        })
    }
}
