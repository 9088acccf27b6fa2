//! Asking a webhook over TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::wire::json;

/// The largest answer that is read.
const LIMIT: usize = 3 * 1024 * 1024;

/// Where a webhook is.
#[derive(Debug)]
pub struct Endpoint {
    /// The service to find it by, if it isn't found by its URL.
    pub service: Option<Service>,
    /// The URL without query; of a service by its name in the cluster.
    url: String,
    tls: Arc<rustls::ClientConfig>,
}

/// A port of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The port of the service, not of what is behind it.
    pub port: u16,
}

impl Endpoint {
    /// Reads a `clientConfig`, with its CA bundle as PEM.
    pub fn read(config: &Value, bundle: &[u8]) -> Self {
        let service = &config["service"];
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let (service, url) = if service.is_object() {
            let port = service["port"].as_u64().and_then(|p| u16::try_from(p).ok());
            let found = Service {
                namespace: text(&service["namespace"]),
                name: text(&service["name"]),
                port: port.unwrap_or(443),
            };
            let path = text(&service["path"]);
            let slash = if path.starts_with('/') { "" } else { "/" };
            let url = format!(
                "https://{}.{}.svc:{}{slash}{path}",
                found.name, found.namespace, found.port
            );
            (Some(found), url)
        } else {
            (None, text(&config["url"]))
        };
        Self {
            service,
            url,
            tls: Arc::new(trusting(bundle)),
        }
    }

    /// Returns the URL as messages show it.
    pub fn url(&self, seconds: u64) -> String {
        format!("{}?timeout={seconds}s", self.url)
    }

    /// Sends a review and reads the answer. `address` is where the service is; otherwise the URL
    /// says it. An error says what went wrong from `Post "https://…": ` on.
    pub async fn post(
        &self,
        address: Option<SocketAddr>,
        review: &Value,
        seconds: u64,
    ) -> Result<Value, String> {
        let shown = self.url(seconds);
        let failed = |why: String| format!("Post {shown:?}: {why}");
        let uri: Uri = shown.parse().map_err(|e| format!("Unparsable URL: {e}"))?;
        let host = uri.host().unwrap_or_default();
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let port = uri.port_u16().unwrap_or(443);
        let stream = connect(&host, port, address).await.map_err(failed)?;
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

async fn connect(host: &str, port: u16, address: Option<SocketAddr>) -> Result<TcpStream, String> {
    let dialled = |shown: String, e: &io::Error| format!("dial tcp {shown}: {e}");
    if let Some(address) = address {
        let stream = TcpStream::connect(address).await;
        return stream.map_err(|e| dialled(address.to_string(), &e));
    }
    let found = tokio::net::lookup_host((host, port)).await;
    let unknown = || format!("dial tcp: lookup {host}: no such host");
    let mut last = unknown();
    for address in found.map_err(|_| unknown())? {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(e) => last = dialled(address.to_string(), &e),
        }
    }
    Err(last)
}

/// Returns the review in an answer.
fn answer(status: StatusCode, body: &[u8]) -> Result<Value, String> {
    if !(200..=206).contains(&status.as_u16()) {
        let said = String::from_utf8_lossy(body);
        return Err(format!("the webhook answered {status}: {}", said.trim()));
    }
    let read = json::read(body)
        .map_err(|e| format!("couldn't get version/kind; json parse error: {e}"))?;
    let version = read.tree["apiVersion"].as_str().unwrap_or_default();
    let known = ["", "admission.k8s.io/v1", "admission.k8s.io/v1beta1"];
    if !known.contains(&version) {
        return Err(format!(
            "no kind {:?} is registered for version {version:?} in scheme",
            read.tree["kind"].as_str().unwrap_or_default()
        ));
    }
    Ok(read.tree)
}

/// Returns a TLS configuration that trusts a bundle and nothing else.
fn trusting(bundle: &[u8]) -> rustls::ClientConfig {
    let mut roots = RootCertStore::empty();
    let mut pinned = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(bundle).flatten() {
        // What is no certificate authority can still be trusted for itself.
        let _ = roots.add(certificate.clone());
        pinned.push(certificate);
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = Pinned {
        chain: WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .ok(),
        certificates: pinned,
        provider: Arc::clone(&provider),
    };
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring speaks the default versions: invariant of rustls")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth()
}

/// Verifies chains, and accepts a certificate that is itself in the bundle, as Go does and webpki
/// does not: webhooks with one self-signed certificate are common.
#[derive(Debug)]
struct Pinned {
    /// None without any root.
    chain: Option<Arc<WebPkiServerVerifier>>,
    certificates: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.certificates.iter().any(|c| c == end_entity) {
            let parsed = ParsedCertificate::try_from(end_entity)?;
            rustls::client::verify_server_name(&parsed, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        let unknown = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let chain = self.chain.as_ref().ok_or(unknown)?;
        chain.verify_server_cert(end_entity, intermediates, server_name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
