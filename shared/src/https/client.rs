//! HTTPS client for short requests to servers of users: webhooks, receivers of notices. Nothing is
//! redirected, and a body is read up to a bound.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use super::provider;
pub use crate::client::words;

/// Connections to a server that are kept for the next request.
const IDLE_CONNECTIONS: usize = 4;
/// Time for which they are kept.
const IDLE: Duration = Duration::from_secs(90);

/// Connections to servers, some of which are kept between requests.
pub type Connection = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Prepares connections; nothing is sent yet. Plain HTTP is refused unless it is permitted.
///
/// # Errors
/// The words of the TLS library.
pub fn connection(roots: RootCertStore, permits_http: bool) -> Result<Connection, String> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let builder = HttpsConnectorBuilder::new().with_tls_config(config);
    let builder = if permits_http {
        builder.https_or_http()
    } else {
        builder.https_only()
    };
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .build(builder.enable_http1().build()))
}

/// Returns the authorities of a PEM text.
///
/// # Errors
/// A predicate that says what is wrong with the text.
pub fn authorities(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("is not PEM: {error}"))?;
        roots
            .add(certificate)
            .map_err(|error| format!("has a certificate that cannot be used: {error}"))?;
    }
    if roots.is_empty() {
        return Err("has no certificate in PEM".to_owned());
    }
    Ok(roots)
}

/// Returns the authorities that the system trusts, if there are any.
pub fn authorities_of_the_system() -> Option<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    (!roots.is_empty()).then_some(roots)
}

/// Reads a body until it ends, or until more than this number of bytes have come. Returns whether
/// it has ended.
///
/// # Errors
/// When the connection breaks.
pub async fn read(
    body: &mut Incoming,
    bytes: &mut Vec<u8>,
    most: usize,
) -> Result<bool, hyper::Error> {
    while bytes.len() <= most {
        let Some(frame) = body.frame().await else {
            return Ok(true);
        };
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    Ok(false)
}
