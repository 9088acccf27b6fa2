//! The accept loop of every HTTP server of a process, in plain text or with TLS.
//!
//! Each connection has bounds for its age, its silence and its request heads ([`Limits`]). When the
//! server closes, or a connection has reached its maximum age, requests in flight are still
//! answered, up to a deadline.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

mod connections;

pub(crate) use self::connections::Limits;
use self::connections::{Connection, Connections, End};

/// Pause after the operating system refused to accept a connection, as a rule because the process
/// has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Options for the connections of a server.
#[derive(Clone)]
pub(crate) struct Options {
    /// Name of the server, for the log.
    pub name: &'static str,
    /// Limits of number, age and silence.
    pub limits: Limits,
    /// TLS of the server; `None` for plain text.
    pub tls: Option<TlsAcceptor>,
    /// Versions of HTTP, and their limits.
    pub http: auto::Builder<TokioExecutor>,
    /// Time for the TLS handshake, and for requests in flight when a connection ends.
    pub deadline: Duration,
    /// Time during which connections are still accepted after the shutdown was requested.
    pub linger: Duration,
}

/// Serves HTTP on a bound listener until the shutdown is requested and `options.linger` has passed.
pub(crate) async fn serve<H, F>(
    listener: TcpListener,
    options: Options,
    handler: H,
    shutdown: CancellationToken,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let connections = Connections::new(options.limits);
    let closing = async {
        shutdown.cancelled().await;
        tokio::time::sleep(options.linger).await;
    };
    tokio::pin!(closing);
    let server = Server {
        closing: CancellationToken::new(),
        options: options.clone(),
        handler,
    };
    // Ends the connections when this function returns or is dropped.
    let _until = server.closing.clone().drop_guard();
    loop {
        let stream = tokio::select! {
            () = closing.as_mut() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(server = options.name, %error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        crate::clock::spawn(server.clone().accept(stream, Arc::new(connections.enter())));
    }
}

/// The part of a server that all of its connections share.
#[derive(Clone)]
struct Server<H> {
    options: Options,
    handler: H,
    closing: CancellationToken,
}

impl<H, F> Server<H>
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    /// Serves one connection, after its TLS handshake where the server has one.
    async fn accept(self, stream: TcpStream, connection: Arc<Connection>) {
        let Some(tls) = self.options.tls.clone() else {
            return self.converse(stream, connection).await;
        };
        let handshake = tokio::select! {
            handshake = timeout(self.options.deadline, tls.accept(stream)) => handshake,
            _ = connection.ended() => return,
        };
        match handshake {
            Ok(Ok(stream)) => self.converse(stream, connection).await,
            Ok(Err(error)) => {
                tracing::debug!(server = self.options.name, %error, "TLS handshake failed");
            }
            Err(_) => {}
        }
    }

    /// Answers requests until the client closes the connection, its limits end it, or the server
    /// closes.
    async fn converse<S>(self, stream: S, connection: Arc<Connection>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (requests, handler) = (Arc::clone(&connection), self.handler);
        let service = service_fn(move |request| {
            let answering = requests.request();
            let answer = handler(request);
            async move {
                let _answering = answering;
                Ok::<_, Infallible>(answer.await)
            }
        });
        let exchange = self
            .options
            .http
            .serve_connection(TokioIo::new(stream), service);
        tokio::pin!(exchange);
        let end = tokio::select! {
            ended = exchange.as_mut() => Err(ended),
            end = connection.ended() => Ok(end),
            () = self.closing.cancelled() => Ok(End::Old),
        };
        let ended = match end {
            Err(ended) => ended,
            Ok(End::Cut) => Ok(()),
            Ok(End::Old) => {
                exchange.as_mut().graceful_shutdown();
                timeout(self.options.deadline, exchange)
                    .await
                    .unwrap_or(Ok(()))
            }
        };
        if let Err(error) = ended {
            tracing::debug!(server = self.options.name, %error, "connection ended");
        }
    }
}
