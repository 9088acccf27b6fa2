//! The way to the fleet API that is stored with the certificate.

use http::Uri;
use kube::Config;
use muster_shared::certificate::kubeconfig::Way;
use muster_shared::certificate::pem;
use muster_shared::client;

/// Returns the server and the connection of a configuration, to be written into a kubeconfig.
pub(super) fn way_of(config: &Config) -> Way {
    let environment = client::environment_proxy(&config.cluster_url);
    way(config, environment.as_ref())
}

/// Returns the way that the text of a kubeconfig names, from which a configuration was read. Its
/// proxy may be that of the environment, as an earlier version has stored it.
pub(super) fn way_in(text: &str, config: &Config) -> Way {
    Way {
        proxy: client::proxy_of_text(text).map(|it| it.to_string()),
        ..way(config, None)
    }
}

/// Returns the way of a configuration without the proxy of the environment. Whoever reads the
/// kubeconfig later has an environment of its own, in which the proxy may be another one.
fn way(config: &Config, environment: Option<&Uri>) -> Way {
    let authority = config.root_cert.iter().flatten();
    let proxy = config.proxy_url.as_ref();
    let proxy = proxy.filter(|proxy| Some(*proxy) != environment);
    Way {
        server: config.cluster_url.to_string(),
        authority: authority
            .flat_map(|der| pem("CERTIFICATE", der).into_bytes())
            .collect(),
        server_name: config.tls_server_name.clone(),
        proxy: proxy.map(ToString::to_string),
        insecure: config.accept_invalid_certs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_of_the_environment_is_not_stored() {
        let (own, other) = ("http://own:3128/", "http://other:3128/");
        for (proxy, environment, stored) in [
            (Some(own), None, Some(own)),
            (Some(own), Some(other), Some(own)),
            (Some(other), Some(other), None),
            (None, Some(other), None),
            (None, None, None),
        ] {
            let uri = |text: &str| text.parse::<Uri>().unwrap();
            let mut config = Config::new(uri("https://fleet.example.com"));
            config.proxy_url = proxy.map(uri);
            let environment = environment.map(uri);
            let found = way(&config, environment.as_ref());
            assert_eq!(found.proxy.as_deref(), stored, "{proxy:?} {environment:?}");
        }
    }

    #[test]
    fn a_stored_proxy_is_seen_although_the_environment_has_it_too() {
        let of_environment = "http://proxy:3128/";
        let mut config = Config::new("https://fleet.example.com".parse().unwrap());
        config.proxy_url = Some(of_environment.parse().unwrap());
        for stored in [Some(of_environment), None] {
            let way = Way {
                server: "https://fleet.example.com/".to_owned(),
                proxy: stored.map(str::to_owned),
                ..Way::default()
            };
            let text = way.with_certificate("m1", b"certificate", b"key");
            let text = serde_saphyr::to_string(&text).unwrap();
            assert_eq!(way_in(&text, &config), way, "{stored:?}");
        }
    }
}
