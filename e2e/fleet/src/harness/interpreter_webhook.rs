//! Interpreter webhook on loopback, with an authority of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use muster_shared::https::{self, Certificate};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A webhook that answers; it ends when it is dropped.
pub struct InterpreterWebhook {
    url: String,
    authority: String,
    asked: Arc<AtomicUsize>,
    _serving: DropGuard,
}

impl InterpreterWebhook {
    /// Starts a webhook. `answer` gets a request and returns the fields of the response beside
    /// `uid` and `successful`; `None` is an error of the server.
    ///
    /// # Errors
    /// The certificate or the port cannot be had.
    pub async fn start(
        answer: impl Fn(&Value) -> Option<Value> + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let mut params = CertificateParams::new([])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let params = CertificateParams::new(["127.0.0.1".to_owned()])?;
        let chain = params.signed_by(&key, &issuer)?.pem().into_bytes();
        let certificate = Arc::new(Certificate::default());
        certificate.give(chain, key.serialize_pem().into_bytes())?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://{}/interpret", listener.local_addr()?);
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let reply = move |_: &str, body: &[u8]| {
            count.fetch_add(1, Ordering::Relaxed);
            let context: Value = serde_json::from_slice(body).unwrap_or_default();
            let Some(Value::Object(fields)) = answer(&context["request"]) else {
                return (StatusCode::INTERNAL_SERVER_ERROR, b"out of order".to_vec());
            };
            let mut response = json!({ "uid": context["request"]["uid"], "successful": true });
            if let Some(response) = response.as_object_mut() {
                response.extend(fields);
            }
            let context = json!({ "apiVersion": context["apiVersion"], "kind": context["kind"],
                "response": response });
            (StatusCode::OK, context.to_string().into_bytes())
        };
        let shutdown = CancellationToken::new();
        let ends = shutdown.clone();
        tokio::spawn(https::serve(listener, certificate, Arc::new(reply), ends));
        Ok(Self {
            url,
            authority: STANDARD.encode(issuer.pem()),
            asked,
            _serving: shutdown.drop_guard(),
        })
    }

    /// Returns a `ResourceInterpreterWebhookConfiguration` that names this webhook for operations
    /// on `example.com/v1` kinds, with a deadline of a second.
    pub fn configuration(&self, name: &str, kinds: &[&str], operations: &[&str]) -> Value {
        Self::of(&self.url, &self.authority, name, kinds, operations)
    }

    /// Returns a configuration as [`configuration`](Self::configuration) does, with another
    /// address.
    pub fn configuration_at(&self, url: &str, name: &str, kinds: &[&str]) -> Value {
        Self::of(url, &self.authority, name, kinds, &["*"])
    }

    fn of(url: &str, authority: &str, name: &str, kinds: &[&str], operations: &[&str]) -> Value {
        json!({
            "apiVersion": "config.karmada.io/v1alpha1",
            "kind": "ResourceInterpreterWebhookConfiguration",
            "metadata": { "name": name },
            "webhooks": [{
                "name": "kinds.example.com", "timeoutSeconds": 1,
                "interpreterContextVersions": ["v1alpha1"],
                "clientConfig": { "url": url, "caBundle": authority },
                "rules": [{ "operations": operations, "apiGroups": ["example.com"],
                    "apiVersions": ["v1"], "kinds": kinds }],
            }],
        })
    }

    /// Returns the members of a response that carry these operations as its `patch`.
    pub fn patch(operations: &Value) -> Value {
        json!({ "patchType": "JSONPatch", "patch": STANDARD.encode(operations.to_string()) })
    }

    /// Returns the number of questions so far.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}
