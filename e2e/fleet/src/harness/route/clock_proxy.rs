//! The HTTP side of a route: an endpoint with TLS of its own that passes requests on to an API, and
//! moves the times in them while the clock of whoever asks is wrong.
//!
//! It knows no more of the API than its address and root certificate: whoever asks shows a token,
//! and that passes through. So it works in front of any server.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use base64::Engine as _;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use jiff::SignedDuration;
use kube::Client;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use muster_shared::client::{self, Profile};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::clock::moved;
use muster_test_apiserver::identity::Authority;

type Body = UnsyncBoxBody<Bytes, Cut>;

/// Why a connection ends here.
#[derive(Debug, thiserror::Error)]
pub enum Cut {
    /// The API behind ended it.
    #[error("the API behind the proxy: {0}")]
    Behind(#[from] Box<kube::Error>),
    /// Whoever asked ended it.
    #[error("the request ended early: {0}")]
    Front(#[from] hyper::Error),
}

/// An endpoint in front of an API. Dropping it closes every connection through it.
#[derive(Debug)]
pub struct ClockProxy {
    address: SocketAddr,
    root: String,
    passage: Arc<Passage>,
    _closed: DropGuard,
}

/// What requests pass through.
struct Passage {
    behind: Client,
    clock: Mutex<Clock>,
}

/// The clock of whoever asks.
#[derive(Default)]
struct Clock {
    wrong_by: SignedDuration,
    /// Cancelled when the clock changes.
    connections: CancellationToken,
}

impl std::fmt::Debug for Passage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Passage").finish_non_exhaustive()
    }
}

impl ClockProxy {
    /// Opens an endpoint on a free port of loopback, in front of the API that the kubeconfig
    /// describes.
    pub async fn open(target: &Kubeconfig) -> anyhow::Result<Self> {
        let mut nobody = target.clone();
        for named in &mut nobody.auth_infos {
            named.auth_info = Some(AuthInfo::default());
        }
        let config = kube::Config::from_custom_kubeconfig(nobody, &KubeConfigOptions::default())
            .await
            .context("reading the kubeconfig of the API behind a proxy")?;
        let authority = Authority::new().context("making the proxy's certificates")?;
        let tls = TlsAcceptor::from(Arc::new(authority.server_tls()?));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let closed = CancellationToken::new();
        let proxy = Self {
            address: listener.local_addr()?,
            root: authority.root().to_owned(),
            passage: Arc::new(Passage {
                behind: client::connect(&config, Profile::Watch)?,
                clock: Mutex::default(),
            }),
            _closed: closed.clone().drop_guard(),
        };
        tokio::spawn(accept(listener, tls, Arc::clone(&proxy.passage), closed));
        Ok(proxy)
    }

    /// Returns the address on which the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns by how much the clock of whoever asks is wrong.
    pub fn clock(&self) -> SignedDuration {
        self.passage.clock.lock().wrong_by
    }

    /// Makes the clock of whoever asks wrong by this much, from the next request on; see
    /// [`clock`](super::clock).
    pub fn set_clock(&self, wrong_by: SignedDuration) {
        let mut clock = self.passage.clock.lock();
        clock.wrong_by = wrong_by;
        // Watches that run were begun by another clock.
        std::mem::take(&mut clock.connections).cancel();
    }

    /// Returns the same identity, at the proxy instead of at the API; `address` is the proxy's own
    /// or one that leads to it.
    pub fn admit(&self, mut identity: Kubeconfig, address: SocketAddr) -> Kubeconfig {
        let root = base64::engine::general_purpose::STANDARD.encode(&self.root);
        for cluster in identity
            .clusters
            .iter_mut()
            .filter_map(|named| named.cluster.as_mut())
        {
            cluster.server = Some(format!("https://{address}"));
            cluster.tls_server_name = None;
            cluster.insecure_skip_tls_verify = None;
            cluster.certificate_authority = None;
            cluster.certificate_authority_data = Some(root.clone());
        }
        identity
    }
}

async fn accept(
    listener: TcpListener,
    tls: TlsAcceptor,
    passage: Arc<Passage>,
    closed: CancellationToken,
) {
    loop {
        let accepted = tokio::select! {
            () = closed.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            // One connection's error, or lack of descriptors: both pass.
            tokio::task::yield_now().await;
            continue;
        };
        let (tls, passage, closed) = (tls.clone(), Arc::clone(&passage), closed.clone());
        tokio::spawn(async move {
            let cut = passage.clock.lock().connections.clone();
            tokio::select! {
                () = closed.cancelled() => {}
                () = cut.cancelled() => {}
                () = serve(stream, &tls, &passage) => {}
            }
        });
    }
}

async fn serve(stream: TcpStream, tls: &TlsAcceptor, passage: &Arc<Passage>) {
    // Small requests and answers follow each other here; a socket that lacks the option is only
    // slower.
    let _ = stream.set_nodelay(true);
    let Ok(stream) = tls.accept(stream).await else {
        return;
    };
    let service = service_fn(|request| Arc::clone(passage).pass(request));
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new());
    server.http2().timer(TokioTimer::new());
    // How a connection ended is the business of whoever was connected.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

impl Passage {
    async fn pass(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Cut> {
        let wrong_by = self.clock.lock().wrong_by;
        let (mut parts, body) = request.into_parts();
        for hop in [header::HOST, header::CONNECTION, header::ACCEPT_ENCODING] {
            parts.headers.remove(hop);
        }
        // The parts of the URI that name the proxy are replaced by those of the API.
        let target = parts.uri.path_and_query().map_or("/", |it| it.as_str());
        parts.uri = target.parse().unwrap_or_default();
        parts.version = http::Version::HTTP_11;
        let sent = rewritten(body.collect().await?.to_bytes(), wrong_by);
        let request = Request::from_parts(parts, kube::client::Body::from(sent.to_vec()));
        let answered = self.behind.send(request).await.map_err(Box::new)?;
        let (mut parts, body) = answered.into_parts();
        parts.headers.remove(header::CONNECTION);
        parts.headers.remove(header::TRANSFER_ENCODING);
        let stream = Stream {
            body,
            wrong_by: if is_json(&parts.headers) {
                -wrong_by
            } else {
                SignedDuration::ZERO
            },
            held: Vec::new(),
        };
        let body = futures::stream::unfold(Some(stream), |stream| async move {
            let mut stream = stream?;
            match stream.next().await {
                Ok(Some(bytes)) => Some((Ok(Frame::data(bytes)), Some(stream))),
                Ok(None) => None,
                Err(cut) => Some((Err(cut), None)),
            }
        });
        Ok(Response::from_parts(
            parts,
            StreamBody::new(body).boxed_unsync(),
        ))
    }
}

/// An answer on its way.
struct Stream {
    body: kube::client::Body,
    wrong_by: SignedDuration,
    /// The beginning of a line, while times are rewritten: a time does not lie across two lines.
    held: Vec<u8>,
}

impl Stream {
    async fn next(&mut self) -> Result<Option<Bytes>, Cut> {
        loop {
            let Some(frame) = self.body.frame().await else {
                let rest = std::mem::take(&mut self.held);
                return Ok((!rest.is_empty()).then(|| rewritten(rest.into(), self.wrong_by)));
            };
            let frame = frame.map_err(Box::new)?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if self.wrong_by.is_zero() {
                return Ok(Some(data));
            }
            self.held.extend_from_slice(&data);
            if let Some(end) = self.held.iter().rposition(|byte| *byte == b'\n') {
                let rest = self.held.split_off(end + 1);
                let lines = std::mem::replace(&mut self.held, rest);
                return Ok(Some(rewritten(lines.into(), self.wrong_by)));
            }
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    kind.and_then(|kind| kind.to_str().ok())
        .is_some_and(|kind| kind.starts_with("application/json"))
}

fn rewritten(bytes: Bytes, wrong_by: SignedDuration) -> Bytes {
    match std::str::from_utf8(&bytes) {
        Ok(text) if !wrong_by.is_zero() => moved(text, wrong_by).into_owned().into(),
        _ => bytes,
    }
}
