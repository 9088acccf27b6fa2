//! Asks other members of etcd what they are, and answers them. Both sides show certificates of
//! etcd's authority.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Full, Limited};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use muster_shared::clock::inherited;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::judge::{Answer, Member};

/// Path at which etcd lists the members of its cluster for other members.
const PATH: &str = "/members";
/// Answer of a member whose volume is empty. etcd never gives it.
const EMPTY: &[u8] = br#""empty""#;
/// Time for one question.
const DEADLINE: Duration = Duration::from_secs(3);
/// Bytes of the longest list of members that is read.
const LONGEST: usize = 1 << 20;

/// Another member of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    /// Its name.
    pub name: String,
    /// Its peer URL.
    pub url: String,
}

/// The certificate of the member, for both sides of a connection.
pub(super) struct Identity {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Identity {
    /// Reads certificate, key and authority.
    pub(super) fn read(directory: &Path) -> anyhow::Result<Self> {
        let path = |name: &str| directory.join(name);
        let read = |name: &str| -> anyhow::Result<Vec<CertificateDer<'static>>> {
            let found = CertificateDer::pem_file_iter(path(name))
                .and_then(Iterator::collect::<Result<Vec<_>, _>>);
            found.with_context(|| format!("read {}", path(name).display()))
        };
        let chain = read("tls.crt")?;
        let key = PrivateKeyDer::from_pem_file(path("tls.key"));
        let key = key.with_context(|| format!("read {}", path("tls.key").display()))?;
        let mut roots = RootCertStore::empty();
        for certificate in read("ca.crt")? {
            roots.add(certificate).context("use ca.crt")?;
        }
        let roots = Arc::new(roots);
        let client = ClientConfig::builder()
            .with_root_certificates(Arc::clone(&roots))
            .with_client_auth_cert(chain.clone(), key.clone_key())?;
        let server = ServerConfig::builder()
            .with_client_cert_verifier(WebPkiClientVerifier::builder(roots).build()?)
            .with_single_cert(chain, key)?;
        Ok(Self {
            client: Arc::new(client),
            server: Arc::new(server),
        })
    }

    /// Returns the side of a server.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.server))
    }
}

impl Peer {
    /// Reads a list of `NAME=URL`.
    pub(super) fn list(text: &str) -> anyhow::Result<Vec<Self>> {
        let each = text.split(',').map(|part| {
            let (name, url) = part.split_once('=')?;
            Some(Self {
                name: name.to_owned(),
                url: url.to_owned(),
            })
        });
        let list: Option<Vec<Self>> = each.collect();
        list.with_context(|| format!("--initial-cluster is no list of NAME=URL: {text:?}"))
    }

    /// Asks the member what it is.
    pub(super) async fn ask(&self, identity: &Identity) -> Answer {
        match timeout(DEADLINE, self.answer(identity)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => Answer::Silent(format!("{error:#}")),
            Err(_) => Answer::Silent(format!("nothing within {} s", DEADLINE.as_secs())),
        }
    }

    async fn answer(&self, identity: &Identity) -> anyhow::Result<Answer> {
        let url: http::Uri = self.url.parse()?;
        let authority = url.authority().context("its URL has no host")?.clone();
        let port = authority.port_u16().context("its URL has no port")?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let stream = TcpStream::connect((host.as_str(), port)).await?;
        let connector = TlsConnector::from(Arc::clone(&identity.client));
        let stream = connector.connect(ServerName::try_from(host)?, stream);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream.await?)).await?;
        let request = Request::get(PATH)
            .header(http::header::HOST, authority.as_str())
            .body(Empty::<Bytes>::new())?;
        let asking = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), LONGEST).collect().await;
            let body = body.map_err(|error| anyhow!("{error}"))?.to_bytes();
            Ok::<_, anyhow::Error>((status, body))
        };
        let (status, body) = tokio::select! {
            answered = asking => answered?,
            ended = connection => {
                ended?;
                bail!("it closed the connection");
            }
        };
        read(status, &body)
    }
}

fn read(status: StatusCode, body: &[u8]) -> anyhow::Result<Answer> {
    if status != StatusCode::OK {
        bail!("it answered with {status}");
    }
    if body == EMPTY {
        return Ok(Answer::Empty);
    }
    let members: Vec<Member> = serde_json::from_slice(body).context("its answer is no list")?;
    if members.is_empty() {
        bail!("it does not know its cluster yet");
    }
    Ok(Answer::Serves(members))
}

/// Answers every other member that asks that the volume of this one is empty.
pub(super) async fn answer(listener: TcpListener, tls: TlsAcceptor) {
    // Ends the conversations with this function.
    let mut conversations = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    let conversation = timeout(DEADLINE, converse(stream, tls.clone()));
                    conversations.spawn(inherited(conversation));
                }
            }
            Some(_) = conversations.join_next() => {}
        }
    }
}

/// Returns the answer to a request. etcd asks more of its peers; the answer is that nothing runs
/// here.
fn respond(path: &str) -> Response<Full<Bytes>> {
    if path == PATH {
        return Response::new(Full::new(Bytes::from_static(EMPTY)));
    }
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

async fn converse(stream: TcpStream, tls: TlsAcceptor) {
    let service = service_fn(|request: Request<hyper::body::Incoming>| {
        let response = respond(request.uri().path());
        std::future::ready(Ok::<_, std::convert::Infallible>(response))
    });
    let Ok(stream) = tls.accept(stream).await else {
        return;
    };
    let conversation = hyper::server::conn::http1::Builder::new();
    // What ends a conversation is the business of whoever asked.
    drop(
        conversation
            .serve_connection(TokioIo::new(stream), service)
            .await,
    );
}
