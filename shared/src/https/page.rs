//! Server of a page for people.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::body::Incoming;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{Certificate, options};
use crate::http_server::{self, Limits, Options};
use crate::serve;

/// Connections of a page for one person: a browser keeps a few open while a tab refreshes, and an
/// answer about a large fleet takes its time.
const PAGE_LIMITS: Limits = Limits {
    connections: 128,
    first: Duration::from_secs(30),
    idle: Duration::from_mins(1),
    age: Duration::from_hours(1),
};
/// Time in which answers to a page are completed when its server closes.
const PAGE_DEADLINE: Duration = Duration::from_secs(1);

/// Serves a page until shutdown, by HTTPS where a certificate is given. The handler is given the
/// head of each request; bodies are not read.
pub async fn page<H, F>(
    listener: TcpListener,
    certificate: Option<Arc<Certificate>>,
    handler: H,
    shutdown: CancellationToken,
) where
    H: Fn(http::request::Parts) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = http::Response<Bytes>> + Send + 'static,
{
    let protocols = certificate.map_or_else(serve::options, options);
    let options = Options {
        name: "page",
        limits: PAGE_LIMITS,
        deadline: PAGE_DEADLINE,
        linger: Duration::ZERO,
        ..protocols
    };
    let answer = move |request: Request<Incoming>| {
        let answer = handler(request.into_parts().0);
        async move { answer.await.map(Full::new) }
    };
    http_server::serve(listener, options, answer, shutdown).await;
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Empty};
    use hyper::client::conn::{http1, http2};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use rcgen::{CertificateParams, KeyPair};
    use rustls::ClientConfig;
    use tokio::net::TcpStream;
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::https::client;

    #[tokio::test]
    async fn a_page_is_served_in_each_protocol_that_the_handshake_offers() {
        crate::tls::install_provider();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let certificate = Certificate::default();
        let texts = (pem.clone().into_bytes(), key.serialize_pem().into_bytes());
        certificate.give(texts.0, texts.1).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let answer = |head: http::request::Parts| async move {
            http::Response::new(Bytes::from(head.uri.path().to_owned()))
        };
        let certificate = Some(Arc::new(certificate));
        let serving = tokio::spawn(page(listener, certificate, answer, shutdown.clone()));
        for protocol in ["h2", "http/1.1"] {
            let roots = client::authorities(pem.as_bytes()).unwrap();
            let mut config = ClientConfig::builder()
                .with_root_certificates(roots)
                .with_no_client_auth();
            config.alpn_protocols = vec![protocol.into()];
            let stream = TcpStream::connect(address).await.unwrap();
            let name = "localhost".try_into().unwrap();
            let connector = TlsConnector::from(Arc::new(config));
            let stream = TokioIo::new(connector.connect(name, stream).await.unwrap());
            let request = Request::get("https://localhost/api/status");
            let request = request.body(Empty::<Bytes>::new()).unwrap();
            let response = if protocol == "h2" {
                let executor = TokioExecutor::new();
                let (mut sender, connection) = http2::handshake(executor, stream).await.unwrap();
                tokio::spawn(connection);
                sender.send_request(request).await.unwrap()
            } else {
                let (mut sender, connection) = http1::handshake(stream).await.unwrap();
                tokio::spawn(connection);
                sender.send_request(request).await.unwrap()
            };
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, "/api/status", "{protocol}");
        }
        shutdown.cancel();
        serving.await.unwrap();
    }
}
