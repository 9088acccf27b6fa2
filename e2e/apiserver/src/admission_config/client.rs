//! Asking a webhook over TLS.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The largest answer that is read.
const LIMIT: usize = 3 * 1024 * 1024;

/// Where a webhook is.
#[derive(Debug)]
pub struct Endpoint {
    /// The URL without query; empty for a webhook behind a service, which no request reaches here.
    url: String,
    tls: Arc<rustls::ClientConfig>,
}

impl Endpoint {
    /// Reads a `clientConfig`, with its CA bundle as PEM.
    pub fn read(config: &Value, bundle: &[u8]) -> Self {
        Self {
            url: config["url"].as_str().unwrap_or_default().to_owned(),
            tls: Arc::new(trusting(bundle)),
        }
    }

    /// Returns the URL as messages show it.
    pub fn url(&self, seconds: u64) -> String {
        format!("{}?timeout={seconds}s", self.url)
    }

    /// Sends a review and reads the answer. An error says what went wrong from `Post "https://…": `
    /// on.
    pub async fn post(&self, review: &Value, seconds: u64) -> Result<Value, String> {
        let shown = self.url(seconds);
        let failed = |why: String| format!("Post {shown:?}: {why}");
        if self.url.is_empty() {
            return Err(failed("services are not routed by this API".to_owned()));
        }
        let uri: Uri = shown.parse().map_err(|e| format!("Unparsable URL: {e}"))?;
        let host = uri.host().unwrap_or_default();
        let host = host.trim_matches(['[', ']']).to_owned();
        let address = (host.as_str(), uri.port_u16().unwrap_or(443));
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(|e| failed(e.to_string()))?;
        let name = ServerName::try_from(host).map_err(|e| failed(e.to_string()))?;
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let stream = connector.connect(name, stream).await;
        let stream = stream.map_err(|e| failed(e.to_string()))?;
        let request = Request::post(uri.path_and_query().map_or("/", |p| p.as_str()))
            .header(header::HOST, uri.authority().map_or("", |a| a.as_str()))
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(review.to_string())))
            .map_err(|e| failed(e.to_string()))?;
        let lost = |e: hyper::Error| failed(e.to_string());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(lost)?;
        // It ends when the answer has been read and the sender is gone.
        tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(lost)?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, LIMIT).collect().await;
        let body = body.map_err(|e| failed(e.to_string()))?.to_bytes();
        answer(head.status, &body)
    }
}

/// Returns the review in an answer.
fn answer(status: StatusCode, body: &[u8]) -> Result<Value, String> {
    if !(200..=206).contains(&status.as_u16()) {
        let said = String::from_utf8_lossy(body);
        return Err(format!("the webhook answered {status}: {}", said.trim()));
    }
    serde_json::from_slice(body)
        .map_err(|e| format!("couldn't get version/kind; json parse error: {e}"))
}

/// Returns a TLS configuration that trusts a bundle and nothing else.
fn trusting(bundle: &[u8]) -> rustls::ClientConfig {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle).flatten() {
        // What is no certificate is trusted for nothing.
        let _ = roots.add(certificate);
    }
    rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring speaks the default versions: invariant of rustls")
        .with_root_certificates(roots)
        .with_no_client_auth()
}
