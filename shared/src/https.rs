//! A server of small questions over TLS, for an API server that asks (admission webhooks): each is a POST with a bounded body and gets its
//! answer before a deadline, whatever it contains. The certificate is read from files and follows them when they are replaced.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use jiff::Timestamp;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::serve::Health;
use crate::tls;

/// The largest body: two objects of the largest size that an API server stores, with room to spare (controller-runtime's limit).
const LARGEST_BODY: usize = 7 << 20;
/// Handshake and head of a request have to be here by then, and then its body. An API server waits for an answer for 30 s at most.
const DEADLINE: Duration = Duration::from_secs(10);
/// Connections at a time; further ones wait to be accepted.
const CONNECTIONS: usize = 256;
/// How often the certificate's files are looked at: mounted secrets change a minute after they were written.
const LOOK: Duration = Duration::from_secs(10);

/// Why there is no (new) certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is not PEM of what it should be.
    #[error("cannot read {}: {source}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rustls::pki_types::pem::Error,
    },
    /// Certificate and key do not serve together.
    #[error("cannot use the certificate in {}: {source}", path.display())]
    Pair {
        /// The certificate's file.
        path: PathBuf,
        /// Why.
        source: rustls::Error,
    },
}

/// A certificate with its key in two PEM files, as last read. Who connects is shown the one that was good last.
#[derive(Debug)]
pub struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    current: Mutex<Option<Current>>,
}

#[derive(Debug)]
struct Current {
    texts: (Vec<u8>, Vec<u8>),
    pair: Arc<CertifiedKey>,
}

impl Certificate {
    /// A certificate that has not been read yet.
    pub fn new(chain: PathBuf, key: PathBuf) -> Self {
        Self {
            chain,
            key,
            current: Mutex::default(),
        }
    }

    /// Reads the files. On an error the certificate stays what it was. Tells whether there is a new one.
    pub async fn reload(&self) -> Result<bool, Error> {
        let read = async |path: &PathBuf| {
            tokio::fs::read(path).await.map_err(|source| Error::File {
                path: path.clone(),
                source,
            })
        };
        let texts = (read(&self.chain).await?, read(&self.key).await?);
        if self
            .current()
            .as_ref()
            .is_some_and(|current| current.texts == texts)
        {
            return Ok(false);
        }
        let pem = |path: &PathBuf| {
            let path = path.clone();
            |source| Error::Pem { path, source }
        };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&texts.0)
            .collect::<Result<_, _>>()
            .map_err(pem(&self.chain))?;
        let key = PrivateKeyDer::from_pem_slice(&texts.1).map_err(pem(&self.key))?;
        // Refuses a key that is not the certificate's: of two files one may have been replaced before the other.
        let pair =
            CertifiedKey::from_der(chain, key, &provider()).map_err(|source| Error::Pair {
                path: self.chain.clone(),
                source,
            })?;
        let remaining = tls::not_after(&texts.0)
            .map(|end| end.duration_since(Timestamp::now()).as_secs_f64())
            .unwrap_or_default();
        metrics::gauge!("muster_serving_certificate_remaining_seconds").set(remaining);
        let pair = Arc::new(pair);
        *self.current() = Some(Current { texts, pair });
        Ok(true)
    }

    /// Follows the files until shutdown; `part` of `health` is ready once there is a certificate.
    pub async fn follow(
        self: Arc<Self>,
        health: Health,
        part: &'static str,
        shutdown: CancellationToken,
    ) {
        let mut looks = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                _ = looks.tick() => {}
                () = shutdown.cancelled() => return,
            }
            match self.reload().await {
                Ok(news) => {
                    health.ready(part, Ok(()));
                    if news {
                        tracing::info!(file = %self.chain.display(), "serving with a new certificate");
                    }
                }
                Err(error) => {
                    if self.current().is_none() {
                        health.ready(part, Err(error.to_string()));
                    }
                    tracing::warn!(%error, "no new certificate to serve with");
                }
            }
        }
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
            .as_ref()
            .map(|current| Arc::clone(&current.pair))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// What a question gets: a status and a JSON text.
pub type Reply = (StatusCode, Vec<u8>);

/// Answers the body of a POST to a path.
pub type Answer = dyn Fn(&str, &[u8]) -> Reply + Send + Sync;

/// Serves questions on a bound listener until shutdown.
pub async fn serve(
    listener: TcpListener,
    certificate: Arc<Certificate>,
    answer: Arc<Answer>,
    shutdown: CancellationToken,
) {
    let acceptor = acceptor(certificate);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let place = Arc::clone(&places).acquire_owned();
        let (stream, place) = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = async { (place.await, listener.accept().await) } => match accepted {
                (Ok(place), Ok((stream, _))) => (stream, place),
                (_, Err(error)) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
                (Err(_), _) => return,
            },
        };
        tokio::spawn(converse(
            stream,
            acceptor.clone(),
            Arc::clone(&answer),
            place,
            shutdown.clone(),
        ));
    }
}

fn acceptor(certificate: Arc<Certificate>) -> TlsAcceptor {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("ring speaks the default versions by invariant")
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// One connection, until the client closes it or we shut down.
async fn converse(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    answer: Arc<Answer>,
    _place: OwnedSemaphorePermit,
    shutdown: CancellationToken,
) {
    let stream = match timeout(DEADLINE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => return,
    };
    let service = service_fn(move |request| {
        let answer = Arc::clone(&answer);
        async move { Ok::<_, Infallible>(reply(request, &answer).await) }
    });
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(DEADLINE);
    server
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(30));
    let connection = server.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            // Who has asked gets an answer.
            connection.as_mut().graceful_shutdown();
            timeout(DEADLINE, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

async fn reply(request: Request<Incoming>, answer: &Arc<Answer>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let plain = |status, text: &str| (status, text.as_bytes().to_vec());
    let (status, body) = if head.method == Method::POST {
        match timeout(DEADLINE, Limited::new(body, LARGEST_BODY).collect()).await {
            Ok(Ok(body)) => {
                let body = body.to_bytes();
                // Whatever is in it must not end more than this one conversation.
                catch_unwind(AssertUnwindSafe(|| answer(head.uri.path(), &body))).unwrap_or_else(
                    |_| {
                        tracing::error!(path = head.uri.path(), "panicked over a question");
                        plain(
                            StatusCode::INTERNAL_SERVER_ERROR,
                            "could not be answered: see the log\n",
                        )
                    },
                )
            }
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                plain(StatusCode::PAYLOAD_TOO_LARGE, "larger than 7 MiB\n")
            }
            Ok(Err(error)) => plain(StatusCode::BAD_REQUEST, &format!("{error}\n")),
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
