//! Another server than that of the configuration, with the same credentials.

use http::Uri;
use kube::{Client, Config};

use super::network::open;
use super::proxy::of_another;
use super::{Error, Gateway, Profile};

/// A server in place of that of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// URL of the server.
    pub server: Uri,
    /// Authorities of its certificate in DER; `None` for those of the configuration.
    pub authorities: Option<Vec<Vec<u8>>>,
}

/// The configuration of a gateway, and the server in place of its own.
#[derive(Debug)]
pub(super) struct Routed {
    pub(super) own: Config,
    pub(super) route: Option<Route>,
}

impl Routed {
    /// Returns the configuration with the server in place of its own.
    pub(super) fn config(&self) -> Config {
        routed(&self.own, self.route.as_ref())
    }
}

fn routed(own: &Config, route: Option<&Route>) -> Config {
    let mut config = own.clone();
    if let Some(route) = route {
        config.cluster_url = route.server.clone();
        config.tls_server_name = None;
        if route.authorities.is_some() {
            config.root_cert.clone_from(&route.authorities);
        }
        config.proxy_url = of_another(own.proxy_url.as_ref(), &own.cluster_url, &route.server);
    }
    config
}

impl Gateway {
    /// Sends requests to another server from the next one on, or without a route to that of the
    /// configuration. The route stays when the credentials change.
    pub fn reroute(&self, route: Option<Route>) {
        self.change(|routed| routed.route = route);
    }

    /// Returns the server of the configuration.
    pub fn own_server(&self) -> Uri {
        self.routed.lock().own.cluster_url.clone()
    }

    /// Returns the configuration as last read, with its own server in place of the route.
    pub fn own_config(&self) -> Config {
        self.routed.lock().own.clone()
    }

    /// Returns a client of the server in use, for a few requests, as [`client_of`](Self::client_of)
    /// does.
    ///
    /// # Errors
    /// When the credentials or the authorities cannot be used.
    pub fn client_in_use(&self) -> Result<Client, Error> {
        let route = self.routed.lock().route.clone();
        self.client_of(route.as_ref())
    }

    /// Returns a client of another server, or without a route of that of the configuration. The
    /// gate does not hold its requests, and it does not follow the credentials: for a few questions
    /// about that server.
    ///
    /// # Errors
    /// When the credentials or the authorities cannot be used.
    pub fn client_of(&self, route: Option<&Route>) -> Result<Client, Error> {
        let config = routed(&self.routed.lock().own, route);
        open(self.network(), &config, Profile::Probe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Gate, Limits};

    fn config(server: &str) -> Config {
        let mut config = Config::new(server.parse().unwrap());
        config.root_cert = Some(vec![vec![1]]);
        config.tls_server_name = Some("own".to_owned());
        config.proxy_url = Some("http://proxy".parse().unwrap());
        config
    }

    /// Returns server, authorities and name of the present configuration.
    fn way(gateway: &Gateway) -> (String, Vec<Vec<u8>>, Option<String>) {
        parts(gateway.config())
    }

    fn parts(config: Config) -> (String, Vec<Vec<u8>>, Option<String>) {
        let authorities = config.root_cert.unwrap_or_default();
        (
            config.cluster_url.to_string(),
            authorities,
            config.tls_server_name,
        )
    }

    #[tokio::test]
    async fn a_route_stays_when_the_credentials_change_and_its_end_brings_the_own_server_back() {
        let gateway = Gateway::given("fleet", config("https://a"));
        let own = |server: &str| (server.to_owned(), vec![vec![1]], Some("own".to_owned()));
        assert_eq!(way(&gateway), own("https://a/"));
        let route = Route {
            server: "https://b".parse().unwrap(),
            authorities: Some(vec![vec![2]]),
        };
        gateway.reroute(Some(route.clone()));
        let there = ("https://b/".to_owned(), vec![vec![2]], None);
        assert_eq!(way(&gateway), there);
        let proxy = gateway.config().proxy_url;
        assert_eq!(proxy, config("https://a").proxy_url, "of the kubeconfig");
        gateway.take(config("https://a2"));
        assert_eq!(way(&gateway), there);
        assert_eq!(gateway.own_server(), "https://a2/");
        assert_eq!(parts(gateway.own_config()), own("https://a2/"));
        gateway.reroute(Some(Route {
            authorities: None,
            ..route
        }));
        assert_eq!(
            way(&gateway),
            ("https://b/".to_owned(), vec![vec![1]], None)
        );
        gateway.reroute(None);
        assert_eq!(way(&gateway), own("https://a2/"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_held_request_waits_and_one_at_a_closed_gate_says_why() {
        let server = "http://127.0.0.1:1".parse().unwrap();
        let gateway = Gateway::given("fleet", Config::new(server));
        let client = gateway.client(Profile::Watch, Limits::NONE).unwrap();
        gateway.set_gate(Gate::Held);
        let asking = tokio::spawn(async move {
            let error = client.apiserver_version().await.unwrap_err();
            crate::client::brief(&error)
        });
        tokio::time::sleep(std::time::Duration::from_mins(1)).await;
        assert!(!asking.is_finished());
        gateway.set_gate(Gate::Closed("the store is old".into()));
        let words = asking.await.unwrap();
        assert!(
            words.contains("nothing is sent: the store is old"),
            "{words}"
        );
    }
}
