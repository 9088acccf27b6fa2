//! APIs that tests answer for.

use std::convert::Infallible;

use http::{Request, Response, Uri};
use kube::Client;
use kube::client::Body;

/// Returns a client of an API that answers each request by its path and its query with a code and a
/// text.
pub(crate) fn api(answer: impl Fn(&Uri) -> (u16, String) + Send + 'static) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (code, body) = answer(request.uri());
        let body = Body::from(body.into_bytes());
        let answer = Response::builder().status(code).body(body).unwrap();
        async move { Ok::<_, Infallible>(answer) }
    });
    Client::new(service, "default")
}
