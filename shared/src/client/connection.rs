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
use kube::client::{Body, ConfigExt};
use kube::{Client, Config};
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
        return Client::try_from(config);
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
