//! HTTPS server for short requests of an API server (admission webhooks). Each request is a POST
//! with a bounded body and is answered before a deadline. The certificate follows its files.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::http_server::{self, Limits, Options};

mod body;
mod certificate;
pub mod client;
mod handshake;
mod page;

pub use self::certificate::{Certificate, Error};
pub use self::handshake::handshake;
pub use self::page::page;

/// Handshake and head of a request have to be here by then, and then its body. An API server waits
/// for an answer for 30 s at most.
const DEADLINE: Duration = Duration::from_secs(10);
/// Connections of the port. An API server keeps one or two; it makes a new one when an idle or an
/// old one was closed.
const LIMITS: Limits = Limits {
    connections: 64,
    first: DEADLINE,
    idle: Duration::from_mins(2),
    age: Duration::from_mins(30),
};
/// Requests at a time on one connection (HTTP/2).
const STREAMS: u32 = 16;
/// Bytes that one HTTP/2 connection may send without being read: with all connections, 16 MiB.
const WINDOW: u32 = 256 << 10;
/// Bytes of the largest request head, as HTTP/2 limits it as well.
const LARGEST_HEAD: usize = 16 << 10;
/// How long connections are still accepted after a shutdown was asked for: endpoints point here
/// until the proxies of all nodes know of it, and a policy whose review finds no server is
/// refused.
const LINGER: Duration = Duration::from_secs(5);

/// Returns the one TLS implementation of the process.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Answer to a request: a status and a JSON text.
pub type Reply = (StatusCode, Vec<u8>);

/// Answers the body of a POST to a path.
pub type Answer = dyn Fn(&str, &[u8]) -> Reply + Send + Sync;

/// Serves questions on a bound listener until some seconds after the shutdown was requested.
pub async fn serve(
    listener: TcpListener,
    certificate: Arc<Certificate>,
    answer: Arc<Answer>,
    shutdown: CancellationToken,
) {
    // Bytes that bodies may take, of all connections together.
    let budget = body::budget();
    let handler = move |request| {
        let (answer, budget) = (Arc::clone(&answer), Arc::clone(&budget));
        async move { reply(request, &answer, &budget).await }
    };
    http_server::serve(listener, options(certificate), handler, shutdown).await;
}

/// Returns how the server treats its connections.
fn options(certificate: Arc<Certificate>) -> Options {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .max_buf_size(LARGEST_HEAD)
        .header_read_timeout(LIMITS.idle);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .initial_connection_window_size(WINDOW)
        .initial_stream_window_size(WINDOW)
        .keep_alive_interval(Duration::from_secs(30));
    Options {
        name: "https",
        limits: LIMITS,
        tls: Some(acceptor(certificate)),
        http,
        deadline: DEADLINE,
        linger: LINGER,
    }
}

/// Returns what answers the handshakes of a server with a certificate.
fn acceptor(certificate: Arc<Certificate>) -> TlsAcceptor {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("ring speaks the default versions by invariant")
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

async fn reply(
    request: Request<Incoming>,
    answer: &Arc<Answer>,
    budget: &Arc<Semaphore>,
) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let plain = |status, text: &str| (status, text.as_bytes().to_vec());
    let (status, body) = if head.method == Method::POST {
        match timeout(DEADLINE, body::collect(body, budget)).await {
            Ok(Ok(body)) => {
                // Whatever is in it must not end more than this one conversation.
                catch_unwind(AssertUnwindSafe(|| answer(head.uri.path(), body.bytes())))
                    .unwrap_or_else(|_| {
                        tracing::error!(path = head.uri.path(), "panicked over a question");
                        plain(
                            StatusCode::INTERNAL_SERVER_ERROR,
                            "could not be answered: see the log\n",
                        )
                    })
            }
            Ok(Err(body::Error::Large)) => {
                plain(StatusCode::PAYLOAD_TOO_LARGE, "larger than 7 MiB\n")
            }
            Ok(Err(body::Error::Broken(error))) => {
                plain(StatusCode::BAD_REQUEST, &format!("{error}\n"))
            }
            Err(_) => plain(
                StatusCode::REQUEST_TIMEOUT,
                "the body did not arrive in time\n",
            ),
        }
    } else {
        plain(
            StatusCode::METHOD_NOT_ALLOWED,
            "questions are sent by POST\n",
        )
    };
    let kind = match body.first() {
        Some(b'{') => "application/json",
        _ => "text/plain; charset=utf-8",
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static(kind),
    );
    response
}
