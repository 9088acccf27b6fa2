//! Networks other than TCP and TLS, for programs whose APIs are in the same process.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::Limited;
use http_body_util::combinators::UnsyncBoxBody;
use kube::client::Body;
use kube::{Client, Config};
use tower::{BoxError, service_fn};

use super::{Error, Profile, connect_within};

/// Body of a response, which may come in pieces.
pub type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// A network that carries requests to APIs in place of TCP and TLS.
///
/// A [`Gateway`](super::Gateway) that is [made over it](super::Gateway::over) has the same limits,
/// priorities and deadlines as one that opens connections. TLS, proxies and authentication are
/// left to the network: it reads the server and the credentials in the configuration.
pub trait Network: Debug + Send + Sync {
    /// Sends one request to the server of a configuration, and returns the response as soon as its
    /// head is known.
    fn send(
        &self,
        config: &Config,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<ResponseBody>, BoxError>>;

    /// Returns the host name that the program has in this network.
    fn host(&self) -> String;

    /// Reaches a host and a port, as a TLS handshake does; fails with a predicate that says why
    /// not. The caller sets the deadline.
    fn handshake(&self, host: &str, port: u16) -> BoxFuture<'static, Result<(), String>> {
        let refused = format!("is not in this network: {host}:{port}");
        Box::pin(std::future::ready(Err(refused)))
    }
}

/// Prepares a client with the limits of a profile on its answers, over TCP and TLS where there is
/// no other network.
pub(super) fn open(
    network: Option<&Arc<dyn Network>>,
    config: &Config,
    profile: Profile,
) -> Result<Client, Error> {
    let Some(network) = network else {
        return connect_within(config, profile, profile.longest_answer());
    };
    let (network, config) = (Arc::clone(network), config.clone());
    let namespace = config.default_namespace.clone();
    let service = service_fn(move |request| {
        let response = network.send(&config, request);
        async move {
            let answer = match profile.response_deadline() {
                Some(deadline) => tokio::time::timeout(deadline, response).await??,
                None => response.await?,
            };
            let longest = profile.longest_answer();
            Ok::<_, BoxError>(answer.map(|body| Limited::new(body, longest)))
        }
    });
    Ok(Client::new(service, namespace))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::stream;
    use http_body_util::{BodyExt as _, Full, StreamBody};
    use hyper::body::Frame;
    use tokio::time::Instant;

    use super::*;
    use crate::client::{Gateway, Limits, Route};

    /// Answers with the host of the configuration; never where that is `silent`, and without end
    /// where it is `endless`.
    #[derive(Debug)]
    struct Echo;

    impl Network for Echo {
        fn send(
            &self,
            config: &Config,
            _: Request<Body>,
        ) -> BoxFuture<'static, Result<Response<ResponseBody>, BoxError>> {
            let host = config.cluster_url.host().unwrap_or_default().to_owned();
            Box::pin(async move {
                if host == "silent" {
                    std::future::pending::<()>().await;
                }
                let body = if host == "endless" {
                    let bytes = Bytes::from(vec![b' '; 1 << 20]);
                    let piece = move || Ok(Frame::data(bytes.clone()));
                    StreamBody::new(stream::repeat_with(piece)).boxed_unsync()
                } else {
                    Full::from(host).map_err(BoxError::from).boxed_unsync()
                };
                let date = "Sun, 06 Nov 1994 08:49:37 GMT";
                Ok(Response::builder().header("date", date).body(body)?)
            })
        }

        fn host(&self) -> String {
            "pod".to_owned()
        }
    }

    async fn ask(gateway: &Arc<Gateway>, profile: Profile) -> Result<String, kube::Error> {
        ask_by(&gateway.client(profile, Limits::NONE).unwrap()).await
    }

    async fn ask_by(client: &Client) -> Result<String, kube::Error> {
        let request = Request::get("/version").body(Vec::new()).unwrap();
        client.request_text(request).await
    }

    fn config(host: &str) -> Config {
        Config::new(format!("http://{host}").parse().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_reaches_the_server_of_its_configuration_over_its_network() {
        let fleet = Gateway::over(Arc::new(Echo), "fleet", config("fleet"));
        assert_eq!(fleet.server_clock().at(Instant::now()), None);
        assert_eq!(ask(&fleet, Profile::Write).await.unwrap(), "fleet");
        let heard = fleet.server_clock().at(Instant::now());
        let heard = heard.map(jiff::Timestamp::as_second);
        assert_eq!(heard, Some(784_111_777), "each answer tells the time");
        let member = fleet.beside("member", config("m1"));
        assert_eq!(member.server_clock().at(Instant::now()), None);
        assert_eq!(ask(&member, Profile::Watch).await.unwrap(), "m1");
        assert_eq!(member.host().as_deref(), Some("pod"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_for_a_few_requests_asks_the_server_that_is_wanted() {
        let gateway = Gateway::over(Arc::new(Echo), "fleet", config("own"));
        let other = Route {
            server: "http://other".parse().unwrap(),
            authorities: None,
        };
        for (route, in_use) in [(None, "own"), (Some(other), "other")] {
            gateway.reroute(route);
            let own = gateway.client_of(None).unwrap();
            assert_eq!(ask_by(&own).await.unwrap(), "own", "{in_use}");
            let client = gateway.client_in_use().unwrap();
            assert_eq!(ask_by(&client).await.unwrap(), in_use);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_answer_is_given_up_at_the_deadline_of_the_profile() {
        let gateway = Gateway::over(Arc::new(Echo), "fleet", config("silent"));
        for (profile, seconds) in [(Profile::Write, 15), (Profile::Probe, 5)] {
            let begun = Instant::now();
            assert!(ask(&gateway, profile).await.is_err(), "{profile:?}");
            assert_eq!(begun.elapsed(), Duration::from_secs(seconds), "{profile:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_without_end_is_given_up_and_is_not_kept() {
        let gateway = Gateway::over(Arc::new(Echo), "member", config("endless"));
        for profile in [Profile::Write, Profile::Probe] {
            let answer = ask(&gateway, profile).await;
            assert!(
                matches!(
                    answer,
                    Err(kube::Error::HyperError(_) | kube::Error::Service(_))
                ),
                "{answer:?}"
            );
        }
    }
}
