//! Connection of a client: kube's layers on a hyper client with small buffers.
//!
//! With kube's own builder, hyper buffers up to 400 KB of unread data, and a connection that has
//! carried a long list keeps that buffer. Each program has a dozen connections, one for each
//! collection that it watches.

use http::Response;
use http_body_util::Limited;
use hyper::body::Incoming;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt, DynBody};
use kube::{Client, Config};
use tower::util::MapResponseLayer;
use tower::{BoxError, ServiceBuilder};

/// The most that a connection holds of what was read and not yet taken, in bytes. The head of an
/// answer has to fit: Kubernetes' are below 2 KB.
const READ_BUFFER: usize = 64 * 1024;

/// Prepares a client; nothing is sent yet. What asks for a proxy is left to kube, which says what
/// it can do about that.
///
/// `longest`: the most bytes of an answer that are read.
pub(super) fn client(config: Config, longest: usize) -> Result<Client, kube::Error> {
    if config.proxy_url.is_some() {
        let limit = MapResponseLayer::new(move |answer: Response<Box<DynBody>>| {
            answer.map(|body| Limited::new(body, longest))
        });
        return Ok(ClientBuilder::try_from(config)?.with_layer(&limit).build());
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let connection: HyperClient<_, Body> = HyperClient::builder(TokioExecutor::new())
        .http1_max_buf_size(READ_BUFFER)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_response(move |answer: Response<Incoming>| {
            answer.map(|body| Limited::new(body, longest))
        })
        .map_err(BoxError::from)
        .service(connection);
    Ok(Client::new(service, config.default_namespace))
}

#[cfg(test)]
mod tests {
    use http::{Request, Uri};
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers one request with this many bytes. A tunnel that is asked for before ends here.
    /// Returns whether there was one.
    async fn serve(listener: TcpListener, bytes: usize) -> bool {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut is_tunnel = false;
        loop {
            let mut request = String::new();
            while !request.ends_with("\r\n\r\n") {
                if stream.read_line(&mut request).await.unwrap_or(0) == 0 {
                    return is_tunnel;
                }
            }
            if !request.starts_with("CONNECT ") {
                let body = " ".repeat(bytes);
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n{body}");
                stream.write_all(answer.as_bytes()).await.ok();
                return is_tunnel;
            }
            is_tunnel = true;
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        }
    }

    #[tokio::test]
    async fn an_answer_is_read_up_to_the_limit_with_a_proxy_and_without_one() {
        crate::tls::install_provider();
        for (is_proxied, bytes, is_read) in [
            (false, 10, true),
            (false, 11, false),
            (true, 10, true),
            (true, 11, false),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = format!("http://{}", listener.local_addr().unwrap());
            let address: Uri = address.parse().unwrap();
            let server = tokio::spawn(serve(listener, bytes));
            let mut config = Config::new(address.clone());
            config.proxy_url = is_proxied.then_some(address);
            let client = client(config, 10).unwrap();
            let request = Request::get("/").body(Vec::new()).unwrap();
            let answer = client.request_text(request).await;
            let case = format!("{is_proxied} {bytes}: {answer:?}");
            assert_eq!(answer.is_ok(), is_read, "{case}");
            assert_eq!(server.await.unwrap(), is_proxied, "{case}");
        }
    }
}
