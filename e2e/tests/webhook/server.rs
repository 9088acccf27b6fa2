//! The server by itself: whatever is sent is answered, and a replaced certificate is shown to the
//! next who connects.

use std::sync::Arc;

use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use muster_e2e::harness::test_bed::Scratch;
use muster_shared::https::{self, Certificate};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::webhook::certificate::SelfSigned;

struct Serving {
    shutdown: CancellationToken,
    port: u16,
    directory: Scratch,
    certificate: Arc<Certificate>,
    _until: DropGuard,
}

/// Answers with the body, and panics where it says so.
fn echo(path: &str, body: &[u8]) -> https::Reply {
    assert!(!body.starts_with(b"panic"), "as asked");
    (StatusCode::OK, [path.as_bytes(), b" ", body].concat())
}

impl Serving {
    async fn start(shown: &SelfSigned) -> Self {
        muster_shared::tls::install_provider();
        let directory = Scratch::new("https").unwrap();
        shown.write(directory.path());
        let file = |name| directory.path().join(name);
        let certificate = Arc::new(Certificate::new(file("tls.crt"), file("tls.key")));
        assert!(certificate.reload().await.unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shutdown = CancellationToken::new();
        tokio::spawn(https::serve(
            listener,
            Arc::clone(&certificate),
            Arc::new(echo),
            shutdown.clone(),
        ));
        Self {
            shutdown: shutdown.clone(),
            port,
            directory,
            certificate,
            _until: shutdown.drop_guard(),
        }
    }
}

async fn send(client: &Client, method: &str, body: Vec<u8>) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri("/x");
    let response = client
        .send(request.body(body.into()).unwrap())
        .await
        .unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test]
async fn whatever_is_sent_is_answered_and_the_server_goes_on() {
    let shown = SelfSigned::new();
    let serving = Serving::start(&shown).await;
    let client = shown.client(serving.port);
    for (method, body, status) in [
        ("GET", Vec::new(), StatusCode::METHOD_NOT_ALLOWED),
        ("POST", b"panic".to_vec(), StatusCode::INTERNAL_SERVER_ERROR),
        ("POST", vec![b'x'; 8 << 20], StatusCode::PAYLOAD_TOO_LARGE),
        ("POST", vec![b'x'; 6 << 20], StatusCode::OK),
    ] {
        let length = body.len();
        let (answered, _) = send(&client, method, body).await;
        assert_eq!(answered, status, "{method} of {length} bytes");
    }
    let (_, said) = send(&client, "POST", b"hello".to_vec()).await;
    assert_eq!(said, "/x hello");
}

#[tokio::test]
async fn a_replaced_certificate_is_shown_and_a_half_replaced_one_is_not() {
    let (first, second) = (SelfSigned::new(), SelfSigned::new());
    let serving = Serving::start(&first).await;
    assert!(!serving.certificate.reload().await.unwrap(), "nothing new");
    // The new certificate beside the old key.
    second.write(serving.directory.path());
    let place = serving.directory.path().join("tls.key");
    let key = std::fs::read(&place).unwrap();
    first.write(serving.directory.path());
    std::fs::write(&place, &key).unwrap();
    let error = serving.certificate.reload().await.unwrap_err().to_string();
    assert!(error.contains("tls.crt"), "{error}");
    let (status, _) = send(&first.client(serving.port), "POST", b"a".to_vec()).await;
    assert_eq!(status, StatusCode::OK);

    second.write(serving.directory.path());
    assert!(serving.certificate.reload().await.unwrap());
    let (status, _) = send(&second.client(serving.port), "POST", b"a".to_vec()).await;
    assert_eq!(status, StatusCode::OK);
}

/// Opens a TLS connection on which nothing was sent yet.
async fn shaken(shown: &SelfSigned, port: u16) -> tokio_rustls::client::TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(shown.der().into()).unwrap();
    let config = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let name = "127.0.0.1".try_into().unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.unwrap()
}

// The clock stands still until all wait for it: without a deadline of the server these would wait
// for ever.
#[tokio::test(start_paused = true)]
async fn who_says_nothing_before_or_after_the_handshake_is_cut() {
    let shown = SelfSigned::new();
    let serving = Serving::start(&shown).await;
    let mut silent = TcpStream::connect(("127.0.0.1", serving.port))
        .await
        .unwrap();
    let mut said = Vec::new();
    // An end without a farewell is an end, too.
    let _ = silent.read_to_end(&mut said).await;
    let mut silent = shaken(&shown, serving.port).await;
    let _ = silent.read_to_end(&mut said).await;
    assert_eq!(said, b"");
}

#[tokio::test]
async fn reviews_are_answered_for_a_while_after_the_shutdown_was_asked_for() {
    let shown = SelfSigned::new();
    let serving = Serving::start(&shown).await;
    serving.shutdown.cancel();
    let (status, _) = send(&shown.client(serving.port), "POST", b"a".to_vec()).await;
    assert_eq!(status, StatusCode::OK);
}
