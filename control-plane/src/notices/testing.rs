//! Receiver of notices on loopback, for tests.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::settings::notice_receivers::{NoticeReceivers, Receiver};

/// Headers and body of a request.
pub type Received = (HeaderMap, Bytes);

/// Status, and a header with its value, of an answer.
type Answer = (u16, &'static str, &'static str);

/// Server that answers as the test wants, and remembers what it was sent.
#[derive(Clone)]
pub struct Server {
    pub address: String,
    received: Arc<Mutex<Vec<Received>>>,
    /// The answers that come first; then it takes everything.
    answers: Arc<Mutex<Vec<Answer>>>,
}

impl Server {
    /// Starts a server, which ends with the runtime of the test.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: format!("http://{}", listener.local_addr().unwrap()),
            received: Arc::default(),
            answers: Arc::default(),
        };
        let kept = server.clone();
        muster_shared::clock::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let server = kept.clone();
                let service = service_fn(move |request| {
                    let server = server.clone();
                    async move { Ok::<_, Infallible>(server.answer(request).await) }
                });
                let serving = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                muster_shared::clock::spawn(serving);
            }
        });
        server
    }

    async fn answer(&self, request: http::Request<hyper::body::Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        self.received.lock().push((head.headers, body));
        let mut answers = self.answers.lock();
        let (status, header, value) = if answers.is_empty() {
            (204, "x-none", "")
        } else {
            answers.remove(0)
        };
        let response = Response::builder().status(status).header(header, value);
        response.body(Full::default()).unwrap()
    }

    /// Has the next request answered so, after those that were arranged before.
    pub fn next(&self, status: u16, header: &'static str, value: &'static str) {
        self.answers.lock().push((status, header, value));
    }

    /// Returns what was sent since this was last called.
    pub fn take(&self) -> Vec<Received> {
        std::mem::take(&mut self.received.lock())
    }

    /// Returns the ids of the events that were sent since this was last called.
    pub fn ids(&self) -> Vec<String> {
        let id = |it: &Received| it.0["webhook-id"].to_str().unwrap().to_owned();
        self.take().iter().map(id).collect()
    }

    /// Returns a receiver at this server.
    pub fn receiver(&self, more: &Value) -> Receiver {
        let mut written = json!({ "name": "a" });
        if more.get("urlFile").is_none() {
            written["url"] = json!(self.address);
        }
        json_patch::merge(&mut written, more);
        let receivers: NoticeReceivers = json!([written]).to_string().parse().unwrap();
        receivers.0[0].clone()
    }
}
