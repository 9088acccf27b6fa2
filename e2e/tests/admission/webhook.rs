//! A webhook over TLS that notes what it is asked and answers what the test says.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// What to answer, by path of the request.
pub type Answers = fn(&str, &Value) -> Answer;

/// An answer.
pub enum Answer {
    /// A `response` without the uid, which is filled in.
    Review(Value),
    /// A status code with a body.
    Raw(u16, &'static str),
    /// None, before the client loses its patience.
    Never,
}

/// A webhook that serves until the test ends.
pub struct Webhook {
    /// Where it listens.
    pub address: SocketAddr,
    bundle: String,
    seen: Arc<Mutex<Vec<(String, Value)>>>,
}

/// Allows.
pub fn allow() -> Answer {
    Answer::Review(json!({ "allowed": true }))
}

/// Allows, with changes.
pub fn change(operations: &Value) -> Answer {
    let patch = STANDARD.encode(operations.to_string());
    Answer::Review(json!({ "allowed": true, "patch": patch, "patchType": "JSONPatch" }))
}

impl Webhook {
    /// Serves on loopback with a certificate of its own for the address.
    pub async fn start(answers: Answers) -> Self {
        let key = KeyPair::generate().unwrap();
        let names = ["127.0.0.1".to_owned()];
        let certificate = CertificateParams::new(names)
            .unwrap()
            .self_signed(&key)
            .unwrap();
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(
            rustls::crypto::ring::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
        let tls = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, noted) = (tls.clone(), Arc::clone(&noted));
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else {
                        return;
                    };
                    let service =
                        service_fn(move |request| respond(answers, Arc::clone(&noted), request));
                    let connection = hyper::server::conn::http1::Builder::new();
                    let _ = connection
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self {
            address,
            bundle: STANDARD.encode(certificate.pem()),
            seen,
        }
    }

    /// Returns an entry of `webhooks` that asks for everything about config maps at `path`; `with`
    /// adds to it and replaces.
    pub fn entry(&self, name: &str, path: &str, with: &Value) -> Value {
        let mut entry = json!({
            "name": name,
            "clientConfig": { "url": format!("https://{}{path}", self.address), "caBundle": self.bundle },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"] }],
            // The server itself writes config maps as well.
            "matchConditions": [{ "name": "by-the-test", "expression": "request.userInfo.username == 'kubernetes-admin'" }],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        });
        for (field, value) in with.as_object().into_iter().flatten() {
            entry[field] = value.clone();
        }
        entry
    }

    /// Returns the CA bundle, as configurations hold it.
    pub fn bundle(&self) -> &str {
        &self.bundle
    }

    /// Returns what was asked since the last time, with the paths.
    pub fn seen(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut *self.seen.lock())
    }
}

async fn respond(
    answers: Answers,
    noted: Arc<Mutex<Vec<(String, Value)>>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    noted.lock().push((path.clone(), review["request"].clone()));
    let (code, body) = match answers(&path, &review["request"]) {
        Answer::Review(mut response) => {
            response["uid"] = review["request"]["uid"].clone();
            let review = json!({ "apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response });
            (200, review.to_string())
        }
        Answer::Raw(code, body) => (code, body.to_owned()),
        Answer::Never => {
            tokio::time::sleep(Duration::from_mins(1)).await;
            (200, String::new())
        }
    };
    let response = Response::builder()
        .status(code)
        .header("content-type", "application/json");
    Ok(response.body(Full::new(Bytes::from(body))).unwrap())
}
