//! Requests written to a TLS connection by hand, since no client library would send what is sent
//! here.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use kube::config::Kubeconfig;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// No answer takes longer.
const DEADLINE: Duration = Duration::from_secs(30);

/// A request; nothing about it need be right.
#[derive(Debug, Clone)]
pub struct Request {
    /// Method.
    pub method: &'static str,
    /// Path and query as they go over the wire.
    pub target: String,
    /// Media type of the body, if it has one.
    pub media_type: Option<String>,
    /// The body.
    pub body: Vec<u8>,
}

impl Request {
    /// Returns the start of the request, for reports.
    pub fn shown(&self) -> String {
        let body: String = String::from_utf8_lossy(&self.body)
            .chars()
            .take(400)
            .collect();
        let target: String = self.target.chars().take(300).collect();
        format!("{} {target} [{:?}] {body}", self.method, self.media_type)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut head = format!(
            "{} {} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: fuzz/1.0\r\nAccept: application/json\r\nConnection: close\r\n",
            self.method, self.target
        );
        if let Some(media_type) = &self.media_type {
            let _ = write!(head, "Content-Type: {media_type}\r\n");
        }
        let _ = write!(head, "Content-Length: {}\r\n\r\n", self.body.len());
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// An answer: its code, and its body as far as that is JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Code.
    pub code: u16,
    /// Body.
    pub body: Value,
}

/// Where the requests go.
#[derive(Clone)]
pub struct Wire {
    connector: TlsConnector,
    address: String,
}

impl Wire {
    /// Makes the wire to the server of an administrator's kubeconfig with a client certificate.
    pub fn to(kubeconfig: &Kubeconfig) -> anyhow::Result<Self> {
        let cluster = kubeconfig.clusters[0].cluster.as_ref().context("cluster")?;
        let user = kubeconfig.auth_infos[0]
            .auth_info
            .as_ref()
            .context("user")?;
        let text = |data: &Option<String>| -> anyhow::Result<Vec<u8>> {
            Ok(BASE64.decode(data.as_deref().context("no data")?)?)
        };
        let certificate = |data| anyhow::Ok(CertificateDer::from_pem_slice(&text(data)?)?);
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&cluster.certificate_authority_data)?)?;
        let own = certificate(&user.client_certificate_data)?;
        let key = serde_json::to_value(user)?["client-key-data"]
            .as_str()
            .map(str::to_owned);
        let key = PrivateKeyDer::from_pem_slice(&text(&key)?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![own], key)?;
        let server = cluster.server.as_deref().context("server")?;
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
            address: server.trim_start_matches("https://").to_owned(),
        })
    }

    /// Sends bytes and reads all that comes back.
    pub async fn raw(&self, bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
        let talk = async {
            let stream = TcpStream::connect(&self.address).await?;
            stream.set_nodelay(true)?;
            let name = ServerName::try_from("localhost")?;
            let stream = self.connector.connect(name, stream).await?;
            let (mut reader, mut writer) = tokio::io::split(stream);
            let mut answer = Vec::new();
            // A server may answer and hang up before it has read everything.
            let send = async {
                let _ = writer.write_all(bytes).await;
                let _ = writer.flush().await;
            };
            let ((), _) = tokio::join!(send, reader.read_to_end(&mut answer));
            anyhow::Ok(answer)
        };
        tokio::time::timeout(DEADLINE, talk)
            .await
            .context("no answer in time")?
    }

    /// Sends a request and reads its answer.
    pub async fn send(&self, request: &Request) -> anyhow::Result<Answer> {
        let answer = self.raw(&request.bytes()).await?;
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.with_context(|| format!("no answer to {}", request.shown()))?;
        let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
        let code = head.split(' ').nth(1).context("a code")?.parse()?;
        let mut body = answer[end + 4..].to_vec();
        if head.contains("transfer-encoding: chunked") {
            body = unchunked(&body);
        }
        let body = serde_json::from_slice(&body).unwrap_or_default();
        Ok(Answer { code, body })
    }
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") {
        let size = String::from_utf8_lossy(&bytes[..end]);
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        let rest = &bytes[end + 2..];
        if size == 0 || rest.len() < size {
            break;
        }
        body.extend_from_slice(&rest[..size]);
        bytes = rest.get(size + 2..).unwrap_or_default();
    }
    body
}
